"""One client and its collections, through which every part of the store reads and writes.

Reads are majority reads from the primary; writes are acknowledged by a majority with its journal on
disk.

**Sessions.** The driver asks a member once for each connection whether it supports sessions; a
member that is recovering says no. The connection stays in the pool when the member is primary
again, and every call that needs a session fails on it. So the first call that fails for this reason
replaces the client.

**Elections.** A new primary has every acknowledged write. But its majority reads answer from the
last state that it knows a majority to have, and it learns of acknowledgements later than the
clients that waited for them. Until it has committed a write of its own, its majority reads may be
older than its predecessor's answers. The time of its last write, asked for once it is primary, is
later than all acknowledged writes, so a read that waits for that time sees all of them.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from threading import Lock, Thread
from typing import Any, Final, Self, TypeVar

import pymongo
from bson.errors import InvalidDocument
from bson.objectid import ObjectId
from bson.timestamp import Timestamp
from pymongo import MongoClient, UpdateOne
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import (
    BulkWriteError,
    ConfigurationError,
    DuplicateKeyError,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WaitQueueTimeoutError,
    WriteError,
)
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference
from pymongo.write_concern import WriteConcern

from gateway.cpu import require_some_left, yield_if_over
from gateway.store.contract import Rejected, StoreUnreachable, Unsent, WriteRejected
from gateway.store.mongodb import records
from gateway.store.mongodb.format import UnknownFormat, take_over
from gateway.store.mongodb.indexes import INDEXES
from gateway.store.mongodb.records import Record

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_DUPLICATE_KEY: Final = 11000
# The index on names, as the server names it in a duplicate-key error; "": it doesn't say which.
_OF_NAMES: Final = ("_id", "")
# The code of an upsert whose filter can't make a record: it changes an existing one, or nothing.
_MAKES_NONE: Final = 54
_DISK_FULL: Final = 14031
_TOO_LARGE: Final = "it is larger than MongoDB allows for a record"
_TOO_LARGE_CODES: Final = (10334, 17419, 17420)
_INVALID: Final = 121
_OF_VIEW: Final = 166
# A server's errors about the data of a write: bad values, conflicting paths, indexes that can't
# hold it, validators, views instead of collections, writes that an administrator blocks.
_DATA_CODES: Final = (
    2,
    9,
    14,
    16,
    28,
    40,
    52,
    53,
    55,
    56,
    57,
    66,
    67,
    _INVALID,
    _OF_VIEW,
    171,
    371,
)
_ASSERTIONS: Final = 10_000
# Codes above _ASSERTIONS that are about the state of a member: not primary, shutting down,
# interrupted, outdated routing.
_STATE_CODES: Final = (10058, 10107, 11600, 11601, 11602, 13388, 13435, 13436)
# A server's errors about times that it can't have given, so another MongoDB did.
_TIMES_REFUSED: Final = ("KeyNotFound", "TimeProofMismatch", "ClusterTimeFailsRateLimiter")
# A server's errors about a user who may not sign in, or may not do this: it has done nothing.
_USER_REFUSED: Final = (13, 18, 8000)
_INDEXES_MADE: Final = (
    "MongoDB makes an index that was missing, which takes as long as the collection is large"
)
_FORBIDDEN: Final = re.compile(r"not authorized on (\S+) to execute command \{ (\w+): \"?([\w.]*)")
# What the server quotes of a query that it can't plan: names, keys and idempotency keys.
_QUOTED_QUERY: Final = re.compile(r"Tree: .* planner returned error :: caused by :: ", re.DOTALL)
# A client isn't replaced before this age: a MongoDB that never supports sessions must not get a new
# one for every call.
_REPLACED_AFTER_S: Final = 1.0
# How often a member says whether it is primary, if nothing changes.
_HEARTBEAT_MS: Final = 1_000
# How long a read waits for a primary after a call has waited for one in vain.
_AWAY_WAIT_S: Final = 0.9
# How long closing a replaced client may take.
_CLOSING_S: Final = 1.0


class Connection:
    """The client and collections that all parts of the store share.

    Each call gets ``client``, ``database`` and the collections from here, because a client that has
    become useless is replaced.
    """

    def __init__(self, open_client: Callable[[], MongoClient[Record]], database: str) -> None:
        self._open_client = open_client
        self._database_name = database
        self._has_indexes = False
        self._making_indexes: Future[None] | None = None  # it was begun, and may be done
        self._lock = Lock()
        self._is_away = False  # a call waited for a primary in vain, and none has worked since
        self._seen_until: Timestamp | None = None
        # The election of the primary whose last write all reads wait for; "" before the first.
        self._election: ObjectId | str | None = ""
        self._use(open_client())

    @classmethod
    def to(cls, uri: str, database: str, timeout_ms: int, *, appname: str) -> Self:
        """Connect in the background. ``timeout_ms`` bounds each call as a whole.

        Raises ValueError if the URI is malformed.
        """

        def open_client() -> MongoClient[Record]:
            return MongoClient(
                uri,
                timeoutMS=timeout_ms,
                serverSelectionTimeoutMS=timeout_ms,
                connectTimeoutMS=timeout_ms,
                # The loop repeats writes itself, after a look-up if one is needed. The driver's
                # retries cost the server a fifth to a third more for each write.
                retryWrites=False,
                # With polling, a member that was elected twice between two polls would seem to have
                # been primary all the time, and may read from before its last election.
                serverMonitoringMode="stream",
                # A "not primary" may arrive after the member has said that it is primary again. The
                # driver can't tell, as it gets raw details, and believes it until the next
                # heartbeat.
                heartbeatFrequencyMS=_HEARTBEAT_MS,
                appname=appname,
            )

        try:
            return cls(open_client, database)
        except (PyMongoError, ValueError) as error:
            raise ValueError(f"the MongoDB URI can't be used: {error}") from error

    def _use(self, client: MongoClient[Record]) -> None:
        self.client = client
        self._client_since = time.monotonic()
        self.database = client.get_database(
            self._database_name,
            codec_options=records.PLAIN,
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("majority"),
            write_concern=WriteConcern("majority", j=True),
        )
        self.catalogs = self.database["catalogs"]
        self.commits = self.database["commits"]
        self.verdicts = self.database["verdicts"]
        self.documents = self.database["documents"]
        self.raw_catalogs = self.catalogs.with_options(codec_options=records.RAW)
        self.raw_documents = self.documents.with_options(codec_options=records.RAW)

    def ensure_indexes(self) -> None:
        """Check the format and make the indexes, once for each Connection, before its first read at
        the latest; and again after a read has missed an index.

        An index of a large collection takes MongoDB longer than a call may last. It is made in a
        thread, and until it is there, every caller gets StoreUnreachable, which says so.
        """
        if not self._has_indexes:
            with self.as_unreachable():
                try:
                    take_over(self.database)
                except UnknownFormat as error:
                    raise StoreUnreachable(str(error)) from error
                try:
                    self._indexes_made().result(self.client.options.timeout)
                except TimeoutError:
                    raise StoreUnreachable(_INDEXES_MADE) from None
            self._has_indexes = True

    def _indexes_made(self) -> Future[None]:
        """The making of the indexes, begun if none is under way."""
        with self._lock:
            if self._making_indexes is None or self._making_indexes.done():
                made = Future[None]()
                Thread(target=_make_indexes, args=(self.database, made), daemon=True).start()
                self._making_indexes = made  # once it is begun: there may be no thread for it
            return self._making_indexes

    @contextmanager
    def reading(self) -> Iterator[ClientSession]:
        """Reads inside see every acknowledged write, by any process, whichever member answers.

        For a moment, a new primary may answer from before its election; given the time of its last
        write, it waits until a majority has that write. Raises StoreUnreachable, also if another
        primary was elected meanwhile, because it may have answered without that time. While MongoDB
        is known to be away, that takes less than a second. Raises TooMuchWork if the request's
        account of processor time is used up.
        """
        require_some_left()
        yield_if_over()
        with self._no_longer_than_it_is_worth():
            self.ensure_indexes()
            with self._reading() as session:
                yield session

    @contextmanager
    def _reading(self) -> Iterator[ClientSession]:
        with self.as_unreachable(), self.client.start_session(causal_consistency=True) as session:
            election = self._meet_primary()
            if self._seen_until is not None:
                session.advance_operation_time(self._seen_until)
            yield session
            self._saw(session)
            self._is_away = False
            if known_election(self.client) != election:
                raise StoreUnreachable("the primary changed during a read")

    def _no_longer_than_it_is_worth(self) -> AbstractContextManager[object]:
        if self._is_away and not self.client.topology_description.has_writable_server():
            return pymongo.timeout(_AWAY_WAIT_S)
        return nullcontext()

    @contextmanager
    def writing(self) -> Iterator[ClientSession]:
        """For use around a write, which later reads of this process see. Raises
        StoreUnreachable."""
        with self.as_unreachable(), self.client.start_session(causal_consistency=True) as session:
            try:
                yield session
            finally:
                self._saw(session)

    def in_transaction(
        self, write: Callable[[ClientSession], _T], read_concern: ReadConcern | None = None
    ) -> _T:
        """The result of ``write``, whose writes are all made, or none. The driver may call it
        several times.

        Raises the errors of ``write``, and StoreUnreachable. That has ``nothing_done`` only if
        ``write`` never returned: after that, the driver may send the transaction's commit more than
        once, and the first may have been made.
        """
        is_through = False

        def noted(session: ClientSession) -> _T:
            nonlocal is_through
            result = write(session)
            is_through = True
            return result

        try:
            with self.writing() as session:
                return session.with_transaction(noted, read_concern, self.database.write_concern)
        except StoreUnreachable as error:
            if is_through and error.nothing_done:
                raise StoreUnreachable(str(error)) from error
            raise

    @contextmanager
    def as_unreachable(self) -> Iterator[None]:
        """Raise the driver's errors as those of the contract.

        Unsent says that the first command inside wasn't sent, so put only one command inside.
        WriteRejected has ``nothing_done``, so put inside only a write of one record, or a
        transaction.
        """
        client = self.client
        try:
            yield
        except ConfigurationError as error:
            self._replace(client)
            raise Unsent(str(error)[:500]) from error
        except (ServerSelectionTimeoutError, WaitQueueTimeoutError) as error:
            self._is_away = self._is_away or isinstance(error, ServerSelectionTimeoutError)
            raise Unsent(explained(client, error)[:500]) from error
        except PyMongoError as error:
            if _refuses_time(error):
                self._forget_times()
                self._replace(client)
            if "hint provided does not correspond" in str(error):
                self._has_indexes = False
                _log.error(
                    "an index is gone, and is made again: was only the index dropped, or a"
                    " collection, or was it renamed? See `gateway verify --all`"
                )
            if isinstance(error, OperationFailure) and error.code in _USER_REFUSED:
                raise Unsent(explained(client, error)[:500]) from error
            if isinstance(error, WriteError) and _is_about_data(error.details or {}):
                raise WriteRejected(_reason(error.details or {}), nothing_done=True) from error
            raise StoreUnreachable(explained(client, error)[:500]) from error

    def bulk(
        self, bulk_write: Callable[..., Any], operations: Sequence[Any], ordered: bool = False
    ) -> set[int]:
        """Run a bulk; return the positions of the operations whose ``_id`` was taken, or that match
        no record and can't make one.

        Raises WriteRejected for any other refusal, also one by a unique index that isn't the
        gateway's, and StoreUnreachable.
        """
        results = self.bulk_each(bulk_write, operations, ordered)
        if results.in_doubt:
            raise StoreUnreachable(_bulk_failure(results.in_doubt.values()))
        if results.rejected:
            raise WriteRejected(_bulk_failure(each.reason for each in results.rejected.values()))
        return results.taken

    def bulk_each(
        self, bulk_write: Callable[..., Any], operations: Sequence[Any], ordered: bool = False
    ) -> BulkResults:
        """Run a bulk; return the result of each operation. StoreUnreachable: all are in doubt."""
        return self._each(partial(bulk_write, operations, ordered=ordered), len(operations))

    def upsert_each(
        self, of: Collection[Record], upserts: Sequence[tuple[Record, Record]]
    ) -> BulkResults:
        """Run upserts, pairs of a filter and an update, as ``bulk_each`` does. A single one isn't
        sent as a bulk, which takes the driver a fifth longer."""
        if len(upserts) == 1:
            return self._each(partial(of.update_one, *upserts[0], upsert=True), 1)
        return self.bulk_each(of.bulk_write, [UpdateOne(*each, upsert=True) for each in upserts])

    def _each(self, send: Callable[..., Any], operations: int) -> BulkResults:
        yield_if_over()
        with self.writing() as session:
            try:
                send(session=session)
            except BulkWriteError as error:
                return _results(error)
            except WriteError as error:
                return _results_of({0: error.details or {"code": error.code}})
            except InvalidDocument as error:
                # One operation is too large to be sent; those before it may have been sent.
                if operations > 1:
                    raise StoreUnreachable(
                        "an operation of a bulk is too large to be sent"
                    ) from error
                return BulkResults(rejected={0: Rejected(_TOO_LARGE, too_large=True)})
        return BulkResults()

    def _meet_primary(self) -> ObjectId | str | None:
        """Have later reads wait for the primary's last write; return its election."""
        if known_election(self.client) != self._election:
            with self.client.start_session(causal_consistency=True) as session:
                election = ask_primary(self.client, session)
                self._saw(session)
                self._election = election
        return self._election

    def _replace(self, client: MongoClient[Record]) -> None:
        """Use a new client from now on, unless ``client`` is already replaced, or was opened a
        moment ago.

        Calls under way on the old one fail as if the connection broke.
        """
        with self._lock:
            if self.client is not client:
                return
            if time.monotonic() - self._client_since < _REPLACED_AFTER_S:
                return
            try:
                self._use(self._open_client())
            except PyMongoError as error:  # its name can't be resolved now
                _log.warning("can't reconnect to MongoDB: %s", error)
                return
        _log.warning("connections to MongoDB can't be used any more: all are replaced")
        with pymongo.timeout(_CLOSING_S):
            client.close()

    def _forget_times(self) -> None:
        """Forget all times, like a new process: MongoDB was replaced, for example by a restored
        one."""
        with self._lock:
            self._seen_until = None
            self._election = ""

    def _saw(self, session: ClientSession) -> None:
        time = session.operation_time
        with self._lock:
            if time is not None and (self._seen_until is None or time > self._seen_until):
                self._seen_until = time


