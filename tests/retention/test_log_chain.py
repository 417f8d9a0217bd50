"""What is wrong with a log, between its floor and the head, whoever looks at it."""

from __future__ import annotations

import pytest

from gateway.model import Head
from gateway.retention.verification import LogChain
from gateway.store.contract import LoggedCommit


def logged(revision: int, parent: str | None = None) -> LoggedCommit:
    return LoggedCommit(
        revision, f"id{revision}", f"id{revision - 1}" if parent is None else parent
    )


FORKED = "commit 5 doesn't follow the one before it"
WHOLE = [logged(revision) for revision in range(1, 7)]


@pytest.mark.parametrize(
    ("commits", "last", "faults"),
    [
        (WHOLE, "id6", []),
        (WHOLE, "", []),
        (WHOLE[2:], "id6", []),
        ([WHOLE[0], *WHOLE[2:]], "id6", []),  # below the floor, compaction leaves what is needed
        ([*WHOLE[:4], logged(5, ""), WHOLE[5]], "id6", []),  # as an earlier gateway made it
        (WHOLE[3:], "id6", ["the log has no commit 3"]),
        ([*WHOLE[:3], WHOLE[5]], "id6", ["the log has no commit 4 to 5"]),
        ([*WHOLE[:4], logged(5, "x"), WHOLE[5]], "id6", [FORKED]),
        (WHOLE[:5], "id6", ["the log has no commit 6"]),
        (WHOLE[:5], "id5", ["the log has no commit 6"]),
        ([], "", ["the log has no commit 3 to 6"]),
        (WHOLE, "x", ["the head's last commit isn't commit 6 of the log"]),
    ],
)  # fmt: skip
def test_each_fault_is_found(commits: list[LoggedCommit], last: str, faults: list[str]) -> None:
    chain = LogChain(Head("c", revision=6, floor=3, last=last))
    found = [chain.fault_before(each) for each in commits] + [chain.fault_at_end()]
    assert [each for each in found if each is not None] == faults
