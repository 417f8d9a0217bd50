"""How the process speaks: lines with structure, with the request they belong to, and no secret."""

from gateway.logs.context import RequestContext, current_request, for_this_request
from gateway.logs.setup import configure

__all__ = ["RequestContext", "configure", "current_request", "for_this_request"]
