"""What can be promised of runs and evaluations: coverage at equal promise, sets with a right answer, agreement."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pro_lib import intervals, promises, sweeps
from pro_lib.evaluation import Choices, Splits, evaluate, rouge_and_correct
from pro_lib.protocols import alpha_grid
from pro_lib.runs import Run
from pro_lib.store import RunError


def promises_table(
    splits: Iterable[Splits],
    *,
    targets: Sequence[float] = (0.7, 0.8, 0.9),
    confidence: float = 0.95,
    alphas: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """Coverage at equal promise: what `promises.promise` makes of all validation questions, by method and target.

    The reported questions lend their scores as `unlabelled`. `alphas` names PRO by α, which these validation questions
    must not have chosen; None for {"PRO": 0.4}. Columns: the labels of each setting, method, target, threshold (NaN
    where nothing is promised), and on the reported questions coverage, accuracy and its 95 % Wilson interval low, high.
    Each row is a promise by itself, not the choice of one of them.
    """
    rows, named = [], alphas or {"PRO": sweeps.DEFAULT_ALPHA}
    for each in splits:
        known, asked = each.pool.with_pro(named), each.reported.with_pro(named)
        for method, target in product(asked, targets):
            options = {"target": target, "confidence": confidence, "unlabelled": asked[method]}
            made = promises.promise(known[method], each.pool.correct, **options)
            right = each.reported.correct[made.answers(asked[method])]
            share = {"coverage": len(right) / len(asked), "accuracy": right.mean() if right.size else np.nan}
            low, high = map(float, intervals.wilson(share["accuracy"], right.size))
            threshold = np.nan if made.threshold is None else made.threshold
            promised = {"method": method, "target": target, "threshold": threshold}
            rows.append(each.labels() | promised | share | {"low": low, "high": high})
    return pd.DataFrame(rows)


def right_probabilities(run: Run, *, choices: Choices | None = None) -> NDArray[np.float64]:
    """The probability (n,) of the most probable right answer that an exact search found; 0 where none, or undecided.

    Every answer found is judged as `choices` says. `RunError` where one cannot be, or the run is no search down to α.
    """
    ranked = run.ranked()
    correct = rouge_and_correct(ranked, run.questions.iloc[ranked["row"]].reset_index(drop=True), choices)["correct"]
    if run.search_alpha is None or correct.isna().any():
        raise RunError(f"run {run.name}: sets need all answers with p >= search_alpha, each of them judged")
    right = np.zeros(len(run.questions))
    np.maximum.at(right, ranked["row"], np.exp(ranked["value"]) * correct.astype(bool))
    return np.where(run.questions["status"] == "undecided", 0.0, right)


def sets_table(
    searches: Iterable[Run],
    *,
    deltas: Sequence[float] = (0.3, 0.4, 0.5, 0.6),
    alphas: Sequence[float] = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4),
    split: str = "test",
    choices: Choices | None = None,
) -> pd.DataFrame:
    """Sets of answers from searches of both splits: a row per δ, α being its tau, and per fixed α from the search's on.

    Columns: dataset, model, delta (NaN for a fixed α), alpha (NaN where no set is issued), limit (of a fixed α: the
    upper limit of what its sets miss, from validation), and on `split` n_questions, missed (share with no right answer
    in the set; 0 where none is issued; undecided ones count), its 95 % Wilson interval low, high, size (answers in a
    set, mean), empty (share of sets) and auroc of PRO at that α.
    """
    parts = []
    for run in searches:
        fixed = alpha_grid(run.search_alpha, of=alphas)
        known, asked = run.select(split="validation"), run.select(split=split)
        validation, right = (right_probabilities(each, choices=choices) for each in (known, asked))
        searched = {"search_alpha": run.search_alpha}
        taus = [promises.answer_sets(validation, delta=delta, **searched).tau for delta in deltas]
        limits = [promises.miss_rate(validation, alpha=alpha, **searched)[1] for alpha in fixed]
        at, missing = np.array([*taus, *fixed], float), [np.nan] * len(fixed)
        labels = run.info.labels() | {"delta": [*deltas, *missing], "alpha": at}
        table = pd.DataFrame(labels | {"limit": [*[np.nan] * len(deltas), *limits], "n_questions": len(right)})
        table["missed"] = (right[:, None] < at).mean(axis=0)  # nothing lies below NaN
        table["low"], table["high"] = intervals.wilson(table["missed"], len(right))
        sizes = (np.exp(asked.log_probs())[:, :, None] >= at).sum(axis=1)
        shown = pd.DataFrame({"size": sizes.mean(axis=0), "empty": (sizes == 0).mean(axis=0)})
        swept = sweeps.alpha_sweep(evaluate(asked, choices=choices), alphas=np.unique(at[~np.isnan(at)]))
        auroc = table["alpha"].map(swept.set_index("alpha")["auroc"])
        parts.append(table.join(shown[~np.isnan(at)]).assign(auroc=auroc))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
