"""What holds for extended patches whatever the document and the operations are."""

from random import Random
from typing import get_args

from extended_calls import COMMIT, extended, run, size
from hypothesis import event, given
from hypothesis import strategies as st
from patch_strategies import (
    at,
    containers,
    document,
    documents,
    locations,
    look_alike,
    operation,
    patched_documents,
    pointer,
    randoms,
)

from patching import (
    ABSENT,
    PatchError,
    apply,
    apply_extended,
    equal,
    join_pointer,
    parse_extended,
    split_pointer,
)
from patching._apply_extended import LOWER
from patching._predicates import PREDICATES as PREDICATES_OF_THE_LANGUAGE
from patching._predicates import Predicate
from patching.canonical_json import canonical
from patching.extended import EXTENDED_OPERATIONS, Change
from patching.footprints import footprint, overlap

KEYED = {"/k": ["id"], "/k/*/k": ["id", "n"], "/*/k": ["id"]}
IDS = ["a", "b", "0", 1, True]


def items(random, levels=1):
    """At most four, of which no two have the same key."""
    found = [item(random, levels) for _ in range(random.randint(0, 3 + levels))]
    key = (lambda each: str(each["id"])) if levels else (lambda each: (str(each["id"]), each["n"]))
    return list({key(each): each for each in found}.values())


def item(random, levels):
    members = {"id": random.choice(IDS), "n": random.randint(0, 2)}
    for name in random.sample(["v", "w"], random.randint(0, 2)):
        members[name] = document(random, random.randint(0, 12))
    if levels and random.random() < 0.5:
        members["k"] = items(random, levels - 1)
    return members


keyed_documents = st.fixed_dictionaries(
    {"k": st.builds(items, randoms)},
    optional={"o": containers, "l": st.lists(documents, max_size=4), "n": st.integers(-3, 3)},
)


def address(random, state):
    """Mostly of items, existing and not, and of what is in them."""
    if random.randint(0, 2) == 0:
        return pointer(random, {**state, "k": {}})
    tokens = ["k", random.choice(["a", "b", "0", "1", "true", "zz"])]
    below = random.choice(["", "", "v", "id", "k", "k"])
    tokens += [below] if below else []
    if below == "k" and random.random() < 0.5:
        tokens.append(random.choice(["a", "b", "1"]) + "␟" + random.choice("012"))
        tokens += random.choice([[], ["v"], ["n"]])
    return join_pointer(tokens)


CHANGES = ["add_to_set", "add_to_set", "pull", "pull", "increment"]
CHANGES += ["set", "set", "max", "min", "append_text", "stamp"]
PREDICATES = ["defined", "undefined", "type", "less"]


def extended_operation(random, state):
    name = random.choice(["plain", "add", "add", "remove", *CHANGES, *PREDICATES, "move"])
    path = address(random, state)
    if name == "plain":
        plain = operation(random, {**state, "k": {}})
        if plain["op"] == "remove" and not plain["path"]:
            return {"op": "undefined", "path": "/nothing"}
        return plain
    if name == "move":
        name = random.choice(["move", "copy"])
        return {"op": name, "from": address(random, state), "path": path}
    made = {"op": name, "path": path}
    if name in ("add_to_set", "pull", "add", "set"):
        made["value"] = value(random, state)
    if name == "append_text":
        made |= {"value": random.choice(["x", "", "é"]), "once": random.random() < 0.5}
    if name == "stamp":
        made["value"] = random.choice(["time", "revision", "author"])
    if name in ("increment", "less", "max", "min"):
        made["value"] = random.choice([1, -1, 0.5, 2**63])
    if name == "type":
        made["value"] = random.choice(["object", "array", "number", "undefined"])
    if name in ("add", *CHANGES) and name != "pull" and random.random() < 0.5:
        made["create_parents"] = True
    if name == "remove" and path:
        made["if_exists"] = random.random() < 0.5
    if name == "remove" and not path:
        made["op"] = "defined"
    return made


def value(random, state):
    if random.random() < 0.5:
        return {"v": document(random, random.randint(0, 12))}
    there = at(state, random.choice(locations(state)))
    return look_alike(there) if random.random() < 0.5 else there


def wrapped(patch):
    return {"patch": patch, "array_primary_keys": KEYED}


def attempt(document, patch):
    patch = parse_extended(wrapped(patch))
    return apply_extended(document, patch, document_bytes=size(document), commit=COMMIT)


def outcome(call):
    try:
        return call()
    except PatchError as error:
        return error


