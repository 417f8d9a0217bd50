"""What every generated client has to be able to do, and what each of them must observe.

Clients in Python run `run` by an adapter; the one in TypeScript says the same in its own words
(typescript/scenario.ts). All of them are compared with `EXPECTED`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol

KEY: Final = "tables/orders"

EXPECTED: Final[dict[str, Any]] = {
    "create": [201, True, 1, KEY],
    "read": [200, {"name": "orders", "fields": ["id"], "owner": None}],
    "not_modified": 304,
    "patch": [200, True, None],
    "failed_test": [409, "test_failed", "no", False, 0, "/name", "customers", "orders"],
    "compare_and_set": [200, 412, "precondition_failed", True, ["put"]],
    "transaction": [True, True, [["patch", KEY, True], ["put", "tables/clients", True]]],
    "attributes": [True, "sales"],
    "bodies": [[True, {"name": "Ann", "team": "a", "n": 3}], [["/team", "nightly"]]],
    "bulk": [[201, True], [200, True], [200, True], [409, "owned_by_others"]],
    "listing": [[["tables/clients", {"name": "clients"}], [KEY, {"name": "orders", "n": 2}]], None],
    "history": [
        [
            [1, [[KEY, "put"]]],
            [2, [[KEY, "patch"]]],
            [3, [[KEY, "put"]]],
            [4, [[KEY, "patch"], ["tables/clients", "put"]]],
        ],
        ["add", "add"],
    ],
}


class Reply(NamedTuple):
    """`parsed` is what the client made of the body: an instance of one of its models, or a value.

    `headers` are found whatever their case.
    """

    status: int
    headers: Any
    parsed: Any


class Client(Protocol):
    """A generated client in Python."""

    def call(self, operation: str, tag: str, **arguments: Any) -> Reply:
        """The operation of that id. The body goes by the name `body`; refusals are replies, too."""

    def lines(self, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The answers to a bulk request of these lines."""

    def model(self, name: str, **members: Any) -> Any:
        """An instance of the class that was made of the schema of this name."""

    def plain(self, value: Any) -> Any:
        """An enum member as its value, a member that was left out as None."""


def run(client: Client, catalog: str) -> dict[str, Any]:
    """What the client observed, in the shape of `EXPECTED`; the catalog must not exist."""
    documents = _Documents(client, catalog)
    return {
        **documents.written_and_read(),
        "failed_test": documents.failed_test(),
        "compare_and_set": documents.compare_and_set(),
        "transaction": _transaction(client, catalog),
        "attributes": _attributes(client, f"{catalog}, attributes"),
        "bodies": _bodies(client, f"{catalog}, bodies"),
        "bulk": _bulk(client, f"{catalog}, bodies"),
        "listing": _listing(client, catalog),
        "history": _history(client, catalog),
    }


class _Documents:
    def __init__(self, client: Client, catalog: str) -> None:
        self._client = client
        self._catalog = catalog

    def _call(self, operation: str, **arguments: Any) -> Reply:
        named = {"catalog": self._catalog, "key": KEY}
        return self._client.call(operation, "documents", **named, **arguments)

    def written_and_read(self) -> dict[str, Any]:
        model = self._client.model
        value = {"name": "orders", "fields": ["id"], "owner": None}
        created = self._call("put_document", body=value, if_none_match="*")
        read = self._call("read_document")
        again = self._call("read_document", if_none_match=read.headers["ETag"])
        patched = self._call(
            "patch_document",
            body=[
                model("TestOperation", op="test", path="/name", value="orders"),
                model("AddOperation", op="add", path="/fields/-", value="total"),
                model("AddOperation", op="add", path="/limits", value={"rows": None}),
            ],
        )
        first = created.parsed
        return {
            "create": [created.status, first.changed, first.revision, first.key],
            "read": [read.status, read.parsed],
            "not_modified": again.status,
            "patch": [patched.status, patched.parsed.changed, patched.parsed.rebased_from],
        }

    def failed_test(self) -> list[Any]:
        test = self._client.model("TestOperation", op="test", path="/name", value="customers")
        refused = self._call("patch_document", body=[test])
        problem = refused.parsed
        said = (problem.code, problem.applied, problem.retryable, problem.operation)
        found = (problem.pointer, problem.expected, problem.actual)
        return [refused.status, *map(self._client.plain, (*said, *found))]

    def compare_and_set(self) -> list[Any]:
        token = self._call("read_document").headers["ETag"]
        won = self._call("put_document", body={"name": "orders", "n": 1}, if_match=token)
        lost = self._call("put_document", body={"name": "orders", "n": 2}, if_match=token)
        problem = lost.parsed
        return [
            won.status,
            lost.status,
            problem.code,
            problem.current.etag == won.parsed.etag,
            [each.action for each in problem.changes_since],
        ]


