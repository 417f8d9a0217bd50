"""What a catalog does, told once more and in the simplest way: one request after the other.

Shares nothing with the gateway but the vocabulary. Values are copied whole; nothing is cached,
nothing runs at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from .asks import SETTINGS, Action, Ask, Compare, Name, Tag, Undone
from .gone import GONE
from .misfit import Misfit
from .model_edits import After, Drafts, RefusedEdit, state_of
from .model_lists import Lists, declared, is_pinned, wrong
from .model_owners import Owners, Place
from .model_patches import operated_by_key
from .model_rebase import independent
from .model_repeatables import SomeTime, Stamps, written_time
from .model_reverts import ALL, Forced


@dataclass(frozen=True)
class Doc:
    """A document or (GONE) its tombstone. ``patches``: changes since the last whole value."""

    content: Any
    revision: int
    create_revision: int
    commit_id: str
    time_us: int
    patches: int
    attributes: dict[str, Any] | None = None
    owners: Owners = field(default_factory=dict)

    @property
    def token(self) -> str:
        return f"{self.revision:x}-{self.commit_id[:8]}"


@dataclass(frozen=True)
class State:
    """A catalog at ``revision``. ``exists``: it was written, and not deleted since.

    ``fingerprints``: of the idempotency keys that were used. ``as_of``: the document as an earlier
    revision had it. ``next_us``: the time of the commit that is made of it, as far as there is one.
    """

    revision: int
    docs: Mapping[str, Doc]
    fingerprints: Mapping[str, str]
    exists: bool
    as_of: Callable[[int, str], Doc | None]
    next_us: int | None = None

    def live(self, key: str) -> Doc | None:
        return live(self.docs.get(key))

    @property
    def lists(self) -> Lists:
        settings = self.live(SETTINGS)
        return declared(None if settings is None else settings.content)


@dataclass(frozen=True)
class Verdict:
    """``would`` is a dry run's answer; ``code`` is a refusal's. ``named``: the keys answered of.

    ``changed``: what becomes of the documents that aren't as they were. ``rebased_from``: any one
    of these tokens will do. ``skipped`` is left to others; ``places`` are others' where the refusal
    is because of these.
    """

    kind: Literal["applied", "unchanged", "would", "refused", "replay"]
    changed: Mapping[str, After] = field(default_factory=dict)
    code: str = ""
    named: tuple[Name, ...] = ()
    succeeded: bool = True
    rebased_from: frozenset[str] = frozenset()
    left_out: tuple[int, ...] = ()
    skipped: frozenset[Place] = frozenset()
    places: frozenset[Place] = frozenset()


def live(doc: Doc | None) -> Doc | None:
    return None if doc is None or doc.content is GONE else doc


def judge(ask: Ask, state: State, *, rebasing: bool = True) -> Verdict:
    """What becomes of a write in ``state``. ``rebasing``: the past can be told."""
    if ask.idempotency_key is not None and ask.idempotency_key in state.fingerprints:
        if state.fingerprints[ask.idempotency_key] == ask.fingerprint:
            return Verdict("replay")
        return Verdict("refused", code="idempotency_key_reused")
    try:
        return _judged(ask, state, rebasing)
    except RefusedEdit as refused:
        return Verdict("refused", code=refused.code, places=refused.places)


def _judged(ask: Ask, state: State, rebasing: bool) -> Verdict:
    if ask.deletes_catalog:
        return _deletion(ask, state)
    settings = state.live(SETTINGS)
    if settings is not None and settings.content.get("require_precondition"):
        _require_precondition(ask)
    _require(ask.resource_version in (None, state.revision))
    rebased_from: frozenset[str] = frozenset()
    if ask.if_match is not None and not any(_matches(tag, ask.key, state) for tag in ask.if_match):
        rebased_from = frozenset(_bases(ask, state) if ask.rebase and rebasing else ())
        _require(bool(rebased_from))
    _require(not (ask.create_only and state.live(ask.key)))
    if ask.undone is not None:
        ask = replace(ask, actions=tuple(_taken_back(ask.undone, state)))
    failed = [compare for compare in ask.compare if not _is_true(compare, state)]
    if not failed:
        return _performed(ask, ask.actions, state, rebased_from=rebased_from)
    held = _held(ask, failed, state)
    if held is not None:
        named = _named(ask.actions)
        return Verdict("unchanged", named=named, left_out=held.left_out, skipped=held.skipped)
    _require(ask.otherwise is not None)
    return _performed(ask, ask.otherwise or (), state, succeeded=False)


def _deletion(ask: Ask, state: State) -> Verdict:
    if not state.exists:
        _require(ask.resource_version is None)
        if ask.idempotency_key is None:
            raise RefusedEdit("catalog_not_found")
        return Verdict("unchanged")
    _require(ask.resource_version in (None, state.revision))
    gone = {key: After(GONE, None) for key in state.docs if state.live(key)}
    return Verdict("applied", gone, named=tuple(Name(key) for key in gone))


def _require(holds: bool) -> None:
    if not holds:
        raise RefusedEdit("precondition_failed")


def _require_precondition(ask: Ask) -> None:
    conditions = (ask.if_match, ask.resource_version, ask.compare or None)
    if ask.create_only or any(condition is not None for condition in conditions):
        return
    if not all(map(_is_guarded, ask.actions)):
        raise RefusedEdit("precondition_required")


def _is_guarded(action: Action) -> bool:
    """It is about nothing of a client's, a patch with a test or an action with a condition."""
    if action.when:
        return True
    if action.deed.endswith("-range"):
        return False
    if action.deed in ("get", "touch", "revert") or action.key == SETTINGS:
        return True
    patches = action.deed in ("patch", "edit", "attributes-patch")
    return patches and any(operation["op"] == "test" for operation in action.value)


