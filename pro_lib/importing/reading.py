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
from pro_lib.importing import harness
from pro_lib.importing.answers import NO_FINISH_REASON, RUN_COLUMNS, LeftOut, Problem, error_of
from pro_lib.importing.conversations import question_texts
from pro_lib.importing.fields import with_fields
from pro_lib.importing.pairing import pair, set_missing_ids, set_own_ids
from pro_lib.importing.parsing import usable
from pro_lib.importing.response_formats import NATURAL, NOT_ENDED
from pro_lib.importing.responses import STREAM_PIECE, Response
from pro_lib.questions.file_readers import unzipped
from pro_lib.questions.question_sets import QuestionSet, rename_reserved
from pro_lib.questions.tables import is_damaged
from pro_lib.runs.run import Run
from pro_lib.runs.storage import RunInfo

NUMBER_COLUMNS = ("log_prob", "end_log_prob", "mean_log_prob", "rouge_l")
# Columns that are dropped from a run if they are empty.
_OPTIONAL_COLUMNS = ("correct", "mean_log_prob", "rouge_l")
_COPY = Problem("")
_DAMAGED_REQUEST = Problem(reasons.UNREADABLE, "its request has an unpaired surrogate")
_NO_LOG_PROB = Problem(reasons.NO_LOG_PROBS, "logprobs are missing")
# The values of verdicts; partly right (P) is neither right nor wrong.
_VERDICTS = {"C": True, "I": False, "N": False, "P": None, 1: True, 0: False, None: None}


def names_of(response: Response, path: Path) -> tuple[str, str]:
    """Return the model and the dataset that the first record of a file names.

    They are `records` and the stem of the file's name if the record does not name them.
    """
    is_record = response.is_of("records")
    model = response.model if is_record else None
    dataset = response.dataset if is_record else None
    return str(model or "records"), str(dataset or unzipped(path).stem)


