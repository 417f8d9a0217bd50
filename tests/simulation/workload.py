"""What the simulated clients ask for: a seeded choice that mostly concerns the same few keys."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from . import workload_lists as lists
from .asks import SETTINGS, Action, Ask, Compare, Kind, Name, Tag, digest, write
from .gone import GONE
from .workload_owners import Managing
from .workload_repeatables import Repeating

_LOOKS: tuple[Kind, ...] = (
    *("read", "read", "read", "read", "read", "read", "read", "read", "read-at", "read-then"),
    *("page", "reply", "list", "list", "list", "several", "several", "export", "revision-at"),
)


@dataclass(frozen=True)
class Tastes:
    """How often clients ask for what. ``reading``: the share of calls that only read.

    What isn't in the representation is in no plan that a seed chooses: others are drawn from it.
    """

    reading: float
    transactions: float
    settings: float
    deletions: float  # of whole catalogs
    retention: float = 0.0  # pins and compactions
    ranges: float = 0.0  # among what transactions compare
    owners: float = field(default=0.0, repr=False)  # applies, and letting go, among edits
    reverts: float = field(default=0.0, repr=False)
    lists: float = field(default=0.0, repr=False)  # edits of items of lists; settings declare these
    repeatables: float = field(default=0.0, repr=False)  # operations that may be sent twice


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
        tastes: Tastes,
        now_us: Callable[[], int],
    ) -> None:
        """``now_us`` is the true time."""
        self._client = client
        self._rng = rng
        self._catalogs = catalogs
        self._keys = keys
        self._tastes = tastes
        self._now_us = now_us
        self._count = 0
        self._known: dict[tuple[str, str], Known] = {}
        self._revisions: dict[str, int] = {}
        self._times_us: dict[str, list[int]] = {}
        self._left_over: list[Ask] = []
        self._managing = Managing(rng, lists=tastes.lists > 0)
        self._repeating = Repeating(rng, lists=tastes.lists > 0)
        self._declares = bool(tastes.lists)
        self._pins: dict[str, list[tuple[str, int]]] = {}

    def seen(self, catalog: str, key: str, token: str | None, content: Any, revision: int) -> None:
        known = self._known.setdefault((catalog, key), Known())
        if token is not None and token not in known.tokens:
            known.tokens.append(token)
        known.content = content
        self._revisions[catalog] = max(revision, self._revisions.get(catalog, 0))

    def remember(self, catalog: str, time_us: int) -> None:
        """Something was committed at that time."""
        self._times_us.setdefault(catalog, []).append(time_us)

    def pinned(self, catalog: str, pin: str, revision: int) -> None:
        self._pins.setdefault(catalog, []).append((pin, revision))

    def left_over(self, ask: Ask, revision: int, after: str) -> None:
        """A page was not the last one."""
        self._left_over.append(replace(ask, revision=revision, after=after))

    def next(self) -> Ask:
        label = self._label()
        if self._left_over and self._happens(0.5):
            return replace(self._left_over.pop(), label=label)
        catalog, key = self._rng.choice(self._catalogs), self._rng.choice(self._keys)
        if self._happens(self._tastes.retention):
            return self._keep(catalog, key, label)
        if self._happens(self._tastes.reading):
            return self._look(catalog, key, label)
        return self._write(catalog, key, label)

    def several(self) -> list[Ask]:
        """Writes that are sent together."""
        asks = []
        for _ in range(self._rng.randrange(2, 6)):
            catalog, key = self._rng.choice(self._catalogs), self._rng.choice(self._keys)
            ask = self._write(catalog, key, self._label())
            declares = self._tastes.lists and ask.sets_up  # nothing that can be done with others
            if not (ask.deletes_catalog or ask.undone or declares):
                asks.append(ask)
        return asks or [self._single(self._catalogs[0], self._keys[0], self._label())]

    def _label(self) -> str:
        self._count += 1
        return f"{self._client}.{self._count}"

    def _happens(self, probability: float) -> bool:
        return self._rng.random() < probability

    def _of(self, catalog: str, key: str) -> Known:
        return self._known.setdefault((catalog, key), Known())

    def _write(self, catalog: Name, key: Name, label: str) -> Ask:
        if self._tastes.reverts and self._happens(self._tastes.reverts):
            ask = write(label, catalog, self._managing.revert(self._revision(catalog), key))
        elif self._tastes.lists and self._happens(0.4 if self._declares else 0.04):
            self._declares = False
            ask = write(label, catalog, lists.settings(self._rng))
        elif self._happens(self._tastes.transactions):
            ask = self._transaction(catalog, label)
        elif self._happens(self._tastes.settings):
            ask = write(label, catalog, self._settings())
        elif self._happens(self._tastes.deletions):
            ask = Ask("delete-catalog", catalog, SETTINGS, label)
            if self._happens(0.3):
                ask = replace(ask, resource_version=self._revision(catalog))
        else:
            ask = self._single(catalog, key, label)
        waits = (None, None, None, None, None, None, 0.01, 0.1, 0.5)
        ask = replace(ask, wait_s=self._rng.choice(waits))
        if self._happens(0.06) and not ask.deletes_catalog:
            ask = replace(ask, dry_run=True)
        if self._happens(0.3):
            ask = replace(ask, idempotency_key=label, fingerprint=digest(ask))
        return ask

    def _revision(self, catalog: str) -> int:
        """Where the catalog is, as far as this client knows."""
        return max(0, self._revisions.get(catalog, 0) + self._rng.choice((0, 0, 0, 0, -1, 1)))

    def _settings(self) -> Action:
        most = {"schemas": {"*": {"properties": {"n": {"maximum": self._rng.randrange(1, 3)}}}}}
        values: tuple[Any, ...] = (
            {"retention": {"commits": self._rng.randrange(1, 6)}},
            {"require_precondition": True},
            most,
            most,
        )
        if self._happens(0.3):
            return Action("delete", SETTINGS)
        return Action("put", SETTINGS, self._rng.choice(values))

    def _single(self, catalog: Name, key: Name, label: str) -> Ask:
        known = self._of(catalog, key)
        ask = write(label, catalog, self._action(catalog, key, label))
        chance = self._rng.random()
        is_dated = chance < 0.15 or (self._tastes.owners > 0 and chance > 0.8)
        if is_dated and known.tokens:
            tokens = (known.tokens[-1], self._rng.choice(known.tokens))
            return replace(
                ask, if_match=tokens[self._rng.randrange(2) :], rebase=self._happens(0.6)
            )
        if chance < 0.18:
            return replace(ask, if_match=("*",))
        if chance < 0.24:
            return replace(ask, create_only=True)
        if chance < 0.29:
            return replace(ask, resource_version=self._revision(catalog))
        if chance < 0.34:
            return replace(ask, if_match=(self._composite(catalog),))
        if chance < 0.36:
            return replace(ask, if_match=(self._revision(catalog),))
        return ask

    def _composite(self, catalog: Name) -> Tag:
        keys = self._rng.sample(self._keys, self._rng.randrange(1, len(self._keys) + 1))
        tokens: list[tuple[Name, str | None]] = []
        for key in keys:
            known = self._of(catalog, key)
            gone = known.content is GONE or not known.tokens
            tokens.append((key, None if gone else known.tokens[-1]))
        return tuple(tokens)

    def _transaction(self, catalog: Name, label: str) -> Ask:
        actions = self._actions(catalog, label)
        compare = tuple(self._compare(catalog) for _ in range(self._rng.choice((0, 1, 1, 2))))
        if self._happens(0.25):  # one that was done already if it is done again
            key, number = self._rng.choice(self._keys), self._rng.randrange(4)
            compare = (Compare("tests", key, [_test(number)]),)
            actions = (Action("patch", key, [_count((number + 1) % 4)]), *actions[:1])
        return write(
            label,
            catalog,
            *actions,
            compare=compare,
            otherwise=self._actions(catalog, label) if compare and self._happens(0.4) else None,
        )

    def _actions(self, catalog: Name, label: str) -> tuple[Action, ...]:
        keys = (self._rng.choice(self._keys) for _ in range(self._rng.randrange(1, 5)))
        if not self._tastes.ranges:
            return tuple(self._action(catalog, key, label) for key in keys)
        return tuple(self._range_action(catalog, key, label) for key in keys)

    def _range_action(self, catalog: Name, key: Name, label: str) -> Action:
        """One that is about a range, or has a condition of its own, or neither."""
        action = self._action(catalog, key, label)
        if self._happens(0.25):
            prefix = Name(key[: self._rng.choice((0, 1, 2))])
            action = Action("delete-range", SETTINGS, prefix)
            if self._happens(0.6):
                kept = self._rng.sample(self._keys, self._rng.randrange(len(self._keys) + 1))
                sent = {each: {"log": [label], "n": 0} for each in kept if each.startswith(prefix)}
                action = Action("replace-range", SETTINGS, (prefix, sent))
        if self._happens(0.4):
            when = tuple(self._compare(catalog) for _ in range(self._rng.choice((1, 1, 2))))
            action = replace(action, when=when)
        return action

    def _compare(self, catalog: Name) -> Compare:
        key = self._rng.choice(self._keys)
        if self._tastes.ranges and self._happens(self._tastes.ranges):
            return self._range_compare(catalog, key)
        known = self._of(catalog, key)
        choices = [Compare("absent", key)] if known.content is GONE else []
        if known.tokens:
            choices.append(Compare("token", key, known.tokens[-1]))
        if known.content is not GONE:
            choices.append(Compare("equals", key, known.content))
        choices.append(Compare("tests", key, [_test(self._rng.randrange(4))]))
        if self._tastes.lists:
            item = {"op": "test", "path": "/items/a/n", "value": self._rng.randrange(3)}
            choices += [Compare("tests", key, [item])] * 2
        choices.append(Compare("revision", key, self._revision(catalog)))
        return self._rng.choice(choices)

    def _range_compare(self, catalog: Name, key: Name) -> Compare:
        """Of one key, of those with the same first letter, or of all."""
        prefix = Name(key[: self._rng.choice((0, 1, 1, 2))])
        since = self._revision(catalog) - self._rng.choice((0, 0, 0, 1, 2, 5))
        relation = self._rng.choice(("less", "equal", "greater"))
        choices = [
            Compare("unchanged", key, max(0, since)),
            *[Compare("range-unchanged", prefix, max(0, since))] * 4,
            Compare("range-absent", prefix),
            Compare("range-count", prefix, (relation, self._rng.randrange(4))),
        ]
        return self._rng.choice(choices)

    def _keep(self, catalog: Name, key: Name, label: str) -> Ask:
        """Pin something, or compact."""
        kinds: tuple[Kind, ...] = ("pin", "compact", "compact", "compact", "renew", "unpin")
        kind = self._rng.choice(kinds)
        revision: int | None = self._revision(catalog) - self._rng.choice((0, 0, 1, 2, 5))
        pins = self._pins.get(catalog)
        ask = Ask(kind, catalog, key, label, revision=max(0, revision or 0))
        if kind == "compact" or (kind != "pin" and not pins):
            return replace(ask, kind="compact")
        ask = replace(ask, seconds=self._rng.choice((1, 5, 20, 300)))
        if kind == "pin" or not pins:
            revision = None if self._happens(0.5) else ask.revision
            return replace(ask, kind="pin", revision=revision)
        return replace(ask, pin=self._rng.choice(pins)[0])

    def _look(self, catalog: Name, key: Name, label: str) -> Ask:
        kind: Kind = self._rng.choice(_LOOKS)
        revision: int | None = max(0, self._revision(catalog) + self._rng.randrange(-5, 2))
        if kind in ("list", "several", "export") and self._happens(0.6):
            revision = None
        elif self._pins.get(catalog) and self._happens(0.4):
            revision = self._rng.choice(self._pins[catalog])[1]
        back = f"{self._client}.{max(1, self._count - self._rng.randrange(1, 5))}"
        if self._happens(0.5):
            time_us = self._rng.choice(self._times_us.get(catalog, [self._now_us()]))
        else:
            time_us = self._now_us() - self._rng.choice((0, 0, 5_000, 200_000, 2_000_000))
        return Ask(
            kind,
            catalog,
            key,
            label,
            revision=revision,
            idempotency_key=back,
            time_us=time_us + self._rng.choice((-1, 0, 0, 1, 100_000)),
            limit=self._rng.choice((1, 2, 100)),
            keys=tuple(self._rng.sample(self._keys, self._rng.randrange(1, len(self._keys) + 1))),
            pause_s=self._rng.choice((0.0, 0.0, 0.02, 20.0)) if kind == "export" else 0.0,
        )

    def _action(self, catalog: Name, key: Name, label: str) -> Action:
        if self._tastes.owners and self._happens(self._tastes.owners):
            return self._managing.action(catalog, key, label)
        known = self._of(catalog, key)
        if self._tastes.lists and self._happens(self._tastes.lists):
            return lists.action(self._rng, key, known.content, label)
        if self._tastes.repeatables and self._happens(self._tastes.repeatables):
            return self._repeating.action(catalog, key, known.content, label)
        content = known.content if isinstance(known.content, dict) else {}
        own = f"/{self._client}"
        number = self._rng.randrange(4)
        fresh = {"log": [], "n": number}
        owner = {"owner": label}
        choices: list[tuple[int, Action]] = [
            (6, Action("patch", key, [{"op": "add", "path": "/log/-", "value": label}])),
            (4, Action("patch", key, [{"op": "add", "path": own, "value": label}])),
            (2, Action("patch", key, [{"op": "replace", "path": own, "value": label}])),
            (1, Action("patch", key, [{"op": "remove", "path": own}])),
            (2, Action("patch", key, [{"op": "add", "path": "", "value": fresh}])),
            (2, Action("patch", key, [_count(content.get("n", number))])),
            (3, Action("patch", key, _guarded(content.get("n", number), label))),
            (2, Action("merge", key, {self._client: label, "n": number})),
            (1, Action("merge", key, {self._client: None})),
            (3, Action("put", key, {"log": [label], "n": number})),
            (1, Action("put", key, content or fresh)),
            (1, Action("put", key, fresh, owner if number else {})),
            (1, Action("delete", key)),
            (1, Action("patch", key, [{"op": "remove", "path": ""}])),
            (1, Action("attributes-put", key, owner if number else {})),
            (1, Action("attributes-patch", key, [{"op": "add", "path": own, "value": label}])),
            (1, Action("attributes-patch", key, [{"op": "remove", "path": "/owner"}])),
            (1, Action("attributes-delete", key)),
            (1, Action("move", key, self._rng.choice(self._keys))),
            (1, Action("touch", key)),
            (1, Action("get", key)),
        ]
        weights = [weight for weight, _ in choices]
        if known.content is GONE and self._rng.random() < 0.5:
            return Action("patch", key, [{"op": "add", "path": "", "value": fresh}])
        return self._rng.choices(choices, weights)[0][1]


def _test(number: int) -> dict[str, Any]:
    return {"op": "test", "path": "/n", "value": number}


def _count(number: int) -> dict[str, Any]:
    return {"op": "add", "path": "/n", "value": number}


def _guarded(number: int, label: str) -> list[dict[str, Any]]:
    """Counts on if the number is still the one seen; notes who did."""
    return [
        _test(number),
        _count((number + 1) % 4),
        {"op": "add", "path": "/log/-", "value": label},
    ]
