"""Several changes of one catalog at once: all of them, or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self, Unpack

from patching import ABSENT, Json
from patching.client.results import TransactionResult
from patching.client.terms import (
    Operations,
    Token,
    Tokens,
    WriteTerms,
    operations_of,
    token_texts,
)
from patching.ownership import OnConflict
from patching.values import Absent

Relation = Literal["less", "equal", "greater"]


class Condition:
    """Compares that must all be true. Every method returns the condition."""

    def __init__(self) -> None:
        self._compares: list[dict[str, Any]] = []

    @property
    def compares(self) -> list[dict[str, Any]]:
        """As the contract's JSON."""
        return list(self._compares)

    def compare(
        self,
        key: str,
        *,
        etag: Token | None = None,
        absent: bool = False,
        unchanged_since: int | None = None,
        equals: Json | Absent = ABSENT,
        test: Operations | None = None,
    ) -> Self:
        """Require one of: the document has this token, there is none, it hasn't changed since a
        revision, it equals a value, or passes tests and predicates. ValueError otherwise."""
        demands: dict[str, Any] = {}
        if etag is not None:
            demands["etag"] = token_texts(etag)[0]
        if absent:
            demands["absent"] = True
        if unchanged_since is not None:
            demands["unchanged_since"] = unchanged_since
        if equals is not ABSENT:
            demands["equals"] = equals
        if test is not None:
            demands["test"] = list(test)
        if len(demands) != 1:
            names = "etag, absent, unchanged_since, equals and test"
            raise ValueError(f"a compare needs exactly one of {names}")
        self._compares.append({"key": key, **demands})
        return self

    def compare_range(
        self,
        prefix: str,
        *,
        unchanged_since: int | None = None,
        absent: bool = False,
        count: Mapping[Relation, int] | None = None,
    ) -> Self:
        """Require, of all documents whose keys begin with ``prefix``, one of: none was created,
        changed or deleted since a revision; there are none; or their number is ``count``:
        ``{"less": 10}``, ``equal`` or ``greater``. ValueError otherwise."""
        demands: dict[str, Any] = {}
        if unchanged_since is not None:
            demands["unchanged_since"] = unchanged_since
        if absent:
            demands["absent"] = True
        if count is not None:
            demands["count"] = dict(count)
        if len(demands) != 1:
            names = "unchanged_since, absent and count"
            raise ValueError(f"a compare of a range needs exactly one of {names}")
        self._compares.append({"prefix": prefix, **demands})
        return self

    def compare_revision(self, revision: int) -> Self:
        """Require that the catalog is at this revision."""
        self._compares.append({"resource_version": revision})
        return self


