"""Messages about what was read from a file of answers, and what was left out."""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from pro_lib.common import reasons
from pro_lib.common.files import RunError
from pro_lib.importing.collected_answers import CollectedAnswers, LeftOut
from pro_lib.importing.parsed_answers import Problem
from pro_lib.importing.response_formats import NATURAL, NOT_ENDED
from pro_lib.runs.run import Run

# The largest number of places in a message, without and with details.
_N_PLACES = 5
_N_DETAILS = 3


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


def messages(collected: CollectedAnswers, run: Run) -> Iterator[str]:
    """Yield messages about the answers of a run."""
    known_endings = NATURAL.union(NOT_ENDED)
    unknown = [
        f"{name} ({n})" for name, n in collected.endings.items() if name not in known_endings
    ]
    if unknown:
        shown = "; ".join(unknown[:5])
        yield f"endings {shown} are unknown; such an answer counts as cut"
    for note, count in collected.notes.items():
        yield f"{count} answers {note}"
    yield from _messages_about_numbers(collected, run)
    models: dict[str, dict[str, None]] = {}
    for response in collected.responses:
        if isinstance(response.model, str) and response.problem is None:
            models.setdefault(str(response.question_id), {})[response.model] = None
    mixed = [names for names in models.values() if len(names) > 1]
    if mixed:
        names = ", ".join(mixed[0])
        yield (
            f"{len(mixed):,} questions have answers of several models ({names}), which are "
            "scored as if one model had given them; give a file for each"
        )


def _messages_about_numbers(collected: CollectedAnswers, run: Run) -> Iterator[str]:
    """Yield messages about log-probabilities that are missing or all exactly 0."""
    responses = collected.responses
    log_probs = run.answers["log_prob"]
    n_missing = int(log_probs.isna().sum())
    if 0 < n_missing < len(log_probs):
        first = run.answers["question_id"].iloc[int(log_probs.isna().argmax())]
        yield (
            f"{n_missing:,} of {len(log_probs):,} answers have no log-probability (first to "
            f"question {first!r}); scores that need one are computed from the others"
        )
    elif n_missing and collected.endings and not any(each.log_metrics for each in responses):
        formats = [each.response_format for each in responses if each.response_format]
        request = formats[0].request
        remedy = f"; ask for them with {request}" if request else ""
        yield (
            f"the API ({run.info.model}) gives no log-probabilities of {n_missing:,} answers; "
            f"their texts are read for SC, Deg and SE by counts{remedy}"
        )
    elif len(log_probs) > 1 and (log_probs == 0).all():
        yield (
            "all log-probabilities are exactly 0, a probability of 1 that no model gives; the "
            "server did not return them (as in speculative decoding), so scores mean nothing"
        )
