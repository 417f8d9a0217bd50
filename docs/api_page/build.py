"""Builds the page at ``/docs`` from ``openapi.yaml``: ``python docs/api_page/build.py``.

The result is a file of the package, ``gateway/docs_page/index.html``, that git doesn't keep:
``setup.py`` and ``make`` make it. The page needs nothing from elsewhere, and a script only for its
search.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
SOURCE: Final = ROOT / "openapi.yaml"
PAGE: Final = ROOT / "gateway" / "docs_page" / "index.html"

Object = dict[str, Any]

METHODS: Final = ("get", "head", "put", "patch", "delete", "options", "post", "trace")
# By the kind of component: the beginning of its anchors. The anchor of an operation is its id.
PREFIXES: Final = {"schemas": "schema", "responses": "answer", "headers": "header"}
BOUNDS: Final = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "maxProperties": "at most {} members",
}


def render(openapi: str) -> str:
    """``openapi`` is YAML, a valid document; the page is HTML."""
    document: Object = yaml.safe_load(openapi)
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    parts = Parts(document)
    texts = Texts(parts.anchors())
    environment.filters |= {
        "anchor": anchor_of,
        "blocks": texts.blocks,
        "curl": curl,
        "examples": examples,
        "inline": texts.inline,
        "of_name": lambda reference: reference.rpartition("/")[2],
        "resolve": parts.resolve,
        "type": type_of,
    }
    page = environment.get_template("page.html").render(
        info=document["info"],
        components=document["components"],
        codes=parts.codes(),
        groups=parts.groups(),
    )
    return page + "\n"


def anchor_of(reference: str) -> str:
    """The anchor of the component that a ``$ref`` names."""
    kind, name = reference.split("/")[-2:]
    return f"{PREFIXES[kind]}-{name}"


class Parts:
    """The document in the order of the page."""

    def __init__(self, document: Object) -> None:
        self._document = document
        self._components = document["components"]

    def resolve(self, part: Object) -> Object:
        """``part``, or the component that it refers to."""
        while "$ref" in part:
            target: Any = self._document
            for step in part["$ref"].removeprefix("#/").split("/"):
                target = target[step]
            part = target
        return part

    def operations(self) -> Iterator[Object]:
        """Operations with ``method`` and ``path``; parameters and body are resolved."""
        for path, item in self._document["paths"].items():
            for method in METHODS:
                if method in item:
                    operation = item[method]
                    parameters = [*item.get("parameters", ()), *operation.get("parameters", ())]
                    yield operation | {
                        "method": method,
                        "path": path,
                        "parameters": [self.resolve(each) for each in parameters],
                        "body": self.resolve(operation.get("requestBody", {})),
                    }

    def groups(self) -> list[Object]:
        """The tags with their operations."""
        operations = list(self.operations())
        return [
            tag | {"operations": [each for each in operations if tag["name"] in each["tags"]]}
            for tag in self._document["tags"]
        ]

    def codes(self) -> list[Object]:
        """Problem codes with their statuses and the shared answers that carry them."""
        statuses: dict[str, set[str]] = {}
        for operation in self.operations():
            for status, answer in operation["responses"].items():
                name = answer.get("$ref", "").rpartition("/")[2]
                statuses.setdefault(name, set()).add(status)
        carriers: dict[str, list[str]] = {}
        for name, answer in self._components["responses"].items():
            for code in re.findall(r"`(\w+)`", answer["description"]):
                carriers.setdefault(code, []).append(name)
        found = []
        for code in self._codes():
            answers = carriers.get(code, [])
            shown = sorted({each for name in answers for each in statuses.get(name, ())})
            # No operation has the answer to a method that its path lacks.
            found.append({"name": code, "statuses": shown or ["405"], "answers": answers})
        return found

    def anchors(self) -> dict[str, str]:
        """By name: the anchor of each header, schema, problem code and operation.

        These names become links where a text has them as code.
        """
        found = {name: f"header-{name}" for name in self._components["headers"]}
        found |= {name: f"schema-{name}" for name in self._components["schemas"]}
        found |= {code: f"code-{code}" for code in self._codes()}
        return found | {each["operationId"]: each["operationId"] for each in self.operations()}

    def _codes(self) -> list[str]:
        """In the order of the document, which is that of their statuses."""
        return list(self._components["schemas"]["ProblemCode"]["x-known-values"])


class Texts:
    """The document's texts, which are CommonMark, as HTML; HTML in a text is shown, not obeyed."""

    def __init__(self, anchors: dict[str, str]) -> None:
        self._anchors = anchors
        self._markdown = MarkdownIt("commonmark", {"html": False})
        self._markdown.renderer.rules["code_inline"] = self._code

    def blocks(self, text: str) -> Markup:
        return Markup(self._markdown.render(text))

    def inline(self, text: str) -> Markup:
        return Markup(self._markdown.renderInline(text))

    def _code(self, tokens: Sequence[Token], index: int, *_: Any) -> str:
        content = tokens[index].content
        code = Markup("<code>{}</code>").format(content)
        anchor = self._anchors.get(content)
        return str(code if anchor is None else Markup('<a href="#{}">{}</a>').format(anchor, code))


