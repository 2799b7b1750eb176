"""P(True): how probable a model finds it that its own answer is true (Kadavath et al. 2022)."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from pro_lib.common.validation import SentenceError
from pro_lib.metrics.yes_no import ChoiceModel, yes_no_log_probs


def p_true_prompt(question: str, answer: str, ideas: Sequence[str] = (), *, shots: str = "") -> str:
    """Write the prompt that asks a model whether an answer is true.

    Args:
        question: the question.
        answer: the answer to evaluate.
        ideas: other answers that the model has sampled, shown before the answer.
        shots: text in front of the prompt, such as solved examples in the same format.

    Returns:
        The prompt, which ends before the choice (" (A)" for true, " (B)" for false).

    Example:
        >>> print(p_true_prompt("Who painted Guernica?", "Picasso"))
        Question: Who painted Guernica?
        Possible answer: Picasso
        Is the possible answer:
        (A) True
        (B) False
        The possible answer is:
    """
    lines = [f"Question: {question.strip()}"]
    if ideas:
        lines.append("Here are some brainstormed ideas:")
        lines += [idea.strip() for idea in ideas]
    lines += [
        f"Possible answer: {answer.strip()}",
        "Is the possible answer:",
        "(A) True",
        "(B) False",
        "The possible answer is:",
    ]
    return shots + "\n".join(lines)


def p_true(
    model: ChoiceModel,
    questions: Sequence[str],
    answers: Sequence[str],
    *,
    ideas: Sequence[Sequence[str]] | None = None,
    shots: str = "",
    cache: str | Path | None = None,
    progress: bool = False,
) -> NDArray[np.float64]:
    """Return the uncertainty 1 - P(True) of each answer: higher = more uncertain.

    P(True) is the probability of "(A)" divided by that of "(A)" or "(B)", in the prompt of
    `p_true_prompt` (Kadavath et al. 2022, "Language Models (Mostly) Know What They Know",
    section 3). The model that answered evaluates its own answers; another model may be passed.

    Args:
        model: an object with `choice_log_probs`, such as a loaded model.
        questions: n questions.
        answers: (n,) the answer to evaluate for each question.
        ideas: for each question, other answers to show before the answer; None shows none.
        shots: text in front of every prompt.
        cache: an append-only file. A prompt that the same model has already answered is read from
            it.
        progress: show a progress bar.

    Returns:
        (n,) uncertainties in [0, 1]. NaN where the model does not say how probable the choices are.

    Raises:
        SentenceError: the arguments have different lengths.

    Example:
        >>> class Undecided:
        ...     def choice_log_probs(self, prompts, choices):
        ...         return np.log([[0.3, 0.1]] * len(prompts))
        >>> p_true(Undecided(), ["Who painted Guernica?"], ["Picasso"]).round(3)
        array([0.25])
    """
    ideas = [()] * len(questions) if ideas is None else ideas
    if not len(questions) == len(answers) == len(ideas):
        raise SentenceError(
            f"questions, answers and ideas must have the same length; "
            f"got {len(questions)}, {len(answers)} and {len(ideas)}"
        )
    prompts = [
        p_true_prompt(question, answer, idea, shots=shots)
        for question, answer, idea in zip(questions, answers, ideas, strict=True)
    ]
    log_probs = yes_no_log_probs(model, prompts, cache=cache, progress=progress)
    uncertainties: NDArray[np.float64] = expit(log_probs[:, 1] - log_probs[:, 0])
    return uncertainties
