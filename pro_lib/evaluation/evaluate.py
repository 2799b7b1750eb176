"""One answer judged per question and every score beside it; knows runs, correctness and scores, draws no figure."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from pro_lib import metrics, scoring
from pro_lib.common.files import RunError
from pro_lib.evaluation.methods import (
    PROTOCOLS,
    Similarities,
    answer_matrices,
    find_protocol,
    method_scores,
    similarity_matrices,
)
from pro_lib.metrics.correctness import MATCHES, Choices, rouge_and_correct
from pro_lib.questions.repeats import question_groups
from pro_lib.runs.run import Run, most_probable_answers
from pro_lib.scoring.likelihood import FloatArray

# What α is chosen from: every α that the paper prints is one of these. Finer ones are for a logarithmic axis only:
# chosen from on 100 questions, they were seen to cost up to 0.05 of AUROC.
ALPHA_GRID = tuple(step / 20 for step in range(21))
DRAWN_ALPHAS = tuple(
    sorted({*ALPHA_GRID, 0.001, 0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.04})
)


# A method without a value for more than this share of the questions is not compared with the others.
MISSING_SHARE = 0.05


def alpha_grid(
    search_alpha: float | None = None, *, of: Sequence[float] = ALPHA_GRID
) -> FloatArray:
    """Return the αs (A,); for answers of an exact search its `search_alpha` and those above."""
    if search_alpha is None:
        return np.array(of)
    return np.unique([search_alpha, *(alpha for alpha in of if alpha > search_alpha)])


@dataclass(frozen=True)
class Evaluation:
    """One model's answers to one split of a dataset, and what the methods say of them, row by row.

    `answers` has a row per question: question_id, text (the answer judged), rouge_l, correct, exact_match, alias_match.
    It has a column cluster if questions go together, and a column text_number if questions have the same text.
    `n_unlabelled` is how many further questions have scores, but no label that says whether the answer is right.
    `log_probs` (n, N) are the answers PRO reads, those of an exact search down to `search_alpha` unless that is None.
    `baselines` has a column per method that needs no α, higher = more uncertain. `exclusions` says which questions were
    left out and why, `unavailable` which methods the run cannot feed. `meanings` are the log-probabilities (n, C) that
    PRO over meanings reads, by its name, as `S-PRO, lexical`. `alpha_scores` are further scores that need an α, each a
    function `score(alpha=)` that returns (n,) or (n, A). `note` is what the run says of itself.
    """

    model: str
    dataset: str
    split: str
    answers: pd.DataFrame
    log_probs: np.ndarray
    baselines: pd.DataFrame
    exclusions: str
    unavailable: tuple[str, ...]
    search_alpha: float | None = None
    protocol: str = "workbench"
    strategy: str = ""
    meanings: Mapping[str, FloatArray] = field(default_factory=dict)
    alpha_scores: Mapping[str, Callable[..., FloatArray]] = field(default_factory=dict)
    note: str = ""
    n_unlabelled: int = 0

    @property
    def correct(self) -> np.ndarray:
        """Return whether the judged answer is right, (n,)."""
        return self.answers["correct"].to_numpy(bool)

    @property
    def n_rarer(self) -> int:
        """Return how many judged answers are right, or wrong, whichever are fewer; with under 20 say little."""
        return int(min(self.correct.sum(), (~self.correct).sum()))

    def __repr__(self) -> str:
        return f"Evaluation({self.sentence()})"

    def pro(
        self, alpha: float | FloatArray = 0.4, *, k: ArrayLike | None = None, name: str = "PRO"
    ) -> FloatArray:
        """Return PRO at one α, (n,), at several, (n, A), or at `k`; by name, of `meanings` or (at α) `alpha_scores`."""
        at: dict[str, Any] = {"alpha": alpha} if k is None else {"k": k}
        if name in self.alpha_scores:
            return self.alpha_scores[name](**at)
        if len(self.log_probs) and np.isnan(self.log_probs).all():
            alone = f"{self.dataset}, {self.model} has texts alone, or for most questions"
            raise RunError(f"{name} needs log-probabilities, and {alone}")
        score = scoring.pro if k is None else scoring.pro_at_k
        with warnings.catch_warnings(
            action="ignore", category=scoring.PremiseWarning
        ):  # `sentence` says it
            return score(
                self.meanings.get(name, self.log_probs), **at, search_alpha=self.search_alpha
            )

    def with_pro(self, alphas: Mapping[str, float]) -> pd.DataFrame:
        """Tabulate PRO, or what else has the name (`pro`), at each named α, and every other method: a column each."""
        return pd.DataFrame(
            {name: self.pro(alpha, name=name) for name, alpha in alphas.items()}
        ).join(self.baselines)

    def drawn(self, n_questions: int, *, seed: int = 0) -> "Evaluation":
        """Return at most `n_questions` of the questions, drawn with `seed`, in their order."""
        n = len(self.correct)
        if n <= n_questions:
            return self
        some = self.rows(
            np.sort(np.random.default_rng(seed).choice(n, size=n_questions, replace=False))
        )
        return replace(some, exclusions=f"{self.exclusions} {n_questions} were drawn of them.")

    def rows(self, chosen: np.ndarray | pd.Series) -> "Evaluation":
        """Return those of the questions that a mask or positions name."""
        rows = np.arange(len(self.answers))[np.asarray(chosen)]
        answers, baselines = (
            table.iloc[rows].reset_index(drop=True) for table in (self.answers, self.baselines)
        )
        meanings = {name: log_probs[rows] for name, log_probs in self.meanings.items()}
        at_alpha = {
            name: lambda of=of, **at: of(**at)[rows] for name, of in self.alpha_scores.items()
        }
        read: dict[str, Any] = {
            "log_probs": self.log_probs[rows],
            "meanings": meanings,
            "alpha_scores": at_alpha,
        }
        return replace(self, answers=answers, baselines=baselines, **read)

    def one_per_text(self, *, seed: int = 0) -> "Evaluation":
        """Return one question of each text, drawn with `seed`; all questions if no text is repeated."""
        if "text_number" not in self.answers:
            return self
        order = np.random.default_rng(seed).permutation(len(self.answers))
        _, first = np.unique(self.answers["text_number"].to_numpy()[order], return_index=True)
        return self.rows(np.sort(order[first]))

    def cautions(self) -> str:
        """Say what restricts the result: labels of some questions only, and repeated questions; else nothing."""
        sentences = []
        n = len(self.answers)
        if self.n_unlabelled:
            n_all = n + self.n_unlabelled
            sentences.append(
                f"Labels or references cover {n} of {n_all} questions and have no inclusion probabilities: "
                "the result holds for the labelled questions only, not for all."
            )
        if "text_number" in self.answers:
            n_texts = self.answers["text_number"].nunique()
            sentences.append(
                f"The {n} questions have {n_texts} different texts: intervals treat equal texts as one cluster."
            )
        return " ".join(sentences)

    def with_methods_of(self, other: "Evaluation") -> "Evaluation":
        """Return the evaluation without the methods that `other` does not have, and say which these are."""
        absent = [name for name in self.baselines if name not in other.baselines]
        absent += [name for name in self.meanings if name not in other.meanings]
        if not absent:
            return self
        meanings = {name: read for name, read in self.meanings.items() if name not in absent}
        baselines = self.baselines.drop(columns=absent, errors="ignore")
        exclusions = f"{self.exclusions} Without {', '.join(absent)}, which split {other.split} does not have."
        return replace(self, baselines=baselines, meanings=meanings, exclusions=exclusions)

    def one_class(self) -> str:
        """Return the sentence that all answers are right, or all wrong; empty where both occur."""
        if self.n_rarer:
            return ""
        which = f"all {len(self.correct)} judged answers are {'right' if self.correct.any() else 'wrong'}"
        if not len(self.correct):
            which = "no question has both a judged answer and a score"
        return f"{self.dataset}, {self.model}, {self.split}: {which}"

    def labels(self) -> dict[str, str | int]:
        """Return what tells this setting's tables from others': dataset, model, protocol, split, n_questions.

        If labels cover some questions only, n_unlabelled is among them.
        """
        labels: dict[str, str | int]
        labels = {
            "dataset": self.dataset,
            "model": self.model,
            "protocol": self.protocol,
            "split": self.split,
        }
        labels |= {"n_questions": len(self.correct)}
        return labels | ({"n_unlabelled": self.n_unlabelled} if self.n_unlabelled else {})

    def sentence(self) -> str:
        """Say what was used and what was not."""
        without = f" Not available: {', '.join(self.unavailable)}." if self.unavailable else ""
        accuracy = "No question is left"
        if len(self.correct):
            accuracy = f"{self.correct.mean():.3f} of the judged answers are right"
        for name, match in self.answers[list(MATCHES)].items():  # judges that no ROUGE decides
            if match.notna().all() and self.correct.any():
                rejected = 1 - match[self.correct].mean()
                accuracy += f", {match.mean():.3f} by {name}, which rejects {rejected:.0%} of those"
        above = scoring.above_one(self.log_probs).sum()
        mass = f" For {above} questions the answers' probabilities sum to more than 1: PRO bounds no entropy there."
        where = f"{self.dataset}, {self.model}, {self.protocol}, {self.split}"
        cautions = self.cautions()
        note = "".join(f" {text}" for text in (cautions, self.note) if text)
        return f"{where}: {self.exclusions} {accuracy}.{mass if above else ''}{without}{note}"


@dataclass(frozen=True)
class Splits:
    """One model on one dataset: all its validation questions, and those reported.

    α is chosen on `validation`: `n_validation` questions of the pool, drawn with `seed`, or all if that is None. It is
    one of `alphas`; None for those of `alpha_grid`.
    """

    pool: Evaluation
    reported: Evaluation
    n_validation: int | None = 100
    seed: int = 0
    alphas: Sequence[float] | None = None

    @property
    def validation(self) -> Evaluation:
        """Return what α is chosen on."""
        return (
            self.pool
            if self.n_validation is None
            else self.pool.drawn(self.n_validation, seed=self.seed)
        )

    def sentence(self) -> str:
        """Say what α is chosen on, and what is reported."""
        return f"{self.validation.sentence()}\n{self.reported.sentence()}"


def common_methods(
    table: pd.DataFrame, correct: ArrayLike
) -> tuple[pd.DataFrame, dict[str, tuple[int, int]]]:
    """Return the methods that can be compared on the same questions, and how many questions the others have.

    Questions count if the judged answer is known to be right or wrong and NLL has a value; without any NLL, if some
    method has a value. A method that is missing for more than `MISSING_SHARE` of them is left out, so that it does not
    cost the other methods their questions. S-NLL stands for S-PRO, which reads the same answers.

    Args:
        table: a column per method, NaN where a method has no value, (n, M).
        correct: whether the judged answers are right, None or NaN where that is unknown, (n,).

    Returns:
        The table without these methods, and by their names the number of questions with a value and that of all.
    """
    has_value = table.notna()
    counts = pd.notna(np.asarray(correct)) & has_value.any(axis=1).to_numpy()
    if "NLL" in table and (counts & has_value["NLL"]).any():
        counts &= has_value["NLL"].to_numpy()
    n_questions = int(counts.sum())
    n_scored = has_value[counts].sum()
    is_rare = n_questions - n_scored > MISSING_SHARE * n_questions
    left_out = {str(name): (int(n_scored[name]), n_questions) for name in table.columns[is_rare]}
    return table.loc[:, ~is_rare], left_out


def evaluate(beams: Run, *, protocol: str = "workbench", **options: Any) -> Evaluation:
    """Return one evaluation, under one protocol; `options` are those of `evaluations`."""
    return evaluations(beams, protocols=[protocol], **options)[0]


def evaluations(
    beams: Run,
    *,
    protocols: Sequence[str] = tuple(PROTOCOLS),
    samples: Run | None = None,
    others: Sequence[Run] = (),
    split: str | None = None,
    similarities: Similarities | None = None,
    choices: Choices | None = None,
) -> list[Evaluation]:
    """Judge one answer per question and line up what the methods say of it, once for each protocol.

    The answer judged is the most probable one that any of the runs found, the same under every protocol. A method that
    cannot score more than 5 % of the questions is left out (`common_methods`). A question that one of the other methods
    cannot score, or that has no answer to judge, is left out for all methods and counted. If most answers of `beams`
    are texts without log-probabilities, and there are `samples`, log-probabilities are not used at all.

    Args:
        beams: the run that PRO, NLL, ALL, PE (Eq. 2), SE and SD read, and in protocol `paper` PE-MC and NE too.
        protocols: names of `evaluation.PROTOCOLS`; another name is a `ValueError`.
        samples: what Deg, and in protocol `workbench` SC, PE-MC and NE, read, repeats kept; None leaves them out.
        others: further runs whose answers may be the most probable one.
        split: the split to judge; None for all questions of `beams`.
        similarities: which answers mean the same: SE, SD, Deg, SC, S-NLL and S-PRO once for each, as `SE, <key>`;
            None for one that this dataset cannot have.

    Raises `RunError` where a run lacks one of the questions, or no answer can be judged.
    """
    choices = choices or Choices()
    rules = [find_protocol(name, distinct=choices.distinct) for name in protocols]
    # Decided on all questions of the run, so that its splits are scored alike.
    as_texts = samples is not None and 0 < beams.n_with_log_probs() < len(beams.questions) / 2
    beams = beams.select(split=split) if split is not None else beams
    ids = list(beams.questions["question_id"])
    n_with_log_probs = beams.n_with_log_probs()
    samples = samples and samples.select(question_ids=ids)
    if as_texts and samples is not None:
        beams, samples = beams.as_texts(), samples.as_texts()
        others = [run.as_texts() for run in others]
    runs = [
        beams,
        *([samples] if samples else []),
        *(run.select(question_ids=ids) for run in others),
    ]
    top = most_probable_answers([run.top(convention=choices.convention) for run in runs])
    answers = top[["question_id", "text"]].join(rouge_and_correct(top, beams.questions, choices))
    if choices.labels is not None:
        _check_labels(answers, choices.labels, beams.name)
    answers = answers.join(_dependences(beams.questions, choices))
    if answers["correct"].isna().all():
        raise RunError(
            f"run {beams.name}: no answer can be judged without references and texts, rouge_l or correct"
        )
    found = answer_matrices(beams, convention=choices.convention)
    has_only_texts = np.isnan(found.log_probs).all(axis=1) & ~pd.isna(found.texts).all(axis=1)
    sampled = answer_matrices(samples, convention=choices.convention) if samples else None
    compared = similarity_matrices(found, sampled, similarities or {}, judged=answers["text"])
    elsewhere = beams.questions.filter(regex="^score_").rename(
        columns=lambda name: name.removeprefix("score_")
    )
    shared: dict[str, Any] = beams.info.labels() | {
        "split": split or "all",
        "search_alpha": beams.search_alpha,
    }
    shared |= {"answers": answers, "note": beams.info.provenance.get("note", "")}
    shared["strategy"] = beams.info.strategy
    results = []
    for rule in rules:
        log_probs, table, meanings = method_scores(found, sampled, rule, compared)
        ours = (*table, *meanings, "PRO", "PRO, default", "PRO, oracle", "oracle")
        table = table.join(elsewhere.rename(columns={name: f"{name}, given" for name in ours}))
        available = table.dropna(axis=1, how="all")
        compared_methods, left_out = common_methods(available, answers["correct"])
        mask, exclusions = metrics.usable(
            compared_methods.set_axis(ids), answers["correct"], has_only_texts=has_only_texts
        )
        if as_texts:
            left_out = {"every score of log-probabilities": (n_with_log_probs, len(ids))} | left_out
        exclusions += _left_out_sentence(left_out)
        meanings = {
            name: read
            for name, read in meanings.items()
            if name.replace("S-PRO", "S-NLL") in compared_methods
        }
        unavailable = tuple(table.columns.difference(available.columns, sort=False))
        own: dict[str, Any] = {"protocol": rule.name, "log_probs": log_probs, "meanings": meanings}
        own |= {
            "baselines": compared_methods,
            "n_unlabelled": _count_unlabelled(answers, compared_methods),
        }
        whole = Evaluation(**shared, **own, exclusions=exclusions, unavailable=unavailable)
        results.append(_numbered(whole.rows(mask)))
    return results


def _left_out_sentence(left_out: Mapping[str, tuple[int, int]]) -> str:
    """Say which methods are left out of the comparison, and how many questions have a value of each."""
    if not left_out:
        return ""
    counts = ", ".join(
        f"{name} ({n:,} of {n_all:,} questions have it)" for name, (n, n_all) in left_out.items()
    )
    return f" Left out of the comparison: {counts}."


def _dependences(questions: pd.DataFrame, choices: Choices) -> pd.DataFrame:
    """Return which questions go together, and which have the same text.

    Columns: cluster, if the questions have the column of `choices` or a text is repeated; text_number, if a text is
    repeated. Questions of one text go together, and so do questions of one value of the column.
    """
    texts = question_groups(questions)
    is_repeated = len(np.unique(texts)) < len(texts)
    table = pd.DataFrame(index=range(len(questions)))
    if choices.cluster in questions:
        table["cluster"] = questions[choices.cluster].map(str).to_numpy()
    if is_repeated:
        table["text_number"] = texts
        declared = table.get("cluster")
        table["cluster"] = texts.astype(str) if declared is None else _joined(declared, texts)
    return table


def _joined(clusters: pd.Series, texts: np.ndarray) -> np.ndarray:
    """Return clusters in which questions are together if a chain of equal clusters and equal texts connects them."""
    codes, names = pd.factorize(clusters)
    n_clusters = len(names)
    size = n_clusters + texts.max() + 1
    links = coo_array((np.ones(len(codes)), (codes, n_clusters + texts)), shape=(size, size))
    components = connected_components(links, directed=False)[1]
    # A component is named after its first cluster.
    first = pd.Series(names).groupby(components[:n_clusters]).first()
    return first.loc[components[codes]].to_numpy()


def _count_unlabelled(answers: pd.DataFrame, scores: pd.DataFrame) -> int:
    """Count the questions whose answer has scores, but of which nothing says whether it is right."""
    is_scored = scores.notna().all(axis=1).to_numpy()
    return int((answers["correct"].isna() & is_scored).sum())


def _numbered(evaluation: Evaluation) -> Evaluation:
    """Return the evaluation without the numbers of texts if no text is left twice."""
    answers = evaluation.answers
    if "text_number" not in answers or answers["text_number"].duplicated().any():
        return evaluation
    return replace(evaluation, answers=answers.drop(columns="text_number"))


def _check_labels(answers: pd.DataFrame, labels: pd.DataFrame, name: str) -> None:
    """Check that a question with labels has one for the answer judged; others may be among the labels."""
    labelled = answers[answers["question_id"].isin(labels["question_id"])]
    if labelled.empty:
        raise RunError(f"run {name}: none of the {len(labels)} labels is for one of its questions")
    if lost := labelled.loc[labelled["correct"].isna(), "question_id"].tolist():
        raise RunError(
            f"run {name}: labels of {len(lost)} questions match no answer judged, first of {lost[0]!r}"
        )
