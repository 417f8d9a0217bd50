"""Applying with owners is what the oracle says, whatever managers and authors do in any order; and
what everybody counts on holds at each step.

`PROPERTY_CASES=10000` tries so many cases of each property.
"""

from __future__ import annotations

import copy
import json
import pickle
from random import Random

import msgspec
import owners_oracle as oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from patch_strategies import NAMES, SCALARS, document, locations, operation, randoms

from patching import (
    ABSENT,
    NO_LISTS,
    InvalidPatch,
    LimitExceeded,
    Limits,
    PatchError,
    apply,
    diff,
    digest,
    equal,
    join_pointer,
    parse_lists,
    split_pointer,
    three_way,
)
from patching.errors import ListViolation
from patching.owners import Ownership, OwnerTree, change_between, changed_owners
from patching.ownership import OwnedByOthers, apply_wanted, give_back, let_go, taken_over
from patching.part_digests import owned_digest, owned_digests, part_digest
from patching.restoring import Owned, restored
from tests.cases import cases

CASES = cases(300)
MANAGERS = ["nightly", "ann", "b"]


def wanted_of(random: Random, state) -> dict:
    """What a manager may want: parts of the state, changed here and there, and anything else."""
    if not isinstance(state, dict) or random.random() < 0.2:
        return an_object(random)
    wanted = {}
    for name, value in state.items():
        if random.random() < 0.4:
            continue
        if isinstance(value, dict) and value and random.random() < 0.8:
            wanted[name] = wanted_of(random, value)
        elif random.random() < 0.7:
            wanted[name] = copy.deepcopy(value)
        else:
            wanted[name] = document(random, random.randrange(4), 0.2)
    if random.random() < 0.4:
        wanted[random.choice(NAMES)] = document(random, random.randrange(4), 0.2)
    return wanted


def an_object(random: Random) -> dict:
    size = random.randint(0, 4)
    names = random.sample(NAMES, size)
    return {name: document(random, random.randrange(5), 0.2) for name in names}


