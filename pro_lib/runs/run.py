"""Answers and log-probabilities as tables and matrices, however they came about; knows no model and no formula."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pandas as pd
from scipy import stats

from pro_lib import scoring
from pro_lib.common.files import RunError
from pro_lib.common.validation import not_empty
from pro_lib.metrics.correctness import normalized_words
from pro_lib.runs import storage
from pro_lib.runs.storage import CERTIFICATE_COLUMNS, RunInfo, complete_log_prob

Convention = Literal["complete", "answer_tokens"]
CONVENTIONS = get_args(Convention)
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Run:
    """The two tables of a run.

    `answers` has a row per answer: question_id, rank (from 0: downwards in probability, of samples as drawn), text,
    token_ids, token_log_probs, log_prob (their sum), end_log_prob (of ending there), finished; records may bring
    mean_log_prob, rouge_l, correct. A missing end_log_prob says that the last token carries the ending, or is unknown
    where a column `closed` is False. One of 0 says that it was certain, or that the answer was cut (not finished).
    `questions` has a row per question: question_id, question, references, split, what the dataset adds, after an exact
    search its certificate (`runs.Certificate`), and `score_<method>`, made elsewhere, higher = more uncertain.
    """

    answers: pd.DataFrame
    questions: pd.DataFrame
    info: RunInfo

    def __post_init__(self) -> None:
        """Check that every question has an id of its own and every answer has a question.

        Raises:
            RunError: an id stands for two questions, or an answer does not have a question.
        """
        ids = pd.Index(self.questions["question_id"])
        if not ids.is_unique:
            repeated = ids[ids.duplicated()][0]
            raise RunError(
                f"run {self.name} has two questions with question_id {repeated!r}; ids must be unique"
            )
        is_lost = ~self.answers["question_id"].isin(ids).to_numpy()
        if is_lost.any():
            lost = self.answers["question_id"].iloc[int(is_lost.argmax())]
            raise RunError(
                f"run {self.name} has answers to question {lost!r}, which is not among its questions; "
                "use Run.for_questions or Run.select to get the run of some questions"
            )

    def __repr__(self) -> str:
        return f"Run({self.name}: {len(self.questions):,} questions, {len(self.answers):,} answers)"

    def select(
        self, *, split: str | None = None, question_ids: Sequence[str] | None = None
    ) -> "Run":
        """Return the run of some questions only: of a split, or those named, in the order named."""
        questions = self.questions
        if split is not None:
            questions = questions[questions["split"] == split]
            if questions.empty:
                splits = ", ".join(map(repr, self.questions["split"].dropna().unique())) or "none"
                raise RunError(
                    f"run {self.name} has no question of split {split!r} (it has {splits})"
                )
        if question_ids is not None:
            if missing := set(question_ids) - set(questions["question_id"]):
                raise RunError(f"run {self.name} has no question {min(missing, key=str)!r}")
            questions = questions.set_index("question_id", drop=False).loc[list(question_ids)]
        answers = self.answers[self.answers["question_id"].isin(set(questions["question_id"]))]
        return replace(
            self, answers=answers.reset_index(drop=True), questions=questions.reset_index(drop=True)
        )

    def for_questions(self, questions: pd.DataFrame) -> "Run":
        """Return the run of these questions, in this order, with the ids, references and splits they have now.

        An answer belongs to a question with the same text (see `runs.storage.stored_rows`).

        Raises:
            RunError: the run has no answer to one of the questions.
        """
        rows = storage.stored_rows(questions, self.questions)
        if (rows < 0).any():
            question_id, text = questions[["question_id", "question"]].iloc[
                int((rows < 0).argmax())
            ]
            raise RunError(
                f"run {self.name} has no answer to question {question_id!r}, {text!r:.200}"
            )
        stored = self.questions.iloc[rows]
        new_ids = dict(zip(stored["question_id"], questions["question_id"], strict=True))
        answers = self.answers[self.answers["question_id"].isin(set(new_ids))]
        answers = answers.assign(question_id=answers["question_id"].map(new_ids))
        return replace(
            self,
            answers=answers.reset_index(drop=True),
            questions=_with_certificates(questions, stored),
        )

    @property
    def name(self) -> str:
        """`dataset/model/strategy`."""
        return f"{self.info.dataset}/{self.info.model}/{self.info.strategy}"

    @property
    def search_alpha(self) -> float | None:
        """The α down to which every answer was looked for; None unless the run is such a search."""
        return (
            self.info.parameters.get("search_alpha") if self.info.strategy == "threshold" else None
        )

    @property
    def is_texts(self) -> bool:
        """Return whether it holds samples of a black box: texts without any log-probability."""
        return len(self.answers) > 0 and bool(self.answers["log_prob"].isna().all())

    def n_with_log_probs(self) -> int:
        """Return the number of questions with a finished answer whose log-probability is known."""
        is_known = (
            self.answers["finished"].to_numpy(bool) & self.answers["log_prob"].notna().to_numpy()
        )
        return self.answers.loc[is_known, "question_id"].nunique()

    def as_texts(self) -> "Run":
        """Return the run without its log-probabilities: the texts of its answers alone."""
        unknown = dict.fromkeys(("log_prob", "end_log_prob"), np.nan) | {"token_log_probs": None}
        if "mean_log_prob" in self.answers:
            unknown["mean_log_prob"] = np.nan
        return replace(self, answers=self.answers.assign(**unknown))

    def log_probs(
        self, *, convention: str = "complete", distinct: bool = True, merge_by: str | None = None
    ) -> np.ndarray:
        """Return log-probabilities `(n, N)` in nats, sorted downwards, NaN where a question has fewer answers.

        Answers cut by length never count. Of an exact search there are those with p ≥ α, or the greedy one alone.

        Args:
            convention: `complete` (ending included) or `answer_tokens` (ending left out).
            distinct: one entry per answer, as `identities` tells them apart; False keeps repeats.
            merge_by: `text` adds up the probabilities of answers with the same `metrics.normalized_words`: other
                outcomes, for which no bound on the entropy of token sequences holds.
        """
        if self.is_texts:
            raise RunError(
                f"run {self.name} has texts without log-probabilities: only SC, Deg and SE can be had of it"
            )
        table = self.ranked_answers(convention=convention, distinct=distinct)
        if merge_by not in (None, "text") or (merge_by and table["text"].isna().any()):
            raise ValueError(
                f"merge_by={merge_by!r} must be None, or 'text' if it has the texts of its answers"
            )
        if merge_by:
            of_text = table.groupby(["row", "question_id", table["text"].map(normalized_words)])[
                "value"
            ]
            table = of_text.agg(lambda values: np.logaddexp.reduce(values.to_numpy())).reset_index()
            table = table.sort_values(["row", "value"], ascending=[True, False], kind="stable")
        return self.matrix(table, "value")

    def open_log_probs(self) -> np.ndarray:
        """Return log-probabilities `(n, M)` of answers still open at the length cut, in nats; NaN where fewer."""
        return self.matrix(self.answers[~self.answers["finished"].to_numpy(bool)], "log_prob")

    def tree(self) -> tuple[np.ndarray, np.ndarray]:
        """Return log p(v) and H(next | v) of every prefix that a search expanded, `(n, M)` each, NaN where fewer."""
        if "tree_log_probs" not in self.questions:
            raise RunError(
                f"run {self.name} holds no search tree; generate it with strategy='threshold'"
            )
        columns = ["tree_log_probs", "tree_entropies"]
        prefixes = self.questions[["question_id", *columns]].explode(columns)
        return self.matrix(prefixes, columns[0]), self.matrix(prefixes, columns[1])

    def entropy(self) -> pd.DataFrame:
        """Estimate H(Y) of each question from samples: the mean of Σ H(next | v) along each (Rao-Blackwell; unbiased).

        Columns: estimate, low, high (nats). `RunError` without samples of the model itself (temperature, top_p 1).
        """
        entropies = (
            self.matrix(self.answers, "path_entropy") if "path_entropy" in self.answers else None
        )
        if entropies is None or np.isnan(entropies).any():
            raise RunError(
                f"run {self.name} has no samples of the model itself; generate with strategy='multinomial'"
            )
        n_samples = entropies.shape[1]
        mean, spread = (
            entropies.mean(axis=1),
            entropies.std(axis=1) / np.sqrt(max(n_samples - 1, 1)),
        )
        half = stats.t.ppf(0.975, n_samples - 1) * spread
        return pd.DataFrame(
            {"estimate": mean, "low": np.maximum(mean - half, 0.0), "high": mean + half}
        )

    def top(self, *, convention: str = "complete") -> pd.DataFrame:
        """Return the most probable finished answer of each question, a row per row of `questions`.

        Columns: question_id, text, value (its log-probability) and, where records brought them, rouge_l and correct.
        """
        first = self.ranked_answers(convention=convention).drop_duplicates("row").set_index("row")
        first = first.filter(items=["question_id", "text", "value", "rouge_l", "correct"])
        return first.reindex(range(len(self.questions))).assign(
            question_id=self.questions["question_id"].to_numpy()
        )

    def scores(self, *, alpha: float = 0.4) -> pd.DataFrame:
        """Return how uncertain the most probable answer to each question is, a row per row of `questions`.

        Columns: question_id, question, text (of that answer), pro and nll (nats, higher = more uncertain), n_kept (K,
        the answers that PRO read) and mass (of all found). Without a finished answer they are NaN, 0 and 0.
        The mass is NaN where a question has texts without log-probabilities only.
        """
        log_probs, at = self.log_probs(), {"search_alpha": self.search_alpha}
        table = self.questions[["question_id", "question"]].assign(
            text=self.top()["text"].to_numpy()
        )
        table = table.assign(
            pro=scoring.pro(log_probs, alpha=alpha, **at), nll=scoring.nll(log_probs)
        )
        is_unknown = table["text"].notna() & table["nll"].isna()
        mass = np.where(is_unknown, np.nan, scoring.mass(log_probs))
        return table.assign(n_kept=scoring.adaptive_k(log_probs, alpha, **at), mass=mass)

    def matrix(
        self, table: pd.DataFrame, column: str, missing: float | None = np.nan
    ) -> np.ndarray:
        """Lay out a column of some answers as `(n, N)`: what a question has in its row, in the order of the table."""
        row = pd.Index(self.questions["question_id"]).get_indexer(table["question_id"])
        place = table.groupby("question_id", sort=False).cumcount().to_numpy()
        matrix = np.full((len(self.questions), place.max(initial=0) + 1), missing)
        matrix[row, place] = table[column].where(table[column].notna(), missing)
        return matrix

    def ranked_answers(
        self, *, convention: str = "complete", distinct: bool = True
    ) -> pd.DataFrame:
        """Return finished answers, question by question and downwards in `value`, their log-probability.

        Ties go by text, then by `mean`. Texts without a log-probability follow, by how often they came.

        Columns: those of `answers`, `row` (of `questions`), `value`, `mean` (the value per token) and `repeats` (an
        answer before it is the same).
        """
        if convention not in CONVENTIONS:
            raise ValueError(
                f"convention={convention!r} is unknown; choose {' or '.join(CONVENTIONS)}"
            )
        table = self.answers[self.answers["finished"].to_numpy(bool)]
        table = table.assign(
            row=pd.Index(self.questions["question_id"]).get_indexer(table["question_id"])
        )
        ending = table["end_log_prob"].to_numpy(float)
        if convention == "answer_tokens":
            if "closed" in table and not table["closed"][np.isnan(ending)].all():
                raise RunError(
                    f"run {self.name} does not say what its endings cost; use convention='complete'"
                )
            ending = np.full(len(table), np.nan)
        value = complete_log_prob(table["log_prob"].to_numpy(float), ending)
        # A certain one, too
        n_events = table["token_log_probs"].str.len().to_numpy(float) + ~np.isnan(ending)
        means = pd.Series(value / np.maximum(n_events, 1), table.index)
        table = table.assign(value=value, mean=table.get("mean_log_prob", means).fillna(means))
        order = {"row": True, "value": False, "text": True, "mean": True}
        is_text = table["value"].isna()
        if is_text.any():
            texts = table["text"].fillna("").map(normalized_words)
            votes = table.groupby(["row", texts])["row"].transform("size")
            table = table.assign(
                votes=votes.where(is_text, 0), place=table["rank"].where(is_text, 0)
            )
            order = {
                "row": True,
                "value": False,
                "votes": False,
                "place": True,
                "text": True,
                "mean": True,
            }
        table = table.sort_values([*order], ascending=[*order.values()], kind="stable")
        table = table.drop(columns=["votes", "place"], errors="ignore")
        if "search_alpha" in self.questions:
            # The greedy answer counts below α only where it stands for all: others below α were not looked for.
            log_alpha = np.log(self.questions["search_alpha"].to_numpy(float))[table["row"]]
            reaches = (
                complete_log_prob(table["log_prob"], table["end_log_prob"]) >= log_alpha - _ROUNDING
            )
            table = table[reaches | ~reaches.groupby(table["row"]).transform("any")]
        table = table.assign(
            repeats=pd.DataFrame({"row": table["row"], "key": identities(table)}).duplicated()
        )
        return (table[~table["repeats"]] if distinct else table).reset_index(drop=True)


def identities(table: pd.DataFrame) -> list[object]:
    """Return what identifies the answers of `Run.ranked_answers`: token ids, else text, else value and length."""
    with np.errstate(invalid="ignore", divide="ignore"):
        lengths = np.nan_to_num(
            np.rint(table["value"].to_numpy(float) / table["mean"].to_numpy(float)), nan=-1
        )
    columns = zip(table["token_ids"], table["text"], table["value"], lengths, strict=True)
    # What is missing is None or NaN, as pandas has it.
    by_text = (
        (ids, text if isinstance(text, str) else tuple(numbers)) for ids, text, *numbers in columns
    )
    return [tuple(ids) if isinstance(ids, (list, np.ndarray)) else other for ids, other in by_text]


def most_probable_answers(tops: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return, of what `Run.top` of several runs says of the same questions, the most probable answer to each."""
    downwards = pd.concat(tops).sort_values("value", ascending=False, kind="stable")  # NaN last
    return downwards[~downwards.index.duplicated()].sort_index()


