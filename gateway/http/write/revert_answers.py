"""The answer to a revert: the changes of its commit, and the places that it left as they are."""

from __future__ import annotations

from typing import Any

from gateway.decide.conditions import CatalogTag
from gateway.decide.request import Applied
from gateway.http.wire.responses import Answer, body_answer, encode, etag
from gateway.http.wire.shapes import change_shape
from gateway.http.write.answer import Result, headers_of, preferences_applied, written_shape
from gateway.http.write.ask import Ask
from gateway.model import OWN_KEYS, ChangeRecord, Skipped
from gateway.read.visibility import Life
from gateway.service import GatewayService


def revert_answer(gateway: GatewayService, ask: Ask, result: Result) -> Answer:
    """``changes`` are those of the commit, or those that a dry run would make."""
    outcome = result.outcome
    content = written_shape(ask, result)
    content["skipped"] = [_skipped_shape(each) for each in outcome.skipped]
    if not ask.is_minimal:
        applied = isinstance(outcome, Applied)
        changes = outcome.commit.changes if isinstance(outcome, Applied) else outcome.changes
        revision = result.catalog_revision if applied else result.catalog_revision + 1
        hidden = _hidden(gateway, ask, changes) if result.replayed else frozenset()
        content["changes"] = [
            change_shape(each, revision)
            for each in changes
            if Life(each.key, each.create_revision) not in hidden
        ]
    if ask.dry_run:
        content["dry_run"] = True
    headers = [*headers_of(result), etag(CatalogTag(result.catalog_revision))]
    headers += preferences_applied(ask, result, represented=False)
    return body_answer(encode(content), headers)


def _hidden(
    gateway: GatewayService, ask: Ask, changes: tuple[ChangeRecord, ...]
) -> frozenset[Life]:
    """What whoever did it before may not see any more."""
    sight = gateway.acls.sight(ask.by, ask.catalog)
    lives = {Life(e.key, e.create_revision) for e in changes if e.key not in OWN_KEYS}
    return frozenset() if sight is None else sight.hidden(lives)


def _skipped_shape(each: Skipped) -> dict[str, Any]:
    part = "attributes" if each.of_attributes else "content"
    return {"key": each.key or None, "part": part, "pointer": each.pointer}
