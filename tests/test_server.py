"""The server says when it is ready, finishes what runs when it ends, and leaves nothing behind."""

from __future__ import annotations

import http.client
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Self
from urllib.parse import quote

import psutil
import pytest

from gateway.server import HEADER_BYTES_MAX, ServerError, master
from gateway.settings import resolve
from gateway.store.embedded import MongodError
from tests import fake_application, forking, routing
from tests.patience import WAIT_S

ROOT = Path(__file__).resolve().parent.parent
Eventually = Callable[..., Any]
Process = subprocess.Popen[str] | forking.Fork
SIGNALS = (signal.SIGTERM, signal.SIGINT)
NO_DATABASE = "--mongodb-uri=mongodb://unused.example/"

# `gateway` with another application in place of its own, and connections that may idle for a day:
# so whoever waits for the end of one doesn't see it.
KEEPALIVE_S = 24 * 3600
COMMAND = (
    "import functools, sys; from gateway import server\n"
    f"server.master.KEEPALIVE_S = {KEEPALIVE_S}\n"
    "server.run = functools.partial(server.run, application=sys.argv.pop(1))\n"
    "from gateway.cli.main import main; main()"
)


class Served:
    """A running `gateway serve`, and how to speak with it."""

    def __init__(self, process: Process, errors: IO[str]) -> None:
        self.process = process
        self._errors = errors
        self.port = 0

    def await_ready(self) -> Self:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        ready = re.fullmatch(r"gateway: ready at http://127\.0\.0\.1:(\d+) .*\n", line)
        assert ready is not None, (line, self.ended())
        self.port = int(ready[1])
        return self

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)

    def get(self, path: str, **headers: str) -> tuple[int, Any]:
        connection = self.connect()
        connection.request("GET", path, headers={**headers, "Connection": "close"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    def send(self, request: bytes) -> tuple[int, bytes, bytes]:
        """Status, head and body of the answer to bytes that may be no request, and then an end."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S) as connection:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), head, body

    def refuses_connections(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) != 0

    def errors(self) -> str:
        """The output on stderr so far."""
        with open(os.dup(self._errors.fileno())) as file:
            return os.pread(file.fileno(), 1 << 20, 0).decode()

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> tuple[int, str, str]:
        """The exit code, and the output since it was ready."""
        code = self.process.wait(WAIT_S)
        assert self.process.stdout is not None
        out = self.process.stdout.read()
        self._errors.seek(0)
        return code, out, self._errors.read()


def assert_clean_stop(ended: tuple[int, str, str]) -> None:
    code, out, errors = ended
    assert (code, out) == (0, "")
    (line,) = errors.splitlines()
    assert json.loads(line)["event"] == "the gateway has stopped"


@contextmanager
def command(
    directory: Path,
    *arguments: str,
    application: str = "create",
    fork: bool = True,
    keepalive_s: int = KEEPALIVE_S,
) -> Iterator[Served]:
    """`gateway` with these arguments; a fork, or else started from nothing."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GATEWAY_")}
    environment |= {fake_application.FOLDER: str(directory), "PYTHONPATH": str(ROOT)}
    application = f"{fake_application.__name__}:{application}"
    with TemporaryFile("w+") as errors:
        if fork:
            environment[routing.APPLICATION] = application
            environment[routing.KEEPALIVE_S] = str(keepalive_s)
            process: Process = forking.start(arguments, errors.fileno(), environment)
        else:
            process = from_nothing(arguments, application, errors, environment)
        try:
            yield Served(process, errors)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            assert process.stdout is not None
            process.stdout.close()


