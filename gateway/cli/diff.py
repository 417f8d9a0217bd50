"""`gateway diff`."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from difflib import unified_diff
from itertools import chain
from typing import Any, Final, TypeVar, cast

import click
import msgspec

import patching
from gateway.cli.apply import described, entries_of
from gateway.cli.command import Missing, ReadCommand, Session
from gateway.cli.importing import ImportEntry
from gateway.cli.names import CATALOG, JSON, KEY, REVISION
from gateway.cli.output import ReaderGone, error_line
from patching import ABSENT, NO_LISTS, Document, apply
from patching.client import Catalog, NotFound, Written
from patching.client.results import Difference, LeafOwners, Several
from patching.ownership import CONFLICTS, OnConflict
from patching.values import Absent

# Matching lines takes time that grows faster than their number.
_LINES_MAX: Final = 20_000
_Item = TypeVar("_Item")
_COLORS: Final = {"+": "green", "-": "red", "@": "cyan"}


@dataclass(frozen=True, slots=True)
class Side:
    name: str
    value: Document


@click.command("diff", cls=ReadCommand)
@click.argument("catalog", type=CATALOG)
@click.argument("key", type=KEY, required=False)
@click.argument("first", metavar="[REV1|@FILE]", required=False)
@click.argument("second", metavar="[REV2]", required=False)
@click.option("--patch", "as_patch", is_flag=True, help="Print a patch, for gateway patch.")
@click.option("--attributes", is_flag=True, help="Compare the document's attributes instead.")
@click.option(
    "--from",
    "before",
    type=REVISION,
    metavar="REV1",
    help="Without KEY: compare all documents at this revision with the current ones.",
)
@click.option(
    "--to",
    "after",
    type=REVISION,
    metavar="REV2",
    help="With --from: compare with this revision instead.",
)
@click.option(
    "--prefix", default="", help="Without KEY: only documents whose keys begin with this."
)
@click.option(
    "-f",
    "--file",
    "path",
    help="Without KEY: compare all documents with those of this folder, export, or lines (.ndjson,"
    " or - for standard input); the exit code is 1 if any differs.",
)
@click.option(
    "--manager",
    metavar="NAME",
    help="With --file: show what gateway apply by this manager would change.",
)
@click.option(
    "--conflict",
    type=click.Choice(CONFLICTS),
    help="With --manager: as of apply. With refuse, the default, fields that others own with a"
    " different value count as differences.",
)
@click.option(
    "--prune",
    is_flag=True,
    help="With --manager: as of apply, which lets go of all other documents, too.",
)
@click.pass_obj
def diff(
    session: Session,
    catalog: str,
    key: str | None,
    first: str | None,
    second: str | None,
    as_patch: bool,
    attributes: bool,
    before: int | None,
    after: int | None,
    prefix: str,
    path: str | None,
    manager: str | None,
    conflict: OnConflict | None,
    prune: bool,
) -> int | None:
    """Show how two revisions differ, or how a catalog differs from files.

    Compares a document at REV1 with REV2, or with now; without either, shows its last change. With
    @FILE (or -), shows the change that would make the document equal to that file. Prints nothing
    if both sides are equal, or [] with --patch. An absent document counts as empty.

    Without KEY, --from compares all documents, and --patch prints a line of JSON for each that
    differs. --file compares all documents with files; a document that is only on one side differs,
    too. With --manager, it shows what gateway apply with the same options would change, and names
    the fields because of which it would be refused.
    """
    if manager is None and (prune or conflict is not None):
        raise click.UsageError("--conflict and --prune need --manager")
    if path is not None:
        if key is not None or before is not None or after is not None or attributes:
            others = "KEY, --from, --to and --attributes"
            raise click.UsageError(f"--file compares all documents: leave out {others}")
        applied = None if manager is None else ApplyOptions(manager, conflict or "refuse", prune)
        return _show_drift(Drift(session, catalog, path, prefix, applied, as_patch))
    if manager is not None:
        raise click.UsageError("--manager needs --file")
    if key is None:
        if before is None or attributes:
            raise click.UsageError("give KEY, --from or --file; --attributes needs KEY")
        whole = Whole(session, catalog, before, after, prefix)
        whole.show_patches() if as_patch else whole.show()
        return None
    if before is not None or after is not None or prefix:
        raise click.UsageError("--from, --to and --prefix compare all documents: leave KEY out")
    _show_one(Subject(session, catalog, key, attributes), first, second, as_patch)
    return None


def _show_one(of: Subject, first: str | None, second: str | None, as_patch: bool) -> None:
    old, new = _sides(of, first, second)
    if old.value is ABSENT and new.value is ABSENT:
        raise Missing(f"there is no document {of.key!r} ({old.name}, {new.name})")
    if as_patch:
        of.session.output.value(_patch(of, old, new))
    else:
        _show(of.session, f"{of.catalog}/{of.key}", old, new)


def _show_drift(drift: Drift) -> int:
    """Print the differences; returns the exit code."""
    try:
        return 1 if drift.show() else 0
    except ReaderGone:  # while a difference was printed
        return 1


def _patch(of: Subject, old: Side, new: Side) -> Any:
    """A patch for `gateway patch`, which names the items of declared lists by their keys."""
    lists = NO_LISTS
    if not of.attributes:
        with suppress(NotFound):
            declared = of.session.gateway.catalog(of.catalog).settings.lists()
            lists = declared.lists_of(of.key)
    changes = patching.diff(old.value, new.value, compact=False, lists=lists)
    return {"patch": changes, "array_primary_keys": {}} if lists and changes else changes


def _show(session: Session, what: str, old: Side, new: Side) -> None:
    names = (f"{what} ({old.name})", f"{what} ({new.name})")
    lines = _readable(old.value, new.value, names)
    if session.output.pretty and sys.stdout.isatty():
        session.output.text(lines, _colored)
    else:
        session.output.text(lines)


def _colored(line: str) -> str:
    chosen = _COLORS.get(line[:1])
    return click.style(line, fg=chosen) if chosen else line


@dataclass(frozen=True, slots=True)
class Subject:
    """The document, or its attributes."""

    session: Session
    catalog: str
    key: str
    attributes: bool

    def at(self, revision: int | None) -> Side:
        """The state at ``revision``; None: now. Before the first revision, there is nothing."""
        name = "now" if revision is None else f"revision {revision}"
        if revision == 0:
            return Side(name, ABSENT)
        try:
            part = self.session.part(self.catalog, self.attributes)
            return Side(name, part.get(self.key, revision=revision).value)
        except NotFound as error:
            if error.code != "document_not_found":
                raise
            return Side(name, ABSENT)

    def last_change(self) -> int:
        """The revision of the last change. Raises Missing if there never was a document."""
        catalog = self.session.gateway.catalog(self.catalog)
        there = catalog.several([self.key]).documents[self.key]
        if there is not None and there.revision is not None:
            return there.revision
        changes = deque(catalog.commits(key=self.key), maxlen=1)
        if not changes:
            raise Missing(f"there never was a document {self.key!r}")
        return changes[0].revision


def _sides(of: Subject, first: str | None, second: str | None) -> tuple[Side, Side]:
    if first is None:
        changed = of.last_change()
        return of.at(changed - 1), of.at(changed)
    if first == "-" or first.startswith("@"):
        if second is not None:
            raise click.UsageError("a file is compared with the document as it is: leave REV2 out")
        name = "standard input" if first == "-" else first[1:]
        local = Side(name, JSON.convert(first, None, None))
        return of.at(None), local
    revisions: list[int] = [REVISION(each) for each in (first, second) if each is not None]
    return of.at(revisions[0]), of.at(revisions[1] if second is not None else None)


@dataclass(frozen=True, slots=True)
class Whole:
    """All documents of a catalog, or those under a prefix, at two revisions."""

    session: Session
    catalog: str
    before: int
    after: int | None
    prefix: str

    def show_patches(self) -> None:
        for each in self._differences():
            shape = {name: value for name, value in asdict(each).items() if value is not ABSENT}
            self.session.output.json_line(shape)

    def show(self) -> None:
        for each in self._differences():
            if each.key is None:  # the settings, which can't be read at an old revision
                self._show_settings(each)
                continue
            what = f"{self.catalog}/{each.key}"
            _show(self.session, what, *self._sides(each, each.value, each.patch, False))
            beside: Document = dict(each.attributes) if each.attributes else ABSENT
            sides = self._sides(each, beside, each.attributes_patch, True)
            _show(self.session, f"{what} attributes", *sides)

    def _show_settings(self, each: Difference) -> None:
        parts = each.patch if each.change == "changed" else [each.value]
        lines = [msgspec.json.encode(one).decode() for one in parts]
        self.session.output.text([f"{self.catalog} settings: {each.change}", *lines])

    def _differences(self) -> Iterator[Difference]:
        catalog = self.session.gateway.catalog(self.catalog)
        return catalog.differences(self.before, self.after, prefix=self.prefix)

    def _sides(
        self, each: Difference, value: Document, patch: Sequence[Any], of_attributes: bool
    ) -> tuple[Side, Side]:
        old: Document = value if each.change == "deleted" else ABSENT
        new: Document = value if each.change == "created" else ABSENT
        if patch and each.key is not None:
            part = self.session.part(self.catalog, of_attributes)
            old = part.get(each.key, revision=self.before).value
            new = apply(old, list(patch))
        after = "now" if self.after is None else f"revision {self.after}"
        return Side(f"revision {self.before}", old), Side(after, new)


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """The options of the apply that is previewed."""

    manager: str
    conflict: OnConflict
    prune: bool


@dataclass(frozen=True, slots=True)
class Drift:
    """What differs between files and the documents of a catalog as they are; or what an apply of
    the files would change, or be refused for."""

    session: Session
    catalog: str
    path: str
    prefix: str
    applied: ApplyOptions | None
    as_patch: bool

    def show(self) -> int:
        """Print the differences; returns how many documents differ."""
        entries = {each.key: each for each in entries_of(self.session, self.path, self.prefix)}
        count = others = 0
        for key, old, new, contested in self._sides(entries):
            others += key not in entries
            changes = patching.diff(old.value, new.value, compact=False)
            if not changes and not contested:
                continue
            count += 1
            for leaf in contested:
                owners = ", ".join(map(described, leaf.owners))
                error_line(f"{key!r}: {leaf.pointer} has another value, and is owned by {owners}")
            if not changes:
                continue
            if self.as_patch:
                self.session.output.json_line({"key": key, "patch": changes})
            else:
                _show(self.session, f"{self.catalog}/{key}", old, new)
        compared = len(entries) + others
        self.session.output.message(f"{count} of {compared} documents differ")
        return count

    def _sides(
        self, entries: Mapping[str, ImportEntry]
    ) -> Iterator[tuple[str, Side, Side, Sequence[LeafOwners]]]:
        of = self.session.gateway.catalog(self.catalog)
        wanted = {key: msgspec.json.decode(each.value) for key, each in entries.items()}
        for keys in _chunks(list(entries)):
            there = _several(of, keys)
            for key in keys:
                now, after, contested = self._compared(of, key, there, wanted[key])
                yield key, Side("now", now), Side(self.path, after), contested
        for key, before, after in self._others(of, entries):
            yield key, Side("now", before), Side(self.path, after), ()

    def _compared(
        self, of: Catalog, key: str, there: Several | None, wanted: Any
    ) -> tuple[Document, Document, Sequence[LeafOwners]]:
        """The document now, and as the file has it; or as an apply would leave it, and the leaves
        of others for which the apply would be refused."""
        if self.applied is None:
            return _value_in(there, key), cast(Document, wanted), ()
        manager, conflict = self.applied.manager, self.applied.conflict
        taken: OnConflict = "force" if conflict == "force" else "skip"
        done = of.apply(key, wanted, manager=manager, conflict=taken, dry_run=True)
        return *self._tried(there, done), done.skipped if conflict == "refuse" else ()

    def _tried(self, there: Several | None, done: Written) -> tuple[Document, Document]:
        """The document that the dry run met, which may be newer than in ``there``, and the one that
        it would leave."""
        now = _value_in(there, done.key)
        if not done.changes:
            return now, now
        if there is None or there.revision != done.catalog_revision:
            of = Subject(self.session, self.catalog, done.key, attributes=False)
            now = of.at(done.catalog_revision).value
        return now, apply(now, list(done.changes[0]["patch"]))

    def _others(
        self, of: Catalog, entries: Mapping[str, ImportEntry]
    ) -> Iterator[tuple[str, Document, Document]]:
        """The documents that aren't in the files: key, value now, value afterwards."""
        if self.applied is None:
            for document in _listed(of.documents(prefix=self.prefix)):
                if document.key not in entries:
                    yield document.key, document.value, ABSENT
        elif self.applied.prune:
            manager = self.applied.manager
            owned = _listed(of.digests(prefix=self.prefix, manager=manager))
            keys = [each.key for each in owned if each.key not in entries]
            for chunk in _chunks(keys):
                there = _several(of, chunk)
                for key in chunk:
                    done = of.let_go(key, manager=manager, prune=True, dry_run=True)
                    yield key, *self._tried(there, done)


