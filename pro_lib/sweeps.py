"""AUROC as α, K or the ROUGE-L threshold varies, and the protocol: α chosen on validation, methods reported on test.

It knows arrays, and tables of judged answers; it does not know files, models, texts or figures. `log_probs` (n, N) is
as in `scores`, `correct` (n,) boolean as in `metrics`. `alphas=None` is `ALPHA_GRID`, or the part of it that an exact
search reaches (see `scores`). Every question needs an answer: the caller excludes the others (see `metrics.usable`).
With `n_resamples` above 0 the tables gain `low` and `high`, pointwise stratified-bootstrap intervals. A sweep emits at
most one `scores.PremiseWarning`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from pro_lib import metrics, scores
from pro_lib.evaluation import AlphaScore, Evaluation, Searched

DEFAULT_ALPHA = 0.4  # what the paper recommends without validation data
# Steps of 0.05, and finer ones near 0 for a logarithmic axis.
ALPHA_GRID = tuple(
    sorted({step / 20 for step in range(21)} | {0.001, 0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.04})
)
_PRO_NAMES = {"selected": "PRO", "default": "PRO, default", "oracle": "PRO, oracle"}


class OneClassWarning(UserWarning):
    """All answers are right, or all wrong, so that an AUROC is NaN or α cannot be chosen."""


def alpha_sweep(
    log_probs: ArrayLike,
    correct: ArrayLike,
    *,
    alphas: Iterable[float] | None = None,
    search_alpha: float | None = None,
    n_resamples: int = 0,
    level: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """AUROC of PRO at each α. Columns: `alpha, auroc, mean_kept` (mean K), and `low, high` on request.

    Where all answers are right, or all wrong, AUROC and interval are NaN, and a `OneClassWarning` says so.
    """
    alphas, uncertainty = _by_alpha(log_probs, alphas, partial(scores.pro, search_alpha=search_alpha), search_alpha)
    table = pd.DataFrame(
        {
            "alpha": alphas,
            "auroc": np.nan,
            "mean_kept": scores.adaptive_k(log_probs, alphas, search_alpha=search_alpha).mean(axis=0),
        }
    )
    try:
        table["auroc"] = metrics.auroc_columns(uncertainty, correct)
    except metrics.OneClassError as error:
        warnings.warn(str(error), OneClassWarning, stacklevel=2)
        return table.assign(low=np.nan, high=np.nan) if n_resamples else table
    return _with_interval(table, uncertainty, correct, n_resamples, level, seed)


def kept_sweep(
    log_probs: ArrayLike,
    *,
    alphas: Iterable[float] | None = None,
    search_alpha: float | None = None,
    level: float = 0.95,
) -> pd.DataFrame:
    """Mean K, the number of answers kept, at each α, with the normal interval of a mean over questions.

    Columns: `alpha, mean_kept, low, high`.
    """
    alphas = alpha_grid(search_alpha) if alphas is None else np.array(list(alphas), dtype=np.float64)
    _answer_counts(log_probs)
    counts = scores.adaptive_k(log_probs, alphas, search_alpha=search_alpha)
    half_width = stats.norm.ppf((1 + level) / 2) * counts.std(axis=0, ddof=1) / np.sqrt(len(counts))
    mean = counts.mean(axis=0)
    return pd.DataFrame({"alpha": alphas, "mean_kept": mean, "low": mean - half_width, "high": mean + half_width})


def alpha_grid(search_alpha: float | None = None) -> NDArray[np.float64]:
    """`ALPHA_GRID`, from the `search_alpha` on where the answers are those of an exact search; that α included."""
    if search_alpha is None:
        return np.array(ALPHA_GRID)
    return np.unique([search_alpha, *(alpha for alpha in ALPHA_GRID if alpha > search_alpha)])


def select_alpha(
    log_probs: ArrayLike,
    correct: ArrayLike,
    *,
    alphas: Iterable[float] | None = None,
    search_alpha: float | None = None,
    score: AlphaScore | None = None,
) -> float:
    """The α with the best AUROC of `score`, as in `scores.pro`, on these (validation) questions.

    Ties go to the α nearest 0.4, and of two equally near to the smaller.
    """
    score = score or partial(scores.pro, search_alpha=search_alpha)
    alphas, uncertainty = _by_alpha(log_probs, alphas, score, search_alpha)
    return float(alphas[_best(alphas, metrics.auroc_columns(uncertainty, correct))])


def chosen_alpha(validation: Evaluation) -> float:
    """`select_alpha` on judged validation questions; the default, with a `OneClassWarning`, where it cannot choose."""
    try:
        return select_alpha(validation.log_probs, validation.correct, search_alpha=validation.search_alpha)
    except metrics.OneClassError:
        warnings.warn(
            f"{validation.one_class()}: alpha cannot be chosen there, the default {DEFAULT_ALPHA} is taken",
            OneClassWarning,
            stacklevel=2,
        )
        return DEFAULT_ALPHA


def redraw_alpha(
    log_probs: ArrayLike,
    correct: ArrayLike,
    *,
    n_questions: int = 100,
    n_redraws: int = 200,
    seed: int = 0,
    alphas: Iterable[float] | None = None,
    search_alpha: float | None = None,
) -> pd.DataFrame:
    """How much `select_alpha` moves with the validation questions. Columns: `redraw, alpha, auroc`.

    Each redraw takes `n_questions` of the questions without replacement, and again if they are all right or
    all wrong; `auroc` is that of the chosen α on the questions drawn. Raises `metrics.OneClassError` if no
    draw could have both, `ValueError` unless 2 <= n_questions <= n.
    """
    alphas, uncertainty = _by_alpha(log_probs, alphas, partial(scores.pro, search_alpha=search_alpha), search_alpha)
    metrics.auroc_columns(uncertainty[:, :1], correct)  # raises unless both classes are there to be drawn
    correct = np.asarray(correct)
    if not 2 <= n_questions <= len(correct):
        raise ValueError(f"n_questions must lie in [2, {len(correct)}], the questions there are, not {n_questions}")
    rng = np.random.default_rng(seed)
    rows = []
    for redraw in range(n_redraws):
        drawn = _draw_both_classes(rng, correct, n_questions)
        aurocs = metrics.auroc_columns(uncertainty[drawn], correct[drawn])
        best = _best(alphas, aurocs)
        rows.append((redraw, alphas[best], aurocs[best]))
    return pd.DataFrame(rows, columns=["redraw", "alpha", "auroc"])


def fixed_k_sweep(
    log_probs: ArrayLike,
    correct: ArrayLike,
    *,
    max_k: int | None = None,
    search_alpha: float | None = None,
    n_resamples: int = 0,
    level: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """AUROC of PRO_K for K = 1 … `max_k` (default: the most answers a question has). Columns: `k, auroc`.

    A question with fewer than K answers uses all it has. `low` and `high` on request.
    """
    n_answers = _answer_counts(log_probs)
    if max_k is not None and max_k < 1:
        raise ValueError(f"max_k must be at least 1, not {max_k}")
    ks = np.arange(1, (max_k or n_answers.max(initial=1)) + 1)
    uncertainty = scores.pro_at_k(log_probs, ks, search_alpha=search_alpha)
    table = pd.DataFrame({"k": ks, "auroc": metrics.auroc_columns(uncertainty, correct)})
    return _with_interval(table, uncertainty, correct, n_resamples, level, seed)


def rouge_threshold_sweep(
    uncertainties: pd.DataFrame,
    rouge_l: ArrayLike,
    *,
    thresholds: Iterable[float] = (0.1, 0.2, 0.3, 0.4, 0.5),
    n_resamples: int = 0,
    level: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """AUROC of every method as the bar for a right answer, `rouge_l > threshold`, moves.

    `uncertainties` has a row per question and a column per method, `rouge_l` is (n,). Columns: `threshold,
    method, auroc, accuracy`, and `low, high` on request. Where all answers are right, or all wrong, AUROC and
    interval are NaN and a `OneClassWarning` names the thresholds.
    """
    rouge_l = np.asarray(rouge_l, dtype=np.float64)
    if np.isnan(rouge_l).any():
        raise ValueError(f"rouge_l is NaN in {np.isnan(rouge_l).sum()} rows, first in row {np.isnan(rouge_l).argmax()}")
    parts, one_class = [], []
    for threshold in thresholds:
        correct = rouge_l > threshold
        table = pd.DataFrame({"threshold": threshold, "method": uncertainties.columns, "auroc": np.nan})
        table["accuracy"] = correct.mean()
        try:
            table["auroc"] = metrics.auroc_columns(uncertainties, correct)
            table = _with_interval(table, uncertainties, correct, n_resamples, level, seed)
        except metrics.OneClassError:
            one_class.append(threshold)
            if n_resamples:
                table = table.assign(low=np.nan, high=np.nan)
        parts.append(table)
    if one_class:
        warnings.warn(
            f"at ROUGE-L threshold {', '.join(map(str, one_class))} all {len(rouge_l)} answers are right, "
            f"or all are wrong, so AUROC is NaN there",
            OneClassWarning,
            stacklevel=2,
        )
    return pd.concat(parts, ignore_index=True)


def search_benchmark(validation: Searched, reported: Searched, *, seed: int = 0) -> pd.DataFrame:
    """AUROC of the scores on exact sets and of PRO on beams, each with its α chosen on validation.

    All look at the same grid, from the search's α on. NLL and ALL are those of the search's most probable answer.
    Columns as in `benchmark`, differences to `PRO, exact`.
    """
    grid = alpha_grid(validation.judged.search_alpha)
    chosen, uncertainties = {}, {}
    on_reported = reported.alpha_scores()
    for name, (array, score) in validation.alpha_scores().items():
        chosen[name] = select_alpha(array, validation.judged.correct, alphas=grid, score=score)
        array, score = on_reported[name]
        uncertainties[name] = score(array, alpha=chosen[name])
    methods = pd.DataFrame(uncertainties).join(reported.judged.baselines[["NLL", "ALL"]])
    table = metrics.bootstrap_auroc(methods, reported.judged.correct, reference="PRO, exact", seed=seed)
    return _labelled(table, chosen, reported.judged)


def _alphas(validation: Evaluation, reported: Evaluation, default: float) -> dict[str, float]:
    """The α that tables compare, by kind."""
    return {
        "selected": chosen_alpha(validation),
        "default": default,
        "oracle": select_alpha(reported.log_probs, reported.correct, search_alpha=reported.search_alpha),
    }


def alpha_choices(validation: Evaluation, reported: Evaluation, *, default: float, seed: int = 0) -> pd.DataFrame:
    """AUROC of PRO at the α chosen on validation, at the default, and at the one best on the reported split.

    Columns: dataset, model, split, n_questions, kind (selected, default; oracle on the reported split only), alpha,
    auroc, low, high.
    """
    alphas = _alphas(validation, reported, default)
    rows = []
    for judged, kinds in ((validation, ("selected", "default")), (reported, tuple(alphas))):
        chosen = [alphas[kind] for kind in kinds]
        table = alpha_sweep(
            judged.log_probs,
            judged.correct,
            alphas=chosen,
            search_alpha=judged.search_alpha,
            n_resamples=1000,
            seed=seed,
        )
        rows.append(table.assign(kind=kinds, **judged.labels()))
    return pd.concat(rows)[[*reported.labels(), "kind", "alpha", "auroc", "low", "high"]]


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

    Columns: dataset, model, split, n_questions, method, alpha, those of `metrics.compared` (auroc, low, high,
    difference to PRO with its interval, p_value, p_holm, significant), prr and auarc (`metrics.rejection`), and ece and
    brier, of the probability of being right fitted on validation (`metrics.calibration`).
    """
    alphas = {_PRO_NAMES[kind]: alpha for kind, alpha in _alphas(validation, reported, default).items()}
    methods, fitted_on = (judged.with_pro(alphas) for judged in (reported, validation))
    table = metrics.compared(
        methods, reported.correct, n_resamples=n_resamples, seed=seed, apart=("PRO, default", "PRO, oracle")
    )
    table = table.merge(metrics.rejection(methods, reported.correct), on="method", validate="1:1")
    if validation.one_class():  # nothing can be fitted there; `chosen_alpha` has said so
        return _labelled(table.assign(ece=np.nan, brier=np.nan), alphas, reported)
    fits = [
        metrics.calibration(fitted_on[name], validation.correct, methods[name], reported.correct)
        for name in methods.columns
    ]
    table = table.assign(ece=[fit.ece for fit in fits], brier=[fit.brier for fit in fits])
    return _labelled(table, alphas, reported)


