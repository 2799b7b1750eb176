"""Collect the answers of responses in columns, and say which of them cannot be used."""

from array import array
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pro_lib.common import reasons
from pro_lib.common.files import RunError
from pro_lib.importing.fields import with_fields
from pro_lib.importing.parsed_answers import NO_FINISH_REASON, NUMBER_COLUMNS, RUN_COLUMNS, Problem
from pro_lib.importing.responses import STREAM_PIECE, Response, responses_in
from pro_lib.importing.usable_answers import usable_values

# Columns that are dropped from a run if they are empty.
_OPTIONAL_COLUMNS = ("correct", "mean_log_prob", "rouge_l")
_COPY = Problem("")
_NO_LOG_PROB = Problem(reasons.NO_LOG_PROBS, "logprobs are missing")
_THOUGHTS = (
    "had thoughts (reasoning) before them, which are neither scored nor judged; "
    "their values are conditional on the reasoning that was sampled"
)


class LeftOut(NamedTuple):
    """A line or an answer that is not used: its place, why, and the response it belongs to."""

    where: str
    problem: Problem
    response: Response


class CollectedAnswers:
    """The answers of a file that can be used, and why the others cannot.

    Attributes:
        responses: the responses, in the order of the file.
        columns: the values of the answers that can be used, by column of a run.
        owners, places: the number of the response of each of these answers, and its place there.
        left_out: the lines and answers that cannot be used.
        endings: the number of answers of an API with each finish reason.
        notes: the number of answers that each message is about, by message.
    """

    def __init__(self, *, strict: bool, fields: bool) -> None:
        self._is_strict = strict
        self._has_fields = fields
        self._unfinished_ids: set[str | int] = set()
        self.responses: list[Response] = []
        names = (*RUN_COLUMNS, "fields") if fields else RUN_COLUMNS
        self.columns: dict[str, list] = {name: [] for name in names}
        self.owners = array("i")
        self.places = array("i")
        self.left_out: list[LeftOut] = []
        self.endings: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()

    def add(self, response: Response) -> None:
        """Add a response with those of its answers that can be used."""
        if response.served_id in self._unfinished_ids:
            response.reject(STREAM_PIECE)  # only the last piece has a finish reason
        if self.responses:
            response.share_values(self.responses[-1])
        self.responses.append(response)
        if response.problem is not None:
            self.leave_out(response, response.where, response.problem)
        else:
            self._add_answers(response)
        response.answers = ()
        if response.question_id is not None:
            response.served_id = None  # the ids of a large file take much memory

    def _add_answers(self, response: Response) -> None:
        """Add the answers of a response that can be used, and leave out the others."""
        prompt = response.prompt
        is_record = response.is_record
        for n, answer in enumerate(response.answers):
            place = response.place_of(n)
            if answer.has_thoughts:
                self.notes[_THOUGHTS] += 1
            result = usable_values(answer, prompt, is_record=is_record, notes=self.notes)
            if self._has_fields and not isinstance(result, Problem):
                result = with_fields(answer, result)
            if isinstance(result, Problem):
                self.leave_out(response, place, result)
                if result.kind == NO_FINISH_REASON and response.served_id is not None:
                    self._unfinished_ids.add(response.served_id)
                continue
            if self._is_strict and not result["finished"]:
                ending = "" if is_record else f" (finish reason {answer.finish_reason!r})"
                raise RunError(f"{place}: the answer was cut{ending}; raise the limit of tokens")
            if not is_record:
                self.endings[answer.finish_reason] += 1
            self.owners.append(len(self.responses) - 1)
            self.places.append(n)
            for column, values in self.columns.items():
                values.append(result[column])

    def leave_out(self, response: Response, where: str, problem: Problem) -> None:
        """Leave out a line or an answer, or raise `RunError` instead with `strict`."""
        if self._is_strict and problem.reason:
            raise RunError(f"{where}: {problem.sentence or f'an answer {problem.kind}'}")
        self.left_out.append(LeftOut(where, problem, response))

    def leave_out_rejected(self) -> None:
        """Leave out the responses that were rejected after their answers were added."""
        for owner in np.unique(self.owners):
            response = self.responses[owner]
            if response.problem is not None:
                self.leave_out(response, response.where, response.problem)

    def take_table(self) -> pd.DataFrame:
        """Return the table of the answers, those to one question together, and drop the columns."""
        ids = [None if each.problem else each.question_id for each in self.responses]
        types = {**dict.fromkeys(NUMBER_COLUMNS, float), "finished": bool, "closed": bool}
        # One column after another, since those of a large file take much memory.
        columns = {
            name: pd.Series(self.columns.pop(name), dtype=types.get(name))
            for name in list(self.columns)
        }
        table = pd.DataFrame(columns, copy=False)
        table.insert(0, "question_id", [ids[row] for row in self.owners])
        is_used = table["question_id"].notna()
        has_log_prob = table["log_prob"].notna()
        if self.endings and has_log_prob.any():
            for row in np.flatnonzero(~has_log_prob & is_used):
                response = self.responses[self.owners[row]]
                self.leave_out(response, response.place_of(self.places[row]), _NO_LOG_PROB)
            is_used &= has_log_prob
        groups = table["question_id"].factorize()[0]
        if not is_used.all() or (np.diff(groups) < 0).any():
            order = np.argsort(groups, kind="stable")
            table = table.iloc[order[is_used.to_numpy()[order]]].reset_index(drop=True)
        table.insert(1, "rank", table.groupby("question_id").cumcount())
        empty = [name for name in _OPTIONAL_COLUMNS if table[name].isna().all()]
        return table.drop(columns=empty)

    def reasons(self) -> pd.DataFrame:
        """Return the reason of each answer that is left out, except for copies."""
        rows = [(each.response.question_id, each.problem.reason) for each in self.left_out]
        rows = [(name, reason) for name, reason in rows if reason]
        return pd.DataFrame(rows, columns=["question_id", "reason"], dtype=object)


def collect_answers(
    entries: Iterable[tuple[str, Any]], *, strict: bool, fields: bool
) -> CollectedAnswers:
    """Return the answers in the entries of a file, without copies of a response.

    Args:
        entries: the entries with their places.
        strict: whether the first line or answer that cannot be used raises an error.
        fields: whether the answers are split into fields, in a further column.
    """
    collected = CollectedAnswers(strict=strict, fields=fields)
    known_contents: set[int | None] = set()
    for where, entry in entries:
        for response in responses_in(where, entry):
            content = response.content_key
            if content is not None and content in known_contents:
                collected.leave_out(response, response.where, _COPY)
            else:
                collected.add(response)
            known_contents.add(content)
    return collected
