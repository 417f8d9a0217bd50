"""Writing out a batch: documents first, commits last, and only then does anybody act on it.

The head alone decides what is committed; writing out copies its last batch to where it is read
and kept. It may be done twice, or by two workers at once: each document is guarded by "the stored
one is older", each commit is inserted once, so the order doesn't matter and nothing is undone. A
commit's presence proves that its batch's documents are all written. What if it is done an hour
late, when history was compacted meanwhile: see ``late``.
"""

from collections.abc import Mapping, Sequence

from gateway.commits.advance import advance_all
from gateway.commits.late import GuardedWrites, Moment, Writes
from gateway.commits.runtime import Runtime
from gateway.model import Commit, Document
from gateway.store.contract import Store, Unreachable


def write_out(
    store: Writes,
    batches: Mapping[str, Sequence[Commit]],
    documents: Mapping[str, Sequence[Document]],
) -> None:
    """Write out batches of this worker, by catalog, with the documents they leave."""
    store.write_documents(documents)
    store.write_commits([commit for batch in batches.values() for commit in batch])


def write_out_for(
    store: Store, runtime: Runtime, catalog: str, batch: Sequence[Commit], since: Moment
) -> None:
    """Write out a batch that another worker put into the head and did not finish.

    It was the head's last one at some time after ``since``. The batch says what changed, the
    stored documents what it changed: each of them is either as it was before the whole batch, or
    already as the batch (or something later) left it.
    """
    keys = {change.key for commit in batch for change in commit.changes}
    stored = store.documents({catalog: keys})
    changed = []
    for key in sorted(keys):
        before = stored.get((catalog, key))
        after = advance_all(before, key, batch)
        if after is not None and after is not before:
            changed.append(after)
    writes = GuardedWrites(store, runtime, {catalog: batch}, since, alone_s=0.0)
    try:
        write_out(writes, {catalog: batch}, {catalog: changed})
        writes.finish()
    except Unreachable:
        writes.give_up()
        raise
