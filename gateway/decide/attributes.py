"""Attributes of a document: an object, small, whose acl is one."""

from __future__ import annotations

import msgspec

from gateway.access.acl import AclMalformed, acl_of, require_few_names
from gateway.errors import AboveLimit, AttributesInvalid
from gateway.model import Attributes
from patching import Json
from patching.values import Absent

_encode = msgspec.json.Encoder().encode


def checked_attributes(value: Json | Absent, key: str, bytes_max: int) -> Attributes:
    """``value`` as attributes that are written. Raises AttributesInvalid unless they may be, and
    AboveLimit."""
    if not isinstance(value, dict):
        raise AttributesInvalid(key)
    try:
        acl = acl_of(value)
        if acl is not None:
            require_few_names(acl)
    except AclMalformed as error:
        raise AttributesInvalid(key, error.pointer, error.detail) from error
    size_bytes = len(_encode(value))
    if size_bytes > bytes_max:
        raise AboveLimit(
            f"the attributes take {size_bytes} bytes as JSON, {bytes_max} are allowed",
            limit="attributes_bytes_max",
            maximum=bytes_max,
            actual=size_bytes,
        )
    return value
