"""Every line says when, how bad, who and what; which request it is about; and no secret."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import MagicMock

import pytest
from flask.testing import FlaskClient
from pymongo.errors import BulkWriteError

from gateway.commit.series import Series
from gateway.http import create_app
from gateway.limits import ServiceLimits
from gateway.logs import configure, scrub
from gateway.observability import AccessLog
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.contract import StoreUnreachable
from gateway.store.mongodb.connection import Connection
from tests.failure.clients import send
from tests.memory_store import MemoryStore
from tests.service import RunningGateway

TOKEN = "gwt_a1b2c3_c2VjcmV0LXNlY3JldC1zZWNyZXQ"
JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2lnbmF0dXJl-_x"
PASSWORD = "hunter2%21"
TRACE = "0af7651916cd43dd8448eb211c80319c"
Eventually = Callable[..., Any]
Read = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """What the process logs, from ``configure`` on; logging is as it was afterwards."""
    names = ("", "gateway", "patching", "gateway.access", "gateway.audit")
    loggers = [logging.getLogger(name) for name in names]
    before = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    hook = threading.excepthook
    yield io.StringIO()
    logging.captureWarnings(False)
    threading.excepthook = hook
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


@pytest.fixture
def lines(stream: io.StringIO) -> Read:
    configure("json", "info", stream=stream)

    def read() -> list[dict[str, Any]]:
        told = [json.loads(line) for line in stream.getvalue().splitlines()]
        # The gateway of another test may go on behind its answers, and find its database closed.
        return [line for line in told if line["logger"] != "gateway.state.write_out"]

    return read


def test_a_line_has_time_level_logger_event_and_extra_fields(lines: Read) -> None:
    logging.getLogger("gateway.commit.loop").warning(
        "the last batch of %r was not written out", "cü", extra={"catalog": "cü", "n": {1: b"x"}}
    )
    (line,) = lines()
    assert list(line)[:4] == ["time", "level", "logger", "event"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", line["time"])
    assert (line["level"], line["logger"]) == ("warning", "gateway.commit.loop")
    assert line["event"] == "the last batch of 'cü' was not written out"
    assert line["catalog"] == "cü"


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_no_line_contains_terminal_control_characters(log_format: str, stream: io.StringIO) -> None:
    """A catalog's name may be ``CSI 31m``: who reads the log sees its name, and nothing red."""
    configure(log_format, "info", stream=stream)
    commands = "\x1b\x7f\x80\x9b\x9f\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069"
    logging.getLogger("gateway.audit").info(commands, extra={"catalog": commands, commands: 1})
    (line, end) = stream.getvalue().split("\n")
    assert end == ""
    assert not set(commands) & set(line)
    if log_format == "json":
        told = json.loads(line)
        assert (told["event"], told["catalog"], told[commands]) == (commands, commands, 1)


def test_an_exception_is_one_line(lines: Read) -> None:
    try:
        raise ValueError("because")
    except ValueError:
        logging.getLogger("gateway").exception("it failed")
    (line,) = lines()
    assert "Traceback" in line["exception"]
    assert "because" in line["exception"]


def test_the_level_is_set_for_the_gateway_only_and_audit_is_always_logged(
    stream: io.StringIO, lines: Read
) -> None:
    configure("json", "error", stream=stream)
    logging.getLogger("gateway.http").warning("not told")
    logging.getLogger("gateway.audit").info("denied", extra={"principal": "ann"})
    # The driver's debugging would hold documents.
    configure("json", "debug", stream=stream)
    logging.getLogger("pymongo.command").debug("not told")
    logging.getLogger("gateway.http").debug("told")
    assert [line["event"] for line in lines()] == ["denied", "told"]
    assert lines()[0]["principal"] == "ann"
    configure("json", "debug", audit=False, stream=stream)
    logging.getLogger("gateway.audit").info("not told")
    assert len(lines()) == 2


