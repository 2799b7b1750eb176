"""A run: the answers to a question set with their log-probabilities, as tables and matrices."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import stdtrit

from pro_lib import scoring
from pro_lib.common import reasons
from pro_lib.common.files import RunError
from pro_lib.common.validation import not_empty
from pro_lib.metrics.correctness import normalized_words
from pro_lib.metrics.roc import FloatArray
from pro_lib.runs import storage
from pro_lib.runs.storage import RunInfo, complete_log_prob

Convention = Literal["complete", "answer_tokens"]
CONVENTIONS = get_args(Convention)
_ROUNDING = 1e-9  # of a log-probability that is compared with log α


@dataclass(frozen=True)
class Run:
    """The answers to a question set, and the questions.

    Attributes:
        answers: a row per answer with question_id, rank (from 0, in descending probability; samples
            as they were drawn), text, token_ids, token_log_probs, log_prob (their sum),
            end_log_prob (of the ending) and finished. Imported records may
            add mean_log_prob, rouge_l and correct. A missing end_log_prob means that the last token
            is the ending, or, if the column `closed` is False, that the ending is unknown. An
            end_log_prob of 0 means that the ending was certain, or that the answer was cut (not
            finished).
        questions: a row per question with question_id, question, references, split, the columns of
            the dataset, the certificate of an exact search (`runs.Certificate`), and
            `score_<method>` for scores that were computed elsewhere (higher = more uncertain).
        info: where the run comes from.
        left_out: a row per answer of a file that is not among `answers`, with question_id (None if
            the question is unknown) and reason, one of `common.reasons.REASONS`.
        folder: the run folder; None if the run was not read from one.
    """

    answers: pd.DataFrame
    questions: pd.DataFrame
    info: RunInfo
    left_out: pd.DataFrame = field(
        default_factory=lambda: pd.DataFrame(columns=["question_id", "reason"], dtype=object)
    )
    folder: Path | None = None

    def __post_init__(self) -> None:
        """Check that question ids are unique and that every answer belongs to a question.

        Raises:
            RunError: an id stands for two questions, or an answer does not have a question.
        """
        ids = pd.Index(self.questions["question_id"])
        if not ids.is_unique:
            repeated = ids[ids.duplicated()][0]
            raise RunError(
                f"run {self.name} has two questions with question_id {repeated!r}; "
                "ids must be unique"
            )
        is_lost = ~self.answers["question_id"].isin(ids).to_numpy()
        if is_lost.any():
            lost = self.answers["question_id"].iloc[int(is_lost.argmax())]
            raise RunError(
                f"run {self.name} has answers to question {lost!r}, which is not among its "
                "questions; use Run.select to get the run of some questions"
            )

    def __repr__(self) -> str:
        return f"Run({self.name}: {len(self.questions):,} questions, {len(self.answers):,} answers)"

    def select(
        self, *, split: str | None = None, question_ids: Sequence[str] | None = None
    ) -> "Run":
        """Return the run of some of the questions.

        Args:
            split: the split of the questions; None for all splits.
            question_ids: the ids of the questions, in the order of the new run; None for all.

        Raises:
            RunError: the run does not have the split or one of the ids.
        """
        questions = self.questions
        if split is not None:
            questions = questions[questions["split"] == split]
            if questions.empty:
                splits = ", ".join(map(repr, self.questions["split"].dropna().unique())) or "none"
                raise RunError(
                    f"run {self.name} has no question of split {split!r} (it has {splits})"
                )
        if question_ids is not None:
            missing_ids = set(question_ids) - set(questions["question_id"])
            if missing_ids:
                raise RunError(f"run {self.name} has no question {min(missing_ids, key=str)!r}")
            questions = questions.set_index("question_id", drop=False).loc[list(question_ids)]
        other_ids = set(self.questions["question_id"]) - set(questions["question_id"])
        is_selected = ~self.answers["question_id"].isin(other_ids)
        return replace(
            self,
            answers=self.answers[is_selected].reset_index(drop=True),
            questions=questions.reset_index(drop=True),
            left_out=self.left_out[~self.left_out["question_id"].isin(other_ids)],
        )

    @property
    def name(self) -> str:
        """The name `dataset/model/strategy`."""
        return f"{self.info.dataset}/{self.info.model}/{self.info.strategy}"

    @property
    def search_alpha(self) -> float | None:
        """The α down to which an exact search found all answers, or None for other runs."""
        if self.info.strategy != "threshold":
            return None
        return self.info.parameters.get("search_alpha")

    @property
    def is_texts(self) -> bool:
        """Whether the answers are texts without any log-probability."""
        return len(self.answers) > 0 and bool(self.answers["log_prob"].isna().all())

    @property
    def has_several_answers(self) -> bool:
        """Whether some question has several answers."""
        return bool(self.answers["question_id"].duplicated().any())

    def n_with_log_probs(self) -> int:
        """Return the number of questions with a finished answer whose log-probability is known."""
        is_finished = self.answers["finished"].to_numpy(bool)
        is_known = is_finished & self.answers["log_prob"].notna().to_numpy()
        return int(self.answers.loc[is_known, "question_id"].nunique())

    def n_texts_alone(self) -> int:
        """Return the number of questions with texts alone, if others have log-probabilities."""
        is_finished = self.answers["finished"].to_numpy(bool)
        n_answered = self.answers.loc[is_finished, "question_id"].nunique()
        return 0 if self.is_texts else n_answered - self.n_with_log_probs()

    def reasons(self) -> pd.Series:
        """Return why each question has no usable answer.

        A usable answer ended, and its log-probability is known unless all answers are texts.

        Returns:
            One of `common.reasons.REASONS` per row of `questions`, or "" if the question has a
            usable answer. If its answers have several reasons, the most frequent one counts.
        """
        table = self._answer_reasons
        ids = self.questions["question_id"].reset_index(drop=True)
        is_used = ids.isin(set(table.loc[table["reason"] == "", "question_id"]))
        unused = table[table["question_id"].isin(set(ids[~is_used]))]
        by_question = unused.groupby("question_id")["reason"].agg(_most_frequent)
        question_reasons = ids.map(by_question).astype(object).fillna(reasons.NO_ANSWER)
        return question_reasons.where(~is_used, "").rename("reason")

    def unused_answers(self) -> dict[str, int]:
        """Return the number of answers that are not used, by reason (`common.reasons.REASONS`)."""
        return reasons.count_reasons(self._answer_reasons["reason"])

    @cached_property
    def _answer_reasons(self) -> pd.DataFrame:
        """Each answer with question_id and the reason why it is not used, "" if it is."""
        is_finished = self.answers["finished"].to_numpy(bool)
        has_value = self.answers["log_prob"].notna().to_numpy() | self.is_texts
        reason = np.select(
            [~is_finished, ~has_value], [reasons.CUT, reasons.NO_LOG_PROBS], default=""
        )
        table = self.answers[["question_id"]].assign(reason=reason.astype(object))
        return pd.concat([table, self.left_out]) if len(self.left_out) else table

    def has_likelier_cut(self, *, convention: str = "complete") -> NDArray[np.bool_]:
        """Return whether a cut answer is more probable than the most probable finished one, (n,).

        The finished answer is the one of `top`, which is judged. The probability of a cut answer is
        that of its tokens, so its continuations may all be less probable.
        """
        most_probable_cut = np.fmax.reduce(self.open_log_probs(), axis=1)
        values = self.top(convention=convention)["value"].to_numpy(float)
        return np.asarray(most_probable_cut > values)

    def as_texts(self) -> "Run":
        """Return the run with the texts of its answers, but without log-probabilities."""
        unknown: dict[str, Any] = {
            "log_prob": np.nan,
            "end_log_prob": np.nan,
            "token_log_probs": None,
        }
        if "mean_log_prob" in self.answers:
            unknown["mean_log_prob"] = np.nan
        return replace(self, answers=self.answers.assign(**unknown))

    def log_probs(
        self, *, convention: str = "complete", distinct: bool = True, merge_by: str | None = None
    ) -> FloatArray:
        """Return the log-probabilities of the finished answers.

        Answers that were cut by length do not count. An exact search has the answers with p ≥ α,
        or the greedy answer if there are none.

        Args:
            convention: `complete` (ending included) or `answer_tokens` (ending left out).
            distinct: whether repeated answers count once; `identities` tells answers apart.
            merge_by: `text` adds up the probabilities of answers with the same
                `metrics.normalized_words`. The merged answers are other outcomes, so bounds on the
                entropy of token sequences do not hold for them.

        Returns:
            Log-probabilities in nats (n, N) in descending order, NaN where a question has fewer
            answers.

        Raises:
            RunError: the run does not have log-probabilities.
            ValueError: an argument has an unknown value.
        """
        if self.is_texts:
            raise RunError(
                f"run {self.name} has texts without log-probabilities; only SC, Deg and SE can be "
                "computed from texts alone"
            )
        table = self.ranked_answers(convention=convention, distinct=distinct)
        if merge_by not in (None, "text"):
            raise ValueError(f"merge_by={merge_by!r} must be None or 'text'")
        if merge_by == "text":
            table = self._merged_by_text(table)
        return self.matrix(table, "value")

    def _merged_by_text(self, table: pd.DataFrame) -> pd.DataFrame:
        """Add up the probabilities of ranked answers with the same words, and rank them again."""
        if table["text"].isna().any():
            raise ValueError(
                f"merge_by='text' needs the texts of all answers; run {self.name} lacks some"
            )
        words = table["text"].map(normalized_words)
        by_text = table.groupby(["row", "question_id", words])["value"]
        merged = by_text.agg(lambda values: np.logaddexp.reduce(values.to_numpy())).reset_index()
        return merged.sort_values(["row", "value"], ascending=[True, False], kind="stable")

    def open_log_probs(self) -> FloatArray:
        """Return the log-probabilities of the answers that the length limit left open.

        Returns:
            Log-probabilities in nats (n, M), NaN where a question has fewer open answers.
        """
        is_open = ~self.answers["finished"].to_numpy(bool)
        return self.matrix(self.answers[is_open], "log_prob")

    def tree(self) -> tuple[FloatArray, FloatArray]:
        """Return log p(v) and H(next | v) of every prefix v that an exact search expanded.

        Returns:
            Two arrays (n, M) in nats, NaN where a question has fewer prefixes.

        Raises:
            RunError: the run is not an exact search.
        """
        if "tree_log_probs" not in self.questions:
            raise RunError(
                f"run {self.name} has no search tree; generate it with strategy='threshold'"
            )
        columns = ["tree_log_probs", "tree_entropies"]
        prefixes = self.questions[["question_id", *columns]].explode(columns)
        return self.matrix(prefixes, "tree_log_probs"), self.matrix(prefixes, "tree_entropies")

    def entropy(self) -> pd.DataFrame:
        """Estimate the entropy H(Y) of the answers to each question from samples.

        The estimate is the mean over samples of Σ H(next | v) along each sample (Rao-Blackwell); it
        is unbiased. The interval is Student's.

        Returns:
            A row per question with the columns estimate, low and high (95 % interval), in nats.

        Raises:
            RunError: the run does not have samples of the model itself (temperature and top_p 1).
        """
        samples = self.answers.reindex(columns=["question_id", "path_entropy"])
        entropies = self.matrix(samples, "path_entropy")
        if np.isnan(entropies).any():
            raise RunError(
                f"run {self.name} has no samples of the model itself; "
                "generate with strategy='multinomial'"
            )
        n_samples = entropies.shape[1]
        mean = entropies.mean(axis=1)
        standard_error = entropies.std(axis=1) / np.sqrt(max(n_samples - 1, 1))
        half_width = stdtrit(n_samples - 1, 0.975) * standard_error
        low = np.maximum(mean - half_width, 0.0)
        return pd.DataFrame({"estimate": mean, "low": low, "high": mean + half_width})

    def top(self, *, convention: str = "complete") -> pd.DataFrame:
        """Return the most probable finished answer to each question.

        Args:
            convention: `complete` (ending included) or `answer_tokens` (ending left out).

        Returns:
            A row per row of `questions` with the columns question_id, text, value (its
            log-probability) and, if records brought them, rouge_l and correct.
        """
        first = self.ranked_answers(convention=convention).drop_duplicates("row").set_index("row")
        first = first.filter(items=["question_id", "text", "value", "rouge_l", "correct"])
        table = first.reindex(range(len(self.questions)))
        return table.assign(question_id=self.questions["question_id"].to_numpy())

    def scores(self, *, alpha: float = 0.4) -> pd.DataFrame:
        """Return PRO and NLL of each question.

        Args:
            alpha: α of PRO.

        Returns:
            A row per row of `questions`, with question_id, question, and

            - text: that of the most probable answer.
            - pro and nll: in nats, higher = more uncertain.
            - n_kept: K, the number of answers that PRO uses.
            - mass: the probability of all answers.

            For a question without a finished answer, the scores are NaN and the others 0. The mass
            is NaN if the question has texts without log-probabilities.
        """
        log_probs = self.log_probs()
        search_alpha = self.search_alpha
        table = self.questions[["question_id", "question"]].copy()
        table["text"] = self.top()["text"].to_numpy()
        table["pro"] = scoring.pro(log_probs, alpha=alpha, search_alpha=search_alpha)
        table["nll"] = scoring.nll(log_probs)
        table["n_kept"] = scoring.adaptive_k(log_probs, alpha, search_alpha=search_alpha)
        has_only_text = table["text"].notna() & table["nll"].isna()
        table["mass"] = np.where(has_only_text, np.nan, scoring.mass(log_probs))
        return table

    def matrix(
        self, table: pd.DataFrame, column: str, missing: float | None = np.nan
    ) -> NDArray[Any]:
        """Return a column of a table of answers as a matrix with a row per question.

        Args:
            table: answers of this run, or other rows with a question_id.
            column: the column.
            missing: the value of a place without an answer, and of a missing value.

        Returns:
            The values (n, N). Row i has those of question i, in the order of the table.
        """
        rows = self._question_rows(table)
        places = table.groupby("question_id", sort=False).cumcount().to_numpy()
        matrix = np.full((len(self.questions), places.max(initial=0) + 1), missing)
        matrix[rows, places] = table[column].where(table[column].notna(), missing)
        return matrix

    def _question_rows(self, table: pd.DataFrame) -> NDArray[np.intp]:
        """Return the row of `questions` that each row of a table belongs to."""
        ids = pd.Index(self.questions["question_id"])
        return np.asarray(ids.get_indexer(table["question_id"]))

    def ranked_answers(
        self, *, convention: str = "complete", distinct: bool = True
    ) -> pd.DataFrame:
        """Return the finished answers in descending probability, question by question.

        Answers of equal probability are ordered by text, then by `mean`. Texts without a
        log-probability come last, the most frequent first. An exact search has the answers with
        p ≥ α, or the greedy answer if there are none.

        Args:
            convention: `complete` (ending included) or `answer_tokens` (ending left out).
            distinct: whether to leave out repeated answers.

        Returns:
            The columns of `answers`, and row (of `questions`), value (log-probability), mean (value
            per token) and repeats (whether an earlier answer is the same).

        Raises:
            RunError: the convention is `answer_tokens`, and the probability of endings is unknown.
            ValueError: the convention is unknown.
        """
        if convention not in CONVENTIONS:
            raise ValueError(
                f"convention={convention!r} is unknown; choose {' or '.join(CONVENTIONS)}"
            )
        if convention not in self._ranked_by_convention:
            self._ranked_by_convention[convention] = self._rank_answers(convention)
        table = self._ranked_by_convention[convention]
        if distinct:
            return table[~table["repeats"]].reset_index(drop=True)
        return table.copy()

    @cached_property
    def _ranked_by_convention(self) -> dict[str, pd.DataFrame]:
        """The ranked answers with repeats, which most methods of a run begin with."""
        return {}

    def _rank_answers(self, convention: str) -> pd.DataFrame:
        """Rank the finished answers, repeats included."""
        is_finished = self.answers["finished"].to_numpy(bool)
        table = self.answers[is_finished].reset_index(drop=True)
        table = table.assign(row=self._question_rows(table))
        table = self._with_values(table, convention)
        table = _in_order(table)
        if "search_alpha" in self.questions:
            table = self._above_search_alpha(table)
        keys = pd.DataFrame({"row": table["row"], "key": identities(table)})
        return table.assign(repeats=keys.duplicated()).reset_index(drop=True)

    def _with_values(self, table: pd.DataFrame, convention: str) -> pd.DataFrame:
        """Add the log-probability of each answer, `value`, and that per token, `mean`."""
        ending = table["end_log_prob"].to_numpy(float)
        if convention == "answer_tokens":
            if "closed" in table and not table["closed"][np.isnan(ending)].all():
                raise RunError(
                    f"run {self.name} has no separate log-probability for the endings of its "
                    "answers; use convention='complete'"
                )
            ending = np.full(len(table), np.nan)
        values = complete_log_prob(table["log_prob"].to_numpy(float), ending)
        # An ending counts as a token, also if it was certain.
        n_tokens = table["token_log_probs"].str.len().to_numpy(float) + ~np.isnan(ending)
        means = pd.Series(values / np.maximum(n_tokens, 1), table.index)
        if "mean_log_prob" in table:
            means = table["mean_log_prob"].fillna(means)
        return table.assign(value=values, mean=means)

    def _above_search_alpha(self, table: pd.DataFrame) -> pd.DataFrame:
        """Leave out answers below the α of the search, unless a question has no others."""
        # Answers below α were not searched for. The exception is the greedy answer.
        log_alphas = np.log(self.questions["search_alpha"].to_numpy(float))[table["row"]]
        log_probs = complete_log_prob(table["log_prob"], table["end_log_prob"])
        reaches_alpha = log_probs >= log_alphas - _ROUNDING
        question_reaches_alpha = reaches_alpha.groupby(table["row"]).transform("any")
        return table[reaches_alpha | ~question_reaches_alpha]


def _most_frequent(values: pd.Series) -> str:
    """Return the most frequent reason, the first in their order if several are."""
    counts = reasons.count_reasons(values)
    return max(counts, key=lambda reason: counts[reason])


def _in_order(table: pd.DataFrame) -> pd.DataFrame:
    """Sort answers by question and descending probability, texts alone by how often they occur."""
    keys = table.assign(value=-table["value"])
    names = ["row", "value", "text", "mean"]
    is_text = table["value"].isna()
    if is_text.any():
        words = table["text"].fillna("").where(is_text, "").map(normalized_words)
        n_equal = table.groupby(["row", words])["row"].transform("size")
        rank = table["rank"].where(is_text, 0)
        keys = keys.assign(n_equal=-n_equal.where(is_text, 0), rank=rank)
        names = ["row", "value", "n_equal", "rank", "text", "mean"]
    order = keys.sort_values(names, kind="stable")
    return table.loc[order.index]


def identities(table: pd.DataFrame) -> list[object]:
    """Return a key for each answer, which is equal for answers that are the same.

    Args:
        table: answers as `Run.ranked_answers` returns them.

    Returns:
        The token ids of an answer, or its text if these are missing, or its log-probability and
        number of tokens if the text is missing too.

    Example:
        >>> columns = ["token_ids", "text", "value", "mean"]
        >>> rows = [([7, 2], "Paris", -1.0, -0.5), (None, "Paris", -1.0, -0.5)]
        >>> identities(pd.DataFrame(rows, columns=columns))
        [(7, 2), 'Paris']
    """
    values = table["value"].to_numpy(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        n_tokens = np.nan_to_num(np.rint(values / table["mean"].to_numpy(float)), nan=-1)
    keys: list[object] = []
    columns = (table["token_ids"], table["text"], table["value"], n_tokens)
    for token_ids, text, *numbers in zip(*columns, strict=True):
        # A missing value is None or NaN.
        if isinstance(token_ids, (list, np.ndarray)):
            keys.append(tuple(token_ids))
        elif isinstance(text, str):
            keys.append(text)
        else:
            keys.append(tuple(numbers))
    return keys


def most_probable_answers(tops: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the most probable answer to each question that any of several runs has.

    Args:
        tops: the tables of `Run.top` of several runs of the same questions.

    Returns:
        A table with the same rows and columns.

    Example:
        >>> first = pd.DataFrame({"text": ["Paris", "Rome"], "value": [-0.1, -2.0]})
        >>> second = pd.DataFrame({"text": ["Lyon", "Oslo"], "value": [-3.0, -1.0]})
        >>> most_probable_answers([first, second])["text"].tolist()
        ['Paris', 'Oslo']
    """
    # NaN is last, and of equal values that of the earlier run is first.
    descending = pd.concat(tops).sort_values("value", ascending=False, kind="stable")
    return descending[~descending.index.duplicated()].sort_index()


def read_run(
    path: str | Path, *, questions: pd.DataFrame | None = None, all_questions: bool = False
) -> Run:
    """Read a run folder, `<dataset>/<model>/<strategy>`.

    Args:
        path: the run folder; an unfinished one is read with a warning.
        questions: the questions whose answers are read, as the table of a question set. The run has
            these questions in this order, with the references and splits they have now. None reads
            the questions of the last call of `generate` that finished, with their references and
            splits. A warning says if the folder has answers to others, or if the question file
            has changed since.
        all_questions: whether None reads all stored questions.

    Returns:
        The run.

    Raises:
        RunError: the folder is damaged, is not a run folder, or has no answer to one of
            `questions`.

    Example:
        run = read_run("data/generations/world-facts/facts-2m/diverse_beam")
        run.scores(alpha=0.4)
    """
    folder = Path(not_empty(path, "path"))
    tables = storage.read_folder(folder, questions, all_questions=all_questions)
    run = Run(*tables, folder=folder)
    planned = run.info.n_planned
    if questions is None and len(run.questions) < planned:
        warnings.warn(
            f"run folder {path} holds {len(run.questions):,} of the {planned:,} questions planned; "
            "run the generation again to continue it",
            UserWarning,
            stacklevel=2,
        )
    return run
