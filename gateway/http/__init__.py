"""HTTP: routes, condition headers, entity tags and problems. Knows nothing of the store.

A request is parsed here, strictly, into the values of ``gateway.decide.request``, and its outcome
is written into a response. Nothing that depends on a document is decided here.
"""

from gateway.http.app import create_app

__all__ = ["create_app"]
