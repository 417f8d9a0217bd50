"""An HTTP client of the gateway.

    with Gateway("http://gateway:8080", token=token) as gateway:
        catalog = gateway.catalog("shop")
        orders = catalog.get("orders")
        catalog.patch("orders", [{"op": "add", "path": "/tier", "value": 2}], if_match=orders)

Programs use `Gateway` and `Catalog`; `Follower` keeps a local copy of a catalog, and `append`
commits on top of that. Every error is a `ClientError`, whose docstring draws the tree. Submodules
have what fewer programs need: all `errors`, the gateway's answers as `results`, the `terms` of a
write, and the layer below: `transport` and `routes` (of one catalog), which send everything once,
and `bulk_writer`.
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
from patching.former_names import by_module, former_names

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
    # The former names of this package, by the module that has them now.
    _MOVED = {
        **by_module(
            {
                "patching.client._documents": "Part",
                "patching.client._feed": "Feed",
                "patching.client._reading": "ExportStream",
                "patching.client.bulk_writer": "BulkWriter",
                "patching.client.errors": (
                    "BadRequest CommitSummary CommitsMissed FollowerStopped Invalid "
                    "ListenerStopped ListenerTooSlow NotModified OverLimit PinLost "
                    "PreconditionRequired RevisionTooOld RevisionUnknown Unavailable "
                    "UnexpectedAnswer WaitTimedOut"
                ),
                "patching.client.results": (
                    "ActionResult CatalogHead CatalogState CatalogWritten Compaction "
                    "ContestedLeaf Difference DocumentDigest LeafOwners Owner OwnershipChange "
                    "PinState SkippedPlace UploadState"
                ),
                "patching.client.routes": "CatalogRoutes CommitPage Export FeedPage",
                "patching.client.terms": "Token Tokens WriteTerms new_idempotency_key",
                "patching.client.transactions": "Branch",
                "patching.client.transport": "HttpAnswer Transport segment",
            }
        ),
        "CatalogSettings": "patching.client._gateway.SettingsPart",
        "Settings": "patching.client._gateway.SettingsPart",
        "Backoff": "patching.client.Retry",
        "OwnersChange": "patching.client.results.OwnershipChange",
        "Answer": "patching.client.transport.HttpAnswer",
        "Uploads": "patching.client.uploads.CatalogUploads",
    }

    __getattr__ = former_names(__name__, _MOVED)
