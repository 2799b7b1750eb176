"""The tables of guarantees: accuracy on the answered questions, answer sets and the entropy."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from pro_lib import metrics
from pro_lib.evaluation.evaluate import evaluate
from pro_lib.evaluation.evaluation import Splits, alpha_grid
from pro_lib.evaluation.guarantees import guarantee, miss_rate, set_threshold
from pro_lib.evaluation.tables.settings import (
    auroc_columns,
    method_columns,
    with_run,
    with_setting,
)
from pro_lib.metrics.auroc import FloatArray
from pro_lib.metrics.correctness import Choices, rouge_and_correct
from pro_lib.runs.run import Run

# The shares of questions that a set of answers may miss, and the αs that are fixed beforehand.
DELTAS = (0.3, 0.4, 0.5, 0.6)
FIXED_ALPHAS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4)


def guarantees(
    splits: Sequence[Splits],
    *,
    targets: Sequence[float] | None = None,
    alpha: float = 0.4,
    confidence: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the share of questions that each method may answer, and the accuracy on these.

    All validation questions decide about the guarantee (`guarantees.guarantee`). The reported
    questions show how many questions it lets a method answer, and how many of these answers are
    correct. One question of each text is used, drawn with `seed`.

    Args:
        splits: the validation and reported questions of each setting.
        targets: the accuracies to guarantee; None chooses them (`default_targets`).
        alpha: α of PRO.
        confidence: the probability that a guarantee holds, for each row by itself.
        seed: the seed of the drawn questions.

    Returns:
        A table with the columns of the setting, and

        - method, similarity, alpha and alpha_choice.
        - target and confidence.
        - n_validation: the number of validation questions.
        - threshold: questions with a lower score may be answered. It is missing if nothing is
          guaranteed, and infinite if every question may be answered.
        - coverage: the share of reported questions below the threshold.
        - accuracy: that of these questions, with its 95 % interval. From labels of a sample, it is
          an estimate, and NaN if fewer than 20 of these answers have a label.
    """
    targets = default_targets(splits) if targets is None else targets
    tables = []
    for setting in splits:
        reported = setting.reported.one_per_text(seed=seed)
        scores = reported.with_pro({"PRO": alpha})
        validation_scores = setting.pool.with_pro({"PRO": alpha})
        rows = []
        names = []
        for name, target in itertools.product(scores, targets):
            result = guarantee(
                validation_scores[name],
                setting.pool.judgement.verdicts,
                target=target,
                confidence=confidence,
                unlabelled=scores[name],
                texts=setting.pool.answers.get("text_number"),
                seed=seed,
            )
            is_answered = np.asarray(result.answers(scores[name]))
            row = {
                "target": target,
                "confidence": confidence,
                "n_validation": result.n_validation,
                "threshold": result.threshold,
                "coverage": np.count_nonzero(is_answered) / len(is_answered),
                **reported.judgement.accuracy_of(is_answered).columns("accuracy"),
            }
            rows.append(row)
            names.append(str(name))
        methods = method_columns(names, alphas={"PRO": alpha}, alpha_choice="default")
        results = pd.DataFrame(rows).astype({"threshold": float})
        tables.append(with_setting(pd.DataFrame(methods).join(results), reported))
    return pd.concat(tables, ignore_index=True)


def default_targets(splits: Sequence[Splits]) -> list[float]:
    """Return three accuracies to guarantee: 0.7, 0.8 and 0.9, or lower ones.

    If fewer than 0.4 of all validation questions are answered correctly, the targets are the next
    three tenths above that share.
    """
    accuracy = float(np.mean([setting.pool.correct.mean() for setting in splits]))
    first = 7 if accuracy >= 0.4 else int(np.ceil(10 * accuracy)) + 1
    return [tenths / 10 for tenths in range(first, first + 3)]


