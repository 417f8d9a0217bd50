"""What `gateway doctor` says: one line for each thing that it looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

State = Literal["ok", "warn", "FAIL"]
COLORS: Final[dict[State, str]] = {"ok": "green", "warn": "yellow", "FAIL": "red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """``detail`` is what is so, ``help`` what to do about it. Neither holds a secret."""

    state: State
    check: str
    detail: str
    help: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "check": self.check,
            "state": self.state,
            "detail": self.detail,
            "help": self.help or None,
        }

    def line(self) -> str:
        """Without the state, which is shown before it."""
        return f"{self.check}: {self.detail}" + (f" -> {self.help}" if self.help else "")


def ok(check: str, detail: str) -> Finding:
    return Finding("ok", check, detail)


def warn(check: str, detail: str, help: str) -> Finding:
    return Finding("warn", check, detail, help)


def fail(check: str, detail: str, help: str) -> Finding:
    return Finding("FAIL", check, detail, help)
