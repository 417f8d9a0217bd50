"""The embedded MongoDB keeps its data, shares it with no other, and ends with its owner."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest
from pymongo import MongoClient
from pymongo.write_concern import WriteConcern

from gateway.store.embedded import (
    DataDirectoryInUse,
    EmbeddedMongod,
    MongodFailed,
)
from gateway.store.embedded_primary import make_primary
from tests.patience import WAIT_S

pytestmark = pytest.mark.mongod
Eventually = Callable[..., Any]


def notes(mongod: EmbeddedMongod) -> list[Any]:
    """What is stored, read and written with the guarantees that the gateway asks for."""
    with MongoClient[dict[str, Any]](mongod.uri, serverSelectionTimeoutMS=5000) as client:
        stored = client["kept"].get_collection(
            "notes", write_concern=WriteConcern(w="majority", j=True)
        )
        found = [note["_id"] for note in stored.find().sort("_id")]
        stored.insert_one({"_id": len(found)})
        return found


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMongod]:
    """One that these tests may stop and kill; each starts it first."""
    mongod = EmbeddedMongod(tmp_path_factory.mktemp("own"), start_timeout_s=WAIT_S)
    yield mongod
    mongod.stop()


def test_it_takes_majority_writes_when_started_and_keeps_them_on_a_restart_or_crash(
    own: EmbeddedMongod,
) -> None:
    own.start()
    assert notes(own) == []
    own.stop()
    own.start()
    assert notes(own) == [0]
    own.kill()
    assert not own.running
    own.start()
    assert notes(own) == [0, 1]


def test_its_data_can_be_moved_to_a_path_too_long_for_a_socket(
    own: EmbeddedMongod,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    own.start()
    before = notes(own)
    own.stop()
    short = Path(tempfile.mkdtemp(prefix="g-", dir="/tmp"))
    request.addfinalizer(lambda: shutil.rmtree(short))
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    place = tmp_path / ("deep" * 20)
    shutil.copytree(own.data_dir, place)
    with EmbeddedMongod(place, start_timeout_s=WAIT_S) as moved:
        assert moved.uri != own.uri
        assert notes(moved) == [*before, len(before)]
        folder = moved.socket_path.parent
        assert folder.parent == short
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    own.start()
    assert notes(own) == [*before, len(before)]


@pytest.mark.parametrize("place", ["Data", "DATA", "État"])
def test_a_data_directory_may_have_capital_letters(
    place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The driver makes the names of a replica set's members small; the socket's path is one."""
    capitals = EmbeddedMongod(tmp_path / place, start_timeout_s=WAIT_S)
    other = EmbeddedMongod(tmp_path / place.swapcase(), start_timeout_s=WAIT_S)
    assert str(capitals.socket_path) == str(capitals.socket_path).lower()
    assert capitals.socket_path != other.socket_path
    if place == "Data":
        request.addfinalizer(capitals.stop)
        capitals.start()
        assert notes(capitals) == []  # by the name that the replica set gives its member
        assert stat.S_IMODE(capitals.socket_path.parent.stat().st_mode) == 0o700


def test_the_socket_folder_has_no_capital_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "T"))
    found = EmbeddedMongod(tmp_path / "Data").socket_path
    assert found.parent == Path("/tmp", f"metadata-gateway-{os.geteuid()}")


def test_without_a_short_path_for_the_socket_the_error_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("deep" * 25)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    monkeypatch.setattr("gateway.store.embedded._SOCKET_PATH_BYTES_MAX", 20)
    with pytest.raises(MongodFailed, match="TMPDIR"):
        EmbeddedMongod(deep).start()


def test_a_data_directory_in_use_by_a_live_mongod_is_refused(own: EmbeddedMongod) -> None:
    own.start()
    log_before = own.log_path.stat().st_size
    second = EmbeddedMongod(own.data_dir)
    with pytest.raises(DataDirectoryInUse) as refused:
        second.start()
    assert str(own.data_dir) in str(refused.value)
    assert f"pid {own.pid}" in str(refused.value)
    assert not second.running
    assert own.running
    assert b"Unable to lock" not in own.log_path.read_bytes()[log_before:]


def test_a_foreign_mongod_at_the_socket_is_not_touched(own: EmbeddedMongod) -> None:
    own.start()
    with pytest.raises(LookupError, match=f"another mongod \\(pid {own.pid}\\)"):
        make_primary("gateway", str(own.socket_path), os.getpid(), 5.0)