def by_strategy(
    validation: Evaluation,
    reported: Evaluation,
    *,
    default: float = DEFAULT_ALPHA,
    strategies: Sequence[str] | None = None,
) -> pd.DataFrame:
    """AUROC of every method when each question is judged by one strategy's own most probable answer.

    `strategies` is None for all that were compared. Columns: dataset, model, split, n_questions, judged (the
    strategy, or `most probable`, as in `benchmark`), accuracy, method, alpha, auroc.
    """
    found = [name.removeprefix("correct_") for name in reported.answers if name.startswith("correct_")]
    parts = []
    for strategy in (None, *(strategies or found)):
        pair = (validation, reported) if strategy is None else (validation.by(strategy), reported.by(strategy))
        alphas = {_PRO_NAMES[kind]: alpha for kind, alpha in _alphas(*pair, default).items()}
        methods = pair[1].with_pro(alphas)
        table = pd.DataFrame({"judged": strategy or "most probable", "accuracy": pair[1].correct.mean()}, index=[0])
        aurocs = metrics.auroc_columns(methods, pair[1].correct)
        table = table.merge(pd.DataFrame({"method": methods.columns, "auroc": aurocs}), how="cross")
        parts.append(_labelled(table, alphas, pair[1]))
    return pd.concat(parts, ignore_index=True)


