"""The client's uploads and bulk writes, on a real gateway."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from patching.client import Catalog, Conflict, Gateway, NotFound, PreconditionFailed
from patching.client._calls import Call
from patching.client._steps import Steps
from patching.client.transport import HttpAnswer


def sources(folder: Path, raw: bytes) -> list[Any]:
    path = folder / "large.json"
    path.write_bytes(raw)
    return [raw, path, io.BytesIO(raw), [raw[:3], b"", raw[3:]], iter([raw])]


def test_an_upload_accepts_any_source_of_bytes(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = {"items": [{"n": number} for number in range(500)]}
    raw = json.dumps(value).encode()
    staged: list[int] = []
    send = catalog._calls.send

    def send_and_tell(call: Call, timeout_s: float | None = None) -> Steps[HttpAnswer]:
        if call.method == "PUT" and "/parts/" in call.path:
            staged.append(len(call.body or b""))
        return send(call, timeout_s)

    monkeypatch.setattr(catalog._calls, "send", send_and_tell)
    for number, source in enumerate(sources(tmp_path, raw)):
        key = f"k{number}"
        written = catalog.uploads.replace(key, source, if_absent=True, part_bytes=2000, message="m")
        assert (written.created, written.etag) == (True, catalog.get(key).etag)
        assert catalog.get(key).value == value
        assert staged == [2000] * (len(raw) // 2000) + [len(raw) % 2000]
        staged.clear()
    assert catalog.commit(1).message == "m"
    with pytest.raises(PreconditionFailed):
        catalog.uploads.replace("k0", b"1", if_absent=True)


class Interrupted(BaseException):
    """As Ctrl+C."""


def test_an_upload_that_is_interrupted_is_dropped(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    send = catalog._calls.send

    def send_and_tell(call: Call, timeout_s: float | None = None) -> Steps[HttpAnswer]:
        sent.append(call.method)
        return send(call, timeout_s)

    def interrupted() -> Iterator[bytes]:
        yield b"[1,"
        raise Interrupted

    monkeypatch.setattr(catalog._calls, "send", send_and_tell)
    with pytest.raises(Interrupted):
        catalog.uploads.replace("k", interrupted(), part_bytes=3)
    assert sent == ["POST", "PUT", "DELETE"]


def test_an_upload_can_keep_clear_or_replace_attributes(catalog: Catalog) -> None:
    catalog.put("k", 1)
    catalog.attributes.put("k", {"a": 1})
    wanted: list[tuple[Any, dict[str, int]]]
    wanted = [("keep", {"a": 1}), ({"b": 2}, {"b": 2}), ("clear", {})]
    for number, (attributes, after) in enumerate(wanted):
        catalog.uploads.replace("k", str(number).encode(), attributes=attributes)
        assert (catalog.get("k").value, catalog.attributes.get("k").value) == (number, after)
    with pytest.raises(ValueError, match="attributes"):
        catalog.uploads.open("k", attributes="none")  # type: ignore[arg-type]


def test_a_lost_upload_is_a_conflict_and_is_dropped(catalog: Catalog) -> None:
    seen = catalog.get(catalog.put("k", 1).key)
    with catalog.uploads.open("k", if_match=seen) as upload:
        upload.put_part(2, b"2]")
        upload.put_part(1, b"[1")
        upload.put_part(1, b"[1,")
        assert upload.read().parts == (1, 2)
        catalog.uploads.resume(upload.id).put_part(3, b"rest")
        assert upload.commit([1, 2], dry_run=True).changed
        catalog.put("k", 3)
        with pytest.raises(Conflict, match="upload_conflict"):
            upload.commit([1, 2])
    with pytest.raises(NotFound, match="upload_not_found"):
        upload.read()
    assert catalog.get("k").value == 3

    with catalog.uploads.open("k") as other:
        other.put_part(1, b"4")
        first = other.commit()
        assert other.commit().etag == first.etag
        assert other.read().committed == first.revision


def test_bulk_lines_are_mappings_with_keys_of_their_own(
    connected: Gateway, catalog: Catalog
) -> None:
    line = {"catalog": catalog.name, "key": "k", "op": "put"}
    lines = [{**line, "value": n, "message": "m"} for n in range(3)]
    lines.append({**line, "value": 9, "if_match": "1-00000000"})
    lines.append({**line, "value": 9, "dry_run": True})
    answers = list(connected.bulk(lines))
    assert [each.changed for each in answers] == [True, True, True, False, True]
    assert [each.line.subject for each in answers] == lines
    assert isinstance(answers[3].error, PreconditionFailed)
    assert len({each.idempotency_key for each in catalog.commits()}) == 3
    assert catalog.get("k").value == 2
