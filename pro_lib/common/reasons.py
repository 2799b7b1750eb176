"""The reasons why a question or an answer is not used, the same in all outputs."""

from collections import Counter
from collections.abc import Iterable, Mapping

FAILED = "failed"  # the request failed
FILTERED = "filtered"  # a filter stopped the answer, or the model refused
CUT = "cut"  # the answer did not end
TOOL_CALL = "tool call"  # the model called a tool
NO_LOG_PROBS = "no log-probabilities"
CONTRADICTORY = "contradictory"  # the text, the tokens and the numbers do not fit together
UNREADABLE = "unreadable"
NO_ANSWER = "no answer"
NO_REFERENCE = "no reference"  # and no label, so the answer cannot be judged
REASONS = (
    FAILED,
    FILTERED,
    CUT,
    TOOL_CALL,
    NO_LOG_PROBS,
    CONTRADICTORY,
    UNREADABLE,
    NO_ANSWER,
    NO_REFERENCE,
)


def count_reasons(reasons: Iterable[str]) -> dict[str, int]:
    """Return how often each reason occurs, in the order of `REASONS`.

    Args:
        reasons: the reasons of questions or answers, "" for those that are used.

    Example:
        >>> count_reasons(["cut", "", "failed", "cut"])
        {'failed': 1, 'cut': 2}
    """
    counts = Counter(reasons)
    return {reason: counts[reason] for reason in REASONS if counts[reason]}


def reasons_in_words(counts: Mapping[str, int]) -> str:
    """Return counts of reasons as text.

    Example:
        >>> reasons_in_words({"failed": 1, "cut": 2})
        'failed (1), cut (2)'
    """
    return ", ".join(f"{reason} ({count:,})" for reason, count in counts.items())