class StorePart:
    """One concern of the store; all parts share a connection."""

    def __init__(self, connection: Connection) -> None:
        self._on = connection
        self._reported: dict[str, str] = {}  # by the name of a record, why it can't be read

    def _readable(
        self, found: Iterable[Record], made_from: Callable[[Record], _T], what: str
    ) -> list[_T]:
        """The values made from the records that can be read. Others, which somebody wrote by hand,
        are left out and logged once each."""
        made = []
        for record in found:
            try:
                made.append(made_from(record))
            except (LookupError, TypeError, ValueError) as error:
                name = repr(record["_id"])
                if self._reported.get(name) != repr(error):
                    self._reported[name] = repr(error)
                    _log.error("the %s %s can't be read: %r", what, name, error)
        return made


def _make_indexes(database: Database[Record], made: Future[None]) -> None:
    try:
        with pymongo.timeout(0):  # no limit: when one is reached, MongoDB drops what it has made
            for name, indexes in INDEXES.items():
                database[name].create_indexes(list(indexes))
    except BaseException as error:  # noqa: BLE001 - whoever waits raises it
        made.set_exception(error)
    else:
        made.set_result(None)


def _refuses_time(error: PyMongoError) -> bool:
    details = error.details if isinstance(error, OperationFailure) else None
    if details is None:
        return False
    above = "afterClusterTime value must not be greater" in str(error)
    return above or details.get("codeName") in _TIMES_REFUSED


