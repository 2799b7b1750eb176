"""Collect the answers and lines of a file that cannot be used, for a warning or an error."""

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pro_lib.common.files import RunError

# The reasons in messages such as "2 answers that failed are left out".
FAILED = "that failed"
REFUSED = "without text, such as a refusal"
NOT_RETURNED = "whose probability was not returned"
UNREADABLE = "that cannot be read"
NO_LOG_PROBS = "without log-probabilities"
NO_FINISH_REASON = "without a finish reason"
OPEN_THOUGHT = "that end within a thought"
THOUGHT_IN_TOKENS = "whose log-probabilities include those of a thought"
OTHER_FILTER = "that another filter judges again"
# The largest number of places in a message, without and with details.
_N_PLACES = 5
_N_DETAILS = 3


@dataclass(frozen=True, slots=True)
class Problem:
    """Why an answer is not used: one of the kinds above, and a sentence for an error.

    Attributes:
        kind: one of the kinds above.
        sentence: the problem, if the error says more than the kind.
        remedy: what to do if all answers of a file have the problem.
        is_detail: whether the sentence differs from answer to answer, so that a warning shows it.
    """

    kind: str
    sentence: str = ""
    remedy: str = ""
    is_detail: bool = False


@dataclass
class LeftOut:
    """The answers and lines that are left out of a file.

    Attributes:
        path: the file.
        strict: whether the first problem raises an error.
        problems: the places and problems, by the kind of problem.
    """

    path: Path
    strict: bool = False
    problems: dict[str, list[tuple[str, Problem]]] = field(default_factory=dict)

    def add(self, where: str, problem: Problem) -> None:
        """Leave out the answer or line at a place, or raise `RunError` instead with `strict`."""
        if self.strict and problem.kind != OTHER_FILTER:
            raise RunError(f"{where}: {problem.sentence or f'an answer {problem.kind}'}")
        self.problems.setdefault(problem.kind, []).append((where, problem))

    def add_error(self, where: str, error: RunError) -> None:
        """Leave out the line that an error is about.

        Its message begins with the place.
        """
        sentence = str(error)
        for beginning in (f"{where}: ", f"{where} "):
            sentence = sentence.removeprefix(beginning)
        self.add(where, Problem(UNREADABLE, sentence, is_detail=True))

    def warn(self, stacklevel: int = 2) -> None:
        """Warn of the answers and lines that are left out, once for each kind of problem."""
        for kind, places in self.problems.items():
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
        for kind, places in self.problems.items():
            where, problem = places[0]
            if len(self.problems) == 1 and problem.sentence and kind != FAILED:
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
