"""What scans of the store give: pages that end where they get heavy, and records that are decoded
when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, overload

_T = TypeVar("_T")
_Raw = TypeVar("_Raw")


class Scanned(list[_T]):
    """``is_whole``: there was no more, whether in number or in bytes."""

    def __init__(self, found: Iterable[_T] = (), *, is_whole: bool = True) -> None:
        super().__init__(found)
        self.is_whole = is_whole


class Undecoded(Sequence[_T]):
    """Records as the database sent them, which take a tenth of what they take as objects.

    Each is decoded when it is asked for, and not kept: so one at a time is there as objects.
    """

    __slots__ = ("_decode", "_raw", "_size", "_text")

    def __init__(
        self,
        raw: Sequence[_Raw],
        decode: Callable[[_Raw], _T],
        size: Callable[[_Raw], int],
        text: Callable[[_Raw], str | bytes] = lambda _: b"",
    ) -> None:
        self._raw: Sequence[Any] = raw
        self._decode: Callable[[Any], _T] = decode
        self._size: Callable[[Any], int] = size
        self._text: Callable[[Any], str | bytes] = text

    def size_of(self, index: int) -> int:
        """The bytes of one of them, as it was sent."""
        return self._size(self._raw[index])

    def texts(self) -> Sequence[str | bytes]:
        """The JSON in each of them, where it is all that takes much."""
        return [*map(self._text, self._raw)]

    def __len__(self) -> int:
        return len(self._raw)

    @overload
    def __getitem__(self, index: int) -> _T: ...

    @overload
    def __getitem__(self, index: slice) -> Undecoded[_T]: ...

    def __getitem__(self, index: int | slice) -> _T | Undecoded[_T]:
        if isinstance(index, slice):
            return Undecoded(self._raw[index], self._decode, self._size, self._text)
        return self._decode(self._raw[index])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]
