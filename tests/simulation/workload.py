"""What the simulated clients ask for: a seeded choice that mostly concerns the same few keys."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .asks import Ask, Kind, Name
from .model import GONE


@dataclass
class Known:
    """What a client has seen of a key: tokens (the last one newest) and a content."""

    tokens: list[str] = field(default_factory=list)
    content: Any = GONE


class Wishes:
    """One client's wishes. What it has seen may be old: that is the point."""

    def __init__(
        self,
        client: str,
        rng: random.Random,
        catalogs: Sequence[Name],
        keys: Sequence[Name],
        reading: float,
    ) -> None:
        """``reading`` is the share of calls that only read."""
        self._client = client
        self._rng = rng
        self._catalogs = catalogs
        self._keys = keys
        self._reading = reading
        self._count = 0
        self._known: dict[tuple[str, str], Known] = {}
        self._revisions: dict[str, int] = {}

    def seen(self, catalog: str, key: str, token: str | None, content: Any, revision: int) -> None:
        known = self._known.setdefault((catalog, key), Known())
        if token is not None and token not in known.tokens:
            known.tokens.append(token)
        known.content = content
        self._revisions[catalog] = max(revision, self._revisions.get(catalog, 0))

    def next(self) -> Ask:
        self._count += 1
        label = f"{self._client}.{self._count}"
        catalog, key = self._rng.choice(self._catalogs), self._rng.choice(self._keys)
        known = self._known.setdefault((catalog, key), Known())
        if self._rng.random() < self._reading:
            return self._look(catalog, key, label)
        kind, value = self._edit(known, label)
        if_match: tuple[str, ...] | None = None
        create_only = False
        chance = self._rng.random()
        if chance < 0.15 and known.tokens:
            if_match = (known.tokens[-1], self._rng.choice(known.tokens))
        elif chance < 0.18:
            if_match = ("*",)
        elif chance < 0.24:
            create_only = True
        keyed = self._rng.random() < 0.3
        return Ask(
            kind=kind,
            catalog=catalog,
            key=key,
            label=label,
            value=value,
            if_match=if_match,
            create_only=create_only,
            dry_run=self._rng.random() < 0.06,
            idempotency_key=label if keyed else None,
            fingerprint=f"{kind} {value}" if keyed else "",
            wait_s=self._rng.choice((None, None, None, None, None, None, 0.01, 0.1, 0.5)),
        )

    def _look(self, catalog: Name, key: Name, label: str) -> Ask:
        newest = self._revisions.get(catalog, 0)
        kind: Kind = self._rng.choice(("read",) * 6 + ("read_at", "page", "reply"))
        revision = max(0, newest + self._rng.randrange(-6, 2))
        back = f"{self._client}.{max(1, self._count - self._rng.randrange(1, 5))}"
        return Ask(kind, catalog, key, label, revision=revision, idempotency_key=back)

    def _edit(self, known: Known, label: str) -> tuple[Any, Any]:
        content = known.content if isinstance(known.content, dict) else {}
        own = f"/{self._client}"
        number = self._rng.randrange(4)
        fresh = {"log": [], "n": number}
        choices: list[tuple[int, Any, Any]] = [
            (6, "patch", [{"op": "add", "path": "/log/-", "value": label}]),
            (4, "patch", [{"op": "add", "path": own, "value": label}]),
            (2, "patch", [{"op": "replace", "path": own, "value": label}]),
            (1, "patch", [{"op": "remove", "path": own}]),
            (2, "patch", [{"op": "add", "path": "", "value": fresh}]),
            (2, "patch", [{"op": "add", "path": "/n", "value": content.get("n", number)}]),
            (3, "patch", _guarded(content.get("n", number), label)),
            (2, "merge", {self._client: label, "n": number}),
            (1, "merge", {self._client: None}),
            (3, "put", {"log": [label], "n": number}),
            (1, "put", content or fresh),
            (1, "delete", None),
            (1, "patch", [{"op": "remove", "path": ""}]),
        ]
        weights = [weight for weight, _, _ in choices]
        if known.content is GONE and self._rng.random() < 0.5:
            return "patch", [{"op": "add", "path": "", "value": fresh}]
        _, kind, value = self._rng.choices(choices, weights)[0]
        return kind, value


def _guarded(number: int, label: str) -> list[dict[str, Any]]:
    """Counts on if the number is still the one seen; notes who did."""
    return [
        {"op": "test", "path": "/n", "value": number},
        {"op": "add", "path": "/n", "value": (number + 1) % 4},
        {"op": "add", "path": "/log/-", "value": label},
    ]
