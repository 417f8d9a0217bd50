"""The mark of what isn't there, which no JSON value equals."""

from __future__ import annotations


class Gone:
    """There is no document, or no member."""

    def __repr__(self) -> str:
        return "GONE"

    def __deepcopy__(self, memo: object) -> Gone:
        return self


GONE = Gone()
