"""Schemas that coerce nothing, and the pointers to the places that they refuse.

Marshmallow's own fields accept 1 as true, 2.0 as 2 and an object as a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from marshmallow import Schema, ValidationError, fields, missing, pre_load
from marshmallow.exceptions import SCHEMA

from gateway.cpu import in_section
from patching import join_pointer

_ERRORS_MAX = 20
_POINTER_CHARACTERS_MAX = 1000


class Exact(fields.Field[Any]):
    """A value of exactly the type ``kind`` for which ``holds`` is true; ``rule`` is its message.

    Null is refused unless ``allow_none``; an optional member that is absent is loaded as None.
    """

    def __init__(
        self, kind: type, rule: str, holds: Callable[[Any], object] | None = None, **options: Any
    ) -> None:
        said = {"required": "it is missing", "null": rule, "invalid": rule}
        default = missing if options.get("required") else None
        defaults = {"load_default": default, "allow_none": False, "error_messages": said}
        super().__init__(**defaults | options)
        self._kind = kind
        self._holds = holds

    def _deserialize(self, value: Any, *_: Any, **__: Any) -> Any:
        if type(value) is not self._kind or (self._holds and not self._holds(value)):
            raise self.make_error("invalid")
        return value


def integer(minimum: int = 0, maximum: int = 2**63 - 1, **options: Any) -> Exact:
    rule = f"it must be a whole number from {minimum} to {maximum}"
    return Exact(int, rule, lambda number: minimum <= number <= maximum, **options)


def text(characters_max: int, **options: Any) -> Exact:
    rule = f"it must be a string of at most {characters_max} characters"
    return Exact(str, rule, lambda text: len(text) <= characters_max, **options)


def choice(known: Sequence[str], **options: Any) -> Exact:
    return Exact(str, f"it must be one of {', '.join(known)}", known.__contains__, **options)


SWITCH: Final = Exact(bool, "it must be true or false", load_default=False)


class _Strict(Schema):
    error_messages = {"type": "it must be an object"}  # noqa: RUF012 - as marshmallow has it

    def __init__(self) -> None:
        super().__init__()
        self.error_messages["unknown"] = f"unknown member; known members: {', '.join(self.fields)}"

    @pre_load
    def _few(self, value: Any, **_: Any) -> Any:
        """The value without most of its unknown members: to refuse each takes microseconds."""
        unknown = [name for name in value if name not in self.fields] if type(value) is dict else []
        left_out = set(unknown[_ERRORS_MAX:])
        return {name: value[name] for name in value if name not in left_out} if left_out else value


def strict(**members: fields.Field[Any]) -> Schema:
    """The schema of an object with these ``members`` and no others."""
    return _Strict.from_dict(members)()


@in_section
def load(schema: Schema, value: Any, refused: Callable[..., Exception]) -> dict[str, Any]:
    """The members of ``value`` by ``schema``. Raises ``refused(pointer, message, errors=…)``.

    ``pointer`` and ``message`` are those of the first wrong place. ``errors`` has both for all
    places, 20 at most, in the order of their pointers.
    """
    try:
        return dict(schema.load(value))
    except ValidationError as error:
        places = sorted(_places(error.messages, value, ""))[:_ERRORS_MAX]
        errors = [{"pointer": at[:_POINTER_CHARACTERS_MAX], "message": why} for at, why in places]
        raise refused(*errors[0].values(), errors=errors) from error


def _places(messages: Any, value: Any, at: str) -> Iterator[tuple[str, str]]:
    if isinstance(messages, list):
        yield at, " ".join(messages)
    elif SCHEMA in messages and not isinstance(value, dict):  # marshmallow's name of the whole
        yield from _places(messages[SCHEMA], value, at)
    else:
        for name, inner in messages.items():
            member = value.get(name) if isinstance(value, dict) else None
            yield from _places(inner, member, at + join_pointer([str(name)]))
