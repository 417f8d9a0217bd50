"""Random histories of one catalog, through two gateways, against a plain model of what is written.

The model is a dict of documents. It knows nothing of heads, tails, caches or logs; patches are made
by the library `jsonpatch`. Each write is chosen as actions of a transaction, and sent as one, by
its own route, or as lines of a bulk request. `python -m tests.http.test_random_histories SEED …`
plays more of them, on an embedded MongoDB.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote, urlencode

import jsonpatch
import pytest
from jsonpointer import JsonPointerException

from gateway.http import create_app
from gateway.limits import ServiceLimits
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.contract import Store
from gateway.store.embedded import EmbeddedMongod
from gateway.store.mongodb import connect
from tests.http.conftest import JSON_PATCH, MERGE_PATCH
from tests.memory_store import MemoryStore
from tests.patience import WAIT_MS
from tests.simulation.model_patches import merged

KEYS = ("a", "b", "t/a", "t/b", "t/b/c", "~/%", "é")
PREFIXES = ("", "t/", "t/b", "z")
NAMES = ("a", "b", "d/e", "~", "")
# `jsonpatch` takes True for 1.
SCALARS = (None, True, "", "x", "é", 2, -1, 1.5, 10**12)
MANAGERS = ("nightly", "hourly")
APPLY = "application/vnd.metadata.apply+json"

Documents = dict[str, dict[str, Any]]  # by key: "value", and "attributes" if there are any


class Refused(Exception):
    """An action doesn't fit; the documents may be half changed."""


def perform(documents: Documents, action: Mapping[str, Any]) -> None:
    """Change `documents` as `action` does."""
    if not all(_holds(documents, each) for each in action.get("if", ())):
        return
    name, key, value = action["action"], action.get("key"), deepcopy(action.get("value"))
    if name in ("patch", "merge", "attributes") and key not in documents:
        raise Refused
    if name == "put":
        documents.setdefault(key, {})["value"] = value
        attributes = action.get("attributes", {"mode": "keep"})
        if attributes["mode"] == "replace":
            documents[key]["attributes"] = deepcopy(attributes["value"])
    elif name == "attributes":
        documents[key]["attributes"] = value
    elif name == "merge":
        documents[key]["value"] = merged(documents[key]["value"], value)
    elif name == "patch":
        documents[key]["value"] = _patched(documents[key]["value"], action["patch"])
    elif name == "move":
        if action["from"] not in documents or action["to"] in documents:
            raise Refused
        documents[action["to"]] = documents.pop(action["from"])
    elif "prefix" in action:
        kept = action.get("documents", {})
        for each in [each for each in documents if each.startswith(action["prefix"])]:
            if each not in kept:
                del documents[each]
        for each, content in kept.items():
            documents.setdefault(each, {})["value"] = deepcopy(content)
    else:
        documents.pop(key, None)


def _holds(documents: Documents, compare: Mapping[str, Any]) -> bool:
    if "key" in compare:
        return compare["key"] not in documents
    found = sum(each.startswith(compare["prefix"]) for each in documents)
    ((how, count),) = compare["count"].items()
    return bool({"less": found < count, "equal": found == count, "greater": found > count}[how])