def read_run(path: str | Path, *, questions: pd.DataFrame | None = None) -> Run:
    """Read a run folder, `<dataset>/<model>/<strategy>`.

    Args:
        path: the run folder; an unfinished one is read with a warning.
        questions: the questions whose answers are read, as the table of a question set. The run has these
            questions in this order, with the references and splits they have now. None reads the questions as
            they were stored.

    Raises:
        RunError: the folder is damaged, is not a run folder, or does not hold an answer to one of `questions`.
    """
    run = Run(*storage.read_folder(Path(not_empty(path, "path")), questions))
    if questions is not None:
        return replace(run, questions=_with_certificates(questions, run.questions))
    planned = run.info.n_planned
    if len(run.questions) < planned:
        message = (
            f"run folder {path} holds {len(run.questions):,} of the {planned:,} questions planned"
        )
        warnings.warn(
            f"{message}; run the generation again to continue it", UserWarning, stacklevel=2
        )
    return run


def _with_certificates(questions: pd.DataFrame, stored: pd.DataFrame) -> pd.DataFrame:
    """Return the questions with the certificates of an exact search, which `stored` has row by row."""
    certificates = stored.filter(items=CERTIFICATE_COLUMNS).reset_index(drop=True)
    return questions.reset_index(drop=True).join(certificates)
