"""What runs found, claim and cost, as tables for people."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pro_lib import evaluation, scores
from pro_lib.runs import Run

if TYPE_CHECKING:
    pass


def explained(run: Run, *, alpha: float, distinct: bool = True) -> pd.DataFrame:
    """Every answer of a run with what PRO makes of it, question by question, most probable first.

    Repeats are left out unless `distinct=False`. Columns: question_id, question, text, probability (ending included),
    kept (whether PRO keeps it at `alpha`), correct (None where it cannot be known), running_pro (PRO_K with the answers
    so far), uncertainty (of the question). Records without texts get numbers in their place.
    """
    log_probs = run.log_probs(distinct=distinct)
    table = run.ranked(distinct=distinct)
    place = table.groupby("row").cumcount()
    row = table["row"].to_numpy()
    questions = run.questions.iloc[row].reset_index(drop=True)
    return pd.DataFrame(
        {
            "question_id": table["question_id"],
            "question": questions["question"].fillna("question " + questions["question_id"]),
            "text": table["text"].fillna("answer " + (place + 1).astype(str)),
            "probability": np.exp(table["value"]),
            "kept": place.to_numpy() < scores.adaptive_k(log_probs, alpha, search_alpha=run.search_alpha)[row],
            "correct": evaluation.rouge_and_correct(table, questions)["correct"],
            "running_pro": scores.pro_all_k(log_probs)[row, place],
            "uncertainty": scores.pro(log_probs, alpha=alpha, search_alpha=run.search_alpha)[row],
        }
    )


def examples(run: Run, *, n: int = 3, seed: int = 0) -> Run:
    """`n` questions drawn from those answered right and `n` from those answered wrong, for a figure.

    Where nothing can be judged, `2n` drawn from all. Fewer where there are fewer.
    """
    rng, ids = np.random.default_rng(seed), run.questions["question_id"].to_numpy(object)
    correct = evaluation.rouge_and_correct(run.top(), run.questions)["correct"].to_numpy(object)
    groups = [correct == True, correct == False] if pd.notna(correct).any() else [pd.isna(correct)]  # noqa: E712
    drawn = [rng.permutation(ids[of])[: 2 * n // len(groups)] for of in groups]
    return run.select(question_ids=list(np.concatenate(drawn)))


def cost_table(runs: Sequence[Run]) -> pd.DataFrame:
    """What runs have cost, a row per run, over all questions their folders hold.

    Columns: run, prompt_tokens, token_forwards, model_calls, seconds, tokens_per_second, peak_memory_mib.
    """
    rows = []
    for run in runs:
        cost = run.info.cost
        rows.append(
            {
                "run": run.name,
                "prompt_tokens": cost.prompt_tokens,
                "token_forwards": cost.token_forwards,
                "model_calls": cost.model_calls,
                "seconds": round(cost.seconds, 1),
                "tokens_per_second": round((cost.prompt_tokens + cost.token_forwards) / max(cost.seconds, 1e-9)),
                "peak_memory_mib": round(cost.peak_memory_bytes / 2**20),
            }
        )
    return pd.DataFrame(rows)


def found_table(runs: Sequence[Run], *, alpha: float) -> pd.DataFrame:
    """What runs found, a row per question.

    Columns: dataset, model, answers (finished, repeats counted), distinct, mass (of the distinct answers),
    mass_with_repeats, kept (by PRO at `alpha`), cut (answers still open at the length limit).
    """
    tables = []
    for run in runs:
        log_probs, repeated = run.log_probs(), run.log_probs(distinct=False)
        cut = run.answers.loc[~run.answers["finished"], "question_id"].value_counts()
        table = pd.DataFrame(
            {
                "answers": np.isfinite(repeated).sum(axis=1),
                "distinct": np.isfinite(log_probs).sum(axis=1),
                "mass": scores.premise(log_probs).mass,
                "mass_with_repeats": scores.premise(repeated).mass,
                "kept": scores.adaptive_k(log_probs, alpha, search_alpha=run.search_alpha),
                "cut": cut.reindex(run.questions["question_id"], fill_value=0).to_numpy(),
            }
        )
        tables.append(table.assign(dataset=run.info.dataset, model=run.info.model))
    return pd.concat(tables, ignore_index=True)


def recall_table(exact: Run, other: Run, *, alphas: Sequence[float]) -> pd.DataFrame:
    """How many of the answers with p ≥ α another run found, over the questions of the search.

    `exact` is a run of `threshold`; α below its own is refused. A row per α. Columns: alpha, answers (with p ≥ α,
    certainly), found (of them, by token ids), recall, all_found (share of the questions whose answers with p ≥ α
    are all found, of those that have one), questions (that have one).
    """
    if exact.search_alpha is None or min(alphas) < exact.search_alpha:
        raise ValueError(f"alphas must be at least the search_alpha of the run, {exact.search_alpha}")
    other = other.select(question_ids=list(exact.questions["question_id"]))
    answers = exact.ranked()
    keys = answers["question_id"], answers["token_ids"].map(tuple)
    theirs = other.answers[other.answers["finished"].to_numpy(bool)]
    known = set(zip(theirs["question_id"], theirs["token_ids"].map(tuple), strict=True))
    answers = answers.assign(found=[key in known for key in zip(*keys, strict=True)])
    rows = []
    for alpha in alphas:
        likely = answers[answers["value"] >= np.log(alpha)]
        by_question = likely.groupby("question_id")["found"].all()
        rows.append(
            {
                "alpha": alpha,
                "answers": len(likely),
                "found": int(likely["found"].sum()),
                "recall": likely["found"].mean() if len(likely) else np.nan,
                "all_found": by_question.mean() if len(by_question) else np.nan,
                "questions": len(by_question),
            }
        )
    return pd.DataFrame(rows)


def search_table(runs: Sequence[Run]) -> pd.DataFrame:
    """What searches found, claim and cost, a row per run; means over questions, bounds and PRO in nats.

    Columns: alpha (of the search), n_questions, certified, fallback, undecided (shares), answers (with p ≥ α),
    found_mass, pro, alpha_floor, tree_bound, upper_bound, expanded_prefixes, token_forwards, live_width,
    largest_width, and, of the whole run, model_calls and milliseconds per question.
    """
    rows = []
    for run in runs:
        ledger, log_probs = run.questions, run.log_probs()
        planned = sum(plan[0] for plan in run.info.plans)
        means = ["found_mass", "alpha_floor", "tree_bound", "upper_bound", "expanded_prefixes", "token_forwards"]
        rows.append(
            {"alpha": run.search_alpha, "n_questions": len(ledger)}
            | {status: (ledger["status"] == status).mean() for status in ("certified", "fallback", "undecided")}
            | {"answers": (np.asarray(log_probs) >= np.log(run.search_alpha)).sum(axis=1).mean()}
            | {"pro": np.nanmean(scores.pro(log_probs, alpha=run.search_alpha))}
            | {name: ledger[name].mean() for name in means}
            | {"live_width": ledger["live_width"].mean(), "largest_width": ledger["live_width"].max()}
            | {"model_calls": run.info.cost.model_calls, "milliseconds": 1000 * run.info.cost.seconds / planned}
        )
    return pd.DataFrame(rows)


def merged_table(run: Run, *, alpha: float) -> pd.DataFrame:
    """What adding up the spellings of an answer does to PRO at `alpha`, a row per question of a search.

    Columns: question_id, kept and pro as they are, kept_merged and pro_merged with texts merged, certain: whether
    the kept texts are surely the most probable ones. They are where the mass not found is smaller than the smallest
    kept text, even if all of it belonged to one that is not kept. Bounds on the entropy of token sequences say
    nothing about the merged set.
    """
    single, merged = run.log_probs(), run.log_probs(merge_by="text")
    kept = scores.adaptive_k(merged, alpha, search_alpha=run.search_alpha)
    columns = np.arange(merged.shape[1])
    is_kept = columns < kept[:, None]
    probabilities = np.nan_to_num(np.exp(np.asarray(merged)))
    smallest = np.where(is_kept, probabilities, np.inf).min(axis=1)
    runner_up = np.where(is_kept, 0.0, probabilities).max(axis=1)
    not_found = 1 - probabilities.sum(axis=1)
    return pd.DataFrame(
        {
            "question_id": run.questions["question_id"],
            "kept": scores.adaptive_k(single, alpha, search_alpha=run.search_alpha),
            "kept_merged": kept,
            "pro": scores.pro(single, alpha=alpha, search_alpha=run.search_alpha),
            "pro_merged": scores.pro(merged, alpha=alpha, search_alpha=run.search_alpha),
            "certain": (kept > 0) & (runner_up + not_found < smallest),
        }
    )
