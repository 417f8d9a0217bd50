"""The serving process: gunicorn with the gateway's settings, and the embedded MongoDB."""

from gateway.server.master import ServerError, run
from gateway.server.parsing import HEADER_BYTES_MAX

__all__ = ["HEADER_BYTES_MAX", "ServerError", "run"]
