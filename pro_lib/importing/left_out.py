"""Collect the answers and lines of a file that cannot be used, to count and name them or to refuse the file."""

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
# The most places that a message names, without and with details.
_NAMED, _DETAILED = 5, 3


@dataclass(frozen=True, slots=True)
class Problem:
    """Why an answer is not used: one of the kinds above, and a sentence for an error.

    Attributes:
        kind: one of the kinds above.
        sentence: what is wrong, if the error says more than the kind.
        remedy: what to do if all answers of a file have the problem.
        is_detail: whether the sentence differs from answer to answer, so that a warning shows it.
    """

    kind: str
    sentence: str = ""
    remedy: str = ""
    is_detail: bool = False


@dataclass
class LeftOut:
    """Collects what is left out of a file; with `strict`, the first one is an error."""

    path: Path
    strict: bool = False
    problems: dict[str, list[tuple[str, Problem]]] = field(default_factory=dict)

    def add(self, where: str, problem: Problem) -> None:
        """Leave out the answer or line at a place; raise `RunError` instead if the file is read strictly."""
        if self.strict and problem.kind != OTHER_FILTER:
            raise RunError(f"{where}: {problem.sentence or f'an answer {problem.kind}'}")
        self.problems.setdefault(problem.kind, []).append((where, problem))

    def add_error(self, where: str, error: RunError) -> None:
        """Leave out the line that an error is about; the message of the error begins with the place."""
        sentence = str(error)
        for beginning in (f"{where}: ", f"{where} "):
            sentence = sentence.removeprefix(beginning)
        self.add(where, Problem(UNREADABLE, sentence, is_detail=True))

    def warn(self, stacklevel: int = 2) -> None:
        """Warn about what was left out, with a message for each kind of problem."""
        for kind, places in self.problems.items():
            message = f"{len(places)} answers {kind} are left out: {self._named(places)}"
            warnings.warn(message, UserWarning, stacklevel=stacklevel + 1)

    def _named(self, places: list[tuple[str, Problem]]) -> str:
        has_details = any(problem.is_detail for _, problem in places)
        names = []
        for where, problem in places[: _DETAILED if has_details else _NAMED]:
            place = where.removeprefix(f"{self.path}, ")
            reason = problem.sentence.removeprefix("cannot be read: ").partition("; supported are")[
                0
            ]
            names.append(f"{place} ({reason})" if problem.is_detail else place)
        more = len(places) - len(names)
        return "; ".join(names) + f" and {more} more" * (more > 0)

    def error(self, known: str) -> RunError:
        """Return the error for a file without any usable answer.

        If all answers have the same problem, the error states it; otherwise it counts the problems after the
        sentence `known`.
        """
        counts = []
        for kind, places in self.problems.items():
            where, problem = places[0]
            if len(self.problems) == 1 and problem.sentence and kind != FAILED:
                others = f" ({len(places):,} answers)" if len(places) > 1 else ""
                remedy = f"; {problem.remedy}" if problem.remedy else ""
                return RunError(f"{where}: {problem.sentence}{others}{remedy}")
            said = f": {problem.sentence}" if problem.sentence else ""
            counts.append(f"{len(places):,} {kind} ({where.removeprefix(f'{self.path}, ')}{said})")
        return RunError(f"{known}; left out are " + ", ".join(counts) if counts else known)


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause the garbage collector, which would traverse all objects of a large file again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
