"""The commands that write: `put`, `patch`, `delete`, `transaction`, `revert` and `compact`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click

from gateway.cli.command import ClientCommand, Session
from gateway.cli.names import CATALOG, JSON, KEY, RANGE, REVISION, TEST
from gateway.cli.reading import without_documents
from patching import ABSENT
from patching.client import RequestError, Written
from patching.client.results import ActionResult, SkippedPlace
from patching.client.terms import WriteTerms, new_idempotency_key
from patching.command_line import together

_PATCH_MEMBERS = ("patch", "array_primary_keys")  # of an extended patch

# The options of every write, which `writing` takes.
write_options = together(
    click.option("-m", "--message", metavar="TEXT", help="Message of the commit."),
    click.option("--dry-run", is_flag=True, help="Decide and answer, but write nothing."),
    click.option(
        "--if-unchanged-under",
        type=RANGE,
        multiple=True,
        help="Write only if since REVISION no document was created, changed or deleted whose key"
        " begins with PREFIX. Repeatable.",
    ),
    click.option(
        "--idempotency-key",
        metavar="KEY",
        help="Name of this write: the gateway applies it once. Default: a new one.",
    ),
)


@contextmanager
def writing(
    message: str | None,
    dry_run: bool,
    idempotency_key: str | None,
    if_unchanged_under: Sequence[tuple[str, int]],
) -> Iterator[WriteTerms]:
    """The terms of a write, with a new idempotency key unless one is given; a dry run needs none.
    The client's own refusals become usage errors, and an error of unknown outcome names the key."""
    if idempotency_key is None and not dry_run:
        idempotency_key = new_idempotency_key()
    try:
        yield {
            "message": message,
            "dry_run": dry_run,
            "idempotency_key": idempotency_key,
            "if_unchanged_under": dict(if_unchanged_under) or None,
        }
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except RequestError as error:
        if error.applied == "unknown":
            said = (
                f"send it again with --idempotency-key {idempotency_key}: it is applied once only"
            )
            error.detail += f"; {said}"
        raise


_if_match = click.option(
    "--if-match",
    metavar="TOKEN",
    help="Write only if the document still has this token; * for any.",
)
_attributes = click.option(
    "--attributes", is_flag=True, help="Write the document's attributes instead."
)


@click.command("put", cls=ClientCommand)
@click.argument("catalog", type=CATALOG)
@click.argument("key", type=KEY)
@click.argument("value", type=JSON)
@_if_match
@click.option("--if-absent", is_flag=True, help="Write only if there is no such document.")
@_attributes
@write_options
@click.pass_obj
def put(
    session: Session,
    /,
    catalog: str,
    key: str,
    value: Any,
    if_match: str | None,
    if_absent: bool,
    attributes: bool,
    **given: Any,
) -> None:
    """Create or replace a document.

    VALUE is JSON, @FILE, or - for standard input. The answer contains the new token.
    Without a condition, the last writer wins. If the document already equals VALUE, nothing
    changes.
    """
    if if_match is not None and if_absent:
        raise click.UsageError("--if-match and --if-absent can't be given together")
    if attributes and if_absent:
        raise click.UsageError("--attributes needs an existing document: leave --if-absent out")
    with writing(**given) as write:
        part = session.part(catalog, attributes)
        written = part.put(key, value, if_match=if_match, if_absent=if_absent, **write)
    answer(session, catalog, written)


@click.command("patch", cls=ClientCommand)
@click.argument("catalog", type=CATALOG)
@click.argument("key", type=KEY)
@click.argument("operations", type=JSON)
@click.option("--merge", is_flag=True, help="OPERATIONS is a merge patch, RFC 7396.")
@_if_match
@click.option(
    "--rebase",
    is_flag=True,
    help="With --if-match: apply it even if others changed other parts.",
)
@click.option(
    "--test",
    "tests",
    type=TEST,
    multiple=True,
    help="Write only if the value at POINTER is JSON, as in /name='\"orders\"'. Repeatable.",
)
@_attributes
@write_options
@click.pass_obj
def patch(
    session: Session,
    /,
    catalog: str,
    key: str,
    operations: Any,
    merge: bool,
    if_match: str | None,
    rebase: bool,
    tests: Sequence[dict[str, Any]],
    attributes: bool,
    **given: Any,
) -> None:
    """Change a document by a patch.

    OPERATIONS is an array of operations (RFC 6902, and the gateway's own), an extended patch
    ({"patch": […], "array_primary_keys": {…}}) or, with --merge, a merge patch: as JSON, @FILE, or
    - for standard input. The gateway applies all of it to the current document, or nothing.
    """
    if rebase and if_match is None:
        raise click.UsageError(
            "--rebase needs --if-match: the token of what the patch was made for"
        )
    if merge and tests:
        raise click.UsageError("a merge patch has no tests: leave --test out")
    part = session.part(catalog, attributes)
    with writing(**given) as write:
        if merge:
            written = part.merge(key, operations, if_match=if_match, rebase=rebase, **write)
        else:
            listed, primary_keys = _operations(operations)
            written = part.patch(
                key,
                [*tests, *listed],
                if_match=if_match,
                rebase=rebase,
                array_primary_keys=primary_keys,
                **write,
            )
    answer(session, catalog, written)