def answer_sets(
    runs: Iterable[Run],
    *,
    split: str = "test",
    choices: Choices | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Return how often the set of all answers with p ≥ α has no correct answer.

    Rows with a `delta` have the α that validation questions choose for it, τ
    (`guarantees.set_threshold`). Rows without one have an α that is fixed beforehand.

    Args:
        runs: exact searches (strategy `threshold`) of validation questions and those of `split`.
        split: the split to report.
        choices: what makes an answer correct; None is ROUGE-L above 0.3.
        seed: the seed with which one validation question of each text is drawn.

    Returns:
        A table with the dataset, model, strategy, split, n_questions, and

        - delta: the share of questions whose set may miss every correct answer.
        - alpha: α of the sets. It is missing if no set can be issued.
        - missed_limit: for a fixed α, the 95 % upper limit of the share missed, from validation.
        - missed: the share of reported questions whose set has no correct answer, with its 95 %
          interval. A question that the search could not decide counts as missed.
        - set_size: the mean number of answers in a set.
        - share_empty: the share of empty sets.
        - auroc: that of PRO at this α, with its 95 % interval.

        The table is empty without runs.
    """
    tables = [_answer_sets(run, split, choices or Choices(), seed) for run in runs]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def entropies(
    searches: Iterable[Run], samples: Iterable[Run], *, split: str = "test"
) -> pd.DataFrame:
    """Return the entropy of the answers to each question, and the bounds of the search.

    Args:
        searches: exact searches (strategy `threshold`).
        samples: samples (strategy `multinomial`) of the same models and questions.
        split: the split to report.

    Returns:
        A table with a row per question: the dataset, model, strategy, split and n_questions;
        question_id; tree_bound and upper_bound of the search; entropy with its 95 % interval,
        estimated from the samples (`Run.entropy`). All are in nats. The table is empty without
        runs.
    """
    tables = []
    for search, sample in zip(searches, samples, strict=True):
        reported = search.select(split=split)
        ids = list(reported.questions["question_id"])
        sample = sample.select(question_ids=ids)
        estimate = sample.entropy()
        names = {"estimate": "entropy", "low": "entropy_low", "high": "entropy_high"}
        bounds = reported.questions[["question_id", "tree_bound", "upper_bound"]]
        tables.append(with_run(bounds.join(estimate.rename(columns=names)), sample, split))
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def _answer_sets(run: Run, split: str, choices: Choices, seed: int) -> pd.DataFrame:
    """Return the rows of one run in the table of `answer_sets`."""
    pool = run.select(split="validation")
    reported = run.select(split=split)
    validation = _correct_probabilities(pool, choices)
    search_alpha = float(run.search_alpha or 0)
    options = {"search_alpha": search_alpha, "texts": pool.questions["question"], "seed": seed}
    rows: list[dict[str, float | None]] = []
    for delta in DELTAS:
        rows.append({"delta": delta, "alpha": set_threshold(validation, delta=delta, **options)})
    for alpha in alpha_grid(search_alpha, alphas=FIXED_ALPHAS):
        _, limit = miss_rate(validation, alpha=alpha, **options)
        rows.append({"alpha": alpha, "missed_limit": limit})
    table = pd.DataFrame(rows).astype(float)
    probabilities = _correct_probabilities(reported, choices)
    # No probability is below NaN, so that nothing is missed if no set is issued.
    table["missed"] = (probabilities[:, None] < table["alpha"].to_numpy()).mean(axis=0)
    ends = metrics.wilson(table["missed"], len(probabilities))
    table["missed_low"], table["missed_high"] = ends
    sizes = _sizes_and_auroc(reported, choices, table["alpha"].dropna().unique())
    return with_run(table.merge(sizes, on="alpha", how="left"), reported, split)


def _sizes_and_auroc(run: Run, choices: Choices, alphas: np.ndarray) -> pd.DataFrame:
    """Return the sizes of the sets and AUROC of PRO, a row for each α."""
    probabilities = np.exp(run.log_probs())
    sizes = (probabilities[:, :, None] >= alphas).sum(axis=1)
    evaluation = evaluate(run, choices=choices).judged
    columns = {
        "alpha": alphas,
        "set_size": sizes.mean(axis=0),
        "share_empty": (sizes == 0).mean(axis=0),
        **auroc_columns(np.asarray(evaluation.pro(alphas)), evaluation),
    }
    return pd.DataFrame(columns)


def _correct_probabilities(run: Run, choices: Choices) -> FloatArray:
    """Return the probability of the most probable correct answer to each question, (n,).

    It is 0 if the search found no correct answer, or was undecided.
    """
    answers = run.ranked_answers()
    questions = run.questions.iloc[answers["row"]].reset_index(drop=True)
    is_correct = rouge_and_correct(answers, questions, choices)["correct"].astype(bool)
    probabilities = np.zeros(len(run.questions))
    np.maximum.at(probabilities, answers["row"], np.exp(answers["value"]) * is_correct)
    return np.where(run.questions["status"] == "undecided", 0.0, probabilities)
