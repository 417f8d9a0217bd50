"""The rules of operations that may be sent twice, each broken on purpose: see ``mutations``."""

from __future__ import annotations

from collections.abc import Mapping

import patching
from patching.footprints import _ByAddress

from . import breakages_of_repeatables as breakages
from .mutation import Mutation, mutation
from .plans import repeating_at_a_distance

REPEATING: Mapping[str, Mutation] = {
    "marks-on-now": mutation(
        "a watermark is compared with the number that is there when it is decided",
        "untrue-commit untrue-no-op",
        (patching, "apply_extended", breakages.marks_as_first_met),
        adjust=repeating_at_a_distance,
    ),
    "stamps-of-their-commit": mutation(
        "a stamp tells of the commit that it is in, whichever try made it",
        "untrue-commit",
        (patching, "apply_extended", breakages.stamps_as_first_tried),
        adjust=repeating_at_a_distance,
    ),
    "stamps-of-changes": mutation(
        "a patch stamps only where it changes something else",
        "untrue-commit untrue-no-op",
        (patching, "apply_extended", breakages.stamp_always),
        adjust=repeating_at_a_distance,
    ),
    "append-once": mutation(
        "a text that is in it already is not appended once more",
        "untrue-commit untrue-no-op untrue-refusal",
        (patching, "apply_extended", breakages.append_again),
        adjust=repeating_at_a_distance,
    ),
    "repeatables-meet": mutation(
        "what may be sent twice is rebased only over changes that don't concern it, either",
        "untrue-commit untrue-no-op",
        (_ByAddress, "note_change", breakages.no_places_of_repeatables),
        adjust=repeating_at_a_distance,
    ),
}