@dataclass
class Reading:
    """The content of a file, as far as it was read.

    Attributes:
        path: the file.
        strict: whether the first line or answer that cannot be used raises an error.
        verdict: the name of the verdict that is read from a log; None for the first one.
        responses: the responses, in the order of the file.
        left_out: the entries and answers that cannot be used.
        notes: the number of answers that are scored on some of their tokens, by message.
        endings: the number of answers of an API with each finish reason.
        n_with_thoughts: the number of answers that have thoughts before them.
        columns: the values of the answers that can be used, by column of a run. With a further
            column `fields`, the answers are split into fields.
        owners, places: the number of the response of each of these answers, and its place there.
        verdict_notes: messages about the verdicts.
    """

    path: Path
    strict: bool = False
    verdict: str | None = None
    responses: list[Response] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)
    n_with_thoughts: int = 0
    columns: dict[str, list] = field(default_factory=lambda: {name: [] for name in RUN_COLUMNS})
    owners: array = field(default_factory=lambda: array("i"))
    places: array = field(default_factory=lambda: array("i"))
    verdict_notes: list[str] = field(default_factory=list)
    _copies: set[int] = field(default_factory=set)
    _unfinished: set[str | int] = field(default_factory=set)

    def add(self, response: Response) -> None:
        """Add a response with those of its answers that can be used."""
        if self._is_copy(response):
            self._leave_out(response, response.where, _COPY)
            return
        if response.served_id in self._unfinished and response.problem is None:
            response.problem = STREAM_PIECE  # only the last piece has a finish reason
        if self.responses:
            response.share_values(self.responses[-1])
        self.responses.append(response)
        if response.problem is not None:
            self._leave_out(response, response.where, response.problem)
        else:
            self._add_answers(response)
        response.answers = ()
        if response.question_id is not None:
            response.served_id = None  # the ids of a large file take much memory

    def _add_answers(self, response: Response) -> None:
        """Add the answers of a response that can be used, and leave out the others."""
        prompt = response.question if isinstance(response.question, str) else None
        if response.conversation is not None and len(response.conversation) == 1:
            prompt = response.conversation[0].text or None
        for n, answer in enumerate(response.answers):
            place = f"{response.where}, " + (
                f"answers[{n}]" if response.is_record else f"choice {n}"
            )
            self.n_with_thoughts += answer.has_thoughts
            result = usable(answer, prompt, is_record=response.is_record, notes=self.notes)
            if "fields" in self.columns and not isinstance(result, Problem):
                result = with_fields(answer, result)
            if isinstance(result, Problem):
                self._leave_out(response, place, result)
                if result.kind == NO_FINISH_REASON and response.served_id is not None:
                    self._unfinished.add(response.served_id)
                continue
            if self.strict and not result["finished"]:
                ending = "" if response.is_record else f" (finish reason {answer.reason!r})"
                raise RunError(f"{place}: the answer was cut{ending}; raise the limit of tokens")
            if not response.is_record:
                self.endings[answer.reason] += 1
            self.owners.append(len(self.responses) - 1)
            self.places.append(n)
            for column, values in self.columns.items():
                values.append(result[column])

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
        """Leave out a line or an answer, or raise `RunError` instead with `strict`."""
        if self.strict and problem.reason:
            raise RunError(f"{where}: {problem.sentence or f'an answer {problem.kind}'}")
        self.left_out.append((where, problem, response))

    def run(self, questions: QuestionSet | pd.DataFrame | None, *, is_file: bool) -> Run:
        """Return the run of the answers.

        Args:
            questions: the questions that replace those of the file.
            is_file: whether the answers are from a file, whose first record may name the run.

        Raises:
            RunError: no answer can be used.
        """
        self._copies.clear()  # a large file takes much memory
        responses = self.responses
        texts = question_texts([response.conversation for response in responses])
        for response, text in zip(responses, texts, strict=True):
            if text is not None and is_damaged(text):
                response.problem = _DAMAGED_REQUEST
            elif response.question is None:
                response.question = text
        if questions is None:
            set_own_ids(responses, set())
            set_missing_ids(responses, self.path)
            table = self._questions()
        else:
            table = self._paired_questions(questions)
        harness.leave_out_filters(responses)
        for owner in np.unique(self.owners):
            response = responses[owner]
            if response.problem is not None:
                self._leave_out(response, response.where, response.problem)
        del texts  # those of a large file take much memory
        self._read_verdicts()
        answers = self._answers()
        if answers.empty:
            words = f"contains no answers that can be used ({len(table)} questions)"
            raise error_of(self.left_out, self.path, f"{self.path} {words}")
        if self.endings and not answers["finished"].any():
            endings = "; ".join(map(str, self.endings))
            words = f"none of the {len(answers)} answers is finished; their finish reasons are"
            raise RunError(f"{self.path}: {words} {endings}")
        left_out = [(each.question_id, problem.reason) for _, problem, each in self.left_out]
        left_out = [(name, reason) for name, reason in left_out if reason]
        reason_table = pd.DataFrame(left_out, columns=["question_id", "reason"], dtype=object)
        return Run(answers, table, self._info(is_file), reason_table)

    def _paired_questions(self, questions: QuestionSet | pd.DataFrame) -> pd.DataFrame:
        """Return the given questions with the scores of the file, after pairing the responses."""
        has_own_ids = not isinstance(questions, QuestionSet) or questions.has_own_ids
        table = rename_reserved(
            questions.table if isinstance(questions, QuestionSet) else questions
        )
        has_columns = {"question_id", "question"} <= set(table)
        if not has_columns or table["question_id"].duplicated().any():
            raise RunError(
                "questions= must have columns question_id and question, and each id once"
            )
        set_own_ids(self.responses, set(table["question_id"]))
        table = pair(self.responses, table, self.path, has_own_ids=has_own_ids)
        rows = {each.question_id: each.score_columns for each in self.responses if each.scores}
        scores = pd.DataFrame.from_dict(rows, orient="index").reindex(table["question_id"])
        missing = dict.fromkeys({"references", "split"} - set(table))
        return table.assign(**missing, **scores.reset_index(drop=True))

    def _info(self, is_file: bool) -> RunInfo:
        """Return where the run comes from."""
        first = next(response for response in self.responses if response.response_format)
        path = self.path if is_file else Path("records" if first.is_record else "responses")
        if first.is_record:
            model, dataset = names_of(first if is_file else Response(""), path)
            return RunInfo(dataset, model, "records")
        name = first.response_format.name if first.response_format else ""
        return RunInfo(unzipped(path).stem, name, name)

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
                **response.score_columns,
            }
            first = first_uses.setdefault(name, response)
            first_row = rows.setdefault(name, row)
            if first is response or response.problem is not None:
                continue
            for column, value in row.items():
                if first_row.get(column) is None:
                    first_row[column] = value
            is_other = any(value not in (None, first_row[column]) for column, value in row.items())
            if is_other or (first.is_of("records") and response.is_of("records")):
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
        verdicts = []
        for name, all_values in values.items():
            simple = [value for value in all_values if not isinstance(value, (list, dict))]
            is_given = any(value is not None for value in simple)
            if is_given and len(simple) == len(all_values) and set(simple) <= set(_VERDICTS):
                verdicts.append(name)
        choices = ", ".join(verdicts) or "none"
        chosen = self.verdict or next(iter(verdicts), None)
        if chosen is not None:
            if chosen not in verdicts:
                words = f"has no verdicts {chosen!r}; metrics and scorers of 0 and 1 are: {choices}"
                raise RunError(f"{self.path} {words}")
            self._set_verdicts(chosen)
        first = next(iter(values), None)
        if first is not None and chosen != first and self.verdict is None:
            note = f"{first!r} of the log has other values than 0 and 1, so it is no verdict"
            if chosen is not None:
                remedy = f"choose with --correctness log:NAME among {choices}"
                note += f"; {chosen!r} is used instead; {remedy}"
            self.verdict_notes.append(note)

    def _set_verdicts(self, name: str) -> None:
        """Set the verdicts of the answers of each response to those of a name."""
        rows_by_owner: dict[int, list[int]] = {}
        for row, owner in enumerate(self.owners):
            rows_by_owner.setdefault(owner, []).append(row)
        for owner, rows in rows_by_owner.items():
            response = self.responses[owner]
            if response.is_of("lm-eval"):
                rows = harness.judged_rows(name, rows, self.columns)
            for row in rows:
                self.columns["correct"][row] = _VERDICTS[(response.verdicts or {}).get(name)]

    def _answers(self) -> pd.DataFrame:
        """Return the table of the answers that can be used, those to one question together."""
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
                place = f"{response.where}, choice {self.places[row]}"
                self._leave_out(response, place, _NO_LOG_PROB)
            is_used &= has_log_prob
        groups = table["question_id"].factorize()[0]
        if not is_used.all() or (np.diff(groups) < 0).any():
            order = np.argsort(groups, kind="stable")
            table = table.iloc[order[is_used.to_numpy()[order]]].reset_index(drop=True)
        table.insert(1, "rank", table.groupby("question_id").cumcount())
        empty = [name for name in _OPTIONAL_COLUMNS if table[name].isna().all()]
        return table.drop(columns=empty)

    # --- Messages ---

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
        models: dict[str, dict[str, None]] = {}
        for response in self.responses:
            if isinstance(response.model, str) and response.problem is None:
                models.setdefault(str(response.question_id), {})[response.model] = None
        mixed = [names for names in models.values() if len(names) > 1]
        if mixed:
            names = ", ".join(mixed[0])
            words = f"{len(mixed):,} questions have answers of several models ({names})"
            yield f"{words}, which are scored as if one model had given them; give a file for each"

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
            formats = [each.response_format for each in self.responses if each.response_format]
            request = formats[0].request
            remedy = f"; ask for them with {request}" if request else ""
            words = f"gives no log-probabilities of {n_missing:,} answers"
            use = "their texts are read for SC, Deg and SE by counts"
            yield f"the API ({run.info.model}) {words}; {use}{remedy}"
        elif len(log_probs) > 1 and (log_probs == 0).all():
            yield (
                "all log-probabilities are exactly 0, a probability of 1 that no model gives; the "
                "server did not return them (as in speculative decoding), so scores mean nothing"
            )
