"""Makes, changes and reads subscriptions; ``relay`` delivers for them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gateway.errors import (
    AboveLimit,
    RevisionCompacted,
    RevisionNotFound,
    StoreUnavailable,
    SubscriptionNotFound,
)
from gateway.limits import RelayLimits
from gateway.model import PinRecord
from gateway.relay.posting import secret_of
from gateway.runtime import Runtime
from gateway.state.heads import Settler
from gateway.store.contract import Store, SubscriptionRecord
from gateway.store.unreachable import as_unavailable, as_unknown

_TRIES = 20
# The tag of a subscription that can't be read, which only the condition `*` matches.
_UNREADABLE: Final = "unreadable"
# How long the pin of a subscription lasts. The relay renews it well before it ends.
PIN_S = 150
# How long both secrets sign after a secret was changed, by default.
OVERLAP_S = 86_400
# The fields that are reset when a subscription is tried again at once, and when it begins anew.
_RETRIES: Final = ("failures", "failing_since_us", "error", "next_try_us")
_ANEW: Final = ("position", *_RETRIES)
# Checks a request's conditions: called with the subscription's present tag (None: there is none),
# and raises if the change isn't wanted.
Check = Callable[[str | None], None]
# How many former secrets still sign, if a secret is changed often within that time.
_FORMER_MAX = 4


@dataclass(frozen=True, slots=True)
class SubscriptionTerms:
    """The wanted terms of a subscription. ``after``: the revision after which it begins, or begins
    again; None: it stays where it is, or, if it is new, begins at the head. ``initial``: it begins
    with the state. ``secret`` None: the present one, or a new one."""

    to: str
    prefix: str = ""
    format: str = "cloudevents"
    after: int | None = None
    initial: bool = False
    secret: str | None = None
    overlap_s: int = OVERLAP_S


@dataclass(frozen=True, slots=True)
class SubscriptionState:
    """A subscription, and how far it has come. ``head`` is the catalog's revision; ``revision`` is
    the one up to which everything was delivered, None while the state isn't delivered."""

    record: SubscriptionRecord
    head: int
    now_us: int

    @property
    def tag(self) -> str:
        return _tag_of(self.record)

    @property
    def revision(self) -> int | None:
        return revision_of(self.record.position)


def _tag_of(record: SubscriptionRecord) -> str:
    """The subscription's tag. It changes with each change of the subscription, but not with a
    delivery."""
    return f"{record.number:x}"


def revision_of(position: str) -> int | None:
    return int(position) if position.isdigit() else None


def held_revision(position: str) -> int | None:
    """The revision from which on history has to be kept; None: delivery hasn't begun."""
    number = position.partition("/")[0]
    return int(number) if number else None


def pin_of(record: SubscriptionRecord, now_us: int) -> PinRecord | None:
    """The pin that keeps the history still to be delivered; None: nothing to keep yet."""
    revision = held_revision(record.position)
    if revision is None:
        return None
    expires_us = now_us + PIN_S * 1_000_000
    pin_id, note = _pin_id(record.catalog, record.name), f"subscription {record.name}"
    return PinRecord(pin_id, revision, expires_us, "", note)


