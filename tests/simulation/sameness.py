"""When the gateway's document is the model's."""

from __future__ import annotations

import msgspec

from gateway.model import DocumentRecord

from .gone import GONE
from .model import Doc
from .model_owners import told
from .recorder import absent


def same(document: DocumentRecord | None, doc: Doc | None) -> bool:
    """Whether the gateway's document is the model's."""
    if document is None or doc is None:
        return document is None and doc is None
    content = GONE if absent(document.content) else document.content
    return (
        content == doc.content
        and document.revision == doc.revision
        and document.create_revision == doc.create_revision
        and document.commit_id == doc.commit_id
        and document.time_us == doc.time_us
        and document.patches == doc.patches
        and (document.attributes or None) == doc.attributes
        and document.token == doc.token
        and told(msgspec.to_builtins(document.owners)) == doc.owners
    )
