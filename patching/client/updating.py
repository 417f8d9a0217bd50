"""Read-modify-write: read, let a function change it, write if nobody else did meanwhile."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from patching import ABSENT, DEFAULT_LIMITS, Absent, Json, diff

from .calls import Calls
from .errors import UpdateFailed
from .problems import NotFound, PreconditionFailed
from .results import Document, Updated, Written
from .terms import WriteTerms

if TYPE_CHECKING:
    from .documents import Part

_FIRST_S: Final = 0.02
_LONGEST_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Update:
    """See `Part.update`."""

    part: Part
    key: str
    function: Callable[[Any], Any]
    create: bool
    rebase: bool
    tries_max: int
    terms: WriteTerms

    def run(self, calls: Calls) -> Updated:
        if self.terms.get("idempotency_key") is not None:
            raise TypeError("an update takes no idempotency_key: it is several requests")
        if self.tries_max < 1:
            raise ValueError("tries_max is at least 1")
        timeout_s = self.terms.get("timeout_s")
        retry = calls.retry
        deadline = retry.clock() + (calls.timeout_s if timeout_s is None else timeout_s)
        tries = 0
        while True:
            tries += 1
            left_s = max(deadline - retry.clock(), 0.1)
            before = self._read(left_s)
            content: Json | Absent = ABSENT if before is None else before.value
            after = self._changed(content)
            try:
                left_s = max(deadline - retry.clock(), 0.1)
                return self._result(before, after, self._write(before, after, left_s), tries)
            except PreconditionFailed as error:
                # The catalog has left that revision for good.
                if error.applied != "no" or self.terms.get("resource_version") is not None:
                    raise
                longest_s = min(_LONGEST_S, _FIRST_S * 2.0 ** min(tries - 1, 60))
                pause_s = longest_s * retry.luck()
                if tries >= self.tries_max or retry.clock() + pause_s >= deadline:
                    raise UpdateFailed(self.key, tries) from error
            retry.sleep(pause_s)

    def _read(self, left_s: float) -> Document | None:
        try:
            return self.part.get(self.key, timeout_s=left_s)
        except NotFound as error:
            if not self.create or error.code not in ("document_not_found", "catalog_not_found"):
                raise
            return None

    def _changed(self, content: Json | Absent) -> Json | Absent:
        after: Json | Absent = self.function(copy.deepcopy(content))
        if after is None and content is not None:
            raise TypeError("the function returned None: it returns the new content, or ABSENT")
        return after

    def _write(
        self, before: Document | None, after: Json | Absent, left_s: float
    ) -> Written | None:
        """None where there is nothing to change."""
        terms: WriteTerms = {**self.terms, "timeout_s": left_s}
        if before is None:
            if after is ABSENT:
                return None
            return self.part.put(self.key, after, if_absent=True, **terms)
        operations = diff(before.value, after, compact=not self.rebase)
        if not operations:
            return None
        if len(operations) > DEFAULT_LIMITS.operations_max:
            operations = diff(before.value, after)
        return self.part.patch(self.key, operations, if_match=before, rebase=self.rebase, **terms)

    def _result(
        self,
        before: Document | None,
        after: Json | Absent,
        written: Written | None,
        tries: int,
    ) -> Updated:
        if written is None:
            etag = None if before is None else before.etag
            return Updated(self.key, after, etag, False, tries, None)
        return Updated(self.key, after, written.etag, written.changed, tries, written)