def test_no_other_user_can_reach_it(own: EmbeddedMongod) -> None:
    """Whoever reaches it can issue tokens: so it listens on one socket, where its user alone is."""
    own.start()
    connections = psutil.Process(own.pid).net_connections(kind="all")
    assert not [each for each in connections if each.family in (socket.AF_INET, socket.AF_INET6)]
    paths = {each.laddr for each in connections if each.laddr}
    assert paths == {str(own.socket_path)}
    assert stat.S_IMODE(own.socket_path.parent.stat().st_mode) == 0o700
    assert own.socket_path.parent.stat().st_uid == os.geteuid()
    for path in own.data_dir.iterdir():
        assert not stat.S_IMODE(path.stat().st_mode) & 0o022, f"others can write {path}"


def test_a_socket_folder_open_to_others_is_made_private(own: EmbeddedMongod) -> None:
    own.stop()
    own.socket_path.parent.chmod(0o777)
    own.start()
    assert stat.S_IMODE(own.socket_path.parent.stat().st_mode) == 0o700


def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "socket").symlink_to(elsewhere)
    with pytest.raises(MongodFailed, match="isn't a folder that belongs to this user"):
        EmbeddedMongod(tmp_path / "data").start()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_of_this_machine_is_refused(own: EmbeddedMongod) -> None:
    own.start()
    for place in own.socket_path.parents:  # all that leads there, but for its own folder
        if place not in (own.socket_path.parent, Path("/tmp"), Path("/")):
            place.chmod(place.stat().st_mode | 0o011)
    attack = (
        "import os, socket, sys; os.setgid(65534); os.setgroups([]); os.setuid(65534)\n"
        "socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    )
    tried = subprocess.run(
        (sys.executable, "-c", attack, str(own.socket_path)), capture_output=True, text=True
    )
    assert "PermissionError" in tried.stderr


def test_the_error_at_start_quotes_the_log(tmp_path: Path) -> None:
    (tmp_path / "storage.bson").write_bytes(b"no storage")
    with pytest.raises(MongodFailed) as failed:
        EmbeddedMongod(tmp_path).start()
    assert "mongod.log" in str(failed.value)
    assert "storage_engine_metadata" in str(failed.value)
    assert "\n" not in str(failed.value)


def test_it_outlives_the_thread_that_started_it(own: EmbeddedMongod) -> None:
    own.stop()
    starter = Thread(target=own.start)
    starter.start()
    starter.join()
    # The kernel sends the signal as soon as the thread is gone; it has had a whole write to arrive.
    assert notes(own) is not None
    assert own.running


def test_a_forked_copy_of_the_owner_does_not_stop_it(own: EmbeddedMongod) -> None:
    own.start()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(10)  # waiting for a process that is not its child, it would never end
        try:
            own.stop()
            own.kill()
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert own.running
    assert notes(own) is not None


def test_it_ends_when_its_owner_is_killed(tmp_path: Path, eventually: Eventually) -> None:
    code = (
        "import sys, threading; from gateway.store.embedded import EmbeddedMongod\n"
        "mongod = EmbeddedMongod(sys.argv[1]); mongod.start(); print(mongod.pid, flush=True)\n"
        "threading.Event().wait()"
    )
    owner = subprocess.Popen((sys.executable, "-c", code, str(tmp_path)), stdout=subprocess.PIPE)
    with owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert psutil.Process(pid).name() == "mongod"
        owner.send_signal(signal.SIGKILL)
        eventually(lambda: not psutil.pid_exists(pid))
    with EmbeddedMongod(tmp_path, start_timeout_s=WAIT_S) as again:
        assert notes(again) == []


def test_an_unexpected_exit_is_reported_and_a_stop_is_not(
    tmp_path: Path, eventually: Eventually
) -> None:
    ended: list[str] = []
    with EmbeddedMongod(
        tmp_path, start_timeout_s=WAIT_S, on_unexpected_exit=lambda: ended.append("ended")
    ) as mongod:
        mongod.stop()
        mongod.start()
        mongod.kill()
        mongod.start()
        assert ended == []
        assert mongod.pid is not None
        os.kill(mongod.pid, signal.SIGKILL)
        eventually(lambda: ended)
    assert ended == ["ended"]


def test_a_mongod_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    mongod = EmbeddedMongod(tmp_path, start_timeout_s=WAIT_S, stop_timeout_s=0.2)
    mongod.start()
    pid = mongod.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    mongod.stop()
    assert not psutil.pid_exists(pid)
