"""Declared types of parameters, and pydantic's errors as one sentence; knows no parameter by its name.

A type carries the words of its sentence, so that a class of parameters declares each parameter once, where it enters.
"""

import functools
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import ConfigDict, PlainValidator, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass
from pydantic_core import PydanticCustomError

_PLAIN = {"none_required", "missing", "unexpected_keyword_argument"}


def rule(kind: type | tuple[type, ...], holds: Callable[[Any], bool], words: str) -> Any:
    """The type of values of this kind (a boolean is no number) of which `holds` is true; else "<name>=<value> <words>"."""

    def check(value: Any) -> Any:
        is_kind = isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool)
        if not is_kind or not holds(value):
            raise PydanticCustomError("rule", words.replace("{", "{{").replace("}", "}}"))
        return value

    return Annotated[Any, PlainValidator(check)]


def choice(*names: str | int) -> Any:
    """The type of one of these names."""
    return rule((str, int), lambda value: value in names, f"is unknown; choose {', '.join(map(str, names))}")


PositiveInt = rule(int, lambda value: value >= 1, "must be a positive whole number")
WholeNumber = rule(int, lambda value: value >= 0, "must be a whole number of at least 0")
Probability = rule((int, float), lambda value: 0 <= value <= 1, "must lie in [0, 1]")
PositiveShare = rule((int, float), lambda value: 0 < value <= 1, "must lie in (0, 1]")
Positive = rule((int, float), lambda value: 0 < value < float("inf"), "must be above 0")
NotNegative = rule((int, float), lambda value: 0 <= value < float("inf"), "must be 0 or more")
Flag = rule(bool, lambda value: True, "must be true or false")
Name = rule(str, lambda value: bool(value.strip()), "must be a text that is not empty")


def checked(cls: type) -> type:
    """The class as a frozen dataclass whose fields are checked by their types, keyword-only as far as it says so.

    What is wrong ends in a `ValueError` of one sentence.
    """
    made = pydantic_dataclass(frozen=True, config=ConfigDict(arbitrary_types_allowed=True, extra="forbid"))(cls)
    validated = made.__init__

    @functools.wraps(validated)
    def __init__(self, *args: Any, **values: Any) -> None:  # noqa: N807
        try:
            validated(self, *args, **values)
        except ValidationError as error:
            raise ValueError(sentence(error)) from None

    made.__init__ = __init__
    return made


def sentence(error: ValidationError) -> str:
    """The first thing that is wrong, as `<name>=<value> <what it must be>`."""
    errors = error.errors(include_url=False)
    first = next((each for each in errors if each["type"] not in _PLAIN), errors[0])
    place = [part for part in first["loc"] if not (isinstance(part, str) and "[" in part)]
    name = ".".join(map(str, place))
    if first["type"] in ("missing", "unexpected_keyword_argument"):
        return f"{name} is {'missing' if first['type'] == 'missing' else 'no parameter'}"
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    may_be_none = any(each["type"] == "none_required" and each["loc"][0] == first["loc"][0] for each in errors)
    return f"{name}={first['input']!r} {first['msg']}{' or None' if may_be_none else ''}"
