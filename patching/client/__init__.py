"""An HTTP client of the gateway. Needs the extra ``client``; ``import patching`` alone doesn't.

    with Follower("http://gateway:8080", "tables") as follower:
        follower.current().documents["orders"]       # a local look-up
        follower.at_revision(41), follower.at_time(yesterday)
        follower.subscribe(lambda commit: print(commit.revision))
        append(follower, lambda now: [{"action": "put", "key": "n", "value": len(now.documents)}])

Every error is a `ClientError`, whose docstring draws the tree.
"""

from .append import Appended, append
from .backoff import Backoff
from .bulk import BulkAnswer, BulkLine, BulkTerms, BulkWriter
from .catalog import (
    CatalogRoutes,
    CatalogState,
    CommitPage,
    Export,
    FeedPage,
    TransactionResult,
)
from .commits import Change, Commit
from .errors import (
    AppendFailed,
    BadRequest,
    Busy,
    ClientError,
    CommitsMissed,
    Conflict,
    FollowerStopped,
    Gone,
    Invalid,
    ListenerStopped,
    ListenerTooSlow,
    NotAuthorized,
    NotFound,
    OutcomeUnknown,
    OverLimit,
    PreconditionFailed,
    PreconditionRequired,
    Problem,
    RequestError,
    RevisionTooOld,
    RevisionUnknown,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
    WaitTimedOut,
)
from .follower import Follower
from .subscription import Reload, Subscription
from .transport import Answer, Transport
from .versions import History, Snapshot

__all__ = [
    "Answer",
    "AppendFailed",
    "Appended",
    "Backoff",
    "BadRequest",
    "BulkAnswer",
    "BulkLine",
    "BulkTerms",
    "BulkWriter",
    "Busy",
    "CatalogRoutes",
    "CatalogState",
    "Change",
    "ClientError",
    "Commit",
    "CommitPage",
    "CommitsMissed",
    "Conflict",
    "Export",
    "FeedPage",
    "Follower",
    "FollowerStopped",
    "Gone",
    "History",
    "Invalid",
    "ListenerStopped",
    "ListenerTooSlow",
    "NotAuthorized",
    "NotFound",
    "OutcomeUnknown",
    "OverLimit",
    "PreconditionFailed",
    "PreconditionRequired",
    "Problem",
    "Reload",
    "RequestError",
    "RevisionTooOld",
    "RevisionUnknown",
    "Snapshot",
    "Subscription",
    "TransactionResult",
    "Transport",
    "Unavailable",
    "UnexpectedAnswer",
    "Unreachable",
    "WaitTimedOut",
    "append",
]