@click.command("delete", cls=ClientCommand)
@click.argument("catalog", type=CATALOG)
@click.argument("key", type=KEY)
@_if_match
@write_options
@click.pass_obj
def delete(session: Session, /, catalog: str, key: str, if_match: str | None, **given: Any) -> None:
    """Delete a document.

    The history stays. If there is no such document, that is a success, too, unless --if-match is
    given.
    """
    with writing(**given) as write:
        written = session.gateway.catalog(catalog).delete(key, if_match=if_match, **write)
    answer(session, catalog, written)


def _operations(given: Any) -> tuple[list[Any], Any]:
    """The operations and the array keys. What they mean is for the gateway to say."""
    listed = given.get("patch") if isinstance(given, dict) else given
    if isinstance(listed, list) and not all(isinstance(each, dict) for each in listed):
        raise click.UsageError('each operation must be an object, such as {"op": "remove", …}')
    if isinstance(given, list):
        return given, None
    if isinstance(given, dict) and isinstance(given.get("patch"), list):
        unknown = given.keys() - set(_PATCH_MEMBERS)
        if unknown:
            raise click.UsageError(
                f"unknown member {sorted(unknown)[0]!r}; known members: {', '.join(_PATCH_MEMBERS)}"
            )
        return given["patch"], given.get("array_primary_keys")
    raise click.UsageError(
        'OPERATIONS must be an array, or an object with "patch"; a merge patch needs --merge'
    )


def answer(session: Session, catalog: str, written: Written) -> None:
    session.output.answer({"catalog": catalog, **asdict(written)})


@click.command("transaction", cls=ClientCommand)
@click.argument("catalog", type=CATALOG)
@click.argument("transaction", type=JSON)
@click.option(
    "--if-match", metavar="TOKEN", help="Write only if all documents are as this composite says."
)
@write_options
@click.pass_obj
def transaction(
    session: Session, /, catalog: str, transaction: Any, if_match: str | None, **given: Any
) -> None:
    """Change several documents at once, or none.

    TRANSACTION is JSON, @FILE, or - for standard input: {"compare": […], "then": […],
    "else": […]}. The answer says which branch was taken, and has a result for each action.
    """
    if not isinstance(transaction, dict):
        raise click.UsageError("a transaction is an object with compare, then and else")
    with writing(**given) as write:
        if write["message"] is None:
            del write["message"]  # then its own counts
        result = session.gateway.catalog(catalog).transact(transaction, if_match=if_match, **write)
    results = [_result_shape(each) for each in result.results]
    session.output.answer({"catalog": catalog, **asdict(result), "results": results})


def _result_shape(result: ActionResult) -> dict[str, Any]:
    """The result; if it has no value, without that member, which would be the value null."""
    shape = asdict(result)
    if result.value is ABSENT:
        del shape["value"], shape["attributes"]
    return shape


@click.command("compact", cls=ClientCommand)
@click.argument("catalog", type=CATALOG)
@click.argument("revision", type=REVISION)
@click.pass_obj
def compact(session: Session, catalog: str, revision: int) -> None:
    """Drop the history below a revision.

    The state at REVISION and all above stay readable; documents stay as they are. The gateway
    refuses if a pin holds history below REVISION, or if history is compacted that far already.
    """
    done = session.gateway.catalog(catalog).compact(revision)
    session.output.answer({"catalog": catalog, **asdict(done)})


@click.command("revert", cls=ClientCommand)
@click.argument("catalog", type=CATALOG)
@click.argument("revisions", type=REVISION, nargs=-1, metavar="[REVISION]...")
@click.option("--to", type=REVISION, metavar="N", help="Undo everything after revision N instead.")
@click.option(
    "--from",
    "since",
    type=REVISION,
    metavar="M",
    help="With --to: changes after revision M count as later. Default: the newest revision.",
)
@click.option("--prefix", default="", help="Only documents whose keys begin with this.")
@click.option("--key", type=KEY, help="Only this document.")
@click.option(
    "--conflict",
    type=click.Choice(["refuse", "skip", "force"]),
    default="refuse",
    help="What to do with values that were changed since: end with exit code 4, leave them, or"
    " overwrite them. Default: refuse.",
)
@click.option(
    "--force",
    type=(KEY, str),
    multiple=True,
    metavar="KEY POINTER",
    help="Overwrite what was changed since at and below this place, whatever --conflict says.",
)
@click.option(
    "--if-match",
    metavar="TOKEN",
    help="Write only if the catalog, or all documents, are as this tag says.",
)
@write_options
@click.pass_obj
def revert(
    session: Session,
    /,
    catalog: str,
    revisions: Sequence[int],
    to: int | None,
    since: int | None,
    prefix: str,
    key: str | None,
    conflict: Any,
    force: Sequence[tuple[str, str]],
    if_match: str | None,
    **given: Any,
) -> None:
    """Undo commits as a new commit.

    Undoes the commits that made the REVISIONs, or everything after --to. Later changes are kept.
    Documents that the commits created are deleted, deleted ones come back. Revisions never go back,
    and you can revert a revert.
    """
    if bool(revisions) == (to is not None):
        raise click.UsageError("give REVISIONs, or --to")
    with writing(**given) as write:
        done = session.gateway.catalog(catalog).revert(
            revisions,
            to=to,
            since=since,
            prefix=prefix,
            key=key,
            conflict=conflict,
            force=[SkippedPlace(of, "content", pointer) for of, pointer in force],
            if_match=if_match,
            **write,
        )
    session.output.answer({"catalog": catalog, **without_documents(done)})
