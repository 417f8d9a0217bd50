"""Clients of two gateways that write, read, page, transact and follow, and write down every call.

A writer has a gateway of its own; what it sends again, under its idempotency key, goes through the
others in turn. Readers ask any gateway, so that what one has acknowledged is looked for at the
other. All of it is drawn from a seed, but for what the clients learn from the answers.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self

from tests.failure.calls import Call, make
from tests.failure.clients import all_commits
from tests.failure.linearizable import Following, History
from tests.failure.long_poller import LongPoller
from tests.http.event_stream import Follower
from tests.patience import WAIT_S, pause_s
from tests.simulation.asks import Action, Ask, Compare, Name, digest, write

HOT, COUNTER, LEFT, RIGHT, COLD, LEASE = map(
    Name, ("hot", "counter", "left", "right", "cold/one", "cold/lease")
)
LISTS: Final = tuple(Name(f"lists/{number}") for number in range(4))
_BEGIN: Final[Mapping[Name, Any]] = {
    **{key: [] for key in LISTS},
    HOT: {"log": []},
    COUNTER: {"count": 0, "by": None},
    LEFT: {"amount": 1000},
    RIGHT: {"amount": 1000},
    COLD: {"same": 1},
}
_AGAIN: Final = ("unknown", "not-applied", "failed")
_DONE: Final = ("applied", "read", "commits")
_KINDS: Final = {"write", "transaction", "read", "several", "list", "read-at", "page"}
# Between two calls of a client: two processors have to carry databases, gateways and clients.
_PAUSE_S: Final = 0.15


class Workload:
    """Entered, it runs; left, all outcomes that can be known are known.

    ``gateways``: their ports, by name. ``catalogs`` are new ones.
    """

    def __init__(self, gateways: Mapping[str, int], catalogs: Sequence[str], seed: int) -> None:
        self.calls: list[Call] = []
        self.stopped = threading.Event()
        self.seen: dict[str, int] = {}  # by catalog, the newest revision that anybody was told of
        self.gateways = gateways
        self.catalogs = [Name(each) for each in catalogs]
        self._seed = seed
        self._broken: list[BaseException] = []
        self._followers: dict[str, list[Follower | LongPoller]] = {}
        self._threads: list[threading.Thread] = []
        self._stack = ExitStack()

    def call(self, client: str, gateway: str, ask: Ask) -> Call:
        call = make(client, gateway, self.gateways[gateway], ask)
        self.calls.append(call)
        revision = max(call.outcome.revision, self.seen.get(ask.catalog, 0))
        self.seen[ask.catalog] = revision
        return call

    def settle(self, client: str, gateway: str, ask: Ask) -> Call:
        """Send the write through one gateway after the other, until its outcome is known."""
        gateways = itertools.cycle(sorted(self.gateways, key=gateway.__ne__))
        deadline = time.monotonic() + WAIT_S
        while (call := self.call(client, next(gateways), ask)).outcome.kind in _AGAIN:
            assert time.monotonic() < deadline, call
            time.sleep(_PAUSE_S)
        return call

    def writes(self, gateway: str, since: float) -> int:
        """The writes that were acknowledged, of those that were sent to it since then."""
        return sum(each.invoked >= since for each in self._acknowledged(gateway))

    def await_writes(self, count: int, *gateways: str) -> None:
        """That many acknowledged writes, sent from now on, at each of them; default: at all."""
        begun = time.monotonic()
        wanted = gateways or tuple(self.gateways)
        self.await_that(lambda: all(self.writes(each, begun) >= count for each in wanted))

    def await_every_kind(self) -> None:
        """One call of every kind, begun from now on, that was answered with what it asks for."""
        begun = time.monotonic()
        self.await_that(
            lambda: (
                {
                    "transaction" if len(call.ask.actions) > 1 else call.ask.kind
                    for call in list(self.calls)
                    if call.invoked >= begun and call.outcome.kind in _DONE
                }
                >= _KINDS
            )
        )

    def await_that(self, holds: Callable[[], bool]) -> None:
        begun = time.monotonic()
        while not holds():
            assert not self._broken, self._broken
            waited_s = time.monotonic() - begun
            assert waited_s < WAIT_S, "the workload makes no progress"
            time.sleep(pause_s(waited_s))

    def longest_without_write_s(self, gateway: str, since: float) -> float:
        """The longest time after ``since`` in which it acknowledged no write."""
        acknowledged = (each.returned for each in self._acknowledged(gateway))
        times = [since, *sorted(each for each in acknowledged if each > since)]
        return max(after - before for before, after in itertools.pairwise(times))

    def histories(self) -> dict[str, History]:
        """By catalog, once it is left: each gateway tells the same log, and each follower has come
        to its end. All documents are read once more."""
        logs = {}
        for catalog in self.catalogs:
            for gateway in self.gateways:
                ask = Ask("list", catalog, LEFT, "at the end", limit=100, revision=None)
                self.settle("the end", gateway, ask)
            path = f"/v1/catalogs/{catalog}/commits"
            log, *others = (all_commits(port, path) for port in self.gateways.values())
            assert all(each == log for each in others)
            logs[catalog] = log
            for follower in self._followers[catalog]:
                self.await_that(lambda one=follower, all=log: one.position >= len(all))
        self.close()
        return {catalog: self._history(catalog, log) for catalog, log in logs.items()}

    def _history(self, catalog: Name, log: Sequence[Any]) -> History:
        followers = self._followers[catalog]
        assert [each.unexpected for each in followers] == [[]] * len(followers)
        followings = [Following(each.commits, each.times) for each in followers]
        return History([c for c in self.calls if c.ask.catalog == catalog], log, followings)

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            self.close()
            raise
        return self

    def _begin(self) -> None:
        rng = random.Random(self._seed)
        near, far = self.gateways
        for catalog in self.catalogs:
            setup = Writer(self, "setup", catalog, near, rng)
            for key, content in _BEGIN.items():
                setup.write(f"begin-{key}", Action("put", key, content), keyed=True)
            path = f"/v1/catalogs/{catalog}/changes"
            followers = self._followers.setdefault(catalog, [])
            for follower in (
                Follower(lambda: self.gateways[near], f"{path}?after=0"),
                LongPoller(self.gateways[far], path),
            ):
                followers.append(self._stack.enter_context(follower))
            for gateway in self.gateways:
                for number in range(2):
                    name = f"w{number}-{gateway}"
                    drawn = random.Random(rng.random())
                    self._run(name, Writer(self, name, catalog, gateway, drawn).run)
                name = f"r-{gateway}"
                self._run(name, Reader(self, name, catalog, random.Random(rng.random())).run)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """The followers go on until ``close``, to receive the rest."""
        self.stopped.set()
        for thread in self._threads:
            thread.join()
        if kind is None and self._broken:
            raise self._broken[0]

    def close(self) -> None:
        for follower in itertools.chain.from_iterable(self._followers.values()):
            if isinstance(follower, LongPoller):
                follower.stop()  # all at once: each has a poll to wait for
        self._stack.close()

    def _acknowledged(self, gateway: str) -> list[Call]:
        return [
            call
            for call in list(self.calls)
            if call.gateway == gateway and call.ask.writes and call.outcome.kind == "applied"
        ]

    def _run(self, name: str, client: Callable[[], None]) -> None:
        def run() -> None:
            try:
                while not self.stopped.wait(_PAUSE_S):
                    client()
            except BaseException as error:  # noqa: BLE001 - told by the test
                self._broken.append(error)

        thread = threading.Thread(target=run, name=name)
        thread.start()
        self._threads.append(thread)


class Writer:
    """Each run is one write, with the reads that it rests on."""

    def __init__(
        self, workload: Workload, name: str, catalog: Name, gateway: str, rng: random.Random
    ) -> None:
        self._workload = workload
        self._name = name
        self._catalog = catalog
        self._gateway = gateway
        self._rng = rng
        self._others = [each for each in workload.gateways if each != gateway]
        self._count = itertools.count(1)
        self._last = ""  # the last value of its own that was acknowledged
        self._lease: str | None = None

    def run(self) -> None:
        kinds = (self._patch, self._patch, self._append, self._append, self._step)
        kinds += (self._transact, self._borrow, self._nothing)
        self._rng.choice(kinds)(f"{self._name}-{next(self._count)}")

    def _patch(self, label: str) -> None:
        """A member of its own in a document that all change, or one more item in a list."""
        if self._rng.random() < 0.4:
            item = {"op": "add", "path": "/log/-", "value": label}
            self.write(label, Action("patch", HOT, [item]))
            return
        change = {"op": "add", "path": f"/{self._name}", "value": label}
        test = {"op": "test", "path": f"/{self._name}", "value": self._last}
        tests = [test] if self._last and self._rng.random() < 0.4 else []
        if self.write(label, Action("patch", HOT, [*tests, change])).outcome.kind == "applied":
            self._last = label

    def _append(self, label: str) -> None:
        """An item for each of some lists, and a look at some, at one moment."""
        item = [{"op": "add", "path": "/-", "value": label}]
        appended = self._rng.sample(LISTS, self._rng.randint(1, 2))
        looked_at = self._rng.sample(LISTS, self._rng.randint(0, 2))
        actions = [Action("patch", key, item) for key in appended]
        self.write(label, *actions, *(Action("get", key) for key in looked_at))

    def _step(self, label: str) -> None:
        """Compare-and-set of a whole document."""
        token, content = self._read(COUNTER)
        if token is not None:
            value = {"count": content["count"] + 1, "by": label}
            self.write(label, Action("put", COUNTER, value), if_match=(token,))

    def _transact(self, label: str) -> None:
        """Both documents, or none: from one to the other, if they are as they were."""
        ask = Ask(
            "several", self._catalog, LEFT, f"{label}-look", keys=(LEFT, RIGHT), revision=None
        )
        found = self._workload.call(self._name, self._gateway, ask).outcome.documents
        left, right = found.get(LEFT), found.get(RIGHT)
        if left is None or right is None:
            return
        compare = (Compare("token", LEFT, left[0]), Compare("equals", RIGHT, right[1]))
        amount = self._rng.randrange(1, 9)
        then = [
            Action("patch", key, [{"op": "replace", "path": "/amount", "value": value}])
            for key, value in (
                (LEFT, left[1]["amount"] - amount),
                (RIGHT, right[1]["amount"] + amount),
            )
        ]
        self.write(label, *then, compare=compare if self._rng.random() < 0.7 else ())

    def _borrow(self, label: str) -> None:
        """Create a document that nobody has, or delete the one that this client created."""
        if self._lease is None:
            action, asked = Action("put", LEASE, {"by": label}), {"create_only": True}
        else:
            action, asked = Action("delete", LEASE), {"if_match": (self._lease,)}
        outcome = self.write(label, action, **asked).outcome
        self._lease = outcome.token if outcome.kind == "applied" else None

    def _nothing(self, label: str) -> None:
        """What is there already."""
        same = {"op": "replace", "path": "/same", "value": 1}
        self.write(label, Action("patch", COLD, [same]))

    def _read(self, key: Name) -> tuple[str | None, Any]:
        ask = Ask("read", self._catalog, key, "look")
        found = self._workload.call(self._name, self._gateway, ask).outcome.documents.get(key)
        return (None, None) if found is None else found

    def write(self, label: str, *actions: Action, keyed: bool = False, **asked: Any) -> Call:
        """With or without a key, as it is drawn. What has a key is sent until it is settled, and
        at times once more."""
        ask = write(label, self._catalog, *actions, **asked)
        if not keyed and self._rng.random() < 0.5:
            return self._workload.call(self._name, self._gateway, ask)
        ask = replace(ask, idempotency_key=f"key-{label}", fingerprint=digest(ask))
        call = self._workload.settle(self._name, self._gateway, ask)
        if self._rng.random() < 0.3:  # as if the answer hadn't arrived
            self._workload.settle(self._name, self._rng.choice(self._others), ask)
        return call


class Reader:
    """Each run is one read, or the pages of one listing."""

    def __init__(self, workload: Workload, name: str, catalog: Name, rng: random.Random) -> None:
        self._workload = workload
        self._name = name
        self._catalog = catalog
        self._rng = rng

    def run(self) -> None:
        kinds = (self._read, self._read, self._several, self._list, self._past, self._commits)
        self._rng.choice(kinds)()

    def _read(self) -> None:
        self._ask("read", self._rng.choice((*_BEGIN, LEASE)))

    def _several(self) -> None:
        keys = self._rng.choice(((LEFT, RIGHT, LEASE), LISTS))
        self._ask("several", keys[0], keys=keys, revision=None)

    def _list(self) -> None:
        """All pages, of the revision that the first one had."""
        outcome = self._ask("list", LEFT, limit=2, revision=None).outcome
        while outcome.kind == "read" and outcome.next is not None:
            asked = {"after": outcome.next, "revision": outcome.revision}
            outcome = self._ask("list", LEFT, limit=2, **asked).outcome

    def _past(self) -> None:
        """A state that a client has seen must be readable through the other gateway, too."""
        self._ask("read-at", self._rng.choice((HOT, LEFT, LEASE, LISTS[0])), revision=self._told())

    def _commits(self) -> None:
        self._ask("page", LEFT, revision=self._told(), limit=3)

    def _told(self) -> int:
        return max(0, self._workload.seen[self._catalog] - self._rng.choice((0, 0, 1, 5)))

    def _ask(self, kind: Any, key: Name, **asked: Any) -> Call:
        gateway = self._rng.choice(list(self._workload.gateways))
        ask = Ask(kind, self._catalog, key, f"{kind} {key}", **asked)
        return self._workload.call(self._name, gateway, ask)