@st.composite
def extended_patches(draw, document, max_size=6):
    """Operations made for the state that those before leave, mostly ones that apply to it."""
    patch, state = [], document
    for random in draw(st.lists(randoms, min_size=1, max_size=max_size)):
        made = extended_operation(random, state)
        try:
            after = attempt(state, [made]).content
        except PatchError:
            if random.randrange(6):
                continue
            after = state
        if not isinstance(after, dict):
            continue
        state = after
        patch.append(made)
    return sorted(patch, key=lambda each: each["op"] == "stamp")  # only stamps follow stamps


@st.composite
def cases(draw):
    document = draw(keyed_documents)
    return document, draw(extended_patches(document))


@given(cases())
def test_the_effective_patch_makes_exactly_the_content(case):
    document, patch = case
    result = outcome(lambda: run(document, *patch, keyed=KEYED))  # where this and more is checked
    event(type(result).__name__)
    if isinstance(result, PatchError):
        assert result.operation is not None


@given(patched_documents())
def test_a_plain_patch_does_the_same_as_an_extended_one(case):
    document, patch = case
    expected = outcome(lambda: apply(document, patch))
    result = outcome(lambda: run(document, *patch).content)
    if isinstance(expected, PatchError):
        assert (result.code, result.operation) == (expected.code, expected.operation)
    else:
        assert equal(result, expected)


@given(st.lists(documents, max_size=5), documents)
def test_set_operations_are_idempotent(array, value):
    added = run(array, {"op": "add_to_set", "path": "", "value": value}).content
    assert any(equal(item, value) for item in added)
    assert run(added, {"op": "add_to_set", "path": "", "value": value}).content is added
    pulled = run(added, {"op": "pull", "path": "", "value": value}).content
    assert not any(equal(item, value) for item in pulled)
    assert run(pulled, {"op": "pull", "path": "", "value": value}).content is pulled


NUMBERS = st.integers(-9, 9) | st.floats(-9, 9) | st.sampled_from([2**53, 2**53 + 1, 2.0**53])


def of_any_order(op, path, values):
    made = {"op": op, "path": path, "create_parents": True}
    return values.map(lambda value: {**made, "value": value})


OF_ANY_ORDER = st.one_of(
    of_any_order("max", "/high", NUMBERS),
    of_any_order("min", "/box/low", NUMBERS),
    of_any_order("add_to_set", "/tags", documents),
    of_any_order("max", "/k/a/n", NUMBERS),
)


@given(
    st.sampled_from([{}, {"high": 0, "box": {"low": 0.5}, "tags": [0], "k": [{"id": "a"}]}]),
    st.lists(OF_ANY_ORDER, max_size=8),
    st.data(),
)
def test_watermarks_and_additions_to_sets_mean_the_same_in_any_order_however_often(
    before, patch, data
):
    again = data.draw(st.permutations(patch + patch[: data.draw(st.integers(0, 8))]))
    one, other = (
        {"tags": [], **run(before, *each, keyed={"/k": ["id"]}).content} for each in (patch, again)
    )
    tags, other_tags = one.pop("tags"), other.pop("tags")
    assert equal(one, other)
    assert len(tags) == len(other_tags)
    assert all(any(equal(each, tag) for tag in other_tags) for each in tags)


@given(keyed_documents, st.data())
def test_a_repeatable_operation_changes_nothing_the_second_time(document, data):
    for random in data.draw(st.lists(randoms, min_size=1, max_size=6)):
        made = extended_operation(random, document)
        if made["op"] == "append_text":
            made["once"] = True
        if made["op"] not in ("set", "max", "min", "append_text", "pull"):
            continue
        if not made["path"]:  # the stamp would be in what is set
            continue
        stamp = {"op": "stamp", "path": "/by", "value": "author", "create_parents": True}
        once = outcome(lambda: attempt(document, [made, stamp]))  # noqa: B023
        event(f"{made['op']}: {type(once).__name__}")
        if not isinstance(once, PatchError):
            twice = outcome(lambda: attempt(once.content, [made, stamp]))  # noqa: B023
            assert twice.content is once.content


def shuffled(value, seed):
    return {**value, "k": Random(seed).sample(value["k"], len(value["k"]))}


@given(keyed_documents, st.data(), st.integers(0, 99))
def test_addresses_mean_the_same_in_any_order(document, data, seed):
    patch = data.draw(extended_patches(document))
    patch = [each for each in patch if each["path"].startswith("/k/")]
    patch = [each for each in patch if each.get("from", "/k/").startswith("/k/")]
    ordered = outcome(lambda: attempt(document, patch).content)
    other = outcome(lambda: attempt(shuffled(document, seed), patch).content)
    event(type(ordered).__name__)
    if isinstance(ordered, PatchError):
        assert (type(other), other.operation) == (type(ordered), ordered.operation)
        return
    # Items may have one key in the end: a patch can set it.
    assert sorted(map(canonical, ordered["k"])) == sorted(map(canonical, other["k"]))


