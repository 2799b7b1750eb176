"""Simulated worlds: questions, answers and log-probabilities of a model whose properties are known.

A world has one model and many questions. Each question has possible meanings, from which the truth
is drawn; each meaning has spellings, which are the answers that the model gives. The model's
probabilities of the meanings are the softmax of normal logits, whose standard deviation is drawn
for each question from 0 to twice the sharpness.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import log_softmax

from pro_lib.metrics.auroc import FloatArray

AnswersFound = Literal["most probable", "distinct samples", "samples"]


@dataclass(frozen=True)
class World:
    """The properties of a simulated world.

    The defaults are the base world.

    Attributes:
        sharpness: how unequal the probabilities of the meanings are; 0 makes them equal.
        n_meanings: number of possible meanings of the answer to each question.
        calibration: the truth is drawn with the model's probabilities to this power. The model is
            calibrated at 1, overconfident below 1 and underconfident above 1.
        n_spellings: spellings of each meaning, which share its probability at random.
        share_outside: probability that no meaning is the truth.
        answers_found: how the answers are found: the most probable ones, samples without
            repeats, or samples with repeats.
        n_answers: answers found per question.
    """

    sharpness: float = 4.0
    n_meanings: int = 30
    calibration: float = 1.0
    n_spellings: int = 1
    share_outside: float = 0.0
    answers_found: AnswersFound = "most probable"
    n_answers: int = 10


def simulate(
    world: World,
    n_questions: int,
    rng: np.random.Generator,
) -> tuple[FloatArray, np.ndarray]:
    """Return the answers to some questions of a world, and which questions are answered right.

    Returns:
        Log-probabilities of the answers found, (n_questions, n_answers), NaN where there are fewer;
        whether the most probable of them has the meaning that is true, (n_questions,).
    """
    deviations = rng.uniform(0, 2 * world.sharpness, (n_questions, 1))
    logits = deviations * rng.standard_normal((n_questions, world.n_meanings))
    truth = _draw_positions(world.calibration * logits, 1, rng)[:, 0]
    truth[rng.random(n_questions) < world.share_outside] = -1
    shares = rng.dirichlet(np.ones(world.n_spellings), logits.shape)
    spellings = log_softmax(logits, axis=1)[:, :, None] + np.log(shares)
    answers = spellings.reshape(n_questions, -1)
    positions = _find_answers(answers, world, rng)
    log_probs = np.take_along_axis(answers, positions, axis=1)
    most_probable = positions[np.arange(n_questions), log_probs.argmax(axis=1)]
    correct = most_probable // world.n_spellings == truth
    if world.answers_found == "distinct samples":
        is_same = positions[:, :, None] == positions[:, None, :]
        is_repeated = np.triu(is_same, 1).any(axis=1)
        log_probs[is_repeated] = np.nan
    return log_probs, correct


def _find_answers(answers: FloatArray, world: World, rng: np.random.Generator) -> np.ndarray:
    """Return the positions of the answers found, (n, n_answers)."""
    if world.answers_found == "most probable":
        last = min(world.n_answers, answers.shape[1]) - 1
        return np.argpartition(-answers, last, axis=1)[:, : world.n_answers]
    return _draw_positions(answers, world.n_answers, rng)


def _draw_positions(logits: FloatArray, n_draws: int, rng: np.random.Generator) -> np.ndarray:
    """Return positions, (n, n_draws), drawn with the probabilities of these logits, (n, M)."""
    # A number above all of these upper limits belongs to the last position.
    upper_limits = np.exp(log_softmax(logits, axis=1)).cumsum(axis=1)[:, :-1]
    numbers = rng.random((len(logits), n_draws, 1))
    return np.asarray((numbers > upper_limits[:, None, :]).sum(axis=2))