class World:
    """A document with its owners, by the library and by the oracle, at a revision."""

    lists = NO_LISTS
    plain_lists = staticmethod(oracle.no_lists)

    def __init__(self) -> None:
        self.revision = 0
        self.owners_before: OwnerTree | None = None  # that revision
        self.content = ABSENT
        self.owners: OwnerTree | None = None
        self.sent = {}  # by manager, what it applied last
        self.past = [Owned(ABSENT, None)]

    @property
    def owned(self):
        return flat(self.owners)

    def step(self, random: Random) -> None:
        if random.random() < 0.7:  # else one commit does several
            self.revision += 1
            self.owners_before = self.owners
        before, owners_before = self.content, self.owners
        kind = random.choice(["apply", "apply", "apply", "write", "write", "let go"])
        if kind == "apply":
            self.apply(random)
        elif kind == "write":
            self.write(random)
        elif self.owners is not None:
            self.let_go(random.choice(MANAGERS))
        if self.owners is not None and random.random() < 0.2:
            self.give_back(random)
        self.check(before)
        if self.content is not ABSENT:
            for manager in MANAGERS:
                self.compare_digests(manager, random)
        self.undo_last(before, owners_before)
        self.undo_any(random)
        self.past.append(Owned(self.content, self.owners))

    def undo_last(self, content_before, owners_before) -> None:
        before, after = Owned(content_before, owners_before), Owned(self.content, self.owners)
        terms = {"author": "undoer", "revision": self.revision + 1, "lists": self.lists}
        assert flat(restored(after, before, after, before.content, **terms)) == flat(owners_before)

    def undo_any(self, random: Random) -> None:
        """What has led from one state to another, done to the last one; some of it kept."""
        target, base = (random.choice(self.past) for _ in range(2))
        now, author, revision = Owned(self.content, self.owners), "ann", self.revision + 1
        merged = three_way(
            base.content,
            target.content,
            now.content,
            force=random.random() < 0.5,
            lists=self.lists,
        )
        kept = [each.pointer for each in merged.disputes if not each.forced]
        after = merged.content
        found = restored(
            base, target, now, after, author=author, revision=revision, kept=kept, lists=self.lists
        )
        of_oracle = [
            (oracle.GONE if each.content is ABSENT else each.content, flat(each.owners))
            for each in (base, target, now)
        ]
        expected = oracle.restored(
            *of_oracle,
            oracle.GONE if after is ABSENT else after,
            author,
            revision,
            set(map(split_pointer, kept)),
            self.plain_lists,
        )
        assert flat(found) == expected

    def apply(self, random: Random) -> None:
        manager, state = random.choice(MANAGERS), self.content
        wanted = self.wanted(random)
        how = random.choice(["refuse", "refuse", "skip", "force"])
        places = locations(wanted)
        force = random.sample(places, min(len(places), random.choice([0, 0, 1, 2])))
        expected, owned, contested = oracle.applied(
            oracle.GONE if state is ABSENT else copy.deepcopy(state),
            self.owned,
            copy.deepcopy(wanted),
            manager,
            self.revision,
            how,
            set(force),
            self.plain_lists,
        )
        terms = {
            "manager": manager,
            "revision": self.revision,
            "conflict": how,
            "force": [join_pointer(each) for each in force],
            "lists": self.lists,
        }
        try:
            done = apply_wanted(state, self.owners, wanted, **terms)
        except OwnedByOthers as error:
            done, refusal = None, error
        if done is None:
            assert expected is None
            assert {each.pointer for each in refusal.contested} == {*map(join_pointer, contested)}
            return
        assert equal(self.ordered(done.content), self.ordered(expected))
        assert flat(done.owners) == owned
        assert {each.pointer for each in done.skipped} == set(map(join_pointer, contested))
        self.hold_to_promises(done, wanted, terms)
        self.content, self.owners = done.content, done.owners
        self.sent[manager] = wanted

    def hold_to_promises(self, done, wanted, terms) -> None:
        again = apply_wanted(
            done.content, done.owners, wanted, **{**terms, "revision": self.revision + 1}
        )
        assert again.content is done.content
        assert again.owners is done.owners
        if terms["conflict"] != "force" and not terms["force"]:
            for tokens, owners in self.owned.items():
                if set(owners) - {(terms["manager"], False)}:
                    self.require_kept(tokens, done.content)

    def require_kept(self, tokens, after) -> None:
        """A leaf that others own is what it was; an empty object may have got members."""
        then, now = (oracle.leaves(each, (), self.plain_lists) for each in (self.content, after))
        value = then[tokens]
        if oracle.is_empty(value, tokens, self.plain_lists) and tokens not in now:
            assert any(oracle.below(tokens, each) for each in now)
        else:
            assert equal(value, now[tokens])

    def wanted(self, random: Random) -> dict:
        return wanted_of(random, {} if self.content is ABSENT else self.content)

    def replaced(self, random: Random):
        return document(random, 8, 0.2) if random.random() < 0.2 else an_object(random)

    def edited(self, random: Random):
        return apply(self.content, [operation(random, self.content)])

    def ordered(self, value):
        return value

    def write(self, random: Random) -> None:
        author, after = random.choice(MANAGERS), self.content
        if after is ABSENT or random.random() < 0.3:
            after = self.replaced(random)
            if random.random() < 0.1:
                after = ABSENT
        else:
            try:
                after = self.edited(random)
            except PatchError:
                return
        expected = oracle.written(
            self.owned,
            *(oracle.GONE if each is ABSENT else each for each in (self.content, after)),
            author,
            self.revision,
            self.plain_lists,
        )
        found = taken_over(
            self.owners,
            self.content,
            after,
            author=author,
            revision=self.revision,
            lists=self.lists,
        )
        assert flat(found) == expected
        self.content, self.owners = after, found

    def let_go(self, manager: str) -> None:
        expected, owned = oracle.released(self.content, self.owned, manager, self.plain_lists)
        by_writes = any((manager, True) in names for names in self.owned.values())
        if by_writes and manager not in self.owners.managers():
            with pytest.raises(OwnedByOthers):
                let_go(self.content, self.owners, manager, lists=self.lists)
            return
        done = let_go(self.content, self.owners, manager, lists=self.lists)
        assert equal(self.ordered(done.content), self.ordered(expected))
        assert flat(done.owners) == owned
        self.content, self.owners = done.content, done.owners

    def give_back(self, random: Random) -> None:
        author = random.choice([*MANAGERS, None])
        places = random.sample([*self.owned, (), ("a",)], random.choice([1, 1, 2]))
        expected = oracle.given_back(self.owned, places, author)
        try:
            done = give_back(
                self.content,
                self.owners,
                list(map(join_pointer, places)),
                author=author,
                lists=self.lists,
            )
        except OwnedByOthers as error:
            done, refusal = None, error
        if done is None:
            assert expected is None
            assert all(owner.plain for each in refusal.contested for owner in each.owners)
            return
        assert done.content is self.content
        assert flat(done.owners) == expected
        if expected == self.owned:
            assert done.owners is self.owners
        self.owners = done.owners

    def check(self, content_before) -> None:
        there = {}
        if self.content is not ABSENT:
            there = oracle.leaves(self.content, (), self.plain_lists)
        assert set(self.owned) <= set(there)  # no owner of a leaf that isn't there
        owners_before = self.owners_before
        change = change_between(owners_before, self.owners)
        assert (change is None) == (owners_before == self.owners)
        if change is not None:
            stored = msgspec.json.decode(msgspec.json.encode(change), type=type(change))
            assert changed_owners(owners_before, stored, self.revision) == self.owners
        if self.owners is not None:
            stored = msgspec.json.decode(msgspec.json.encode(self.owners), type=OwnerTree)
            assert stored == self.owners
            assert len(set(self.owners.by)) == len(self.owners.by)
            assert self.owners.count() == len(self.owned)
        if ABSENT not in (content_before, self.content):
            patch = diff(content_before, self.content)
            assert equal(apply(content_before, patch), self.content)

    def compare_digests(self, manager: str, random: Random) -> None:
        """That of a part is that of what the manager owns where applying it changes nothing, and
        makes it own no less."""
        there = oracle.leaves(self.content, (), self.plain_lists)
        owned = {t: there[t] for t, owners in self.owned.items() if (manager, False) in owners}
        found = owned_digest(self.content, self.owners, manager, self.lists)
        assert (found is None) == (not owned)
        known = owned_digests(self.content, self.owners) if self.owners else {}
        assert known is None or known.get(manager) == found
        own = oracle.built(owned, self.plain_lists)
        for wanted in (self.sent.get(manager), self.wanted(random), own if owned else None):
            try:
                asked = part_digest(wanted, self.lists)
            except ListViolation:
                continue
            sent = {} if wanted is None else oracle.leaves(wanted, (), self.plain_lists)
            same = sent.keys() == owned.keys() and all(equal(sent[t], owned[t]) for t in sent)
            assert (asked == found) == (same and wanted is not None)
            if asked == found:
                done = apply_wanted(
                    self.content,
                    self.owners,
                    wanted,
                    manager=manager,
                    revision=self.revision + 1,
                    lists=self.lists,
                )
                assert done.content is self.content
                assert done.owners is self.owners


