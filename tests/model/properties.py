"""What holds in every state, whoever does what when.

The first ones are about the store alone, so that ``tests.model.conformance`` holds the gateway's
own code to them.
"""

from __future__ import annotations

from typing import Any

from .values import NOTHING, Refused, State, Wrong, name_of, replayed_all, truth


def check(state: State) -> None:
    """Raises Wrong."""
    check_decided(state)
    check_log(state)
    check_documents(state)
    check_written_out(state)
    check_history(state)


def check_decided(state: State) -> None:
    """Commits are decided on the state that they change, each once, and so are keys."""
    ids = [commit.id for commit in state.made]
    if len(set(ids)) < len(ids):
        raise Wrong(f"#{state.made[-1].id} is done twice")
    keys = [each.key for each in (*state.made, *state.ruled) if each.key]
    if len(set(keys)) < len(keys):
        raise Wrong("a key has decided twice")
    last = state.made[-1]
    if len(state.made) > 1 and last.parent != state.made[-2].id:
        raise Wrong(f"commit {last.revision} was decided on another history")
    if last.revision != len(state.made) - 1:
        raise Wrong(f"revision {last.revision} comes after {len(state.made) - 2}")
    before = truth(state.made[:-1])
    for change in last.changes:
        document = _at(before, change.key)
        if change.act == "patch" and (not document or document.id != change.base):
            raise Wrong(f"commit {last.revision} was decided on another document")
    if state.head.revision != last.revision or state.head.last != last.id:
        raise Wrong("the head isn't at the last commit")


def check_log(state: State) -> None:
    """What isn't in the head is in the log, whole and in order; verdicts likewise."""
    head = state.head
    tail = state.made[head.written + 1 :]
    if head.tail != tail:
        raise Wrong("the tail isn't what comes after what is written out")
    if head.written >= len(state.log):
        raise Wrong(f"commit {head.written} has left the tail and isn't written out")
    for revision, commit in enumerate(state.log):
        if revision > head.floor and not commit:
            raise Wrong(f"commit {revision} isn't there, and a later one is")
        if revision > head.revision:
            raise Wrong(f"commit {revision} is in the log, and the head is at {head.revision}")
        if revision > head.floor and commit != state.made[revision]:
            raise Wrong(f"commit {revision} in the log is another one")
    known = {each.id for each in (*head.verdicts, *state.kept)}
    if any(each.id not in known for each in state.ruled):
        raise Wrong("a verdict is lost")


def check_documents(state: State) -> None:
    """Each is what its commit left; one whose commit is in the log is there; none comes back."""
    written = len(state.log) - 1
    there = truth(state.made[: written + 1])
    for key, document in enumerate(state.documents):
        name = name_of(key)
        if document and document.revision <= state.gone[key]:
            raise Wrong(f"{name} comes back, after its deletion was compacted")
        if document and document.revision >= len(state.made):
            raise Wrong(f"{name} is of a revision that doesn't exist")
        if document and document != _at(truth(state.made[: document.revision + 1]), key):
            raise Wrong(f"{name} at {document.revision} isn't what its commits made")
        wanted = _at(there, key)
        behind = document.revision if document else state.gone[key]
        if wanted and behind < wanted.revision:
            raise Wrong(f"commit {wanted.revision} is in the log, and {name} isn't written")


def check_written_out(state: State) -> None:
    """A fresh worker can write the tail out, and then the documents are what the log gives."""
    now = truth(state.made)
    for key, stored in enumerate(state.documents):
        try:
            document = replayed_all(stored, key, state.head.tail, lambda _: True)
        except Refused as error:
            raise Wrong(f"the tail can't be written out: {error}") from None
        wanted = _at(now, key)
        purged = not document and wanted and wanted.revision <= state.gone[key]
        if document != wanted and not purged:
            raise Wrong(f"{name_of(key)}, when all is written out, isn't what the log gives")


def check_history(state: State) -> None:
    """At and above the floor each revision can be rebuilt from the log."""
    for revision in range(state.head.floor, len(state.log)):
        for key, document in enumerate(truth(state.made[: revision + 1])):
            rebuilt = _rebuilt(state, key, revision)
            content = document.made if document else ()
            if (rebuilt.made if rebuilt else ()) != content:
                raise Wrong(f"{name_of(key)} can't be told as of {revision}, above the floor")


def _rebuilt(state: State, key: int, revision: int) -> Any:
    chain = []
    for commit in reversed(state.log[: revision + 1]):
        change = next((c for c in (commit[2] if commit else ()) if c.key == key), None)
        if change is None or change.act == "reduced":
            continue
        chain.append(commit)
        if change.is_whole:
            break
    else:
        if chain:
            raise Wrong(f"{name_of(key)} can't be told as of {revision}, above the floor")
    document = NOTHING
    for commit in reversed(chain):
        document = replayed_all(document, key, [commit], lambda rule: rule != "base-named")
    return document


def _at(documents: tuple[Any, ...], key: int) -> Any:
    return documents[key] if key < len(documents) else NOTHING
