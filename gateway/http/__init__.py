"""HTTP: routes, condition headers, entity tags and problems. Knows nothing of the store.

What a request says is parsed here, strictly, into the values of ``gateway.decide.request``; what
came of it is written into a response. Nothing is decided here that depends on a document.
"""

from gateway.http.app import create_app

__all__ = ["create_app"]