def _matches(tag: Tag, key: str, state: State) -> bool:
    if isinstance(tag, int):
        return state.revision == tag
    if isinstance(tag, tuple):
        return all(_token(state, each) == token for each, token in tag)
    return state.live(key) is not None and tag in ("*", _token(state, key))


def _token(state: State, key: str) -> str | None:
    doc = state.live(key)
    return None if doc is None else doc.token


def _is_true(compare: Compare, state: State) -> bool:
    if compare.what == "revision":
        return bool(state.revision == compare.value)
    if compare.what.startswith("range-"):
        return _is_true_of_range(compare, state)
    doc = state.live(compare.key)
    if compare.what == "absent":
        return doc is None
    if doc is None:
        return False
    if compare.what == "token":
        return bool(doc.token == compare.value)
    if compare.what == "unchanged":
        return bool(doc.revision <= compare.value <= state.revision)
    if compare.what == "equals":
        return bool(doc.content == compare.value)
    try:
        operated_by_key(doc.content, compare.value, state.lists)
    except Misfit:
        return False
    return True


def _is_true_of_range(compare: Compare, state: State) -> bool:
    docs = [state.docs[key] for key in _under(compare.key, state)]
    if compare.what == "range-unchanged":
        newest = max((doc.revision for doc in docs), default=0)
        return bool(newest <= compare.value <= state.revision)
    count = sum(live(doc) is not None for doc in docs)
    if compare.what == "range-absent":
        return count == 0
    relation, number = compare.value
    return bool(
        (relation == "less" and count < number)
        or (relation == "equal" and count == number)
        or (relation == "greater" and count > number)
    )


def _under(prefix: str, state: State) -> list[str]:
    """The keys of the documents and tombstones of a range."""
    return [key for key in state.docs if key != SETTINGS and key.startswith(prefix)]


def _held(ask: Ask, failed: Sequence[Compare], state: State) -> Drafts | None:
    """A content that a compare doesn't want there any more is there because this was done."""
    try:
        drafts = _drafted(ask, ask.actions, state)
    except RefusedEdit:
        return None
    done = [each for index, each in enumerate(ask.actions) if index not in drafts.left_out]
    written = {action.key for action in done if action.deed not in ("get", "touch")}
    written |= {k for each in done if each.deed == "replace-range" for k in each.value[1]}
    for compare in failed:
        if compare.what == "range-absent":
            if not {key for key in _under(compare.key, state) if state.live(key)} <= written:
                return None
        elif compare.what not in ("absent", "equals", "tests") or compare.key not in written:
            return None
    return None if drafts.forced or drafts.changed() else drafts


def _drafted(ask: Ask, actions: Sequence[Action], state: State) -> Drafts:
    found = {key: _found(doc) for key, doc in state.docs.items()}
    otherwise = actions is ask.otherwise
    drafts = Drafts(
        found,
        Stamps(_next_time(state), state.revision + 1, ask.label),
        state.lists,
        lambda action: is_pinned(ask, action.key, action.when, otherwise=otherwise),
    )
    for index, action in enumerate(actions):
        if action.when and not _all_true(action.when, drafts, state):
            drafts.left_out += (index,)
        else:
            drafts.perform(action)
    if drafts.disputed:
        raise RefusedEdit("changed_since", drafts.disputed)
    return drafts


def _next_time(state: State) -> str | SomeTime:
    if state.next_us is not None:
        return written_time(state.next_us)
    return SomeTime(max((doc.time_us for doc in state.docs.values()), default=0))


def _found(doc: Doc) -> After:
    return After(doc.content, doc.attributes, owners=doc.owners, owned=doc.content)


def _all_true(compares: Sequence[Compare], drafts: Drafts, state: State) -> bool:
    """Of what ``drafts`` have left: what they changed has a revision to come, and no token."""
    after = state.revision + 1
    changed = {
        key: Doc(each.content, after, after, "?", 0, 0, each.attributes)
        for key, each in drafts.changed().items()
    }
    so_far = replace(state, docs={**state.docs, **changed})  # no request changes settings and more
    return all(_is_true(each, so_far) for each in compares)


