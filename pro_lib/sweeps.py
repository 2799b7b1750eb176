"""AUROC as α, K or the ROUGE-L threshold varies, and the protocol: α chosen on validation, methods reported on test.

It knows evaluations; it does not know files, models, texts or figures. Every table is of one setting or several, and
rows begin with their labels: dataset, model, protocol, split, n_questions. `alpha_sweep`, `k_sweep` take evaluations;
what needs an α takes `Splits`, chooses it on their validation questions and reports on the others. `low` and `high`
are pointwise 95 % intervals (`metrics.auroc_intervals`). Where all answers are right, or all wrong, AUROC and interval
are NaN, and a `OneClassWarning` says so. `alphas=None` chooses from `ALPHA_GRID`.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from pro_lib import intervals, metrics, scores, selective
from pro_lib.evaluation import Evaluation, Splits
from pro_lib.protocols import DRAWN_ALPHAS, alpha_grid

Floats = NDArray[np.float64]
Alphas = Sequence[float] | None
AlphaScore = Callable[..., Floats]  # (log_probs, alpha=) -> uncertainty (n,) or (n, A)
DEFAULT_ALPHA = 0.4  # what the paper recommends without validation data


class OneClassWarning(UserWarning):
    """All answers are right, or all wrong, so that an AUROC is NaN or α cannot be chosen."""


def _of_one_or_several(sweep: Callable[..., pd.DataFrame]) -> Callable[..., pd.DataFrame]:
    @functools.wraps(sweep)
    def swept(settings: Evaluation | Splits | Iterable[Evaluation | Splits], **options: object) -> pd.DataFrame:
        several = [settings] if isinstance(settings, Evaluation | Splits) else list(settings)
        tables = map(functools.partial(sweep, **options), several)  # no frame of its own: warnings point at the caller
        with warnings.catch_warnings():
            if not all(getattr(each, "reported", each).distinct for each in several):  # `Evaluation.sentence` says it
                warnings.simplefilter("ignore", scores.PremiseWarning)
            return pd.concat(list(map(labelled, tables, several)), ignore_index=True)

    return swept


@_of_one_or_several
def alpha_sweep(evaluation: Evaluation, *, alphas: Alphas = None) -> pd.DataFrame:
    """AUROC of PRO at each α, by default `DRAWN_ALPHAS`. Columns: `alpha, auroc, mean_kept` (mean K), `low, high`."""
    alphas = alpha_grid(evaluation.search_alpha, of=DRAWN_ALPHAS) if alphas is None else np.array(alphas)
    uncertainty = scores.pro(evaluation.log_probs, alpha=alphas, search_alpha=evaluation.search_alpha)
    mean_kept = scores.adaptive_k(evaluation.log_probs, alphas).mean(axis=0)
    table = pd.DataFrame({"alpha": alphas, "auroc": np.nan, "mean_kept": mean_kept})
    return _with_aurocs(table, uncertainty, evaluation)


@_of_one_or_several
def k_sweep(evaluation: Evaluation, *, alphas: Alphas = None) -> pd.DataFrame:
    """Mean K, the number of answers kept, at each α, with the normal 95 % interval of a mean over questions.

    Columns: `alpha, mean_kept, low, high`.
    """
    alphas = alpha_grid(evaluation.search_alpha, of=DRAWN_ALPHAS) if alphas is None else np.array(alphas)
    counts = scores.adaptive_k(evaluation.log_probs, alphas, search_alpha=evaluation.search_alpha)
    if (empty := (counts == 0).any(axis=1)).any():
        raise ValueError(f"{empty.sum()} of {len(empty)} questions have no answer, first in row {empty.argmax()}")
    mean = counts.mean(axis=0)
    low, high = intervals.normal(mean, counts.std(axis=0, ddof=1) / np.sqrt(len(counts)))
    return pd.DataFrame({"alpha": alphas, "mean_kept": mean, "low": low, "high": high})


@_of_one_or_several
def fixed_k_sweep(splits: Splits, *, max_k: int) -> pd.DataFrame:
    """AUROC of PRO_K for K = 1 … `max_k`, and of PRO with its α chosen on validation, whose `k` is `adaptive`.

    A question with fewer than K answers uses all it has. Columns: k, auroc, low, high, alpha, mean_kept.
    """
    reported, table = splits.reported, pd.DataFrame({"k": np.arange(1, max_k + 1), "auroc": np.nan})
    uncertainty = scores.pro_at_k(reported.log_probs, table["k"], search_alpha=reported.search_alpha)
    fixed = _with_aurocs(table, uncertainty, reported)
    chosen = alpha_sweep(reported, alphas=[_chosen(splits)])
    return pd.concat([fixed.astype({"k": object}), chosen.assign(k="adaptive")[[*fixed, "alpha", "mean_kept"]]])


@_of_one_or_several
def rouge_threshold_sweep(splits: Splits, *, thresholds: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5)) -> pd.DataFrame:
    """AUROC of every method as the bar for a right answer, `rouge_l > threshold`, moves; α stays.

    Columns: `threshold, method, auroc, accuracy, difference_low, difference_high` (DeLong's, of AUROC minus NLL's),
    `low, high`.
    """
    evaluation, rouge_l = splits.reported, splits.reported.answers["rouge_l"]
    uncertainties = evaluation.with_pro({"PRO": _chosen(splits)})
    if rouge_l.isna().any():
        raise ValueError(f"rouge_l is NaN in {rouge_l.isna().sum()} rows, first in row {rouge_l.isna().argmax()}")
    parts, methods = [], {"method": uncertainties.columns, "auroc": np.nan}
    for threshold in thresholds:
        judged = replace(evaluation, answers=evaluation.answers.assign(correct=rouge_l > threshold))
        table = pd.DataFrame({"threshold": threshold, **methods, "accuracy": judged.correct.mean()})
        low, high = metrics.differences(uncertainties, judged.correct, reference="NLL").interval()
        table = table.assign(difference_low=low, difference_high=high)
        parts.append(_with_aurocs(table, uncertainties, judged, f" at ROUGE-L threshold {threshold}"))
    return pd.concat(parts)


def select_alpha(validation: Evaluation, *, alphas: Alphas = None, score: AlphaScore | None = None) -> float:
    """The α with the best AUROC of `score(log_probs, alpha=)`, by default `scores.pro`, on validation questions.

    Ties go to the α nearest 0.4, and of two equally near to the smaller. Where all answers are right, or all wrong, it
    is 0.4, and a `OneClassWarning` says so.
    """
    if one_class := validation.one_class():
        said = f"{one_class}: alpha cannot be chosen there, the default {DEFAULT_ALPHA} is taken"
        warnings.warn(said, OneClassWarning, stacklevel=2)
        return DEFAULT_ALPHA
    alphas, uncertainty = _to_choose_from(validation, alphas, score)
    return float(alphas[metrics.auroc_columns(uncertainty, validation.correct).argmax()])


def nearest_first(alphas: Sequence[float]) -> Floats:
    """The different αs in the order in which ties go: the nearer to 0.4 first, of two equally near the smaller."""
    alphas = np.unique(alphas)
    distance = np.round(np.abs(alphas - DEFAULT_ALPHA), 12)  # 0.35 and 0.45 are equally far, rounding aside
    return alphas[np.argsort(distance, kind="stable")]


@_of_one_or_several
def alpha_choices(splits: Splits, *, default: float) -> pd.DataFrame:
    """AUROC of PRO at the α chosen on validation, at the default, and at the one best on the reported split.

    Columns: kind (selected, default; oracle on the reported split only), alpha, auroc, low, high.
    """
    alphas, kinds = list(_alphas(splits, default).values())[:3], ["selected", "default", "oracle"]
    parts = alpha_sweep(splits.validation, alphas=alphas[:2]), alpha_sweep(splits.reported, alphas=alphas)
    table = pd.concat(parts).assign(kind=[*kinds[:2], *kinds])
    return table[[*splits.labels(), "kind", "alpha", "auroc", "low", "high"]]


@_of_one_or_several
def benchmark(
    splits: Splits, *, default: float = DEFAULT_ALPHA, n_resamples: int = 2000, seed: int = 0
) -> pd.DataFrame:
    """Every method on the reported split: AUROC with its difference to PRO, rejection and calibration.

    `PRO` and `S-PRO` have their α chosen on validation, `PRO, default` the default, `PRO, oracle` the best on the
    reported split. These two are PRO again, not methods: Holm's correction does not count them, nothing marks them.
    Columns: method, alpha, those of `metrics.compared`, prr and auarc (`selective.rejection`), and ece and brier, of
    the probability of being right fitted on validation (`selective.calibration`).
    """
    alphas, reported = _alphas(splits, default), splits.reported
    methods = reported.with_pro(alphas)
    table = metrics.compared(methods, reported.correct, n_resamples=n_resamples, seed=seed, apart=list(alphas)[1:3])
    table = table.merge(selective.rejection(methods, reported.correct), on="method", validate="1:1")
    table.insert(1, "alpha", table["method"].map(alphas))
    fits = _calibrations(splits, alphas, methods)
    for name in ("ece", "brier"):
        table[name] = [getattr(fits.get(method), name, np.nan) for method in methods]
    return table


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
    table = pd.DataFrame({"alpha": _redrawn_alphas(splits, n_questions, n_redraws, seed)}).rename_axis("redraw")
    swept = alpha_sweep(splits.reported, alphas=table["alpha"].unique()).set_index("alpha")["auroc"]
    nll = metrics.auroc(splits.reported.baselines["NLL"], splits.reported.correct)
    table["auroc"] = table["alpha"].map(swept)
    return table.assign(better_than_nll=(table["auroc"] > nll).astype(float)).reset_index()


def spread(redraws: pd.DataFrame, column: str) -> pd.DataFrame:
    """What a column of `redraw_benchmark` spans: min, 25%, 50%, 75%, max and better_than_nll, its mean, by setting."""
    by_setting = redraws.groupby(["dataset", "model", "protocol"], sort=False)
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
    correct, uncertainties = splits.reported.correct, splits.reported.with_pro({"PRO": _chosen(splits)})
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
    fits = _calibrations(splits, {"PRO": _chosen(splits)}, methods)
    if not fits:
        return pd.DataFrame(columns=["method", "ece", "brier"])
    tables = {(name, fit.ece, fit.brier): fit.table for name, fit in fits.items()}
    return pd.concat(tables, names=["method", "ece", "brier", "bin"]).reset_index().drop(columns="bin")


def labelled(table: pd.DataFrame, setting: Evaluation | Splits) -> pd.DataFrame:
    """The table with the labels of a setting in front, but for those it has."""
    labels = {name: label for name, label in setting.labels().items() if name not in table}
    return table.assign(**labels)[[*labels, *table.columns]]


def _alphas(splits: Splits, default: float) -> dict[str, float]:
    """The α that tables compare: chosen on validation, the default, and the best on what is reported."""
    best, on = select_alpha(splits.reported, alphas=splits.alphas), splits.validation
    meant = {name: select_alpha(replace(on, log_probs=of), alphas=splits.alphas) for name, of in on.meanings.items()}
    return {"PRO": _chosen(splits), "PRO, default": default, "PRO, oracle": best, **meant}


def _chosen(splits: Splits) -> float:
    return select_alpha(splits.validation, alphas=splits.alphas)


def _to_choose_from(evaluation: Evaluation, alphas: Alphas, score: AlphaScore | None = None) -> tuple[Floats, Floats]:
    """The αs (A,), `nearest_first`, and the score at each (n, A); equal AUROCs are exactly equal, being counts."""
    alphas = nearest_first(alpha_grid(evaluation.search_alpha) if alphas is None else alphas)
    score = score or functools.partial(scores.pro, search_alpha=evaluation.search_alpha)
    return alphas, score(evaluation.log_probs, alpha=alphas)


def _redrawn_alphas(splits: Splits, n_questions: int, n_redraws: int, seed: int) -> list[float]:
    correct, rng = splits.pool.correct, np.random.default_rng(seed)
    if n_questions < 2:
        raise ValueError(f"n_validation must be at least 2 for redraws, not {n_questions}")
    (grid, uncertainty), chosen = _to_choose_from(splits.pool, splits.alphas), []
    while len(chosen) < n_redraws:
        drawn = rng.choice(len(correct), size=n_questions, replace=False)
        if 0 < correct[drawn].sum() < n_questions:
            chosen.append(float(grid[metrics.auroc_columns(uncertainty[drawn], correct[drawn]).argmax()]))
    return chosen


def _calibrations(splits: Splits, alphas: dict[str, float], methods: Iterable[str]) -> dict[str, selective.Calibration]:
    if splits.validation.one_class():  # nothing can be fitted; `select_alpha` has said so
        return {}
    on, reported = splits.validation, splits.reported
    known, asked = on.with_pro(alphas), reported.with_pro(alphas)
    return {name: selective.calibration(known[name], on.correct, asked[name], reported.correct) for name in methods}


def _with_aurocs(table: pd.DataFrame, uncertainty: ArrayLike, evaluation: Evaluation, where: str = "") -> pd.DataFrame:
    """The table with the AUROC of an uncertainty's columns, row by row, and its interval."""
    if one_class := evaluation.one_class():
        warnings.warn(f"{one_class}{where}, so that AUROC is NaN", OneClassWarning, stacklevel=4)
        return table.assign(low=np.nan, high=np.nan)
    aurocs, low, high = metrics.auroc_intervals(uncertainty, evaluation.correct)
    return table.assign(auroc=aurocs, low=low, high=high)
