"""Runs the service: gunicorn's master, which forks the workers and keeps the embedded MongoDB.

The application is made in each worker, after the fork, and the master never imports the MongoDB
driver: gevent patches `threading` and `ssl` when the worker starts, and what was imported from them
or connected before would block the whole worker.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import ssl
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter

from gateway.limits import limits_of
from gateway.logs import configure
from gateway.metrics import shared
from gateway.server.announcement import Announcement
from gateway.server.connections import Unsent
from gateway.server.parsing import HEADER_BYTES_MAX
from gateway.server.requests import CheckedBodies
from gateway.settings import Settings
from gateway.settings.kinds import Address
from gateway.store.embedded import EmbeddedMongod, MongodError

APPLICATION = "gateway.application:create_application"
# Under this name an application has, among its extensions, what raises until it can be used.
CHECK_READY = "check_ready"
# WiredTiger ends mongod where a checkpoint finds no room.
_DISK_FULL_MIB = 64
WORKER_CLASSES = {
    "gevent": "gateway.server.greenlets.GreenletWorker",
    "gthread": "gateway.server.threads.ThreadWorker",
}

# A key of 1024 bytes and a catalog name of 512, all percent-encoded, take 4608 bytes of the request
# line. 8190 is the most that gunicorn can be told.
REQUEST_LINE_BYTES_MAX = 8190
HEADERS_MAX = 64
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
KEEPALIVE_S = 75  # above the idle timeout of common proxies (60 s), so that they close first


class ServerError(Exception):
    """The service can't be started or had to end; `str()` is one line."""


def run(settings: Settings, *, application: str = APPLICATION) -> int:
    """Serves until SIGTERM or SIGINT and returns the exit code. Prints one line when ready.

    `application` is `module:function`; the function is called in each worker with the settings and
    returns a WSGI application. Requests that run when the signal comes are finished, for
    `graceful_timeout_s`; a second SIGINT ends them. The embedded MongoDB is stopped after the last
    worker. Raises `ServerError` when the address or MongoDB can't be had.
    """
    audit = settings.audit_log and settings.access  # else there is nobody to tell apart
    configure(settings.log_format, settings.log_level, audit=audit)
    _check_address(settings)
    _check_tls(settings)
    _raise_open_files_limit()
    try:
        with _mongodb(settings) as (reachable, mongodb_lost):
            code = _run_gunicorn(reachable, application, Announcement(settings))
            if mongodb_lost():
                raise ServerError(
                    f"the embedded MongoDB ended{_full_disk(settings)}; see its log in"
                    f" {settings.data_dir}"
                )
            return code
    except MongodError as error:
        raise ServerError(f"{error}{_full_disk(settings)}") from error


def _full_disk(settings: Settings) -> str:
    """What to add where the embedded MongoDB has no room to write."""
    try:
        free_mib = shutil.disk_usage(settings.data_dir).free // (1024 * 1024)
    except OSError:
        return ""
    full = free_mib < _DISK_FULL_MIB
    return f": the disk is full, {free_mib} MiB are free at {settings.data_dir}" if full else ""


@contextmanager
def _mongodb(settings: Settings) -> Iterator[tuple[Settings, Callable[[], bool]]]:
    """Settings with the connection string to use, and whether the embedded MongoDB ended by itself.

    A worker unwinds this too, as a fork of the master; there it stops nothing.
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
        with shared.shared_directory() as metrics:
            server = _Server(settings, application, metrics, announcement)
            _GracefulArbiter(server).run()
    except SystemExit as stopped:
        # Workers unwind through here too, and must keep the code by which the master knows them.
        if os.getpid() != master_pid:
            raise
        # 0 after a signal; other codes say which step failed, and gunicorn has logged why.
        return 0 if stopped.code in (0, None) else 1
    return 0


class _GracefulArbiter(Arbiter):
    """gunicorn's master, without three habits of it that don't fit."""

    def spawn_worker(self) -> int:
        """A signal that comes while a worker starts ends it.

        gunicorn loses it: until the worker has its own handlers, it has a copy of the master's, and
        so a service that is stopped right after its start would need the whole graceful timeout.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
        try:
            return super().spawn_worker()  # the worker unblocks them in `_begin_worker`
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)

    def handle_int(self) -> None:
        """Requests are finished, as after SIGTERM; gunicorn would cut them off."""
        self.handle_term()

    def handle_usr2(self) -> None:
        """gunicorn would start a second master, which can't have the same embedded MongoDB."""
        if self.log is not None:
            self.log.warning("SIGUSR2 is ignored: start another gateway instead")


