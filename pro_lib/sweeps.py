"""AUROC as α, K or the ROUGE-L threshold varies, and the choice of α; knows no files, models or figures.

`log_probs` (n, N) is as in `scores`, `correct` (n,) boolean as in `metrics`. `alphas=None` is `ALPHA_GRID`, or the
part of it that an exact search reaches (see `scores`). Every question needs an answer:
the caller excludes the others (see `metrics.usable`). With `n_resamples` above 0 the tables gain `low` and
`high`, pointwise stratified-bootstrap intervals. A sweep emits at most one `scores.PremiseWarning`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from pro_lib import metrics, scores

DEFAULT_ALPHA = 0.4  # what the paper recommends without validation data
# Steps of 0.05, and finer ones near 0 for a logarithmic axis.
ALPHA_GRID = tuple(
    sorted({step / 20 for step in range(21)} | {0.001, 0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.04})
)
# (log_probs, alpha=) -> uncertainty (n,) or (n, A)
AlphaScore = Callable[..., NDArray[np.float64]]


class OneClassWarning(UserWarning):
    """At some point of a sweep all answers are right, or all wrong, so its AUROC is NaN."""


def alpha_sweep(
    log_probs: ArrayLike,
    correct: ArrayLike,
    *,
    alphas: Iterable[float] | None = None,
    n_resamples: int = 0,
    level: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """AUROC of PRO at each α. Columns: `alpha, auroc, mean_kept` (mean K), and `low, high` on request."""
    alphas, uncertainty = _by_alpha(log_probs, alphas, scores.pro)
    table = pd.DataFrame({"alpha": alphas, "auroc": metrics.auroc_columns(uncertainty, correct)})
    table["mean_kept"] = scores.kept(log_probs, alphas).mean(axis=0)
    return _with_interval(table, uncertainty, correct, n_resamples, level, seed)


def kept_sweep(log_probs: ArrayLike, *, alphas: Iterable[float] | None = None, level: float = 0.95) -> pd.DataFrame:
    """Mean K, the number of answers kept, at each α, with the normal interval of a mean over questions.

    Columns: `alpha, mean_kept, low, high`.
    """
    alphas = alpha_grid(log_probs) if alphas is None else np.array(list(alphas), dtype=np.float64)
    _answer_counts(log_probs)
    counts = scores.kept(log_probs, alphas)
    half_width = stats.norm.ppf((1 + level) / 2) * counts.std(axis=0, ddof=1) / np.sqrt(len(counts))
    mean = counts.mean(axis=0)
    return pd.DataFrame({"alpha": alphas, "mean_kept": mean, "low": mean - half_width, "high": mean + half_width})


def alpha_grid(log_probs: ArrayLike) -> NDArray[np.float64]:
    """`ALPHA_GRID`, from the `search_alpha` on where the answers are those of an exact search; that α included."""
    search_alpha = getattr(log_probs, "search_alpha", None)
    if search_alpha is None:
        return np.array(ALPHA_GRID)
    return np.unique([search_alpha, *(alpha for alpha in ALPHA_GRID if alpha > search_alpha)])


def select_alpha(
    log_probs: ArrayLike,
    correct: ArrayLike,
    *,
    alphas: Iterable[float] | None = None,
    score: AlphaScore = scores.pro,
) -> float:
    """The α with the best AUROC of `score`, as in `scores.pro`, on these (validation) questions.

    Ties go to the α nearest 0.4, and of two equally near to the smaller.
    """
    alphas, uncertainty = _by_alpha(log_probs, alphas, score)
    return float(alphas[_best(alphas, metrics.auroc_columns(uncertainty, correct))])


def redraw_alpha(
    log_probs: ArrayLike,
    correct: ArrayLike,
    *,
    n_questions: int = 100,
    n_redraws: int = 200,
    seed: int = 0,
    alphas: Iterable[float] | None = None,
) -> pd.DataFrame:
    """How much `select_alpha` moves with the validation questions. Columns: `redraw, alpha, auroc`.

    Each redraw takes `n_questions` of the questions without replacement, and again if they are all right or
    all wrong; `auroc` is that of the chosen α on the questions drawn. Raises `metrics.OneClassError` if no
    draw could have both, `ValueError` unless 2 <= n_questions <= n.
    """
    alphas, uncertainty = _by_alpha(log_probs, alphas, scores.pro)
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
    uncertainty = scores.pro_at_k(log_probs, ks)
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


def _by_alpha(log_probs: ArrayLike, alphas: Iterable[float] | None, score: AlphaScore) -> tuple[NDArray, NDArray]:
    _answer_counts(log_probs)
    alphas = alpha_grid(log_probs) if alphas is None else np.array(list(alphas), dtype=np.float64)
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
