"""Values that MongoDB keeps, and its driver can't decode as it does by default."""

from __future__ import annotations

from typing import Final

import bson
from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument

# In the year 33658.
FAR_DATE: Final = DatetimeMS(10**15)
# A document whose one member is no UTF-8.
NO_TEXT: Final = RawBSONDocument(bson.encode({"x": "??"}).replace(b"??", b"\xff\xfe"))


def without_utf8(member: str) -> RawBSONDocument:
    """The update that makes a text of the member that is no UTF-8."""
    update = bson.encode({"$set": {member: "a??b"}})
    return RawBSONDocument(update.replace(b"a??b", b"a\xff\xfeb"))


UNDECODABLE: Final = (FAR_DATE, NO_TEXT)
