"""One answer judged per question and every score beside it; knows runs, correctness and scores, no files of figures and no choice of a method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pro_lib import correctness, metrics, scores, semantic
from pro_lib import runs as run_tables
from pro_lib.runs import Run
from pro_lib.storage import RunError

if TYPE_CHECKING:
    pass


from collections.abc import Callable

from numpy.typing import NDArray

# (log_probs, alpha=) -> uncertainty (n,) or (n, A)
AlphaScore = Callable[..., NDArray[np.float64]]


@dataclass(frozen=True)
class Evaluation:
    """One model's answers to one split of a dataset, and what the methods say of them, row by row.

    `answers` has a row per question: question_id, text (the answer judged), rouge_l, correct, and for each run
    compared `correct_<strategy>`, of its own most probable answer. `log_probs` (n, N) are the answers PRO reads, those of an exact search
    down to `search_alpha` unless that is None.
    `baselines` has a column per method that needs no α, higher = more uncertain. `exclusions` says which questions
    were left out and why, `unavailable` which methods the run cannot feed.
    """

    model: str
    dataset: str
    split: str
    answers: pd.DataFrame
    log_probs: np.ndarray
    baselines: pd.DataFrame
    exclusions: metrics.Exclusions
    unavailable: tuple[str, ...]
    search_alpha: float | None = None

    @property
    def correct(self) -> np.ndarray:
        """Whether the judged answer is right, `(n,)`."""
        return self.answers["correct"].to_numpy(bool)

    def uncertainties(self, *, alpha: float) -> pd.DataFrame:
        """PRO at `alpha` and every other method: a row per question, a column per method."""
        return self.with_pro({"PRO": alpha})

    def with_pro(self, alphas: Mapping[str, float]) -> pd.DataFrame:
        """PRO once for each named α, and every other method: a row per question, a column per method."""
        pros = {name: scores.pro(self.log_probs, alpha=a, search_alpha=self.search_alpha) for name, a in alphas.items()}
        return pd.DataFrame(pros).join(self.baselines)

    def by(self, strategy: str) -> Evaluation:
        """The same, each question judged by that strategy's own most probable answer; those without one left out."""
        correct = self.answers[f"correct_{strategy}"]
        labelled = replace(self, answers=self.answers.assign(correct=correct))
        return labelled._rows(np.flatnonzero(correct.notna()))

    def drawn(self, n_questions: int, *, seed: int = 0) -> Evaluation:
        """At most `n_questions` of the questions, drawn with `seed`, in their order."""
        if len(self.correct) <= n_questions:
            return self
        return self._rows(
            np.sort(np.random.default_rng(seed).choice(len(self.correct), size=n_questions, replace=False))
        )

    def only(self, question_ids: Sequence[str]) -> Evaluation:
        """Those of the questions that are named, in their order."""
        return self._rows(np.flatnonzero(self.answers["question_id"].isin(set(question_ids))))

    def _rows(self, rows: np.ndarray) -> Evaluation:
        return replace(
            self,
            answers=self.answers.iloc[rows].reset_index(drop=True),
            log_probs=self.log_probs[rows],
            baselines=self.baselines.iloc[rows].reset_index(drop=True),
        )

    def one_class(self) -> str:
        """The sentence that all answers are right, or all wrong; empty where both occur."""
        if self.correct.any() and not self.correct.all():
            return ""
        which = f"all {len(self.correct)} judged answers are {'right' if self.correct.all() else 'wrong'}"
        return (
            f"{self.dataset}, {self.model}, {self.split}: {which if len(self.correct) else 'there is no judged answer'}"
        )

    def labels(self) -> dict[str, str | int]:
        """Columns that tell this setting's tables from those of others: dataset, model, split, n_questions."""
        return {
            "dataset": self.dataset,
            "model": self.model,
            "split": self.split,
            "n_questions": len(self.correct),
        }

    def sentence(self) -> str:
        """What was used and what was not, for people."""
        without = f" Not available: {', '.join(self.unavailable)}." if self.unavailable else ""
        accuracy = f"{self.correct.mean():.3f} of the judged answers are right."
        drawn = f" {len(self.correct)} were drawn of them." if len(self.correct) < self.exclusions.mask.sum() else ""
        return f"{self.dataset}, {self.model}, {self.split}: {self.exclusions.sentence()}{drawn} {accuracy}{without}"