def flat(owners: OwnerTree | None):
    leaves = owners.leaves() if owners else ()
    return {tokens: {each.name: each.since for each in by} for tokens, by in leaves}


@CASES
@given(st.lists(randoms, min_size=3, max_size=10))
def test_any_history_of_applies_and_writes_matches_the_oracle(seeds):
    world = World()
    for random in seeds:
        world.step(random)


class Listed(World):
    """With lists: /f, by k; in it /f/*/t, a set; and /s, a set."""

    lists = parse_lists(
        [
            {"pointer": "/f", "item_key": ["k"]},
            {"pointer": "/f/*/t", "set": True},
            {"pointer": "/s", "set": True},
        ]
    )

    @staticmethod
    def plain_lists(tokens):
        if tokens == ("f",):
            return "k"
        is_set = tokens == ("s",) or (len(tokens) == 3 and tokens[0] == "f" and tokens[2] == "t")
        return "" if is_set else None

    def wanted(self, random: Random) -> dict:
        made = {}
        if random.random() < 0.7:
            made["f"] = [self.item(random, key) for key in self.some(random, "xyz")]
        if random.random() < 0.7:
            made["s"] = self.some(random, [1, "1", None, [1], {"a": 1}])
        if random.random() < 0.3:
            made[random.choice("fs")] = random.choice([1, "x", []])
        if random.random() < 0.3:
            made["m"] = an_object(random)
        return made

    replaced = edited = wanted

    def item(self, random: Random, key: str) -> dict:
        made = {"k": key}
        if random.random() < 0.6:
            made["v"] = random.choice([1, 2, {"w": 1}, {}, [1]])
        if random.random() < 0.4:
            made["t"] = self.some(random, ["a", "b", 1])
        return made

    def some(self, random: Random, choices) -> list:
        return random.sample(choices, random.randint(0, len(choices) - 1))

    def ordered(self, value):
        if not isinstance(value, dict):
            return value
        ordered = dict(value)
        for name in "fst":
            if isinstance(ordered.get(name), list):
                items = [self.ordered(item) for item in ordered[name]]
                ordered[name] = sorted(items, key=lambda item: json.dumps(item, sort_keys=True))
        return ordered


