"""`gateway edit`: a document in an editor; what was changed in it is sent as a patch.

Whatever others change meanwhile in other places is kept. If both changed a place, the editor opens
again with both versions, between markers like git's::

    <<<<<<< yours
      "tier": 2
    =======
      "tier": 3
    >>>>>>> now
"""

from __future__ import annotations

import tempfile
from codecs import BOM_UTF8
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, NamedTuple, cast

import click
import msgspec

import patching
from gateway.cli.command import ClientCommand, Missing, Session
from gateway.cli.names import CATALOG, JSON, KEY
from gateway.cli.output import error_line
from gateway.cli.writing import answer, write_options, writing
from patching import ABSENT, NO_LISTS, Document, Json, Lists, three_way
from patching.client import NotFound, PreconditionFailed, Written
from patching.client._documents import Part
from patching.client.results import Document as Read

_MINE, _BETWEEN, _NOW = "<<<<<<< yours", "=======", ">>>>>>> now"


@click.command("edit", cls=ClientCommand)
@click.argument("catalog", type=CATALOG)
@click.argument("key", type=KEY)
@click.option("--create", is_flag=True, help="Start a new document if there is none.")
@click.option("--attributes", is_flag=True, help="Edit the document's attributes instead.")
@write_options
@click.pass_obj
def edit(
    session: Session,
    /,
    catalog: str,
    key: str,
    create: bool,
    attributes: bool,
    **given: Any,
) -> None:
    """Change a document in an editor.

    Opens it as JSON in $VISUAL or $EDITOR, and sends what you changed as a patch. Changes
    that others make elsewhere in the document meanwhile are kept. If they changed the same place,
    the editor opens again with both variants. If you leave the document as it is, nothing is
    written.
    """
    if create and attributes:
        raise click.UsageError("--attributes needs an existing document: leave --create out")
    lists = NO_LISTS if attributes else _lists(session, catalog, key)
    editing = _Editing(session.part(catalog, attributes), key, lists, given)
    written = editing.run(create=create)
    if written is None:
        session.output.message("you changed nothing")
    else:
        answer(session, catalog, written)


def _lists(session: Session, catalog: str, key: str) -> Lists:
    try:
        return session.gateway.catalog(catalog).settings.lists().lists_of(key)
    except NotFound:
        return NO_LISTS


class _Both(NamedTuple):
    """A text with both versions of places that both changed, and the document as it is now."""

    text: str
    now: Read


class _Value(NamedTuple):
    """A text's value, which may be null."""

    value: Json


class _Editing:
    """An edit of the document ``key``."""

    def __init__(self, part: Part, key: str, lists: Lists, given: dict[str, Any]) -> None:
        self._part = part
        self._key = key
        self._lists = lists
        self._given = given
        # What was written in the editor, until it is sent.
        self._typed: bytes | None = None

    def run(self, *, create: bool) -> Written | None:
        """None: nothing was changed. Raises RequestError, Missing, ClickException; whatever ends
        it, the text from the editor is kept in a file."""
        try:
            return self._run(create=create)
        except BaseException:
            if self._typed is not None:
                _keep(self._typed)
            raise

    def _run(self, *, create: bool) -> Written | None:
        base = self._read()
        if base is None and not create:
            raise Missing(f"there is no document {self._key!r}; --create starts one")
        text = _text({} if base is None else base.value).encode()
        while True:
            edited = self._edited(text)
            if edited is None:
                return None
            both = self._sent(base, edited)
            if not isinstance(both, _Both):
                return both
            self._typed = text = both.text.encode()
            base = both.now
            error_line(
                "others changed the same places: decide which to keep, and remove the markers"
            )

    def _edited(self, text: bytes) -> _Value | None:
        """What the editor leaves; it opens again until that is JSON. None: the text was left as it
        is."""
        while True:
            after = self._opened(text)
            if after == text:
                if self._typed is None:
                    return None
                what = "the markers are still in" if _MINE.encode() in text else "still isn't JSON"
                raise click.ClickException(f"nothing was sent: {what}")
            try:
                return _Value(JSON.decode(after, "the text", None, None))
            except click.UsageError as error:
                error_line(f"{error.format_message()}; opening the editor again")
                text = after

    def _opened(self, text: bytes) -> bytes:
        """What an editor leaves of ``text``, which is kept even if the editor then fails."""
        with tempfile.TemporaryDirectory(prefix="gateway-edit-") as folder:
            path = Path(folder, "document.json")
            path.write_bytes(text)
            try:
                click.edit(filename=str(path))
            except ValueError as error:  # unbalanced quotes
                raise click.ClickException(f"$VISUAL or $EDITOR: {error}") from error
            finally:
                try:
                    after = path.read_bytes().removeprefix(BOM_UTF8)
                except OSError:
                    after = text
                if after != text:
                    self._typed = after
        return after

    def _sent(self, base: Read | None, edited: _Value) -> Written | _Both | None:
        """Send the change, rebased if need be. None: there is nothing to change."""
        value = edited.value
        while base is None or patching.diff(base.value, value, compact=False, lists=self._lists):
            try:
                return self._send(base, value)
            except PreconditionFailed:
                now = self._read()
                if base is None or now is None:
                    raise
                merged = three_way(base.value, value, now.value, lists=self._lists)
                if merged.disputes:
                    return _Both(_with_both(base.value, value, now.value, self._lists), now)
                base, value = now, cast(Json, merged.content)
        return None

    def _read(self) -> Read | None:
        try:
            return self._part.get(self._key)
        except NotFound as error:
            if error.code not in ("document_not_found", "catalog_not_found"):
                raise
            return None

    def _send(self, base: Read | None, value: Json) -> Written:
        with writing(**self._given) as write:
            if base is None:
                return self._part.put(self._key, value, if_absent=True, **write)
            by_key: dict[str, Any] = {"array_primary_keys": {}} if self._lists else {}
            return self._part.patch(
                self._key,
                patching.diff(base.value, value, compact=False, lists=self._lists),
                if_match=base,
                rebase=True,
                **by_key,
                **write,
            )


def _keep(text: bytes) -> None:
    with tempfile.NamedTemporaryFile(prefix="gateway-edit-", suffix=".json", delete=False) as file:
        file.write(text)
    error_line(f"your text is saved in {file.name}")


def _text(value: Document) -> str:
    if value is ABSENT:
        return ""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def _with_both(base: Json, mine: Json, now: Json, lists: Lists) -> str:
    """The text of what both made of ``base``, with both versions where they disagree."""
    ours, theirs = (
        _text(three_way(base, mine, now, force=force, lists=lists).content).splitlines()
        for force in (True, False)
    )
    lines: list[str] = []
    for tag, a, b, c, d in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if tag == "equal":
            lines += ours[a:b]
        else:
            lines += [_MINE, *ours[a:b], _BETWEEN, *theirs[c:d], _NOW]
    return "\n".join(lines) + "\n"