@pytest.mark.parametrize("log_format", ["json", "console"])
@pytest.mark.parametrize(
    ("message", "secret"),
    [
        (f"Authorization: Bearer {TOKEN}", TOKEN),
        (f"headers: {{'Authorization': 'Bearer {JWT}', 'Accept': '*/*'}}", JWT),
        ("{'HTTP_AUTHORIZATION': 'Basic YW5uOmh1bnRlcjI='}", "YW5uOmh1bnRlcjI="),
        ("(b'authorization', b'opaque-secret')", "opaque-secret"),
        ("authorization=opaque-secret", "opaque-secret"),
        ("Proxy-Authorization: Digest opaque-secret", "opaque-secret"),
        (f"no such token {TOKEN}", TOKEN),
        (f"can't verify {JWT}", JWT),
        ("sent bearer 0123456789abcdef0123", "0123456789abcdef0123"),
        (f"can't reach mongodb://writer:{PASSWORD}@db1,db2/?replicaSet=rs", PASSWORD),
        (f"can't reach mongodb+srv://writer:{PASSWORD}@db.example", PASSWORD),
        ("mongodb://writer:pa@ss:w0rd@db1", "w0rd"),
        ("mongodb://db1/?tlsCertificateKeyFilePassword=opaque-secret&w=1", "opaque-secret"),
    ],
)
def test_secrets_are_scrubbed_everywhere_in_a_line(
    stream: io.StringIO, log_format: str, message: str, secret: str
) -> None:
    configure(log_format, "info", stream=stream)
    log = logging.getLogger("gateway.http")
    log.warning(message)
    log.warning("an argument: %s", message)
    log.warning("a field", extra={"seen": message, "deep": {"seen": [message]}})
    try:
        raise RuntimeError(message)
    except RuntimeError:
        log.exception("an exception")
    said = stream.getvalue()
    assert secret not in said
    assert said.count("[scrubbed]") >= 5
    if log_format == "json":
        assert all(json.loads(line)["event"] for line in said.splitlines())


def test_a_field_named_like_a_secret_header_is_scrubbed(lines: Read) -> None:
    logging.getLogger("gateway").warning("seen", extra={"authorization": f"Bearer {TOKEN}"})
    (line,) = lines()
    assert line["authorization"] == "[scrubbed]"


@pytest.mark.parametrize(
    "harmless",
    [
        '{"event":"the gateway waits for the bearer of bad news"}',
        '{"event":"connecting to mongodb://db1,db2/?replicaSet=rs"}',
        '{"event":"write to ann@example.org about gwt"}',
    ],
)
def test_harmless_text_is_not_scrubbed(harmless: str) -> None:
    assert scrub(harmless) == harmless


def test_console_tracebacks_show_no_variables(stream: io.StringIO) -> None:
    """A traceback with the values of variables would show documents and tokens."""
    configure("console", "info", stream=stream)
    content = {"document": "its contents"}
    try:
        content["absent"]
    except KeyError:
        logging.getLogger("gateway").exception("it failed")
    assert "KeyError" in stream.getvalue()
    assert "its contents" not in stream.getvalue()


def test_an_uncaught_exception_of_a_thread_is_logged(lines: Read) -> None:
    def fail() -> None:
        raise RuntimeError(f"with {TOKEN}")

    thread = threading.Thread(target=fail, name="leader-0")
    thread.start()
    thread.join()
    (line,) = lines()
    assert line["event"] == "leader-0 failed"
    assert "RuntimeError" in line["exception"]
    assert TOKEN not in line["exception"]


def test_an_access_line_shows_the_request_and_its_result(lines: Read) -> None:
    gateway = GatewayService(MemoryStore(), ThreadRuntime(), ServiceLimits())
    client = create_app(gateway, observers=[AccessLog()]).test_client()
    path = "/v1/catalogs/a%2Fb/documents/the%20key"
    headers = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01", "X-Request-Id": "mine"}
    answer = client.put(path, json={"its": "contents"}, headers=headers)
    client.put(path, json={}, headers={"If-Match": '"1-00000000"'})
    client.get("/nowhere")
    written, refused, lost = (line for line in lines() if line["logger"] == "gateway.access")
    assert written == {
        "time": written["time"],
        "level": "info",
        "logger": "gateway.access",
        "event": "request",
        "method": "PUT",
        "route": "/v1/catalogs/{catalog}/documents/{key}",
        "status": 201,
        "duration_ms": written["duration_ms"],
        "bytes": len(answer.data),
        "request_id": "mine",
        "principal": "anonymous",
        "trace_id": TRACE,
        "commit_id": answer.headers["Commit-Id"],
        "catalog": "a/b",
    }
    assert written["duration_ms"] > 0
    assert (refused["status"], refused["problem"]) == (412, "precondition_failed")
    assert "commit_id" not in refused
    assert "trace_id" not in refused
    assert (lost["route"], lost["status"]) == ("(none)", 404)


def with_a_defect(monkeypatch: pytest.MonkeyPatch, name: str) -> FlaskClient:
    gateway = GatewayService(MemoryStore(), ThreadRuntime(), ServiceLimits())
    monkeypatch.setattr(gateway, name, defect)
    return create_app(gateway).test_client()


def defect(*_: Any) -> None:
    raise RuntimeError("a defect")


