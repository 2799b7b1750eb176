"""The tables of single questions, and of the training documents of the bundled models."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pro_lib import metrics, scoring
from pro_lib.common import catalog
from pro_lib.evaluation.tables.settings import with_run
from pro_lib.metrics.correctness import rouge_and_correct
from pro_lib.runs.run import Run

_N_EXAMPLES = 6
_KINDS = ("unknown", "right", "wrong", "several kept")


def answer_details(
    run: Run, *, alpha: float = 0.4, distinct: bool = True, split: str = "test"
) -> pd.DataFrame:
    """Return every answer of a run with its probability and its PRO, the most probable first.

    Args:
        run: the run of the questions.
        alpha: α of PRO.
        distinct: count repeated answers once.
        split: the name of the split of the questions.

    Returns:
        A table with the dataset, model, strategy, split and n_questions, and

        - question_id, question, and reference: the first reference answer.
        - k: the rank of the answer.
        - text, probability and is_correct. A missing text is called "answer" with its rank.
        - is_kept: whether PRO keeps the answer at α.
        - pro_at_k: PRO of the first k answers.
        - pro: PRO of the question at α.
    """
    log_probs = run.log_probs(distinct=distinct)
    answers = run.ranked_answers(distinct=distinct)
    row = answers["row"].to_numpy()
    place = answers.groupby("row").cumcount().to_numpy()
    questions = run.questions.iloc[row].reset_index(drop=True)
    n_kept = scoring.adaptive_k(log_probs, alpha, search_alpha=run.search_alpha)
    ranks = pd.Series(place + 1).astype(str)
    columns = {
        "question_id": answers["question_id"],
        "question": questions["question"].fillna("question " + questions["question_id"]),
        "k": place + 1,
        "text": answers["text"].fillna("answer " + ranks),
        "probability": np.exp(answers["value"]),
        "is_kept": place < n_kept[row],
        "is_correct": rouge_and_correct(answers, questions)["correct"],
        "pro_at_k": scoring.pro_all_k(log_probs)[row, place],
        "pro": scoring.pro(log_probs, alpha=alpha, search_alpha=run.search_alpha)[row],
        "reference": questions["references"].str[0],
    }
    return with_run(pd.DataFrame(columns), run, split)


def examples(run: Run, *, alpha: float = 0.4, seed: int = 0, split: str = "test") -> pd.DataFrame:
    """Return the answers to six questions, drawn with `seed`, as `answer_details` does.

    There are three kinds of questions: PRO keeps more than one answer at α, or it keeps one answer
    that is correct, or one that is wrong. The same number is drawn of each kind that occurs. If
    correctness is unknown, questions with one answer are a kind, too.
    """
    ids = run.questions["question_id"].to_numpy(object)
    is_correct = rouge_and_correct(run.top(), run.questions)["correct"]
    kinds = is_correct.map({True: "right", False: "wrong"}).fillna("unknown")
    n_kept = scoring.adaptive_k(run.log_probs(), alpha, search_alpha=run.search_alpha)
    kinds[n_kept > 1] = "several kept"
    # The order of the kinds decides which random numbers each gets.
    occurring = [kind for kind in _KINDS if (kinds == kind).any()]
    n_each = _N_EXAMPLES // len(occurring)
    generator = np.random.default_rng(seed)
    chosen_ids: list[str] = []
    for kind in occurring:
        ids_of_kind = ids[(kinds == kind).to_numpy()]
        chosen_ids += generator.permutation(ids_of_kind)[:n_each].tolist()
    return answer_details(run.select(question_ids=chosen_ids), alpha=alpha, split=split)


def appendix_answers(run: Run) -> pd.DataFrame:
    """Return the answers of the paper's appendix, with PRO at each K and the PRO that is printed.

    Args:
        run: the three questions of the appendix, with the printed probabilities.

    Returns:
        A table with question, k, text, probability, is_kept (at α = 0.1, repeats counted),
        is_correct, pro_at_k, and printed_pro, which is missing where the paper prints nothing.
    """
    printed = catalog.paper("appendix_scores").rename(columns={"pro": "printed_pro"})
    details = answer_details(run, alpha=0.1, distinct=False).astype({"k": "Int64"})
    table = details.merge(
        printed[["question", "k", "printed_pro"]], on=["question", "k"], how="left"
    )
    columns = [
        "question",
        "k",
        "text",
        "probability",
        "is_kept",
        "is_correct",
        "pro_at_k",
        "printed_pro",
    ]
    return table[columns]


def appendix_pro(run: Run) -> pd.DataFrame:
    """Return PRO at α = 0.1 of the questions of the paper's appendix, as printed and as computed.

    Columns: question; printed_pro; pro_with_repeats, if repeated answers are counted; pro, if each
    answer counts once.
    """
    printed = catalog.paper("appendix_scores").dropna(subset="alpha").set_index("question")
    table = printed[["pro"]].rename(columns={"pro": "printed_pro"})
    for name, distinct in (("pro_with_repeats", False), ("pro", True)):
        details = answer_details(run, alpha=0.1, distinct=distinct)
        table[name] = details.groupby("question")["pro"].first()
    return table.reset_index()


def repeats(run: Run, *, alpha: float = 0.4, split: str = "test") -> pd.DataFrame:
    """Return the summed probabilities of the answers of a run, with and without repeats.

    The bound of PRO holds if the answers are distinct and their probabilities sum to at most 1.

    The columns are dataset, model, strategy, split, n_questions, and

    - repeats: `counted` or `left out`.
    - mean_answers: the mean number of answers to a question.
    - largest_mass: the largest sum of the probabilities of the answers to a question.
    - n_above_one: the number of questions with a sum above 1.
    - share_several: the share of questions of which PRO keeps more than one answer at α.
    """
    rows = []
    for name, distinct in (("counted", False), ("left out", True)):
        log_probs = run.log_probs(distinct=distinct)
        n_kept = scoring.adaptive_k(log_probs, alpha, search_alpha=run.search_alpha)
        row = {
            "repeats": name,
            "mean_answers": np.isfinite(log_probs).sum(axis=1).mean(),
            "largest_mass": scoring.mass(log_probs).max(),
            "n_above_one": int(scoring.above_one(log_probs).sum()),
            "share_several": (n_kept > 1).mean(),
        }
        rows.append(row)
    return with_run(pd.DataFrame(rows), run, split)


def exposure(run: Run, *, alpha: float = 0.4, split: str = "test") -> pd.DataFrame:
    """Return accuracy, NLL and PRO by the number of training documents, true and false.

    Only the bundled models were trained on documents about the bundled facts. For other models or
    questions the table is empty.

    The columns are dataset, model, strategy, split, n_questions, and

    - measure: `accuracy`, `NLL` or `PRO`.
    - exposure: the number of documents about a fact.
    - conflict: the share of them that are false.
    - n_in_group: the number of questions with this exposure and conflict.
    - mean: the mean of the measure, with its 95 % interval.
    """
    is_bundled = run.info.model.startswith("facts-")
    if not is_bundled or not {"exposure", "conflict"} <= set(run.questions):
        return pd.DataFrame()
    scores = run.scores(alpha=alpha)
    is_correct = rouge_and_correct(run.top(), run.questions)["correct"]
    table = run.questions[["exposure", "conflict"]]
    table = table.assign(accuracy=is_correct, NLL=scores["nll"], PRO=scores["pro"]).dropna()
    long = table.melt(["exposure", "conflict"], var_name="measure").astype({"value": float})
    groups = long.groupby(["measure", "exposure", "conflict"])["value"]
    means = groups.agg(["size", "mean", "sem"]).reset_index()
    means = means.sort_values("measure", key=lambda names: names.str.lower(), kind="stable")
    means = means.reset_index(drop=True)
    means["mean_low"], means["mean_high"] = metrics.normal(means["mean"], means["sem"])
    # Accuracy is a share, for which the normal interval would be wrong near 0 and 1.
    is_share = means["measure"] == "accuracy"
    shares = means[is_share]
    ends = np.column_stack(metrics.wilson(shares["mean"], shares["size"]))
    means.loc[is_share, ["mean_low", "mean_high"]] = ends
    means = means.rename(columns={"size": "n_in_group"}).drop(columns="sem")
    return with_run(means, run, split)