def redraw_benchmark(
    everything: Evaluation, reported: Evaluation, *, n_questions: int = 100, n_redraws: int = 200, seed: int = 0
) -> pd.DataFrame:
    """PRO's AUROC on the reported split for α chosen on many redraws of the validation questions.

    `everything` is the whole validation split; where it has one class, there is one row, of the default. Else a row
    per redraw. Columns: dataset, model, split, redraw, alpha, auroc (on the reported split), difference (minus NLL's
    there).
    """
    if everything.one_class():
        redraws = pd.DataFrame({"redraw": [0], "alpha": [DEFAULT_ALPHA]})
    else:
        options = {"n_questions": n_questions, "n_redraws": n_redraws, "seed": seed}
        options |= {"search_alpha": everything.search_alpha}
        redraws = redraw_alpha(everything.log_probs, everything.correct, **options)
    alphas = np.unique(redraws["alpha"])
    aurocs = metrics.auroc_columns(
        scores.pro(reported.log_probs, alpha=alphas, search_alpha=reported.search_alpha), reported.correct
    )
    on_reported = redraws["alpha"].map(dict(zip(alphas, aurocs, strict=True)))
    nll = metrics.auroc(reported.baselines["NLL"], reported.correct)
    labels = {name: value for name, value in reported.labels().items() if name != "n_questions"}
    table = pd.DataFrame({"redraw": redraws["redraw"], "alpha": redraws["alpha"], "auroc": on_reported})
    return table.assign(**labels, difference=on_reported - nll)[[*labels, "redraw", "alpha", "auroc", "difference"]]


