"""Where on the page each part of the document is shown; the names that links go by."""

from __future__ import annotations

from typing import Any, Final

Object = dict[str, Any]

METHODS: Final = ("get", "head", "put", "patch", "delete", "options", "post", "trace")
# By the kind of component: what its anchors begin with. Operations go by their id alone.
_PREFIXES: Final = {"schemas": "schema", "responses": "answer", "headers": "header"}


def anchor_of(reference: str) -> str:
    """The anchor of what a ``$ref`` within the document names."""
    kind, name = reference.split("/")[-2:]
    return f"{_PREFIXES[kind]}-{name}"


def code_anchor(code: str) -> str:
    return f"code-{code}"


def all_anchors(document: Object) -> dict[str, str]:
    """The anchor of everything that a text may speak of by its name alone.

    Operations by their id, problem codes, schemas, and headers of answers.
    """
    components = document["components"]
    anchors = {name: anchor_of(f"#/components/headers/{name}") for name in components["headers"]}
    anchors |= {name: anchor_of(f"#/components/schemas/{name}") for name in components["schemas"]}
    anchors |= {code: code_anchor(code) for code in problem_codes(document)}
    for item in document["paths"].values():
        for method in METHODS:
            if method in item:
                name = item[method]["operationId"]
                anchors[name] = name
    return anchors


def problem_codes(document: Object) -> list[str]:
    """In the order of the document, which is that of their statuses."""
    return list(document["components"]["schemas"]["ProblemCode"]["x-known-values"])


def resolve(document: Object, part: Object) -> Object:
    """``part``, or what it refers to."""
    while "$ref" in part:
        target: Any = document
        for step in part["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        part = target
    return part
