"""Collect the answers and lines of a file that cannot be used, for a warning or an error."""

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

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


@dataclass
class LeftOutAnswer:
    """An answer or a line that is left out.

    Attributes:
        where: its place in the file.
        problem: why it is left out.
        question_id: the question; None if it is unknown. It may become known later.
    """

    where: str
    problem: Problem
    question_id: str | None = None


@dataclass
class LeftOut:
    """The answers and lines that are left out of a file.

    Attributes:
        path: the file.
        strict: whether the first problem raises an error.
        answers: the answers and lines, in the order in which they were found.
    """

    path: Path
    strict: bool = False
    answers: list[LeftOutAnswer] = field(default_factory=list)

    def add(self, where: str, problem: Problem, question_id: str | None = None) -> LeftOutAnswer:
        """Leave out the answer or line at a place, or raise `RunError` instead with `strict`."""
        if self.strict and problem.reason:
            raise RunError(f"{where}: {problem.sentence or f'an answer {problem.kind}'}")
        answer = LeftOutAnswer(where, problem, question_id)
        self.answers.append(answer)
        return answer

    def check_cut(self, where: str, finish_reason: object = None) -> None:
        """Raise `RunError` with `strict` for an answer that was cut, which stays in the run."""
        if self.strict:
            ending = "" if finish_reason is None else f" (finish reason {finish_reason!r})"
            raise RunError(f"{where}: the answer was cut{ending}; raise the limit of tokens")

    def table(self) -> pd.DataFrame:
        """Return a row per answer that is left out, with question_id and reason."""
        rows = [
            (answer.question_id, answer.problem.reason)
            for answer in self.answers
            if answer.problem.reason
        ]
        return pd.DataFrame(rows, columns=["question_id", "reason"], dtype=object)

    def _by_kind(self) -> dict[str, list[tuple[str, Problem]]]:
        """Return the places and problems by the words for the problem."""
        groups: dict[str, list[tuple[str, Problem]]] = {}
        for answer in self.answers:
            places = groups.setdefault(answer.problem.kind, [])
            places.append((answer.where, answer.problem))
        return groups

    def warn(self, stacklevel: int = 2) -> None:
        """Warn of the answers and lines that are left out, once for each kind of problem."""
        for kind, places in self._by_kind().items():
            message = f"{len(places)} answers {kind} are left out: {self._named(places)}"
            warnings.warn(message, UserWarning, stacklevel=stacklevel + 1)

    def _named(self, places: list[tuple[str, Problem]]) -> str:
        """Return the first places as text, with their problems if these differ."""
        has_details = any(problem.is_detail for _, problem in places)
        n_shown = _N_DETAILS if has_details else _N_PLACES
        names = []
        for where, problem in places[:n_shown]:
            name = where.removeprefix(f"{self.path}, ")
            if problem.is_detail:
                reason = problem.sentence.removeprefix("cannot be read: ")
                name += f" ({reason.partition('; supported are')[0]})"
            names.append(name)
        shown = "; ".join(names)
        n_more = len(places) - len(names)
        return f"{shown} and {n_more} more" if n_more else shown

    def error(self, beginning: str) -> RunError:
        """Return the error for a file without any usable answer.

        If all answers have the same problem, the error states it. Otherwise it counts the problems.

        Args:
            beginning: the words before the counts.
        """
        counts = []
        groups = self._by_kind()
        for kind, places in groups.items():
            where, problem = places[0]
            if len(groups) == 1 and problem.sentence and problem.reason != reasons.FAILED:
                number = f" ({len(places):,} answers)" if len(places) > 1 else ""
                remedy = f"; {problem.remedy}" if problem.remedy else ""
                return RunError(f"{where}: {problem.sentence}{number}{remedy}")
            details = where.removeprefix(f"{self.path}, ")
            if problem.sentence:
                details += f": {problem.sentence}"
            counts.append(f"{len(places):,} {kind} ({details})")
        if not counts:
            return RunError(beginning)
        return RunError(f"{beginning}; left out are {', '.join(counts)}")


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause the garbage collector, which would check all objects of a large file repeatedly."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            # The objects of the file become old ones, so that they are not all checked at once.
            gc.freeze()
            gc.unfreeze()
            gc.enable()
