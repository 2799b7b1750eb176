"""Compare the parameters of two runs, such as those of a run folder and of a call."""

import heapq
import reprlib
from collections.abc import Mapping
from typing import Any

_SHORT = reprlib.Repr()
_SHORT.maxstring = 60
_COMPARED = 20  # number of likely tokens that are compared between lists of the same prefix


def difference(before: Mapping[str, Any], after: Mapping[str, Any], path: str = "") -> str:
    """Return the first parameter that differs, as `key=before, now key=after`, or "".

    A missing parameter counts as None. Inside mappings and lists the key is a path, such as
    `server.host` or `shots.3.0`. The log-probabilities of a server's probe may differ by as many
    nats as its value `within`.

    Args:
        before: the parameters of the run folder.
        after: the parameters of the run that is to be written.
        path: the beginning of every path.
    """
    for key in sorted({*before, *after}):
        name = f"{path}{key}"
        old = before.get(key)
        new = after.get(key)
        text = _probe_difference(old, new) if name == "server.probe" and old and new else None
        if text is None:
            text = _value_difference(name, old, new)
        if text:
            return text
    return ""


def _value_difference(name: str, before: Any, after: Any) -> str:
    """Return the first difference between two values of a parameter, which may be nested."""
    if isinstance(before, list) and isinstance(after, list):
        before = dict(enumerate(before))
        after = dict(enumerate(after))
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return difference(before, after, f"{name}.")
    if before == after:
        return ""
    note = " (which server answered was not recorded)" if (name, before) == ("server", None) else ""
    return f"{name}={_SHORT.repr(before)}{note}, now {name}={_SHORT.repr(after)}"


def _probe_difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str | None:
    """Return how the probes of two servers differ, None if they have other prompts."""
    lists = (before["log_probs"], after["log_probs"])
    if len(lists[0]) != len(lists[1]):
        return None
    nats = max(map(largest_difference, *lists))
    if nats <= after["within"]:
        return ""
    return f"server.probe, whose log-probabilities differ by {nats:.2g} nats"


def largest_difference(first: Mapping[Any, float], second: Mapping[Any, float]) -> float:
    """Return the largest difference in nats between two lists of likely tokens of one place.

    The likeliest tokens of both are compared, as many as the shorter list has, but at most 20. A
    token that is missing from a list is as likely as the last token of the list.
    """
    n_compared = min(len(first), len(second), _COMPARED)
    tokens = {
        token
        for log_probs in (first, second)
        for token in heapq.nlargest(n_compared, log_probs, key=log_probs.__getitem__)
    }
    least_first = min(first.values())
    least_second = min(second.values())
    return max(
        abs(first.get(token, least_first) - second.get(token, least_second)) for token in tokens
    )
