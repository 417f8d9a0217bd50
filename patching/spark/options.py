"""The options of the data source, in one table: for each its use, default, help and parser."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

from patching.client import BulkTerms, NotAuthorized, RequestError, Retry
from patching.client._retry import Tries
from patching.client.transport import HttpAnswer, Transport
from patching.spark import option_parsers as parsers

WRITE: Final = "write"
READ: Final = "read"
READ_STREAM: Final = "readStream"
_READS: Final = (READ, READ_STREAM)
# The use of a DataFrame that is being loaded: Spark doesn't say yet whether it streams.
LOAD: Final = "load"
_ALL: Final = (WRITE, READ, READ_STREAM)
_HINT: Final = " (option 'token' or 'tokenFile')"
_UNAUTHENTICATED: Final = 401
PARTITIONS_MAX: Final = 100_000
_VERSION_MAX: Final = 10**18 - 1


_P = ParamSpec("_P")
_T = TypeVar("_T")


def brief(*kinds: type[Exception]) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """A decorator for what Spark calls. An error of these ``kinds`` says all that its reader needs,
    so it comes without frames and causes, which Spark would show first."""

    def decorate(call: Callable[_P, _T]) -> Callable[_P, _T]:
        @functools.wraps(call)
        def run(*args: _P.args, **given: _P.kwargs) -> _T:
            try:
                return call(*args, **given)
            except kinds as error:
                raise error.with_traceback(None) from None

        return run

    return decorate


class UseRefused(ValueError):
    """The source can't be used like this: because of an option, a column, or the mode."""


class OptionRefused(UseRefused):
    """An option that is unknown, missing, out of place, or has an invalid value."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(f"option {name!r}: {detail}")
        self.name = name
        self.detail = detail


@dataclass(frozen=True, slots=True)
class OptionRow:
    """An option. ``default``: the text of its default value; None if it has none. ``parse`` raises
    ValueError with the allowed values. ``field``: its name in `Options`."""

    name: str
    field: str
    parse: Callable[[str], Any]
    help: str
    uses: tuple[str, ...]
    default: str | None


def _option(
    parse: Callable[[str], Any],
    help: str,
    *uses: str,
    default: str | None = None,
    unset: object = None,
    required: bool = False,
    secret: bool = False,
) -> Any:
    """The field of an option, for ``uses``, or for all if none are named. ``unset``: its value if
    it isn't given and has no ``default``. No repr shows a ``secret``."""
    value = MISSING if required else unset if default is None else parse(default)
    about = {"parse": parse, "help": help, "uses": uses or _ALL, "default": default}
    return field(default=value, repr=not secret, metadata=about)


