"""Partitions: where to cut a catalog's keys into key ranges, for readers that share the catalog at
one revision.

Only keys are read, from the index, and only a bounded number, however many there are. Up to
_KEYS_MAX keys are scanned, and every nth of them is kept (``evenly``). If there are more, counting
them would take too long. Then a few keys are read in many places (a *probe*: the first keys above a
text), and the number of keys in between is estimated from how dense they are there (``cuts``). The
estimates only affect the balance: whatever they are, every key is in exactly one piece.

Worked example. The first 16 keys are t/0000 to t/0015, and no key comes after those that begin with
t/: so all keys begin with "t/". As only the digits 0 to 9 were seen, the keys are assumed to go on
to t/9999 at that density: an estimate of 10,000. Half-way is t/5008; a probe there finds t/8000 and
the keys after it. So there are two spans now, t/0000 to t/5008 and the rest, each with keys of its
own to estimate from, and the heavier one is cut next.

Keys count as they are now, including those of deleted documents and of documents newer than the
revision. That may tip the balance; still, every document is in exactly one range.

A principal that doesn't see all documents learns only keys that it sees, and texts made from these.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from gateway import memory
from gateway.read.listing import Listing
from gateway.read.visibility import Viewer
from gateway.store.contract import Store
from gateway.store.unreachable import as_unavailable

# How many keys are scanned at most, and how many at a time.
_KEYS_MAX = 100_000
_PAGE = 10_000
# How many of them are kept at least: for each range, or, with a viewer, in total.
_KEPT_PER_RANGE = 16
_KEPT_FOR_SIGHT = 4_000
# How many keys a probe reads to find visible ones.
_PROBED_FOR_SIGHT = 64


@dataclass(frozen=True, slots=True)
class KeySpan:
    """The keys above ``after`` up to ``until`` (None: to the end) that begin with ``prefix``."""

    prefix: str = ""
    after: str = ""
    until: str | None = None

    def holds(self, key: str) -> bool:
        return key > self.after and (self.until is None or key <= self.until)


@dataclass(frozen=True, slots=True)
class Partition:
    """A revision, and the ``bounds`` between its key ranges, ascending. The first range has the
    keys up to the first bound, each following one the keys above a bound up to the next, the last
    one the rest."""

    revision: int
    bounds: Sequence[str]


class PartitionPlanner:
    def __init__(self, store: Store, listing: Listing) -> None:
        self._store = store
        self._listing = listing

    def plan(
        self,
        catalog: str,
        count: int,
        span: KeySpan,
        *,
        revision: int | None,
        viewer: Viewer | None = None,
    ) -> Partition:
        """At most ``count`` ranges of ``span``. Raises what ``Listing`` raises."""
        with as_unavailable():
            at = self._listing.readable(catalog, revision)
            if count == 1:
                return Partition(at, ())
            keys = _Keys(self._store, catalog, span, viewer)
            with memory.account().holding(memory.REPLY_BYTES):
                kept = keys.every_nth(_KEPT_FOR_SIGHT if viewer else count * _KEPT_PER_RANGE)
                found = cuts(keys.probe, count) if kept is None else evenly(kept, count)
            return Partition(at, [bound for bound in found if span.holds(bound)])


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys of ``span``; those hidden from ``viewer`` are never returned."""

    store: Store
    catalog: str
    span: KeySpan
    viewer: Viewer | None

    def every_nth(self, at_least: int) -> list[str] | None:
        """Every nth key, with n so that there are at least ``at_least`` and less than twice as
        many; all keys if there are fewer. None if there are too many keys to scan."""
        kept: list[str] = []
        step, passed, after = 1, 0, self.span.after
        while passed < _KEYS_MAX:
            page = self.store.scan_keys(self.catalog, after, self.span.prefix, _PAGE)
            inside = [key for key in page if self.span.holds(key)]
            kept += inside[(step - 1 - passed) % step :: step]
            passed += len(inside)
            while len(kept) >= 2 * at_least:
                kept, step = kept[1::2], 2 * step
            if len(page) < _PAGE or len(inside) < len(page):
                return self._seen(kept)
            after = page[-1]
        return None

    def probe(self, after: str, limit: int) -> Sequence[str]:
        """The first keys above a text, for ``cuts``. With a viewer, there may be none although a
        visible key follows further on."""
        after = max(after, self.span.after)
        some = limit if self.viewer is None else _PROBED_FOR_SIGHT
        page = self.store.scan_keys(self.catalog, after, self.span.prefix, some)
        return self._seen([key for key in page if self.span.holds(key)])[:limit]

    def _seen(self, keys: list[str]) -> list[str]:
        return keys if self.viewer is None else self.viewer.visible(keys)


