"""Settings that the tests of figures invent: splits of made-up answers, and rows of tables."""

from dataclasses import replace

import numpy as np
import pandas as pd

from pro_lib import metrics, scoring
from pro_lib.evaluation.alpha_choice import Splits
from pro_lib.evaluation.evaluation import Evaluation
from pro_lib.runs.run import Run
from pro_lib.runs.storage import Cost, RunInfo


def some_questions(n=80, seed=0):
    """Distinct answers of mass below 1, some missing; surer questions are more often right."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(6, 0.4), size=n)[:, :5] + 1e-9
    correct = rng.random(n) < probs.max(axis=1)
    probs[rng.random(probs.shape) < 0.3] = np.nan
    probs[np.isnan(probs).all(axis=1), 0] = 0.01
    return np.log(probs), correct


def evaluation_of(log_probs, correct, *, rouge_l=None, search_alpha=None, **baselines):
    """An evaluation of these answers; the question with right answers has ROUGE-L 1."""
    answers = pd.DataFrame({"question_id": np.arange(len(correct)).astype(str), "correct": correct})
    answers["rouge_l"] = np.asarray(correct, float) if rouge_l is None else rouge_l
    scored = pd.DataFrame(baselines, index=answers.index)
    _, exclusions = metrics.usable(scored, correct)
    return Evaluation(
        "m", "d", "test", answers, np.asarray(log_probs), scored, exclusions, (), search_alpha
    )


LOG_PROBS, CORRECT = some_questions()
EVALUATION = evaluation_of(LOG_PROBS, CORRECT, NLL=scoring.nll(LOG_PROBS))


def splits_of(evaluation, n_validation=None, **options):
    """The same questions for validation and for the report."""
    return Splits(evaluation, evaluation, n_validation, **options)


def two_settings():
    """Return the splits of two settings, with NLL; their questions differ."""
    made = []
    for seeds in ((1, 2), (3, 4)):
        pools = [some_questions(120, seed=seed) for seed in seeds]
        parts = [evaluation_of(*pool, NLL=scoring.nll(pool[0])) for pool in pools]
        made.append(Splits(*(replace(part, strategy="diverse_beam") for part in parts), None))
    return made


SPLITS = two_settings()


def setting_row(difference, *, half_width=0.01, p_value=0.5, n_correct=500, **others):
    """Return a row of a setting with 1,000 questions, in which PRO has this difference to NLL."""
    row = {"dataset": "d", "model": "m", "protocol": "paper", "n_questions": 1000}
    row |= {"n_correct": n_correct, "p_value": p_value, "auroc_minus_nll": difference}
    row |= {"auroc_minus_nll_low": difference - half_width}
    row |= {"auroc_minus_nll_high": difference + half_width}
    return row | others


def beams():
    """Two questions: one with a repeated and a cut answer, and one with one answer."""
    rows = []
    for question, text, probability, finished in (
        ("a", "yes", 0.6, True),
        ("a", "yes", 0.6, True),
        ("a", "no", 0.3, True),
        ("a", "well", 0.05, False),
        ("b", "no", 0.2, True),
    ):
        answer = {"question_id": question, "rank": len(rows), "text": text, "token_ids": None}
        answer |= {"token_log_probs": [np.log(probability)], "log_prob": np.log(probability)}
        rows.append(answer | {"end_log_prob": np.nan, "finished": finished})
    questions = [
        {"question_id": name, "question": f"{name}?", "references": ["no"], "split": "test"}
        for name in "ab"
    ]
    cost = Cost(
        prompt_tokens=30, token_forwards=10, model_calls=5, seconds=2.0, peak_memory_bytes=2**21
    )
    return Run(
        pd.DataFrame(rows), pd.DataFrame(questions), RunInfo("d", "m", "diverse_beam", cost=cost)
    )
