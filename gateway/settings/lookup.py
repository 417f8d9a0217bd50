"""The value of a setting: from its flag, else from its environment variable, else its default.

`--deadline-ms 2000` overrides `GATEWAY_DEADLINE_MS=1000`. A variable with `_FILE` appended names a
file that contains the value, for secrets. A wrong value is refused with its setting, its source and
the allowed values; no value is clamped or ignored.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from gateway.settings.kinds import web_url
from gateway.settings.table import (
    PREFIX,
    REMOVED,
    SETTINGS,
    SettingError,
    Settings,
    flag_of,
    variable_of,
)

__all__ = ["DEFAULT", "Resolved", "SettingError", "resolve", "unknown_variables"]

DEFAULT = "default"
_JWT = ("jwt_jwks_url", "jwt_issuer", "jwt_audience")


@dataclass(frozen=True, slots=True)
class Resolved:
    """The effective settings; and by name, the source of each: its flag, its variable or
    `default`."""

    settings: Settings
    sources: Mapping[str, str]


def resolve(flags: Mapping[str, str | bool | None]) -> Resolved:
    """The effective settings, from these flags (by setting name; None: not given) and the
    environment.

    Raises `SettingError` for the first wrong value, for values that contradict each other, and for
    settings that were removed.
    """
    # Imported here: commands that only use HTTP import this module, but never call this function.
    from environs import FileAwareEnv

    _refuse_removed(flags)
    environment = FileAwareEnv(prefix=PREFIX, strip_whitespace=True)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for row in SETTINGS:
        flag = flags.get(row.name)
        if flag is not None:
            sources[row.name] = row.flag
            values[row.name] = flag if isinstance(flag, bool) else row.parse(flag, row.flag)
            continue
        try:
            text = environment.str(row.name.upper(), None)
        except (ValueError, OSError) as error:
            raise SettingError(row.name, row.variable + "_FILE", str(error)) from error
        sources[row.name] = DEFAULT if text is None else row.variable
        values[row.name] = row.make_default() if text is None else row.parse(text, row.variable)
    _choose_one_mongodb(values, sources)
    settings = Settings(**values)
    _check_together(settings, sources)
    _check_access(settings, sources)
    return Resolved(settings, sources)


def unknown_variables() -> list[tuple[str, str]]:
    """The variables that look like a misspelt setting, each with the setting probably meant.

    Other `GATEWAY_` variables are ignored: Kubernetes sets `GATEWAY_PORT` and more in every
    container of a namespace with a service of that name.
    """
    names = [row.name.upper() for row in SETTINGS]
    known = set(names) | {f"{name}_FILE" for name in names}
    given = {name.removeprefix(PREFIX) for name in os.environ if name.startswith(PREFIX)}
    return [
        (PREFIX + name, PREFIX + near)
        for name in sorted(given - known)
        for near in get_close_matches(name, known, 1, cutoff=0.82)
    ]


def _refuse_removed(flags: Mapping[str, str | bool | None]) -> None:
    for name, instead in REMOVED.items():
        variable = variable_of(name)
        given = [each for each in (variable, f"{variable}_FILE") if each in os.environ]
        if flags.get(name) is not None:
            given = [flag_of(name)]
        if given:
            raise SettingError(name, given[0], f"{name} {instead}")


def _choose_one_mongodb(values: dict[str, Any], sources: dict[str, str]) -> None:
    """Allow only one of the two settings that choose the MongoDB; a flag for one overrides a
    variable for the other."""
    if not (values["mongodb_uri"] and values["embedded"]):
        return
    by_flag = [name for name in ("mongodb_uri", "embedded") if sources[name].startswith("--")]
    if len(by_flag) != 1:
        raise SettingError(
            "embedded",
            f"{sources['embedded']} and {sources['mongodb_uri']}",
            "give only one of them: either a MongoDB that runs already, or an embedded one",
        )
    overruled, value = ("embedded", False) if by_flag == ["mongodb_uri"] else ("mongodb_uri", None)
    values[overruled] = value
    sources[overruled] = f"overridden by {sources[by_flag[0]]}"


def _check_access(settings: Settings, sources: Mapping[str, str]) -> None:
    """Refuse access control that is off on anything but loopback, and settings without those that
    they need."""
    if not settings.access and not settings.bind.is_loopback:
        raise SettingError(
            "access",
            sources["access"],
            f"access control can't be off while others can reach {settings.bind}"
            f" ({sources['bind']}); listen on 127.0.0.1, or leave it on",
        )
    together = (
        ("tls_certificate", "tls_key"),
        ("tls_key", "tls_certificate"),
        ("tls_client_ca", "tls_certificate"),
        *((one, other) for one in _JWT for other in _JWT),
        ("oidc_client_id", "jwt_issuer"),
        ("oidc_client_secret", "oidc_client_id"),
    )
    for name, needed in together:
        if getattr(settings, name) is not None and getattr(settings, needed) is None:
            raise SettingError(name, sources[name], f"{name} has no effect without {needed}")
    if settings.oidc_client_id is not None:
        try:
            web_url().parse(settings.jwt_issuer or "")
        except ValueError:
            raise SettingError(
                "jwt_issuer",
                sources["jwt_issuer"],
                f"with oidc_client_id, jwt_issuer must be {web_url().allowed}",
            ) from None


def _check_together(settings: Settings, sources: Mapping[str, str]) -> None:
    """Refuse a limit that makes impossible what another one allows."""
    rules = (
        ("document_bytes_max", "batch_bytes_max", "a whole document must fit into a batch"),
        ("document_bytes_max", "body_bytes_max", "a whole document must fit into a request"),
        ("body_bytes_max", "queue_bytes_max", "a request must fit into the queue"),
    )
    for smaller, larger, reason in rules:
        if getattr(settings, smaller) > getattr(settings, larger):
            given = smaller if sources[smaller] != DEFAULT else larger
            raise SettingError(
                given,
                sources[given],
                f"{smaller} must not be above {larger}"
                f" ({getattr(settings, smaller)} > {getattr(settings, larger)}): {reason}",
            )
