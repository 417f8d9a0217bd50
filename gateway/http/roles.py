"""What each route needs: one row for every endpoint and method; what isn't here is refused."""

from __future__ import annotations

from enum import Enum
from typing import Final

from gateway.access import Role


class Need(Enum):
    """What isn't a role in one catalog."""

    NOTHING = "open to everybody"
    TOKEN = "any principal"


READ, WRITE, ADMIN = Role.READ, Role.WRITE, Role.ADMIN

# By endpoint: what its methods need. HEAD needs what GET does.
ROLES: Final[dict[str, dict[str, Role | Need]]] = {
    # The service
    "livez": {"GET": Need.NOTHING},
    "readyz": {"GET": Need.NOTHING},
    "openapi": {"GET": Need.NOTHING},
    "docs": {"GET": Need.NOTHING},
    "docs_style": {"GET": Need.NOTHING},
    "docs_search": {"GET": Need.NOTHING},
    "console_entry": {"GET": Need.NOTHING},
    "console": {"GET": Need.NOTHING},
    "metrics": {"GET": Need.TOKEN},
    # Documents and their attributes
    "read_document": {"GET": READ},
    "put_document": {"PUT": WRITE},
    "patch_document": {"PATCH": WRITE},
    "delete_document": {"DELETE": WRITE},
    "document_options": {"OPTIONS": READ},
    "read_attributes": {"GET": READ},
    "put_attributes": {"PUT": WRITE},
    "patch_attributes": {"PATCH": WRITE},
    "delete_attributes": {"DELETE": WRITE},
    "attributes_options": {"OPTIONS": READ},
    "read_principal": {"GET": Need.TOKEN},  # who asks
    # Catalogs
    "list_catalogs": {"GET": Need.TOKEN},  # of those that the principal may read
    "read_catalog": {"GET": READ},
    "put_catalog": {"PUT": ADMIN},
    "delete_catalog": {"DELETE": ADMIN},
    "touch_catalog": {"POST": WRITE},
    "list_documents": {"GET": READ},
    "export": {"GET": READ},
    # Many changes
    "transaction": {"POST": WRITE},
    "bulk": {"POST": Need.TOKEN},  # each line is checked by itself
    "open_upload": {"POST": WRITE},
    "read_upload": {"GET": WRITE},
    "drop_upload": {"DELETE": WRITE},
    "put_part": {"PUT": WRITE},
    "commit_upload": {"POST": WRITE},
    # History
    "list_commits": {"GET": READ},
    "read_commit": {"GET": READ},
    "outcome": {"GET": READ},
    "changes": {"GET": READ},
    "create_pin": {"POST": READ},
    "list_pins": {"GET": READ},
    "read_pin": {"GET": READ},
    "renew_pin": {"PUT": READ},
    "delete_pin": {"DELETE": READ},
    "compact": {"POST": ADMIN},
}


def need_of(endpoint: str, method: str) -> Role | Need | None:
    """None where nobody has said: such a route is open to no one."""
    return ROLES.get(endpoint, {}).get("GET" if method == "HEAD" else method)
