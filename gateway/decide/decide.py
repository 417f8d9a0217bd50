"""The decision on a batch of requests, given the state of their catalog: a pure function.

``decide`` is handed everything and does no I/O: no clock, no store, no ids. Each request sees the
state that the earlier ones of its batch left; the refusal of one request doesn't affect the others.
The decision isn't final: it holds only if the head is still at ``view.revision`` when it is moved.
Otherwise, it is made again on fresh state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice, repeat

from gateway.cpu import CpuAccount, TooMuchWork, conclude, section
from gateway.decide.applications import Term, records_after_step, refusal
from gateway.decide.compares import ITEM_BYTES, Compare, CompareChecker, Equals, IsAbsent, Satisfies
from gateway.decide.declaring_lists import require_held
from gateway.decide.draft import Draft, Items
from gateway.decide.edits import EDIT_KINDS, KeyEdit, kind_of
from gateway.decide.guards import compares_conflict, refuse_forbidden, require_guards
from gateway.decide.idempotency_keys import earlier_outcome, is_remembered, stands, verdict_of
from gateway.decide.performing import RequestDrafts, perform_all
from gateway.decide.ranges import Count, RangeAbsent, RangeEdit, RangeState
from gateway.decide.recording import (
    CERTAINLY_STORABLE_BYTES,
    CommitTerms,
    commit_of,
    refuse_oversized,
)
from gateway.decide.request import (
    Applied,
    Decision,
    Outcome,
    Refused,
    Request,
    Rules,
    Unchanged,
    View,
    named_keys,
    replaced_keys,
)
from gateway.decide.settings import NO_SETTINGS
from gateway.errors import (
    AboveLimit,
    CommitError,
    ConditionFailed,
    DocumentNotFound,
    MemoryFull,
    untraced,
)
from gateway.limits import MIB
from gateway.model import (
    APPLICATIONS_KEY,
    OWN_KEYS,
    SETTINGS_KEY,
    CommitRecord,
    DocumentRecord,
    Verdict,
    living,
)
from patching import ABSENT
from patching.list_declarations import ListDeclarations

# Once a batch has worked through this many bytes of documents, it ends: it holds up everybody else.
_BATCH_WORK_BYTES_MAX = 32 * MIB


class BatchState:
    """A view with the ``commits`` that were decided on it so far: see ``compares.State``.

    ``revision``, ``time_us``, the ``last`` commit's id, and whether the catalog is ``deleted`` are
    those after these commits; ``documents`` are the states that they leave, by key. ``work_bytes``
    counts the bytes of documents that the batch has worked through.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._all = dict(view.documents)
        self.document = self._all.__getitem__
        self.revision = view.revision
        self.time_us = view.time_us
        self.last = view.last
        self.deleted = view.deleted
        self.work_bytes = 0
        self.commits: list[CommitRecord] = []
        self.documents: dict[str, DocumentRecord] = {}
        self._range_state: RangeState | None = None

    # No cached_property: in Python 3.11, it has one lock for all instances, which a request that is
    # broken off while it holds the lock never releases.
    @property
    def _ranges(self) -> RangeState:
        if self._range_state is None:
            view = self._view
            self._range_state = RangeState(view.ranges, view.documents, self.documents)
        return self._range_state

    def record(self, commit: CommitRecord, after: Mapping[str, DocumentRecord]) -> None:
        """Add the next commit, and the documents that it leaves."""
        self.commits.append(commit)
        self.documents.update(after)
        self._all.update(after)
        self.revision = commit.revision
        self.time_us = commit.time_us
        self.last = commit.id
        self.deleted = commit.deletes_catalog

    def base(self, key: str, token: str) -> DocumentRecord | None:
        before = self._view.documents[key]
        if before is not None and before.token == token:
            return living(before)
        return self._view.bases.get((key, token))

    def written_since(self, revision: int) -> list[DocumentRecord | None] | None:
        """The documents written after ``revision``, including those of this batch; None if they
        aren't known."""
        view = self._view
        if view.changed_since is None or view.changed_since > revision:
            return None
        keys = (view.changed | self.documents.keys()) - {SETTINGS_KEY, APPLICATIONS_KEY}
        documents = [self.document(key) for key in keys]
        self.spend(sum(each.size_bytes for each in documents if each is not None))
        return documents

    def changed_under(self, prefix: str, since: int) -> int | None:
        self.spend(len(self.documents) * ITEM_BYTES)
        return self._ranges.changed(prefix, since)

    def count_under(self, prefix: str) -> Count:
        self.spend(len(self.documents) * ITEM_BYTES)
        return self._ranges.count(prefix)

    def are_within(self, prefix: str, keys: Collection[str]) -> bool:
        """See ``RangeState.are_within``."""
        return self._ranges.are_within(prefix, keys)

    def keys_for(self, edit: RangeEdit) -> list[str]:
        keys = self._ranges.keys(edit)
        self.spend((len(keys) + len(self.documents)) * ITEM_BYTES)
        return keys

    def spend(self, work_bytes: int) -> None:
        self.work_bytes += work_bytes