class _Server(BaseApplication):
    """gunicorn, told by our settings alone."""

    def __init__(
        self, settings: Settings, application: str, metrics: Path, announcement: Announcement
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._application = application
        self._announcement = announcement
        self._check_ready: Callable[[], None] | None = None
        super().__init__(prog="gateway")

    def load_config(self) -> None:
        settings = self._settings
        configuration = {
            "bind": str(settings.bind),
            **_tls(settings),
            "workers": settings.workers,
            "worker_class": WORKER_CLASSES[settings.worker_class],
            "threads": settings.threads if settings.worker_class == "gthread" else 1,
            "worker_connections": settings.connections_max,
            "timeout": settings.worker_timeout_s,
            "graceful_timeout": settings.graceful_timeout_s,
            "keepalive": KEEPALIVE_S,
            "limit_request_line": REQUEST_LINE_BYTES_MAX,
            "limit_request_field_size": HEADER_BYTES_MAX,
            "limit_request_fields": HEADERS_MAX,
            # Nobody is believed for where a request came from or where it leads: gunicorn would
            # let every local client choose the path, by a header SCRIPT_NAME or PATH_INFO.
            "forwarded_allow_ips": "",
            "forwarder_headers": "",
            "preload_app": False,
            "accesslog": None,
            "logger_class": "gateway.logs.GunicornLogs",
            "proc_name": "gateway",
            # Its commands can stop and change the workers, and it lies in a guessable place.
            "control_socket_disable": True,
            # One parser, whatever else is installed: two would differ in what they refuse.
            "http_parser": "python",
            "pre_fork": self._place_worker,
            "post_fork": self._begin_worker,
            "child_exit": self._forget_worker,
            "post_worker_init": self._begin_work,
        }
        if os.access("/dev/shm", os.W_OK):
            # Workers show signs of life through a file; on a slow disk that could block them.
            configuration["worker_tmp_dir"] = "/dev/shm"
        for name, value in configuration.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        module, _, function = self._application.partition(":")
        settings = self._settings
        application = getattr(import_module(module), function)(settings)
        self._check_ready = getattr(application, "extensions", {}).get(CHECK_READY)
        return CheckedBodies(application, limits_of(settings).connections)

    def _place_worker(self, arbiter: Arbiter, worker: Any) -> None:
        """Called in the master right before each fork: the lowest place that nobody has."""
        workers: Collection[Any] = arbiter.WORKERS.values()
        taken = {each.place.number for each in workers}
        number = next(each for each in count() if each not in taken)
        worker.place = shared.Place(self._metrics, number)

    def _forget_worker(self, arbiter: Arbiter, worker: Any) -> None:  # noqa: ARG002 - gunicorn's
        """Called in the master once a worker has ended."""
        shared.forget_gauges(worker.place)

    def _begin_worker(self, arbiter: Arbiter, worker: Any) -> None:  # noqa: ARG002 - gunicorn's
        """Called in each worker right after the fork."""
        shared.take_place(worker.place)
        worker.limits = limits_of(self._settings).connections
        worker.unsent = Unsent(worker.limits)
        # gunicorn looks settings up through functions, dozens of times in a request: a twentieth
        # of all its work. As plain attributes they are found at once; nothing changes them here.
        settings = worker.cfg.settings
        vars(worker.cfg).update({name: setting.get() for name, setting in settings.items()})
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
        # A terminal sends Ctrl-C to the workers too. The master alone decides what it means.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)

    def _begin_work(self, worker: Any) -> None:
        """Called in each worker once its application is made; the sockets listen since before."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # again: gunicorn has set its own meanwhile
        host, port = worker.sockets[0].getsockname()[:2]
        scheme = "http" if self._settings.tls_certificate is None else "https"
        self._announcement.begin(f"{scheme}://{Address(host, port)}", self._check_ready)


def _check_address(settings: Settings) -> None:
    """Before anything is started: gunicorn would try for five seconds, and say it less clearly."""
    bind = settings.bind
    try:
        family, *_, where = socket.getaddrinfo(bind.host, bind.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except OSError as error:
        raise ServerError(f"can't listen on {bind}: {error.strerror or error}") from error


def _tls(settings: Settings) -> dict[str, Any]:
    """TLS 1.2 or later, by the defaults of Python's ssl."""
    if settings.tls_certificate is None:
        return {}
    files = {"certfile": str(settings.tls_certificate), "keyfile": str(settings.tls_key)}
    if settings.tls_client_ca is not None:
        files["ca_certs"] = str(settings.tls_client_ca)
    required = ssl.CERT_NONE if settings.tls_client_ca is None else ssl.CERT_REQUIRED
    # Handshakes belong to their connections: a client that dawdles over its own holds up nobody.
    return {**files, "cert_reqs": int(required), "do_handshake_on_connect": False}


def _check_tls(settings: Settings) -> None:
    """Before anything is started: each worker would fail, and be replaced by another that does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tried: Path | None = None

    def no_password() -> str:
        raise ValueError("it is encrypted")

    try:
        if settings.tls_certificate is not None and settings.tls_key is not None:
            tried = settings.tls_certificate
            tried.read_bytes()
            context.load_cert_chain(tried, settings.tls_key, no_password)
        if settings.tls_client_ca is not None:
            tried = settings.tls_client_ca
            context.load_verify_locations(tried)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ServerError(f"can't use {tried} for TLS: {reason}") from error


def _raise_open_files_limit() -> None:
    """To what is allowed: a connection is an open file, and the usual 1024 are soon used up."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS has a lower limit than it tells
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