def _patched(value: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    try:
        return jsonpatch.apply_patch(value, operations)
    except (jsonpatch.JsonPatchException, JsonPointerException, TypeError, KeyError) as error:
        raise Refused from error


def _places(value: Any, pointer: str = "") -> Iterable[tuple[str, Any]]:
    yield pointer, value
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _places(each, f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _places(each, f"{pointer}/{index}")


class History:
    """One catalog's history as it is made, and as the model has it."""

    def __init__(self, clients: Sequence[Any], seed: int) -> None:
        self.random = Random(seed)
        self.clients = clients
        self.name = f"history-{seed}"
        self.head = 0
        self.head_seen = 0  # by the last look at the newest state
        self.documents: Documents = {}
        self.states: dict[int, Documents] = {0: {}}
        self.owned: dict[int, dict[str, Any]] = {0: {}}

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """The answer of one of the gateways, which is never its failure."""
        where = path if path.startswith("/v1") else f"/v1/catalogs/{self.name}{path}"
        sent = {} if method in ("GET", "DELETE") else {"data": _encoded(body), "content_type": kind}
        answer = self.random.choice(self.clients).open(where, method=method, **sent)
        assert answer.status_code < 500, (method, path, body, answer.text)
        assert answer.status_code != 400, (method, path, body, answer.text)
        return answer

    def look(self, revision: int | None = None) -> Documents:
        asked = {"limit": 1000} | ({} if revision is None else {"revision": revision})
        answer = self.ask("GET", f"/documents?{urlencode(asked)}")
        if answer.status_code == 404:
            return {}
        if revision is None:
            self.head_seen = int(answer.headers["Catalog-Revision"])
        return {each["key"]: _shown(each) for each in answer.get_json()["documents"]}

    # What is chosen.

    def value(self, depth: int = 0) -> Any:
        kind = self.random.random()
        if depth > 2 or kind < 0.4:
            return self.random.choice(SCALARS)
        if kind < 0.6:
            return [self.value(depth + 1) for _ in range(self.random.randrange(4))]
        return self.object(depth + 1)

    def object(self, depth: int = 1) -> dict[str, Any]:
        return {
            self.random.choice(NAMES): self.value(depth) for _ in range(self.random.randrange(1, 4))
        }

    def action(self, documents: Documents) -> dict[str, Any]:
        """Any action; most of them fit `documents`."""
        key = self.random.choice(KEYS)
        there = self.random.choice([*documents, key])
        made: dict[str, Any]
        match self.random.randrange(10):
            case 0 | 1:
                made = {"action": "put", "key": key, "value": self.value()}
                if self.random.random() < 0.4:
                    made["attributes"] = {"mode": "replace", "value": self.object()}
            case 2 | 3:
                made = {"action": "patch", "key": there}
                made["patch"] = self.patch(documents.get(there, {"value": {}})["value"])
            case 4:
                made = {"action": "merge", "key": there, "value": self.object()}
            case 5:
                made = {"action": "delete", "key": there}
            case 6 | 9:
                made = {"action": "attributes", "key": there, "value": self.object()}
            case 7:
                other = self.random.choice([each for each in KEYS if each != there])
                made = {"action": "move", "from": there, "to": other}
            case _:
                prefix = self.random.choice(PREFIXES[1:])
                made = {"action": self.random.choice(["delete", "replace"]), "prefix": prefix}
                if made["action"] == "replace":
                    kept = [each for each in KEYS if each.startswith(prefix)]
                    chosen = self.random.sample(kept, self.random.randrange(len(kept) + 1))
                    made["documents"] = {each: self.value() for each in chosen}
        if self.random.random() < 0.2:
            made["if"] = [self.compare()]
        return made

    def compare(self) -> dict[str, Any]:
        if self.random.random() < 0.5:
            return {"key": self.random.choice(KEYS), "absent": True}
        count = {self.random.choice(["less", "equal", "greater"]): self.random.randrange(4)}
        return {"prefix": self.random.choice(PREFIXES), "count": count}

    def patch(self, value: Any) -> list[dict[str, Any]]:
        """One to three operations, of which the last may not fit."""
        made: list[dict[str, Any]] = []
        for _ in range(self.random.randrange(1, 4)):
            places = [each for each in _places(value) if each[0]]
            if not places:
                break
            (path, found), (other, _) = self.random.choice(places), self.random.choice(places)
            if isinstance(found, dict):
                inside = f"{path}/n"
            else:
                inside = f"{path}/-" if isinstance(found, list) else path
            operation = self.random.choice(
                [
                    {"op": "test", "path": path, "value": found},
                    {"op": "replace", "path": path, "value": self.value(1)},
                    {"op": "add", "path": inside, "value": self.value(1)},
                    {"op": "remove", "path": path},
                    {"op": "copy", "from": other, "path": path},
                    {"op": "move", "from": path, "path": other},
                ]
            )
            if operation["op"] == "move" and f"{other}/".startswith(f"{path}/"):
                continue
            made.append(operation)
            try:
                value = _patched(value, [operation])
            except Refused:
                break
        return made or [{"op": "test", "path": "", "value": value}]

    # What is done.

    def begin(self) -> None:
        self.ask("PUT", "/documents/a", 2)
        self.documents = {"a": {"value": 2}}
        self.head = 1
        self.remember()

    def step(self) -> None:
        before = self.documents
        match self.random.randrange(13):
            case 0:
                self.revert()
            case 1 | 12:
                self.undo()
            case 2 | 3 | 4:
                self.own()
            case 5:
                self.lines()
            case 6 | 7 | 8:
                self.one()
            case _:
                self.transaction()
        assert self.look() == self.documents
        changed = self.documents != before
        assert self.head <= self.head_seen
        assert changed <= (self.head_seen > self.head)
        self.head = self.head_seen
        self.remember()

    def remember(self) -> None:
        state = self.states.setdefault(self.head, deepcopy(self.documents))
        assert state == self.documents, f"revision {self.head} has changed"
        self.owned[self.head] = {key: self.owners(key) for key in self.documents}

    def owners(self, key: str, query: str = "") -> list[Any]:
        answer = self.ask("GET", f"/owners/{quote(key, safe='')}{query}").get_json()
        owners = [
            (place["pointer"], each) for place in answer["owners"] for each in place["owners"]
        ]
        return sorted((each["manager"], each["plain"], pointer) for pointer, each in owners)

    def expect(self, answer: Any, after: Documents | None) -> None:
        """`after` is None where the write is refused."""
        assert (answer.status_code < 300) == (after is not None), (answer.request.path, answer.text)
        if after is not None:
            self.documents = after

    def after(self, actions: Sequence[Mapping[str, Any]]) -> Documents | None:
        documents = deepcopy(self.documents)
        try:
            for each in actions:
                perform(documents, each)
        except Refused:
            return None
        return documents

    def transaction(self) -> None:
        actions: list[dict[str, Any]] = []
        for _ in range(self.random.randrange(1, 5)):
            chosen = self.action(self.after(actions) or {})
            if chosen["action"] == "delete" and "key" in chosen:
                chosen["if"] = [{"prefix": chosen["key"], "count": {"greater": 0}}]
            actions.append(chosen)
        compare = [self.compare()] if self.random.random() < 0.3 else []
        holds = all(_holds(self.documents, each) for each in compare)
        sent = {"compare": compare, "then": actions, "else": []}
        answer = self.ask("POST", "/transactions", sent)
        self.expect(answer, self.after(actions) if holds else deepcopy(self.documents))

    def one(self) -> None:
        action = self.action(self.documents)
        action.pop("if", None)
        if "key" not in action or "attributes" in action:
            return
        name, key = action["action"], quote(action["key"], safe="")
        method = {"put": "PUT", "delete": "DELETE", "attributes": "PUT"}.get(name, "PATCH")
        kind = {"patch": JSON_PATCH, "merge": MERGE_PATCH}.get(name, "application/json")
        body = action["patch"] if name == "patch" else action.get("value")
        dry = self.random.random() < 0.1
        place = "attributes" if name == "attributes" else "documents"
        answer = self.ask(method, f"/{place}/{key}{'?dry_run=true' * dry}", body, kind)
        after = self.after([action])
        if name == "delete" and after == self.documents:
            return  # it may say that there is no such document
        self.expect(answer, deepcopy(self.documents) if dry and after is not None else after)

    def lines(self) -> None:
        sent = []
        for _ in range(self.random.randrange(1, 6)):
            action = self.action(self.documents)
            if action["action"] in ("put", "patch", "merge") and "if" not in action:
                sent.append({"catalog": self.name, "op": action.pop("action"), **action})
        if not sent:
            return
        body = "\n".join(json.dumps(each) for each in sent).encode()
        answer = self.ask("POST", "/v1/bulk", body, "application/x-ndjson")
        answers = [each for each in map(json.loads, answer.text.splitlines()) if "index" in each]
        for line, told in zip(sent, answers, strict=True):
            after = self.after([{**line, "action": line["op"]}])
            assert (told["status"] < 300) == (after is not None), (line, told)
            self.documents = self.documents if after is None else after

    def own(self) -> None:
        """Applies and what gives up: nothing else changes than what the manager wants."""
        key, manager = self.random.choice(KEYS), self.random.choice(MANAGERS)
        place = f"documents/{quote(key, safe='')}?manager={manager}"
        there = self.documents.get(key, {}).get("value")
        wanted = self.object()
        if isinstance(there, dict) and self.random.random() < 0.6:
            wanted = deepcopy(there)
        if self.random.random() < 0.2:
            self.ask("DELETE", f"/{place.replace('documents', 'owners')}")
        else:
            conflict = self.random.choice(["refuse", "skip", "force"])
            answer = self.ask("PATCH", f"/{place}&conflict={conflict}", wanted, APPLY)
            if answer.status_code < 300 and not answer.get_json().get("skipped"):
                places = dict(_places(self.look()[key]["value"]))
                for pointer, value in _places(wanted):
                    found = places[pointer]
                    assert isinstance(found, dict) if isinstance(value, dict) else found == value
        now = self.look()
        assert {**now, key: None} == {**self.documents, key: None}
        self.documents = now

    def undo(self) -> None:
        """The last commit."""
        if self.head - 1 in self.owned:
            asked = self.random.choice([{"revisions": [self.head]}, {"to": self.head - 1}])
            self.undone(asked, self.head - 1)

    def revert(self) -> None:
        to = self.random.choice(list(self.states))
        prefix = self.random.choice(PREFIXES)
        self.undone({"to": to, "prefix": prefix}, to, prefix)

    def undone(self, asked: Mapping[str, Any], to: int, prefix: str = "") -> None:
        answer = self.ask("POST", "/reverts", asked)
        then = self.states[to].items()
        kept = {key: each for key, each in self.documents.items() if not key.startswith(prefix)}
        self.expect(answer, kept | {key: each for key, each in then if key.startswith(prefix)})
        for key, owners in self.owned[to].items():
            assert not key.startswith(prefix) or self.owners(key) == owners

    # What is looked at in the end.

    def look_back(self) -> None:
        for revision, documents in self.states.items():
            if revision:
                assert self.look(revision) == documents
            for key, owners in self.owned[revision].items():
                assert self.owners(key, f"?revision={revision}") == owners
        for _ in range(5):
            self.differ(*self.random.choices(list(self.states), k=2))
        self.follow()

    def differ(self, first: int, last: int) -> None:
        documents = deepcopy(self.states[first])
        asked: dict[str, Any] | None = {"from": first, "to": last, "limit": 2}
        while asked is not None:
            answer = self.ask("GET", f"/differences?{urlencode(asked)}").get_json()
            for each in answer["differences"]:
                key = each["key"]
                if each["change"] == "deleted":
                    assert documents.pop(key) == _shown(each)
                elif each["change"] == "created":
                    documents[key] = _shown(each)
                else:
                    was = documents[key]
                    attributes = _patched(was.get("attributes", {}), each["attributes_patch"])
                    value = _patched(was["value"], each["patch"])
                    documents[key] = _shown({"value": value, "attributes": attributes})
            asked = answer["next"] and asked | answer["next"]
        assert documents == self.states[last]

    def follow(self) -> None:
        """Replay the feed."""
        documents: Documents = {}
        owned: dict[str, list[Any]] = {}
        revision = 0
        while revision < self.head:
            asked = f"after={revision}&timeout=0&limit={self.random.choice([1, 3, 50])}"
            commits = self.ask("GET", f"/changes?{asked}").get_json()["commits"]
            for commit in commits:
                assert commit["revision"] == revision + 1
                revision = commit["revision"]
                for change in commit["changes"]:
                    _follow(documents, owned, change, revision)
                assert documents == self.states.get(revision, documents)
                now = {key: owners for key, owners in owned.items() if owners}
                then = self.owned.get(revision)
                assert then is None or now == {key: each for key, each in then.items() if each}


def _follow(
    documents: Documents, owned: dict[str, list[Any]], change: Mapping[str, Any], revision: int
) -> None:
    key = change["key"]
    if change["action"] == "delete" or change["create_revision"] == revision:
        owned.pop(key, None)
    if change["action"] == "delete":
        del documents[key]
        return
    was = documents.get(key, {})
    value = _patched(was.get("value"), change["patch"] or [])
    kept = was.get("attributes") if change["attributes"] is None else change["attributes"]
    documents[key] = _shown({"value": value, "attributes": kept})
    owners = {tuple(each) for each in owned.get(key, ())}
    for each in change.get("owners", ()):
        who = each["manager"], each["plain"]
        lost = {(*who, pointer) for pointer in each["lost"]}
        assert lost <= owners
        owners = owners - lost | {(*who, pointer) for pointer in each["gained"]}
    owned[key] = sorted(owners)


def _shown(document: Mapping[str, Any]) -> dict[str, Any]:
    shown = {"value": document["value"], "attributes": document.get("attributes")}
    return {name: each for name, each in shown.items() if name == "value" or each}


def _encoded(body: Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def play(stores: Sequence[Store], seed: int, steps: int) -> History:
    """A history through one gateway for each of `stores`, which have one database."""
    gateways = [GatewayService(each, ThreadRuntime(), ServiceLimits()) for each in stores]
    history = History([create_app(each).test_client() for each in gateways], seed)
    history.begin()
    for _ in range(steps):
        history.step()
    history.look_back()
    return history


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_history_matches_the_model(seed: int) -> None:
    store = MemoryStore()
    assert play([store, store], seed, 80).head > 40


def test_a_history_in_mongodb_matches_the_model(mongodb_uri: str, database_name: str) -> None:
    stores = [connect(mongodb_uri, database_name, timeout_ms=WAIT_MS) for _ in range(2)]
    assert play(stores, 4, 80).head > 40


def main(seeds: Sequence[str]) -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        EmbeddedMongod(Path(directory)) as mongod,
    ):
        for seed in map(int, seeds):
            database = f"histories_{seed}"
            stores = [connect(mongod.uri, database, timeout_ms=WAIT_MS) for _ in range(2)]
            print(f"seed {seed}: {play(stores, seed, 150).head} revisions", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