@dataclass(frozen=True, slots=True)
class BulkResults:
    """The results of a bulk's operations, by position; operations that aren't named were done.

    ``taken``: its ``_id`` was taken, or it matches no record and can't make one.
    ``rejected``: the server refuses it because of its data.
    ``in_doubt``: it isn't known whether it was done; with the reason.
    """

    taken: set[int] = field(default_factory=set)
    rejected: Mapping[int, Rejected] = field(default_factory=dict)
    in_doubt: Mapping[int, str] = field(default_factory=dict)


def _results(error: BulkWriteError) -> BulkResults:
    """Raises StoreUnreachable if it isn't known that a majority has what was done."""
    details = error.details or {}
    if unconfirmed := details.get("writeConcernErrors", []):
        raise StoreUnreachable(_bulk_failure(map(_reason, unconfirmed))) from None
    return _results_of({each["index"]: each for each in details.get("writeErrors", [])})


def _results_of(failures: Mapping[int, Mapping[str, Any]]) -> BulkResults:
    """By the operations' positions, what the server says of those that failed."""
    others = {n: each for n, each in failures.items() if not _has_name_taken(each)}
    return BulkResults(
        failures.keys() - others.keys(),
        {n: _rejected(each) for n, each in others.items() if _is_about_data(each)},
        {n: _reason(each) for n, each in others.items() if not _is_about_data(each)},
    )


