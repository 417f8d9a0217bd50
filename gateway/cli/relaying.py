"""`gateway relay`: a catalog's commits go to a topic of Kafka, as a process of its own."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, cast

import click
import msgspec

from gateway.cli.command import ReadCommand, Session
from gateway.cli.names import CATALOG, REVISION
from gateway.cli.output import whole_file
from patching.client import Catalog, Change, Commit
from patching.client._feed import Feed
from patching.values import Absent

_INSTALL: Final = (
    "gateway relay needs the extra 'kafka': pip install '.[kafka]' in the gateway's repository"
)
_BATCH: Final = 500
_FLUSH_S: Final = 30.0
# Seconds; the saved position is no older than this and the time of an answer.
_POLL_S: Final = 5
_encode = msgspec.json.Encoder().encode


class _Producer(Protocol):
    def produce(self, topic: str, **message: Any) -> None: ...

    def poll(self, timeout: float) -> int: ...

    def flush(self, timeout: float) -> int: ...


class TopicWriter:
    """Writes messages; ``flush`` returns when the brokers have them all. Raises ClickException.

    ``trouble`` contains why the brokers can't be reached, once that is known."""

    def __init__(self, producer: _Producer, topic: str, trouble: Collection[str] = ()) -> None:
        self._producer = producer
        self._topic = topic
        self._trouble = trouble
        self._error: object = None

    def write(self, key: str, value: bytes | None, headers: dict[str, str]) -> None:
        """``value`` None: a tombstone."""
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    key=key.encode(),
                    value=value,
                    headers={name: text.encode() for name, text in headers.items()},
                    on_delivery=self._delivered,
                )
                return
            except BufferError:  # its queue is full
                self._producer.poll(0.1)

    def flush(self) -> None:
        left = self._producer.flush(_FLUSH_S)
        if self._error is not None or left:
            said = [str(self._error or f"{left} still wait"), *self._trouble]
            raise click.ClickException(f"Kafka didn't take all messages: {'; '.join(said)}")

    def _delivered(self, error: object, _: object) -> None:
        self._error = self._error or error


@click.command("relay", cls=ReadCommand)
@click.argument("catalog", type=CATALOG)
@click.option(
    "--kafka", required=True, metavar="HOST:PORT,…", help="The brokers to connect to first."
)
@click.option("--topic", required=True, help="The topic to write to.")
@click.option(
    "--position",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file that holds the revision up to which everything was written.",
)
@click.option("--prefix", default="", help="Only documents whose keys begin with this.")
@click.option(
    "--after",
    type=REVISION,
    metavar="N",
    help="If there is no position yet: start with the commits above this revision.",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="End after N commits.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of the Kafka client, such as security.protocol=SSL. Repeatable.",
)
@click.pass_obj
def relay(
    session: Session,
    catalog: str,
    kafka: str,
    topic: str,
    position: Path,
    prefix: str,
    after: int | None,
    limit: int | None,
    settings: tuple[str, ...],
) -> None:
    """Write each changed document to a Kafka topic.

    For each change of a document, there is a message: its key, its content after the commit (none
    if it was deleted), and headers for catalog, revision, commit_id and author. Messages come in
    order within a partition, and at least once. Without a position and --after, the existing
    documents come first.
    """
    trouble = deque[str](maxlen=1)
    writer = TopicWriter(_producer(kafka, settings, trouble), topic, trouble)
    of = session.gateway.catalog(catalog)
    begun, commit_id = _read_position(position)
    if begun is None:
        begun = after
    with (
        of.changes(
            begun,
            commit_id=commit_id,
            initial=begun is None,
            prefix=prefix,
            include=["value"],
            poll_s=_POLL_S,
        ) as feed,
        session.output.ended_from_outside(feed.close),
    ):
        if begun is None:
            count = 0
            for document in feed.documents:
                headers = {"catalog": catalog, "revision": str(document.revision)}
                writer.write(document.key, _encode(document.value), headers)
                count += 1
            writer.flush()
            _save(position, feed.position, feed.commit_id)
            session.output.message(f"{count} documents at revision {feed.position}")
        session.output.message(f"following {catalog!r} after revision {feed.position}")
        _follow(of, feed, writer, limit, prefix, partial(_save, position))


def _follow(
    of: Catalog,
    feed: Feed,
    writer: TopicWriter,
    limit: int | None,
    prefix: str,
    save: Callable[[int, str | None], None],
) -> None:
    """Relay commits. The saved position moves past commits that are left out, too: otherwise,
    compaction would overtake it if there are many of them."""
    left = math.inf if limit is None else limit
    saved = feed.position
    for commits in feed.pages():
        for commit in commits:
            _write(of, commit, writer, prefix)
            writer.flush()
            saved = commit.revision
            save(saved, commit.commit_id)
            left -= 1
            if not left:
                return
        if feed.position > saved:
            saved = feed.position
            save(saved, feed.commit_id)


def _write(of: Catalog, commit: Commit, writer: TopicWriter, prefix: str) -> None:
    for change in commit.changes:
        if change.key is not None and change.key.startswith(prefix):
            headers = {
                "catalog": of.name,
                "revision": str(commit.revision),
                "commit_id": commit.commit_id,
                "author": commit.author,
            }
            writer.write(change.key, _value(of, commit, change), headers)


def _value(of: Catalog, commit: Commit, change: Change) -> bytes | None:
    if "value" in change.withheld and change.key is not None:
        return _encode(of.get(change.key, revision=commit.revision).value)
    return None if isinstance(change.value, Absent) else _encode(change.value)


def _producer(brokers: str, settings: tuple[str, ...], trouble: deque[str]) -> _Producer:
    try:
        from confluent_kafka import KafkaError, KafkaException, Producer
    except ModuleNotFoundError as error:
        raise click.ClickException(_INSTALL) from error
    chosen = dict(each.partition("=")[::2] for each in settings)

    def note(error: Any) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            trouble.append(error.str())

    given = {
        "acks": "all",
        "log_level": 2,  # it would write several lines a second while no broker answers
        "error_cb": note,
        **chosen,
        "bootstrap.servers": brokers,
        "enable.idempotence": True,
    }
    try:
        return cast(_Producer, Producer(given))
    except KafkaException as error:
        raise click.UsageError(f"can't create the Kafka client: {error}") from error


def _read_position(path: Path) -> tuple[int | None, str | None]:
    """The revision and, if known, the id of its commit; None if there is no position yet."""
    try:
        revision, _, commit_id = path.read_text().strip().partition(" ")
    except FileNotFoundError:
        return None, None
    if not revision.isdecimal():
        raise click.UsageError(f"--position: {path} doesn't contain a revision")
    return int(revision), commit_id or None


def _save(path: Path, revision: int, commit_id: str | None) -> None:
    with whole_file(path) as file:
        file.write(f"{revision} {commit_id or ''}".strip().encode() + b"\n")