@dataclass(frozen=True)
class Searched:
    """An exact search and beams on the same questions, judged on the same answers, row by row.

    `judged` is of the search; `beams` (n, N) are the beams' log-probabilities, `still_open` (n, M) those of prefixes
    open at the length cut, `tree` log p(v) and H(next | v) of the expanded prefixes, (n, P) each.
    """

    judged: Evaluation
    beams: np.ndarray
    still_open: np.ndarray
    tree: tuple[np.ndarray, np.ndarray]

    def only(self, question_ids: Sequence[str]) -> Searched:
        """Those of the questions that are named, in their order."""
        rows = np.flatnonzero(self.judged.answers["question_id"].isin(set(question_ids)))
        tree = self.tree[0][rows], self.tree[1][rows]
        return Searched(self.judged.only(question_ids), self.beams[rows], self.still_open[rows], tree)

    def alpha_scores(self) -> dict[str, tuple[np.ndarray, AlphaScore]]:
        """By name, the array a score reads and the score as a function of it and `alpha`."""

        search_alpha = self.judged.search_alpha
        searched_pro = partial(scores.pro, search_alpha=search_alpha)

        def floor(log_probs, *, alpha):
            options = {"open_log_probs": self.still_open, "search_alpha": search_alpha}
            return scores.alpha_floor(log_probs, alpha=alpha, **options)

        def bound(prefixes, *, alpha):
            return scores.tree_bound(prefixes, self.tree[1], alpha=alpha)

        exact = self.judged.log_probs
        return {
            "PRO, exact": (exact, searched_pro),
            "PRO, beams": (self.beams, scores.pro),
            "α-floor": (exact, floor),
            "tree bound": (self.tree[0], bound),
            "mass not found": (exact, partial(scores.mass_not_found, search_alpha=search_alpha)),
        }


ROUGE_THRESHOLD = 0.3
CORRECTNESS = ("rouge_l", "exact_match", "alias_match")
LABEL_COLUMNS = ("question_id", "text", "correct")


@dataclass(frozen=True)
class Choices:
    """What counts as an answer and what as right. The defaults are this project's; docs/audit.md says what others do.

    Args:
        convention: `complete` (ending included) or `answer_tokens` (ending left out), as in `Run.log_probs`.
        distinct: leave repeated beams out.
        correctness: `rouge_l` above 0.3, `exact_match` or `alias_match` (see `correctness`).
        references: `max`, ROUGE-L of the best reference, or `last`, of the last one only.
        labels: labels from outside, of people or of a judge model, columns question_id, text, correct; they replace
            every other correctness. An answer without a label is left out and counted.
    """

    convention: str = "complete"
    distinct: bool = True
    correctness: str = "rouge_l"
    references: str = "max"
    labels: pd.DataFrame | None = None


def evaluate(
    beams: Run,
    *,
    samples: Run | None = None,
    others: Sequence[Run] = (),
    split: str | None = None,
    judges: Mapping[str, semantic.Judge | None] | None = None,
    choices: Choices | None = None,
) -> Evaluation:
    """Judge one answer per question and line up what the methods say of it.

    The answer judged is the most probable one that any of the runs found; what each run's own most probable answer
    is worth stands beside it (`Evaluation.by`). A question that a method cannot score, or that has no answer to judge, is
    left out for all methods and counted.

    Args:
        beams: the run that PRO, NLL, ALL, PE (Eq. 2), SE and SD read.
        samples: the run that PE-MC, NE and Deg read, repeats kept; None leaves them out.
        others: further runs whose answers may be the most probable one.
        split: the split to judge; None for all questions of `beams`.
        judges: which answers mean the same: SE, SE-MC, SD, Deg, WD and gap once for each, named `SE, <key>`; None
            for a judge that this dataset cannot have.
        choices: None for this project's.
    """
    choices = choices or Choices()
    beams = beams.select(split=split) if split is not None else beams
    ids = list(beams.questions["question_id"])
    runs = [run.select(question_ids=ids) for run in (beams, *([samples] if samples is not None else []), *others)]
    samples = runs[1] if samples is not None else None
    top = run_tables.most_probable(runs, convention=choices.convention)
    answers = top[["question_id", "text"]].join(rouge_and_correct(top, beams.questions, choices))
    if answers["correct"].isna().all():
        raise RunError(f"run {beams.name}: no answer can be judged without references and texts, rouge_l or correct")
    for run in runs:
        own = run.top(convention=choices.convention)
        answers[f"correct_{run.info.strategy}"] = rouge_and_correct(own, beams.questions, choices)["correct"]
    options = {"convention": choices.convention, "distinct": choices.distinct}
    log_probs, means = beams.log_probs(**options), beams.mean_log_probs(**options)
    baselines = _baselines(log_probs, means, samples, choices)
    if judges:
        texts = beams.texts(**options)
        drawn = None if samples is None else samples.texts(convention=choices.convention, distinct=False)
        for name, measure in judges.items():
            compared = _semantic(measure, beams.questions, log_probs, means, texts, drawn)
            baselines = baselines.join(compared.add_suffix(f", {name}"))
    unavailable = tuple(baselines.columns[baselines.isna().all()])
    baselines = baselines.drop(columns=list(unavailable))
    exclusions = metrics.usable(baselines.set_axis(ids), answers["correct"])
    used = exclusions.mask
    return Evaluation(
        beams.info.model,
        beams.info.dataset,
        split or "all",
        answers[used].reset_index(drop=True),
        log_probs[used],
        baselines[used].reset_index(drop=True),
        exclusions,
        unavailable,
        beams.search_alpha,
    )