def _performed(
    ask: Ask,
    actions: Sequence[Action],
    state: State,
    *,
    succeeded: bool = True,
    rebased_from: frozenset[str] = frozenset(),
) -> Verdict:
    drafts = _drafted(ask, actions, state)
    changed = drafts.changed()
    kind: Literal["applied", "unchanged", "would"] = "would" if ask.dry_run else "applied"
    if not changed and not drafts.forced:
        kind = "unchanged"
    for key, after in changed.items():
        _require_valid(ask, key, after, state)
    return Verdict(
        kind,
        changed,
        named=_named(actions),
        succeeded=succeeded,
        rebased_from=rebased_from,
        left_out=drafts.left_out,
        skipped=drafts.skipped,
    )


def _named(actions: Sequence[Action]) -> tuple[Name, ...]:
    moved_to = (Name(action.value) for action in actions if action.deed == "move")
    return tuple(dict.fromkeys((*(action.key for action in actions), *moved_to)))


def _require_valid(ask: Ask, key: str, after: After, state: State) -> None:
    """The one schema that the simulated settings have: an upper bound on the member n."""
    if after.content is GONE:
        return
    if key == SETTINGS:
        _require_settings(ask, after, state)
    settings = state.live(SETTINGS)
    if settings is None or key == SETTINGS or after.kept:
        return
    most = settings.content.get("schemas", {}).get("*", {}).get("properties", {}).get("n", {})
    number = after.content.get("n", 0) if isinstance(after.content, dict) else 0
    if number > most.get("maximum", 1 << 62):
        raise RefusedEdit("schema_violation")
    if wrong(after.content, state.lists):
        raise RefusedEdit("list_violation")


def _require_settings(ask: Ask, after: After, state: State) -> None:
    """Lists are declared by setting the settings alone, where all documents have them right."""
    if not after.content.keys() <= {"schemas", "require_precondition", "retention", "arrays"}:
        raise RefusedEdit("invalid_settings")
    lists = declared(after.content)
    if lists <= state.lists or state.revision == 0:
        return
    if not ask.sets_up:
        raise RefusedEdit("invalid_settings")
    live_ones = [state.live(key) for key in state.docs if key != SETTINGS]
    if any(doc is not None and wrong(doc.content, lists) for doc in live_ones):
        raise RefusedEdit("documents_break_settings")


def _bases(ask: Ask, state: State) -> Iterator[str]:
    """The tokens from which nothing has changed that the first action reads or writes."""
    action, now = ask.actions[0], state.live(ask.key)
    if now is None or action.deed not in ("patch", "edit", "merge", "attributes-patch", "apply"):
        return
    for tag in ask.if_match or ():
        if not isinstance(tag, str) or tag == "*":
            continue
        base = live(state.as_of(int(tag.partition("-")[0], 16), ask.key))
        if base is None or base.token != tag or base.create_revision != now.create_revision:
            continue
        if action.deed == "attributes-patch":
            found = independent(action, base.attributes or {}, now.attributes or {})
        else:
            owners = base.owners, now.owners
            found = independent(action, base.content, now.content, state.lists, *owners)
        if found:
            yield tag


def _taken_back(undone: Undone, state: State) -> Iterator[Action]:
    """What a revert does, document by document."""
    for key in state.docs:
        if not key.startswith(undone.prefix):
            continue
        if undone.revisions:
            spans = _spans(undone, key, state)
        else:
            assert undone.since is not None
            spans = [] if key == SETTINGS else [(undone.since, undone.to)]
        found = [tuple(_state_at(revision, key, state) for revision in span) for span in spans]
        if undone.revisions or any(base != target for base, target in found):
            undos = tuple(found)
            if undos:
                forced = _forced(undone, key)
                yield Action("undo", Name(key), (undos, undone.conflict, forced))


def _forced(undone: Undone, key: str) -> Forced:
    if undone.conflict == "force":
        return ALL
    content, attributes = (
        frozenset(
            tuple(each.pointer.split("/")[1:])
            for each in undone.forced
            if each.key == key and each.of_attributes == of_attributes
        )
        for of_attributes in (False, True)
    )
    return Forced(content, attributes)


def _spans(undone: Undone, key: str, state: State) -> list[tuple[int, int]]:
    """The changes to undo, the newest first: those in a row as one."""
    spans: list[tuple[int, int]] = []
    before: Doc | None = None
    for revision in sorted(set(undone.revisions), reverse=True):
        made = state.as_of(revision, key)
        if made is None or made.revision != revision:
            continue
        base = revision
        if before is not None and before.revision == revision:
            base, _ = spans.pop()
        before = state.as_of(revision - 1, key)
        spans.append((base, revision - 1))
    return spans


def _state_at(revision: int, key: str, state: State) -> tuple[Any, Any, Owners]:
    doc = state.as_of(revision, key)
    return state_of(None if doc is None else _found(doc))
