"""A catalog's state, all from one revision."""

from __future__ import annotations

from typing import Final

from .catalog_routes import CatalogRoutes
from .problems import Gone, NotFound
from .versions import Versions

_TRIES: Final = 5
_NO_CATALOG: Final = "catalog_not_found"


def load(routes: CatalogRoutes, prefix: str) -> Versions:
    """The documents whose keys begin with ``prefix``, the settings and the time, as the head has
    them; an empty copy at revision 0 of a catalog that was never written. RequestError.

    The catalog is read first, for its settings and the time of its head, and then exported at that
    very revision: so nothing in between can be missing or be there twice.
    """
    for left in reversed(range(_TRIES)):
        try:
            try:
                state = routes.read()
            except NotFound as error:
                if error.code != _NO_CATALOG:
                    raise
                absent = _load_absent(routes, prefix)
                if absent is not None:
                    return absent
                continue
            export = routes.export(revision=state.revision, prefix=prefix)
        except (Gone, NotFound):
            # compacted, or the database was exchanged, between the two questions
            if not left:
                raise
            continue
        return Versions(
            export.revision, state.time, export.documents, state.settings, prefix=prefix
        )
    raise AssertionError("the last try returns or raises")


def _load_absent(routes: CatalogRoutes, prefix: str) -> Versions | None:
    """A catalog without documents; None where it has some now.

    A deleted catalog still has its revision, which its export tells: changes go on from there.
    """
    try:
        export = routes.export(prefix=prefix)
    except NotFound as error:
        if error.code != _NO_CATALOG:
            raise
        return Versions(0, None, {}, prefix=prefix)
    if export.documents:
        return None
    return Versions(export.revision, None, {}, prefix=prefix)


def starts_anew(error: Exception) -> bool:
    """Whether a copy that met ``error`` while following has to be loaded anew.

    An unknown revision: the catalog isn't as far as the copy, so its database was set back.
    """
    if isinstance(error, NotFound):
        return error.code == "revision_not_found"
    return not isinstance(error, Gone) or error.code == "revision_compacted"
