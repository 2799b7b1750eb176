"""The content of a file of answers, and the run of it."""

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pro_lib.common import reasons
from pro_lib.common.files import RunError
from pro_lib.importing.answers import RUN_COLUMNS
from pro_lib.importing.conversations import question_texts
from pro_lib.importing.left_out import NO_FINISH_REASON, LeftOut, LeftOutAnswer, Problem
from pro_lib.importing.pairing import GivenQuestions, pair, set_missing_ids, set_own_ids
from pro_lib.importing.response_formats import NATURAL, NOT_ENDED, ResponseFormat
from pro_lib.importing.responses import STREAM_PIECE, Response
from pro_lib.importing.usable_answers import usable
from pro_lib.questions.file_readers import unzipped
from pro_lib.questions.question_sets import QuestionSet
from pro_lib.runs.run import Run
from pro_lib.runs.storage import RunInfo

_NUMBER_COLUMNS = ("log_prob", "end_log_prob", "mean_log_prob", "rouge_l")
# Columns that are dropped from a run if they are empty.
_OPTIONAL_COLUMNS = ("correct", "mean_log_prob", "rouge_l")
_COPY = Problem("")
_OTHER_FILTER = Problem("", words="that another filter judges again")
_NO_LOG_PROB = Problem(reasons.NO_LOG_PROBS, "logprobs are missing")


# The values of verdicts; partly right (P) is neither right nor wrong.
_VERDICTS = {"C": True, "I": False, "N": False, "P": None, 1: True, 0: False}


def _is_verdict(value: object) -> bool:
    return value is None or (isinstance(value, (str, int, float)) and value in _VERDICTS)


def names_in(entry: object, path: Path) -> tuple[str, str]:
    """Return the model and the dataset that the first record of a file names.

    They are `records` and the stem of the file's name if the record does not name them.
    """
    record = entry if isinstance(entry, dict) and "answers" in entry else {}
    dataset = record.get("dataset") or unzipped(path).stem
    return str(record.get("model") or "records"), str(dataset)