def decide(
    view: View,
    requests: Sequence[Request],
    attempts: Sequence[int],
    *,
    now_us: int,
    rules: Rules,
    accounts: Iterable[CpuAccount | None] = repeat(None),
) -> Decision:
    """Decide ``requests`` in order on ``view``. ``attempts`` has the number of attempts of each,
    including this one.

    Each is computed on its own account. If that is used up, the request is refused, but its
    idempotency key doesn't remember it.

    ``now_us`` is the wall clock in microseconds. A commit's time is later than that of the commit
    before it, and a verdict's isn't earlier, even if the clock stands still or goes back.
    """
    deciding = BatchDecider(view, now_us, rules)
    state = deciding.state
    outcomes: list[Outcome] = []
    if view.too_heavy is not None:
        refused = deciding.too_heavy(requests[0], attempts[0], view.too_heavy)
        return Decision((), (refused,), {}, tuple(deciding.verdicts))
    asked = zip(zip(requests, attempts, strict=True), accounts, strict=False)
    for (request, attempt), account in islice(asked, view.requests):
        if state.work_bytes > _BATCH_WORK_BYTES_MAX:
            break
        outcome = deciding.within(account, request, attempt)
        if outcome is None:
            break
        outcomes.append(outcome)
    return Decision(
        tuple(state.commits), tuple(outcomes), state.documents, tuple(deciding.verdicts)
    )


class BatchDecider:
    """The decision so far, and the ``state`` that it leaves."""

    def __init__(self, view: View, now_us: int, rules: Rules) -> None:
        self.state = BatchState(view)
        self._judged = view.judged
        now_us = max(now_us, view.time_us)  # a clock that is behind would forget verdicts early
        self._now_us = now_us
        self.rules = rules
        self.term = Term(now_us, rules.limits.retention.idempotency_s)
        self._replies = dict(view.replies)
        self._bytes = 0
        self.verdicts: list[Verdict] = []

    def within(self, account: CpuAccount | None, request: Request, attempt: int) -> Outcome | None:
        """``one``, on the request's account. If that, or the process's memory, is used up, the
        request is refused and has no effect."""
        try:
            with section(account):
                return self.one(request, attempt)
        except (TooMuchWork, MemoryFull) as error:
            return Refused(untraced(error))

    def one(self, request: Request, attempt: int) -> Outcome | None:
        """The request's outcome; None if its commit or verdict no longer fits into this batch."""
        if request.fence is not None:
            refused = refusal(request, self.state.document(APPLICATIONS_KEY), self.term)
            if refused is not None:  # which its key doesn't remember
                return refused
        if request.idempotency is not None:
            reply = self._replies.get((request.idempotency.principal, request.idempotency.key))
            if reply is not None and stands(request, reply):
                return earlier_outcome(request, reply, self.state.document)
        self.state.work_bytes += request.size_bytes
        outcome = self._decided(request, attempt)
        if isinstance(outcome, Applied):  # the usual case
            return outcome
        if isinstance(outcome, Unchanged | Refused) and is_remembered(request, outcome):
            verdict = self._verdict(request, outcome, attempt)
            if not self.fits(verdict.size_bytes):
                return None
            conclude()
            self._judge(verdict)
        return outcome

    def _verdict(self, request: Request, outcome: Unchanged | Refused, attempt: int) -> Verdict:
        number = self._judged + len(self.verdicts) + 1
        return verdict_of(
            request, outcome, attempt, number, self.state.revision, self._now_us, self.rules
        )

    def _judge(self, verdict: Verdict) -> None:
        """Record an outcome without a commit under the request's key."""
        self.verdicts.append(verdict)
        self._bytes += verdict.size_bytes
        self._replies[verdict.idempotency.principal, verdict.idempotency.key] = verdict

    def fits(self, size_bytes: int) -> bool:
        """Whether the batch has room for a record of this size; the first one always fits."""
        first = not self.state.commits and not self.verdicts
        return first or self._bytes + size_bytes <= self.rules.limits.batch_bytes_max

    def next_time_us(self) -> int:
        """The time of the next commit: later than that of the last one, whatever the clock says."""
        return max(self._now_us, self.state.time_us + 1)

    def record(
        self, request: Request, commit: CommitRecord, after: Mapping[str, DocumentRecord]
    ) -> None:
        """Add the request's commit, and the documents that it leaves."""
        self.state.record(commit, after)
        self._bytes += commit.size_bytes
        if request.idempotency is not None:
            self._replies[request.idempotency.principal, request.idempotency.key] = commit

    def _decided(self, request: Request, attempt: int) -> Outcome | None:
        try:
            return RequestDecision(self, request, attempt).outcome()
        except CommitError as error:
            if isinstance(error, ConditionFailed) and error is not request.refusal:
                conflict = replace(error.conflict, catalog_revision=self.state.revision)
                return Refused(ConditionFailed(conflict))
            if isinstance(error, DocumentNotFound):
                error.at(self.state.revision)
            return Refused(error)

    def too_heavy(self, request: Request, attempt: int, refused: AboveLimit) -> Outcome:
        """The refusal of a request whose documents weren't all read."""
        outcome = Refused(refused)
        try:
            refuse_forbidden(request, self.state.document)
        except CommitError as error:
            outcome = Refused(error)
        # The first verdict of a batch fits. If the request has a fence, nothing is remembered,
        # because the fence wasn't checked.
        if is_remembered(request, outcome) and request.fence is None:
            self._judge(self._verdict(request, outcome, attempt))
        return outcome


