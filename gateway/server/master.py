"""Runs the service: gunicorn's master, which forks the workers and keeps the embedded MongoDB.

Each worker makes its app after the fork. The master never imports the MongoDB driver: gevent
patches `threading` and `ssl` when a worker starts, and a module that had imported from them or
connected before would block the whole worker.
"""

from __future__ import annotations

import logging
import os
import resource
import shutil
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from itertools import count
from mmap import mmap
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.errors import HaltServer

from gateway.limits import MIB, limits_of
from gateway.logs import configure
from gateway.metrics import shared
from gateway.server.broken_requests import CheckedBodies
from gateway.server.certificates import CertificateUnusable, require_usable
from gateway.server.connection_limits import UntakenAnswers
from gateway.server.exchange import ServedApp
from gateway.server.parsing import HEADER_BYTES_MAX
from gateway.settings import Settings
from gateway.settings.kinds import Address
from gateway.store.embedded import EmbeddedMongod, MongodError

_log = logging.getLogger(__name__)

APPLICATION = "gateway.assembly:create_application"
# With less free space the disk counts as full: WiredTiger ends mongod if a checkpoint has no room.
_DISK_FULL_MIB = 64
_WORKER_CLASS = "gateway.server.greenlets.GreenletWorker"

# A key of 1024 bytes and a catalog name of 512, all percent-encoded, take 4608 bytes of the request
# line. 8190 is the most that gunicorn allows.
REQUEST_LINE_BYTES_MAX = 8190
HEADERS_MAX = 64
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
KEEPALIVE_S = 75  # above the idle timeout of common proxies (60 s), so that they close first


class ServerError(Exception):
    """The service can't be started, or had to end; `str()` is one line."""


