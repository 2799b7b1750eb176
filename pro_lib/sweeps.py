"""AUROC as α, K or the ROUGE-L threshold varies, and the protocol: α chosen on validation, methods reported on test.

It knows evaluations; it does not know files, models, texts or figures. Every table is of one setting or of several,
and rows begin with their labels: dataset, model, split, n_questions. `alpha_sweep` and `k_sweep` take `Evaluation`s;
what needs an α takes `Splits`, chooses it on their validation questions and reports on the others. `low` and `high`
are pointwise 95 % intervals (`metrics.auroc_intervals`). Where all answers are right, or all wrong, AUROC and interval
are NaN, and a `OneClassWarning` says so. `alphas=None` is `alpha_grid`.
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
from pro_lib.base import intervals
from pro_lib.evaluation import Evaluation, Splits

Floats = NDArray[np.float64]
Alphas = Sequence[float] | None
AlphaScore = Callable[..., Floats]  # (log_probs, alpha=) -> uncertainty (n,) or (n, A)
DEFAULT_ALPHA = 0.4  # what the paper recommends without validation data
# Steps of 0.05, and finer ones near 0 for a logarithmic axis.
_FINER = (0.001, 0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.04)
ALPHA_GRID = tuple(sorted({*_FINER, *(step / 20 for step in range(21))}))


class OneClassWarning(UserWarning):
    """All answers are right, or all wrong, so that an AUROC is NaN or α cannot be chosen."""


def alpha_grid(search_alpha: float | None = None) -> Floats:
    """`ALPHA_GRID`, from the `search_alpha` on where the answers are those of an exact search; that α included."""
    if search_alpha is None:
        return np.array(ALPHA_GRID)
    return np.unique([search_alpha, *(alpha for alpha in ALPHA_GRID if alpha > search_alpha)])


def _of_one_or_several(sweep: Callable[..., pd.DataFrame]) -> Callable[..., pd.DataFrame]:
    @functools.wraps(sweep)
    def swept(settings: Evaluation | Splits | Iterable[Evaluation | Splits], **options: object) -> pd.DataFrame:
        several = [settings] if isinstance(settings, Evaluation | Splits) else list(settings)
        tables = map(functools.partial(sweep, **options), several)  # no frame of its own: warnings point at the caller
        return pd.concat(list(map(labelled, tables, several)), ignore_index=True)

    return swept


@_of_one_or_several
def alpha_sweep(evaluation: Evaluation, *, alphas: Alphas = None) -> pd.DataFrame:
    """AUROC of PRO at each α. Columns: `alpha, auroc, mean_kept` (mean K), `low, high`."""
    alphas, uncertainty = _by_alpha(evaluation, alphas)
    kept = scores.adaptive_k(evaluation.log_probs, alphas)
    table = pd.DataFrame({"alpha": alphas, "auroc": np.nan, "mean_kept": kept.mean(axis=0)})
    return _with_aurocs(table, uncertainty, evaluation)


@_of_one_or_several
def k_sweep(evaluation: Evaluation, *, alphas: Alphas = None) -> pd.DataFrame:
    """Mean K, the number of answers kept, at each α, with the normal 95 % interval of a mean over questions.

    Columns: `alpha, mean_kept, low, high`.
    """
    alphas = alpha_grid(evaluation.search_alpha) if alphas is None else np.array(alphas)
    counts = scores.adaptive_k(evaluation.log_probs, alphas, search_alpha=evaluation.search_alpha)
    if (empty := (counts == 0).any(axis=1)).any():
        raise ValueError(f"{empty.sum()} of {len(empty)} questions have no answer, first in row {empty.argmax()}")
    mean, half_width = counts.mean(axis=0), ndtri(0.975) * counts.std(axis=0, ddof=1) / np.sqrt(len(counts))
    return pd.DataFrame({"alpha": alphas, "mean_kept": mean, "low": mean - half_width, "high": mean + half_width})


@_of_one_or_several
def fixed_k_sweep(splits: Splits, *, max_k: int) -> pd.DataFrame:
    """AUROC of PRO_K for K = 1 … `max_k`, and of PRO with its α chosen on validation, whose `k` is `adaptive`.

    A question with fewer than K answers uses all it has. Columns: k, auroc, low, high, alpha, mean_kept.
    """
    reported, table = splits.reported, pd.DataFrame({"k": np.arange(1, max_k + 1), "auroc": np.nan})
    uncertainty = scores.pro_at_k(reported.log_probs, table["k"], search_alpha=reported.search_alpha)
    fixed = _with_aurocs(table, uncertainty, reported)
    chosen = alpha_sweep(reported, alphas=[select_alpha(splits.validation)])
    return pd.concat([fixed.astype({"k": object}), chosen.assign(k="adaptive")[[*fixed, "alpha", "mean_kept"]]])


@_of_one_or_several
def rouge_threshold_sweep(splits: Splits, *, thresholds: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5)) -> pd.DataFrame:
    """AUROC of every method as the bar for a right answer, `rouge_l > threshold`, moves; α stays.

    Columns: `threshold, method, auroc, accuracy, low, high`.
    """
    evaluation, rouge_l = splits.reported, splits.reported.answers["rouge_l"]
    uncertainties = evaluation.with_pro({"PRO": select_alpha(splits.validation)})
    if rouge_l.isna().any():
        raise ValueError(f"rouge_l is NaN in {rouge_l.isna().sum()} rows, first in row {rouge_l.isna().argmax()}")
    parts, methods = [], {"method": uncertainties.columns, "auroc": np.nan}
    for threshold in thresholds:
        judged = replace(evaluation, answers=evaluation.answers.assign(correct=rouge_l > threshold))
        table = pd.DataFrame({"threshold": threshold, **methods, "accuracy": judged.correct.mean()})
        where = f" at ROUGE-L threshold {threshold}"
        parts.append(_with_aurocs(table, uncertainties, judged, where))
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


@_of_one_or_several
def alpha_choices(splits: Splits, *, default: float) -> pd.DataFrame:
    """AUROC of PRO at the α chosen on validation, at the default, and at the one best on the reported split.

    Columns: kind (selected, default; oracle on the reported split only), alpha, auroc, low, high.
    """
    alphas, kinds = list(_alphas(splits, default).values()), ["selected", "default", "oracle"]
    parts = alpha_sweep(splits.validation, alphas=alphas[:2]), alpha_sweep(splits.reported, alphas=alphas)
    table = pd.concat(parts).assign(kind=[*kinds[:2], *kinds])
    return table[[*splits.labels(), "kind", "alpha", "auroc", "low", "high"]]


@_of_one_or_several
def benchmark(
    splits: Splits, *, default: float = DEFAULT_ALPHA, n_resamples: int = 2000, seed: int = 0
) -> pd.DataFrame:
    """Every method on the reported split: AUROC with its difference to PRO, rejection and calibration.

    `PRO` has its α chosen on validation, `PRO, default` the default, `PRO, oracle` the best on the reported split. The
    last two are PRO again, not methods: Holm's correction does not count them, and they are not called significant.
    Columns: method, alpha, those of `metrics.compared`, prr and auarc (`selective.rejection`), and ece and brier, of
    the probability of being right fitted on validation (`selective.calibration`).
    """
    alphas, reported = _alphas(splits, default), splits.reported
    methods = reported.with_pro(alphas)
    apart = ("PRO, default", "PRO, oracle")
    table = metrics.compared(methods, reported.correct, n_resamples=n_resamples, seed=seed, apart=apart)
    table = table.merge(selective.rejection(methods, reported.correct), on="method", validate="1:1")
    table.insert(1, "alpha", table["method"].map(alphas))
    fits = {} if splits.validation.one_class() else _calibrations(splits, alphas, methods)
    for name in ("ece", "brier"):  # nothing can be fitted on one class; `select_alpha` has said so
        table[name] = [getattr(fits.get(method), name, np.nan) for method in methods]
    return table


@_of_one_or_several
def by_strategy(splits: Splits, *, default: float = DEFAULT_ALPHA) -> pd.DataFrame:
    """AUROC of every method when each question is judged by one strategy's own most probable answer.

    Columns: judged (each strategy compared, or `most probable`, as in `benchmark`), accuracy, method, alpha, auroc.
    """
    strategies = [name.removeprefix("correct_") for name in splits.reported.answers if name.startswith("correct_")]
    parts = []
    for judged in (None, *strategies):
        each = splits if judged is None else splits.by(judged)
        alphas = _alphas(each, default)
        methods, correct = each.reported.with_pro(alphas), each.reported.correct
        columns = {"judged": judged or "most probable", "accuracy": correct.mean(), "method": methods.columns}
        table = pd.DataFrame(columns | {"alpha": methods.columns.map(alphas.get)})
        parts.append(labelled(table.assign(auroc=metrics.auroc_columns(methods, correct)), each))
    return pd.concat(parts)


@_of_one_or_several
def redraw_benchmark(splits: Splits, *, n_redraws: int = 200, seed: int = 0) -> pd.DataFrame:
    """PRO's AUROC on the reported split for α chosen on many redraws of the validation questions.

    Each redraw takes as many questions of the pool as α is chosen on, without replacement, and again if they are all
    right or all wrong. Where the pool has no more than that, or one class, nothing can be redrawn: one row of NaN, and
    a warning. Columns: redraw, alpha, auroc (on the reported split), better_than_nll (there; 1 or 0).
    """
    pool, n_questions = splits.pool, len(splits.validation.correct)
    why = pool.one_class() or ("" if n_questions < len(pool.correct) else f"α is chosen on all {n_questions} there are")
    if why:
        where = f"{pool.dataset}, {pool.model}: the validation questions cannot be redrawn"
        warnings.warn(f"{where} ({why}), so how much α moves is not known", UserWarning, stacklevel=3)
        return pd.DataFrame({"redraw": [0]} | dict.fromkeys(("alpha", "auroc", "better_than_nll"), np.nan))
    table = pd.DataFrame({"alpha": _redrawn_alphas(pool, n_questions, n_redraws, seed)}).rename_axis("redraw")
    swept = alpha_sweep(splits.reported, alphas=table["alpha"].unique()).set_index("alpha")["auroc"]
    nll = metrics.auroc(splits.reported.baselines["NLL"], splits.reported.correct)
    table["auroc"] = table["alpha"].map(swept)
    return table.assign(better_than_nll=(table["auroc"] > nll).astype(float)).reset_index()


def spread(redraws: pd.DataFrame, column: str) -> pd.DataFrame:
    """What a column of `redraw_benchmark` spans: min, 25%, 50%, 75%, max and better_than_nll, its mean, by setting."""
    by_setting = redraws.groupby(["dataset", "model"], sort=False)
    quartiles = by_setting[column].describe()[["min", "25%", "50%", "75%", "max"]]
    return quartiles.join(by_setting["better_than_nll"].mean()).reset_index()


@_of_one_or_several
def accuracy_coverage(splits: Splits, *, methods: Sequence[str] | None = None, n_points: int = 101) -> pd.DataFrame:
    """Accuracy among the questions answered when the most uncertain are not, at `n_points` coverages from 2 % to 1.

    Below 2 % the curve is that of a few questions. PRO's α is chosen on validation. Beside the methods stands `oracle`,
    which answers right answers first. `low` and `high` are pointwise 95 % Wilson intervals of the accuracy among the
    n_answered questions (Wilson 1927), NaN for the oracle, which has seen the labels. All methods have the same
    questions, so that two of them may differ significantly though their intervals overlap. Of `methods` (None for all)
    those that the setting lacks are left out. Columns: method, n_answered, coverage, threshold, accuracy, low, high.
    """
    correct, uncertainties = splits.reported.correct, splits.reported.with_pro({"PRO": select_alpha(splits.validation)})
    uncertainties = uncertainties.filter(items=methods or list(uncertainties)).assign(oracle=(~correct).astype(float))
    n = len(correct)
    at = np.unique(np.linspace(np.ceil(0.02 * n) - 1, n - 1, n_points).round().astype(int))
    curves = {name: selective.accuracy_coverage(of, correct).iloc[at] for name, of in uncertainties.items()}
    table = pd.concat(curves, names=["method", "row"]).reset_index().drop(columns="row")
    table["low"], table["high"] = intervals.wilson(table["accuracy"], table["n_answered"])
    table.loc[table["method"] == "oracle", ["low", "high"]] = np.nan
    return table


@_of_one_or_several
def reliability(splits: Splits, *, methods: Sequence[str]) -> pd.DataFrame:
    """Reliability, method by method: confidence fitted on validation against accuracy on the reported split.

    Columns: method, ece, brier, and those of `selective.Calibration.table`. No rows, and a `OneClassWarning`, where the
    validation questions have one class, so that nothing can be fitted.
    """
    alphas = {"PRO": select_alpha(splits.validation)}
    if splits.validation.one_class():
        return pd.DataFrame(columns=["method", "ece", "brier"])
    tables = {(name, fit.ece, fit.brier): fit.table for name, fit in _calibrations(splits, alphas, methods).items()}
    return pd.concat(tables, names=["method", "ece", "brier", "bin"]).reset_index().drop(columns="bin")


def labelled(table: pd.DataFrame, setting: Evaluation | Splits) -> pd.DataFrame:
    """The table with the labels of a setting in front, but for those it has."""
    labels = {name: label for name, label in setting.labels().items() if name not in table}
    return table.assign(**labels)[[*labels, *table.columns]]


def _alphas(splits: Splits, default: float) -> dict[str, float]:
    """The α that tables compare: chosen on validation, the default, and the best on what is reported."""
    chosen, best = select_alpha(splits.validation), select_alpha(splits.reported)
    return {"PRO": chosen, "PRO, default": default, "PRO, oracle": best}


def _by_alpha(evaluation: Evaluation, alphas: Alphas = None, score: AlphaScore | None = None) -> tuple[Floats, Floats]:
    """The αs (A,) and the score at each of them (n, A)."""
    alphas = alpha_grid(evaluation.search_alpha) if alphas is None else np.array(alphas)
    score = score or functools.partial(scores.pro, search_alpha=evaluation.search_alpha)
    return alphas, score(evaluation.log_probs, alpha=alphas)


def _redrawn_alphas(pool: Evaluation, n_questions: int, n_redraws: int, seed: int) -> list[float]:
    correct, rng = pool.correct, np.random.default_rng(seed)
    if n_questions < 2:
        raise ValueError(f"n_validation must be at least 2 for redraws, not {n_questions}")
    grid, uncertainty = _by_alpha(pool)
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


def _calibrations(splits: Splits, alphas: dict[str, float], methods: Iterable[str]) -> dict[str, selective.Calibration]:
    (fitted_on, right), (scored, is_right) = (
        (each.with_pro(alphas), each.correct) for each in (splits.validation, splits.reported)
    )
    return {name: selective.calibration(fitted_on[name], right, scored[name], is_right) for name in methods}


def _with_aurocs(table: pd.DataFrame, uncertainty: ArrayLike, evaluation: Evaluation, where: str = "") -> pd.DataFrame:
    """The table with the AUROC of an uncertainty's columns, row by row, and its interval."""
    if one_class := evaluation.one_class():
        warnings.warn(f"{one_class}{where}, so that AUROC is NaN", OneClassWarning, stacklevel=4)
        return table.assign(low=np.nan, high=np.nan)
    aurocs, low, high = metrics.auroc_intervals(uncertainty, evaluation.correct)
    return table.assign(auroc=aurocs, low=low, high=high)
