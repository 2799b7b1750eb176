"""AUROC as α, K or the ROUGE-L threshold varies, and the protocol: α chosen on validation, methods reported on test.

It knows evaluations; it does not know files, models, texts or figures. A sweep takes one `Evaluation` or several and
ends its rows with their labels (dataset, model, split, n_questions); with `n_resamples` above 0 it has the columns
`low` and `high`, pointwise 95 % intervals of the stratified bootstrap. Where all answers are right, or all wrong, AUROC
and interval are NaN, and a `OneClassWarning` says so. `alphas=None` is `alpha_grid`. What compares methods takes an
evaluation of validation questions and one of those reported; its rows begin with the latter's labels.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from pro_lib import metrics, scores, selective
from pro_lib.evaluation import Evaluation

Floats = NDArray[np.float64]
Alphas = Sequence[float] | None
AlphaScore = Callable[..., Floats]  # (log_probs, alpha=) -> uncertainty (n,) or (n, A)
DEFAULT_ALPHA = 0.4  # what the paper recommends without validation data
# Steps of 0.05, and finer ones near 0 for a logarithmic axis.
ALPHA_GRID = tuple(
    sorted({step / 20 for step in range(21)} | {0.001, 0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.04})
)


class OneClassWarning(UserWarning):
    """All answers are right, or all wrong, so that an AUROC is NaN or α cannot be chosen."""


def alpha_grid(search_alpha: float | None = None) -> Floats:
    """`ALPHA_GRID`, from the `search_alpha` on where the answers are those of an exact search; that α included."""
    if search_alpha is None:
        return np.array(ALPHA_GRID)
    return np.unique([search_alpha, *(alpha for alpha in ALPHA_GRID if alpha > search_alpha)])


def _of_one_or_several(sweep: Callable[..., pd.DataFrame]) -> Callable[..., pd.DataFrame]:
    @functools.wraps(sweep)
    def swept(evaluations: Evaluation | Iterable[Evaluation], **options: object) -> pd.DataFrame:
        parts = []
        for each in [evaluations] if isinstance(evaluations, Evaluation) else evaluations:
            parts.append(sweep(each, **options).assign(**each.labels()))
        return pd.concat(parts, ignore_index=True)

    return swept


@_of_one_or_several
def alpha_sweep(evaluation: Evaluation, *, alphas: Alphas = None, n_resamples: int = 0, seed: int = 0) -> pd.DataFrame:
    """AUROC of PRO at each α. Columns: `alpha, auroc, mean_kept` (mean K), `low, high` on request, and the labels."""
    alphas, uncertainty = _by_alpha(evaluation, alphas)
    kept = scores.adaptive_k(evaluation.log_probs, alphas)
    table = pd.DataFrame({"alpha": alphas, "auroc": np.nan, "mean_kept": kept.mean(axis=0)})
    return _with_aurocs(table, uncertainty, evaluation, n_resamples, seed)


@_of_one_or_several
def k_sweep(evaluation: Evaluation, *, alphas: Alphas = None) -> pd.DataFrame:
    """Mean K, the number of answers kept, at each α, with the normal 95 % interval of a mean over questions.

    Columns: `alpha, mean_kept, low, high`, and the labels.
    """
    alphas = alpha_grid(evaluation.search_alpha) if alphas is None else np.array(alphas)
    counts = scores.adaptive_k(evaluation.log_probs, alphas, search_alpha=evaluation.search_alpha)
    if (empty := (counts == 0).any(axis=1)).any():
        raise ValueError(f"{empty.sum()} of {len(empty)} questions have no answer, first in row {empty.argmax()}")
    mean, half_width = counts.mean(axis=0), ndtri(0.975) * counts.std(axis=0, ddof=1) / np.sqrt(len(counts))
    return pd.DataFrame({"alpha": alphas, "mean_kept": mean, "low": mean - half_width, "high": mean + half_width})


@_of_one_or_several
def fixed_k_sweep(evaluation: Evaluation, *, max_k: int, n_resamples: int = 0, seed: int = 0) -> pd.DataFrame:
    """AUROC of PRO_K for K = 1 … `max_k`; a question with fewer than K answers uses all it has.

    Columns: `k, auroc`, `low, high` on request, and the labels.
    """
    table = pd.DataFrame({"k": np.arange(1, max_k + 1), "auroc": np.nan})
    uncertainty = scores.pro_at_k(evaluation.log_probs, table["k"], search_alpha=evaluation.search_alpha)
    return _with_aurocs(table, uncertainty, evaluation, n_resamples, seed)


@_of_one_or_several
def rouge_threshold_sweep(
    evaluation: Evaluation,
    *,
    alpha: float = DEFAULT_ALPHA,
    thresholds: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5),
    n_resamples: int = 0,
    seed: int = 0,
) -> pd.DataFrame:
    """AUROC of every method, PRO at `alpha`, as the bar for a right answer, `rouge_l > threshold`, moves.

    Columns: `threshold, method, auroc, accuracy`, `low, high` on request, and the labels.
    """
    rouge_l, uncertainties = evaluation.answers["rouge_l"], evaluation.uncertainties(alpha=alpha)
    if rouge_l.isna().any():
        raise ValueError(f"rouge_l is NaN in {rouge_l.isna().sum()} rows, first in row {rouge_l.isna().argmax()}")
    parts, methods = [], {"method": uncertainties.columns, "auroc": np.nan}
    for threshold in thresholds:
        judged = replace(evaluation, answers=evaluation.answers.assign(correct=rouge_l > threshold))
        table = pd.DataFrame({"threshold": threshold, **methods, "accuracy": judged.correct.mean()})
        where = f" at ROUGE-L threshold {threshold}"
        parts.append(_with_aurocs(table, uncertainties, judged, n_resamples, seed, where))
    return pd.concat(parts)


def select_alpha(validation: Evaluation, *, alphas: Alphas = None, score: AlphaScore | None = None) -> float:
    """The α with the best AUROC of `score(log_probs, alpha=)`, by default `scores.pro`, on validation questions.

    Ties go to the α nearest 0.4, and of two equally near to the smaller. Where all answers are right, or all wrong, it
    is 0.4, and a `OneClassWarning` says so.
    """
    if one_class := validation.one_class():
        sentence = f"{one_class}: alpha cannot be chosen there, the default {DEFAULT_ALPHA} is taken"
        warnings.warn(sentence, OneClassWarning, stacklevel=2)
        return DEFAULT_ALPHA
    return _best(*_by_alpha(validation, alphas, score), validation.correct)


def alpha_choices(validation: Evaluation, reported: Evaluation, *, default: float, seed: int = 0) -> pd.DataFrame:
    """AUROC of PRO at the α chosen on validation, at the default, and at the one best on the reported split.

    Columns: the labels, kind (selected, default; oracle on the reported split only), alpha, auroc, low, high.
    """
    alphas, kinds = list(_alphas(validation, reported, default).values()), ["selected", "default", "oracle"]
    options = {"n_resamples": 1000, "seed": seed}
    parts = alpha_sweep(validation, alphas=alphas[:2], **options), alpha_sweep(reported, alphas=alphas, **options)
    table = pd.concat(parts).assign(kind=[*kinds[:2], *kinds])
    return table[[*reported.labels(), "kind", "alpha", "auroc", "low", "high"]]


def benchmark(
    validation: Evaluation,
    reported: Evaluation,
    *,
    default: float = DEFAULT_ALPHA,
    n_resamples: int = 2000,
    seed: int = 0,
) -> pd.DataFrame:
    """Every method on the reported split: AUROC with its difference to PRO, rejection and calibration.

    `PRO` has its α chosen on validation, `PRO, default` the default, `PRO, oracle` the best on the reported split.
    The last two are PRO again, so Holm's correction does not count them as methods: their `p_holm` is `p_value`.
    Columns: the labels, method, alpha, those of `metrics.compared`, prr and auarc (`selective.rejection`), and ece
    and brier, of the probability of being right fitted on validation (`selective.calibration`).
    """
    alphas = _alphas(validation, reported, default)
    methods = reported.with_pro(alphas)
    apart = ("PRO, default", "PRO, oracle")
    table = metrics.compared(methods, reported.correct, n_resamples=n_resamples, seed=seed, apart=apart)
    table = table.merge(selective.rejection(methods, reported.correct), on="method", validate="1:1")
    table.insert(1, "alpha", table["method"].map(alphas))
    fits = {} if validation.one_class() else _calibrations(validation, reported, alphas, methods)
    for name in ("ece", "brier"):  # nothing can be fitted on one class; `select_alpha` has said so
        table[name] = [getattr(fits.get(method), name, np.nan) for method in methods]
    return labelled(table, reported)


def by_strategy(validation: Evaluation, reported: Evaluation, *, default: float = DEFAULT_ALPHA) -> pd.DataFrame:
    """AUROC of every method when each question is judged by one strategy's own most probable answer.

    Columns: the labels, judged (each strategy compared, or `most probable`, as in `benchmark`), accuracy, method,
    alpha, auroc.
    """
    strategies = [name.removeprefix("correct_") for name in reported.answers if name.startswith("correct_")]
    pairs = {"most probable": (validation, reported)}
    pairs |= {strategy: (validation.by(strategy), reported.by(strategy)) for strategy in strategies}
    parts = []
    for judged, pair in pairs.items():
        alphas = _alphas(*pair, default)
        methods = pair[1].with_pro(alphas)
        table = pd.DataFrame({"judged": judged, "accuracy": pair[1].correct.mean(), "method": methods.columns})
        table["alpha"] = table["method"].map(alphas)
        table["auroc"] = metrics.auroc_columns(methods, pair[1].correct)
        parts.append(labelled(table, pair[1]))
    return pd.concat(parts, ignore_index=True)


def redraw_benchmark(
    everything: Evaluation, reported: Evaluation, *, n_questions: int = 100, n_redraws: int = 200, seed: int = 0
) -> pd.DataFrame:
    """PRO's AUROC on the reported split for α chosen on many redraws of the validation questions.

    Each redraw takes `n_questions` of `everything`, the whole validation split, without replacement, and again if they
    are all right or all wrong; where all of them are, there is one row, of the default. Columns: the labels, redraw,
    alpha, auroc (on the reported split), difference (minus NLL's there).
    """
    chosen = _redrawn_alphas(everything, n_questions, n_redraws, seed)
    table = pd.DataFrame({"redraw": np.arange(len(chosen)), "alpha": chosen})
    on_reported = alpha_sweep(reported, alphas=table["alpha"].unique()).set_index("alpha")["auroc"]
    table["auroc"] = table["alpha"].map(on_reported)
    nll = metrics.auroc(reported.baselines["NLL"], reported.correct)
    return labelled(table.assign(difference=table["auroc"] - nll), reported)


def accuracy_coverage(
    validation: Evaluation, reported: Evaluation, *, methods: Sequence[str] | None = None, n_points: int = 101
) -> pd.DataFrame:
    """Accuracy among the questions answered when the most uncertain are not, at `n_points` coverages from 2 % to 1.

    Below 2 % the curve is that of a few questions. PRO's α is chosen on validation. Beside the methods stands `oracle`,
    which answers right answers first. `low` and `high` are pointwise 95 % Wilson intervals of the accuracy among the
    n_answered questions (Wilson 1927), NaN for the oracle, which has seen the labels. All methods have the same
    questions, so that two of them may differ significantly though their intervals overlap.
    Columns: the labels, method, n_answered, coverage, threshold, accuracy, low, high.
    """
    uncertainties = reported.uncertainties(alpha=select_alpha(validation))
    uncertainties = uncertainties[list(methods or uncertainties)].assign(oracle=(~reported.correct).astype(float))
    n, correct = len(uncertainties), reported.correct
    at = np.unique(np.linspace(np.ceil(0.02 * n) - 1, n - 1, n_points).round().astype(int))
    curves = {name: selective.accuracy_coverage(of, correct).iloc[at] for name, of in uncertainties.items()}
    table = pd.concat(curves, names=["method", "row"]).reset_index().drop(columns="row")
    table["low"], table["high"] = selective.wilson_interval(table["accuracy"], table["n_answered"])
    table.loc[table["method"] == "oracle", ["low", "high"]] = np.nan
    return labelled(table, reported)


def reliability(validation: Evaluation, reported: Evaluation, *, methods: Sequence[str]) -> pd.DataFrame:
    """Reliability, method by method: confidence fitted on validation against accuracy on the reported split.

    Columns: the labels, method, ece, brier, and those of `selective.Calibration.table`.
    """
    if validation.one_class():
        raise metrics.OneClassError(f"{validation.one_class()}: no probability can be fitted on them")
    fits = _calibrations(validation, reported, {"PRO": select_alpha(validation)}, methods)
    tables = {(name, fit.ece, fit.brier): fit.table for name, fit in fits.items()}
    table = pd.concat(tables, names=["method", "ece", "brier", "bin"]).reset_index().drop(columns="bin")
    return labelled(table, reported)


def labelled(table: pd.DataFrame, reported: Evaluation) -> pd.DataFrame:
    """The table with the labels of an evaluation in front."""
    labels = reported.labels()
    return table.assign(**labels)[[*labels, *table.columns]]


def _alphas(validation: Evaluation, reported: Evaluation, default: float) -> dict[str, float]:
    """The α that tables compare: chosen on validation, the default, and the best on what is reported."""
    return {"PRO": select_alpha(validation), "PRO, default": default, "PRO, oracle": select_alpha(reported)}


def _by_alpha(evaluation: Evaluation, alphas: Alphas = None, score: AlphaScore | None = None) -> tuple[Floats, Floats]:
    """The αs (A,) and the score at each of them (n, A)."""
    alphas = alpha_grid(evaluation.search_alpha) if alphas is None else np.array(alphas)
    score = score or functools.partial(scores.pro, search_alpha=evaluation.search_alpha)
    return alphas, score(evaluation.log_probs, alpha=alphas)


def _redrawn_alphas(everything: Evaluation, n_questions: int, n_redraws: int, seed: int) -> list[float]:
    if everything.one_class():
        return [DEFAULT_ALPHA]
    correct, rng = everything.correct, np.random.default_rng(seed)
    if not 2 <= n_questions <= len(correct):
        raise ValueError(f"n_questions must lie in [2, {len(correct)}], the questions there are, not {n_questions}")
    grid, uncertainty = _by_alpha(everything)
    chosen: list[float] = []
    while len(chosen) < n_redraws:
        drawn = rng.choice(len(correct), size=n_questions, replace=False)
        if 0 < correct[drawn].sum() < n_questions:
            chosen.append(_best(grid, uncertainty[drawn], correct[drawn]))
    return chosen


def _best(alphas: Floats, uncertainty: ArrayLike, correct: ArrayLike) -> float:
    """The α whose column has the best AUROC; equal AUROCs are exactly equal, being counts over the same number."""
    aurocs = metrics.auroc_columns(uncertainty, correct)
    distance = np.round(np.abs(alphas - DEFAULT_ALPHA), 12)  # 0.35 and 0.45 are equally far, rounding aside
    return float(alphas[np.lexsort((alphas, distance, -aurocs))[0]])


def _calibrations(
    validation: Evaluation, reported: Evaluation, alphas: dict[str, float], methods: Iterable[str]
) -> dict[str, selective.Calibration]:
    fitted_on, scored = validation.with_pro(alphas), reported.with_pro(alphas)
    labels = validation.correct, reported.correct
    return {name: selective.calibration(fitted_on[name], labels[0], scored[name], labels[1]) for name in methods}


def _with_aurocs(
    table: pd.DataFrame, uncertainty: ArrayLike, evaluation: Evaluation, n_resamples: int, seed: int, where: str = ""
) -> pd.DataFrame:
    """The table with the AUROC of an uncertainty's columns, row by row, and its interval on request."""
    if one_class := evaluation.one_class():
        warnings.warn(f"{one_class}{where}, so that AUROC is NaN", OneClassWarning, stacklevel=4)
        return table.assign(low=np.nan, high=np.nan) if n_resamples else table
    table = table.assign(auroc=metrics.auroc_columns(uncertainty, evaluation.correct))
    if not n_resamples:
        return table
    resampled = metrics.resampled_aurocs(uncertainty, evaluation.correct, n_resamples=n_resamples, seed=seed)
    low, high = metrics.interval(resampled)
    return table.assign(low=low, high=high)
