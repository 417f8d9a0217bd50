"""Following a catalog by hand: what its commits add up to."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import jsonpatch

Commit = Mapping[str, Any]


def applied(documents: Mapping[str, Any], commits: Iterable[Commit]) -> dict[str, Any]:
    """The documents by key that `documents` become by these commits, as told by the gateway.

    By an implementation of RFC 6902 that isn't the gateway's own.
    """
    state = dict(documents)
    for commit in commits:
        for change in commit["changes"]:
            key = change["key"]
            if key is None:  # the settings are no document
                continue
            if change["action"] == "delete":
                del state[key]
            else:
                # A patch that begins with a whole value needs no document before it.
                before = copy.deepcopy(state.get(key))
                state[key] = jsonpatch.apply_patch(before, change["patch"])
    return state
