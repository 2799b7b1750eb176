"""The answers and lines of a file that are left out, for a warning or an error."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from pro_lib.common import reasons
from pro_lib.common.files import RunError

# Words for problems that a reason alone does not describe, in messages such as "2 answers that end
# within a thought are left out".
NOT_RETURNED = "whose probability was not returned"
NO_FINISH_REASON = "without a finish reason"
OPEN_THOUGHT = "that end within a thought"
THOUGHT_IN_TOKENS = "whose log-probabilities include those of a thought"
# The words for a reason. No reason means that another answer stands for this one.
_WORDS = {
    reasons.FAILED: "that failed",
    reasons.FILTERED: "that a filter or a refusal stopped",
    reasons.CUT: "that were cut",
    reasons.TOOL_CALL: "that call a tool",
    reasons.NO_LOG_PROBS: "without log-probabilities",
    reasons.UNREADABLE: "that cannot be read",
    reasons.NO_ANSWER: "without text",
    "": "that are copies of another answer",
}
# The largest number of places in a message, without and with details.
_N_PLACES = 5
_N_DETAILS = 3


@dataclass(frozen=True, slots=True)
class Problem:
    """Why an answer is not used.

    Attributes:
        reason: one of `common.reasons.REASONS`, or "" if another answer stands for this one.
        sentence: the problem, if the error says more than the reason.
        remedy: what to do if all answers of a file have the problem.
        is_detail: whether the sentence differs from answer to answer, so that a warning shows it.
        words: the words for the problem in a warning; "" for those of the reason.
    """

    reason: str
    sentence: str = ""
    remedy: str = ""
    is_detail: bool = False
    words: str = ""

    @property
    def kind(self) -> str:
        """The words for the problem, as in "2 answers that failed are left out"."""
        return self.words or _WORDS[self.reason]


# The place of an answer or a line, its problem, and the response to which it belongs.
LeftOut: TypeAlias = tuple[str, Problem, Any]


def _by_kind(left_out: Sequence[LeftOut]) -> dict[str, list[tuple[str, Problem]]]:
    """Return the places and problems by the words for the problem."""
    groups: dict[str, list[tuple[str, Problem]]] = {}
    for where, problem, _ in left_out:
        groups.setdefault(problem.kind, []).append((where, problem))
    return groups


def warn_of(left_out: Sequence[LeftOut], path: Path) -> None:
    """Warn of the answers and lines of a file that are left out, once for each kind of problem."""
    for kind, places in _by_kind(left_out).items():
        has_details = any(problem.is_detail for _, problem in places)
        names = []
        for where, problem in places[: _N_DETAILS if has_details else _N_PLACES]:
            name = where.removeprefix(f"{path}, ")
            if problem.is_detail:
                words = problem.sentence.removeprefix("cannot be read: ")
                name += f" ({words.partition('; supported are')[0]})"
            names.append(name)
        n_more = len(places) - len(names)
        more = f" and {n_more} more" if n_more else ""
        message = f"{len(places)} answers {kind} are left out: {'; '.join(names)}{more}"
        warnings.warn(message, UserWarning, stacklevel=3)


def error_of(left_out: Sequence[LeftOut], path: Path, beginning: str) -> RunError:
    """Return the error for a file without any usable answer.

    If all answers have the same problem, the error states it. Otherwise it counts the problems.
    """
    counts = []
    groups = _by_kind(left_out)
    for kind, places in groups.items():
        where, problem = places[0]
        if len(groups) == 1 and problem.sentence and problem.reason != reasons.FAILED:
            number = f" ({len(places):,} answers)" if len(places) > 1 else ""
            remedy = f"; {problem.remedy}" if problem.remedy else ""
            return RunError(f"{where}: {problem.sentence}{number}{remedy}")
        details = where.removeprefix(f"{path}, ")
        if problem.sentence:
            details += f": {problem.sentence}"
        counts.append(f"{len(places):,} {kind} ({details})")
    return RunError(f"{beginning}; left out are {', '.join(counts)}" if counts else beginning)
