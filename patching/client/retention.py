"""Holding a catalog's history, and dropping it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self

from patching.client.results import Compaction
from patching.client.transport import segment

from .calls import Call, Calls
from .commits import expecting, parse_time, whole
from .errors import PinLost, RequestError
from .problems import NotFound
from .terms import encoded

_log = logging.getLogger(__name__)

# A pin is renewed when a third of it has passed, so that two renewals may fail.
_RENEWALS: Final = 3
# Leaving a pin doesn't wait for longer: it expires by itself.
_TIMEOUT_S: Final = 5.0
_JSON: Final = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class PinState:
    """A pin as the gateway has it: ``revision`` is held until ``expires``.

    ``owner`` is the principal that made it, "" the gateway itself.
    """

    id: str
    revision: int
    expires: datetime
    owner: str
    note: str


class Pin:
    """What ``Catalog.pin`` returns. Entered, it holds ``revision`` for ``seconds`` at a time, and
    is renewed by a thread until it is left; then history may be compacted again.

    A process that dies holds it for ``seconds`` more at most. Where it can't be renewed in time it
    is lost: `check` says so, and reads at the revision may be Gone.
    """

    def __init__(
        self,
        calls: Calls,
        catalog_path: str,
        revision: int | None,
        seconds: int,
        note: str | None,
    ) -> None:
        if seconds < 1:
            raise ValueError("a pin holds for a second at least")
        self._calls = calls
        self._path = f"{catalog_path}/pins"
        self._asked: dict[str, Any] = {"seconds": seconds}
        if revision is not None:
            self._asked["revision"] = revision
        if note is not None:
            self._asked["note"] = note
        self._seconds = seconds
        self._state: PinState | None = None
        self._error: RequestError | None = None
        self._renewed_at = 0.0
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pin", daemon=True)

    @property
    def revision(self) -> int:
        """The revision that is held. RuntimeError before it was entered."""
        return self._held().revision

    @property
    def id(self) -> str:
        return self._held().id

    def check(self) -> None:
        """PinLost where it doesn't hold any more."""
        if isinstance(self._error, NotFound) or (
            self._calls.retry.clock() - self._renewed_at > self._seconds
        ):
            raise PinLost(self.revision) from self._error

    def __enter__(self) -> Self:
        self._renewed_at = self._calls.retry.clock()
        # One whose answer got lost expires by itself.
        self._state = _send(self._calls, "POST", self._path, self._asked)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._left.set()
        self._thread.join()
        call = Call(method="DELETE", path=f"{self._path}/{segment(self.id)}", repeatable=True)
        try:
            self._calls.send(call, min(_TIMEOUT_S, self._seconds))
        except RequestError as failure:
            if not isinstance(failure, NotFound):
                _log.info("a pin of revision %s is left to expire: %s", self.revision, failure)

    def _run(self) -> None:
        pause_s = self._seconds / _RENEWALS
        while not self._left.wait(pause_s):
            asked_at = self._calls.retry.clock()
            try:
                _send(
                    self._calls,
                    "PUT",
                    f"{self._path}/{segment(self.id)}",
                    {"seconds": self._seconds},
                    timeout_s=min(_TIMEOUT_S, pause_s),
                )
                self._renewed_at, self._error = asked_at, None
            except RequestError as error:
                self._error = error
                _log.warning("the pin of revision %s was not renewed: %s", self.revision, error)
                if isinstance(error, NotFound):
                    return

    def _held(self) -> PinState:
        if self._state is None:
            raise RuntimeError("the pin was not entered")
        return self._state


def list_pins(calls: Calls, catalog_path: str) -> list[PinState]:
    content = calls.get(f"{catalog_path}/pins").json()
    with expecting("list of pins"):
        return [_parse_pin(shape) for shape in content["pins"]]


def compact(calls: Calls, catalog_path: str, revision: int, timeout_s: float | None) -> Compaction:
    """See `Catalog.compact`."""
    call = Call(
        method="POST",
        path=f"{catalog_path}/compactions",
        body=encoded({"revision": revision}),
        headers=_JSON,
    )
    content = calls.send(call, timeout_s).json()
    with expecting("compaction"):
        return Compaction(whole(content["floor"]), whole(content["head_revision"]))


def _send(
    calls: Calls,
    method: str,
    path: str,
    body: Mapping[str, Any],
    timeout_s: float | None = None,
) -> PinState:
    call = Call(method=method, path=path, body=encoded(body), headers=_JSON, repeatable=True)
    content = calls.send(call, timeout_s).json()
    with expecting("pin"):
        return _parse_pin(content)


def _parse_pin(shape: Mapping[str, Any]) -> PinState:
    return PinState(
        shape["pin"],
        whole(shape["revision"]),
        parse_time(shape["expires"]),
        shape["owner"],
        shape["note"],
    )