def run(settings: Settings, *, application: str = APPLICATION) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code. Prints one line when ready.

    `application` is `module:function`; each worker calls the function with the settings and gets a
    `ServedApp`. Requests that are under way at the signal may go on for `graceful_timeout_s`, or
    until a further SIGINT. The embedded MongoDB stops after the last worker.

    Raises `ServerError` if the address, the certificate or MongoDB can't be used, or if MongoDB
    ended; but if it ended while serving and logs are JSON, it logs that and returns 1.
    """
    audit = settings.audit_log and settings.access  # without access control there is one principal
    configure(settings.log_format, settings.log_level, audit=audit)
    _check_address(settings)
    _check_tls(settings)
    connections_max = _connections_max(settings)
    watchers_max = _watchers_max(settings, connections_max)
    settings = replace(settings, connections_max=connections_max, watchers_max=watchers_max)
    try:
        with _mongodb(settings) as (reachable, mongodb_lost):
            code = _run_gunicorn(reachable, application, Announcement(settings))
            if mongodb_lost():
                detail = (
                    f"the embedded MongoDB ended{_full_disk(settings)}; see its log in"
                    f" {settings.data_dir}"
                )
                if settings.log_format != "json":
                    raise ServerError(detail)
                _log.critical(detail)  # as JSON, like all lines before it
                return 1
        if code == 0:
            _log.info("the gateway has stopped")
        return code
    except MongodError as error:
        raise ServerError(f"{error}{_full_disk(settings)}") from error


def _full_disk(settings: Settings) -> str:
    """The hint that the disk of the embedded MongoDB is full."""
    try:
        free_mib = shutil.disk_usage(settings.data_dir).free // MIB
    except OSError:
        return ""
    full = free_mib < _DISK_FULL_MIB
    return f": the disk is full, {free_mib} MiB are free at {settings.data_dir}" if full else ""


@contextmanager
def _mongodb(settings: Settings) -> Iterator[tuple[Settings, Callable[[], bool]]]:
    """A context that gives the settings with the connection string, and a function that says
    whether the embedded MongoDB has ended.

    A worker, being a fork of the master, leaves this context too, but that stops nothing.
    """
    if not settings.embedded:
        yield settings, lambda: False
        return
    lost: list[int] = []

    def end_service() -> None:
        lost.append(1)
        os.kill(master_pid, signal.SIGTERM)

    master_pid = os.getpid()
    with EmbeddedMongod(settings.data_dir, on_unexpected_exit=end_service) as mongod:
        yield replace(settings, mongodb_uri=mongod.uri, embedded=False), lambda: bool(lost)


def _run_gunicorn(settings: Settings, application: str, announcement: Announcement) -> int:
    master_pid = os.getpid()
    try:
        with _metrics_directory() as metrics:
            server = _Server(settings, application, metrics, announcement)
            _GracefulArbiter(server).run()
    except SystemExit as stopped:
        # Workers come here too; they must keep their exit code, which the master reads.
        if os.getpid() != master_pid:
            raise
        # 0 after a signal; gunicorn has logged the reason of any other code.
        return 0 if stopped.code in (0, None) else 1
    return 0


@contextmanager
def _metrics_directory() -> Iterator[Path]:
    with ExitStack() as stack:
        try:
            directory = stack.enter_context(shared.shared_directory())
        except OSError as error:
            detail = f"can't write to any folder for temporary files (/dev/shm, TMPDIR): {error}"
            raise ServerError(detail) from error
        yield directory


class _GracefulArbiter(Arbiter):
    """gunicorn's master, without seven of its habits: see the methods."""

    def __init__(self, server: _Server) -> None:
        super().__init__(server)
        self._server = server
        self._start_not_before = 0.0

    def spawn_worker(self) -> int:
        """Start a worker. If the system gives no process now, the master tries again in a second;
        gunicorn would end, and with it the workers that there are.

        A signal to stop that comes while a worker starts ends that worker. gunicorn would lose it,
        because the worker has a copy of the master's handlers until it sets its own: stopping a
        service right after its start would take the whole graceful timeout.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
        try:
            return super().spawn_worker()  # the worker unblocks them in `_begin_worker`
        except OSError as error:
            if os.getpid() != self.pid:
                raise
            _log.error("a worker can't be started now: %s", error)
            return 0
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)

    def spawn_workers(self) -> None:
        """Start as many as are lacking, besides those that end because they were replaced."""
        if time.monotonic() >= self._start_not_before:
            for _ in range(self.num_workers - self._staying()):
                self.spawn_worker()

    def _staying(self) -> int:
        workers: Collection[Any] = self.WORKERS.values()
        return sum(not each.is_replaced for each in workers)

    def reap_workers(self) -> None:
        """Once any worker has begun its work, one that can't begin is merely replaced.

        gunicorn would end. But the settings are good, and something is just lacking at the moment.
        """
        while True:
            try:
                super().reap_workers()
                return
            except HaltServer:
                if not self._server.has_begun():
                    raise
                self._start_not_before = time.monotonic() + _START_AGAIN_S

    def reload(self) -> None:
        """Start new workers; `manage_workers` stops the old ones.

        gunicorn reads its settings again, which never change here, and then waits for the end of
        the old workers, deaf to signals.
        """
        for _ in range(self.num_workers):
            self.spawn_worker()

    def manage_workers(self) -> None:
        """Stop the oldest surplus workers once others serve in their place.

        gunicorn stops them as soon as the new ones are forked, so if these can't begin, for example
        because a renewed certificate is broken, nobody would serve.
        """
        self.spawn_workers()
        workers: Collection[Any] = self.WORKERS.values()
        oldest_first = sorted(workers, key=lambda each: each.age)
        serving = [each for each in oldest_first if each.serving[0]]
        for each in serving[: max(0, len(serving) - self.num_workers)]:
            if not each.is_replaced:
                each.is_replaced = True
                self.kill_worker(each.pid, signal.SIGTERM)

    def handle_int(self) -> None:
        """Finish the requests, as after SIGTERM; gunicorn would cut them off."""
        self.handle_term()

    def handle_usr2(self) -> None:
        """Do nothing; gunicorn would start a second master, which can't have the same MongoDB."""
        if self.log is not None:
            self.log.warning("SIGUSR2 is ignored: start another gateway instead")


# How long no worker is started after one that couldn't begin its work.
_START_AGAIN_S: Final = 2.0


