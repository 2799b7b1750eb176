"""One answer judged per question, and what every method says of it, row by row.

It ties runs, scores, correctness and metrics together; it does not know a score by its formula, and it does not draw.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from pro_lib import correctness, generations, metrics, scores, sweeps
from pro_lib.generations import Run
from pro_lib.run_files import RunError

ROUGE_THRESHOLD = 0.3


@dataclass(frozen=True)
class Judged:
    """One model's answers to one split of a dataset, and what the methods say of them, row by row.

    `answers` has a row per question: question_id, text (the answer judged), rouge_l, correct. `log_probs` (n, N)
    are the answers PRO reads. `baselines` has a column per method that needs no α, higher = more uncertain.
    `exclusions` says which questions were left out and why, `unavailable` which methods the run cannot feed.
    """

    model: str
    dataset: str
    split: str
    answers: pd.DataFrame
    log_probs: np.ndarray
    baselines: pd.DataFrame
    exclusions: metrics.Exclusions
    unavailable: tuple[str, ...]

    @property
    def correct(self) -> np.ndarray:
        """Whether the judged answer is right, `(n,)`."""
        return self.answers["correct"].to_numpy(bool)

    def uncertainties(self, *, alpha: float) -> pd.DataFrame:
        """PRO at `alpha` and every other method: a row per question, a column per method."""
        return pd.DataFrame({"PRO": scores.pro(self.log_probs, alpha=alpha)}).join(self.baselines)

    def drawn(self, n_questions: int, *, seed: int = 0) -> "Judged":
        """At most `n_questions` of the questions, drawn with `seed`, in their order."""
        if len(self.correct) <= n_questions:
            return self
        return self._rows(
            np.sort(np.random.default_rng(seed).choice(len(self.correct), size=n_questions, replace=False))
        )

    def only(self, question_ids: Sequence[str]) -> "Judged":
        """Those of the questions that are named, in their order."""
        return self._rows(np.flatnonzero(self.answers["question_id"].isin(set(question_ids))))

    def _rows(self, rows: np.ndarray) -> "Judged":
        return replace(
            self,
            answers=self.answers.iloc[rows].reset_index(drop=True),
            log_probs=self.log_probs[rows],
            baselines=self.baselines.iloc[rows].reset_index(drop=True),
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


def judge(
    beams: Run,
    *,
    samples: Run | None = None,
    others: Sequence[Run] = (),
    split: str | None = None,
    own: bool = False,
) -> Judged:
    """Judge one answer per question and line up what the methods say of it.

    The answer judged is the most probable one that any of the runs found. A question that a method cannot score,
    or that has no answer to judge, is left out for all methods and counted.

    Args:
        beams: the run that PRO, NLL, ALL and PE (Eq. 2) read, repeats left out.
        samples: the run that the Monte-Carlo forms, PE-MC and NE, read, repeats kept; None leaves them out.
        others: further runs whose answers may be the most probable one.
        split: the split to judge; None for all questions of `beams`.
        own: judge the most probable answer of `beams` instead.
    """
    beams = beams.select(split=split) if split is not None else beams
    ids = list(beams.questions["question_id"])
    samples = samples.select(question_ids=ids) if samples is not None else None
    compared = [beams, *([samples] if samples is not None else []), *others]
    top = generations.most_probable([beams] if own else compared)
    answers = top[["question_id", "text"]].join(rouge_and_correct(top, beams.questions))
    if answers["correct"].isna().all():
        raise RunError(f"run {beams.name}: no answer can be judged without references and texts, rouge_l or correct")
    log_probs = beams.log_probs()
    baselines = _baselines(log_probs, beams, samples)
    unavailable = tuple(baselines.columns[baselines.isna().all()])
    baselines = baselines.drop(columns=list(unavailable))
    exclusions = metrics.usable(baselines.set_axis(ids), answers["correct"])
    used = exclusions.mask
    return Judged(
        beams.info.model,
        beams.info.dataset,
        split or "all",
        answers[used].reset_index(drop=True),
        log_probs[used],
        baselines[used].reset_index(drop=True),
        exclusions,
        unavailable,
    )


def _baselines(log_probs: np.ndarray, beams: Run, samples: Run | None) -> pd.DataFrame:
    table = pd.DataFrame(
        {
            "NLL": scores.nll(log_probs),
            "ALL": scores.average_log_likelihood(beams.mean_log_probs(), log_probs),
            "PE": scores.predictive_entropy(log_probs),
        }
    )
    if samples is None:
        return table
    return table.assign(
        **{
            "PE-MC": scores.predictive_entropy_mc(samples.log_probs(distinct=False)),
            "NE": scores.normalized_entropy(samples.mean_log_probs(distinct=False)),
        }
    )


@dataclass(frozen=True)
class Searched:
    """An exact search and beams on the same questions, judged on the same answers, row by row.

    `judged` is of the search; `beams` (n, N) are the beams' log-probabilities, `still_open` (n, M) those of prefixes
    open at the length cut, `tree` log p(v) and H(next | v) of the expanded prefixes, (n, P) each.
    """

    judged: Judged
    beams: np.ndarray
    still_open: np.ndarray
    tree: tuple[np.ndarray, np.ndarray]

    def only(self, question_ids: Sequence[str]) -> "Searched":
        """Those of the questions that are named, in their order."""
        rows = np.flatnonzero(self.judged.answers["question_id"].isin(set(question_ids)))
        tree = self.tree[0][rows], self.tree[1][rows]
        return Searched(self.judged.only(question_ids), self.beams[rows], self.still_open[rows], tree)

    def alpha_scores(self) -> dict[str, tuple[np.ndarray, sweeps.AlphaScore]]:
        """By name, the array a score reads and the score as a function of it and `alpha`."""

        def floor(log_probs, *, alpha):
            return scores.alpha_floor(log_probs, alpha=alpha, open_log_probs=self.still_open)

        def bound(prefixes, *, alpha):
            return scores.tree_bound(prefixes, self.tree[1], alpha=alpha)

        exact = self.judged.log_probs
        return {
            "PRO, exact": (exact, scores.pro),
            "PRO, beams": (self.beams, scores.pro),
            "α-floor": (exact, floor),
            "tree bound": (self.tree[0], bound),
            "mass not found": (exact, scores.mass_not_found),
        }


def searched(exact: Run, beams: Run, *, others: Sequence[Run] = (), split: str | None = None) -> Searched:
    """Line up a search and beams; the answer judged is the most probable one that any of the runs found.

    A question that either of them, or NLL or ALL, cannot score is left out.
    """
    by_search = judge(exact, others=[beams, *others], split=split)
    by_beams = judge(beams.select(question_ids=list(by_search.answers["question_id"])), others=[exact, *others])
    ids = list(by_beams.answers["question_id"])
    run = exact.select(question_ids=ids)
    return Searched(by_search.only(ids), by_beams.log_probs, run.open_log_probs(), run.tree())


def search_benchmark(validation: Searched, reported: Searched, *, seed: int = 0) -> pd.DataFrame:
    """AUROC of the scores on exact sets and of PRO on beams, each with its α chosen on validation.

    All look at the same grid, from the search's α on. NLL and ALL are those of the search's most probable answer.
    Columns as in `benchmark`, differences to `PRO, exact`.
    """
    grid = sweeps.alpha_grid(validation.judged.log_probs)
    chosen, uncertainties = {}, {}
    on_reported = reported.alpha_scores()
    for name, (array, score) in validation.alpha_scores().items():
        chosen[name] = sweeps.select_alpha(array, validation.judged.correct, alphas=grid, score=score)
        array, score = on_reported[name]
        uncertainties[name] = score(array, alpha=chosen[name])
    methods = pd.DataFrame(uncertainties).join(reported.judged.baselines[["NLL", "ALL"]])
    table = metrics.bootstrap_auroc(methods, reported.judged.correct, reference="PRO, exact", seed=seed)
    return _labelled(table, chosen, reported.judged)


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


def rouge_and_correct(answers: pd.DataFrame, questions: pd.DataFrame) -> pd.DataFrame:
    """ROUGE-L and correctness of answers: as records brought them, else against the references.

    `answers` has the columns text and, if brought, rouge_l and correct; `questions` has the references, row by row.
    Columns: rouge_l, correct (a boolean, or None where it cannot be known).
    """
    if "rouge_l" in answers:
        rouge_l = answers["rouge_l"].to_numpy(float)
    else:
        known = (answers["text"].notna() & questions["references"].notna().to_numpy()).to_numpy(bool)
        rouge_l = np.full(len(answers), np.nan)
        rouge_l[known] = correctness.rouge_l(list(answers["text"][known]), list(questions["references"][known]))
    judged = np.where(np.isnan(rouge_l), None, rouge_l > ROUGE_THRESHOLD)
    correct = answers["correct"].to_numpy(object) if "correct" in answers else judged
    return pd.DataFrame({"rouge_l": rouge_l, "correct": correct}, index=answers.index)


def _alphas(validation: Judged, reported: Judged, default: float) -> dict[str, float]:
    """The α that tables compare, by kind."""
    return {
        "selected": sweeps.select_alpha(validation.log_probs, validation.correct),
        "default": default,
        "oracle": sweeps.select_alpha(reported.log_probs, reported.correct),
    }


def alpha_choices(validation: Judged, reported: Judged, *, default: float, seed: int = 0) -> pd.DataFrame:
    """AUROC of PRO at the α chosen on validation, at the default, and at the one best on the reported split.

    Columns: dataset, model, split, n_questions, kind (selected, default; oracle on the reported split only), alpha,
    auroc, low, high.
    """
    alphas = _alphas(validation, reported, default)
    rows = []
    for judged, kinds in ((validation, ("selected", "default")), (reported, tuple(alphas))):
        chosen = [alphas[kind] for kind in kinds]
        table = sweeps.alpha_sweep(judged.log_probs, judged.correct, alphas=chosen, n_resamples=1000, seed=seed)
        rows.append(table.assign(kind=kinds, **judged.labels()))
    return pd.concat(rows)[[*reported.labels(), "kind", "alpha", "auroc", "low", "high"]]


def benchmark(validation: Judged, reported: Judged, *, default: float, seed: int = 0) -> pd.DataFrame:
    """AUROC of every method on the reported split, with paired intervals and differences to PRO.

    `PRO` has its α chosen on validation, `PRO, default` the default, `PRO, oracle` the best on the reported split.
    Columns: dataset, model, split, n_questions, method, alpha, auroc, low, high, difference (method minus PRO),
    difference_low, difference_high.
    """
    names = {"selected": "PRO", "default": "PRO, default", "oracle": "PRO, oracle"}
    alphas = {names[kind]: alpha for kind, alpha in _alphas(validation, reported, default).items()}
    pros = {name: scores.pro(reported.log_probs, alpha=alpha) for name, alpha in alphas.items()}
    table = metrics.bootstrap_auroc(pd.DataFrame(pros).join(reported.baselines), reported.correct, seed=seed)
    return _labelled(table, alphas, reported)


def _labelled(table: pd.DataFrame, alphas: dict[str, float], reported: Judged) -> pd.DataFrame:
    """The methods' table with their α and, in front, what setting it is of."""
    table.insert(1, "alpha", table["method"].map(alphas))
    labels = pd.DataFrame([reported.labels()] * len(table))
    return pd.concat([labels, table], axis=1)
