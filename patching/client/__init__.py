"""An HTTP client of the gateway.

    with Gateway("http://gateway:8080", token=token) as gateway:
        catalog = gateway.catalog("shop")
        orders = catalog.get("orders")
        catalog.patch("orders", [{"op": "add", "path": "/tier", "value": 2}], if_match=orders)

`Gateway` and `Catalog` are what programs use; `Follower` keeps a local copy of a catalog, and
`append` commits on top of that. Every error is a `ClientError`, whose docstring draws the tree.
What fewer programs need is in submodules: all `errors`, the gateway's answers as `results`, the
`terms` of a write, and the layer below, requests as they are, without retries: `transport`,
`routes` (of one catalog) and `bulk_writer`.
"""

from typing import TYPE_CHECKING

from patching.client._append import Appended, append
from patching.client._documents import contested
from patching.client._follower import Follower
from patching.client._gateway import Catalog, Gateway
from patching.client._local_copy import History, Snapshot
from patching.client._retention import Pin
from patching.client._retry import Retry, RetryDetails
from patching.client._subscription import Reload, Subscription
from patching.client.bulk_writer import BulkAnswer, BulkLine, BulkTerms
from patching.client.errors import (
    AppendFailed,
    Busy,
    ClientError,
    Conflict,
    Gone,
    NotAuthorized,
    NotFound,
    OutcomeUnknown,
    PreconditionFailed,
    Problem,
    RequestError,
    Unreachable,
    UpdateFailed,
)
from patching.client.results import (
    Change,
    Commit,
    Document,
    Reverted,
    Several,
    TransactionResult,
    Updated,
    Written,
)
from patching.client.transactions import Condition, Transaction
from patching.client.uploads import Upload
from patching.former_names import former_names

__all__ = [
    "AppendFailed",
    "Appended",
    "BulkAnswer",
    "BulkLine",
    "BulkTerms",
    "Busy",
    "Catalog",
    "Change",
    "ClientError",
    "Commit",
    "Condition",
    "Conflict",
    "Document",
    "Follower",
    "Gateway",
    "Gone",
    "History",
    "NotAuthorized",
    "NotFound",
    "OutcomeUnknown",
    "Pin",
    "PreconditionFailed",
    "Problem",
    "Reload",
    "RequestError",
    "Retry",
    "RetryDetails",
    "Reverted",
    "Several",
    "Snapshot",
    "Subscription",
    "Transaction",
    "TransactionResult",
    "Unreachable",
    "UpdateFailed",
    "Updated",
    "Upload",
    "Written",
    "append",
    "contested",
]

if not TYPE_CHECKING:
    # Former names here, by the module that has them.
    _MOVED = {
        "Part": "patching.client._documents.Part",
        "Feed": "patching.client._feed.Feed",
        "CatalogSettings": "patching.client._gateway.SettingsPart",
        "Settings": "patching.client._gateway.SettingsPart",
        "ExportStream": "patching.client._reading.ExportStream",
        "Backoff": "patching.client.Retry",
        "BulkWriter": "patching.client.bulk_writer.BulkWriter",
        "BadRequest": "patching.client.errors.BadRequest",
        "CommitSummary": "patching.client.errors.CommitSummary",
        "CommitsMissed": "patching.client.errors.CommitsMissed",
        "FollowerStopped": "patching.client.errors.FollowerStopped",
        "Invalid": "patching.client.errors.Invalid",
        "ListenerStopped": "patching.client.errors.ListenerStopped",
        "ListenerTooSlow": "patching.client.errors.ListenerTooSlow",
        "NotModified": "patching.client.errors.NotModified",
        "OverLimit": "patching.client.errors.OverLimit",
        "PinLost": "patching.client.errors.PinLost",
        "PreconditionRequired": "patching.client.errors.PreconditionRequired",
        "RevisionTooOld": "patching.client.errors.RevisionTooOld",
        "RevisionUnknown": "patching.client.errors.RevisionUnknown",
        "Unavailable": "patching.client.errors.Unavailable",
        "UnexpectedAnswer": "patching.client.errors.UnexpectedAnswer",
        "WaitTimedOut": "patching.client.errors.WaitTimedOut",
        "ActionResult": "patching.client.results.ActionResult",
        "CatalogHead": "patching.client.results.CatalogHead",
        "CatalogState": "patching.client.results.CatalogState",
        "CatalogWritten": "patching.client.results.CatalogWritten",
        "Compaction": "patching.client.results.Compaction",
        "ContestedLeaf": "patching.client.results.ContestedLeaf",
        "Difference": "patching.client.results.Difference",
        "DocumentDigest": "patching.client.results.DocumentDigest",
        "LeafOwners": "patching.client.results.LeafOwners",
        "Owner": "patching.client.results.Owner",
        "OwnersChange": "patching.client.results.OwnershipChange",
        "OwnershipChange": "patching.client.results.OwnershipChange",
        "PinState": "patching.client.results.PinState",
        "SkippedPlace": "patching.client.results.SkippedPlace",
        "UploadState": "patching.client.results.UploadState",
        "CatalogRoutes": "patching.client.routes.CatalogRoutes",
        "CommitPage": "patching.client.routes.CommitPage",
        "Export": "patching.client.routes.Export",
        "FeedPage": "patching.client.routes.FeedPage",
        "Token": "patching.client.terms.Token",
        "Tokens": "patching.client.terms.Tokens",
        "WriteTerms": "patching.client.terms.WriteTerms",
        "new_idempotency_key": "patching.client.terms.new_idempotency_key",
        "Branch": "patching.client.transactions.Branch",
        "Answer": "patching.client.transport.HttpAnswer",
        "HttpAnswer": "patching.client.transport.HttpAnswer",
        "Transport": "patching.client.transport.Transport",
        "segment": "patching.client.transport.segment",
        "Uploads": "patching.client.uploads.CatalogUploads",
    }

    __getattr__ = former_names(__name__, _MOVED)