class _Server(BaseApplication):
    """gunicorn with the gateway's settings alone."""

    def __init__(
        self, settings: Settings, application: str, metrics: Path, announcement: Announcement
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._application = application
        self._announcement = announcement
        self._begun = mmap(-1, 1)  # shared by the master and its workers
        super().__init__(prog="gateway")

    def has_begun(self) -> bool:
        """Whether a worker ever began its work."""
        return self._begun[0] != 0

    def load_config(self) -> None:
        settings = self._settings
        configuration = {
            "bind": str(settings.bind),
            **_tls(settings),
            "workers": settings.workers,
            "worker_class": _WORKER_CLASS,
            "worker_connections": settings.connections_max,
            "timeout": settings.worker_timeout_s,
            "graceful_timeout": settings.graceful_timeout_s,
            "keepalive": KEEPALIVE_S,
            "limit_request_line": REQUEST_LINE_BYTES_MAX,
            "limit_request_field_size": HEADER_BYTES_MAX,
            "limit_request_fields": HEADERS_MAX,
            # No client is trusted to say where a request comes from or goes. gunicorn would let
            # every local client choose the path with a header SCRIPT_NAME or PATH_INFO.
            "forwarded_allow_ips": "",
            "forwarder_headers": "",
            "preload_app": False,
            "accesslog": None,
            "logger_class": "gateway.logs.GunicornLogs",
            "proc_name": "gateway",
            # The control socket can stop and change workers, and its place can be guessed.
            "control_socket_disable": True,
            # Always the same parser, whatever is installed: others refuse other requests.
            "http_parser": "python",
            "pre_fork": self._take_slot,
            "post_fork": self._begin_worker,
            "child_exit": self._forget_worker,
            "post_worker_init": self._begin_work,
        }
        if os.access("/dev/shm", os.W_OK):
            # Workers report that they live through a file; a slow disk would block them.
            configuration["worker_tmp_dir"] = "/dev/shm"
        for name, value in configuration.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        module, _, function = self._application.partition(":")
        settings = self._settings
        create: Callable[[Settings], ServedApp] = getattr(import_module(module), function)
        return CheckedBodies(create(settings), limits_of(settings).connections)

    def _take_slot(self, arbiter: Arbiter, worker: Any) -> None:
        """gunicorn's hook, in the master before each fork: takes the lowest free slot."""
        workers: Collection[Any] = arbiter.WORKERS.values()
        taken = {each.slot.number for each in workers}
        number = next(each for each in count() if each not in taken)
        worker.slot = shared.WorkerSlot(self._metrics, number)

    def _forget_worker(self, arbiter: Arbiter, worker: Any) -> None:  # noqa: ARG002 - gunicorn's
        """gunicorn's hook, in the master when a worker has ended."""
        with suppress(OSError):  # no file can be opened; the next worker there sets the gauges
            shared.forget_gauges(worker.slot)

    def _begin_worker(self, arbiter: Arbiter, worker: Any) -> None:  # noqa: ARG002 - gunicorn's
        """gunicorn's hook, in each worker right after the fork."""
        shared.take_slot(worker.slot)
        worker.limits = limits_of(self._settings).connections
        worker.unsent = UntakenAnswers(worker.limits)
        # gunicorn looks settings up through functions, dozens of times per request, which is a
        # twentieth of all its work. Plain attributes are faster, and the settings never change.
        settings = worker.cfg.settings
        vars(worker.cfg).update({name: setting.get() for name, setting in settings.items()})
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
        # A terminal sends Ctrl-C to the workers too; only the master acts on it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)

    def _begin_work(self, worker: Any) -> None:
        """gunicorn's hook, in each worker once its app is made; the sockets listen already."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # again, because gunicorn has set its own
        self._begun[0] = 1
        host, port = worker.sockets[0].getsockname()[:2]
        scheme = "http" if self._settings.tls_certificate is None else "https"
        url = f"{scheme}://{Address(host, port)}"
        self._announcement.begin(url, worker.wsgi.application.check_ready)


def _check_address(settings: Settings) -> None:
    """Check the address before anything starts; gunicorn would retry for five seconds."""
    bind = settings.bind
    try:
        family, *_, where = socket.getaddrinfo(bind.host, bind.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except OSError as error:
        raise ServerError(f"can't listen on {bind}: {error.strerror or error}") from error


def _tls(settings: Settings) -> dict[str, Any]:
    """gunicorn's settings for TLS, which is 1.2 or later by the defaults of Python's ssl."""
    if settings.tls_certificate is None:
        return {}
    files = {"certfile": str(settings.tls_certificate), "keyfile": str(settings.tls_key)}
    if settings.tls_client_ca is not None:
        files["ca_certs"] = str(settings.tls_client_ca)
    required = ssl.CERT_NONE if settings.tls_client_ca is None else ssl.CERT_REQUIRED
    # Each connection shakes hands in its own greenlet: a slow one delays no other client.
    return {**files, "cert_reqs": int(required), "do_handshake_on_connect": False}


def _check_tls(settings: Settings) -> None:
    """Check the certificate before anything starts; else each worker would fail and be replaced."""
    if settings.tls_certificate is None or settings.tls_key is None:
        return
    try:
        require_usable(settings.tls_certificate, settings.tls_key, settings.tls_client_ca)
    except CertificateUnusable as error:
        raise ServerError(str(error)) from error


# A worker's open files apart from `connections_max`: connections to MongoDB (100), to receivers
# (100) and to other workers, surplus connections, answers on disk, and the rest.
_OTHER_FILES: Final = 400


def _connections_max(settings: Settings) -> int:
    """`connections_max`, or fewer if the system doesn't allow a worker enough open files. First
    raises the limit of open files as far as possible."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # the real limit of macOS is lower than the one it reports
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = max(limit // 2, limit - _OTHER_FILES)
    if limit == resource.RLIM_INFINITY or allowed >= settings.connections_max:
        return settings.connections_max
    _log.warning(
        "a worker takes %d connections, not %d (connections_max): the system allows it %d open"
        " files (ulimit -Hn)",
        *(allowed, settings.connections_max, limit),
    )
    return allowed


def _watchers_max(settings: Settings, connections_max: int) -> int:
    """`watchers_max`, or fewer, so that a quarter of the connections is left to other requests: a
    feed may keep its connection for ever."""
    allowed = max(1, connections_max - connections_max // 4)
    if settings.watchers_max <= allowed:
        return settings.watchers_max
    _log.warning(
        "a worker takes %d feeds, not %d (watchers_max): a quarter of its %d connections"
        " (connections_max) is for other requests",
        *(allowed, settings.watchers_max, connections_max),
    )
    return allowed


_LOOK_AGAIN_S = 1.0


class Announcement:
    """The lines that say that the gateway is ready, or waits. It is made in the master; each line
    is written once, by the first worker that can.

    The gateway is ready when MongoDB has answered. Before that, requests are answered with 503.
    """

    def __init__(self, settings: Settings) -> None:
        """``settings``: as given, before the URI of an embedded MongoDB replaced it."""
        self._where = _where(settings)
        self._ready, self._waiting = _once(), _once()

    def begin(self, url: str, check_ready: Callable[[], None]) -> None:
        """Begin, in a worker; returns at once. ``check_ready`` raises if the database is away."""
        threading.Thread(target=self._announce, args=(url, check_ready), daemon=True).start()

    def _announce(self, url: str, check_ready: Callable[[], None]) -> None:
        while True:
            try:
                check_ready()
                break
            except Exception as error:  # noqa: BLE001 - any error means not ready
                reason = error.__cause__ or error
                if _take(self._waiting):
                    waiting = "waiting for %s: %s; until then %s answers 503"
                    _log.warning(waiting, self._where, reason, url)
            time.sleep(_LOOK_AGAIN_S)
        if _take(self._ready):
            print(
                f"gateway: ready at {url} (console {url}/console/, docs {url}/docs,"
                f" data in {self._where})",
                flush=True,
            )


def _where(settings: Settings) -> str:
    if settings.embedded or settings.mongodb_uri is None:
        return str(settings.data_dir)
    hosts = settings.mongodb_uri.partition("://")[2].partition("/")[0].rpartition("@")[2]
    return f"MongoDB at {unquote(hosts)}, database {settings.database}"


def _once() -> int:
    """A pipe that holds one byte, which only the first process that reads it gets."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.write(writer, b"1")
    os.close(writer)
    return reader


def _take(pipe: int) -> bool:
    try:
        return bool(os.read(pipe, 1))
    except BlockingIOError:
        return False
