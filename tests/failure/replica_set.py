"""A few mongods as one replica set, whose members can be killed, stepped down, told to stall and
kept in recovery.

Small enough for a machine of two cores, and quick to elect: about two seconds after a primary is
killed there is another one.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import pymongo
from bson.timestamp import Timestamp
from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from gateway.store.embedded import find_mongod, last_log_lines, start_bound_process
from tests.patience import WAIT_MS, WAIT_S, pause_s
from tests.ports import own_port

NAME: Final = "failover"
_OPTIONS: Final = (
    f"--replSet={NAME}",
    "--bind_ip=127.0.0.1",
    "--nounixsocket",
    "--logappend",
    "--wiredTigerCacheSizeGB=0.25",
    "--oplogSize=64",  # MB
    "--setParameter=diagnosticDataCollectionEnabled=false",
    "--setParameter=enableTestCommands=1",  # fail points
    # After so long, a secondary looks for another source than the one that has gone silent.
    "--setParameter=oplogNetworkTimeoutBufferSeconds=1",
)
# Each follows the primary itself, so that a test knows who has what.
_SETTINGS: Final = {
    "electionTimeoutMillis": 2000,
    "heartbeatIntervalMillis": 500,
    "heartbeatTimeoutSecs": 2,
    "chainingAllowed": False,
}
# A member didn't answer within the two seconds that it has for it.
_NODE_NOT_FOUND: Final = 74
_T = TypeVar("_T")


class Member:
    """One mongod with its data and a connection of its own to it."""

    def __init__(self, directory: Path, port: int) -> None:
        self.port = port
        self.address = f"127.0.0.1:{port}"
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False
        self.client = MongoClient[dict[str, Any]](
            f"mongodb://{self.address}/?directConnection=true",
            serverSelectionTimeoutMS=WAIT_MS,
            connect=False,
        )

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Returns when it answers; it has its place in the set some time later."""
        if self.running:
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        log = self._directory / "mongod.log"
        command = (
            str(find_mongod()),
            f"--dbpath={self._directory}",
            f"--port={self.port}",
            f"--logpath={log}",
            *_OPTIONS,
        )
        output = self._directory / "mongod.out"
        self._process = start_bound_process(command, output, lambda _: None)
        _until(self._answers, lambda: f"{self.address}: {last_log_lines(log)}")

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @contextmanager
    def stopped(self) -> Iterator[Self]:
        """SIGSTOP, and SIGCONT in the end: it doesn't know that time has passed."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        self._is_stopped = True
        try:
            yield self
        finally:
            self._is_stopped = False
            self._process.send_signal(signal.SIGCONT)

    def hello(self) -> dict[str, Any]:
        """The member's answer to hello; {} if it doesn't come soon. Callers that wait for something
        ask again."""
        if self._is_stopped or not self.running:
            return {}
        try:
            with pymongo.timeout(2):
                return dict(self.client.admin.command("hello"))
        except PyMongoError:
            return {}

    def last_applied(self) -> Timestamp:
        """The time of the last write that it has."""
        time: Timestamp = self.client.admin.command("hello")["lastWrite"]["opTime"]["ts"]
        return time

    @contextmanager
    def stalled(self, fail_point: str, **data: Any) -> Iterator[None]:
        """By a fail point of the server. A member that died is left alone."""
        admin = self.client.admin
        admin.command("configureFailPoint", fail_point, mode="alwaysOn", data=data)
        try:
            yield
        finally:
            if self.running:
                admin.command("configureFailPoint", fail_point, mode="off")

    @contextmanager
    def recovering(self) -> Iterator[None]:
        """For an only member: neither primary nor secondary within, and primary again after it."""
        admin = self.client.admin
        admin.command("replSetStepDown", 600, force=True)
        _until(lambda: self.hello().get("secondary"), lambda: str(self.hello()))
        admin.command("replSetMaintenance", True)
        try:
            yield
        finally:
            admin.command("replSetMaintenance", False)
            admin.command("replSetFreeze", 0)  # it may be elected at once
            _until(lambda: self.hello().get("isWritablePrimary"), lambda: str(self.hello()))

    def _answers(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(WAIT_S)
            return self.running and probe.connect_ex(("127.0.0.1", self.port)) == 0


class ReplicaSet:
    """As a context manager, it has a primary and secondaries; at the end, none of its processes
    runs."""

    def __init__(self, directory: Path, members: int = 3) -> None:
        ports = [own_port() for _ in range(members)]  # they come back at them
        self.members = [Member(directory / f"member{port}", port) for port in ports]

    @property
    def uri(self) -> str:
        return f"mongodb://{','.join(m.address for m in self.members)}/?replicaSet={NAME}"

    def primary(self) -> Member | None:
        """The member that takes writes; of two that both say so, the one elected later."""
        return self._primary_of([member.hello() for member in self.members])

    def _primary_of(self, hellos: Sequence[dict[str, Any]]) -> Member | None:
        claims = zip(hellos, self.members, strict=True)
        elected = [(h["electionId"], m) for h, m in claims if h.get("isWritablePrimary")]
        return max(elected, key=lambda each: each[0])[1] if elected else None

    def await_primary(self, *, other_than: Member | None = None) -> Member:
        def found() -> Member | None:
            primary = self.primary()
            return primary if primary is not other_than else None

        return _until(found, self._state)

    def await_healthy(self) -> Member:
        """Start what doesn't run; the primary, once both others follow it."""
        for member in self.members:
            member.start()

        def primary_with_secondaries() -> Member | None:
            hellos = [member.hello() for member in self.members]
            primary = self._primary_of(hellos)
            followed = sum(
                bool(h.get("secondary"))
                and primary is not None
                and h.get("primary") == primary.address
                for h in hellos
            )
            return primary if followed == len(self.members) - 1 else None

        return _until(primary_with_secondaries, self._state)

    def kill_primary(self) -> Member:
        """SIGKILL; the member that it was."""
        primary = self.await_primary()
        primary.kill()
        return primary

    def kill_primary_with_a_write_of_its_own(self) -> Member:
        """Kill it, while somebody writes, as soon as it has applied a write that no other member
        has."""
        primary = self.await_healthy()
        with ExitStack() as stack:
            others = [member for member in self.members if member is not primary]
            for other in others:
                stack.enter_context(other.stalled("stopReplProducer"))

            def is_ahead() -> bool:
                return all(primary.last_applied() > other.last_applied() for other in others)

            _until(is_ahead, self._state)
            primary.kill()
        return primary

    def leave_one_secondary(self) -> Member:
        """Kill the primary and one more, so that none can be elected; the member that is left."""
        primary = self.await_primary()
        left, other = [member for member in self.members if member is not primary]
        other.kill()
        primary.kill()
        return left

    def step_down(self) -> Member:
        """The primary hands over, and won't come back for a while; the member that it was."""
        primary = self.await_primary()

        def accepted() -> bool:
            try:
                primary.client.admin.command("replSetStepDown", 3, secondaryCatchUpPeriodSecs=2)
            except OperationFailure:
                return False  # no secondary has caught up with it so far
            return True

        _until(accepted, self._state)
        return primary

    def __enter__(self) -> Self:
        try:
            for member in self.members:
                member.start()
            self.initiate()
        except BaseException:
            self.end()
            raise
        return self

    def initiate(self) -> None:
        members = [{"_id": n, "host": m.address} for n, m in enumerate(self.members)]
        config = {"_id": NAME, "members": members, "settings": _SETTINGS}
        refused = ""

        def initiated() -> bool:
            nonlocal refused
            try:
                self.members[0].client.admin.command("replSetInitiate", config)
            except OperationFailure as error:
                refused = str(error)
                if error.code != _NODE_NOT_FOUND:
                    raise
                return False
            return True

        _until(initiated, lambda: refused)
        self.await_healthy()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def end(self) -> None:
        for member in self.members:
            member.client.close()  # before: it says goodbye, and waits for an answer
            member.kill()

    def _state(self) -> str:
        return "; ".join(f"{m.address}: {m.hello() or 'no answer'}" for m in self.members)


def _until(
    condition: Callable[[], _T | None], state: Callable[[], str], timeout_s: float = WAIT_S
) -> _T:
    """The first true result; AssertionError with the state where there is none in time."""
    begun = time.monotonic()
    while not (result := condition()):
        waited_s = time.monotonic() - begun
        assert waited_s < timeout_s, f"not within {timeout_s} s: {state()}"
        time.sleep(pause_s(waited_s))
    return result
