"""Refusals that are HTTP's own, and every ``code`` of a problem, with its status and title.

Codes are stable, titles are not. Within version 1 of the contract, no row is removed, and no status
changes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from patching import Json


class RequestRefused(Exception):
    """The request can't be understood or isn't allowed. ``code`` is a row of ``KINDS``.

    ``members`` go into the problem, ``headers`` into the answer. ``retry_after_s`` overrides the
    row's.
    """

    retryable = False
    retry_after_s: int | None = None

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        headers: Sequence[tuple[str, str]] = (),
        **members: Json,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.headers = headers
        self.members = members


def over_limit(
    what: str, limit: str, maximum: int, actual: int, *, code: str = "over_limit", **members: Any
) -> RequestRefused:
    """The refusal of more than the setting ``limit`` allows. ``what``: the text with the actual."""
    detail = f"{what}; the limit is {maximum}"
    return RequestRefused(code, detail, limit=limit, maximum=maximum, actual=actual, **members)


class TryLater(RequestRefused):
    """There are too many such requests now: nothing was done, and the client may send it again.

    ``wait_s``: how long until the request is probably let in. ``retry_after_s`` is that in whole
    seconds, at least 1, plus a random part (up to a quarter of it, or 1), so that clients that were
    refused together don't come back together.
    """

    retryable = True

    def __init__(self, code: str, detail: str, wait_s: float, **members: Json) -> None:
        super().__init__(code, detail, headers=(), **members)
        least_s = max(1, math.ceil(wait_s))
        self.retry_after_s = least_s + random.randint(0, max(1, least_s // 4))


class ProblemKind(NamedTuple):
    status: int
    title: str
    retry_after_s: int | None = None


KINDS: Final[dict[str, ProblemKind]] = {
    # The request itself
    "malformed_request": ProblemKind(400, "Malformed request"),
    "malformed_json": ProblemKind(400, "Malformed JSON"),
    "invalid_body": ProblemKind(400, "The body doesn't fit this route"),
    "invalid_name": ProblemKind(400, "Invalid catalog name or key"),
    "invalid_parameter": ProblemKind(400, "Invalid parameter"),
    "invalid_header": ProblemKind(400, "Invalid header"),
    "invalid_condition": ProblemKind(400, "Invalid condition header"),
    "invalid_patch": ProblemKind(400, "Invalid patch"),
    "invalid_pointer": ProblemKind(400, "Invalid JSON Pointer"),
    "unknown_operation": ProblemKind(400, "Unknown patch operation"),
    "too_many_refused": ProblemKind(400, "Too many refused lines in a row"),
    "request_timeout": ProblemKind(408, "The body arrived too slowly"),
    # The principal
    "unauthenticated": ProblemKind(401, "No valid token"),
    "forbidden": ProblemKind(403, "Not allowed"),
    "foreign_page": ProblemKind(403, "Not served to pages of other sites"),
    # Names and paths
    "route_not_found": ProblemKind(404, "No such route"),
    "method_not_allowed": ProblemKind(405, "Method not allowed"),
    "catalog_not_found": ProblemKind(404, "No such catalog"),
    "document_not_found": ProblemKind(404, "No such document"),
    "revision_not_found": ProblemKind(404, "No such revision"),
    "outcome_not_found": ProblemKind(404, "Nothing was decided under this idempotency key"),
    "pin_not_found": ProblemKind(404, "No such pin"),
    "token_not_found": ProblemKind(404, "No such token"),
    "upload_not_found": ProblemKind(404, "No such upload"),
    "subscription_not_found": ProblemKind(404, "No such subscription"),
    "revision_compacted": ProblemKind(410, "Revision compacted"),
    # The state
    "test_failed": ProblemKind(409, "A test operation failed"),
    "path_missing": ProblemKind(409, "A path doesn't exist"),
    "patch_does_not_fit": ProblemKind(409, "The patch doesn't fit the document"),
    "owned_by_others": ProblemKind(409, "Others own these fields"),
    "target_exists": ProblemKind(409, "The new key already has a document"),
    "changed_since": ProblemKind(409, "The documents changed after the commits to undo"),
    "upload_conflict": ProblemKind(409, "The document changed since the upload was opened"),
    "upload_committed": ProblemKind(409, "The upload is already committed"),
    "upload_incomplete": ProblemKind(409, "Parts of the upload are missing"),
    "application_conflict": ProblemKind(409, "The application's version is over, or was not begun"),
    "pin_holds": ProblemKind(409, "A pin keeps this history"),
    "snapshot_exists": ProblemKind(409, "History is already compacted that far"),
    "precondition_failed": ProblemKind(412, "Precondition failed"),
    "precondition_required": ProblemKind(428, "Precondition required"),
    # Sizes and contents
    "name_too_long": ProblemKind(414, "Name too long"),
    "body_too_large": ProblemKind(413, "Body too large"),
    "over_limit": ProblemKind(413, "Over a limit"),
    "unsupported_media_type": ProblemKind(415, "Unsupported media type"),
    "unsupported_content_encoding": ProblemKind(415, "Unsupported content encoding"),
    "nesting_too_deep": ProblemKind(422, "Nested too deeply"),
    "schema_violation": ProblemKind(422, "Schema violation"),
    "list_violation": ProblemKind(422, "List items share a key, or one has none"),
    "index_needs_test": ProblemKind(422, "An index into a list with keys needs a test"),
    "documents_break_settings": ProblemKind(422, "Documents break the settings"),
    "invalid_settings": ProblemKind(422, "Invalid catalog settings"),
    "invalid_attributes": ProblemKind(422, "Invalid attributes"),
    "too_much_work": ProblemKind(422, "The request takes too much processor time"),
    "unstorable_value": ProblemKind(422, "Value can't be stored"),
    "idempotency_key_reused": ProblemKind(422, "Idempotency key reused"),
    # The service
    "queue_full": ProblemKind(429, "Too many writes are waiting", retry_after_s=1),
    "overloaded": ProblemKind(429, "Too many requests are under way", retry_after_s=1),
    # Each such refusal says itself when to try again.
    "rate_limited": ProblemKind(429, "Rate limit exceeded"),
    "too_many_watchers": ProblemKind(429, "Too many watchers", retry_after_s=5),
    "too_many_uploads": ProblemKind(429, "Too many open uploads", retry_after_s=30),
    "internal_error": ProblemKind(500, "Internal error"),
    "deadline_exceeded": ProblemKind(503, "Deadline exceeded, not applied", retry_after_s=1),
    "held_back": ProblemKind(503, "Held back by an earlier line, not applied", retry_after_s=1),
    "store_unavailable": ProblemKind(503, "Database unavailable, not applied", retry_after_s=1),
    "catalog_being_restored": ProblemKind(
        503, "The catalog is being restored, not applied", retry_after_s=5
    ),
    "keys_unavailable": ProblemKind(
        503, "Tokens can't be verified now, not applied", retry_after_s=1
    ),
    "outcome_unknown": ProblemKind(504, "Outcome unknown"),
}


def type_uri(code: str) -> str:
    return f"urn:metadata-gateway:problem:{code}"
