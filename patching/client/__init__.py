"""An HTTP client of the gateway. Needs the extra ``client``; ``import patching`` alone doesn't.

    with Gateway("http://gateway:8080", token=token) as gateway:
        catalog = gateway.catalog("shop")
        orders = catalog.get("orders")
        catalog.patch("orders", [{"op": "add", "path": "/tier", "value": 2}], if_match=orders)

`Gateway` and `Catalog` are what programs use; `Follower` keeps a local copy of a catalog, and
`append` commits on top of that. Every error is a `ClientError`, whose docstring draws the tree.
`Transport`, `CatalogRoutes` and `BulkWriter` are the layer below: requests as they are, without
retries.
"""

from patching.client.bulk import BulkAnswer, BulkLine, BulkTerms, BulkWriter
from patching.client.catalog import Catalog, Settings
from patching.client.documents import Part
from patching.client.follower import Follower
from patching.client.listing import ExportStream
from patching.client.results import (
    ActionResult,
    CatalogHead,
    CatalogWritten,
    Compaction,
    Document,
    Several,
    TransactionResult,
    Updated,
    Written,
)
from patching.client.retry import Backoff, Retry
from patching.client.transport import Answer, Transport

from .append import Appended, append
from .catalog_routes import CatalogRoutes, CatalogState, CommitPage, Export, FeedPage
from .commits import Change, Commit, CommitSummary
from .errors import (
    AppendFailed,
    ClientError,
    CommitsMissed,
    FollowerStopped,
    ListenerStopped,
    ListenerTooSlow,
    NotModified,
    PinLost,
    RequestError,
    RevisionTooOld,
    RevisionUnknown,
    UnexpectedAnswer,
    Unreachable,
    UpdateFailed,
    WaitTimedOut,
)
from .feed import Feed
from .gateway import Gateway
from .problems import (
    BadRequest,
    Busy,
    Conflict,
    Gone,
    Invalid,
    NotAuthorized,
    NotFound,
    OutcomeUnknown,
    OverLimit,
    PreconditionFailed,
    PreconditionRequired,
    Problem,
    Unavailable,
)
from .retention import Pin, PinState
from .subscription import Reload, Subscription
from .terms import Token, Tokens, WriteTerms
from .transaction import Branch, Transaction
from .uploads import Upload, Uploads, UploadState
from .versions import History, Snapshot

__all__ = [
    "ActionResult",
    "Answer",
    "AppendFailed",
    "Appended",
    "Backoff",
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
    "CatalogState",
    "CatalogWritten",
    "Change",
    "ClientError",
    "Commit",
    "CommitPage",
    "CommitSummary",
    "CommitsMissed",
    "Compaction",
    "Conflict",
    "Document",
    "Export",
    "ExportStream",
    "Feed",
    "FeedPage",
    "Follower",
    "FollowerStopped",
    "Gateway",
    "Gone",
    "History",
    "Invalid",
    "ListenerStopped",
    "ListenerTooSlow",
    "NotAuthorized",
    "NotFound",
    "NotModified",
    "OutcomeUnknown",
    "OverLimit",
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
    "RevisionTooOld",
    "RevisionUnknown",
    "Settings",
    "Several",
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
]