# (after, limit) -> the first keys above ``after``, ascending, at most ``limit``.
Probe = Callable[[str, int], Sequence[str]]

# How many keys a probe asks for.
_SAMPLE: Final = 16
# How often spans are cut at most: per piece, and in total.
_CUTS_PER_PIECE: Final = 16
_CUTS_MAX: Final = 1_000
# Spans are cut until none is heavier than a piece divided by this.
_SHARE: Final = 4
# The last character that there is.
_TOP: Final = "\U0010ffff"
# How many characters of a text count when it is taken as a number.
_DIGITS: Final = 16
_ASCII_LAST: Final = 0x7F
_SURROGATES: Final = range(0xD800, 0xE000)  # no text that can be sent has them


@dataclass(frozen=True, slots=True)
class _Span:
    """The keys above ``after`` up to ``until``; ``keys`` are the first of them, or all if they are
    fewer than _SAMPLE. ``solid``: it can't be cut.
    """

    after: str
    until: str
    keys: tuple[str, ...]
    solid: bool = False

    @property
    def is_known(self) -> bool:
        return len(self.keys) < _SAMPLE


def cuts(probe: Probe, pieces: int) -> list[str]:
    """Ascending texts, fewer than ``pieces``, between the pieces: each piece has the keys above one
    text up to the next. [] if there are no keys. Probes for at most 16 keys at a time, usually 10
    to 20 times for each piece, and not much more than 1,000 times.
    """
    first = tuple(probe("", _SAMPLE))
    if pieces < 2 or not first:
        return []
    if len(first) < _SAMPLE:
        return _cut(_one_each(first), [1.0] * len(first), pieces)
    spans = [_Span("", _shared_by_all(probe, first[0]) + _TOP, first)]
    alphabet = _Alphabet(first)
    for _ in range(min(_CUTS_PER_PIECE * pieces, _CUTS_MAX)):
        weights = [alphabet.estimate(span) for span in spans]
        heaviest = max(
            (i for i, span in enumerate(spans) if not (span.solid or span.is_known)),
            key=lambda i: weights[i],
            default=None,
        )
        if heaviest is None or weights[heaviest] * _SHARE * pieces <= sum(weights):
            break
        spans[heaviest : heaviest + 1] = _halved(probe, alphabet, spans[heaviest])
    spans = [each for span in spans for each in (_one_each(span.keys) if span.is_known else [span])]
    # a known span now ends at its last key, which may be below its end; nothing is in between
    return _cut(spans, [alphabet.estimate(span) for span in spans], pieces)


