"""What the client does, as steps that somebody else carries out: the core of both clients.

A *plan* is a generator. It yields what is to be done next, is sent what came of it, and returns the
result of the call. It does no I/O, takes no time and knows no threads, so one plan serves the
client that blocks (`_blocking`) and the one for asyncio (`aio`)::

    plan     ──►  SendOnce(GET …)  ──►  client: sends it, once
             ◄──  HttpAnswer, or a RequestError is thrown in
    plan     ──►  Pause(0.2)       ──►  client: sleeps
    plan     ──►  PlanItem(document)   ──►  client: hands it to the caller's loop
    plan     returns               ──►  client: returns it
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Concatenate, Final, Generic, Literal, ParamSpec, TypeAlias, TypeVar

_S = TypeVar("_S")
_P = ParamSpec("_P")
_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)

Query = Sequence[tuple[str, str | int]]


@dataclass(frozen=True, slots=True)
class SendOnce:
    """A request to be sent once. ``path`` is percent-encoded already.

    ``takes``: "whole" comes back as an `HttpAnswer`; "lines" as `Pieces`, even if the body breaks
    off; "stream" as the client's own response, once its head is there. ``timeout_s``: how many
    seconds to wait for the answer (None: the client's default). ``line``: the same as a line of a
    bulk request, which may share one with others of the same preferences ``shared``.
    """

    method: str
    path: str
    query: Query = ()
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float | None = None
    takes: Literal["whole", "lines", "stream"] = "whole"
    line: bytes | None = None
    shared: str = ""


@dataclass(frozen=True, slots=True)
class Pieces:
    """A body as far as it came. ``broken``: why it broke off, in words; None if it didn't."""

    pieces: list[bytes]
    broken: str | None


@dataclass(frozen=True, slots=True)
class Pause:
    """Time that is to pass. Nothing comes back."""

    seconds: float


@dataclass(frozen=True, slots=True)
class PlanItem(Generic[_T_co]):
    """Something for the caller's loop. Nothing comes back."""

    value: _T_co


Steps: TypeAlias = Generator[SendOnce | Pause, Any, _T]
Listing: TypeAlias = Generator[SendOnce | Pause | PlanItem[_T], Any, None]


class PlanProgress(Generic[_T]):
    """A plan under way: the ``step`` to carry out next, until it ``is_over`` with a ``result``.
    Raises what the plan raises."""

    step: Any
    result: _T

    def __init__(self, plan: Generator[Any, Any, _T]) -> None:
        self._plan = plan
        self.is_over = False
        self.answered(None)

    def answered(self, value: Any) -> None:
        """The step was carried out, with this result."""
        try:
            self.step = self._plan.send(value)
        except StopIteration as end:
            self.is_over, self.result = True, end.value

    def failed(self, error: BaseException) -> None:
        """The step could not be carried out."""
        try:
            self.step = self._plan.throw(error)
        except StopIteration as end:
            self.is_over, self.result = True, end.value


def called(
    plan: Callable[Concatenate[_S, _P], Steps[_T]],
) -> Callable[Concatenate[_S, _P], _T]:
    """Makes a method that is written as its plan block until the result is there. The ``_calls`` of
    its object carry the plan out."""

    @functools.wraps(plan)
    def call(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        result: _T = self._calls.run(plan(self, *args, **kwargs))
        return result

    _show(call, plan, "Steps")
    return call


def listed(
    plan: Callable[Concatenate[_S, _P], Listing[_T]],
) -> Callable[Concatenate[_S, _P], Iterator[_T]]:
    """Likewise, for a method that returns an iterator."""

    @functools.wraps(plan)
    def call(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> Iterator[_T]:
        items: Iterator[_T] = self._calls.each(plan(self, *args, **kwargs))
        return items

    _show(call, plan, "Listing", "Iterator")
    return call


_PLAN: Final = "_plan"


def _show(call: Any, plan: Callable[..., Any], wrapped: str, shown: str = "") -> None:
    """Make the method's signature show the result instead of the plan, which it keeps."""
    returned = str(inspect.get_annotations(plan).get("return")).removeprefix(wrapped)
    returned = shown + returned if shown else returned[1:-1]
    call.__signature__ = inspect.signature(plan).replace(return_annotation=returned)
    call.__annotations__ = {**plan.__annotations__, "return": returned}
    setattr(call, _PLAN, plan)


def plan_of(method: Callable[_P, _T]) -> Callable[_P, Steps[_T]]:
    """The plan of an object's method that is `called`: to be part of another plan, or to be carried
    out by another client. A method that has replaced it, without a plan, is just called."""
    bound: Any = method
    plan = getattr(getattr(bound, "__func__", bound), _PLAN, None)
    return (
        functools.partial(_as_it_is, method)
        if plan is None
        else functools.partial(plan, bound.__self__)
    )


def _as_it_is(method: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> Steps[_T]:
    return method(*args, **kwargs)
    yield  # a plan without a step
