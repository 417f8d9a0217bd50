"""Signatures as Standard Webhooks (version 1) has them, for libraries of many languages to verify.

What is signed is the message's id, the time in seconds and the body, with a full stop between them,
by HMAC-SHA256. While a secret is changed, a message has a signature of both.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

PREFIX: Final = "whsec_"
BYTES_MIN: Final = 24
BYTES_MAX: Final = 64
RULE: Final = f"it must be '{PREFIX}' and the base64 of {BYTES_MIN} to {BYTES_MAX} bytes"


def secret_bytes(secret: str) -> bytes:
    """Raises ValueError where it is no secret."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError(RULE) from error
    if not secret.startswith(PREFIX) or not BYTES_MIN <= len(key) <= BYTES_MAX:
        raise ValueError(RULE)
    return key


def secret_of(key: bytes) -> str:
    return PREFIX + base64.b64encode(key).decode()


def signed(secrets: Sequence[str], message_id: str, time_s: int, body: bytes) -> dict[str, str]:
    """The headers of a message. Its id must not contain a full stop."""
    content = f"{message_id}.{time_s}.".encode() + body
    digests = (hmac.digest(secret_bytes(secret), content, hashlib.sha256) for secret in secrets)
    signatures = ["v1," + base64.b64encode(digest).decode() for digest in digests]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(time_s),
        "webhook-signature": " ".join(signatures),
    }
