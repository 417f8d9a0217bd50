"""Commands as a shell runs them: signals, pipes, terminals and completion."""

from __future__ import annotations

import io
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.shell_completion import BashComplete

from gateway.cli.main import main
from gateway.cli.output import Output
from tests.commandline.canned import Asked, Canned, Reply
from tests.commandline.conftest import Commands
from tests.patience import WAIT_S

ROOT = Path(__file__).parents[2]
GATEWAY = (sys.executable, "-m", "gateway.cli")


@pytest.fixture
def environment(run: Commands) -> dict[str, str]:
    """As of a shell: no variable of these tests, and output that is buffered."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GATEWAY_") and name != "PYTHONUNBUFFERED"
    }
    return {**kept, "GATEWAY_URL": run.url, "PYTHONPATH": str(ROOT)}


def _as_a_terminals() -> None:
    """A shell's background jobs, `nohup`, and these tests as such, ignore signals."""
    for each in (signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_DFL)


@contextmanager
def started(
    environment: dict[str, str], *arguments: str, **pipes: Any
) -> Iterator[subprocess.Popen[str]]:
    """Killed in the end, where it hasn't ended by itself."""
    with subprocess.Popen(
        (*GATEWAY, *arguments),
        env=environment,
        text=True,
        preexec_fn=_as_a_terminals,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **pipes},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_ctrl_c_ends_a_watch_with_130_and_no_output(
    run: Commands, catalog: str, environment: dict[str, str]
) -> None:
    with started(environment, "watch", catalog) as watch:
        assert watch.stderr is not None
        assert watch.stdout is not None
        assert "following" in watch.stderr.readline()
        run("put", "-q", catalog, "k", "1")
        assert json.loads(watch.stdout.readline())["revision"] == 1
        watch.send_signal(signal.SIGINT)
        assert watch.wait(WAIT_S) == 130
        assert (watch.stdout.read(), watch.stderr.read()) == ("", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_during_an_export_leaves_no_temporary_file(
    environment: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    is_asked, is_over = threading.Event(), threading.Event()

    def answer_late(_: Asked) -> Reply:
        is_asked.set()
        is_over.wait(WAIT_S)
        return None

    file = tmp_path / "export.json"
    with (
        Canned(answer_late) as canned,
        started({**environment, "GATEWAY_URL": canned.url}, "export", "c", f"-o{file}") as export,
    ):
        assert is_asked.wait(WAIT_S)
        assert len([*tmp_path.iterdir()]) == 1
        export.send_signal(number)
        assert export.wait(WAIT_S) == 128 + number
        assert [*tmp_path.iterdir()] == []
        is_over.set()


def test_a_command_under_nohup_continues_when_its_terminal_is_closed(
    run: Commands, catalog: str, environment: dict[str, str]
) -> None:
    nohup = f"trap '' HUP; {shlex.join([*GATEWAY, 'watch', catalog])}"
    with subprocess.Popen(
        ["sh", "-c", nohup],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as watch:
        try:
            assert watch.stderr is not None
            assert watch.stdout is not None
            assert "following" in watch.stderr.readline()
            os.killpg(watch.pid, signal.SIGHUP)
            run("put", "-q", catalog, "k", "1")
            assert json.loads(watch.stdout.readline())["revision"] == 1
        finally:
            os.killpg(watch.pid, signal.SIGKILL)


class Interrupted(io.RawIOBase):
    """It is interrupted while it is dropped."""

    def close(self) -> None:
        if not self.closed:
            super().close()
            signal.raise_signal(signal.SIGINT)


def test_an_interrupt_swallowed_by_python_still_ends_a_watch() -> None:
    ended, output = threading.Event(), Output(pretty=False, quiet=False)

    def watch() -> None:
        with output.ended_from_outside(ended.set):
            Interrupted()
            assert ended.wait(WAIT_S)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            watch()
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_watch_without_a_reader_ends_even_without_new_commits(
    catalog: str, environment: dict[str, str]
) -> None:
    with started(environment, "watch", catalog) as watch:
        assert watch.stderr is not None
        assert watch.stdout is not None
        assert "following" in watch.stderr.readline()
        watch.stdout.close()
        assert watch.wait(WAIT_S) == 0
        assert watch.stderr.read() == ""


def test_a_command_piped_into_head_ends_silently(
    run: Commands, catalog: str, environment: dict[str, str]
) -> None:
    lines = "".join(json.dumps({"key": f"k{n:05}", "value": "x" * 100}) + "\n" for n in range(2000))
    run("import", "-q", catalog, "-", "--format=ndjson", stdin=lines)
    for arguments in (("get", catalog), ("log", catalog), ("export", catalog)):
        with started(environment, *arguments) as listing:
            assert listing.stdout is not None
            assert listing.stderr is not None
            assert listing.stdout.read(10)
            listing.stdout.close()
            assert listing.wait(WAIT_S) == 0
            assert listing.stderr.read() == ""


@pytest.mark.parametrize("arguments", ["get", "log", "export", "settings", "completion bash"])
@pytest.mark.parametrize("where", [">/dev/full", ">&-"])
def test_output_that_cannot_be_written_is_an_error_of_one_line(
    run: Commands, catalog: str, environment: dict[str, str], arguments: str, where: str
) -> None:
    run("put", "-q", catalog, "k", "1")
    command, *rest = arguments.split()
    named = [] if command in ("settings", "completion") else [catalog]
    done = shell(environment, f"{shlex.join([*GATEWAY, command, *rest, *named])} {where}")
    assert done.returncode == 1
    assert done.stderr.startswith("gateway: can't write to standard output: ")
    assert done.stderr.count("\n") == 1


def test_a_write_whose_answer_cannot_be_printed_says_that_it_is_done(
    run: Commands, catalog: str, environment: dict[str, str]
) -> None:
    written = shell(environment, f"{shlex.join([*GATEWAY, 'put', catalog, 'k', '1'])} >/dev/full")
    assert (written.returncode, run("get", catalog, "k").json()) == (1, 1)
    assert "the write is done" in written.stderr


def test_a_command_works_with_standard_streams_closed(
    catalog: str, environment: dict[str, str]
) -> None:
    put = shlex.join([*GATEWAY, "put", catalog, "k"])
    read = shell(environment, f"{put} - <&-")
    assert read.returncode == 2
    assert "can't read standard input" in read.stderr
    assert shell(environment, f"{put} 1 -q <&- 2>&-").returncode == 0
    export = shell(environment, f"{shlex.join([*GATEWAY, 'export', catalog])} 2>&-")
    assert json.loads(export.stdout)["metadata"] == {"k": 1}


def test_an_export_to_a_link_or_pipe_replaces_neither(
    run: Commands, catalog: str, environment: dict[str, str], tmp_path: Path
) -> None:
    run("put", "-q", catalog, "k", "1")
    link, target, pipe = (tmp_path / name for name in ("link", "target", "pipe"))
    link.symlink_to(target)
    os.mkfifo(pipe)
    export = shlex.join([*GATEWAY, "export", "-q", catalog])
    piped = shell(environment, f"cat {pipe} & {export} -o {pipe} && wait")
    for text in (piped.stdout, shell(environment, f"{export} -o /dev/stdout").stdout):
        assert json.loads(text)["metadata"] == {"k": 1}
    assert shell(environment, f"{export} -o {link}").returncode == 0
    assert (link.is_symlink(), pipe.is_fifo()) == (True, True)
    assert json.loads(target.read_text())["metadata"] == {"k": 1}


def shell(environment: dict[str, str], line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", line],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def test_output_is_pretty_printed_on_a_terminal_only(
    run: Commands, catalog: str, environment: dict[str, str]
) -> None:
    run("put", "-q", catalog, "k", '{"a": 1}')
    ours, theirs = pty.openpty()
    with started(environment, "get", catalog, "k", stdout=theirs) as shown:
        assert shown.wait(WAIT_S) == 0
    os.close(theirs)
    assert os.read(ours, 1000).replace(b"\r", b"") == b'{\n  "a": 1\n}\n'
    os.close(ours)
    with started(environment, "get", catalog, "k") as piped:
        assert piped.stdout is not None
        assert piped.stdout.read() == '{"a":1}\n'


def test_an_import_shows_progress_on_a_terminal_only(
    catalog: str, environment: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "in.json"
    file.write_text('{"metadata": {"a": 1, "b": 2}}')
    ours, theirs = pty.openpty()
    with started(environment, "import", catalog, str(file), stderr=theirs) as shown:
        assert shown.wait(WAIT_S) == 0
    os.close(theirs)
    assert b"2 of 2" in os.read(ours, 10_000)
    os.close(ours)
    with started(environment, "import", catalog, str(file)) as logged:
        assert logged.stderr is not None
        assert logged.stderr.read() == ""


def test_a_token_in_a_variable_does_not_appear_on_the_command_line(
    catalog: str, environment: dict[str, str]
) -> None:
    with started({**environment, "GATEWAY_TOKEN": "s3cret"}, "watch", catalog) as watch:
        assert watch.stderr is not None
        assert "following" in watch.stderr.readline()
        assert "s3cret" not in " ".join(psutil.Process(watch.pid).cmdline())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed(run: Commands, shell: str) -> None:
    script = run("completion", shell).stdout
    assert f"_GATEWAY_COMPLETE={shell}_complete" in script
    assert "--url" in run("get", "--help").stdout


def test_completion_knows_commands_options_catalogs_and_keys(
    run: Commands, catalog: str, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run("put", "-q", catalog, "tables/a", "1")
    run("put", "-q", catalog, "other", "1")
    monkeypatch.setenv("GATEWAY_URL", run.url)

    def completed(*words: str) -> list[str]:
        *before, begun = words
        shell = BashComplete(main, {}, "gateway", "_GATEWAY_COMPLETE")
        return [item.value for item in shell.get_completions(before, begun)]

    assert completed("trans") == ["transaction"]
    assert completed("get", "--with") == ["--with-token"]
    assert completed("get", catalog[:-3]) == [catalog]
    assert completed("get", catalog, "tab") == ["tables/a"]
    assert completed("get", "--url", "http://127.0.0.1:1", "x") == []
    asked = {**environment, "_GATEWAY_COMPLETE": "bash_complete"}
    asked |= {"COMP_WORDS": f"gateway get '{catalog}' ta", "COMP_CWORD": "3"}
    installed = "from gateway.cli.main import main; main(prog_name='gateway')"
    told = subprocess.run(
        (sys.executable, "-c", installed), env=asked, capture_output=True, text=True, check=False
    )
    assert (told.stdout, told.stderr) == ("plain,tables/a\n", "")
