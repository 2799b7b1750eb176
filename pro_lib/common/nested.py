"""Values within nested dictionaries and lists, as JSON has them."""

from typing import Any


def inner_value(value: object, *keys: str | int) -> Any:
    """Return the value that the keys and list positions lead to, or None where one of them is missing."""
    current: Any = value
    for key in keys:
        if isinstance(current, dict):
            current = current.get(key)
        elif isinstance(current, (list, tuple)) and isinstance(key, int) and key < len(current):
            current = current[key]
        else:
            return None
    return current


def as_mapping(value: object) -> dict:
    """Return the value if it is a dictionary, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_items(value: object) -> list:
    """Return a list or tuple as a list, nothing as an empty list, and another value as a list of one."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]
