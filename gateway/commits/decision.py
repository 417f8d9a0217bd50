"""What a decision is made on, what bounds it, and what comes out of it. Immutable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import patching
from gateway.commits.requests import Outcome
from gateway.model import Commit, Document
from patching import Json

# What the documents that one request is about may take together, but for a few.
DOCUMENTS_BYTES_MAX: Final = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a decision may produce. ``stored_bytes`` measures a content as the store will hold it.

    ``batch_bytes_max`` bounds the sum of what the commits record, unless there is only one;
    ``stored_bytes_max`` bounds a document, and what a single commit records.
    ``full_value_every`` is K: every K-th change of a document records its full value.
    """

    limits: patching.Limits
    attributes_bytes_max: int
    full_value_every: int
    batch_bytes_max: int
    stored_bytes_max: int
    stored_bytes: Callable[[Json], int]


@dataclass(frozen=True, slots=True)
class View:
    """A catalog's state at ``revision``, as far as its batch needs it.

    ``documents`` has every key that the batch names: a document, a tombstone, or None where the
    key never existed. ``replies`` has the commits already made under the idempotency keys of the
    batch, by (principal, key); a key that isn't there was not used up to ``revision``. ``bases``
    has, by (key, token), the documents that patches to be rebased were made against.

    ``requests``: how many requests of the batch, from the first one on, it was read for; None: all.
    ``too_heavy``: the bytes of documents that the first one is about, where these are more than are
    read for one request; then they aren't there, and it is refused.
    """

    catalog: str
    revision: int
    time_us: int
    documents: Mapping[str, Document | None]
    replies: Mapping[tuple[str, str], Commit] = field(default_factory=dict)
    bases: Mapping[tuple[str, str], Document] = field(default_factory=dict)
    requests: int | None = None
    too_heavy: int | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """``commits`` at revisions view.revision + 1, + 2, …; one outcome per request, in order.

    ``outcomes`` may be shorter than the batch: the requests behind its end did not fit any more
    and are decided in the next one. ``documents`` are the states the commits leave, by key.
    """

    commits: tuple[Commit, ...]
    outcomes: tuple[Outcome, ...]
    documents: Mapping[str, Document]
