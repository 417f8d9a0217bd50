"""Requests that are refused for their form, before ``gateway.commits`` sees them."""

from __future__ import annotations

from collections.abc import Sequence

from patching import Json


class RequestRefused(Exception):
    """The request can't be understood or isn't allowed. ``code`` is a row of ``problem_kinds``.

    ``members`` go into the problem as they are, ``headers`` into the answer.
    """

    retryable = False

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        headers: Sequence[tuple[str, str]] = (),
        **members: Json,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.headers = headers
        self.members = members


class TryLater(RequestRefused):
    """There is too much of it at the moment: nothing was done, and later the same may be sent.

    ``after_s``: whole seconds, at least 1.
    """

    retryable = True

    def __init__(self, code: str, detail: str, after_s: int, **members: Json) -> None:
        super().__init__(code, detail, headers=[("Retry-After", str(after_s))], **members)
