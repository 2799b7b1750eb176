"""What runs found, how right it is and what it cost, as tables; knows answers, correctness and scores, no search."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from pro_lib import intervals, scores
from pro_lib.evaluation import rouge_and_correct
from pro_lib.runs import Run


def explained(run: Run, *, alpha: float, distinct: bool = True) -> pd.DataFrame:
    """Every answer of a run with what PRO makes of it, question by question, most probable first.

    Repeats are left out unless `distinct=False`. Columns: question_id, question, text, probability (ending included),
    kept (whether PRO keeps it at `alpha`), correct (None where it cannot be known), running_pro (PRO_K with the answers
    so far), uncertainty (of the question), reference (its first). Records without texts get numbers in their place.
    """
    log_probs, table = run.log_probs(distinct=distinct), run.ranked(distinct=distinct)
    row, place = table["row"].to_numpy(), table.groupby("row").cumcount()
    questions = run.questions.iloc[row].reset_index(drop=True)
    columns = {
        "question_id": table["question_id"],
        "question": questions["question"].fillna("question " + questions["question_id"]),
        "text": table["text"].fillna("answer " + (place + 1).astype(str)),
        "probability": np.exp(table["value"]),
        "kept": place.to_numpy() < scores.adaptive_k(log_probs, alpha, search_alpha=run.search_alpha)[row],
        "correct": rouge_and_correct(table, questions)["correct"],
        "running_pro": scores.pro_all_k(log_probs)[row, place],
        "uncertainty": scores.pro(log_probs, alpha=alpha, search_alpha=run.search_alpha)[row],
        "reference": questions["references"].str[0],
    }
    return pd.DataFrame(columns)


def examples(run: Run, *, alpha: float, n: int = 6, seed: int = 0) -> Run:
    """`n` questions for a figure, as many of each kind: answered right, answered wrong, more than one answer kept.

    Where nothing can be judged there are those that keep one answer, and the others. Fewer where there are fewer.
    """
    rng, ids = np.random.default_rng(seed), run.questions["question_id"].to_numpy(object)
    correct = rouge_and_correct(run.top(), run.questions)["correct"].map({True: "right", False: "wrong"}).fillna("")
    several = scores.adaptive_k(run.log_probs(), alpha, search_alpha=run.search_alpha) > 1
    groups = pd.Series(ids).groupby(np.where(several, "~", correct)).indices
    drawn = [ids[:0], *(rng.permutation(ids[rows])[: n // len(groups)] for rows in groups.values())]
    return run.select(question_ids=list(np.concatenate(drawn)))


def cost_table(runs: Sequence[Run]) -> pd.DataFrame:
    """What runs have cost, a row per run, over all questions their folders hold.

    Columns: run, prompt_tokens, token_forwards, model_calls, seconds, tokens_per_second, peak_memory_mib.
    """
    costs = pd.DataFrame([{"run": run.name} | vars(run.info.cost) for run in runs])
    tokens = costs["prompt_tokens"] + costs["token_forwards"]
    return costs[["run", "prompt_tokens", "token_forwards", "model_calls"]].assign(
        seconds=costs["seconds"].round(1),
        tokens_per_second=(tokens / costs["seconds"].clip(lower=1e-9)).round().astype(int),
        peak_memory_mib=(costs["peak_memory_bytes"] / 2**20).round().astype(int),
    )


def found_table(runs: Sequence[Run], *, alpha: float) -> pd.DataFrame:
    """What runs found, a row per question.

    Columns: answers (finished, repeats counted), distinct, mass (of the distinct answers), mass_with_repeats, kept (by
    PRO at `alpha`), cut (answers still open at the length limit), dataset, model.
    """
    return pd.concat([_found(run, alpha) for run in runs], ignore_index=True)


def repeats_table(runs: Sequence[Run]) -> pd.DataFrame:
    """How far runs meet what PRO's bound presupposes, distinct answers with a mass of at most 1: a row per setting.

    Columns: dataset, model, means of answers, distinct, mass and mass_with_repeats of `found_table`, and the shares of
    questions repeats_an_answer and mass_above_one (repeats counted).
    """
    table = found_table(runs, alpha=1.0)
    table["repeats_an_answer"] = table["answers"] > table["distinct"]
    table["mass_above_one"] = table["mass_with_repeats"] > 1 + 1e-6
    means = ["answers", "distinct", "repeats_an_answer", "mass", "mass_with_repeats", "mass_above_one"]
    return table.groupby(["dataset", "model"], sort=False)[means].mean().reset_index()


def exposure_table(run: Run, *, alpha: float) -> pd.DataFrame:
    """How accuracy, NLL and PRO follow what a model was told: a row per measure, exposure and conflict.

    A question's most probable answer is judged, PRO is that at `alpha`. No rows where the questions do not say exposure
    and conflict, or no answer can be judged. Columns: measure (accuracy, NLL, PRO), exposure, conflict, n, mean, and
    its 95 % interval low, high: Wilson's of the accuracy, the normal one of a mean in nats.
    """
    if not {"exposure", "conflict"} <= set(run.questions):
        return pd.DataFrame()
    said, right = run.scores(alpha=alpha), rouge_and_correct(run.top(), run.questions)["correct"]
    table = run.questions[["exposure", "conflict"]].assign(accuracy=right, NLL=said["nll"], PRO=said["pro"])
    table = table.dropna().melt(["exposure", "conflict"], var_name="measure").astype({"value": float})
    cells = table.groupby(["measure", "exposure", "conflict"])["value"].agg(["size", "mean", "sem"]).reset_index()
    cells = cells.sort_values("measure", key=lambda names: names.str.lower(), kind="stable", ignore_index=True)
    cells["low"], cells["high"] = cells["mean"] - 1.96 * cells["sem"], cells["mean"] + 1.96 * cells["sem"]
    shares = cells["measure"] == "accuracy"
    wilson = intervals.wilson(cells.loc[shares, "mean"], cells.loc[shares, "size"])
    cells.loc[shares, ["low", "high"]] = np.column_stack(wilson)
    return cells.rename(columns={"size": "n"}).drop(columns="sem")


def _found(run: Run, alpha: float) -> pd.DataFrame:
    log_probs, repeated = run.log_probs(), run.log_probs(distinct=False)
    cut = run.answers.loc[~run.answers["finished"], "question_id"].value_counts()
    columns = {
        "answers": np.isfinite(repeated).sum(axis=1),
        "distinct": np.isfinite(log_probs).sum(axis=1),
        "mass": scores.premise(log_probs).mass,
        "mass_with_repeats": scores.premise(repeated).mass,
        "kept": scores.adaptive_k(log_probs, alpha, search_alpha=run.search_alpha),
        "cut": cut.reindex(run.questions["question_id"], fill_value=0).to_numpy(),
    }
    return pd.DataFrame(columns).assign(**run.info.labels())
