"""The ask of a write, on any route, and the request that is made from it.

``read_ask`` makes it from headers and parameters; a bulk line makes it from its members. Its
conditions, preferences and idempotency key mean the same everywhere.

A repeated request gets the first answer, whatever was written since. A dry run under a used
idempotency key gets the answer that the request itself would get: the replayed one, which changes
nothing, or the refusal of another request under the same key. A dry run uses up no key. A key
decides once, whatever the outcome: a request that changed nothing, or that the state refused, gets
that answer when it is sent again. A request that was never decided isn't remembered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from gateway.access import Principal
from gateway.cpu import in_section
from gateway.decide.compares import Compare
from gateway.decide.conditions import NO_CONDITIONS, Preconditions, tag_text
from gateway.decide.edits import (
    ApplyPatch,
    Delete,
    EditAttributes,
    Get,
    KeyEdit,
    Merge,
    MoveKey,
    Put,
    Touch,
)
from gateway.decide.owning import ApplyWanted, GiveBack, LetGo
from gateway.decide.ranges import RangeDeletion, RangeReplacement, range_text
from gateway.decide.rebase import REBASE_TOKENS_MAX
from gateway.decide.request import Fence, Request, scope_of
from gateway.http.context import Context, Environ
from gateway.http.door.authorization import author_of
from gateway.http.wire.apply_terms import APPLY_MEMBERS, GIVE_BACK_MEMBERS, LET_GO_MEMBERS
from gateway.http.wire.codes import RequestRefused
from gateway.http.wire.conditions import write_conditions
from gateway.http.wire.headers import (
    Preferences,
    commit_author,
    commit_message,
    idempotency_key,
    preferences,
)
from gateway.http.wire.query import WRITE_PARAMETERS, parameters
from gateway.model import SETTINGS_KEY, Attributes, Idempotency
from gateway.service import GatewayService
from patching import ABSENT, Json, digest
from patching.values import Absent

Part = Literal["content", "attributes", "owners"]


class Verb(NamedTuple):
    """A word for a write in the ``op`` of a bulk line and the ``action`` of a transaction.

    ``edits``: the kinds of edits that it may mean. ``members``: those of its own. ``place``: the
    members that say where an action is done. ``method``: that of the route that does the same as a
    line; None if a line can't do it.
    """

    edits: tuple[type, ...]
    members: tuple[str, ...] = ()
    place: tuple[str, ...] = ("key",)
    method: str | None = None


_PATCH_MEMBERS: Final = ("patch", "array_primary_keys")
VERBS: Final[Mapping[str, Verb]] = {
    "put": Verb((Put,), ("value", "attributes"), method="PUT"),
    "patch": Verb((ApplyPatch,), _PATCH_MEMBERS, method="PATCH"),
    "merge": Verb((Merge,), ("value",), method="PATCH"),
    "apply": Verb((ApplyWanted,), ("value", *APPLY_MEMBERS), method="PATCH"),
    "let_go": Verb((LetGo,), LET_GO_MEMBERS, method="DELETE"),
    "give_back": Verb((GiveBack,), GIVE_BACK_MEMBERS, method="DELETE"),
    "delete": Verb((Delete, RangeDeletion), place=("key", "prefix"), method="DELETE"),
    "move": Verb((MoveKey,), place=("from", "to")),
    "attributes": Verb((EditAttributes,), (*_PATCH_MEMBERS, "value")),
    "touch": Verb((Touch,), place=(), method="touch"),
    "get": Verb((Get,)),
    "replace": Verb((RangeReplacement,), place=("prefix", "documents")),
}


class Ask(msgspec.Struct, frozen=True):
    """A write's target, its principal, and everything it says besides its body.

    ``part``: the part of the document that it edits. The ``key`` of a write on the catalog, or on
    several documents, is that of the settings.
    """

    by: Principal
    method: str
    catalog: str
    key: str
    conditions: Preconditions
    prefer: Preferences
    dry_run: bool
    resource_version: int | None
    idempotency_key: str | None
    message: str | None
    author: str
    part: Part = "content"
    fence: Fence | None = None

    @property
    def is_conditional(self) -> bool:
        return self.conditions is not NO_CONDITIONS or self.resource_version is not None


class Sent(msgspec.Struct, frozen=True):
    """A write's body, decoded, with its media type and its length as sent. ``attributes``: those
    sent along with a document; None keeps the old ones. ``terms``: those of an apply, of letting go
    or giving back, and of settings that aren't checked against documents."""

    body: Json | Absent
    media_type: str
    size_bytes: int
    attributes: Attributes | None = None
    terms: Json = None


NOTHING_SENT = Sent(ABSENT, "", 0)


