"""How verdicts are laid out as BSON, in the tail of a head and, once written out, by themselves.

``verdicts``   ``_id`` catalog + NUL + principal + NUL + idempotency key; expires (a date)
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from gateway.model import Idempotency, Verdict

Record = dict[str, Any]

_encode = msgspec.json.Encoder().encode


def verdict_record(verdict: Verdict, kept_s: int) -> Record:
    asked = verdict.idempotency
    return {
        "_id": reply_id(verdict.catalog, asked.principal, asked.key),
        "catalog": verdict.catalog,
        "expires": datetime.fromtimestamp(verdict.time_us / 1_000_000 + kept_s, UTC),
        **verdict_fields(verdict),
    }


def verdict_from(record: Mapping[str, Any]) -> Verdict:
    return verdict_of(record["catalog"], record)


def verdict_fields(verdict: Verdict) -> Record:
    return {
        "number": verdict.number,
        "revision": verdict.revision,
        "time_us": verdict.time_us,
        "id": verdict.id,
        "idempotency": idempotency_fields(verdict.idempotency),
        "attempts": verdict.attempts,
        "outcome": _encode(verdict.outcome).decode(),
    }


def verdict_of(catalog: str, record: Mapping[str, Any]) -> Verdict:
    return Verdict(
        catalog=catalog,
        number=record["number"],
        revision=record["revision"],
        time_us=record["time_us"],
        id=record["id"],
        idempotency=Idempotency(**record["idempotency"]),
        attempts=record["attempts"],
        outcome=msgspec.json.decode(record["outcome"]),
        size_bytes=len(record["outcome"]),
    )


def idempotency_fields(asked: Idempotency) -> Record:
    return {"principal": asked.principal, "key": asked.key, "fingerprint": asked.fingerprint}


def reply_id(catalog: str, principal: str, key: str) -> str:
    """The name that finds a reply: a verdict, or a commit with an idempotency key."""
    return f"{catalog}\0{principal}\0{key}"
