"""`openapi.yaml` as data, and how to find one's way in it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

PATH = Path(__file__).resolve().parents[2] / "openapi.yaml"
METHODS = ("get", "head", "put", "patch", "delete", "options", "post", "trace")

Object = dict[str, Any]


class Operation(NamedTuple):
    path: str
    method: str
    content: Object
    shared: list[Object]
    """The parameters of the path, which all its operations have."""


def load() -> Object:
    """The file; what is returned may be changed, for nobody else has it."""
    document = pickle.loads(_parsed())
    assert isinstance(document, dict)
    return document


@cache  # it takes as long as many tests
def _parsed() -> bytes:
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return pickle.dumps(yaml.load(PATH.read_text(), Loader=loader))


def operations(document: Object) -> Iterator[Operation]:
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield Operation(path, method, item[method], item.get("parameters", []))


def resolve(document: Object, part: Object) -> Object:
    """`part`, or what it refers to."""
    while "$ref" in part:
        target: Any = document
        for step in part["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        part = target
    return part


def parameters(document: Object, operation: Operation) -> list[Object]:
    return [
        resolve(document, each)
        for each in (*operation.shared, *operation.content.get("parameters", ()))
    ]


def response(document: Object, operation: Operation, status: int) -> Object:
    return resolve(document, operation.content["responses"][str(status)])


def examples(part: Object) -> list[Any]:
    """The values of `example` and `examples` of a parameter, a header or a media type."""
    found = [each["value"] for each in part.get("examples", {}).values()]
    return [*found, *([part["example"]] if "example" in part else [])]


def parts(value: Any) -> Iterator[Object]:
    """Every object in the document, the document first."""
    if isinstance(value, dict):
        yield value
    for child in value.values() if isinstance(value, dict) else value:
        if isinstance(child, dict | list):
            yield from parts(child)