class RequestDecision:
    """The decision on one ``request``, by the catalog's settings at that moment.

    The work of all its patches and tests together is bounded.
    """

    def __init__(self, batch: BatchDecider, request: Request, attempt: int) -> None:
        self._batch = batch
        self._attempt = attempt
        self.request = request
        self.state = batch.state
        found = self.state.document(SETTINGS_KEY)
        exists = found is not None and found.exists
        self._settings = batch.rules.settings_of(found) if exists else NO_SETTINGS
        self._limits = batch.rules.limits
        self._items = Items(self._limits.patch, self._limits.patch)
        self._compares: CompareChecker | None = None

    @property  # no cached_property: see ``BatchState._ranges``
    def _comparing(self) -> CompareChecker:
        if self._compares is None:
            self._compares = CompareChecker(self._items, self._settings.lists)
        return self._compares

    def outcome(self) -> Outcome | None:
        """The outcome of the request: its edits, those of ``otherwise``, or none are committed."""
        state, request = self.state, self.request
        if request.step is not None:
            records, term = state.document(APPLICATIONS_KEY), self._batch.term
            edit = records_after_step(request.step, request.commit_id, request.by, records, term)
            return self._edit((KeyEdit(APPLICATIONS_KEY, edit),))
        rebased_from = require_guards(request, state, self._settings, deleted=state.deleted)
        failed = self._comparing.failures(request.compare, state) if request.compare else []
        if not failed:
            return self._edit(request.edits, rebased_from=rebased_from)
        done = self.holds_already([each.index for each in failed])
        if done is not None:
            return self._unchanged(request.edits, drafts=done)
        if request.otherwise is None:
            raise ConditionFailed(compares_conflict(request, failed))
        return self._edit(request.otherwise, succeeded=False)

    def holds_already(self, failed: Sequence[int]) -> RequestDrafts | None:
        """The drafts of a request whose effect is there already, through an earlier try of it or
        another write; None if it isn't.

        This requires that the false compares are about contents of documents that the request
        writes: then they may be false because it has written them. A compare of a token, a
        revision, or another document's content must be true. A range that had to be absent may
        contain only documents that the request writes. This comes before ``otherwise``, which is
        for states that others made. The state can't show that a move was done, because it doesn't
        say what was moved.
        """
        edits = self.request.edits
        if not self._are_explained(failed, edits):
            return None
        try:
            drafts = self._drafted(edits)
            changed = drafts.changed()
        except CommitError:
            return None
        if drafts.left_out:  # whether these edits were done isn't known
            done = [each for n, each in enumerate(edits) if n not in drafts.left_out]
            if not self._are_explained(failed, done):
                return None
        return None if drafts.forced or changed else drafts

    def _are_explained(self, failed: Sequence[int], edits: Sequence[KeyEdit]) -> bool:
        """Whether the compares may be false because of what ``edits`` write."""
        written = {each.key for each in edits if kind_of(each.edit).writes}
        written |= replaced_keys(edits)
        return all(self._is_explained(self.request.compare[index], written) for index in failed)

    def _is_explained(self, compare: Compare, written: Collection[str]) -> bool:
        if isinstance(compare, RangeAbsent):
            return self.state.are_within(compare.prefix, written)
        return isinstance(compare, IsAbsent | Equals | Satisfies) and compare.key in written

    def _drafted(self, edits: Sequence[KeyEdit]) -> RequestDrafts:
        request = self.request
        otherwise = edits is request.otherwise
        drafts = RequestDrafts(
            request,
            self.state,
            self._limits,
            self._batch.next_time_us(),
            self._settings.lists,
            self._items,
            otherwise=otherwise,
        )
        try:
            if len(edits) == 1 and not edits[0].when and EDIT_KINDS[type(edits[0].edit)].is_of_one:
                drafts.perform(edits[0])
                drafts.require_gettable(edits[0])
            else:
                drafts.left_out = perform_all(edits, drafts, self.state, self._comparing)
            drafts.require_undisputed()
        except CommitError as error:
            if len(edits) == 1:
                error.action = 0 if request.is_transaction else None
            error.otherwise = otherwise
            raise
        finally:  # a refusal may have been as much work
            self.state.work_bytes += drafts.work_bytes
        return drafts

    def _edit(
        self,
        edits: Sequence[KeyEdit],
        *,
        succeeded: bool = True,
        rebased_from: str | None = None,
    ) -> Outcome | None:
        request, state, drafts = self.request, self.state, self._drafted(edits)
        changed = drafts.changed()
        if not changed and not drafts.forced and not request.deletes_catalog:
            return self._unchanged(edits, succeeded, rebased_from, drafts)
        if SETTINGS_KEY in changed:
            self._require_held(drafts.lists)
        for key, each in changed.items():
            self._require_fit(key, each.draft)
        skipped, left_out = drafts.skipped, drafts.left_out
        commit, after = commit_of(
            CommitTerms(
                request, edits, changed, skipped, left_out, self._attempt, succeeded, rebased_from
            ),
            state.revision + 1,
            self._batch.next_time_us(),
            state.last,
            self._limits,
        )
        keys = named_keys(edits)
        if request.dry_run:
            return Unchanged(
                {key: living(after.get(key) or state.document(key)) for key in keys},
                state.revision,
                would_change=True,
                succeeded=succeeded,
                changes=commit.changes,
                rebased_from=rebased_from,
                skipped=commit.skipped,
                left_out=commit.left_out,
            )
        if not self._batch.fits(commit.size_bytes):
            return None
        conclude()
        self._batch.record(request, commit, after)
        return Applied(commit, {key: state.document(key) for key in keys})

    def _require_held(self, lists: ListDeclarations) -> None:
        """Have documents that are written with new settings checked by their ``lists``. Raises what
        ``require_held`` raises."""
        state, before = self.state, self._settings.lists
        if not state.deleted and state.revision:  # else there are no other documents
            require_held(self.request, before, lists, state.written_since)
        self._settings = replace(self._settings, lists=lists)

    def _require_fit(self, key: str, draft: Draft) -> None:
        """Raise AboveLimit, SchemaViolation or ItemsCollide if ``key`` can't hold the draft."""
        if draft.content is ABSENT:
            return
        if draft.size_bytes > CERTAINLY_STORABLE_BYTES:
            refuse_oversized(draft, self._batch.rules)
        if draft.action == "attributes" or key in OWN_KEYS:
            return
        if (settings := self._settings) is not NO_SETTINGS:
            document = self.state.document(key)
            before = ABSENT if document is None else document.content
            self.state.spend(settings.require_valid(key, draft.content, draft.size_bytes, before))

    def _unchanged(
        self,
        edits: Sequence[KeyEdit],
        succeeded: bool = True,
        rebased_from: str | None = None,
        drafts: RequestDrafts | None = None,
    ) -> Outcome:
        return Unchanged(
            {key: living(self.state.document(key)) for key in named_keys(edits)},
            self.state.revision,
            succeeded=succeeded,
            rebased_from=rebased_from,
            skipped=drafts.skipped if drafts else (),
            left_out=drafts.left_out if drafts else (),
        )