def read_ask(
    context: Context,
    catalog: str,
    key: str = SETTINGS_KEY,
    part: Part = "content",
    params: Mapping[str, Any] | None = None,
) -> Ask:
    """The ask of a request. ``params``: its loaded parameters; None: it takes those of all writes.

    Raises RequestRefused for a malformed header or parameter, and Forbidden for an author that the
    principal may not name."""
    by, environ = context.by, context.environ
    if params is None:
        params = parameters(environ, WRITE_PARAMETERS) if environ.get("QUERY_STRING") else {}
    return Ask(
        by=by,
        method=environ["REQUEST_METHOD"],
        catalog=catalog,
        key=key,
        conditions=write_conditions(environ),
        prefer=preferences(environ),
        dry_run=params.get("dry_run", False),
        resource_version=params.get("resource_version"),
        idempotency_key=idempotency_key(environ),
        message=commit_message(environ),
        author=author_of(commit_author(environ), by, catalog),
        part=part,
    )


def with_members(
    ask: Ask, environ: Environ, message: str | None, author: str | None, dry_run: bool
) -> Ask:
    """``ask`` with a message, an author and a dry run from the body. Raises RequestRefused if a
    header contradicts them, and Forbidden."""
    named = _agreed("Commit-Author", commit_author(environ), "author", author)
    return replace(
        ask,
        message=_agreed("Commit-Message", ask.message, "message", message),
        author=author_of(named, ask.by, ask.catalog),
        dry_run=ask.dry_run or dry_run,
    )


def _agreed(header: str, said: str | None, member: str, in_body: str | None) -> str | None:
    if said is not None and in_body is not None and said != in_body:
        detail = f"{header}: it contradicts {member!r} of the body"
        raise RequestRefused("invalid_header", detail, header=header)
    return in_body or said


def request_of(
    gateway: GatewayService,
    ask: Ask,
    edits: Sequence[KeyEdit],
    sent: Sent,
    *,
    compare: tuple[Compare, ...] | None = None,
    otherwise: tuple[KeyEdit, ...] | None = None,
    checks_lists: bool = True,
) -> Request:
    """The request of ``ask``; ``compare`` None: it is no transaction. Raises RequestRefused for a
    rebase from too many tokens."""
    rebase = ask.prefer.rebase and ask.key != SETTINGS_KEY
    if rebase:
        _refuse_many_tokens(ask.conditions)
    idempotency = None
    if ask.idempotency_key is not None:
        scope = scope_of(ask.fence, ask.by.name)
        idempotency = Idempotency(scope, ask.idempotency_key, fingerprint(ask, sent))
    return gateway.request(
        ask.catalog,
        edits,
        wait_s=ask.prefer.wait_s,
        conditions=ask.conditions,
        resource_version=ask.resource_version,
        compare=compare or (),
        otherwise=otherwise,
        is_transaction=compare is not None,
        rebase=rebase,
        checks_lists=checks_lists,
        by=ask.by,
        author=ask.author,
        message=ask.message,
        idempotency=idempotency,
        once=True,
        fence=ask.fence,
        dry_run=ask.dry_run,
        size_bytes=sent.size_bytes,
    )


def _refuse_many_tokens(conditions: Preconditions) -> None:
    tags = conditions.if_match
    if tags is not None and len(tags) > REBASE_TOKENS_MAX:
        raise RequestRefused(
            "invalid_condition",
            f"If-Match: it has {len(tags)} tags; a patch can be rebased from at most"
            f" {REBASE_TOKENS_MAX}",
            header="If-Match",
        )


@in_section
def fingerprint(ask: Ask, sent: Sent) -> str:
    """A digest of what a request asks for. Equal requests have equal digests, however they are
    written, and on every route.

    It leaves out what concerns time and answer alone (wait, return, dry_run), and the message and
    author of the commit, which are those of the first request.
    """
    conditions = ask.conditions
    tokens = [
        None if each is None else sorted(map(tag_text, each))
        for each in (conditions.if_match, conditions.if_none_match)
    ]
    parts: list[Any] = [
        ask.method,
        ask.catalog,
        ask.key,
        sent.media_type,
        tokens,
        conditions.if_unmodified_since,
        ask.resource_version,
        ask.prefer.rebase,
        None,  # the message, in fingerprints of earlier versions
        [] if sent.body is ABSENT else [sent.body],
    ]
    if ask.part != "content":
        parts.append(ask.part)
    if sent.attributes is not None:
        parts.append({"attributes": sent.attributes})
    if conditions.unchanged_under:
        parts.append({"unchanged_under": sorted(map(range_text, conditions.unchanged_under))})
    if sent.terms is not None:
        parts.append({"terms": sent.terms})
    return digest(parts)