def _bulk_failure(reasons: Iterable[str]) -> str:
    return f"a bulk write failed: {'; '.join(list(dict.fromkeys(reasons))[:3])}"


def _rejected(failure: Mapping[str, Any]) -> Rejected:
    return Rejected(_reason(failure), too_large=failure.get("code") in _TOO_LARGE_CODES)


def _is_about_data(failure: Mapping[str, Any]) -> bool:
    """Whether the server refuses the data itself, whenever and to whichever member it is sent.

    Only then is it certain that nothing was done: a router also says that an operation failed if it
    lost the connection to a shard.
    """
    code = failure.get("code")
    if code in _DATA_CODES:
        return True
    # From there on, codes are numbers of single assertions, except for a few old ones.
    return isinstance(code, int) and code >= _ASSERTIONS and code not in _STATE_CODES


def _has_name_taken(failure: Mapping[str, Any]) -> bool:
    if failure.get("code") == _MAKES_NONE:
        return True
    return failure.get("code") == _DUPLICATE_KEY and _index_of(failure) in _OF_NAMES


def require_name_taken(error: DuplicateKeyError) -> None:
    """Raise ``error`` unless it says that the ``_id`` is taken: then a unique index that isn't the
    gateway's refuses the write."""
    if _index_of(error.details or {}) not in _OF_NAMES:
        raise error