@CASES
@given(st.lists(randoms, min_size=3, max_size=10))
def test_any_history_with_lists_matches_the_oracle(seeds):
    world = Listed()
    for random in seeds:
        world.step(random)


@CASES
@given(randoms)
def test_letting_go_removes_exactly_the_managers_own_leaves(random):
    base = an_object(random)
    owners = None
    content = base
    for manager in MANAGERS[:2]:
        wanted = wanted_of(random, content)
        done = apply_wanted(content, owners, wanted, manager=manager, revision=1, conflict="skip")
        content, owners = done.content, done.owners
    if owners is None:
        return
    mine = {t for t, by in flat(owners).items() if set(by) == {(MANAGERS[0], False)}}
    after = let_go(content, owners, MANAGERS[0])
    gone = oracle.leaves(content).keys() - oracle.leaves(after.content).keys()
    assert gone - {()} == mine - {()}
    again = apply_wanted(content, owners, {}, manager=MANAGERS[0], revision=2, conflict="skip")
    assert equal(again.content, after.content)


@CASES
@given(randoms, st.permutations(range(6)))
def test_managers_of_disjoint_leaves_never_conflict_in_any_order(random, order):
    whole = an_object(random)
    parts = [{}, {}, {}]
    for tokens, value in oracle.leaves(whole).items():
        if tokens:
            parts[random.randrange(3)][tokens] = value
    content, owners = ABSENT, None
    for revision, index in enumerate(order, 1):
        # each manager comes twice, and wants other values of its leaves the second time
        own = parts[index % 3]
        if index >= 3:
            own = {tokens: random.choice(SCALARS) for tokens in own}
        wanted = oracle.built(own)
        manager = f"manager {index % 3}"
        done = apply_wanted(content, owners, wanted, manager=manager, revision=revision)
        content, owners = done.content, done.owners


def applied(content, owners, wanted, manager="a", revision=1, **terms):
    done = apply_wanted(content, owners, wanted, manager=manager, revision=revision, **terms)
    return done.content, done.owners


def contested_of(content, owners, wanted, manager="b", **terms):
    with pytest.raises(OwnedByOthers) as refused:
        applied(content, owners, wanted, manager, 9, **terms)
    return refused.value


def test_the_worked_example():
    state = applied(ABSENT, None, {"a": {"x": 1}, "b": 2}, "A", 1)
    state = applied(*state, {"a": {"y": 5}, "b": 2}, "B", 2)
    assert state[0] == {"a": {"x": 1, "y": 5}, "b": 2}
    state = applied(*state, {"a": {"x": 3}}, "A", 3)
    assert state[0] == {"a": {"x": 3, "y": 5}, "b": 2}
    assert flat(state[1]) == {
        ("a", "x"): {("A", False): 1},
        ("a", "y"): {("B", False): 2},
        ("b",): {("B", False): 2},
    }
    state = applied(*state, {}, "B", 4)
    assert state[0] == {"a": {"x": 3}}


def test_a_contested_leaf_names_its_owner_since_when_and_both_values():
    state = applied(ABSENT, None, {"tier": 1, "note": "x"}, "nightly", 4)
    error = contested_of(*state, {"tier": 2, "note": "x"})
    (only,) = error.contested
    assert (only.pointer, only.owners) == ("/tier", (Ownership("nightly", 4),))
    assert (only.value, only.wanted, only.wanted_at) == (1, 2, "/tier")
    assert "'nightly' since revision 4" in error.detail
    assert pickle.loads(pickle.dumps(error)).contested == error.contested


def test_a_plain_write_takes_over_and_the_former_owner_gets_a_conflict():
    content, owners = applied(ABSENT, None, {"tier": 1}, "nightly", 1)
    owners = taken_over(owners, content, {"tier": 2}, author="ann", revision=2)
    assert owners.at(("tier",)) == (Ownership("ann", 2, True),)
    error = contested_of({"tier": 2}, owners, {"tier": 1}, "nightly")
    assert "'ann' since revision 2, by a plain write" in error.detail