def type_of(schema: Object) -> Markup:
    """The type with its bounds, short enough for a cell; schemas that have a name are links."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return Markup('<a href="#{}">{}</a>').format(anchor_of(schema["$ref"]), name)
    for several in ("oneOf", "anyOf"):
        if several in schema:
            return Markup(" or ").join(type_of(each) for each in schema[several])
    words = [_kind(schema)]
    words += [Markup(said).format(schema[name]) for name, said in BOUNDS.items() if name in schema]
    if "format" in schema:
        words.append(Markup("{}").format(schema["format"]))
    if "pattern" in schema:
        words.append(Markup("like <code>{}</code>").format(schema["pattern"]))
    if "default" in schema:
        words.append(Markup("by default {}").format(_value(schema["default"])))
    return Markup(", ").join(words)


def _kind(schema: Object) -> Markup:
    if "const" in schema:
        return _value(schema["const"])
    if "enum" in schema:
        return Markup(" or ").join(_value(each) for each in schema["enum"])
    kinds = schema.get("type", "any JSON value")
    kind = " or ".join(kinds) if isinstance(kinds, list) else str(kinds)
    for parts in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(parts, dict):
            return Markup("{} of {}").format(kind, type_of(parts))
    return Markup("{}").format(kind)


def _value(value: Any) -> Markup:
    return Markup("<code>{}</code>").format(json.dumps(value, ensure_ascii=False))


def curl(operation: Object) -> str:
    """A command with the required parts alone, by the examples of the document.

    ``$GATEWAY`` and ``$TOKEN`` stand for what the document can't know.
    """
    path, method = operation["path"], operation["method"]
    query, lines = [], []
    for each in operation["parameters"]:
        if each["in"] == "path":
            path = path.replace(f"{{{each['name']}}}", quote(str(_example(each)), safe=""))
        elif each.get("required") and each["in"] == "query":
            query.append(f"{each['name']}={quote(str(_example(each)), safe='')}")
        elif each.get("required"):
            header = f"{each['name']}: {_example(each)}"
            lines.append(f"-H {shlex.quote(header)}")
    if operation.get("security") != []:
        lines.insert(0, '-H "Authorization: Bearer $TOKEN"')
    for media_type, media in list(operation["body"].get("content", {}).items())[:1]:
        sent = next(iter(_values(media).values()), None)
        text = sent if isinstance(sent, str) else json.dumps(sent, ensure_ascii=False)
        lines += [f"-H 'Content-Type: {media_type}'", f"--data-binary {shlex.quote(text)}"]
    asked = {"get": "", "head": "--head "}.get(method, f"-X {method.upper()} ")
    url = f'"$GATEWAY{path}{"?" if query else ""}{"&".join(query)}"'
    return " \\\n  ".join([f"curl {asked}{url}", *lines])


def _example(parameter: Object) -> Any:
    schema = parameter.get("schema", {})
    named = [each["value"] for each in parameter.get("examples", {}).values()]
    for found in (parameter.get("example"), *named, schema.get("example"), schema.get("default")):
        if found is not None:
            return found
    raise ValueError(f"the parameter {parameter['name']} has no example")


def examples(media: Object) -> list[tuple[str, str]]:
    """Bodies by name, as they are sent."""
    return [
        (name.replace("_", " "), value if isinstance(value, str) else _laid_out(value))
        for name, value in _values(media).items()
    ]


def _laid_out(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _values(media: Object) -> dict[str, Any]:
    named = {name: each["value"] for name, each in media.get("examples", {}).items()}
    return named | ({"example": media["example"]} if "example" in media else {})


if __name__ == "__main__":
    PAGE.write_text(render(SOURCE.read_text(encoding="utf-8")), encoding="utf-8")