def _transaction(client: Client, catalog: str) -> list[Any]:
    less = client.model("ExtendedOperation", op="less", path="/n", value=5)
    increment = client.model("ExtendedOperation", op="increment", path="/n")
    actions = [
        client.model("PatchAction", action="patch", key=KEY, patch=[increment]),
        client.model("PutAction", action="put", key="tables/clients", value={"name": "clients"}),
    ]
    transaction = client.model(
        "Transaction",
        compare=[
            client.model("Compare", key=KEY, test=[less]),
            client.model("Compare", key="tables/clients", absent=True),
        ],
        then=actions,
    )
    answer = client.call(
        "run_transaction", "transactions", catalog=catalog, body=transaction
    ).parsed
    results = [[each.action, each.key, each.exists] for each in answer.results]
    return [answer.succeeded, answer.changed, results]


def _attributes(client: Client, catalog: str) -> list[Any]:
    """Members of any name, beside the one that the file has."""
    named = {"catalog": catalog, "key": KEY}
    client.call("put_document", "documents", **named, body=1)
    given = client.model("Attributes", team="sales")
    written = client.call("put_attributes", "documents", **named, body=given).parsed
    read = client.call("read_attributes", "documents", **named).parsed
    return [written.changed, read["team"]]


def _bodies(client: Client, catalog: str) -> list[Any]:
    """The kinds of patches beside RFC 6902's, each an action with a type of its own."""
    model = client.model
    increment = model("ExtendedOperation", op="increment", path="/n", value=2)
    wanted = {"team": "a"}
    transaction = model(
        "Transaction",
        then=[
            model("PutAction", action="put", key=KEY, value={"name": "ann", "n": 1}),
            model("MergeAction", action="merge", key=KEY, value={"name": "Ann"}),
            model("PatchAction", action="patch", key=KEY, patch=[increment]),
            model("ApplyAction", action="apply", key=KEY, value=wanted, manager="nightly"),
        ],
    )
    answer = client.call("run_transaction", "transactions", catalog=catalog, body=transaction)
    read = client.call("read_document", "documents", catalog=catalog, key=KEY)
    owners = client.call("read_owners", "documents", catalog=catalog, key=KEY).parsed
    owned = [[each.pointer, each.owners[0].manager] for each in owners.owners]
    named = [each for each in owned if each[1] == "nightly"]
    return [[answer.parsed.succeeded, read.parsed], named]


def _bulk(client: Client, catalog: str) -> list[Any]:
    named = {"catalog": catalog, "key": "bulk"}
    answers = client.lines(
        [
            {**named, "op": "put", "value": {"n": 1}},
            {**named, "op": "merge", "value": {"n": 2}},
            {**named, "op": "apply", "value": {"n": 3}, "manager": "nightly"},
            {**named, "op": "apply", "value": {"n": 4}, "manager": "weekly"},
        ]
    )
    return [[each["status"], each.get("changed") or each["problem"]["code"]] for each in answers]


def _listing(client: Client, catalog: str) -> list[Any]:
    asked = {"catalog": catalog, "prefix": "tables/", "limit": 10}
    page = client.call("list_documents", "catalogs", **asked).parsed
    return [[[each.key, each.value] for each in page.documents], _next(page)]


def _history(client: Client, catalog: str) -> list[Any]:
    page = client.call("list_commits", "history", catalog=catalog, after=0).parsed
    commits = [
        [each.revision, [[change.key, change.action] for change in each.changes]]
        for each in page.commits
    ]
    (change,) = page.commits[1].changes
    return [commits, [client.plain(operation).op for operation in change.patch]]


def _next(page: Any) -> Any:
    """Python's own `next` makes a generator put an underscore behind the name."""
    return page.next_ if hasattr(page, "next_") else page.next