def accuracy_coverage(
    validation: Evaluation, reported: Evaluation, *, methods: Sequence[str] | None = None, n_points: int = 101
) -> pd.DataFrame:
    """Accuracy among the questions answered when the most uncertain are not, at `n_points` coverages from 2 % to 1.

    Below 2 % the curve is that of a few questions. PRO's α is chosen on validation. Beside the methods stands `oracle`,
    which answers right answers first. `low` and `high` are pointwise 95 % Wilson intervals of the accuracy among the
    n_answered questions (Wilson 1927), NaN for the oracle, which has seen the labels. All methods have the same
    questions, so that two of them may differ significantly though their intervals overlap.
    Columns: dataset, model, split, n_questions, method, n_answered, coverage, threshold, accuracy, low, high.
    """
    chosen = {"PRO": chosen_alpha(validation)}
    uncertainties = reported.with_pro(chosen)
    uncertainties = uncertainties[list(methods)] if methods is not None else uncertainties
    uncertainties = uncertainties.assign(oracle=(~reported.correct).astype(float))
    n = len(uncertainties)
    at = np.unique(np.linspace(np.ceil(0.02 * n) - 1, n - 1, n_points).round().astype(int))
    curves = {
        name: metrics.accuracy_coverage(column, reported.correct).iloc[at] for name, column in uncertainties.items()
    }
    table = pd.concat(curves, names=["method"]).reset_index(level=0)
    low, high = metrics.wilson_interval(table["accuracy"], table["n_answered"])
    is_oracle = table["method"] == "oracle"
    table = table.assign(low=np.where(is_oracle, np.nan, low), high=np.where(is_oracle, np.nan, high))
    return table.assign(**reported.labels())[[*reported.labels(), *table.columns]].reset_index(drop=True)


