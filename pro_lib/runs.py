"""Answers and their log-probabilities: the two tables of a run, however they came about.

It knows tables of answers and questions; it does not know models, decoding, scores or correctness.
"""

import unicodedata
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from pro_lib.storage import LEDGER_SCHEMA, RunError, RunInfo, read_tables

CONVENTIONS = ("complete", "answer_tokens")
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Run:
    """The two tables of a run.

    `answers` has a row per answer: question_id, rank, text, token_ids, token_log_probs, log_prob (sum over the
    answer's tokens), end_log_prob (of ending there), finished; records may bring mean_log_prob, rouge_l, correct.
    `rank` counts from 0, downwards in probability, for samples in the order they were drawn.
    `questions` has a row per question: question_id, question, references, split, what the dataset adds, and after
    an exact search its ledger (columns as in `certificate.Ledger`).
    """

    answers: pd.DataFrame
    questions: pd.DataFrame
    info: RunInfo

    def select(self, *, split: str | None = None, question_ids: Sequence[str] | None = None) -> "Run":
        """The run of some questions only: those of a split, or those named, in the order named."""
        questions = self.questions
        if split is not None:
            questions = questions[questions["split"] == split]
            if questions.empty:
                known = ", ".join(map(repr, self.questions["split"].dropna().unique())) or "none"
                raise RunError(f"run {self.name} has no question of split {split!r} (it has {known})")
        if question_ids is not None:
            index = pd.Index(questions["question_id"]).get_indexer(pd.Index(question_ids))
            if (index < 0).any():
                missing = list(question_ids)[int(np.argmax(index < 0))]
                raise RunError(f"run {self.name} has no question {missing!r}")
            if len(set(index)) < len(index):
                raise RunError(f"run {self.name} is asked for a question more than once")
            questions = questions.iloc[index]
        answers = self.answers[self.answers["question_id"].isin(set(questions["question_id"]))]
        return replace(self, answers=answers.reset_index(drop=True), questions=questions.reset_index(drop=True))

    def asked_as(self, questions: pd.DataFrame) -> "Run":
        """The run of these questions in this order, with the references and splits that they come with now."""
        selected = self.select(question_ids=list(questions["question_id"]))
        ledger = selected.questions[[name for name in LEDGER_SCHEMA.names if name in selected.questions]]
        return replace(selected, questions=questions.reset_index(drop=True).join(ledger))

    @property
    def name(self) -> str:
        """`dataset/model/strategy`."""
        return f"{self.info.dataset}/{self.info.model}/{self.info.strategy}"

    @property
    def search_alpha(self) -> float | None:
        """The α down to which every answer was looked for; None unless the run is such a search."""
        return self.info.parameters.get("search_alpha") if self.info.strategy == "threshold" else None

    def log_probs(
        self, *, convention: str = "complete", distinct: bool = True, merge_by: str | None = None
    ) -> np.ndarray:
        """Log-probabilities `(n, N)` in nats, sorted downwards, NaN where a question has fewer answers.

        Of an exact search they are the answers with p ≥ α, and the greedy one alone where none reaches α; scores
        want `search_alpha` beside them.

        Args:
            convention: `complete` (ending included) or `answer_tokens` (ending left out).
            distinct: one entry per answer: per token sequence, per text where ids are missing, per
                log-probability where both are; False keeps repeats. Answers cut by length never count.
            merge_by: `text` adds up the probabilities of answers with the same text (see `normalized`), which
                changes the outcomes: no bound on the entropy of token sequences holds for the result.
        """
        if merge_by not in (None, "text"):
            raise ValueError(f"merge_by={merge_by!r} is unknown; choose None or 'text'")
        ordered = self._ordered(convention, distinct)
        return self._matrix(_merged(ordered, self.name) if merge_by else ordered, "value")

    def open_log_probs(self) -> np.ndarray:
        """Log-probabilities `(n, M)` of answers still open at the length cut, in nats; NaN where there are fewer."""
        table = self.answers[~self.answers["finished"].to_numpy(bool)]
        row = pd.Index(self.questions["question_id"]).get_indexer(table["question_id"])
        return self._matrix(table.assign(row=row), "log_prob")

    def outcome_log_probs(self) -> np.ndarray:
        """Log-probabilities `(n, N)` of all outcomes as they came, repeats and those cut by length included."""
        row = pd.Index(self.questions["question_id"]).get_indexer(self.answers["question_id"])
        value = self.answers["log_prob"] + self.answers["end_log_prob"].fillna(0.0)
        return self._matrix(self.answers.assign(row=row, value=value), "value")

    def tree(self) -> tuple[np.ndarray, np.ndarray]:
        """Of an exact search: log p(v) and H(next | v) of every expanded prefix, `(n, M)` each, NaN where fewer."""
        if "tree_log_probs" not in self.questions:
            raise RunError(f"run {self.name} holds no search tree; generate it with strategy='threshold'")
        lists = [self.questions[name] for name in ("tree_log_probs", "tree_entropies")]
        width = int(lists[0].str.len().max())
        log_probs, entropies = np.full((2, len(self.questions), width), np.nan)
        for row, (ones, others) in enumerate(zip(*lists, strict=True)):
            log_probs[row, : len(ones)], entropies[row, : len(others)] = ones, others
        return log_probs, entropies

    def mean_log_probs(self, *, convention: str = "complete", distinct: bool = True) -> np.ndarray:
        """Log-probabilities per token `(n, N)`, in the places of `log_probs`; the ending counts as a token."""
        return self._matrix(self._ordered(convention, distinct), "mean")

    def texts(self, *, convention: str = "complete", distinct: bool = True) -> np.ndarray:
        """Texts of the answers `(n, N)`, in the places of `log_probs`; None where there is none."""
        ordered = self._ordered(convention, distinct)
        return self._matrix(ordered.assign(text=ordered["text"].where(ordered["text"].notna(), None)), "text", None)

    def ranked(self, *, convention: str = "complete", distinct: bool = True) -> pd.DataFrame:
        """Finished answers, question by question and downwards in `value`, their log-probability.

        Columns: those of `answers`, `row` (of `questions`), `value`, and `mean`, the value per token.
        """
        return self._ordered(convention, distinct).reset_index(drop=True)

    def top(self, *, convention: str = "complete") -> pd.DataFrame:
        """The most probable finished answer of each question, a row per row of `questions`.

        Columns: question_id, text, value (its log-probability under `convention`) and, where records brought
        them, rouge_l and correct. A question without a finished answer has a row of missing values.
        """
        first = self._ordered(convention, distinct=True).drop_duplicates("row")
        columns = ["question_id", "text", "value", *(c for c in ("rouge_l", "correct") if c in self.answers)]
        return (
            first.set_index("row")[columns]
            .reindex(range(len(self.questions)))
            .assign(question_id=self.questions["question_id"].to_numpy())
        )

    def _matrix(self, ordered: pd.DataFrame, column: str, missing: float | None = np.nan) -> np.ndarray:
        place = ordered.groupby("row", sort=False).cumcount()
        width = int(place.max()) + 1 if len(ordered) else 1
        matrix = np.full((len(self.questions), width), missing)
        matrix[ordered["row"], place] = ordered[column]
        return matrix

    def _ordered(self, convention: str, distinct: bool) -> pd.DataFrame:
        """Finished answers with `row`, `value` and `mean`, by row and downwards in value."""
        if convention not in CONVENTIONS:
            raise ValueError(f"convention={convention!r} is unknown; choose {' or '.join(CONVENTIONS)}")
        table = self.answers[self.answers["finished"].to_numpy(bool)]
        ending = table["end_log_prob"].to_numpy(float)
        if convention == "answer_tokens" and np.isnan(ending).any():
            raise RunError(f"run {self.name} does not say what its endings cost; use convention='complete'")
        ending = np.nan_to_num(ending) if convention == "complete" else np.zeros(len(table))
        value = table["log_prob"].to_numpy(float) + ending
        row = pd.Index(self.questions["question_id"]).get_indexer(table["question_id"])
        table = table.assign(row=row, value=value, mean=self._means(table, value, ending, convention))
        table = table.sort_values(["row", "value"], ascending=[True, False], kind="stable")
        if "search_alpha" in self.questions:
            # The greedy answer counts below α only where it stands for all: others below α were not looked for.
            log_alpha = np.log(self.questions["search_alpha"].to_numpy(float))[table["row"]]
            reaches = table["log_prob"] + table["end_log_prob"] >= log_alpha - _ROUNDING
            table = table[reaches | ~reaches.groupby(table["row"]).transform("any")]
        return table[~pd.DataFrame({"row": table["row"], "key": identities(table)}).duplicated()] if distinct else table

    @staticmethod
    def _means(table: pd.DataFrame, value: np.ndarray, ending: np.ndarray, convention: str) -> np.ndarray:
        # A closing token carries its own ending (end_log_prob exactly 0), so there is no further event to count.
        events = table["token_log_probs"].str.len().to_numpy(float) + (ending != 0)
        if "mean_log_prob" not in table:
            return value / np.maximum(events, 1)
        given = table["mean_log_prob"].to_numpy(float)
        return np.where(np.isnan(given), value / np.maximum(events, 1), given)