def evenly(keys: Sequence[str], pieces: int) -> list[str]:
    """The last key of each piece but the last, from the ascending ``keys``: see ``cuts``.

    There are fewer pieces than asked for if there are fewer keys than ``pieces``; none is empty.
    """
    ends = {len(keys) * piece // pieces for piece in range(1, pieces)}
    return [keys[end - 1] for end in sorted(ends) if end > 0]


def _one_each(keys: Sequence[str]) -> list[_Span]:
    return [_Span("", key, (key,)) for key in keys]


def _cut(spans: Sequence[_Span], weights: Sequence[float], pieces: int) -> list[str]:
    """The ends of the spans where the sum of the weights passes a piece's share."""
    share = sum(weights) / pieces
    found: list[str] = []
    passed = 0.0
    for span, weight in zip(spans[:-1], weights, strict=False):
        passed += weight
        if passed >= share * (len(found) + 1) and len(found) < pieces - 1:
            found.append(span.until)
    return found


def _shared_by_all(probe: Probe, first: str) -> str:
    """The longest prefix of the ``first`` key that all keys begin with."""
    shared, too_long = 0, len(first) + 1
    while too_long - shared > 1:
        middle = (shared + too_long) // 2
        if probe(first[:middle] + _TOP, 1):
            too_long = middle
        else:
            shared = middle
    return first[:shared]


def _shared(low: str, high: str) -> int:
    """How many characters the two texts share at the beginning."""
    unlike = (
        index for index, pair in enumerate(zip(low, high, strict=False)) if len(set(pair)) > 1
    )
    return next(unlike, min(len(low), len(high)))


def _halved(probe: Probe, alphabet: _Alphabet, span: _Span) -> list[_Span]:
    """``span`` cut half-way between its last known key and its end; or shortened to that point, if
    no key follows it."""
    last = span.keys[-1]
    middle = alphabet.between(last, span.until)
    if not last <= middle < span.until:
        middle = _between(last, span.until)
    if not last <= middle < span.until:
        return [replace(span, solid=True)]
    found = tuple(key for key in probe(middle, _SAMPLE) if key <= span.until)
    if not found:
        return [replace(span, until=middle)]
    below = replace(span, until=middle)
    alphabet.learn(found)
    return [below, _Span(middle, span.until, found)]


def _between(low: str, high: str) -> str:
    """A text about half-way by code points, for keys with characters that weren't seen yet."""
    shared = _shared(low, high)
    first = ord(low[shared]) if shared < len(low) else 0
    last = ord(high[shared])
    if first < _ASCII_LAST < last:
        return low[:shared] + chr(_ASCII_LAST)
    middle = (first + last) // 2
    if middle in _SURROGATES:
        middle = _SURROGATES.start - 1
    if middle > first:
        return low[:shared] + chr(middle)
    return low[: shared + 1] + _TOP


class _Alphabet:
    """Texts as numbers, as if nothing but the characters seen so far occurred in keys."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._characters: list[str] = []
        self.learn(keys)

    def learn(self, keys: Sequence[str]) -> None:
        shared = _shared(keys[0], keys[-1])  # of all: they are in order
        seen = set(self._characters).union(*(key[shared:] for key in keys))
        self._characters = sorted(seen)

    def estimate(self, span: _Span) -> float:
        """How many keys the span has, estimated from the density of its first ones."""
        if span.is_known:
            return float(len(span.keys))
        shared = _shared(span.keys[0], span.until)
        places = [self._number(key, shared) for key in span.keys]
        gaps = sorted(b - a for a, b in pairwise(places) if b > a) or [1]
        everything = max(self._number(span.until, shared) - places[0], 0)
        # the median, not the mean: with a few wide gaps, the mean would make a dense span seem
        # light, and it would never be cut
        return len(span.keys) + everything / gaps[len(gaps) // 2]

    def between(self, low: str, high: str) -> str:
        """A text about half-way; if few characters are known, it may be outside."""
        shared = _shared(low, high)
        number = (self._number(low, shared) + self._number(high, shared)) // 2
        base = self._base
        digits: list[int] = []
        for _ in range(_DIGITS):
            number, digit = divmod(number, base)
            digits.append(digit)
        if number:  # it has more digits: beyond all texts of known characters
            digits = [base - 1] * _DIGITS
        characters = [self._characters[min(d, len(self._characters) - 1)] for d in reversed(digits)]
        return low[:shared] + "".join(characters)

    @property
    def _base(self) -> int:
        return max(len(self._characters), 2)

    def _number(self, text: str, start: int) -> int:
        """The characters from ``start`` on, as digits; an unknown one counts as the next known."""
        base = self._base
        number = 0
        for index in range(start, start + _DIGITS):
            character = text[index : index + 1]
            digit = bisect_left(self._characters, character) if character else 0
            number = number * base + digit
        return number
