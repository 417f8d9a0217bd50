"""The threads of a test's gateways end with the test, once they have nothing to do.

A gateway's threads stay until its process ends, and one process has thousands of tests' gateways.
The more threads wait in it, the longer the kernel takes to wake any of them.

What a fixture of several tests has made stays as long as the process does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from gateway.runtime import ThreadRuntime


class _Over(BaseException):
    """Ends a thread that is idle for ever: its test is over."""


class _Event:
    """As ``threading.Event``, but for a wait without end of a thread whose test is over."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._is_set = False

    def set(self) -> None:
        with self._changed:
            self._is_set = True
            self._changed.notify_all()

    def is_set(self) -> bool:
        return self._is_set

    def clear(self) -> None:
        with self._changed:
            self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        threads: _Threads | None = getattr(_own, "threads", None)
        with self._changed:
            if self._is_set:
                return True
            if timeout is not None or threads is None:
                return self._changed.wait(timeout)
            threads.idle.add(self)
            try:
                if not threads.are_over:
                    self._changed.wait()
            finally:
                threads.idle.discard(self)
            if threads.are_over and not self._is_set:
                raise _Over
            return True

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


class _Threads:
    """Those of one test."""

    def __init__(self) -> None:
        self.are_over = False
        self.idle: set[_Event] = set()

    def end(self) -> None:
        self.are_over = True
        for each in list(self.idle):
            each.wake()


_own = threading.local()  # .threads: those that a thread is one of
_of_test: _Threads | None = None  # of the test under way


@contextmanager
def of_one_test() -> Iterator[None]:
    """What is made now is for one test alone, which is over in the end."""
    global _of_test
    before, _of_test = _of_test, _Threads()
    threads = _of_test
    try:
        yield
    finally:
        _of_test = before
        threads.end()


@contextmanager
def of_several_tests() -> Iterator[None]:
    global _of_test
    before, _of_test = _of_test, None
    try:
        yield
    finally:
        _of_test = before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    with of_one_test():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    if fixturedef.scope == "function":
        return (yield)
    with of_several_tests():
        return (yield)


def _made(kind: type[ThreadRuntime], *_: Any, **__: Any) -> ThreadRuntime:
    runtime = object.__new__(kind)
    runtime.threads = _of_test  # type: ignore[attr-defined]
    return runtime


def _spawn(runtime: Any, run: Callable[[], None], name: str) -> None:
    def until_over() -> None:
        _own.threads = runtime.threads
        with suppress(_Over):
            run()

    _spawn_as_ever(runtime, until_over, name)


_spawn_as_ever = ThreadRuntime.spawn


ThreadRuntime.__new__ = _made  # type: ignore[method-assign, assignment]
ThreadRuntime.spawn = _spawn  # type: ignore[method-assign]
ThreadRuntime.event = lambda _: _Event()  # type: ignore[method-assign]