@given(cases(), st.booleans())
def test_a_patch_changes_nothing_outside_its_writes(case, informed):
    document, patch = case
    try:
        after = attempt(document, patch).content
    except PatchError:
        return
    touched = footprint(parse_extended(wrapped(patch)), document if informed else ABSENT)
    writes = [split_pointer(each) for each in touched.writes]
    for tokens in locations(document):
        if all(tokens[: len(each)] != each and each[: len(tokens)] != tokens for each in writes):
            assert at(after, tokens) is at(document, tokens)


@given(keyed_documents, st.data(), st.booleans())
def test_patches_that_do_not_overlap_commute(document, data, informed):
    one, two = (data.draw(extended_patches(document, max_size=2)) for _ in range(2))
    try:
        after_one, after_two = attempt(document, one).content, attempt(document, two).content
    except PatchError:
        return
    known = document if informed else ABSENT
    feet = [footprint(parse_extended(wrapped(each)), known) for each in (one, two)]
    if overlap(*feet):
        event("overlap")
        return
    event("independent")
    both = attempt(after_one, two).content
    assert equal(both, attempt(after_two, one).content)


def test_footprints_of_single_operations():
    document = {"k": [{"id": "a", "v": 1}, {"id": "b"}], "l": ["x"], "n": 1}

    def fp(operation, known=document):
        touched = footprint(extended([operation], {"/k": ["id"]}), known)
        return sorted(touched.reads), sorted(touched.writes)

    keys = ["/k/0/id", "/k/1/id"]
    assert fp({"op": "less", "path": "/n", "value": 3}) == (["/n"], [])
    assert fp({"op": "defined", "path": "/z/y"}) == (["/z"], [])
    inner = [{"op": "defined", "path": "/a"}, {"op": "test", "path": "/b/v", "value": 1}]
    assert fp({"op": "or", "path": "/k", "apply": inner}) == (["/k/0", *keys, "/k/1/v"], [])
    assert fp({"op": "defined", "path": "/k/zz"}) == (["/k", *keys], [])
    assert fp({"op": "replace", "path": "/k/b", "value": {}}) == (keys, ["/k/1"])
    assert fp({"op": "add", "path": "/k/b", "value": {}}) == (keys, ["/k/1"])
    assert fp({"op": "add", "path": "/k/zz", "value": {}}) == (keys, ["/k"])
    assert fp({"op": "remove", "path": "/k/b"}) == (keys, ["/k"])
    assert fp({"op": "add", "path": "/k/b/w", "value": 1}) == (keys, ["/k/1/w"])
    assert fp({"op": "add_to_set", "path": "/l", "value": "x"}) == (["/l"], ["/l"])
    assert fp({"op": "pull", "path": "/l", "value": "y"}) == (["/l"], ["/l"])
    assert fp({"op": "increment", "path": "/n"}) == (["/n"], ["/n"])
    assert fp({"op": "max", "path": "/n", "value": 1}) == (["/n"], ["/n"])
    assert fp({"op": "set", "path": "/l/0", "value": 1}) == (["/l/0"], ["/l/0"])
    assert fp({"op": "set", "path": "/k/zz", "value": {}}) == (["/k", *keys], ["/k"])
    assert fp({"op": "stamp", "path": "/t", "value": "time"}) == (["/t"], ["/t"])
    assert fp({"op": "remove", "path": "/z", "if_exists": True}) == (["/z"], ["/z"])
    assert fp({"op": "copy", "from": "/l/0", "path": "/l/0"}) == (["/l/0"], ["/l"])
    assert fp({"op": "move", "from": "/l/0", "path": "/l/0"}) == (["/l/0"], [])
    assert fp({"op": "move", "from": "/k/a", "path": "/k/b"})[1] == ["/k", "/k/1"]
    created = {"op": "add", "path": "/p/q", "value": 1, "create_parents": True}
    assert fp(created) == (["/p"], ["/p"])
    assert fp(created, ABSENT) == (["/p"], ["/p"])
    assert fp({"op": "remove", "path": "/k/b/w"}, ABSENT) == (["/k"], ["/k"])
    assert fp({"op": "remove", "path": "/l/0"}, ABSENT) == ([], ["/l"])


def test_every_operation_is_implemented_and_generated():
    assert set(LOWER) == {*get_args(Change), Predicate}
    assert set(CHANGES) == EXTENDED_OPERATIONS - PREDICATES_OF_THE_LANGUAGE.keys()
