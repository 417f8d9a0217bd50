"""Ready-made HTTP/1.1 request bytes."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"


def document_path(catalog: str, key: str) -> str:
    return f"/v1/catalogs/{quote(catalog, safe='')}/documents/{quote(key)}"


def get(path: str, **headers: str) -> bytes:
    """A GET; header names are written with underscores."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{_lines(headers)}\r\n".encode()


def head_with_body(method: str, path: str, content_type: str, **headers: str) -> bytes:
    """All of a request up to the number of its Content-Length; complete it with `with_body`."""
    return (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}\r\n"
        f"{_lines(headers)}Content-Length: "
    ).encode()


def with_body(head: bytes, body: bytes) -> bytes:
    return b"%b%d\r\n\r\n%b" % (head, len(body), body)


def put(path: str, document: object, **headers: str) -> bytes:
    return with_body(head_with_body("PUT", path, JSON, **headers), msgspec.json.encode(document))


def header(head: bytes, name: str) -> str:
    """The value of one header of an answer's head. Raises KeyError."""
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.strip().lower() == name.lower().encode():
            return value.strip().decode()
    raise KeyError(name)


def _lines(headers: dict[str, str]) -> str:
    return "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