def test_lines_logged_during_a_request_have_its_id(
    lines: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = with_a_defect(monkeypatch, "read")
    path = "/v1/catalogs/c/documents/k"
    assert client.get(path, headers={"X-Request-Id": "mine"}).status_code == 500
    (line,) = (line for line in lines() if line["level"] == "error")  # others go on meanwhile
    assert (line["request_id"], line["catalog"]) == ("mine", "c")
    assert "a defect" in line["exception"]
    logging.getLogger("gateway").warning("afterwards")
    (line,) = (line for line in lines() if line["event"] == "afterwards")
    assert "request_id" not in line


@pytest.mark.mongod
def test_every_log_line_of_a_service_is_json(
    service: RunningGateway, eventually: Eventually
) -> None:
    """gunicorn's own are among them: of a worker that was killed, for one."""
    contents = {"the": "contents of a document"}
    assert (
        send(
            service.port,
            "PUT",
            "/v1/catalogs/logs/documents/k",
            contents,
            Content_Type="application/json",
            Authorization=f"Bearer {TOKEN}",
        )[0]
        == 201
    )
    os.kill(service.worker_pids()[0], signal.SIGKILL)
    eventually(lambda: "SIGKILL" in service.log())
    eventually(lambda: len(service.worker_pids()) == 2)
    said = service.log()
    found = [json.loads(line) for line in said.splitlines()]
    assert {"gateway.access", "gunicorn.error"} <= {line["logger"] for line in found}
    assert all({"time", "level", "logger", "event"} <= line.keys() for line in found)
    assert TOKEN not in said
    assert "contents of a document" not in said


def test_a_line_that_cannot_be_formatted_is_replaced_by_its_source_position(
    stream: io.StringIO, lines: Read
) -> None:
    handlers = logging.getLogger().handlers
    (handler,) = (each for each in handlers if getattr(each, "stream", None) is stream)
    handler.handle(
        logging.LogRecord("gateway", 30, "/a/file.py", 7, "%d documents", ("secret",), None)
    )
    (line,) = lines()
    assert line["event"] == "a log line of /a/file.py:7 could not be formatted"
    assert "secret" not in json.dumps(line)


def test_lines_of_other_threads_of_a_request_have_its_id_too(
    lines: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Series, "put", defect)
    gateway = GatewayService(MemoryStore(), ThreadRuntime(), ServiceLimits())
    client = create_app(gateway).test_client()
    body = b'{"catalog": "c", "key": "k", "op": "put", "value": {"its": "contents"}}\n'
    headers = {"X-Request-Id": "mine", "Content-Type": "application/x-ndjson"}
    with pytest.raises(RuntimeError):
        client.post("/v1/bulk", data=body, headers=headers).get_data()
    (line,) = (line for line in lines() if line["level"] == "error")
    assert line["request_id"] == "mine"
    assert "its" not in json.dumps(lines())


def test_errors_of_the_database_are_not_quoted() -> None:
    """Its errors quote the operation, which holds a document."""
    connection = Connection.__new__(Connection)
    connection.client = MagicMock()
    connection._lock = threading.Lock()
    connection._seen_until = None
    connection.client.start_session().__enter__().operation_time = None
    failed = {"index": 0, "code": 121, "errmsg": "failed validation", "op": {"c": "contents"}}

    def refuse(*_: Any, **__: Any) -> None:
        raise BulkWriteError({"writeErrors": [failed]})

    with pytest.raises(StoreUnreachable) as refused:
        connection.bulk(refuse, [])
    assert "a validator refuses it" in str(refused.value)
    assert "contents" not in str(refused.value)


@pytest.mark.skipif(sys.platform != "linux", reason="a pipe can't be opened anew here")
def test_logging_does_not_wait_for_a_reader(
    stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    with open(reader, "rb", buffering=0) as read, open(writer, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        configure("json", "info")
        log = logging.getLogger("gateway.here")
        (handler,) = logging.getLogger().handlers
        handler.addFilter(
            logging.Filter(log.name)
        )  # threads of other tests may have something to say
        for number in range(3000):
            log.info("line %d", number, extra={"filling": "x" * 100})
        log.info("a long line", extra={"filling": "x" * 100_000})
        held = read.read(1 << 20)
        log.info("the last line")
        logging.getLogger().handlers[:] = []
        stderr.close()
        os.set_blocking(reader, False)
        while piece := read.read(1 << 20) or b"":
            held += piece
    found = [json.loads(line) for line in held.splitlines()]
    assert stream.getvalue() == ""
    kept = [line["event"] for line in found[:-2]]
    assert kept == [f"line {number}" for number in range(len(kept))]
    lost = f"{3001 - len(kept)} earlier lines were lost, because nobody read the log"
    assert (found[-2]["level"], found[-2]["event"]) == ("warning", lost)
    assert found[-1]["event"] == "the last line"
