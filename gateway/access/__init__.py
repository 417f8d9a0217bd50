"""Access: principals, their grants, the acls of documents, and limits per principal."""

from gateway.access.principal import ANONYMOUS, NOBODY, Grant, Principal, Role

__all__ = ["ANONYMOUS", "NOBODY", "Grant", "Principal", "Role"]
