"""Bodies of PATCH, in each of the media types that it takes, as edits."""

from __future__ import annotations

import patching
from gateway.decide.request import ApplyPatch, Merge
from gateway.http.door.rate_limits import operations_in, spend_operations
from gateway.http.limits import RequestLimits
from gateway.http.wire import headers as media_types
from gateway.http.wire.answers import encode
from gateway.http.wire.body import decode_extended_patch, decode_patch, decode_value, read_body
from gateway.http.wire.environ import Environ
from gateway.http.write.ask import Sent
from patching import Json, Limits


def read_patch(
    environ: Environ, limits: RequestLimits, patch_limits: Limits
) -> tuple[ApplyPatch | Merge, Sent]:
    """The edit that the body asks for, and what was sent.

    Raises RequestRefused, also where its principal may not ask for as many operations now,
    Unstorable, and PatchError where it is no patch.
    """
    media_type = media_types.patch_type(environ)
    raw = read_body(environ, limits)
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
    spend_operations(environ, operations_in(edit))
    return edit, Sent(body, media_type, len(raw))


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