def test_an_author_and_a_manager_of_the_same_name_are_different_owners():
    content, owners = applied(ABSENT, None, {"tier": 1}, "ann", 1)
    owners = taken_over(owners, content, {"tier": 2}, author="ann", revision=2)
    contested_of({"tier": 2}, owners, {"tier": 1}, "ann")


def test_force_takes_over_only_the_named_places():
    state = applied(ABSENT, None, {"a": {"x": 1, "y": 1}, "b": 1}, "a", 1)
    wanted = {"a": {"x": 2, "y": 2}, "b": 2}
    assert [each.pointer for each in contested_of(*state, wanted, force=["/a"]).contested] == ["/b"]
    done = apply_wanted(*state, wanted, manager="b", revision=2, conflict="skip", force=["/a/x"])
    assert done.content == {"a": {"x": 2, "y": 1}, "b": 1}
    assert done.owners.at(("a", "x")) == (Ownership("b", 2),)
    assert [each.pointer for each in done.skipped] == ["/a/y", "/b"]


def test_skipping_a_shared_leaf_gives_up_its_ownership():
    state = applied(*applied(ABSENT, None, {"x": 1}, "a", 1), {"x": 1}, "b", 2)
    assert state[1].at(("x",)) == (Ownership("a", 1), Ownership("b", 2))
    content, owners = applied(*state, {"x": 2}, "b", 3, conflict="skip")
    assert content == {"x": 1}
    assert flat(owners) == {("x",): {("a", False): 1}}


def test_replacing_a_container_by_a_scalar_needs_all_of_its_leaves():
    state = applied(ABSENT, None, {"a": {"x": 1, "y": 1}}, "a", 1)
    error = contested_of(*state, {"a": 5}, force=["/a/x"])
    assert [(each.pointer, each.wanted, each.wanted_at) for each in error.contested] == [
        ("/a/y", ABSENT, "/a")
    ]
    content, owners = applied(*state, {"a": 5}, "b", 2, force=["/a"])
    assert content == {"a": 5}
    assert flat(owners) == {("a",): {("b", False): 2}}


def test_a_container_in_the_place_of_anothers_scalar_is_contested():
    state = applied(ABSENT, None, {"a": 1}, "a", 1)
    (only,) = contested_of(*state, {"a": {"x": 2}}).contested
    assert (only.pointer, only.value, only.wanted) == ("/a", 1, {"x": 2})


def test_null_is_an_ordinary_value():
    state = applied(ABSENT, None, {"a": None, "b": 1}, "a", 1)
    assert state[0] == {"a": None, "b": 1}
    assert applied(*state, {"b": 1}, "a", 2)[0] == {"b": 1}


def test_an_empty_object_yields_to_members_and_can_be_restored():
    state = applied(ABSENT, None, {"labels": {}}, "a", 1)
    state = applied(*state, {"labels": {"x": 1}}, "b", 2)
    assert flat(state[1]) == {("labels", "x"): {("b", False): 2}}
    assert applied(*state, {"labels": {}}, "a", 3) == state  # an object is there
    state = applied(*state, {}, "b", 4)
    assert state[0] == {}
    assert applied(*state, {"labels": {}}, "a", 5)[0] == {"labels": {}}


def test_an_empty_document_is_made_owned_and_kept():
    content, owners = applied(ABSENT, None, {}, "a", 1)
    assert content == {}
    assert owners.at(()) == (Ownership("a", 1),)
    content, owners = applied(content, owners, {"x": 1}, "a", 2)
    assert flat(owners) == {("x",): {("a", False): 2}}
    done = let_go(content, owners, "a")
    assert (done.content, done.owners) == ({}, None)


def test_unowned_values_stay_and_anybody_may_change_them():
    content, owners = applied({"seen": 1, "a": {"kept": 1}}, None, {"seen": 2, "a": {"x": 1}}, "a")
    assert content == {"seen": 2, "a": {"kept": 1, "x": 1}}
    assert applied(content, owners, {}, "a", 2)[0] == {"a": {"kept": 1}}


def test_a_deleted_document_has_no_owners():
    content, owners = applied(ABSENT, None, {"x": 1}, "a")
    assert taken_over(owners, content, ABSENT, author="ann", revision=2) is None


FIELDS = parse_lists(
    [{"pointer": "/fields", "item_key": ["path"]}, {"pointer": "/tags", "set": True}]
)


