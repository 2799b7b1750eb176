"""Whether PRO or NLL, and which K or α, chosen on validation questions by a rule; and what that is worth elsewhere."""

import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from pro_lib import metrics, scores
from pro_lib.protocols import ALPHA_GRID

CAUTION = 1.0  # standard errors by which PRO must exceed NLL on validation


def candidates(log_probs: ArrayLike, *, ks: Sequence[int], alphas: Sequence[float]) -> pd.DataFrame:
    """NLL of answers (n, N), and PRO at each α and each K: a column each, `NLL`, `α = 0.4`, `K = 2`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", scores.PremiseWarning)  # repeats are among what is compared
        by_alpha, by_k = scores.pro(log_probs, alpha=np.array(alphas)), scores.pro_at_k(log_probs, np.array(ks))
    names = [*(f"α = {alpha:g}" for alpha in alphas), *(f"K = {k}" for k in ks)]
    return pd.DataFrame(np.column_stack([scores.nll(log_probs), by_alpha, by_k]), columns=["NLL", *names])


def choice(scored: pd.DataFrame, correct: ArrayLike, *, caution: float = CAUTION) -> str:
    """The rule: the column whose AUROC minus the first's, less `caution` standard errors (DeLong's), is largest.

    That of the first, NLL, is 0: it stays unless another exceeds it by more than so many standard errors of the paired
    difference on these questions (n). Of equal columns the first is taken, and NLL where a class has fewer than two.
    """
    if not 2 <= np.count_nonzero(correct) <= len(scored) - 2:
        return scored.columns[0]
    found = metrics.delong(scored, correct)
    return scored.columns[np.argmax(found.difference - caution * found.standard_error)]


def regrets(
    log_probs: ArrayLike, correct: ArrayLike, *, n_validation: int = 100, n_redraws: int = 200, seed: int = 0
) -> pd.DataFrame:
    """What policies choose from `n_validation` of the questions (n, N), drawn anew each time, and lose on the others.

    Columns: redraw, policy, chosen, gain (AUROC minus NLL's) and regret (the best candidate's AUROC, in hindsight,
    minus that of the one chosen). Candidates are NLL, α = 0, 0.05, …, 1 and K = 2 … N. Draws without both classes are
    drawn again.
    """
    alphas = sorted(ALPHA_GRID, key=lambda alpha: (round(abs(alpha - 0.4), 12), alpha))  # of ties the first is taken
    scored = candidates(log_probs, ks=range(2, max(3, np.shape(log_probs)[1] + 1)), alphas=alphas)
    correct, rng, rows = np.asarray(correct), np.random.default_rng(seed), []
    while len(rows) < n_redraws:
        drawn = np.zeros(len(scored), bool)
        drawn[rng.choice(len(scored), n_validation, replace=False)] = True
        if 0 < correct[drawn].sum() < n_validation:
            rest = pd.Series(metrics.auroc_columns(scored[~drawn], correct[~drawn]), scored.columns)
            chosen = _policies(scored[drawn], correct[drawn])
            told = {"chosen": chosen, "gain": rest[chosen] - rest["NLL"], "regret": rest.max() - rest[chosen]}
            rows.append(pd.DataFrame({name: list(values) for name, values in told.items()}, index=chosen.index))
    return pd.concat(rows, keys=range(n_redraws), names=["redraw", "policy"]).reset_index()


def _policies(scored: pd.DataFrame, correct: ArrayLike) -> pd.Series:
    aurocs = pd.Series(metrics.auroc_columns(scored, correct), scored.columns)
    chosen = {"NLL": "NLL", "PRO, α = 0.4": "α = 0.4", "PRO, α chosen": aurocs.filter(like="α").idxmax()}
    chosen |= {"PRO, K chosen": aurocs[~aurocs.index.str.startswith("α")].idxmax()}  # NLL is K = 1
    cautions = {"the rule": CAUTION, "no caution": 0.0, "more caution": 1.645}
    return pd.Series(chosen | {name: choice(scored, correct, caution=of) for name, of in cautions.items()})
