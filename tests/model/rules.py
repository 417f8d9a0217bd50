"""The rules of the protocol, each of which can be left out."""

from __future__ import annotations

from collections.abc import Mapping

RULES: Mapping[str, str] = {
    "head-condition": "a move wins only from the head that it was decided on",
    "last-commit": "a move's condition names the revision and the id of the last commit",
    "verdict-with-move": "a move's condition names the last verdict, too",
    "drops-only-written": "a move drops from the tail only what is written out",
    "verdicts-stay": "a move drops only verdicts that are written out",
    "whole-tail": "whoever writes a commit out has written out all below it",
    "documents-first": "documents are written before the commits that changed them",
    "commits-in-order": "commits are written in their order",
    "documents-guard": "a document is written only over an older one",
    "look-again": "what was read before others wrote out is read again",
    "base-named": "a change is replayed only on the document that it was made from",
    "late-guard": "a write-out that takes long reads the head before it sends more",
    "sweep-grace": "history is swept some time after the floor was raised",
    "oldest-first": "history is swept oldest first",
    "floor-written": "the floor rises only to what is written out",
    "floor-last": "a worker that catches up from the log reads the floor last",
    "swept-refused": "what compaction has left of a change isn't replayed",
    "parent-named": "a cached state goes on only by a commit that follows its last one",
    "goes-on": "the cached state of a head that went back is dropped",
    "gives-up": "a write-out that failed reads the head, and gives up what the head doesn't have",
    "fresh-head": "refusals and reads are decided on a head read after the request came",
    "tail-overlay": "a reader of a document lays the tail over it",
    "keys-in-tail": "an idempotency key is looked for in the tail and the head's verdicts",
    "commit-id-lookup": "a move whose answer was lost is looked up by its commit's id",
    "tail-before-log": "the commit's id is looked for in the tail first, then in the log",
    "unknown-is-not-lost": "a worker that can't learn what became of a move decides nothing again",
    "handed-once": "a request that was handed over is decided by nobody else",
}

# Rules of which one stands behind another: it shows where that is left out, too.
BEHIND: Mapping[str, str] = {"base-named": "look-again", "swept-refused": "floor-last"}


def left_out(named: str) -> tuple[str, ...]:
    """The rules that are named, with commas between, and those that they stand behind. Raises
    KeyError."""
    rules = [rule for rule in named.split(",") if rule]
    for rule in rules:
        RULES[rule]
    return (*rules, *(BEHIND[rule] for rule in rules if rule in BEHIND))