def test_items_are_owned_by_key_and_members_of_sets_by_value():
    state = applied(ABSENT, None, {"fields": [{"path": "a", "type": 1}]}, "a", 1, lists=FIELDS)
    wanted = {"fields": [{"path": "b", "type": 2}, {"path": "a", "note": "x"}], "tags": ["pii"]}
    state = applied(*state, wanted, "b", 2, lists=FIELDS)
    assert state[0] == {
        "fields": [{"path": "a", "type": 1, "note": "x"}, {"path": "b", "type": 2}],
        "tags": ["pii"],
    }
    assert ["/".join(tokens) for tokens in flat(state[1])] == [
        "fields/a/path",
        "fields/a/type",
        "fields/a/note",
        "fields/b/path",
        "fields/b/type",
        'tags/"pii"',
    ]
    wanted = {"fields": [{"path": "a", "type": 5}]}
    (only,) = contested_of(*state, wanted, lists=FIELDS).contested
    assert (only.pointer, only.value, only.wanted) == ("/fields/a/type", 1, 5)
    state = applied(*state, {"tags": ["pii", "gold"]}, "a", 3, lists=FIELDS)
    assert state[0]["fields"] == [{"path": "a", "note": "x"}, {"path": "b", "type": 2}]
    state = applied(*state, {}, "b", 4, lists=FIELDS)
    assert state[0] == {"tags": ["pii", "gold"]}


def test_an_item_keeps_its_key_while_it_has_other_members():
    state = applied(ABSENT, None, {"fields": [{"path": "a", "type": 1}]}, "a", 1, lists=FIELDS)
    content = {"fields": [{"path": "a", "type": 1, "note": "by hand"}]}
    owners = taken_over(state[1], state[0], content, author="ann", revision=2, lists=FIELDS)
    assert applied(content, owners, {}, "a", 3, lists=FIELDS) == (
        {"fields": [{"path": "a", "note": "by hand"}]},
        None,
    )


def test_owners_follow_the_rules_for_lists():
    wanted = {"tags": ["x"], "fields": [{"path": "a", "type": 1}]}
    state = applied(ABSENT, None, wanted, "a", 1)
    state = applied(*state, {"tags": ["y"]}, "b", 2, lists=FIELDS)
    assert state[0]["tags"] == ["x", "y"]
    assert flat(state[1])["fields", "a", "type"] == {("a", False): 1}
    # no rules any more: the array is theirs who owned anything in it
    state = applied(*state, wanted | {"tags": ["x", "y"]}, "a", 3)
    assert flat(state[1]) == {
        ("tags",): {("a", False): 1, ("b", False): 2},
        ("fields",): {("a", False): 1},
    }


def test_new_rules_for_lists_alone_change_no_owners():
    content, owners = applied(ABSENT, None, {"tags": ["x"], "n": 1}, "a", 1)
    same = copy.deepcopy(content)
    assert taken_over(owners, content, same, author="b", revision=2, lists=FIELDS) is owners
    other = {**content, "n": 2}
    found = taken_over(owners, content, other, author="b", revision=2, lists=FIELDS)
    assert flat(found)["tags", '"x"'] == {("a", False): 1}
    assert let_go(content, owners, "b", lists=FIELDS).owners is owners


def test_the_digest_of_a_part_without_lists_equals_that_of_its_value():
    content, owners = applied({"n": 1}, None, {"a": {"x": 1.0}, "e": {}}, "a")
    content, owners = applied(content, owners, {"a": {"x": 1, "y": 2}}, "b", 2)
    assert owned_digest(content, owners, "a") == digest({"e": {}, "a": {"x": 1}})
    assert owned_digests(content, owners) == {
        "a": part_digest({"a": {"x": 1}, "e": {}}),
        "b": digest({"a": {"y": 2, "x": 1}}),
    }
    assert owned_digest(content, owners, "n") is None
    owners = taken_over(owners, content, {"a": 1, "e": {}}, author="b", revision=3)
    assert owned_digests({"a": 1, "e": {}}, owners) == {"a": digest({"e": {}})}