def from_nothing(
    arguments: tuple[str, ...], application: str, errors: IO[str], environment: dict[str, str]
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        (sys.executable, "-c", COMMAND, application, *arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        env=environment,
        text=True,
        start_new_session=True,
    )


@contextmanager
def serving(directory: Path, *arguments: str, **how: Any) -> Iterator[Served]:
    with command(directory, "serve", "--bind=127.0.0.1:0", *arguments, **how) as server:
        yield server.await_ready()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Shared by the tests that only ask."""
    directory = tmp_path_factory.mktemp("served")
    with serving(directory, NO_DATABASE) as server:
        yield server


def test_the_ready_line_is_printed_once_for_all_workers(tmp_path: Path) -> None:
    """Nor has the master imported the driver: what is started from nothing shows it."""
    how: dict[str, Any] = {"application": "create_from_nothing", "fork": False}
    with serving(tmp_path, NO_DATABASE, "--workers=3", **how) as server:
        assert server.get("/")[0] == 200
        assert_clean_stop(server.stop())


@pytest.mark.parametrize("number", SIGNALS)
def test_a_request_that_runs_is_finished_before_the_end(
    number: int, tmp_path: Path, eventually: Eventually
) -> None:
    with serving(tmp_path, NO_DATABASE) as server:
        connection = server.connect()
        connection.request("GET", "/wait")
        eventually((tmp_path / "started").exists)
        if number == signal.SIGINT:  # as a terminal's Ctrl-C, to master and workers alike
            os.killpg(server.process.pid, number)
        else:
            server.process.send_signal(number)
        eventually(server.refuses_connections)
        assert server.process.poll() is None
        (tmp_path / "go").touch()
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"done")
        assert_clean_stop(server.ended())


def test_idle_connections_do_not_delay_the_shutdown(tmp_path: Path) -> None:
    with serving(tmp_path, NO_DATABASE, "--graceful-timeout-s=3600") as server:
        idle = server.connect()
        idle.request("GET", "/")
        assert idle.getresponse().read()
        unused = socket.create_connection(("127.0.0.1", server.port))
        assert server.stop()[0] == 0
        assert idle.sock.recv(1) == b""
        unused.close()


def test_an_idle_connection_is_closed(tmp_path: Path) -> None:
    with serving(tmp_path, NO_DATABASE, keepalive_s=1) as server:
        idle = server.connect()
        idle.request("GET", "/")
        assert idle.getresponse().read()
        assert idle.sock.recv(1) == b""
        unused = socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S)
        assert unused.recv(1) == b""
        unused.close()
        assert server.get("/")[0] == 200


def test_workers_still_starting_do_not_delay_the_shutdown(tmp_path: Path) -> None:
    # The first of them is ready, and the others are importing.
    arguments = (NO_DATABASE, "--workers=6", "--graceful-timeout-s=3600")
    how: dict[str, Any] = {"application": "create_from_nothing", "fork": False}
    with serving(tmp_path, *arguments, **how) as server:
        assert server.stop()[0] == 0


def test_an_application_created_while_its_worker_is_stopped_is_stopped_too(tmp_path: Path) -> None:
    """What it has begun already ends: a relay gives its subscriptions back."""
    with serving(tmp_path, NO_DATABASE, "--workers=1", application="create_stopped", fork=False):
        assert (tmp_path / "told").exists()


@pytest.mark.parametrize("number", SIGNALS)
def test_a_request_that_does_not_end_is_cut_off(
    number: int, tmp_path: Path, eventually: Eventually
) -> None:
    with serving(tmp_path, NO_DATABASE, "--graceful-timeout-s=1") as server:
        connection = server.connect()
        connection.request("GET", "/wait")
        eventually((tmp_path / "started").exists)
        assert server.stop(number)[0] == 0
        with pytest.raises((http.client.HTTPException, OSError)):
            connection.getresponse()


def test_a_worker_that_died_is_replaced(tmp_path: Path, eventually: Eventually) -> None:
    with serving(tmp_path, NO_DATABASE, "--workers=1") as server:
        first = server.get("/")[1]["pid"]
        os.kill(first, signal.SIGKILL)
        eventually(lambda: not psutil.pid_exists(first))
        assert server.get("/")[1]["pid"] != first


def test_a_write_that_met_a_defect_is_not_reported_as_not_applied(tmp_path: Path) -> None:
    with serving(tmp_path, NO_DATABASE, application="create_failing") as server:
        for request, applied in (("GET /", "no"), ("PUT /", "unknown")):
            asked = f"{request} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
            status, _, body = server.send(asked.encode())
            problem = json.loads(body)
            told = (status, problem["code"], problem["applied"])
            assert told == (500, "internal_error", applied)


def test_a_request_without_memory_may_be_retried_if_nothing_was_applied(
    tmp_path: Path,
) -> None:
    asked = "{} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
    with serving(tmp_path, NO_DATABASE, application="create_without_memory") as server:
        status, _, body = server.send(asked.format("GET /").encode())
        problem = json.loads(body)
        assert (status, problem["code"], problem["applied"]) == (429, "overloaded", "no")
        assert problem["retryable"]
        status, _, body = server.send(asked.format("PUT /").encode())
        problem = json.loads(body)
        assert (status, problem["code"], problem["applied"]) == (504, "outcome_unknown", "unknown")


def test_a_reload_replaces_the_workers_and_ends_none_before_another_serves(
    tmp_path: Path, eventually: Eventually
) -> None:
    with serving(
        tmp_path, NO_DATABASE, "--workers=1", application="create_second_time_never"
    ) as server:
        first = server.get("/")[1]["pid"]
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: "exited with code" in server.errors())  # the new one, which can't begin
        assert server.get("/")[1]["pid"] == first
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: not psutil.pid_exists(first))
        assert server.get("/")[1]["pid"] != first
        assert "was sent SIGKILL" not in server.errors()


def test_a_new_worker_that_dies_is_replaced_while_the_old_one_finishes(
    tmp_path: Path, eventually: Eventually
) -> None:
    with serving(tmp_path, NO_DATABASE, "--workers=1") as server:
        first = server.get("/")[1]["pid"]
        connection = server.connect()
        connection.request("GET", "/wait")
        eventually((tmp_path / "started").exists)
        server.process.send_signal(signal.SIGHUP)
        eventually((tmp_path / f"stopping-{first}").exists)
        (second,) = eventually(lambda: {server.get("/")[1]["pid"]} - {first})
        os.kill(second, signal.SIGKILL)
        eventually(lambda: {server.get("/")[1]["pid"]} - {first, second})
        (tmp_path / "go").touch()
        assert connection.getresponse().read() == b"done"


@pytest.mark.skipif(not hasattr(psutil, "RLIMIT_NOFILE"), reason="psutil can't limit others here")
def test_a_worker_that_cannot_be_started_now_is_started_later(
    tmp_path: Path, eventually: Eventually
) -> None:
    with serving(tmp_path, NO_DATABASE, "--workers=1") as server:
        first = server.get("/")[1]["pid"]
        master_process = psutil.Process(server.process.pid)
        before = master_process.rlimit(psutil.RLIMIT_NOFILE)
        master_process.rlimit(psutil.RLIMIT_NOFILE, (3, before[1]))
        os.kill(first, signal.SIGKILL)
        eventually(lambda: "a worker can't be started now" in server.errors())
        master_process.rlimit(psutil.RLIMIT_NOFILE, before)
        assert server.get("/")[1]["pid"] != first


def test_a_replacement_that_fails_to_start_ends_no_worker(
    tmp_path: Path, eventually: Eventually
) -> None:
    with serving(
        tmp_path, NO_DATABASE, "--workers=1", application="create_second_time_never"
    ) as server:
        first = server.get("/")[1]["pid"]
        os.kill(first, signal.SIGKILL)
        eventually(lambda: len([*tmp_path.glob("made-*")]) == 3)
        assert server.get("/")[1]["pid"] != first


def test_a_worker_out_of_memory_is_replaced(tmp_path: Path, eventually: Eventually) -> None:
    with serving(tmp_path, NO_DATABASE, "--workers=1") as server:
        first = server.get("/without-memory")[1]["pid"]
        eventually(lambda: not psutil.pid_exists(first))
        assert server.get("/")[1]["pid"] != first


def _twice(name: str) -> bytes:
    return f"PUT / HTTP/1.1\r\nHost: x\r\n{name}: a\r\n{name.lower()}: b\r\n\r\n".encode()


MALFORMED = {
    "no request at all": (b"BLAH\r\n\r\n", 400),
    "binary": (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
    "unknown transfer coding": (b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: x\r\n\r\n", 400),
    "two lengths": (
        b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        400,
    ),
    "length and chunks": (
        b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0",
        400,
    ),
    "negative length": (b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
    "version": (b"GET / HTTP/9.1\r\nHost: x\r\n\r\n", 400),
    "header without a name": (b"GET / HTTP/1.1\r\n: x\r\n\r\n", 400),
    "no host": (b"GET / HTTP/1.1\r\nX: 1\r\n\r\n", 400),
    "no header at all": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "two hosts": (b"GET / HTTP/1.1\r\nHost: x\r\nX: 1\r\nhost: y\r\n\r\n", 400),
    **{
        f"two of {name}": (_twice(name), 400)
        for name in (
            *("Idempotency-Key", "Authorization", "Commit-Author", "Commit-Message"),
            "Last-Event-ID",
        )
    },
    "the same host twice": (b"GET / HTTP/1.0\r\nHost: x\r\nHost: x\r\n\r\n", 400),
    "NUL in a header": (b"GET / HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n", 400),
    "expectation": (b"GET / HTTP/1.1\r\nHost: x\r\nExpect: 5\r\n\r\n", 417),
    "request line too long": (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
    "header too long": (
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * (HEADER_BYTES_MAX + 1) + b"\r\n\r\n",
        431,
    ),
    "too many headers": (b"GET / HTTP/1.1\r\n" + b"X: 1\r\n" * 100 + b"\r\n", 431),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_an_unparsable_request_is_refused_as_a_client_error(case: str, served: Served) -> None:
    request, status = MALFORMED[case]
    actual, head, body = served.send(request)
    assert actual == status
    assert b"Content-Type: application/problem+json" in head
    assert b"X-Content-Type-Options: nosniff" in head
    problem = json.loads(body)
    assert problem["status"] == status
    assert (problem["applied"], problem["retryable"]) == ("no", False)


def test_an_http_1_0_client_needs_no_host_header(served: Served) -> None:
    assert served.send(b"GET / HTTP/1.0\r\n\r\n")[0] == 200


BROKEN_BODIES = {
    "shorter than its length": b"Content-Length: 10\r\n\r\n{}",
    "a chunk without its end": b"Transfer-Encoding: chunked\r\n\r\n5\r\nab",
    "no last chunk": b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
    "a chunk size that is none": b"Transfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("case", BROKEN_BODIES)
def test_a_body_that_did_not_arrive_whole_is_refused(case: str, served: Served) -> None:
    assert served.send(b"PUT / HTTP/1.1\r\nHost: x\r\n" + BROKEN_BODIES[case])[0] == 400


@pytest.mark.parametrize(
    "body",
    [b"Content-Length: 3\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"],
)
def test_a_whole_body_is_read(body: bytes, served: Served) -> None:
    status, _, answer = served.send(b"PUT / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + body)
    assert (status, json.loads(answer)) == (200, {"length": 3})


def test_the_longest_names_and_conditions_are_accepted(served: Served) -> None:
    key = "%F0%9F%98%80" * 256  # 1024 bytes
    catalog = "%C3%BC" * 256  # 512 bytes
    condition = "x" * (HEADER_BYTES_MAX - 100)
    status, answer = served.get(f"/documents/{catalog}/{key}", **{"If-Match": condition})
    assert (status, answer["header"]) == (200, len(condition))


@pytest.mark.parametrize("name", ["SCRIPT_NAME", "PATH_INFO", "Script-Name", "X-Forwarded-Proto"])
def test_no_header_changes_the_target_of_a_request(name: str, served: Served) -> None:
    url = f"http://127.0.0.1:{served.port}/documents/key"
    for value in ("/documents", "https"):
        status, answer = served.get("/documents/key", **{name: value})
        assert (status, answer["length"], answer["url"]) == (200, 3, url)


def test_an_address_in_use_is_one_line_and_exit_code_1(served: Served, tmp_path: Path) -> None:
    message = f"gateway: can't listen on 127.0.0.1:{served.port}: Address already in use\n"
    with command(tmp_path, "serve", f"--bind=127.0.0.1:{served.port}", NO_DATABASE) as process:
        assert process.ended() == (1, "", message)


def test_an_application_that_cannot_be_created_is_exit_code_1(
    tmp_path: Path,
) -> None:
    arguments = ("serve", "--bind=127.0.0.1:0", NO_DATABASE)
    with command(tmp_path, *arguments, application="broken") as process:
        code, out, err = process.ended()
    assert (code, out) == (1, "")
    assert "no such thing" in err


@pytest.mark.mongod
class TestEmbedded:
    """The embedded MongoDB lives exactly as long as the service."""

    @pytest.fixture
    def embedded(self, tmp_path: Path) -> Iterator[Served]:
        data = tmp_path / "data"
        # Not a fork: they have no threads that could look after the database.
        arguments = ("--embedded", f"--data-dir={data}", "--workers=1")
        with serving(tmp_path, *arguments, fork=False) as server:
            yield server

    def mongod(self, server: Served) -> psutil.Process:
        children = psutil.Process(server.process.pid).children()
        (mongod,) = (child for child in children if child.name() == "mongod")
        return mongod

    def test_the_embedded_mongod_stops_after_the_last_request(
        self, embedded: Served, tmp_path: Path, eventually: Eventually
    ) -> None:
        mongod = self.mongod(embedded)
        assert quote(str(tmp_path / "data" / "socket"), safe="") in embedded.get("/")[1]["uri"]
        connection = embedded.connect()
        connection.request("GET", "/wait")
        eventually((tmp_path / "started").exists)
        os.killpg(embedded.process.pid, signal.SIGINT)
        eventually(embedded.refuses_connections)
        assert mongod.is_running()
        (tmp_path / "go").touch()
        assert connection.getresponse().read() == b"done"
        assert_clean_stop(embedded.ended())
        assert not mongod.is_running()

    def test_the_embedded_mongod_survives_a_replaced_worker(
        self, embedded: Served, eventually: Eventually
    ) -> None:
        mongod = self.mongod(embedded)
        first = embedded.get("/")[1]["pid"]
        os.kill(first, signal.SIGTERM)
        eventually(lambda: not psutil.pid_exists(first))
        assert embedded.get("/")[1]["pid"] != first
        assert mongod.is_running()

    def test_no_process_outlives_a_killed_gateway(
        self, embedded: Served, eventually: Eventually
    ) -> None:
        family = psutil.Process(embedded.process.pid).children()
        embedded.process.send_signal(signal.SIGKILL)
        eventually(lambda: not any(child.is_running() for child in family))

    def test_the_service_ends_with_its_embedded_mongod(self, embedded: Served) -> None:
        self.mongod(embedded).kill()
        code, out, err = embedded.ended()
        assert (code, out) == (1, "")
        # Where the other lines are JSON, the last one is.
        last = json.loads(err.splitlines()[-1])
        assert last["event"].startswith("the embedded MongoDB ended")
        assert last["level"] == "critical"


def test_if_the_embedded_mongodb_cannot_start_a_full_disk_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")

    def cannot_start(*_: Any, **__: Any) -> None:
        raise MongodError("mongod ended")

    monkeypatch.setattr(master, "EmbeddedMongod", cannot_start)
    monkeypatch.setattr(master, "configure", lambda *_, **__: None)
    settings = resolve({"embedded": True, "data_dir": str(tmp_path), "bind": "127.0.0.1:0"})
    for free, told in (
        (3 << 20, f"mongod ended: the disk is full, 3 MiB are free at {tmp_path}"),
        (1 << 40, "mongod ended"),
    ):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: usage(1, 1, free))
        with pytest.raises(ServerError) as ended:
            master.run(settings.settings)
        assert str(ended.value) == told


@pytest.mark.parametrize(
    ("open_files", "wanted", "connections"),
    [(128, 4096, 64), (1024, 4096, 624), (1024, 100, 100), (5000, 4096, 4096), (-1, 4096, 4096)],
)
def test_the_limit_of_connections_leaves_open_files_for_the_server(
    open_files: int, wanted: int, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    monkeypatch.setattr(master, "configure", lambda *_, **__: None)
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (open_files, open_files))
    monkeypatch.setattr(
        master, "_run_gunicorn", lambda given, *_: taken.append(given.connections_max)
    )
    given = {"mongodb_uri": "mongodb://unused.example/", "bind": "127.0.0.1:0"}
    master.run(resolve(given | {"connections_max": str(wanted)}).settings)
    assert taken == [connections]


def _no_folder(*_: Any) -> str:
    raise FileNotFoundError("No usable temporary directory found")


def test_without_a_folder_for_temporary_files_the_service_ends_with_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(master, "configure", lambda *_, **__: None)
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(tempfile, "gettempdir", _no_folder)
    given = {"mongodb_uri": "mongodb://unused.example/", "bind": "127.0.0.1:0"}
    with pytest.raises(ServerError, match=r"can't write to any folder for temporary files"):
        master.run(resolve(given).settings)