@dataclass
class Reading:
    """The content of a file, as far as it was read.

    Attributes:
        left_out: the entries and answers that cannot be used.
        verdict: the name of the verdict that is read from a log; None for the first one.
        responses: the responses, in the order of the file.
        notes: the number of answers that are scored on some of their tokens, by message.
        endings: the number of answers of an API with each finish reason.
        n_with_thoughts: the number of answers that have thoughts before them.
        columns: the values of the answers that can be used, by column of a run.
        owners, places: the number of the response of each of these answers, and its place there.
        verdict_notes: messages about the verdicts.
    """

    left_out: LeftOut
    verdict: str | None = None
    responses: list[Response] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)
    n_with_thoughts: int = 0
    columns: dict[str, list] = field(default_factory=lambda: {name: [] for name in RUN_COLUMNS})
    owners: array = field(default_factory=lambda: array("q"))
    places: array = field(default_factory=lambda: array("i"))
    verdict_notes: list[str] = field(default_factory=list)
    _left_out: list[tuple[Response, LeftOutAnswer]] = field(default_factory=list)
    _copies: set[int] = field(default_factory=set)
    _unfinished: set[str | int] = field(default_factory=set)

    def add(self, response: Response) -> None:
        """Add a response with those of its answers that can be used."""
        if self._is_copy(response):
            self.left_out.add(response.where, _COPY)
            return
        if response.served_id in self._unfinished and response.problem is None:
            response.problem = STREAM_PIECE  # only the last piece has a finish reason
        if self.responses:
            _share_values(response, self.responses[-1])
        self.responses.append(response)
        if response.problem is not None:
            self._leave_out(response, response.where, response.problem)
        elif response.response_format is not None:
            self._add_answers(response, response.response_format)
        response.answers = ()
        if response.question_id is not None:
            response.served_id = None  # the ids of a large file take much memory

    def _add_answers(self, response: Response, response_format: ResponseFormat) -> None:
        """Add the answers of a response that can be used, and leave out the others."""
        is_record = response_format.is_record
        prompt = _prompt_text(response)
        for n, answer in enumerate(response.answers):
            place = f"{response.where}, " + (f"answers[{n}]" if is_record else f"choice {n}")
            self.n_with_thoughts += answer.has_thoughts
            result = usable(answer, response_format, prompt, self.notes)
            if isinstance(result, Problem):
                self._leave_out(response, place, result)
                if result.kind == NO_FINISH_REASON and response.served_id is not None:
                    self._unfinished.add(response.served_id)
                continue
            if not result["finished"]:
                self.left_out.check_cut(place, None if is_record else answer.reason)
            if not is_record:
                self.endings[answer.reason] += 1
            self.owners.append(len(self.responses) - 1)
            self.places.append(n)
            for name, column in self.columns.items():
                column.append(result[name])

    def _is_copy(self, response: Response) -> bool:
        """Return whether an earlier response has the same id, question, texts and numbers."""
        if response.served_id is None or response.problem is not None or response.verdicts:
            return False
        asked = (response.question_id, response.question, response.conversation)
        try:
            contents = tuple(
                (answer.position, answer.reason, answer.text, tuple(answer.token_log_probs or ()))
                for answer in response.answers
            )
            key = hash((response.served_id, asked, contents))
        except TypeError:  # a value of another kind, which the check refuses
            return False
        is_copy = key in self._copies
        self._copies.add(key)
        return is_copy

    def _leave_out(self, response: Response, where: str, problem: Problem) -> None:
        self._left_out.append((response, self.left_out.add(where, problem)))

    def run(self, questions: QuestionSet | pd.DataFrame | None, *, is_file: bool) -> Run:
        """Return the run of the answers.

        Args:
            questions: the questions that replace those of the file.
            is_file: whether the answers are from a file, whose first record may name the run.

        Raises:
            RunError: no answer can be used.
        """
        path = self.left_out.path
        self._copies.clear()  # a large file takes much memory
        given = None if questions is None else GivenQuestions.of(questions)
        responses = self.responses
        texts = question_texts([response.conversation for response in responses])
        for response, text in zip(responses, texts, strict=True):
            response.question = text if response.question is None else response.question
        set_own_ids(responses, set() if given is None else set(given.texts))
        problems = [response.problem for response in responses]
        self._choose_filters()
        if given is None:
            set_missing_ids(responses, path)
            questions = self._questions()
        else:
            questions = _with_scores(pair(responses, given, path), responses)
        used = set(self.owners)
        for number, (response, old_problem) in enumerate(zip(responses, problems, strict=True)):
            problem = response.problem
            if problem is not None and problem is not old_problem and number in used:
                self._leave_out(response, response.where, problem)
        self._read_verdicts()
        answers = self._answers()
        for response, answer in self._left_out:
            answer.question_id = response.question_id
        if answers.empty:
            raise self.left_out.error(
                f"{path} contains no answers that can be used ({len(questions)} questions)"
            )
        if self.endings and not answers["finished"].any():
            endings = "; ".join(map(str, self.endings))
            words = f"none of the {len(answers)} answers is finished; their finish reasons are"
            raise RunError(f"{path}: {words} {endings}")
        return Run(answers, questions, self._info(is_file), self.left_out.table())

    def _info(self, is_file: bool) -> RunInfo:
        """Return where the run comes from."""
        path = self.left_out.path
        first = next(response for response in self.responses if response.response_format)
        name = first.response_format.name if first.response_format else ""
        if first.response_format and first.response_format.is_record:
            stem = unzipped(path).stem if is_file else "records"
            model = first.model if is_file and first.model else "records"
            dataset = first.dataset if is_file and first.dataset else stem
            return RunInfo(str(dataset), str(model), "records")
        return RunInfo(unzipped(path).stem if is_file else "responses", name, name)

    def _choose_filters(self) -> None:
        """Leave out the lines of lm-evaluation-harness about another filter than the first."""
        first_filters: dict[str, str] = {}
        for response in self.responses:
            if response.filter is not None and response.problem is None:
                name = str(response.filter)
                if first_filters.setdefault(str(response.question_id), name) != name:
                    response.problem = _OTHER_FILTER

    def _questions(self) -> pd.DataFrame:
        """Return the questions of the responses, and set problems of contradictory responses."""
        rows: dict[str, dict[str, Any]] = {}
        first_uses: dict[str, Response] = {}
        for response in self.responses:
            name = response.question_id
            if name is None:
                continue
            row = {
                "question_id": name,
                "question": response.question,
                "references": response.references,
                "split": response.split,
                "relation": response.relation,
                **_scores_of(response),
            }
            first = first_uses.setdefault(name, response)
            first_row = rows.setdefault(name, row)
            if first is response or response.problem is not None:
                continue
            for column, value in row.items():
                if first_row.get(column) is None:
                    first_row[column] = value
            is_other = any(value not in (None, first_row[column]) for column, value in row.items())
            if is_other or (_is_record(first) and _is_record(response)):
                words = f"question_id {name!r} was already used ({first.where})"
                words += ", by another question" if is_other else ""
                response.problem = Problem(reasons.UNREADABLE, words, is_detail=True)
        names = dict.fromkeys(name for row in rows.values() for name in row)
        columns = {name: [row.get(name) for row in rows.values()] for name in names}
        del rows
        table = pd.DataFrame(columns)
        if "relation" in table and table["relation"].isna().all():
            table = table.drop(columns="relation")
        return table

    def _read_verdicts(self) -> None:
        """Set the verdicts of answers to those of a log.

        A metric is a verdict if all its values are 0 or 1, or the letters of inspect_ai. It is the
        metric of `self.verdict`, or the first verdict.

        Raises:
            RunError: the log has no verdicts of this name.
        """
        values: dict[str, list[Any]] = {}
        for response in self.responses:
            for name, value in (response.verdicts or {}).items():
                values.setdefault(name, []).append(value)
        verdicts = [
            name
            for name, all_values in values.items()
            if all(map(_is_verdict, all_values)) and any(value is not None for value in all_values)
        ]
        choices = ", ".join(verdicts) or "none"
        if self.verdict is not None and self.verdict not in verdicts:
            words = (
                f"has no verdicts {self.verdict!r}; metrics and scorers of 0 and 1 are: {choices}"
            )
            raise RunError(f"{self.left_out.path} {words}")
        if not values:
            return
        first = next(iter(values))
        why = f"{first!r} of the log has other values than 0 and 1, so it is no verdict"
        chosen = self.verdict or next(iter(verdicts), None)
        if chosen is not None:
            self._set_verdicts(chosen)
        if chosen is None:
            self.verdict_notes.append(why)
        elif self.verdict is None and chosen != first:
            remedy = f"choose with --correctness log:NAME among {choices}"
            self.verdict_notes.append(f"{why}; {chosen!r} is used instead; {remedy}")

    def _set_verdicts(self, name: str) -> None:
        """Set the verdicts of the answers of each response to those of a name.

        lm-evaluation-harness judges the best of several choices, but none of several samples.
        """
        rows_by_owner: dict[int, list[int]] = {}
        for row, owner in enumerate(self.owners):
            rows_by_owner.setdefault(owner, []).append(row)
        log_probs = self.columns["log_prob"]
        for owner, rows in rows_by_owner.items():
            response = self.responses[owner]
            value = _VERDICTS.get((response.verdicts or {}).get(name))
            if response.is_harness and len(rows) > 1:
                if any(log_probs[row] is None for row in rows):
                    continue
                sizes = [
                    len(self.columns["text"][row]) if name.endswith("norm") else 1 for row in rows
                ]
                pairs = zip(rows, sizes, strict=True)
                rows = [max(pairs, key=lambda pair: log_probs[pair[0]] / max(pair[1], 1))[0]]
            for row in rows:
                self.columns["correct"][row] = value

    def _answers(self) -> pd.DataFrame:
        """Return the table of the answers that can be used, those to one question together."""
        ids = [None if each.problem else each.question_id for each in self.responses]
        table = pd.DataFrame(self.columns)
        self.columns.clear()
        table.insert(0, "question_id", [ids[row] for row in self.owners])
        is_used = table["question_id"].notna()
        has_log_prob = table["log_prob"].notna()
        if self.endings and has_log_prob.any():
            for row in np.flatnonzero(~has_log_prob & is_used):
                response = self.responses[self.owners[row]]
                place = f"{response.where}, choice {self.places[row]}"
                self._leave_out(response, place, _NO_LOG_PROB)
            is_used &= has_log_prob
        groups = table["question_id"].factorize()[0]
        if not is_used.all() or (np.diff(groups) < 0).any():
            order = np.argsort(groups, kind="stable")
            table = table.iloc[order[is_used.to_numpy()[order]]].reset_index(drop=True)
        table.insert(1, "rank", table.groupby("question_id").cumcount())
        for name in _NUMBER_COLUMNS:
            table[name] = table[name].astype(float)
        for name in ("finished", "closed"):
            table[name] = table[name].astype(bool)
        for name in _OPTIONAL_COLUMNS:
            if table[name].isna().all():
                del table[name]
        return table

    def messages(self, run: Run) -> Iterator[str]:
        """Yield messages about what was read."""
        known = NATURAL.union(NOT_ENDED)
        unknown = [f"{name} ({n})" for name, n in self.endings.items() if name not in known]
        if unknown:
            shown = "; ".join(unknown[:5])
            yield f"endings {shown} are unknown; such an answer counts as cut"
        if self.n_with_thoughts:
            words = "had thoughts (reasoning) before them, which are neither scored nor judged"
            meaning = "their values are conditional on the reasoning that was sampled"
            yield f"{self.n_with_thoughts} answers {words}; {meaning}"
        for note, count in self.notes.items():
            yield f"{count} answers {note}"
        yield from self.verdict_notes
        yield from self._messages_about_numbers(run)
        yield from self._messages_about_models()

    def _messages_about_numbers(self, run: Run) -> Iterator[str]:
        """Yield messages about log-probabilities that are missing or all exactly 0."""
        log_probs = run.answers["log_prob"]
        n_missing = int(log_probs.isna().sum())
        if 0 < n_missing < len(log_probs):
            first = run.answers["question_id"].iloc[int(log_probs.isna().argmax())]
            words = f"{n_missing:,} of {len(log_probs):,} answers have no log-probability"
            use = "scores that need one are computed from the others"
            yield f"{words} (first to question {first!r}); {use}"
        elif n_missing and self.endings and not any(each.verdicts for each in self.responses):
            requests = [
                each.response_format.request for each in self.responses if each.response_format
            ]
            remedy = f"; ask for them with {requests[0]}" if requests and requests[0] else ""
            words = f"gives no log-probabilities of {n_missing:,} answers"
            use = "their texts are read for SC, Deg and SE by counts"
            yield f"the API ({run.info.model}) {words}; {use}{remedy}"
        elif len(log_probs) > 1 and (log_probs == 0).all():
            yield (
                "all log-probabilities are exactly 0, a probability of 1 that no model gives; the "
                "server did not return them (as in speculative decoding), so scores mean nothing"
            )

    def _messages_about_models(self) -> Iterator[str]:
        """Yield a message if questions have answers of several models."""
        models: dict[str, dict[str, None]] = {}
        for response in self.responses:
            if isinstance(response.model, str) and response.problem is None:
                models.setdefault(str(response.question_id), {})[response.model] = None
        mixed = [names for names in models.values() if len(names) > 1]
        if mixed:
            names = ", ".join(mixed[0])
            words = f"{len(mixed):,} questions have answers of several models ({names})"
            yield f"{words}, which are scored as if one model had given them; give a file for each"