def normalized(text: str) -> str:
    """A text as far as it matters for being the same answer: letters and digits, without case or punctuation."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    kept = "".join(c if unicodedata.category(c)[0] in "LNMS" else " " for c in folded)
    return " ".join(kept.split()) or folded.strip()


def _merged(ordered: pd.DataFrame, name: str) -> pd.DataFrame:
    """One row per question and text, with the probabilities added up, downwards."""
    if ordered["text"].isna().any():
        raise RunError(f"run {name} does not say the texts of its answers, which merge_by='text' needs")
    total = (
        ordered.assign(text=ordered["text"].map(normalized))
        .groupby(["row", "text"])["value"]
        .agg(lambda values: np.logaddexp.reduce(values.to_numpy()))
    )
    return total.reset_index().sort_values(["row", "value"], ascending=[True, False], kind="stable")


def identities(table: pd.DataFrame) -> list[object]:
    """What makes two answers of one question the same."""
    # What is missing is None or NaN, as pandas has it.
    return [
        tuple(ids) if isinstance(ids, (list, np.ndarray)) else text if isinstance(text, str) else value
        for ids, text, value in zip(table["token_ids"], table["text"], table["value"], strict=True)
    ]


def most_probable(runs: Iterable[Run], *, convention: str = "complete") -> pd.DataFrame:
    """The most probable answer that any of the runs found to each question of the first; columns of `Run.top`."""
    runs = list(runs)
    tops = [run.select(question_ids=runs[0].questions["question_id"]).top(convention=convention) for run in runs]
    values = np.column_stack([top["value"].to_numpy(float) for top in tops])
    best = np.where(np.isnan(values), -np.inf, values).argmax(axis=1)
    stacked = pd.concat(tops, keys=range(len(tops)))
    return stacked.loc[list(zip(best, range(len(best)), strict=True))].reset_index(drop=True)


def read(path: str | Path) -> Run:
    """Read a run folder, `<dataset>/<model>/<strategy>`; an unfinished run is read as far as it got, and said.

    Raises:
        RunError: the folder is no run, was written by a newer format, or a part is damaged.
    """
    run = Run(*read_tables(Path(path)))
    planned = sum(plan[0] for plan in run.info.plans)
    if len(run.questions) < planned:
        message = f"run folder {path} holds {len(run.questions):,} of the {planned:,} questions planned"
        warnings.warn(f"{message}; run the generation again to continue it", UserWarning, stacklevel=2)
    return run