def _chunks(keys: list[str]) -> Iterator[list[str]]:
    return (keys[start : start + 100] for start in range(0, len(keys), 100))


def _several(of: Catalog, keys: list[str]) -> Several | None:
    """The documents; None if there is no catalog."""
    with suppress(NotFound):
        return of.several(keys)
    return None


def _value_in(there: Several | None, key: str) -> Document:
    document = None if there is None else there.documents[key]
    return ABSENT if document is None else document.value


def _listed(listing: Iterable[_Item]) -> Iterator[_Item]:
    """``listing``; nothing if there is no catalog."""
    with suppress(NotFound):
        yield from listing


def _readable(before: Document, after: Document, names: tuple[str, str]) -> Iterator[str]:
    """The lines of a diff, none if both are equal. ``names`` are those of the two sides."""
    changes = patching.diff(before, after, compact=False)
    if not changes:
        return
    old, new = _lines(before), _lines(after)
    if len(old) + len(new) > _LINES_MAX:
        lines: Iterable[str] = chain(
            (f"--- {names[0]}", f"+++ {names[1]}"),
            (msgspec.json.encode(each).decode() for each in changes),
        )
    else:
        lines = unified_diff(old, new, *names, lineterm="")
    yield from lines


def _lines(value: Document) -> list[str]:
    if isinstance(value, Absent):
        return []
    text = msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=2)
    return text.decode().split("\n")
