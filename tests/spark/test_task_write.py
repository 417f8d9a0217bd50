"""One attempt of a task, without Spark: what it sends and holds, alone and beside others of its
rows."""

from __future__ import annotations

import json
import random
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, Self

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` isn't installed")

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from gateway.access import Grant, Principal, Role
from gateway.decide.edits import Put
from gateway.decide.request import Request
from gateway.http import create_app
from gateway.http.routes import bulk
from gateway.limits import ServiceLimits
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from patching.client import BulkTerms, Retry
from patching.client.errors import problem_of
from patching.client.routes import CatalogRoutes
from patching.client.transport import HttpAnswer, Transport
from patching.spark.columns import Columns, RowRefused
from patching.spark.dead_letters import LETTERS_SCHEMA, LettersReader, settle_letters
from patching.spark.options import WRITE, Options
from patching.spark.outcomes import OutcomeCounts, TaskWritten, finished_catalogs
from patching.spark.task_write import Attempt, Version, WriteFailed, write_rows
from patching.spark.version_steps import VersionRefused, applications, finish
from tests.forced_outcomes import force_outcomes
from tests.memory_store import MemoryStore
from tests.service import RunningGateway
from tests.without_http import SetClock

_ROWS = 200
Run = Callable[..., TaskWritten]


def batches(rows: Sequence[tuple[str, Any]], together: int = 64) -> list[pa.RecordBatch]:
    """Each row appends to its document's log."""
    patches = [json.dumps([{"op": "add", "path": "/log/-", "value": item}]) for _, item in rows]
    table = pa.table({"key": [key for key, _ in rows], "patch": patches})
    return list(table.to_batches(together))


# Of a job that has no name.
OPEN = Version("spark-job", 0, open=True)


def run_at(url: str, catalog: str, rows: Any, attempt: Attempt, **options: str) -> TaskWritten:
    given = {"url": url, "catalog": catalog, "batchSize": "20", **options}
    columns = StructType([StructField(name, StringType()) for name in ("key", "patch")])
    parsed = Options.parse(given, WRITE)
    return write_rows(rows, Columns(columns, parsed), parsed, attempt)


@pytest.fixture
def run(gateway: RunningGateway, catalog: str) -> Run:
    """`run(rows, number)`: the attempt of that number of the only partition; logs begin empty."""
    with Transport(gateway.url) as transport:
        for key in "kl":
            transport.request("PUT", f"/v1/catalogs/{catalog}/documents/{key}", json={"log": []})
    return lambda rows, number, version=OPEN, **options: run_at(
        gateway.url, catalog, batches(rows), Attempt("job", 0, number, number, version), **options
    )


def logs(routes: CatalogRoutes) -> dict[str, list[Any]]:
    return {key: value["log"] for key, value in routes.export().documents.items()}


def test_attempts_at_the_same_time_apply_nothing_twice(run: Run, routes: CatalogRoutes) -> None:
    """As speculative execution has them, from the first row to the last."""
    written: list[TaskWritten] = []
    start = threading.Barrier(2)

    def attempt(number: int) -> None:
        start.wait()
        written.append(run([("k", n) for n in range(_ROWS)], number))

    threads = [threading.Thread(target=attempt, args=(number,)) for number in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert logs(routes) == {"k": list(range(_ROWS)), "l": []}
    assert [each.counts.applied for each in written] == [_ROWS] * 2
    assert sum(each.counts.replayed for each in written) == _ROWS


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("version", [OPEN, Version("nightly", 7)])
def test_an_attempt_with_other_rows_is_refused_and_applies_none_of_them(
    run: Run, routes: CatalogRoutes, version: Version, on_error: str
) -> None:
    run([("k", "a"), ("l", "a"), ("k", "b")], 0, version, idempotency="job")
    for rows, place in (
        ([("l", "a"), ("k", "a"), ("k", "c")], 2),  # computed anew
        ([("k", "b"), ("k", "a"), ("l", "a")], 0),  # or in another order
    ):
        with pytest.raises(
            WriteFailed, match=rf"row {place} \(key 'k'\): an earlier attempt sent another row"
        ):
            run(rows, 1, version, onError=on_error, idempotency="job")
    rows = [("l", "a"), ("k", "a"), ("k", "b")]
    assert run(rows, 2, version, idempotency="job").counts.replayed == 3
    assert logs(routes) == {"k": ["a", "b"], "l": ["a"]}


@pytest.mark.usefixtures("run")
def test_a_bad_row_keeps_its_place_in_the_keys(
    gateway: RunningGateway, catalog: str, routes: CatalogRoutes
) -> None:
    """So that the rows behind it are the same ones when it was made good."""
    good = batches([("k", "a"), ("k", "b"), ("k", "c")])
    texts = good[0].column("patch").to_pylist()
    bad = [pa.RecordBatch.from_pydict({"key": ["k"] * 3, "patch": [texts[0], "{", texts[2]]})]
    version = Version("nightly", 7)
    first = Attempt("job", 0, 0, 0, version)
    place = {"idempotency": "job"}
    assert run_at(gateway.url, catalog, bad, first, onError="skip", **place).counts.skipped == 1
    again = run_at(gateway.url, catalog, good, first, **place)
    assert (again.counts.applied, again.counts.replayed) == (3, 2)
    assert logs(routes)["k"] == ["a", "c", "b"]


def test_a_catalog_whose_rows_are_all_refused_does_not_block_the_job(
    gateway: RunningGateway, catalog: str
) -> None:
    """It may be one that nobody could begin the version in."""
    names = ("key", "document", "catalog")
    parsed = Options.parse({"url": gateway.url, "catalog": catalog, "onError": "skip"}, WRITE)
    columns = Columns(StructType([StructField(each, StringType()) for each in names]), parsed)
    rows = [("k", "1", None), ("l", "1", "no\0name"), ("m", "{", "never sent")]
    batch = pa.table(dict(zip(names, zip(*rows, strict=True), strict=True))).to_batches()
    version = Version("nightly", 7)
    written = write_rows(batch, columns, parsed, Attempt("job", 0, 0, 0, version))
    assert written.counts.skipped == 2
    assert written.finished == {catalog: False, "no\0name": None}
    other = TaskWritten(1, OutcomeCounts(), {catalog: None})
    assert finished_catalogs([written, other]) == finished_catalogs([other, written])
    finish(parsed, version, finished_catalogs([written, other]))
    (record,) = applications(parsed, catalog)
    assert record["finished"] == 7
    with pytest.raises(VersionRefused, match=r"could not be finished in 'no\\x00name'"):
        finish(parsed, version, {"no\0name": False})


def test_rows_identified_by_content_may_move_between_partitions(
    run: Run, routes: CatalogRoutes
) -> None:
    """In another order and other partitions when the version is started again; equal rows are
    counted where they are together."""
    version = Version("nightly", 7, "1a")
    rows = [("k", "a"), ("l", "a"), ("k", "b"), ("k", "a")]
    run(rows[:3], 0, version)
    again = Version("nightly", 7, "2b")
    moved = [("k", "b"), ("k", "a"), ("k", "a")]
    counts = run(moved, 1, again).counts
    assert (counts.applied, counts.replayed) == (3, 2)
    assert logs(routes) == {"k": ["a", "b", "a"], "l": ["a"]}


@pytest.mark.usefixtures("run")
def test_text_that_is_not_utf8_makes_a_row_bad(
    gateway: RunningGateway, catalog: str, routes: CatalogRoutes
) -> None:
    """As Spark has it of a file in another encoding."""
    texts: list[bytes | None] = [b"k", b"k\xff", b"k"]
    patches: list[bytes | None] = [
        b'[{"op": "add", "path": "/log/-", "value": "%b"}]' % each for each in (b"a", b"b", b"\xfc")
    ]
    rows = [pa.RecordBatch.from_pydict({"key": as_text(texts), "patch": as_text(patches)})]
    attempt = Attempt("job", 0, 0, 0, Version("nightly", 7))
    with pytest.raises(WriteFailed, match=r"row 1 \(key 'k\ufffd'\): column 'key': it has a value"):
        run_at(gateway.url, catalog, rows, attempt)
    counts = run_at(gateway.url, catalog, rows, attempt, onError="skip").counts
    assert (counts.applied, counts.skipped) == (1, 2)
    assert "row 2 (key 'k'): column 'patch': it has a value that can't be" in counts.examples[1]
    assert logs(routes)["k"] == ["a"]


@pytest.mark.usefixtures("run")
def test_the_error_shows_only_the_beginning_of_a_long_key(
    gateway: RunningGateway, catalog: str
) -> None:
    rows = [pa.RecordBatch.from_pydict({"key": ["k" * 10_000], "patch": ["{"]})]
    with pytest.raises(WriteFailed, match=r"row 0 \(key 'k{119}…\): column 'patch': it isn't JSON"):
        run_at(gateway.url, catalog, rows, Attempt("job", 0, 0, 0, Version("nightly", 7)))


@pytest.mark.usefixtures("run")
def test_a_dead_letter_without_the_unreadable_value_is_refused_again(
    gateway: RunningGateway, catalog: str, routes: CatalogRoutes, tmp_path: Path
) -> None:
    """Its dead letter shows what couldn't be read, but as no value of the row."""
    names, good, bad = ("key", "document", "if_match", "merge_patch"), b'"v"', b'"\xfc"'
    rows = [
        (b"k\xff", good, None, None),
        (b"k", bad, None, None),
        (b"l", good, b"\xff", None),
        (b"l", bad, None, good),
        (b"m", good, b"1-00000000", None),
    ]
    columns = dict(zip(names, map(as_text, map(list, zip(*rows, strict=True))), strict=True))
    told = {"url": gateway.url, "catalog": catalog, "onError": "deadletter"}
    parsed = Options.parse({**told, "deadLetterPath": str(tmp_path)}, WRITE)
    schema = StructType([StructField(each, StringType()) for each in names])
    asked = pa.table(columns).to_batches()
    written = write_rows(asked, Columns(schema, parsed), parsed, Attempt("job", 0, 0, 0, OPEN))
    settle_letters(str(tmp_path), "job", written.counts, replaces=True)
    (path,) = tmp_path.iterdir()
    letters = [json.loads(line) for line in path.read_text().splitlines()]
    whole = letters.pop()
    assert whole["row"] == {
        "key": "m",
        "document": '"v"',
        "if_match": "1-00000000",
        "merge_patch": None,
    }
    assert "unreadable" not in whole
    assert [each["key"] for each in letters] == ["k\ufffd", "k", "l", "l"]
    assert [each["unreadable"] for each in letters] == [
        {"key": "k\ufffd"},
        {"document": '"\ufffd"'},
        {"if_match": "\ufffd"},
        {"document": '"\ufffd"'},
    ]
    reader = LettersReader(Options(url="", dead_letters=str(tmp_path)))
    again = Columns(LETTERS_SCHEMA, parsed)
    *lacking, row = reader.rows(reader.partitions()[0])
    again.ask(dict(zip(LETTERS_SCHEMA.fieldNames(), row, strict=True)))
    for row in lacking:
        with pytest.raises(RowRefused):
            again.ask(dict(zip(LETTERS_SCHEMA.fieldNames(), row, strict=True)))
    assert logs(routes) == {"k": [], "l": []}


def as_text(values: list[bytes | None]) -> pa.Array:
    """Nobody looks whether they are."""
    return pa.array(values, pa.binary()).view(pa.string())


def test_a_version_begun_by_an_earlier_release_keeps_its_keys(
    gateway: RunningGateway, catalog: str, run: Run, routes: CatalogRoutes
) -> None:
    """It made them by place and didn't record that: other keys would apply its rows again."""
    version = Version("nightly", 7)
    path = f"/v1/catalogs/{catalog}/applications/nightly"
    with Transport(gateway.url) as transport:
        transport.request("PUT", path, json={"version": 7, "finished": False})
    assert run([("k", "a")], 0, version).counts.replayed == 0
    with pytest.raises(
        WriteFailed, match="an earlier attempt sent another row as the one in this place"
    ):
        run([("k", "b")], 1, version)
    with pytest.raises(WriteFailed, match=r"was begun with idempotency=job .* again with content"):
        run([("k", "a")], 2, version, idempotency="content")
    assert run([("k", "a"), ("k", "b")], 3, version).counts.replayed == 1
    assert logs(routes)["k"] == ["a", "b"]


class Inside:
    """A transport to an application in this process."""

    def __init__(self, answer: Callable[[bytes], bytes], client: Any = None) -> None:
        self._answer = answer
        self._client = client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def open(self, _method: str, path: str, *, body: bytes, **_: Any) -> BytesIO:
        assert path == "/v1/bulk"
        return BytesIO(self._answer(body))

    def request(self, method: str, path: str, *, json: Any) -> HttpAnswer:
        answer = self._client.open(path, method=method, json=json)
        if answer.status_code >= 300:
            raise problem_of(answer.status_code, answer.get_json(force=True))
        return HttpAnswer(answer.status_code, answer.headers, answer.get_data())


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`inside(answer)`: tasks send their bulk requests to that function, and don't wait; or
    `inside(client=…)`: all requests to that client of an application."""

    def begin(answer: Callable[[bytes], bytes] | None = None, client: Any = None) -> None:
        kind = "application/x-ndjson"
        if answer is None:
            answer = lambda body: client.post("/v1/bulk", data=body, content_type=kind).get_data()  # noqa: E731
        terms = BulkTerms(lines_max=20, retry=Retry(retries_max=None, sleep=lambda _: None))
        monkeypatch.setattr(Options, "bulk_terms", lambda *_, **__: terms)
        monkeypatch.setattr(Options, "open_transport", lambda _: Inside(answer, client))

    return begin


def test_a_gateway_without_begin_lines_gets_a_separate_begin_request(
    inside: Callable[..., None],
) -> None:
    """The rows are sent again, with the keys that they had."""
    gateway = GatewayService(MemoryStore(), ThreadRuntime(), ServiceLimits())
    client = create_app(gateway).test_client()
    kind, sent = "application/x-ndjson", []

    def earlier(body: bytes) -> bytes:
        sent.append(body.count(b'"begin":'))
        unknown = body.replace(b'"begin":', b'"begins":')
        return client.post("/v1/bulk", data=unknown, content_type=kind).get_data()

    inside(earlier, client)
    client.put("/v1/catalogs/c/documents/k", json={"log": []})
    rows = [("k", item) for item in "abab"] * 10
    for number, run in enumerate(("1a", "2b", "2b")):
        attempt = Attempt("job", 0, number, number, Version("nightly", 7, run))
        written = run_at("http://earlier", "c", batches(rows), attempt)
        assert (written.counts.applied, written.counts.skipped) == (40, 0)
    assert client.get("/v1/catalogs/c/documents/k").get_json() == {"log": [*"abab"] * 10}
    assert sent == [20, 0, 0, 20, 0, 0, 0, 0], "a start of the job begins by a line once"


def test_rows_of_a_document_keep_their_order_through_retries(
    inside: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a third of the lines, the gateway is away or doesn't know the outcome. It holds back the
    lines behind them, and the task sends all of them again."""
    monkeypatch.setattr(bulk, "_WINDOW_LINES_MAX", 1)
    luck = random.Random(5)
    gateway = GatewayService(MemoryStore(), ThreadRuntime(), ServiceLimits())
    client = create_app(gateway).test_client()
    failed: Counter[str] = Counter()

    def choose(_: Request) -> str:
        chosen = luck.choice(["away", "lost", "unknown", *["done"] * 6])
        failed[chosen] += 1
        return chosen

    for key in "klm":
        gateway.write("c", key, Put({"log": []}, 10))
    force_outcomes(monkeypatch, choose)
    inside(client=client)
    rows = [(luck.choice("klm"), n) for n in range(300)]
    counts = run_at("http://x", "c", batches(rows), Attempt("job", 0, 0, 0, OPEN)).counts
    assert counts.applied == 300
    assert min(failed[fate] for fate in ("away", "lost", "unknown")) > 10
    for key in "klm":
        found = gateway.read("c", key).document
        assert found is not None
        assert found.content == {"log": [n for of, n in rows if of == key]}


@pytest.mark.parametrize("version", [OPEN, Version("nightly", 7)])
def test_a_principal_that_loses_its_role_skips_no_row(
    inside: Callable[..., None], tmp_path: Path, version: Version
) -> None:
    """In the middle of a task, and before it: rows of a document whose acl excludes it are skipped
    all the same."""
    role = Role.WRITE
    gateway = GatewayService(MemoryStore(), ThreadRuntime(), ServiceLimits())
    app = create_app(gateway, authenticate=lambda _: Principal("job", (Grant(role, "*"),)))
    for key, attributes in (("k", None), ("closed", {"acl": {"write": ["ann"]}})):
        gateway.write("c", key, Put({"log": []}, 10, attributes=attributes))
    inside(client=app.test_client())

    def losing() -> Iterator[pa.RecordBatch]:
        nonlocal role
        yield from batches([("closed", 0), *(("k", n) for n in range(19))])
        role = Role.READ
        yield from batches([("k", n) for n in (20, 21)])

    for number, (options, rows) in enumerate(
        (
            ({"onError": "skip"}, losing()),
            ({"onError": "deadletter", "deadLetterPath": str(tmp_path)}, batches([("k", 50)])),
        )
    ):
        attempt = Attempt("job", 0, number, number, version)
        with pytest.raises(WriteFailed, match=r"may not write it \(403 .*needs the role 'write'"):
            run_at("http://losing", "c", rows, attempt, **options)
    found = gateway.read("c", "k").document
    assert found is not None
    assert found.content == {"log": list(range(19))}
    assert not list(tmp_path.iterdir())


def test_a_row_for_a_forbidden_catalog_is_refused_alone(inside: Callable[..., None]) -> None:
    """Unless the catalog was the principal's when the task began."""
    grants = (Grant(Role.WRITE, "c"),)
    gateway = GatewayService(MemoryStore(), ThreadRuntime(), ServiceLimits())
    inside(
        client=create_app(gateway, authenticate=lambda _: Principal("job", grants)).test_client()
    )
    names = ("key", "document", "catalog")
    parsed = Options.parse({"url": "http://foreign", "catalog": "c", "onError": "skip"}, WRITE)
    columns = Columns(StructType([StructField(each, StringType()) for each in names]), parsed)

    def rows() -> Iterator[pa.RecordBatch]:
        nonlocal grants
        for number, catalog in enumerate(["c", "foreign", *["c"] * 18, "c"]):
            grants = () if number == 20 else grants
            yield pa.RecordBatch.from_pydict(
                {"key": [f"k{number}"], "document": ["1"], "catalog": [catalog]}
            )

    with pytest.raises(WriteFailed, match=r"row 20 .* may not write it .*19 applied .* 1 skipped"):
        write_rows(rows(), columns, parsed, Attempt("job", 0, 0, 0, OPEN))


def test_a_version_older_than_its_keys_fails(inside: Callable[..., None]) -> None:
    """Instead of being applied again, by a task that begins then or that is at it."""
    clock = SetClock()
    gateway = GatewayService(MemoryStore(), clock, ServiceLimits())
    gateway.write("c", "k", Put({"log": []}, 10))
    inside(client=create_app(gateway).test_client())
    version = Version("nightly", 7)

    def slowly() -> Iterator[pa.RecordBatch]:
        yield from batches([("k", n) for n in range(20)])
        clock.passed_s = 7 * 24 * 3600
        yield from batches([("k", n) for n in range(20, 40)])

    for rows, number in ((slowly(), 0), (batches([("k", 0)]), 1)):
        with pytest.raises(WriteFailed, match="was begun more than 604800 seconds ago") as failed:
            run_at("http://x", "c", rows, Attempt("job", 0, number, number, version))
        assert "begin another version with what is missing" in str(failed.value)
    found = gateway.read("c", "k").document
    assert found is not None
    assert found.content == {"log": list(range(20))}


def test_a_task_holds_only_a_slice_of_an_arrow_batch(inside: Callable[..., None]) -> None:
    """Of 64 MB, no more at a time as Python's values than a request and what it is made of."""

    def answer(body: bytes) -> bytes:
        count = body.count(b"\n")
        return b"".join(
            b'{"index": %d, "status": 200, "changed": true}\n' % n for n in range(count)
        )

    inside(answer)
    large = [("k", "x" * 100_000)] * 640
    (batch,) = batches(large, together=1_000)
    del large
    assert batch.nbytes > 64_000_000
    tracemalloc.start()
    try:
        written = run_at("http://x", "c", [batch], Attempt("job", 0, 0, 0, OPEN))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert written.counts.applied == 640
    assert peak_bytes < 24_000_000