def _share_values(response: Response, previous: Response) -> None:
    """Use the values of the previous response where they are equal, which saves memory."""
    for name in ("question_id", "question", "references", "model"):
        value = getattr(previous, name)
        if value == getattr(response, name):
            setattr(response, name, value)


def _is_record(response: Response) -> bool:
    return response.response_format is not None and response.response_format.name == "records"


def _scores_of(response: Response) -> dict[str, float]:
    """Return the scores that a record contains, by their columns in a run."""
    return {f"score_{method}": score for method, score in (response.scores or {}).items()}


def _with_scores(questions: pd.DataFrame, responses: list[Response]) -> pd.DataFrame:
    """Return the given questions with the scores of the file, and its other columns empty."""
    rows = {each.question_id: _scores_of(each) for each in responses if each.scores}
    scores = pd.DataFrame.from_dict(rows, orient="index").reindex(questions["question_id"])
    missing = dict.fromkeys({"references", "split"} - set(questions))
    return questions.assign(**missing, **scores.reset_index(drop=True))


def _prompt_text(response: Response) -> str | None:
    """Return the text of a response's prompt or question, or None if the file does not have it."""
    if response.conversation is not None and len(response.conversation) == 1:
        return response.conversation[0].text or None
    return response.question if isinstance(response.question, str) else None
