"""Bodies of PATCH, in each of the media types that it takes, as edits."""

from __future__ import annotations

import patching
from gateway.decide.request import ApplyPatch, Merge
from gateway.http.wire import headers as media_types
from gateway.http.wire.answers import encode
from gateway.http.wire.body import decode_extended_patch, decode_patch, decode_value
from gateway.limits import RequestLimits
from patching import Json, Limits


def read_patch(
    media_type: str, raw: bytes, limits: RequestLimits, patch_limits: Limits
) -> tuple[ApplyPatch | Merge, Json]:
    """The edit that a body of one of the patch types asks for, and the body decoded.

    Raises RequestRefused, Unstorable, and PatchError where it is no patch.
    """
    body: Json
    edit: ApplyPatch | Merge
    if media_type == media_types.JSON_PATCH:
        body = decode_patch(raw)
        edit = ApplyPatch(_plain(body, patch_limits))
    elif media_type == media_types.EXTENDED_PATCH:
        body = decode_extended_patch(raw)
        edit = ApplyPatch(patching.parse_extended(body, limits=patch_limits))
    else:
        body = decode_value(raw, limits)
        edit = Merge(body, len(encode(body)))
    return edit, body


def _plain(body: Json, limits: Limits) -> patching.Patch:
    """The RFC 6902 patch. An operation that extended patches alone have is told with their type."""
    try:
        return patching.parse(body, limits=limits)
    except patching.InvalidPatch as error:
        if error.code == "unknown_operation" and isinstance(body, list):
            name = body[error.operation or 0]["op"]
            if name in patching.EXTENDED_OPERATIONS:
                error.detail += f"; {name!r} is one of {media_types.EXTENDED_PATCH}"
        raise
