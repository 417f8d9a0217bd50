"""An HTTP client of the gateway.

    with Gateway("http://gateway:8080", token=token) as gateway:
        catalog = gateway.catalog("shop")
        orders = catalog.get("orders")
        catalog.patch("orders", [{"op": "add", "path": "/tier", "value": 2}], if_match=orders)

`Gateway` and `Catalog` are what programs use; `Follower` keeps a local copy of a catalog, and
`append` commits on top of that. Every error is a `ClientError`, whose docstring draws the tree.
`Transport`, `CatalogRoutes` and `BulkWriter` are the layer below: requests as they are, without
retries.
"""

from typing import TYPE_CHECKING

from patching.client._append import Appended, append
from patching.client._bulk import BulkAnswer, BulkLine, BulkTerms, BulkWriter
from patching.client._documents import Part, contested
from patching.client._errors import (
    AppendFailed,
    BadRequest,
    Busy,
    ClientError,
    CommitsMissed,
    CommitSummary,
    Conflict,
    FollowerStopped,
    Gone,
    Invalid,
    ListenerStopped,
    ListenerTooSlow,
    NotAuthorized,
    NotFound,
    NotModified,
    OutcomeUnknown,
    OverLimit,
    PinLost,
    PreconditionFailed,
    PreconditionRequired,
    Problem,
    RequestError,
    RevisionTooOld,
    RevisionUnknown,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
    UpdateFailed,
    WaitTimedOut,
)
from patching.client._feed import Feed
from patching.client._follower import Follower
from patching.client._gateway import Catalog, CatalogSettings, Gateway
from patching.client._local_copy import History, Snapshot
from patching.client._reading import ExportStream
from patching.client._results import (
    ActionResult,
    CatalogHead,
    CatalogState,
    CatalogWritten,
    Change,
    Commit,
    Compaction,
    ContestedLeaf,
    Difference,
    Document,
    DocumentDigest,
    LeafOwners,
    Owner,
    OwnershipChange,
    Several,
    TransactionResult,
    Updated,
    Written,
)
from patching.client._retention import Pin, PinState
from patching.client._retry import Retry, RetryDetails, warn_renamed
from patching.client._reverting import Reverted, SkippedPlace
from patching.client._routes import CatalogRoutes, CommitPage, Export, FeedPage
from patching.client._subscription import Reload, Subscription
from patching.client._terms import Token, Tokens, WriteTerms, new_idempotency_key
from patching.client._transactions import Branch, Condition, Transaction
from patching.client._transport import HttpAnswer, Transport, segment
from patching.client._uploads import Upload, Uploads, UploadState

__all__ = [
    "ActionResult",
    "AppendFailed",
    "Appended",
    "BadRequest",
    "Branch",
    "BulkAnswer",
    "BulkLine",
    "BulkTerms",
    "BulkWriter",
    "Busy",
    "Catalog",
    "CatalogHead",
    "CatalogRoutes",
    "CatalogSettings",
    "CatalogState",
    "CatalogWritten",
    "Change",
    "ClientError",
    "Commit",
    "CommitPage",
    "CommitSummary",
    "CommitsMissed",
    "Compaction",
    "Condition",
    "Conflict",
    "ContestedLeaf",
    "Difference",
    "Document",
    "DocumentDigest",
    "Export",
    "ExportStream",
    "Feed",
    "FeedPage",
    "Follower",
    "FollowerStopped",
    "Gateway",
    "Gone",
    "History",
    "HttpAnswer",
    "Invalid",
    "LeafOwners",
    "ListenerStopped",
    "ListenerTooSlow",
    "NotAuthorized",
    "NotFound",
    "NotModified",
    "OutcomeUnknown",
    "OverLimit",
    "Owner",
    "OwnershipChange",
    "Part",
    "Pin",
    "PinLost",
    "PinState",
    "PreconditionFailed",
    "PreconditionRequired",
    "Problem",
    "Reload",
    "RequestError",
    "Retry",
    "RetryDetails",
    "Reverted",
    "RevisionTooOld",
    "RevisionUnknown",
    "Several",
    "SkippedPlace",
    "Snapshot",
    "Subscription",
    "Token",
    "Tokens",
    "Transaction",
    "TransactionResult",
    "Transport",
    "Unavailable",
    "UnexpectedAnswer",
    "Unreachable",
    "UpdateFailed",
    "Updated",
    "Upload",
    "UploadState",
    "Uploads",
    "WaitTimedOut",
    "WriteTerms",
    "Written",
    "append",
    "contested",
    "new_idempotency_key",
    "segment",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Names that are to go."""
        if name == "Backoff":
            warn_renamed("patching.client.Backoff", "patching.client.Retry")
            return Retry
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
