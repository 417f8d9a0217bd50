"""What simulated clients do with operations that may be sent twice, and send again."""

from __future__ import annotations

import random
from typing import Any

from .asks import Action, Name
from .gone import GONE

_Operations = list[dict[str, Any]]
_IDS = ("a", "b", "c")
_STAMPS = ("time", "revision", "author")


class Repeating:
    """The wishes of one client; it remembers what it sent for a document. ``lists``: some of it is
    about the items of lists."""

    def __init__(self, rng: random.Random, *, lists: bool) -> None:
        self._rng = rng
        self._lists = lists
        self._sent: dict[tuple[str, str], Action] = {}

    def action(self, catalog: str, key: Name, content: Any, label: str) -> Action:
        """An edit of the document, which was seen with this content; often one that was sent
        before."""
        rng = self._rng
        before = self._sent.get((catalog, key))
        if before is not None and rng.random() < 0.3:
            return before
        creates = {"create_parents": True} if content is GONE or rng.random() < 0.5 else {}
        operations = []
        if rng.random() < 0.15 and content is not GONE:
            operations.append({"op": "test", "path": "/n", "value": rng.randrange(4)})
        for _ in range(rng.choice((1, 1, 2, 3))):
            operations.append({**self._operation(label), **creates})
        if rng.random() < 0.4:
            operations += self._stamps(creates)
        self._sent[catalog, key] = Action("edit", key, operations)
        return self._sent[catalog, key]

    def _operation(self, label: str) -> dict[str, Any]:
        rng = self._rng
        number, mark, item = rng.randrange(4), rng.choice("xyz"), f"/items/{rng.choice(_IDS)}"
        choices: list[tuple[int, dict[str, Any]]] = [
            (3, _op("max", "/high", number)),
            (2, _op("max", "/n", number)),
            (2, _op("max", "/box/a", number)),
            (3, _op("min", "/low", -number)),
            (1, _op("min", "/box/b", number)),
            (1, _op("max", "/text", number)),
            (3, _op("set", f"/{label.partition('.')[0]}", label)),
            (2, _op("set", "/n", number)),
            (2, _op("set", "/box/c/d", number)),
            (1, _op("set", "/box", {"a": number})),
            (1, _op("set", "/log/0", label)),
            (1, _op("set", "", {"log": [], "n": number})),
            (2, _op("append_text", "/text", label)),
            (3, {**_op("append_text", "/text", mark), "once": True}),
            (1, {**_op("append_text", "/text", mark), "max_length": 8}),
            (1, {**_op("append_text", "/tag", ""), "once": True}),
        ]
        if self._lists:
            choices += [
                (5, _op("max", f"{item}/n", number)),
                (4, _op("set", item, {"n": number} if rng.random() < 0.5 else {"by": label})),
                (3, _op("set", f"{item}/by", label)),
                (1, _op("set", f"{item}/id", rng.choice(_IDS))),
                (2, _op("min", f"{item}/low", -number)),
                (2, {**_op("append_text", f"{item}/note", mark), "once": True}),
            ]
        return _chosen(rng, choices)

    def _stamps(self, creates: dict[str, Any]) -> _Operations:
        rng = self._rng
        above = rng.choice(("", "/stamps", "/items/a" if self._lists else "/box"))
        told = rng.sample(_STAMPS, rng.choice((1, 1, 2, 3)))
        return [{**_op("stamp", f"{above}/{each}", each), **creates} for each in told]


def _op(op: str, path: str, value: Any) -> dict[str, Any]:
    return {"op": op, "path": path, "value": value}


def _chosen(rng: random.Random, choices: list[tuple[int, dict[str, Any]]]) -> dict[str, Any]:
    return rng.choices([each for _, each in choices], [weight for weight, _ in choices])[0]
