"""An application in place of the gateway's own. `/wait` returns when a test makes a file."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final

import flask

from gateway.limits import ServiceLimits
from gateway.memory import Memory
from gateway.runtime import ThreadRuntime

# The variable that names the folder of the test.
FOLDER: Final = "TESTED_FOLDER"


class Fake(flask.Flask):
    """A `gateway.server.exchange.ServedApp` that has always room."""

    def __init__(self) -> None:
        super().__init__("fake")
        self.memory = Memory(ThreadRuntime(), ServiceLimits().memory)

    def begin_stop(self) -> None:
        Path(os.environ[FOLDER], f"stopping-{os.getpid()}").touch()

    def check_ready(self) -> None: ...

    def has_room_for(self, start: bytes) -> bool:  # noqa: ARG002
        return True

    def holder_of(self, environ: Any) -> None:  # noqa: ARG002
        return None


def create(settings: Any) -> flask.Flask:
    here = Path(os.environ[FOLDER])
    application = Fake()

    @application.get("/")
    def root() -> Any:
        return {"pid": os.getpid(), "uri": settings.mongodb_uri}

    @application.get("/wait")
    def wait() -> str:
        (here / "started").touch()
        while not (here / "go").exists():
            time.sleep(0.01)
        return "done"

    @application.get("/documents/<path:key>")
    def document(key: str) -> Any:
        header = flask.request.headers.get("If-Match", "")
        return {"length": len(key), "header": len(header), "url": flask.request.url}

    @application.get("/without-memory")
    def without_memory() -> Any:
        """As where the next greenlet finds none to start with."""
        import gevent

        def fail() -> None:
            raise MemoryError

        gevent.spawn(fail)
        return {"pid": os.getpid()}

    @application.put("/")
    def put() -> Any:
        return {"length": len(flask.request.get_data())}

    return application


def create_second_time_never(settings: Any) -> flask.Flask:
    """The second worker lacks something, as memory or threads."""
    here = Path(os.environ[FOLDER])
    (here / f"made-{os.getpid()}").touch()
    if len([*here.glob("made-*")]) == 2:
        raise MemoryError
    return create(settings)


def create_failing(settings: Any) -> flask.Flask:
    """It fails as no application should, whatever it has done."""
    return _raising(create(settings), ZeroDivisionError)


def create_without_memory(settings: Any) -> flask.Flask:
    return _raising(create(settings), MemoryError)


def _raising(application: flask.Flask, error: type[Exception]) -> flask.Flask:
    def fail(*_: Any) -> Any:
        raise error

    application.wsgi_app = fail  # type: ignore[method-assign]
    return application


def create_from_nothing(settings: Any) -> flask.Flask:
    """In a worker whose master was started from nothing."""
    assert "pymongo" not in sys.modules, "the master imported the driver"
    import pymongo  # noqa: F401 - as the gateway's own does

    return create(settings)


def create_stopped(settings: Any) -> flask.Flask:
    """The first worker is stopped while it makes this, and notes when the application is ended."""
    here = Path(os.environ[FOLDER])
    application = create(settings)
    if not (here / "first").exists():
        (here / "first").touch()
        vars(application)["begin_stop"] = (here / "told").touch
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)  # as whatever waits while it is made
    return application


def broken(settings: Any) -> flask.Flask:
    raise RuntimeError(f"no such thing: {settings.mongodb_uri}")
