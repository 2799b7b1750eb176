"""Whether PRO exceeds NLL in controlled worlds, and why it does or does not on a setting: each cause removed alone."""

import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from pro_lib import intervals, metrics, scores, sweeps, worlds
from pro_lib.evaluation import Evaluation
from pro_lib.runs import Run
from pro_lib.store import RunError

KS, ALPHAS = (2, 5, 10), (0.1, 0.4)
LEAST = 0.01  # what is less probable is the tail


def worlds_table(*, n_questions: int = 20_000, seed: int = 0) -> pd.DataFrame:
    """PRO's AUROC minus NLL's in each world of `worlds.grid`, a world drawn once wherever it stands.

    Columns: panel, level, accuracy, nll (its AUROC), score, gain, low, high (DeLong's 95 % interval).
    """
    rows, held = [], {}
    for panel, level, world in worlds.grid():
        if world not in held:
            log_probs, correct = world.questions(n_questions, np.random.default_rng([seed, len(held)]))
            scored = candidates(log_probs, ks=KS, alphas=ALPHAS)
            found = metrics.differences(scored, correct, reference="NLL")
            low, high = found.interval()
            told = {"score": scored.columns, "gain": found.difference, "low": low, "high": high}
            nll = metrics.auroc(scored["NLL"], correct)
            held[world] = pd.DataFrame({"accuracy": correct.mean(), "nll": nll, **told}).iloc[1:]
        rows.append(held[world].assign(panel=panel, level=level))
    return pd.concat(rows, ignore_index=True)


def causes_table(judged: Evaluation, run: Run, *, alpha: float = ALPHAS[-1]) -> pd.DataFrame:
    """PRO minus NLL on the questions of `run`, at three K and at `alpha`, as it is and with one cause removed.

    The same answers are judged. Removed are the tail (answers below 0.01, the first apart), the mass found (only pairs
    of one twentieth of it count, or it is made 1), the length of the judged answer (only pairs of one length count,
    NLL/ALL tokens), split spellings (`judged.meanings`), endings, and that answers
    count once. A row of NaN: this data does not allow it. Columns: the setting's labels, cause, score, nll (AUROC,
    computed anew as PRO's is), gain (PRO's minus it), gain_low, gain_high, change (of the gain), low, high: normal 95 %
    intervals of paired differences (DeLong's variance).
    """
    run, found = run.select(question_ids=list(judged.answers["question_id"])), judged.log_probs
    top = np.nanmax(found, axis=1)
    masses = pd.qcut(scores.premise(found).mass, 20, labels=False, duplicates="drop")
    lengths = np.rint(judged.baselines["NLL"] / judged.baselines.get("ALL", np.nan))
    within = {"pairs of one mass": masses, "pairs of one length": np.nan_to_num(lengths)}
    removed = {
        "as it is": found,
        f"tail below {LEAST:g} left out": np.where(found >= np.minimum(top, np.log(LEAST))[:, None], found, np.nan),
        "pairs of one mass": found,
        "mass made 1": found - logsumexp(np.nan_to_num(found, nan=-np.inf), axis=1, keepdims=True),
        "pairs of one length": found if "ALL" in judged.baselines else None,
        "spellings merged": next(iter(judged.meanings.values()), None),
        "endings left out": _without_endings(run),
        "repeats kept": run.log_probs(distinct=False),
    }
    rows, before = [], None
    for cause, log_probs in removed.items():
        table = pd.DataFrame({"cause": [cause]})
        if log_probs is not None:
            scored = candidates(log_probs, ks=KS, alphas=[alpha], search_alpha=judged.search_alpha)
            aurocs, parts = _aurocs(scored, judged.correct, within.get(cause, 0 * top))
            gain, parts = (of[..., 1:] - of[..., :1] for of in (aurocs, parts))
            before = (gain, parts) if before is None else before
            told = {"cause": cause, "score": scored.columns[1:], "nll": aurocs[0]}
            for name, ends, (was, its) in (("gain", "gain_", (0, 0)), ("change", "", before)):
                told[name] = gain - was
                error = np.sqrt(((parts - its) ** 2).sum(axis=0))
                told[f"{ends}low"], told[f"{ends}high"] = intervals.normal(told[name], error)
            table = pd.DataFrame(told)
        rows.append(table)
    return sweeps.labelled(pd.concat(rows, ignore_index=True), judged)


def places_table(judged: Evaluation, *, k: int = 5) -> pd.DataFrame:
    """Which questions change places: what each fifth of them by p_1 adds to AUROC(PRO_K) - AUROC(NLL), right and wrong.

    A pair of a right and a wrong answer counts half for either, so that gains add up to the whole one. Columns: p_1
    (range of the fifth), answer, n, gain, low, high (normal 95 %, the size of the group taken as given).
    """
    scored, correct = candidates(judged.log_probs, ks=[k], alphas=[1]), judged.correct
    each = np.diff(pairs_won(scored[["NLL", f"K = {k}"]], correct), axis=1)[:, 0] / 2
    fifth = pd.qcut(scored["NLL"].rank(method="first"), 5, labels=False)
    p_1 = np.exp(-scored["NLL"]).groupby(fifth).transform(lambda p: f"{p.min():.2f} to {p.max():.2f}")
    table = pd.DataFrame({"p_1": p_1, "answer": np.where(correct, "right", "wrong")})
    table["each"] = each / (correct.sum() * (~correct).sum())
    by = table.groupby(["p_1", "answer"])["each"].agg(n="size", gain="sum", spread="std").reset_index()
    by["low"], by["high"] = intervals.normal(by["gain"], by.pop("spread") * np.sqrt(by["n"]))
    return by


def _aurocs(scored: pd.DataFrame, correct: NDArray, strata: NDArray) -> tuple[NDArray, NDArray]:
    """AUROC (A,) over the pairs within strata (n,), and what each question adds to its error, (n, A)."""
    won, pairs = np.zeros(scored.shape), np.zeros((len(scored), 1))
    for stratum in np.unique(strata):
        of = strata == stratum
        won[of], n_right = pairs_won(scored[of], correct[of]), np.count_nonzero(correct[of])
        pairs[of, 0] = np.where(correct[of], np.count_nonzero(of) - n_right, n_right)
    aurocs = won[correct].sum(axis=0) / pairs[correct].sum()
    return aurocs, (won - aurocs * pairs) / pairs[correct].sum()


def _without_endings(run: Run) -> NDArray | None:
    try:
        return run.log_probs(convention="answer_tokens")
    except RunError:  # nobody knows what they cost
        return None


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


def pairs_won(uncertainty: ArrayLike, correct: ArrayLike) -> NDArray[np.float64]:
    """Of each question, (n, A): right answers below it if it is wrong, else wrong ones above it; ties count half."""
    values, correct = np.asarray(uncertainty, float), np.asarray(correct)
    won = np.empty(values.shape)
    below_wrong, below_right = metrics.pairs_won(values[~correct].T, values[correct].T)
    won[~correct], won[correct] = below_wrong.T, np.count_nonzero(~correct) - below_right.T
    return won
