"""The Pythons that Spark starts: forks of one that has imported what they need.

A session starts a daemon for each kind of worker, and a process for each stream that it reads. Each
would import PySpark and pandas for most of a second, and Spark gives those of streams ten seconds
to connect, whatever the machine.

PySpark's own daemon leaves imports to its forks, as imports may start threads, which forks don't
have: numpy's would, unless they are forbidden.

    python -I -S pythons.py -m MODULE ARGUMENTS…

is what Spark starts, in the place of Python: it asks for the fork, and ends with it. So it imports
nothing that takes time. All else, as a program that is submitted, is left to Python. The parent is
`processes.Pythons`.
"""

from __future__ import annotations

import _socket
import marshal
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

    # The arguments, variables and folder of a process.
    Request = tuple[list[str], dict[str, str], str]

# Where the parent is asked.
ADDRESS = "TESTS_SPARK_PYTHONS"
_LENGTH_BYTES = 8
_CODE_BYTES = 4

_NEEDED = (
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.streaming.python_streaming_source_runner",
    *(
        f"pyspark.sql.worker.{name}"
        for name in (
            *("lookup_data_sources", "create_data_source", "data_source_pushdown_filters"),
            *("plan_data_source_read", "write_into_data_source", "commit_data_source_write"),
            "python_streaming_sink_runner",
        )
    ),
    *("pyarrow", "pandas", "pyspark.sql.pandas.serializers"),
)
# Where the Python has no tests, it was sent the library, which is left to the forks.
_LIBRARY = tuple(
    f"patching.spark.{name}"
    for name in ("datasource", "source", "sink", "feed_source", "documents_there", "plan")
)


def _ask(address: str, arguments: list[str]) -> int:
    """The exit code of the fork, once it has ended."""
    connection = _socket.socket(_socket.AF_UNIX)
    connection.connect(address)
    request = marshal.dumps((arguments, dict(os.environ), os.getcwd()))
    files = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
    length = len(request).to_bytes(_LENGTH_BYTES, "big")
    connection.sendmsg([length], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
    connection.sendall(request)
    return abs(int.from_bytes(connection.recv(_CODE_BYTES), "big", signed=True))


class _Parent:
    def __init__(self, listening: socket.socket) -> None:
        import signal

        self._listening = listening
        self._woken, self._wakes = os.pipe()
        os.set_blocking(self._wakes, False)
        signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._told: dict[int, socket.socket] = {}  # of each fork that lives, who asked for it
        self._left: set[int] = set()  # of these, those whose asker is gone

    def serve(self) -> Request | None:
        """In each fork, what it is to be; None when nobody asks any more."""
        import select
        import signal

        while True:
            there = {s: pid for pid, s in self._told.items() if pid not in self._left}
            ready, _, _ = select.select([0, self._woken, self._listening, *there], [], [])
            if 0 in ready:
                return None
            if self._woken in ready:
                os.read(self._woken, 4096)
            for gone in there.keys() & set(ready):
                self._left.add(there[gone])
                os.kill(there[gone], signal.SIGTERM)  # as Spark would
            self._reap()
            if self._listening in ready and (request := self._fork()) is not None:
                return request

    def _reap(self) -> None:
        from contextlib import suppress

        while self._told:
            pid, how = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            code = os.waitstatus_to_exitcode(how)
            self._left.discard(pid)
            with self._told.pop(pid) as asker, suppress(OSError):
                asker.send(code.to_bytes(_CODE_BYTES, "big", signed=True))

    def _fork(self) -> Request | None:
        """In the fork, what it is to be."""
        import socket

        asker, _ = self._listening.accept()
        length, files, _, _ = socket.recv_fds(asker, _LENGTH_BYTES, 3)
        size, request = int.from_bytes(length, "big"), b""
        while len(request) < size and (part := asker.recv(size - len(request))):
            request += part
        if not length or len(request) < size:  # it is gone already
            asker.close()
        elif (pid := os.fork()) == 0:
            return self._become(marshal.loads(request), asker, files)
        else:
            self._told[pid] = asker
        for each in files:
            os.close(each)
        return None

    def _become(self, request: Request, asker: socket.socket, files: list[int]) -> Request:
        import signal

        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, each in enumerate(files):
            os.dup2(each, number)
        for each in (*files, self._woken, self._wakes):
            os.close(each)
        for connection in (asker, self._listening, *self._told.values()):
            connection.close()
        return request


def _be(arguments: list[str], environment: dict[str, str], folder: str) -> None:
    """`python -m`, in this process."""
    import runpy

    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    path = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:0] = [folder, *map(os.path.abspath, path)]
    _, module, *sys.argv[1:] = arguments
    sys.modules.pop(module, None)  # Python warns where it is there
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _serve(listening: int) -> None:
    import gc
    import importlib.util
    import socket

    needed = [*_NEEDED, *(_LIBRARY if importlib.util.find_spec("tests") else ())]
    for name in needed:
        importlib.import_module(name)
    gc.freeze()  # a fork collects after each task: not all these modules again
    request = _Parent(socket.socket(fileno=listening)).serve()
    if request is not None:
        _be(*request)


if __name__ == "__main__":
    if sys.argv[1] == "-m":
        os._exit(_ask(os.environ[ADDRESS], sys.argv[1:]))
    elif sys.argv[1] == "--forks":
        _serve(int(sys.argv[2]))
    else:
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
