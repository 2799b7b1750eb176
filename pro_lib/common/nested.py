"""Values within nested dictionaries and lists, as in JSON."""

from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from functools import lru_cache
from typing import Any

from pydantic_core import to_jsonable_python

# Methods with which objects of pydantic, NumPy and client libraries return their plain values.
_CONVERTERS = ("model_dump", "tolist", "to_dict")
_MAX_DEPTH = 60


def inner_value(value: object, *keys: str | int) -> Any:
    """Return the value that keys and list positions lead to, or None if one of them is missing.

    Example:
        >>> inner_value({"choices": [{"text": "Paris"}]}, "choices", 0, "text")
        'Paris'
    """
    current: Any = value
    for key in keys:
        if isinstance(current, dict):
            current = current.get(key)
        elif isinstance(current, (list, tuple)) and isinstance(key, int) and key < len(current):
            current = current[key]
        else:
            return None
    return current


@lru_cache(maxsize=256)
def _compiled(path: str) -> tuple[tuple[str | int, ...], ...]:
    alternatives = []
    for part in path.split("||"):
        names = part.strip().split(".")
        alternatives.append(tuple(int(name) if name.isdecimal() else name for name in names))
    return tuple(alternatives)


def value_at(fields: dict, path: str) -> Any:
    """Return the value at a path, or None.

    A path has names and places with dots between them, and alternatives after `||`.

    Example:
        >>> value_at({"message": {"content": "Paris"}}, "text || message.content")
        'Paris'
    """
    for keys in _compiled(path):
        value = fields.get(keys[0]) if len(keys) == 1 else inner_value(fields, *keys)
        if value is not None:
            return value
    return None


def first_value(fields: Mapping, names: Iterable[str]) -> Any:
    """Return the value of the first of these names that has one, else None."""
    for name in names:
        value = fields.get(name)
        if value is not None:
            return value
    return None


def as_mapping(value: object) -> dict:
    """Return the value if it is a dictionary, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_items(value: object) -> list:
    """Return a list or tuple as a list, None as an empty one, and any other value in a list."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def plain(value: Any, *, all_objects: bool = False, depth: int = 0) -> Any:
    """Return the dictionaries, lists and numbers that objects of other libraries stand for.

    Objects of pydantic and NumPy are converted, also within containers.

    Args:
        value: the value, for example a response of a client library.
        all_objects: whether every other object with attributes, such as a dataclass or a named
            tuple, becomes a dictionary, and keys become text, as in JSON.
        depth: the number of containers around the value. Values at a depth above 60 stay as they
            are, because an object may contain itself.

    Example:
        >>> import numpy as np
        >>> plain({"log_probs": np.array([-0.5, -1.0])})
        {'log_probs': [-0.5, -1.0]}
    """

    def inner(part: Any) -> Any:
        return plain(part, all_objects=all_objects, depth=depth + 1)

    if value is None or type(value) in (str, int, float, bool) or depth > _MAX_DEPTH:
        return value
    if isinstance(value, Mapping):
        return {str(key) if all_objects else key: inner(part) for key, part in value.items()}
    if all_objects and isinstance(value, tuple) and hasattr(value, "_asdict"):
        return inner(value._asdict())
    if isinstance(value, (list, tuple)):
        return [inner(part) for part in value]
    for name in _CONVERTERS:
        if callable(getattr(value, name, None)):
            return inner(getattr(value, name)())
    if all_objects and _has_fields(value):
        return {name: inner(part) for name, part in vars(value).items()}
    return value


def _has_fields(value: object) -> bool:
    """Return whether a value is an object with attributes, and not a kind of text or number."""
    if isinstance(value, (str, int, float)):
        return False
    return is_dataclass(value) or hasattr(value, "__dict__")


def json_value(value: Any) -> Any:
    """Return a value that JSON can express: no NaN, no infinity, no numpy scalar."""
    return to_jsonable_python(value, inf_nan_mode="null", fallback=lambda part: part.item())
