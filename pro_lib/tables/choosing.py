"""Whether PRO or NLL, and which K or α, chosen on validation questions by a rule; and what that is worth elsewhere."""

import warnings
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from pro_lib import metrics, scores
from pro_lib.evaluation import Evaluation
from pro_lib.protocols import ALPHA_GRID
from pro_lib.sweeps import DEFAULT_ALPHA, labelled, nearest_first

CAUTIONS = {"the rule": 1.0, "no caution": 0.0, "more caution": 1.645}  # standard errors


def candidates(
    log_probs: ArrayLike, *, ks: Sequence[int], alphas: Sequence[float], search_alpha: float | None = None
) -> pd.DataFrame:
    """NLL of answers (n, N), and PRO at each α and each K: a column each, `NLL`, `α = 0.4`, `K = 2`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", scores.PremiseWarning)  # repeats are among what is compared
        by_alpha = scores.pro(log_probs, alpha=np.array(alphas), search_alpha=search_alpha)
        by_k = scores.pro_at_k(log_probs, np.array(ks), search_alpha=search_alpha)
    names = [*(f"α = {alpha:g}" for alpha in alphas), *(f"K = {k}" for k in ks)]
    return pd.DataFrame(np.column_stack([scores.nll(log_probs), by_alpha, by_k]), columns=["NLL", *names])


def choice(scored: pd.DataFrame, correct: ArrayLike, *, caution: float = CAUTIONS["the rule"]) -> str:
    """The rule: the column whose AUROC minus the first's, less `caution` standard errors (DeLong's), is largest.

    That of the first, NLL, is 0: it stays unless another exceeds it by more than so many standard errors of the paired
    difference on these questions (n). Of equal columns the first is taken, and NLL where a class has fewer than two.
    """
    return _best(metrics.differences(scored, correct, reference=scored.columns[0]), scored.columns, caution)


def regret_table(
    evaluations: Iterable[Evaluation],
    *,
    alphas: Sequence[float] | None = None,
    n_validation: int | None = 100,
    n_redraws: int = 200,
    seed: int = 0,
) -> pd.DataFrame:
    """What policies choose from `n_validation` questions, redrawn each time, and what that is worth on all others.

    Candidates are NLL, `alphas` (None: 0, 0.05, …, 1) and 0.4, and K = 2 … N. At most half of the questions are drawn
    (`n_validation` None: half); draws without two right and two wrong ones are passed over. Columns: the labels of each
    setting, policy, took (the share of the redraws that took another than NLL), gain (AUROC minus NLL's; the mean),
    low, high (5 % and 95 % of the redraws), regret (the mean of the best candidate's AUROC minus that of the chosen).
    """
    parts = []
    for each in evaluations:
        n_drawn, rng = min(n_validation or len(each.correct), len(each.correct) // 2), np.random.default_rng(seed)
        if not (redraws := list(_redraw(each, alphas or ALPHA_GRID, n_drawn, n_redraws, rng))):
            said = f"no draw of {n_drawn} questions of {each.dataset}, {each.model} has two right and two wrong answers"
            raise metrics.OneClassError(said)
        by = pd.concat(redraws).groupby("policy", sort=False)
        table = by.mean().assign(low=by["gain"].quantile(0.05), high=by["gain"].quantile(0.95))
        parts.append(labelled(table.reset_index(), each))
    return pd.concat(parts, ignore_index=True)


def _redraw(
    judged: Evaluation, alphas: Sequence[float], n_drawn: int, n_redraws: int, rng: np.random.Generator
) -> Iterable[pd.DataFrame]:
    nearest = nearest_first([*alphas, DEFAULT_ALPHA])  # the first of ties is taken
    found, ks = judged.log_probs, range(2, max(3, judged.log_probs.shape[1] + 1))
    scored = candidates(found, ks=ks, alphas=nearest, search_alpha=judged.search_alpha)
    correct, won = judged.correct, pairs_won(scored, judged.correct)
    for _ in range(n_redraws):
        at = rng.choice(len(scored), n_drawn, replace=False)
        drawn, right = scored.iloc[at], correct[at]
        if 2 <= right.sum() <= n_drawn - 2:
            found, n_pairs = metrics.differences(drawn, right, reference="NLL"), right.sum() * (~right).sum()
            # Pairs among all questions, less those with a question drawn; two drawn are taken away twice.
            within = (metrics.auroc(drawn["NLL"], right) + found.difference) * n_pairs
            n_left = (correct.sum() - right.sum()) * ((~correct).sum() - (~right).sum())
            rest = pd.Series((won[~correct].sum(axis=0) - won[at].sum(axis=0) + within) / n_left, scored.columns)
            chosen = pd.Series(_policies(found, scored.columns)).rename_axis("policy")
            gain = chosen.map(rest) - rest["NLL"]
            yield pd.DataFrame({"took": chosen != "NLL", "gain": gain, "regret": rest.max() - rest["NLL"] - gain})


def _policies(found: metrics.DeLong, names: pd.Index) -> dict[str, str]:
    gain = pd.Series(np.round(found.difference, 12), names)
    by_alpha, by_k = gain.filter(like="α").idxmax(), gain[~names.str.startswith("α")].idxmax()  # NLL is K = 1
    fixed = {"NLL": "NLL", "PRO, α = 0.4": "α = 0.4", "PRO, α chosen": by_alpha, "PRO, K chosen": by_k}
    return fixed | {name: _best(found, names, caution) for name, caution in CAUTIONS.items()}


def _best(found: metrics.DeLong, names: pd.Index, caution: float) -> str:
    bound = np.round(found.difference - caution * found.standard_error, 12)  # equal counts stay equal
    return names[np.argmax(np.nan_to_num(bound))]


def pairs_won(uncertainty: ArrayLike, correct: ArrayLike) -> NDArray[np.float64]:
    """Of each question, (n, A): right answers below it if it is wrong, else wrong ones above it; ties count half."""
    values, correct = np.asarray(uncertainty, float), np.asarray(correct)
    won = np.empty(values.shape)
    below_wrong, below_right = metrics.pairs_won(values[~correct].T, values[correct].T)
    won[~correct], won[correct] = below_wrong.T, np.count_nonzero(~correct) - below_right.T
    return won