def reliability(validation: Evaluation, reported: Evaluation, *, methods: Sequence[str] | None = None) -> pd.DataFrame:
    """Reliability, method by method: confidence fitted on validation against accuracy on the reported split.

    Columns: dataset, model, split, n_questions, method, ece, brier, and those of `metrics.Calibration.table`.
    """
    if validation.one_class():
        raise metrics.OneClassError(f"{validation.one_class()}: no probability can be fitted on them")
    chosen = {"PRO": chosen_alpha(validation)}
    fitted_on, uncertainties = (judged.with_pro(chosen) for judged in (validation, reported))
    parts = []
    for name in methods if methods is not None else uncertainties.columns:
        fit = metrics.calibration(fitted_on[name], validation.correct, uncertainties[name], reported.correct)
        parts.append(fit.table.assign(method=name, ece=fit.ece, brier=fit.brier, **reported.labels()))
    table = pd.concat(parts, ignore_index=True)
    first = [*reported.labels(), "method", "ece", "brier"]
    return table[[*first, *(name for name in table if name not in first)]]


def _labelled(table: pd.DataFrame, alphas: dict[str, float], reported: Evaluation) -> pd.DataFrame:
    """The methods' table with their α and, in front, what setting it is of."""
    table.insert(table.columns.get_loc("method") + 1, "alpha", table["method"].map(alphas))
    labels = pd.DataFrame([reported.labels()] * len(table))
    return pd.concat([labels, table], axis=1)


def _by_alpha(
    log_probs: ArrayLike, alphas: Iterable[float] | None, score: AlphaScore, search_alpha: float | None
) -> tuple[NDArray, NDArray]:
    _answer_counts(log_probs)
    alphas = alpha_grid(search_alpha) if alphas is None else np.array(list(alphas), dtype=np.float64)
    if not alphas.size:
        raise ValueError("alphas is empty: a sweep needs at least one alpha")
    return alphas, score(log_probs, alpha=alphas)


def _answer_counts(log_probs: ArrayLike) -> NDArray[np.int64]:
    n_answers = (~np.isnan(np.asarray(log_probs, dtype=np.float64))).sum(axis=1)
    empty = n_answers == 0
    if empty.any():
        raise ValueError(
            f"log_probs has {empty.sum()} of {len(empty)} rows without any answer, first in row "
            f"{empty.argmax()}; exclude them (and count them) before the sweep"
        )
    return n_answers


def _best(alphas: NDArray[np.float64], aurocs: NDArray[np.float64]) -> int:
    """Index of the best AUROC; equal AUROCs are exactly equal, being counts of pairs over the same number."""
    distance = np.round(np.abs(alphas - DEFAULT_ALPHA), 12)  # 0.35 and 0.45 are equally far, rounding aside
    return int(np.lexsort((alphas, distance, -aurocs))[0])


def _draw_both_classes(rng: np.random.Generator, correct: NDArray[np.bool_], size: int) -> NDArray[np.int64]:
    while True:
        drawn = rng.choice(len(correct), size=size, replace=False)
        if correct[drawn].any() and not correct[drawn].all():
            return drawn


def _with_interval(
    table: pd.DataFrame, uncertainty: ArrayLike, correct: ArrayLike, n_resamples: int, level: float, seed: int
) -> pd.DataFrame:
    if not n_resamples:
        return table
    resampled = metrics.resampled_aurocs(uncertainty, correct, n_resamples=n_resamples, seed=seed)
    low, high = metrics.interval(resampled, level)
    return table.assign(low=low, high=high)