def _pin_id(catalog: str, name: str) -> str:
    return hashlib.sha256(f"{catalog}\0{name}".encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class SubscriptionPut:
    """A subscription that was made or changed. ``secret``: the one that the gateway made for it, to
    be shown once, if any. ``is_made``: the subscription is new."""

    state: SubscriptionState
    is_made: bool
    secret: str | None


class SubscriptionService:
    """Manages subscriptions. Every method raises StoreUnavailable; those that change something also
    raise UnknownOutcome, and those that name a subscription, except ``put``, SubscriptionNotFound.
    """

    def __init__(
        self, store: Store, settler: Settler, runtime: Runtime, limits: RelayLimits
    ) -> None:
        self._store = store
        self._records = store.subscriptions()
        self._settler = settler
        self._runtime = runtime
        self._limits = limits
        # Called after a change, so that the relay of this process looks for it at once.
        self.when_changed: Callable[[], None] = lambda: None

    def put(
        self,
        catalog: str,
        name: str,
        wanted: SubscriptionTerms,
        by: str,
        check: Check,
    ) -> SubscriptionPut:
        """Make or change a subscription.

        Raises what ``check`` raises, RevisionNotFound and RevisionCompacted if it can't begin after
        the wanted revision, and AboveLimit if the catalog has too many subscriptions.
        """
        made = None if wanted.secret is not None else secret_of(bytes.fromhex(self._new_key()))
        for _ in range(_TRIES):
            with as_unavailable():
                before = self._records.subscription(catalog, name)
            check(None if before is None else _tag_of(before))
            if before is None:
                record = self._created(catalog, name, wanted, by, wanted.secret or made or "")
                with as_unknown():
                    done = self._records.create_subscription(record)
                if done:
                    self._refuse_made(record)
            else:
                record, progress = self._changed(before, wanted, by)
                made = None
                # A list of documents can't go on with another prefix, and one may have begun since.
                at_revision = "position" not in progress and record.prefix != before.prefix
                with as_unknown():
                    done = self._records.change_subscription(
                        record, before.number, progress, at_revision=at_revision
                    )
            if done:
                return SubscriptionPut(self._done(record), before is None, made)
        raise StoreUnavailable("others are changing the subscription")

    def read(self, catalog: str, name: str) -> SubscriptionState:
        with as_unavailable():
            record = self._records.subscription(catalog, name)
            if record is None:
                raise SubscriptionNotFound(name)
            return self._state(record)

    def page(self, catalog: str) -> Sequence[SubscriptionState]:
        """All subscriptions of the catalog, by name."""
        with as_unavailable():
            return [self._state(each) for each in self._records.subscriptions_of(catalog)]

    def pause(self, catalog: str, name: str, by: str, check: Check) -> SubscriptionState:
        now_us = self._runtime.now_us()

        def paused(it: SubscriptionRecord) -> SubscriptionRecord:
            return replace(it, paused=True, by=by, failing_since_us=now_us)

        return self._change(catalog, name, check, paused, ("failing_since_us",))

    def resume(self, catalog: str, name: str, by: str, check: Check) -> SubscriptionState:
        """End a pause, and try again at once, whatever has failed before."""

        def resumed(it: SubscriptionRecord) -> SubscriptionRecord:
            return _tried_again(replace(it, paused=False, by=by))

        return self._change(catalog, name, check, resumed, _RETRIES)

    def replay(
        self, catalog: str, name: str, after: int | None, by: str, check: Check
    ) -> SubscriptionState:
        """Deliver again everything after revision ``after``; None: begin again with the state.

        Raises RevisionNotFound and RevisionCompacted.
        """
        position = self._begin(catalog, after, initial=after is None)

        def replayed(it: SubscriptionRecord) -> SubscriptionRecord:
            return _tried_again(replace(it, position=position, by=by))

        return self._change(catalog, name, check, replayed, _ANEW)

    def drop(self, catalog: str, name: str, check: Check) -> None:
        """Delete a subscription, even one that can't be read."""
        for _ in range(_TRIES):
            with as_unavailable():
                before = self._records.subscription(catalog, name)
                unreadable = before is None and self._records.has_unreadable_subscription(
                    catalog, name
                )
            check(_UNREADABLE if unreadable else None if before is None else _tag_of(before))
            if before is None and not unreadable:
                raise SubscriptionNotFound(name)
            number = None if before is None else before.number
            with as_unknown():
                is_gone = self._records.drop_subscription(catalog, name, number)
            if is_gone:
                break
        else:
            raise StoreUnavailable("others are changing the subscription")
        self.when_changed()
        with as_unknown(is_done=True):
            self._store.drop_pin(catalog, _pin_id(catalog, name))

    def _change(
        self,
        catalog: str,
        name: str,
        check: Check,
        change: Callable[[SubscriptionRecord], SubscriptionRecord],
        progress: Collection[str],
    ) -> SubscriptionState:
        for _ in range(_TRIES):
            with as_unavailable():
                before = self._records.subscription(catalog, name)
            check(None if before is None else _tag_of(before))
            if before is None:
                raise SubscriptionNotFound(name)
            record = replace(change(before), number=before.number + 1)
            with as_unknown():
                is_changed = self._records.change_subscription(record, before.number, progress)
            if is_changed:
                return self._done(record)
        raise StoreUnavailable("others are changing the subscription")

    def _done(self, record: SubscriptionRecord) -> SubscriptionState:
        self.when_changed()
        pin = pin_of(record, self._runtime.now_us())
        with as_unknown(is_done=True):
            if pin is not None:
                self._store.set_pin(record.catalog, pin)
            return self._state(record)

    def _created(
        self, catalog: str, name: str, wanted: SubscriptionTerms, by: str, secret: str
    ) -> SubscriptionRecord:
        with as_unavailable():
            self._refuse_more(catalog, counted=0)
        return SubscriptionRecord(
            catalog,
            name,
            wanted.to,
            wanted.prefix,
            wanted.format,
            ((secret, 0),),
            by,
            self._runtime.now_us(),
            # A random number, so that a change meant for a former one of this name changes nothing.
            number=int(self._runtime.new_id()[:12], 16),
            position=self._begin(catalog, wanted.after, initial=wanted.initial),
        )

    def _refuse_made(self, record: SubscriptionRecord) -> None:
        """Delete the new subscription and raise AboveLimit if, with others that were made at the
        same time, there are too many."""
        with as_unknown(is_done=True):
            try:
                self._refuse_more(record.catalog, counted=1)
            except AboveLimit:
                self._records.drop_subscription(record.catalog, record.name, record.number)
                raise

    def _refuse_more(self, catalog: str, *, counted: int) -> None:
        """Raise AboveLimit if there may be no further subscription. ``counted`` is 1 if the further
        one is stored already. Raises StoreUnreachable."""
        count = len(self._records.subscriptions_of(catalog)) - counted
        maximum = self._limits.catalog_max
        if count >= maximum:
            raise AboveLimit(
                f"{catalog!r} has {count} subscriptions; the limit is {maximum}",
                limit="subscriptions_max",
                maximum=maximum,
                actual=count + 1,
            )

    def _changed(
        self, before: SubscriptionRecord, wanted: SubscriptionTerms, by: str
    ) -> tuple[SubscriptionRecord, Collection[str]]:
        """The changed record, and the fields of its progress to write with it."""
        record = replace(
            before,
            to=wanted.to,
            prefix=wanted.prefix,
            format=wanted.format,
            by=by,
            number=before.number + 1,
            secrets=self._secrets(before, wanted),
        )
        is_other_list = wanted.prefix != before.prefix and not before.position.isdigit()
        initial = wanted.initial or (is_other_list and wanted.after is None)
        if not initial and wanted.after is None:
            return record, ()
        position = self._begin(before.catalog, wanted.after, initial=initial)
        return _tried_again(replace(record, position=position)), _ANEW

    def _secrets(
        self, before: SubscriptionRecord, wanted: SubscriptionTerms
    ) -> tuple[tuple[str, int], ...]:
        newest = before.secrets[0][0]
        if wanted.secret in (None, newest):
            return before.secrets
        assert wanted.secret is not None
        if not wanted.overlap_s:
            return ((wanted.secret, 0),)
        now_us = self._runtime.now_us()
        until_us = now_us + wanted.overlap_s * 1_000_000
        earlier = [each for each in before.secrets[1:] if each[1] > now_us]
        kept = [each for each in ((newest, until_us), *earlier) if each[0] != wanted.secret]
        return ((wanted.secret, 0), *kept[:_FORMER_MAX])

    def _begin(self, catalog: str, after: int | None, *, initial: bool) -> str:
        if initial:
            return ""
        with as_unavailable():
            head = self._settler.settle(catalog)
        if after is None:
            return str(head.revision)
        if after > head.revision:
            detail = f"revision {after} doesn't exist; the head is {head.revision}"
            raise RevisionNotFound(detail, head.revision)
        if after < head.floor:
            raise RevisionCompacted(after, head.floor)
        return str(after)

    def _state(self, record: SubscriptionRecord) -> SubscriptionState:
        """The state of a subscription. Raises StoreUnreachable."""
        head = self._store.heads([record.catalog]).get(record.catalog)
        revision = 0 if head is None else head.revision
        return SubscriptionState(record, revision, self._runtime.now_us())

    def _new_key(self) -> str:
        return self._runtime.new_id() + self._runtime.new_id()


def _tried_again(record: SubscriptionRecord) -> SubscriptionRecord:
    return replace(record, failures=0, failing_since_us=0, error=None, next_try_us=0)
