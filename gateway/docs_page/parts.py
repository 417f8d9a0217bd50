"""The parts of the page, taken out of the OpenAPI document in the order in which they are shown."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from gateway.docs_page.anchors import (
    METHODS,
    Object,
    anchor_of,
    code_anchor,
    problem_codes,
    resolve,
)
from gateway.docs_page.texts import Texts
from gateway.docs_page.types import type_of


@dataclass(frozen=True, slots=True)
class Field:
    """A parameter, a header or a member; `place` is where a parameter goes."""

    name: str
    place: str
    required: bool
    type: Markup
    text: Markup
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Body:
    """Of a request or an answer; `examples` are as they would be sent."""

    media_type: str
    type: Markup
    examples: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of an operation; `shared` is the anchor of the one that several have."""

    status: str
    text: Markup
    headers: list[Field]
    bodies: list[Body]
    shared: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An operation; `curl` is a command that asks for it."""

    anchor: str
    method: str
    path: str
    summary: Markup
    text: Markup
    parameters: list[Field]
    body_text: Markup | None
    bodies: list[Body]
    replies: list[Reply]
    curl: str


@dataclass(frozen=True, slots=True)
class Group:
    """The operations under one tag."""

    anchor: str
    title: str
    text: Markup
    endpoints: list[Endpoint]


@dataclass(frozen=True, slots=True)
class ShownSchema:
    name: str
    anchor: str
    text: Markup
    type: Markup
    members: list[Field]


@dataclass(frozen=True, slots=True)
class Code:
    """A problem code; `replies` are the shared answers that carry it."""

    name: str
    anchor: str
    statuses: str
    replies: list[tuple[str, str]]


class Parts:
    """Everything that the page shows of ``document``."""

    def __init__(self, document: Object, texts: Texts) -> None:
        self._document = document
        self._components = document["components"]
        self._texts = texts

    def groups(self) -> list[Group]:
        found = []
        for tag in self._document["tags"]:
            endpoints = [each for each in self._endpoints() if tag["name"] in each[0]]
            text = self._texts.inline(tag["description"])
            anchor = f"group-{tag['name']}"
            shown = [self._endpoint(*each[1:]) for each in endpoints]
            found.append(Group(anchor, tag["name"].capitalize(), text, shown))
        return found

    def replies(self) -> list[Reply]:
        """The answers that several operations share."""
        return [self._reply("", {"$ref": f"#/components/responses/{name}"}, whole=True)
                for name in self._components["responses"]]  # fmt: skip

    def headers(self) -> list[Field]:
        """Headers of answers."""
        found = []
        for name, header in self._components["headers"].items():
            anchor = anchor_of(f"#/components/headers/{name}")
            found.append(self._field(name, "", header, anchor))
        return found

    def schemas(self) -> list[ShownSchema]:
        return [self._schema(name, each) for name, each in self._components["schemas"].items()]

    def codes(self) -> list[Code]:
        carriers: dict[str, list[tuple[str, str]]] = {}
        statuses = self._statuses()
        for name, answer in self._components["responses"].items():
            for code in re.findall(r"`(\w+)`", answer["description"]):
                anchor = anchor_of(f"#/components/responses/{name}")
                carriers.setdefault(code, []).append((name, anchor))
        found = []
        for code in problem_codes(self._document):
            shown = carriers.get(code, [])
            of_code = sorted({each for name, _ in shown for each in statuses.get(name, ())})
            # Of no operation is what answers a method that its path doesn't have.
            found.append(Code(code, code_anchor(code), ", ".join(of_code) or "405", shown))
        return found

    def _statuses(self) -> dict[str, set[str]]:
        """By shared answer, the statuses that operations give it."""
        found: dict[str, set[str]] = {}
        for _, _, _, operation, _ in self._endpoints():
            for status, answer in operation["responses"].items():
                name = answer.get("$ref", "").rpartition("/")[2]
                found.setdefault(name, set()).add(status)
        return found

    def _endpoints(self) -> Iterator[tuple[list[str], str, str, Object, list[Object]]]:
        for path, item in self._document["paths"].items():
            for method in METHODS:
                if method in item:
                    operation = item[method]
                    yield operation["tags"], method, path, operation, item.get("parameters", [])

    def _endpoint(
        self, method: str, path: str, operation: Object, shared: list[Object]
    ) -> Endpoint:
        body = resolve(self._document, operation.get("requestBody", {}))
        parameters = [
            resolve(self._document, each) for each in (*shared, *operation.get("parameters", ()))
        ]
        return Endpoint(
            anchor=operation["operationId"],
            method=method.upper(),
            path=path,
            summary=self._texts.inline(operation["summary"]),
            text=self._texts.blocks(operation["description"]),
            parameters=[self._field(each["name"], each["in"], each) for each in parameters],
            body_text=self._texts.inline(body["description"]) if body else None,
            bodies=self._bodies(body),
            replies=[self._reply(*each) for each in operation["responses"].items()],
            curl=_curl(method, path, operation, parameters, body),
        )

    def _reply(self, status: str, answer: Object, whole: bool = False) -> Reply:
        reference = answer.get("$ref", "")
        content = resolve(self._document, answer)
        text = self._texts.inline(content["description"])
        name = reference.rpartition("/")[2]
        anchor = anchor_of(reference) if reference else ""
        if reference and not whole:
            return Reply(status, text, [], [], anchor, name)
        headers = []
        for header, described in content.get("headers", {}).items():
            link = anchor_of(described["$ref"]) if "$ref" in described else ""
            headers.append(self._field(header, "", resolve(self._document, described), link))
        return Reply(status, text, headers, self._bodies(content), anchor, name)

    def _bodies(self, described: Object) -> list[Body]:
        return [
            Body(media_type, type_of(media.get("schema", {})), _examples(media))
            for media_type, media in described.get("content", {}).items()
        ]

    def _field(self, name: str, place: str, described: Object, anchor: str = "") -> Field:
        return Field(
            name=name,
            place=place,
            required=bool(described.get("required", False)),
            type=type_of(described.get("schema", {})),
            text=self._texts.inline(described.get("description", "")),
            anchor=anchor,
        )

    def _schema(self, name: str, schema: Object) -> ShownSchema:
        required = schema.get("required", [])
        members = [
            Field(
                name=member,
                place="",
                required=member in required,
                type=type_of(described),
                text=self._texts.inline(described.get("description", "")),
            )
            for member, described in schema.get("properties", {}).items()
        ]
        text = self._texts.blocks(schema.get("description", ""))
        anchor = anchor_of(f"#/components/schemas/{name}")
        return ShownSchema(name, anchor, text, type_of(schema), members)


def _curl(method: str, path: str, operation: Object, parameters: list[Object], body: Object) -> str:
    """With what is required alone, by the examples of the document; `$GATEWAY` and `$TOKEN` stand
    for what it can't know."""
    query = []
    lines = []
    for each in parameters:
        if each["in"] == "path":
            path = path.replace(f"{{{each['name']}}}", quote(str(_example(each)), safe=""))
        elif each.get("required") and each["in"] == "query":
            query.append(f"{each['name']}={quote(str(_example(each)), safe='')}")
        elif each.get("required"):
            header = f"{each['name']}: {_example(each)}"
            lines.append(f"-H {shlex.quote(header)}")
    url = f'"$GATEWAY{path}{"?" if query else ""}{"&".join(query)}"'
    asked = {"get": "", "head": "--head "}.get(method, f"-X {method.upper()} ")
    if operation.get("security") != []:
        lines.insert(0, '-H "Authorization: Bearer $TOKEN"')
    for media_type, media in body.get("content", {}).items():
        sent = next(iter(_values(media).values()), None)
        lines.append(f"-H 'Content-Type: {media_type}'")
        text = sent if isinstance(sent, str) else json.dumps(sent, ensure_ascii=False)
        lines.append(f"--data-binary {shlex.quote(text)}")
        break
    return " \\\n  ".join([f"curl {asked}{url}", *lines])


def _example(parameter: Object) -> Any:
    schema = parameter.get("schema", {})
    examples = [each["value"] for each in parameter.get("examples", {}).values()]
    for found in (
        parameter.get("example"),
        *examples,
        schema.get("example"),
        schema.get("default"),
    ):
        if found is not None:
            return found
    raise ValueError(f"the parameter {parameter['name']} has no example")


def _examples(media: Object) -> list[tuple[str, str]]:
    return [(name.replace("_", " "), _shown(value)) for name, value in _values(media).items()]


def _values(media: Object) -> dict[str, Any]:
    named = {name: each["value"] for name, each in media.get("examples", {}).items()}
    if "example" in media:
        named["example"] = media["example"]
    return named


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