# Delta's names, and the options that they mean.
_ALIASES: Final = {
    "startingversion": "startingRevision",
    "endingversion": "endingRevision",
    "versionasof": "revision",
    "timestampasof": "timestamp",
}
# Spark's own options, which it passes on.
_FOR_SPARK: Final = frozenset(("checkpointlocation", "queryname"))
# Options that Spark adds by itself, and why they are refused.
_OF_SPARK: Final = {"path": "a catalog isn't loaded or saved by path; use `catalog`"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Checked options. Each field has its option's name in snake case. None: not given."""

    url: str = _option(
        parsers.url,
        "address of the gateway, `http://host:8080`, or several, separated by commas: if one "
        "can't be reached, the next one is used; required",
        required=True,
    )
    catalog: str | None = _option(
        parsers.text,
        "name of the catalog; required, unless you write rows that have a column `catalog`",
    )
    token: str | None = _option(parsers.token, "bearer token sent with each request", secret=True)
    token_file: str | None = _option(
        parsers.text, "file with the bearer token, on every executor; read for each request"
    )
    ca_file: str | None = _option(
        parsers.text,
        "file with the certificates to trust instead of the system's, on every executor",
    )
    certificate_file: str | None = _option(
        parsers.text, "file with the client's own certificate, on every executor"
    )
    key_file: str | None = _option(
        parsers.text, "file with the key of that certificate, on every executor"
    )
    timeout: float = _option(
        parsers.seconds,
        "seconds to wait for each piece of an answer before the request is sent again",
        default="60",
    )
    retry_timeout: float = _option(
        parsers.seconds,
        "seconds for which a request without an answer, or refused for now, is sent again; "
        "when rows are written, counted from the last row that was decided",
        default="120",
    )
    max_retries: int | None = _option(
        parsers.number(0),
        "maximum number of retries of a request; without it, `retryTimeout` alone decides",
    )
    batch_size: int = _option(
        parsers.number(1), "maximum lines of a bulk request", WRITE, default="1000"
    )
    idempotency: str | None = _option(
        parsers.one_of("content", "job", "column", "none"),
        "how a row without an idempotency key gets one: `content`: from what the row asks for, "
        "and its number among equal rows (default of named jobs and queries); `job`: from its "
        "place among the rows of its document (default of other jobs); `column`: each row must "
        "have its own key; `none`: it gets none, and may be applied twice",
        WRITE,
    )
    txn_app_id: str | None = _option(
        parsers.text,
        "name of the application, as in Delta; together with `txnVersion` it names the job. If "
        "a job is started again, it applies only the rows that it hasn't applied yet; once it "
        "has finished, none",
        WRITE,
    )
    txn_version: int | None = _option(
        parsers.number(0, _VERSION_MAX),
        "number of the application's job, higher than those of earlier jobs",
        WRITE,
    )
    txn_principals: tuple[str, ...] | None = _option(
        parsers.names,
        "names of other principals, separated by commas, that may continue the application's "
        "jobs, or the query",
        WRITE,
    )
    on_error: str = _option(
        parsers.one_of("fail", "skip", "deadletter"),
        "what to do with a malformed or refused row: `fail` the task, `skip` and count the row, or "
        "`deadletter`: write it to `deadLetterPath`",
        WRITE,
        default="fail",
    )
    dead_letter_path: str | None = _option(
        parsers.folder,
        "folder for the rows that couldn't be written, on a file system that driver and "
        "executors share",
        WRITE,
    )
    report_path: str | None = _option(
        parsers.folder,
        "folder for a report of each job or micro-batch, on the driver's file system",
        WRITE,
    )
    row_mode: str = _option(
        parsers.one_of("upsert", "create", "update"),
        "which documents rows may write: `create` only new ones, `update` only existing ones, "
        "`upsert` all; other rows are passed over, and counted. A column `mode` overrides it",
        WRITE,
        default="upsert",
    )
    message: str | None = _option(
        parsers.message, "message of every commit; a column `message` overrides it", WRITE
    )
    manager: str | None = _option(
        parsers.manager,
        "manager that owns what rows with `apply` send; by default the principal",
        WRITE,
    )
    conflict: str | None = _option(
        parsers.one_of("refuse", "skip", "force"),
        "what to do with fields that another owner has with a different value, in rows with "
        "`apply`: `refuse` (the gateway's default), `skip` or `force`",
        WRITE,
    )
    type: str = _option(
        parsers.one_of("documents", "commits", "changes"),
        "content of the rows: `documents`, `commits` or `changes`",
        *_READS,
        default="documents",
    )
    dead_letters: str | None = _option(
        parsers.folder,
        "folder of dead letters to read instead of a catalog, so that you can write their rows "
        "again; takes only `columns` beside it",
        READ,
    )
    prefix: str | None = _option(parsers.text, "only keys that begin with this", *_READS)
    key: str | None = _option(parsers.text, "only this key", *_READS)
    keys: tuple[str, ...] | None = _option(
        parsers.keys, "only these keys: a JSON array of strings", READ
    )
    revision: int | None = _option(parsers.number(0), "the state at this revision", READ)
    timestamp: str | None = _option(parsers.time, "the state at this time, RFC 3339", READ)
    columns: tuple[str, ...] | None = _option(
        parsers.names,
        "names of the columns to read, separated by commas, because Spark doesn't say which "
        "ones a query needs",
        *_READS,
    )
    partitions: int | None = _option(
        parsers.number(1, PARTITIONS_MAX),
        "number of tasks that share a read, up to 100000",
        *_READS,
    )
    partition_bytes: int | None = _option(
        parsers.number(1),
        "splits a read into tasks of about this many bytes of documents each, estimated from a "
        "sample",
        READ,
    )
    pin_seconds: int = _option(
        parsers.number(0),
        "seconds for which a pin protects the revision from compaction, renewed during the "
        "read; 0: no pin",
        READ,
        default="3600",
    )
    max_commits_per_trigger: int | None = _option(
        parsers.number(1), "maximum commits of a micro-batch", READ_STREAM
    )
    max_bytes_per_trigger: int | None = _option(
        parsers.number(1),
        "bytes of JSON of changes: a micro-batch ends with the commit that reaches them",
        READ_STREAM,
    )
    include: tuple[str, ...] = _option(
        parsers.some_of("before", "value"),
        "columns with whole documents in addition to their changes: `before`, `value` (after "
        "the commit), or both",
        *_READS,
        unset=(),
    )
    starting_revision: str | None = _option(
        parsers.text,
        "the first commit: its revision; `earliest`; or `latest` (a stream's default): only "
        "new ones. `state`: a stream begins with the existing documents",
        *_READS,
    )
    starting_timestamp: str | None = _option(
        parsers.time, "the first commit: the first at or after this time, RFC 3339", *_READS
    )
    fail_on_data_loss: bool = _option(
        parsers.flag,
        "`false`: if commits of the feed were compacted before they were read, the stream "
        "skips the gap, and the driver's log names it",
        READ_STREAM,
        default="true",
    )
    ending_revision: int | None = _option(parsers.number(0), "the last commit: its revision", READ)

    @classmethod
    def parse(cls, given: Mapping[str, str], use: str) -> Options:
        """Parse the options that Spark was given, names in any case, for ``use``: WRITE, READ,
        READ_STREAM or LOAD. Raises OptionRefused."""
        values: dict[str, Any] = {}
        lower = {name.lower() for name in given}
        for name, value in given.items():
            if name.lower() in _FOR_SPARK:
                continue
            alias = _ALIASES.get(name.lower())
            if alias is not None and alias.lower() in lower:
                raise OptionRefused(name, f"it means the same as {alias}, which is also given")
            option = _known(alias or name)
            if use not in option.uses and not (use == LOAD and set(_READS) & set(option.uses)):
                raise OptionRefused(option.name, f"it works only for {' and '.join(option.uses)}")
            if "deadletters" in lower and option.name not in ("deadLetters", "columns"):
                raise OptionRefused(option.name, "it has no effect with deadLetters")
            values[option.field] = _parsed(option, value)
        if "deadletters" in lower:
            values |= {"url": "", "catalog": ""}
        if "url" not in values:
            raise OptionRefused("url", "it is required")
        options = cls(**values)
        options._require_consistent(use)
        return options

    def open_transport(self) -> Transport:
        """A new connection pool, which the caller closes."""
        return OptionsTransport(
            self.url,
            token=self._token(),
            read_timeout_s=self.timeout,
            ca_file=self.ca_file,
            certificate_file=self.certificate_file,
            key_file=self.key_file,
        )

    @property
    def retry(self) -> Retry:
        """The retry policy without ``retryTimeout``, which `tries` adds."""
        return Retry(retries_max=self.max_retries)

    def tries(self, timeout_s: float | None = None) -> Tries:
        """The tries of one request, for ``timeout_s`` instead of ``retryTimeout``."""
        return self.retry.tries(self.retry_timeout if timeout_s is None else timeout_s)

    def bulk_terms(self, *, resend_unknown: bool = False) -> BulkTerms:
        return BulkTerms(
            lines_max=self.batch_size,
            retry_timeout_s=self.retry_timeout,
            retry=self.retry,
            resend_unknown=resend_unknown,
        )

    def _token(self) -> str | Callable[[], str] | None:
        path = self.token_file
        if path is None:
            return self.token
        return lambda: Path(path).read_text().strip()

    def _require_consistent(self, use: str) -> None:
        if self.token is not None and self.token_file is not None:
            raise OptionRefused("tokenFile", "it can't be given together with token")
        if (self.txn_app_id is None) != (self.txn_version is None):
            raise OptionRefused("txnVersion", "txnAppId and txnVersion need each other")
        if self.txn_app_id is not None and self.idempotency == "none":
            raise OptionRefused("txnAppId", "it can't be given together with idempotency=none")
        if (self.certificate_file is None) != (self.key_file is None):
            raise OptionRefused("keyFile", "certificateFile and keyFile need each other")
        if use != WRITE and self.catalog is None:
            raise OptionRefused("catalog", "it is required")
        if self.partitions is not None and self.partition_bytes is not None:
            raise OptionRefused("partitionBytes", "it can't be given together with partitions")
        if self.revision is not None and self.timestamp is not None:
            raise OptionRefused("timestamp", "it can't be given together with revision")
        if self.starting_revision is not None and self.starting_timestamp is not None:
            raise OptionRefused(
                "startingTimestamp", "it can't be given together with startingRevision"
            )
        if (self.on_error == "deadletter") != (self.dead_letter_path is not None):
            detail = "deadLetterPath and onError=deadletter need each other"
            raise OptionRefused("deadLetterPath", detail)


def _named(field: str) -> str:
    first, *others = field.split("_")
    return first + "".join(map(str.title, others))


OPTIONS: Final = tuple(
    OptionRow(_named(each.name), each.name, **each.metadata) for each in fields(Options)
)
_BY_NAME: Final = {option.name.lower(): option for option in OPTIONS}


def for_use(given: Mapping[str, str], use: str) -> dict[str, str]:
    """``given`` without the options that are only for other uses."""
    known = {name: _BY_NAME.get(_ALIASES.get(name.lower(), name).lower()) for name in given}
    return {name: given[name] for name, each in known.items() if each is None or use in each.uses}


def _known(name: str) -> OptionRow:
    option = _BY_NAME.get(name.lower())
    if option is not None:
        return option
    if name.lower() in _OF_SPARK:
        raise OptionRefused(name, _OF_SPARK[name.lower()])
    near = difflib.get_close_matches(name.lower(), _BY_NAME, n=1)
    known = ", ".join(each.name for each in _BY_NAME.values())
    hint = f"did you mean {_BY_NAME[near[0]].name!r}?" if near else f"known options: {known}"
    raise OptionRefused(name, f"unknown option; {hint}")


def _parsed(option: OptionRow, value: str) -> Any:
    try:
        return option.parse(value)
    except ValueError as error:
        raise OptionRefused(option.name, str(error)) from error


class OptionsTransport(Transport):
    """A Transport whose refusals of a token name the option."""

    def _refusal(self, method: str, answer: HttpAnswer) -> RequestError:
        return naming_the_option(super()._refusal(method, answer))


def naming_the_option(error: RequestError) -> RequestError:
    """``error``; if the token is at fault, its detail names the option."""
    if isinstance(error, NotAuthorized) and error.status == _UNAUTHENTICATED:
        error.detail = error.detail.removesuffix(_HINT) + _HINT
    return error


def may_not_write(error: RequestError) -> bool:
    """Whether its principal may not write the catalog, whatever the row is. An acl is a document's
    own, and to name an author, a row needs the role admin."""
    return isinstance(error, NotAuthorized) and error.problem.get("role") == "write"
