"""The rules of owners and reverts, each broken on purpose: see ``mutations``."""

from __future__ import annotations

from collections.abc import Mapping

import patching.ownership
from gateway.decide import performing
from gateway.decide.decide import BatchDecider, RequestDecision
from gateway.state import replay

from . import breakages_of_owners as breakages
from .mutation import Mutation, mutation
from .plan import owning
from .plans import owning_at_a_distance, reverting

OWNING: Mapping[str, Mutation] = {
    "owners-outlast-writes": mutation(
        "a plain write leaves the owners of what it doesn't change",
        "owners",
        (performing, "with_owners_taken_over", breakages.owned_by_nobody),
        adjust=owning,
    ),
    "writes-take-over": mutation(
        "what a plain write changes is its author's",
        "owners",
        (performing, "with_owners_taken_over", breakages.kept_as_they_were),
        adjust=owning,
    ),
    "owners-overlay": mutation(
        "a decision lays the owners in the tail over what is stored, too",
        "owners untrue-commit",
        (replay, "_owners_after", breakages.owners_before),
        adjust=owning,
    ),
    "owners-of-now": mutation(
        "a rebased apply meets the owners that there are, not those of its token",
        "owners untrue-commit untrue-no-op",
        (RequestDecision, "_edit", breakages.edit_with_owners_of_the_base),
        adjust=owning_at_a_distance,
    ),
    "owners-anew": mutation(
        "a decision that is made again looks at the owners again",
        "owners untrue-commit",
        (BatchDecider, "one", breakages.decide_on_the_first_owners),
        adjust=owning_at_a_distance,
    ),
    "let-go-of-own": mutation(
        "letting go removes nothing that another owns, too",
        "owners",
        (patching.ownership, "let_go", breakages.let_all_go),
        adjust=owning,
    ),
    "let-go-whole": mutation(
        "letting go removes what nobody else owns",
        "owners",
        (patching.ownership, "let_go", breakages.let_nothing_go),
        adjust=owning,
    ),
    "prune-nobodys": mutation(
        "an empty document is pruned only where nobody owns it",
        "owners untrue-commit untrue-no-op",
        (performing, "owning", breakages.prune_what_is_empty),
        adjust=owning_at_a_distance,
    ),
    "force-where-asked": mutation(
        "nothing of another's changes unless it is forced",
        "owners",
        (performing, "owning", breakages.force_always),
        adjust=owning,
    ),
    "applied-once": mutation(
        "what is applied again changes nothing",
        "owners",
        (performing, "owning", breakages.own_since_now),
        adjust=owning,
    ),
    "give-back-own": mutation(
        "giving back takes nothing from managers",
        "owners untrue-commit untrue-no-op",
        (performing, "given_back", breakages.give_all_back),
        adjust=owning,
    ),
    "reverts-on-now": mutation(
        "a revert is done to the document as it is, whatever it read",
        "untrue-commit",
        (performing, "reverted", breakages.revert_what_was_read),
        adjust=reverting,
    ),
    "reverts-dispute": mutation(
        "a revert is refused where what it would undo was changed since",
        "untrue-commit untrue-no-op",
        (performing, "reverted", breakages.dispute_nothing),
        adjust=reverting,
    ),
    "reverts-give-back": mutation(
        "a change that is undone gives back what it took over",
        "owners untrue-commit untrue-no-op",
        (performing, "reverted", breakages.give_nothing_back),
        adjust=reverting,
    ),
}