def _baselines(log_probs: np.ndarray, means: np.ndarray, samples: Run | None, choices: Choices) -> pd.DataFrame:
    table = pd.DataFrame(
        {
            "NLL": scores.nll(log_probs),
            "ALL": scores.average_log_likelihood(means, log_probs),
            "PE": scores.predictive_entropy(log_probs),
        }
    )
    if samples is None:
        return table
    log_probs = samples.log_probs(convention=choices.convention, distinct=False)
    means = samples.mean_log_probs(convention=choices.convention, distinct=False)
    return table.assign(**{"PE-MC": scores.predictive_entropy_mc(log_probs), "NE": scores.normalized_entropy(means)})


def _semantic(
    measure: semantic.Judge | None,
    questions: pd.DataFrame,
    log_probs: np.ndarray,
    means: np.ndarray,
    texts: np.ndarray,
    drawn: np.ndarray | None,
) -> pd.DataFrame:
    """The methods that compare meanings: of beams, by `texts` and log-probabilities, and of samples, the texts `drawn`.

    SE is the entropy over meanings itself, of the probabilities found, made to sum to 1; SE-MC the estimate from
    samples, token-averaged, that the release of PRO applies to beams. SD and WD count each text once.
    """
    names = ("SE", "SE-MC", "SD", *(("Deg",) if drawn is not None else ()), "WD", "gap")
    there = ~np.isnan(log_probs)
    if measure is None or (pd.isna(texts) & there).any() or np.isnan(means[there]).any():
        return pd.DataFrame(np.nan, index=range(len(texts)), columns=list(names))
    judged = measure(texts, questions)
    meaning = semantic.clusters(judged)
    once = semantic.distinct(texts)
    table = {
        "SE": semantic.semantic_entropy(log_probs, meaning, variant="farquhar2024"),
        "SE-MC": semantic.semantic_entropy(means, meaning, variant="kuhn2023"),
        "SD": semantic.semantic_density(means, judged, keep=once),
        "WD": semantic.weighted_dissimilarity(judged, log_probs, keep=once),
        "gap": semantic.top_two_gap(log_probs, meaning),
    }
    if drawn is not None:
        table["Deg"] = semantic.degree(measure(drawn, questions))
    return pd.DataFrame(table)[list(names)]


def searched(exact: Run, beams: Run, *, others: Sequence[Run] = (), split: str | None = None) -> Searched:
    """Line up a search and beams; the answer judged is the most probable one that any of the runs found.

    A question that either of them, or NLL or ALL, cannot score is left out.
    """
    by_search = evaluate(exact, others=[beams, *others], split=split)
    by_beams = evaluate(beams.select(question_ids=list(by_search.answers["question_id"])), others=[exact, *others])
    ids = list(by_beams.answers["question_id"])
    run = exact.select(question_ids=ids)
    return Searched(by_search.only(ids), by_beams.log_probs, run.open_log_probs(), run.tree())


