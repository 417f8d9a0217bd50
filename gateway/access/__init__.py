"""Who may do what: principals, their grants, and the tokens that they show."""

from gateway.access.principal import ANONYMOUS, NOBODY, Grant, Principal, Role

__all__ = ["ANONYMOUS", "NOBODY", "Grant", "Principal", "Role"]
