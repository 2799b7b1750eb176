"""What one run or one question looks like to a person: `ask`, and tables of answers, probabilities and cost.

It knows runs and scores; it does not draw, and nothing here chooses or judges a method.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from pro_lib import qa, scores, workbench
from pro_lib.generations import Run

if TYPE_CHECKING:
    from pro_lib.models import Model


class AnswerProbability(NamedTuple):
    """An answer and the probability of its complete text, ending included."""

    text: str
    probability: float


@dataclass(frozen=True)
class Asked:
    """A model's answer to one question, with its PRO uncertainty (nats, higher = more uncertain).

    `answers` are the distinct answers found, the most probable first; PRO read the first `kept` of them.
    `status` (`certified`, `fallback` or `undecided`, see `strategies.Ledger`) and `entropy_bounds` (nats, of the
    entropy over complete token sequences: the tree bound and the loose upper bound) come from an exact search; they
    are None for another strategy.
    """

    question: str
    text: str
    uncertainty: float
    answers: tuple[AnswerProbability, ...]
    kept: int
    status: str | None = None
    entropy_bounds: tuple[float, float] | None = None


def ask(
    model: "Model",
    question: str,
    *,
    alpha: float = 0.4,
    questions: qa.QuestionSet | None = None,
    strategy: str = "threshold",
    search_alpha: float = 0.02,
    budget: int | None = None,
    n_answers: int = 10,
    max_new_tokens: int = 32,
) -> Asked:
    """Ask one question; the answer with its uncertainty.

    Args:
        model: a loaded model.
        question: the question, as text.
        alpha: PRO keeps the answers with `p >= alpha`.
        questions: a question set whose header, template and shots are used; None asks without shots.
        strategy: how answers are looked for, as in `generate`; by default all with p ≥ search_alpha.
        search_alpha: how far down the exact search goes.
        budget: token-forwards the search may spend; None for no limit.
        n_answers: N, as in `generate`.
        max_new_tokens: T, as in `generate`.

    Raises:
        ValueError: an empty question, alpha outside [0, 1] or below search_alpha, or no answer that ended within
            `max_new_tokens`.
    """
    from pro_lib import generate

    if not isinstance(question, str) or not question.strip():
        raise ValueError("question is empty")
    asked = (questions or qa.QuestionSet("asked", pd.DataFrame())).with_questions([question.strip()])
    options = {"search_alpha": search_alpha, "budget": budget} if strategy == "threshold" else {"n_answers": n_answers}
    run = generate.generate(model, asked, strategy=strategy, max_new_tokens=max_new_tokens, progress=False, **options)
    log_probs = run.log_probs()
    kept = int(scores.kept(log_probs, alpha)[0])
    if not kept:
        raise ValueError(f"no answer of {model.name} ended within {max_new_tokens} tokens: {question!r}")
    found = run.ranked().itertuples()
    answers = tuple(AnswerProbability(row.text, float(np.exp(row.value))) for row in found)
    asked = Asked(question, answers[0].text, float(scores.pro(log_probs, alpha=alpha)[0]), answers, kept)
    if "status" not in run.questions:
        return asked
    ledger = run.questions.iloc[0]
    bounds = (float(ledger["tree_bound"]), float(ledger["upper_bound"]))
    return replace(asked, status=ledger["status"], entropy_bounds=bounds)


def explained(run: Run, *, alpha: float) -> pd.DataFrame:
    """Every distinct answer of a run with what PRO makes of it, question by question, most probable first.

    Columns: question_id, question, text, probability (ending included), kept (whether PRO keeps it at `alpha`),
    correct (None where it cannot be known), running_pro (PRO_K with the answers so far), uncertainty (of the
    question). Records without texts get numbers in their place.
    """
    log_probs = run.log_probs()
    table = run.ranked()
    place = table.groupby("row").cumcount()
    row = table["row"].to_numpy()
    questions = run.questions.iloc[row].reset_index(drop=True)
    return pd.DataFrame(
        {
            "question_id": table["question_id"],
            "question": questions["question"].fillna("question " + questions["question_id"]),
            "text": table["text"].fillna("answer " + (place + 1).astype(str)),
            "probability": np.exp(table["value"]),
            "kept": place.to_numpy() < scores.kept(log_probs, alpha)[row],
            "correct": workbench.rouge_and_correct(table, questions)["correct"],
            "running_pro": scores.pro_all_k(log_probs)[row, place],
            "uncertainty": scores.pro(log_probs, alpha=alpha)[row],
        }
    )


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
                "kept": scores.kept(log_probs, alpha),
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
    kept = scores.kept(merged, alpha)
    columns = np.arange(merged.shape[1])
    is_kept = columns < kept[:, None]
    probabilities = np.nan_to_num(np.exp(np.asarray(merged)))
    smallest = np.where(is_kept, probabilities, np.inf).min(axis=1)
    runner_up = np.where(is_kept, 0.0, probabilities).max(axis=1)
    not_found = 1 - probabilities.sum(axis=1)
    return pd.DataFrame(
        {
            "question_id": run.questions["question_id"],
            "kept": scores.kept(single, alpha),
            "kept_merged": kept,
            "pro": scores.pro(single, alpha=alpha),
            "pro_merged": scores.pro(merged, alpha=alpha),
            "certain": (kept > 0) & (runner_up + not_found < smallest),
        }
    )