def _index_of(failure: Mapping[str, Any]) -> str:
    """The fields of the unique index that a duplicate violates; "" if the server doesn't say."""
    return ", ".join(failure.get("keyPattern", ()))


def _reason(failure: Mapping[str, Any]) -> str:
    if failure.get("code") == _DUPLICATE_KEY:
        index = _index_of(failure)
        return f"a unique index on {index} refuses it; it isn't the gateway's: drop that index"
    if failure.get("code") == _INVALID:
        return "a validator refuses it; it isn't the gateway's: see `gateway doctor`"
    if failure.get("code") == _DISK_FULL:
        return "the disk of MongoDB is full"
    if failure.get("code") in _TOO_LARGE_CODES:
        return _TOO_LARGE
    said = str(failure.get("errmsg")).partition("{")[0][:200]
    return f"{said.rstrip(': ')} (code {failure.get('code')})"


# In the server's message, before two times, when a read waits for a write that no majority has.
_UNCONFIRMED: Final = "Error waiting for snapshot not less than"
# In the driver's message when all members that it had found are gone.
_GUESS: Final = "configured with internal hostnames or IPs?"


def has_primary(client: MongoClient[Any]) -> bool:
    """Whether the driver knows a primary (or a router) to ask now; no I/O."""
    servers = client.topology_description.server_descriptions().values()
    return any(server.is_writable for server in servers)


def explained(client: MongoClient[Any], error: PyMongoError) -> str:
    """The driver's message; for known errors, one that tells an operator what to do."""
    servers = client.topology_description.server_descriptions()
    kinds = {server.server_type_name: _address_text(address) for address, server in servers.items()}
    if "RSGhost" in kinds:
        return f"the replica set of {kinds['RSGhost']} is not initiated: run rs.initiate() there"
    if forbidden := _FORBIDDEN.search(str(error)):  # the rest of the message quotes the data
        database, command, collection = forbidden.groups()
        return (
            f"the MongoDB user may not do {command} on {database}.{collection}: it needs the role"
            f" readWrite in database {database}"
        )
    # Without the member's whole answer, which the error of a wait for a primary can quote, too.
    text = str(error).partition(", full error: ")[0]
    if _UNCONFIRMED in text:
        return "MongoDB confirms no write: is a majority of the members that hold data up?"
    if not isinstance(error, ServerSelectionTimeoutError):
        return _QUOTED_QUERY.sub(": ", text)
    if kinds.keys() & {"RSSecondary", "RSOther", "RSArbiter"}:
        members = ", ".join(sorted(map(_address_text, servers)))
        return f"there is no primary among {members}: is a majority of the members up?"
    if _GUESS in text:  # the members answered before, so their names aren't to blame
        return f"none of {', '.join(sorted(map(_address_text, servers)))} can be reached"
    return text.partition(" (configured timeouts")[0].partition(", Timeout:")[0]


def _address_text(address: tuple[str, int | None]) -> str:
    host, port = address
    # A Unix socket has no port, but the driver may give TCP's.
    return host if port is None or host.endswith(".sock") else f"{host}:{port}"


def known_election(client: MongoClient[Any]) -> ObjectId | None:
    """The election of the primary that the driver would ask now; no I/O.

    None if no primary is known, and on a sharded cluster, whose primaries the driver never sees.
    """
    for server in client.topology_description.server_descriptions().values():
        if server.server_type_name == "RSPrimary":
            return server.election_id
    return None


def ask_primary(client: MongoClient[Any], session: ClientSession) -> ObjectId | None:
    """The primary's election; None on a sharded cluster.

    Afterwards, the session's operation time isn't before the primary's last write. Raises
    StoreUnreachable if the primary has stepped down, and the driver's errors.
    """
    hello = client.admin.command("hello", session=session, read_preference=ReadPreference.PRIMARY)
    if not hello["isWritablePrimary"]:
        raise StoreUnreachable("there is no primary at the moment")
    election: ObjectId | None = hello.get("electionId")
    return election