class Branch:
    """Actions, done in order, each on what the earlier ones left. Every method returns the branch.

    ``when`` gives the actions after it a condition of their own::

        transaction.then.when(Condition().compare("a", absent=True)).put("a", 1).always().touch()

    ``nothing`` gives an ``otherwise`` without actions: a false compare then isn't an error.
    """

    def __init__(self) -> None:
        self._actions: list[dict[str, Any]] = []
        self._is_given = False
        self._when: list[dict[str, Any]] = []

    def when(self, condition: Condition) -> Self:
        """Do each action from here on only if ``condition`` is true of what the earlier ones have
        left; otherwise it is left out, and its result says so. ValueError for an empty
        condition."""
        if not condition.compares:
            raise ValueError("the condition is empty: give it at least one compare")
        self._when = condition.compares
        return self

    def always(self) -> Self:
        """Do the actions from here on without a condition of their own."""
        self._when = []
        return self

    def put(self, key: str, value: Json, *, attributes: Mapping[str, Any] | None = None) -> Self:
        """Create or replace; ``attributes``: None keeps them, ``{}`` clears them, else these."""
        action = {"action": "put", "key": key, "value": value}
        if attributes is not None:
            mode = {"mode": "replace", "value": attributes} if attributes else {"mode": "clear"}
            action["attributes"] = mode
        return self._add(action)

    def patch(
        self,
        key: str,
        operations: Operations,
        *,
        array_primary_keys: Mapping[str, Sequence[str]] | None = None,
    ) -> Self:
        """Apply a JSON Patch, or an extended one."""
        action: dict[str, Any] = {"action": "patch", "key": key, "patch": operations_of(operations)}
        if array_primary_keys is not None:
            action["array_primary_keys"] = array_primary_keys
        return self._add(action)

    def merge(self, key: str, value: Json) -> Self:
        """Apply a merge patch (RFC 7396)."""
        return self._add({"action": "merge", "key": key, "value": value})

    def apply(
        self,
        key: str,
        wanted: Mapping[str, Any],
        *,
        manager: str | None = None,
        conflict: OnConflict = "refuse",
        force: Sequence[str] = (),
    ) -> Self:
        """As `Catalog.apply`."""
        action: dict[str, Any] = {"action": "apply", "key": key, "value": wanted}
        action |= {"conflict": conflict, "force": list(force)}
        return self._add(action if manager is None else {**action, "manager": manager})

    def let_go(self, key: str, *, manager: str | None = None, prune: bool = False) -> Self:
        """As `Catalog.let_go`."""
        action: dict[str, Any] = {"action": "let_go", "key": key, "prune": prune}
        return self._add(action if manager is None else {**action, "manager": manager})

    def give_back(self, key: str, *pointers: str) -> Self:
        """As `Catalog.give_back`."""
        return self._add({"action": "give_back", "key": key, "pointers": list(pointers)})

    def delete(self, key: str) -> Self:
        """Delete the document."""
        return self._add({"action": "delete", "key": key})

    def delete_range(self, prefix: str) -> Self:
        """Delete all documents whose keys begin with ``prefix``."""
        return self._add({"action": "delete", "prefix": prefix})

    def replace_range(self, prefix: str, documents: Mapping[str, Json]) -> Self:
        """Make these ``documents``, by key, the only ones under ``prefix``. Those that exist
        already keep their attributes."""
        return self._add({"action": "replace", "prefix": prefix, "documents": documents})

    def move(self, key: str, to: str) -> Self:
        """Move it to the key ``to``; refused (Conflict) if there is a document already."""
        return self._add({"action": "move", "from": key, "to": to})

    def attributes(self, key: str, value: Mapping[str, Any]) -> Self:
        """Replace the attributes of a document that exists."""
        return self._add({"action": "attributes", "key": key, "value": value})

    def touch(self) -> Self:
        """Commit even if no document changes."""
        return self._add({"action": "touch"})

    def get(self, key: str) -> Self:
        """Have the document, as the whole transaction leaves it, in the results."""
        return self._add({"action": "get", "key": key})

    def nothing(self) -> Self:
        """Add no action, but use the branch."""
        self._is_given = True
        return self

    @property
    def actions(self) -> list[dict[str, Any]] | None:
        """As the contract's JSON; None if nothing was called."""
        return list(self._actions) if self._is_given else None

    def _add(self, action: dict[str, Any]) -> Self:
        self._actions.append({**action, "if": self._when} if self._when else action)
        return self.nothing()


class TransactionDraft(Condition):
    """What a transaction is to do: compares, and the actions of both branches."""

    def __init__(self) -> None:
        super().__init__()
        self.then = Branch()
        self.otherwise = Branch()

    @property
    def body(self) -> dict[str, Any]:
        """The transaction as the contract's JSON."""
        body: dict[str, Any] = {"compare": self.compares, "then": self.then.actions or []}
        if self.otherwise.actions is not None:
            body["else"] = self.otherwise.actions
        return body


class Transaction(TransactionDraft):
    """If every compare is true, ``then`` is done, as one commit; else ``otherwise``::

        transaction = catalog.transaction()
        transaction.compare("info", etag=info).compare("names/new", absent=True)
        transaction.then.move("names/old", "names/new").touch()
        transaction.otherwise.get("info")
        result = transaction.run(message="rename")

    If ``otherwise`` isn't used, a false compare raises PreconditionFailed.
    """

    def __init__(self, transact: Callable[..., TransactionResult]) -> None:
        super().__init__()
        self._transact = transact

    def run(
        self, *, if_match: Tokens | None = None, **terms: Unpack[WriteTerms]
    ) -> TransactionResult:
        """``if_match``: a composite or the catalog's tag, for instance what `several` returned."""
        return self._transact(self.body, if_match=if_match, **terms)