def split_records(run: Run, *, n_validation: int = 100, seed: int = 0) -> Run:
    """The run with every question in `validation` or `test`: as its records say, else drawn with `seed`."""
    splits = run.questions["split"]
    if splits.notna().all():
        return run
    if splits.notna().any():
        raise RunError(f"run {run.name} says the split of some questions only")
    if len(splits) < 2 * n_validation:
        raise RunError(f"run {run.name} has {len(splits)} questions, too few to draw {n_validation} for validation")
    drawn = np.random.default_rng(seed).choice(len(splits), size=n_validation, replace=False)
    names = np.where(np.isin(np.arange(len(splits)), drawn), "validation", "test")
    return replace(run, questions=run.questions.assign(split=names))


def rouge_and_correct(answers: pd.DataFrame, questions: pd.DataFrame, choices: Choices | None = None) -> pd.DataFrame:
    """ROUGE-L and correctness of answers: as labels or records brought them, else against the references.

    `answers` has the columns question_id (needed for labels), text and, if brought, rouge_l and correct; `questions`
    has the references, row by row. Columns: rouge_l, correct (a boolean, or None where it cannot be known).
    """
    choices = choices or Choices()
    known = (answers["text"].notna() & questions["references"].notna().to_numpy()).to_numpy(bool)
    texts, references = list(answers["text"][known]), list(questions["references"][known])
    if "rouge_l" in answers:
        rouge_l = answers["rouge_l"].to_numpy(float)
    else:
        rouge_l = np.full(len(answers), np.nan)
        rouge_l[known] = correctness.rouge_l(texts, references, best=choices.references)
    if choices.labels is not None:
        correct = _labels_of(answers, choices.labels)
    elif "correct" in answers:
        correct = answers["correct"].to_numpy(object)
    elif choices.correctness == "rouge_l":
        correct = np.where(np.isnan(rouge_l), None, rouge_l > ROUGE_THRESHOLD)
    else:
        correct = np.full(len(answers), None, dtype=object)
        match = {"exact_match": correctness.exact_match, "alias_match": correctness.alias_match}[choices.correctness]
        correct[known] = match(texts, references)
    return pd.DataFrame({"rouge_l": rouge_l, "correct": correct}, index=answers.index)


def _labels_of(answers: pd.DataFrame, labels: pd.DataFrame) -> np.ndarray:
    known = dict(zip(zip(labels["question_id"], labels["text"], strict=True), labels["correct"], strict=True))
    pairs = zip(answers["question_id"], answers["text"], strict=True)
    return np.array([known.get(pair) for pair in pairs], dtype=object)


def read_labels(path: str | Path) -> pd.DataFrame:
    """Labels from outside, a row per question and answer: a CSV, Parquet or JSONL file with `LABEL_COLUMNS`.

    `correct` is true or false (1 or 0). Raises `RunError`, naming file and row, for anything else, and for two
    labels of one answer that differ.
    """
    path = Path(path)
    readers = {".csv": pd.read_csv, ".parquet": pd.read_parquet, ".jsonl": lambda p: pd.read_json(p, lines=True)}
    if path.suffix not in readers:
        raise RunError(f"{path} is neither {', '.join(readers)}: labels of answers cannot be read from it")
    try:
        table = readers[path.suffix](path)
    except (OSError, ValueError) as error:  # pandas' and Arrow's own errors are among them
        raise RunError(f"{path} cannot be read: {error}") from error
    missing = [name for name in LABEL_COLUMNS if name not in table]
    if missing:
        raise RunError(f"{path} has no column {missing[0]}; labels need {', '.join(LABEL_COLUMNS)}")
    table = table[list(LABEL_COLUMNS)].astype({"question_id": str, "text": str})
    values = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}
    correct = table["correct"].map(lambda value: values.get(str(value).strip().lower()))
    if correct.isna().any():
        row = int(correct.isna().argmax())
        raise RunError(f"{path}, row {row + 1}: correct is {table['correct'].iloc[row]!r}, neither true nor false")
    table = table.assign(correct=correct.astype(bool)).drop_duplicates()
    twice = table.duplicated(["question_id", "text"])
    if twice.any():
        raise RunError(f"{path} calls answer {table['text'][twice].iloc[0]!r} both right and wrong")
    return table.reset_index(drop=True)
