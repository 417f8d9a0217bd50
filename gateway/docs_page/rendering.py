"""The OpenAPI document as one page of HTML that needs nothing from elsewhere, and a script only for
its search."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from gateway.docs_page.anchors import all_anchors
from gateway.docs_page.parts import Parts
from gateway.docs_page.texts import Texts

_HERE: Final = Path(__file__).parent
STYLE: Final = (_HERE / "style.css").read_bytes()
SEARCH: Final = (_HERE / "search.js").read_bytes()

# In C where there is one: it takes a tenth of the time.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def render_page(openapi: bytes) -> bytes:
    """``openapi`` (YAML, a document that is valid and our own) as HTML in UTF-8."""
    document = yaml.load(openapi, Loader=_LOADER)  # a safe one
    texts = Texts(all_anchors(document))
    parts = Parts(document, texts)
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("page.html").render(
        info=document["info"],
        introduction=texts.blocks(document["info"]["description"]),
        groups=parts.groups(),
        codes=parts.codes(),
        replies=parts.replies(),
        headers=parts.headers(),
        schemas=parts.schemas(),
    )
    return page.encode()
