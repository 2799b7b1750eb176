"""The gain of PRO over NLL: in simulated worlds, and in one setting without a suspected cause."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import logsumexp

from pro_lib import scoring
from pro_lib.evaluation.evaluation import DEFAULT_ALPHA, Evaluation
from pro_lib.evaluation.judgement import Judgement, Verdicts
from pro_lib.evaluation.tables.settings import with_setting
from pro_lib.evaluation.tables.worlds import World, simulate
from pro_lib.metrics.auroc import FloatArray
from pro_lib.runs.run import Run

FIXED_KS = (2, 5, 10)
WORLD_ALPHAS = (0.1, 0.4)
BASE_WORLD = World()
_SPELLINGS = (1, 2, 3, 5)
# The properties that are varied, in words, with their names and values in `World`.
# The base world has one of the values.
VARIED = {
    "sharpness of probabilities": ("sharpness", (1.0, 2.0, 4.0, 8.0)),
    "possible meanings of an answer": ("n_meanings", (3, 10, 30, 100)),
    "calibration (below 1: overconfident)": ("calibration", (0.5, 0.7, 1.0, 1.4, 2.0)),
    "spellings of each meaning": ("n_spellings", _SPELLINGS),
    "probability that no meaning is true": ("share_outside", (0.0, 0.2, 0.5)),
    "how answers are found": (
        "answers_found",
        ("most probable", "distinct samples", "samples"),
    ),
    "answers found per question": ("n_answers", (2, 5, 10, 20)),
}
# The spellings are varied again in worlds of a model that is not calibrated.
BOTH_VARIED = "spellings and calibration"
_OTHER_CALIBRATIONS = (0.5, 0.7, 1.4, 2.0)


def worlds(*, n_questions: int = 20_000, seed: int = 0) -> pd.DataFrame:
    """Return how much PRO gains over NLL in simulated worlds, which differ from a base world.

    The base world is a row of every group in which one property is varied. It is one world: column
    `world` has the same number there.

    Columns:
    - n_questions and n_correct.
    - varied: which property is varied, in words; level: its value as text. `spellings and
      calibration` varies the spellings in worlds of a model that is not calibrated.
    - world: number of the world; is_base: whether it is the base world.
    - sharpness, n_meanings, calibration, n_spellings, share_outside, answers_found, n_answers: the
      properties of the world (`worlds.World`).
    - accuracy: the share of correct answers.
    - the columns of `pro_minus_nll`.
    """
    groups = _groups()
    numbers: dict[World, int] = {}
    for _, _, world in groups:
        numbers.setdefault(world, len(numbers))
    gains = {}
    for world, number in numbers.items():
        rng = np.random.default_rng([seed, number])
        log_probs, correct = simulate(world, n_questions, rng)
        gain = pro_minus_nll(log_probs, Verdicts(correct), alphas=WORLD_ALPHAS)
        labels = {
            "n_questions": n_questions,
            "n_correct": int(correct.sum()),
            "world": number,
            "is_base": world == BASE_WORLD,
            **asdict(world),
            "accuracy": correct.mean(),
        }
        gains[world] = gain.assign(**labels)[[*labels, *gain.columns]]
    parts = []
    for varied, level, world in groups:
        part = gains[world].copy()
        part.insert(2, "varied", varied)
        part.insert(3, "level", level)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def causes(evaluation: Evaluation, run: Run, *, alpha: float = DEFAULT_ALPHA) -> pd.DataFrame:
    """Return how much PRO gains over NLL if each suspected cause of a difference is removed alone.

    Args:
        evaluation: the judged answers of one setting, each answer counted once.
        run: the run of these questions.
        alpha: the α of PRO, besides K = 2, 5 and 10.

    Returns:
        Columns: those of the setting; cause, what was changed; those of `pro_minus_nll`. A cause is
        left out if the run does not have the answers for it.
    """
    run = run.select(question_ids=list(evaluation.answers["question_id"]))
    parts = []
    for cause, log_probs in _without_causes(evaluation, run).items():
        if log_probs is None:
            continue
        gain = pro_minus_nll(
            log_probs,
            evaluation.judgement,
            alphas=[alpha],
            search_alpha=evaluation.search_alpha,
        )
        gain.insert(0, "cause", cause)
        parts.append(gain)
    return with_setting(pd.concat(parts, ignore_index=True), evaluation)


def two_or_more(
    evaluation: Evaluation,
    alphas: Sequence[float] = (0.02, 0.1, 0.2, 0.4),
) -> pd.DataFrame:
    """Return how many questions keep two or more answers at each α.

    Only for these can PRO differ from NLL.

    Columns: those of the setting; alpha; n_two_or_more and share_two_or_more.
    """
    is_more = scoring.adaptive_k(evaluation.log_probs, list(alphas)) > 1
    columns = {
        "alpha": alphas,
        "n_two_or_more": is_more.sum(axis=0),
        "share_two_or_more": is_more.mean(axis=0),
    }
    return with_setting(pd.DataFrame(columns), evaluation)


def pro_minus_nll(
    log_probs: FloatArray,
    judgement: Judgement,
    *,
    alphas: Sequence[float],
    search_alpha: float | None = None,
) -> pd.DataFrame:
    """Return AUROC of PRO minus AUROC of NLL, for some α and for K = 2, 5 and 10.

    Args:
        log_probs: (n, N) log-probabilities of the answers.
        judgement: which answers are correct.
        alphas: the α of the rows with adaptive K.
        search_alpha: the α of an exact search, if the answers come from one.

    Returns:
        A row per α and K, with the columns

        - nll_auroc: the AUROC of NLL.
        - method (always PRO), k and alpha.
        - k_choice: `adaptive` (K by α) or `fixed`.
        - n_differ: the fewest questions that must move so that PRO and NLL have one order.
        - auroc_minus_nll with its interval and p_value (not corrected).
    """
    nll = scoring.nll(log_probs)
    # Answers that repeat, or sum to more than 1, are among those that are compared.
    with warnings.catch_warnings(action="ignore", category=scoring.PremiseWarning):
        options = {"search_alpha": search_alpha}
        by_alpha = scoring.pro(log_probs, alpha=alphas, **options)
        by_k = scoring.pro_at_k(log_probs, FIXED_KS, **options)
    scores = np.column_stack([by_alpha, by_k])
    nll_auroc = judgement.auroc(nll[:, None]).value.item()
    differences = judgement.differences(scores, nll).columns("nll")
    n_alphas = len(alphas)
    n_ks = len(FIXED_KS)
    return pd.DataFrame(
        {
            "nll_auroc": nll_auroc,
            "method": "PRO",
            "k_choice": ["adaptive"] * n_alphas + ["fixed"] * n_ks,
            "k": pd.array([None] * n_alphas + list(FIXED_KS), dtype="Int64"),
            "alpha": [*alphas, *[np.nan] * n_ks],
            **differences,
        }
    )


def _groups() -> list[tuple[str, str, World]]:
    """Return the property that is varied, its value as text, and the world, for each row."""
    groups = []
    for words, (name, levels) in VARIED.items():
        for level in levels:
            text = level if isinstance(level, str) else f"{level:g}"
            changed: dict[str, Any] = {name: level}
            groups.append((words, text, replace(BASE_WORLD, **changed)))
    for calibration in _OTHER_CALIBRATIONS:
        for n_spellings in _SPELLINGS:
            world = replace(BASE_WORLD, calibration=calibration, n_spellings=n_spellings)
            groups.append((BOTH_VARIED, str(n_spellings), world))
    return groups


def _merged_spellings(evaluation: Evaluation) -> FloatArray | None:
    """Return log-probabilities (n, C) of the meanings by the first similarity, if there is one."""
    for score in evaluation.alpha_scores.values():
        if "meaning_log_probs" in score.inputs:
            return np.asarray(score.inputs["meaning_log_probs"])
    return None


def _without_causes(evaluation: Evaluation, run: Run) -> dict[str, FloatArray | None]:
    """Return log-probabilities (n, N) without each cause, or None if the run cannot say."""
    answers = evaluation.log_probs
    most = np.nanmax(answers, axis=1)
    at_least = np.minimum(most, np.log(0.01))
    total = logsumexp(np.nan_to_num(answers, nan=-np.inf), axis=1, keepdims=True)
    has_endings = "closed" not in run.answers or run.answers["end_log_prob"].notna().all()
    without_endings = run.log_probs(convention="answer_tokens") if has_endings else None
    return {
        "nothing changed": answers,
        "answers below 0.01 left out": np.where(answers >= at_least[:, None], answers, np.nan),
        "probabilities made to sum to 1": answers - total,
        "spellings merged": _merged_spellings(evaluation),
        "endings left out": without_endings,
        "repeats kept": run.log_probs(distinct=False),
    }
