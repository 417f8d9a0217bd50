"""Pins: holding a catalog's history."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Self

from patching.client._blocking import Blocking
from patching.client._calls import Call, CallPolicy
from patching.client._steps import Pause, Steps, called, plan_of
from patching.client._wire import segment
from patching.client.errors import NotAuthorized, NotFound, PinLost, RequestError, is_closed
from patching.client.results import PinState, expecting, value_of
from patching.client.terms import encoded

_log = logging.getLogger(__name__)

# A pin is renewed when a third of it has passed, so that two renewals may fail.
_RENEWALS: Final = 3
# Leaving a pin waits no longer than this: it expires by itself.
_TIMEOUT_S: Final = 5.0
_JSON: Final = {"Content-Type": "application/json"}


class Pin:
    """A pin, from ``Catalog.pin``. Entered, it holds ``revision`` for ``seconds`` at a time; a
    thread renews it until the block is left. Then history may be compacted again.

    If the process dies, its pin holds for at most ``seconds`` more. A pin that can't be renewed in
    time is lost: `check` raises PinLost, and reads at the revision may raise Gone.

    Without a thread: `take` the pin, and `keep` it between two steps of the work; it then expires
    by itself. ``shared``: which pins of the same principal hold the revision well enough to be
    taken instead of a new one; ``held`` is the id of one that was taken before.
    """

    def __init__(
        self,
        calls: CallPolicy,
        catalog_path: str,
        revision: int | None,
        seconds: int,
        note: str | None,
        *,
        shared: Callable[[PinState], bool] | None = None,
        held: str | None = None,
    ) -> None:
        if seconds < 1:
            raise ValueError("seconds must be at least 1")
        self._calls = calls
        self._catalog_path = catalog_path
        self._revision = revision
        self._seconds = seconds
        self._note = note
        self._shared = shared
        self._id = held
        self._error: RequestError | None = None
        self._renewed_at = -math.inf
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pin", daemon=True)

    def __repr__(self) -> str:
        return "<Pin>" if self._id is None else f"<Pin {self._id!r} of revision {self._revision}>"

    @property
    def revision(self) -> int:
        """The revision that is held. Raises RuntimeError before the pin is entered."""
        assert self.id
        assert self._revision is not None
        return self._revision

    @property
    def id(self) -> str:
        """The gateway's name for it. Raises RuntimeError before the pin is entered."""
        if self._id is None:
            raise RuntimeError("the pin has no id before its `with` block is entered")
        return self._id

    def check(self) -> None:
        """Raises PinLost if it doesn't hold any more."""
        if isinstance(self._error, NotFound) or (
            self._calls.retry.clock() - self._renewed_at > self._seconds
        ):
            raise PinLost(self.revision) from self._error

    @called
    def take(self) -> Steps[None]:
        """Hold it from now on. Raises RequestError."""
        shared = self._shared
        pins: list[PinState] = []
        if shared is not None:
            pins = yield from list_pins(self._calls, self._catalog_path)
        for held in filter(shared, pins):
            with suppress(NotFound, NotAuthorized):  # expired just now; another principal's
                self._id = held.id
                yield from self._renew()
                return
        asked = {"seconds": self._seconds, "revision": self._revision, "note": self._note}
        # If the answer gets lost, that pin expires by itself.
        given = {name: value for name, value in asked.items() if value is not None}
        state = yield from self._send("POST", "", given)
        self._id, self._revision = state.id, state.revision

    @called
    def keep(self) -> Steps[None]:
        """Renew it if that is due; if it has expired, take another. Raises RequestError; Gone if it
        is too late for that."""
        if self._calls.retry.clock() - self._renewed_at < self._seconds / _RENEWALS:
            return
        try:
            yield from self._renew()
        except NotFound:
            yield from plan_of(self.take)()

    def __enter__(self) -> Self:
        self._calls.run(self.begin())
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._thread.join()
        self._calls.run(self.end())

    def _run(self) -> None:
        calls: Any = self._calls
        with suppress(_Left):
            Blocking(calls.exchange, self._pause).run(self.renewing())

    def _pause(self, seconds: float) -> None:
        if self._left.wait(seconds):
            raise _Left

    # Plans

    def begin(self) -> Steps[None]:
        """Take it, unless it was taken already."""
        if self._id is None:
            yield from plan_of(self.take)()

    def end(self) -> Steps[None]:
        """Let it go; if that fails, it expires by itself."""
        path = f"{self._catalog_path}/pins/{segment(self.id)}"
        call = Call(method="DELETE", path=path, repeatable=True)
        try:
            yield from self._calls.send(call, min(_TIMEOUT_S, self._seconds))
        except RequestError as failure:
            if not isinstance(failure, NotFound):
                _log.info(
                    "could not delete the pin of revision %s, it will expire: %s",
                    self.revision,
                    failure,
                )

    def renewing(self) -> Steps[None]:
        """Renew it again and again, until that is no longer possible."""
        pause_s = self._seconds / _RENEWALS
        while True:
            yield Pause(pause_s)
            try:
                yield from self._renew(min(_TIMEOUT_S, pause_s))
                self._error = None
            except RequestError as error:
                self._error = error
                _log.warning("could not renew the pin of revision %s: %s", self.revision, error)
                if isinstance(error, NotFound) or is_closed(error):
                    return

    def _renew(self, timeout_s: float | None = None) -> Steps[None]:
        yield from self._send("PUT", f"/{segment(self.id)}", {"seconds": self._seconds}, timeout_s)

    def _send(
        self, method: str, rest: str, body: Mapping[str, Any], timeout_s: float | None = None
    ) -> Steps[PinState]:
        asked_at = self._calls.retry.clock()
        path = f"{self._catalog_path}/pins{rest}"
        call = Call(method=method, path=path, body=encoded(body), headers=_JSON, repeatable=True)
        answer = yield from self._calls.send(call, timeout_s)
        content = answer.json()
        self._renewed_at = asked_at
        with expecting("pin"):
            return value_of(PinState, content, id=content["pin"])


class _Left(Exception):
    """The block is left: nothing is renewed any more."""


def list_pins(calls: CallPolicy, catalog_path: str) -> Steps[list[PinState]]:
    answer = yield from calls.get(f"{catalog_path}/pins")
    content = answer.json()
    with expecting("list of pins"):
        return [value_of(PinState, shape, id=shape["pin"]) for shape in content["pins"]]
