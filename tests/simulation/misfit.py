"""What the model says of a patch that doesn't fit its document."""

from __future__ import annotations


class Misfit(Exception):
    """A patch doesn't fit, or for ``code``."""

    def __init__(self, code: str = "patch_does_not_fit") -> None:
        super().__init__(code)
        self.code = code