def test_a_digest_of_owned_lists_ignores_order_and_depends_on_the_rules():
    wanted = {"tags": ["x", "y"], "fields": [{"path": "b"}, {"path": "a", "type": 1}]}
    turned = {"fields": [{"type": 1, "path": "a"}, {"path": "b"}], "tags": ["y", "x"]}
    content, owners = applied(ABSENT, None, wanted, "a", lists=FIELDS)
    found = owned_digest(content, owners, "a", FIELDS)
    assert owned_digests(content, owners) is None
    assert found == part_digest(turned, FIELDS)
    assert found == part_digest(wanted, FIELDS)
    assert found != part_digest(wanted)
    # declared otherwise since, or no more: who applies it again may change the owners
    types = parse_lists([{"pointer": "/fields", "item_key": ["type"]}])
    crossed = [{"path": "a", "type": "b"}, {"path": "b", "type": "a"}]
    apart = [{"path": "a", "type": "x"}, {"path": "b", "type": "y"}]
    for then, now, items, same in (
        (FIELDS, NO_LISTS, apart, False),
        (NO_LISTS, FIELDS, apart, False),
        (FIELDS, types, apart, False),
        (FIELDS, types, crossed, True),
    ):
        content, owners = applied(ABSENT, None, {"fields": items}, "a", lists=then)
        kept = owned_digest(content, owners, "a", now)
        assert kept is not None
        assert (kept == part_digest({"fields": items}, now)) == same
        again = applied(content, owners, {"fields": items}, "a", 2, lists=now)
        assert (again[1] == owners) == same


def test_an_apply_that_breaks_the_rules_for_lists_is_refused():
    for wanted in ({"tags": ["x", "x"]}, {"fields": [{"type": 1}]}):
        with pytest.raises(ListViolation):
            applied(ABSENT, None, wanted, lists=FIELDS)


@pytest.mark.parametrize("wanted", [None, 1, "x", [], [{}], True])
def test_an_apply_that_is_not_an_object_is_refused(wanted):
    with pytest.raises(InvalidPatch, match="an object, not") as refused:
        applied({"a": 1}, None, wanted)
    assert refused.value.pointer == ""


def test_a_force_that_is_not_a_pointer_is_refused():
    with pytest.raises(InvalidPatch) as refused:
        applied({"a": 1}, None, {}, force=["a"])
    assert refused.value.code == "invalid_pointer"


def test_bounds_apply_to_growth_and_not_to_existing_owners():
    limits = Limits(owned_leaves_max=2)
    state = applied(ABSENT, None, {"a": 1, "b": 1, "c": 1}, "a")
    with pytest.raises(LimitExceeded) as refused:
        applied(*state, {"d": 1}, "b", 2, limits=limits)
    assert (refused.value.limit, refused.value.actual) == ("owned_leaves_max", 4)
    assert applied(*state, {"a": 1}, "a", 2, limits=limits)[0] == {"a": 1}
    with pytest.raises(LimitExceeded, match="owned_leaves_max"):
        taken_over(
            state[1],
            state[0],
            {"a": {"x": 1, "y": 1}, "b": 1, "c": 1},
            author="ann",
            revision=2,
            limits=limits,
        )
    for limit in ({"owners_bytes_max": 20}, {"depth_max": 1}, {"result_bytes_max": 20}):
        with pytest.raises(LimitExceeded) as refused:
            applied(ABSENT, None, {"aaaaaaaaaa": {"bbbbbbbbbb": 1}}, "m", limits=Limits(**limit))
        assert refused.value.limit == next(iter(limit))


def test_arguments_are_not_modified_and_unchanged_parts_are_shared():
    kept = {"deep": [1]}
    content, owners = applied({"kept": kept, "x": 1}, None, {"x": 1, "y": {"z": 1}}, "a")
    before = copy.deepcopy((content, owners))
    after, _ = applied(content, owners, {"y": {"z": 2}}, "a", 2)
    assert (content, owners) == before
    assert after["kept"] is kept


def test_a_revert_that_changes_nothing_keeps_the_owners_of_lists():
    """Also where lists were declared since: what changes nothing makes no commit."""
    content = {"fields": [{"path": "a"}], "n": 1}
    made = apply_wanted({}, None, content, manager="nightly", revision=1)
    now = Owned(made.content, made.owners)
    before = Owned({"n": 1}, apply_wanted({}, None, {"n": 1}, manager="bob", revision=1).owners)
    terms = {"author": "ann", "revision": 3, "kept": ["/fields"], "lists": FIELDS}
    assert restored(now, before, now, now.content, **terms) != now.owners, "bob owns n again"
    assert restored(now, now, now, now.content, **terms) is now.owners
    changed = {**content, "more": 1}
    assert ("fields", "a", "path") in flat(restored(now, now, now, changed, **terms))
