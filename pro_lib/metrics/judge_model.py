"""A language model as judge of correctness: the probability that an answer is right.

The judge reads the question, the accepted answers and the answer to judge, and chooses between
two continuations. Its verdict is the probability of the first one. `judge` never takes a refusal,
or a value that the model did not return, for a verdict.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit

from pro_lib.common.validation import SentenceError
from pro_lib.metrics.correctness import joined_references
from pro_lib.metrics.yes_no import YES_AND_NO, ChoiceModel, yes_no_log_probs

JUDGE_THRESHOLD = 0.5
# Both choices together must have this probability. With less, the model says something else.
LEAST_MASS = 0.5


def judge_prompt(question: str, references: Sequence[str], answer: str, *, shots: str = "") -> str:
    """Write the prompt that asks a judge whether an answer is right.

    Args:
        question: the question.
        references: the accepted answers.
        answer: the answer to judge.
        shots: text in front of the prompt, such as solved examples in the same format.

    Returns:
        The prompt, which ends before the choice (" (A)" for right, " (B)" for wrong).

    Example:
        >>> print(judge_prompt("Who painted Guernica?", ["Pablo Picasso", "Picasso"], "Dali"))
        Question: Who painted Guernica?
        Accepted answers: Pablo Picasso; Picasso
        Proposed answer: Dali
        Does the proposed answer mean the same as an accepted answer?
        (A) Yes
        (B) No
        The choice is:
    """
    lines = [
        f"Question: {question.strip()}",
        f"Accepted answers: {joined_references(references)}",
        f"Proposed answer: {answer.strip()}",
        "Does the proposed answer mean the same as an accepted answer?",
        "(A) Yes",
        "(B) No",
        "The choice is:",
    ]
    return shots + "\n".join(lines)


# Solved examples: a question, its references, an answer, and whether it is right. Base models need
# examples to reply with a choice at all.
_EXAMPLES = (
    ("Which river flows through Vienna?", ["Danube", "Donau"], "the Danube river", True),
    ("Who wrote the opera Fidelio?", ["Ludwig van Beethoven", "Beethoven"], "Mozart", False),
    ("In which year did Apollo 11 land?", ["1969"], "1972", False),
    ("What gas do plants take in?", ["carbon dioxide", "CO2"], "CO2 from the air", True),
)
JUDGE_SHOTS = "".join(
    f"{judge_prompt(question, references, answer)}{YES_AND_NO[0 if is_right else 1]}\n\n"
    for question, references, answer, is_right in _EXAMPLES
)


def judge(  # noqa: PLR0913 - the settings of a judge, all by name
    questions: Sequence[str],
    references: Sequence[Sequence[str]],
    answers: Sequence[str],
    *,
    model: ChoiceModel,
    shots: str = JUDGE_SHOTS,
    least_mass: float = LEAST_MASS,
    cache: str | Path | None = None,
    progress: bool = False,
    confirm: Callable[[list[str]], None] | None = None,
) -> pd.DataFrame:
    """Ask a language model how probable it is that each answer is right.

    Args:
        questions: n questions.
        references: for each question, its accepted answers.
        answers: (n,) the answers to judge.
        model: an object with `choice_log_probs`, such as a loaded model or a connected server.
        shots: text in front of every prompt; four solved examples by default.
        least_mass: least probability of both choices together. Below it the model wants to say
            something else, and there is no verdict.
        cache: an append-only file of verdicts. A prompt that the same model has already answered
            is read from it, so an interrupted call continues where it stopped.
        progress: show a progress bar.
        confirm: called once with the prompts that will be sent, such as to ask about the cost. An
            error that it raises sends none.

    Returns:
        One row per answer, with the columns

        - p_right: the probability that the answer is right, given that the judge chooses. It is NaN
          without a verdict.
        - mass: the probability of both choices together. If the model lists one choice only, and
          it has more than one half, the other choice gets the rest. NaN if it is unknown.
        - status: `judged`, `refused` if the mass is too small, or `unknown` if the model did not
          return a probability.

    Raises:
        SentenceError: the arguments have different lengths, or a question has no reference.
        RunError: the cache cannot be read or written.

    Example:
        >>> class Strict:
        ...     name, fingerprint = "strict", "1"
        ...     def choice_log_probs(self, prompts, choices):
        ...         return np.log([[0.2, 0.6]] * len(prompts))
        >>> judge(["Who?"], [["Ada"]], ["Bob"], model=Strict()).round(2)
           p_right  mass  status
        0     0.25   0.8  judged
    """
    if not len(questions) == len(references) == len(answers):
        raise SentenceError(
            f"questions, references and answers must have the same length; "
            f"got {len(questions)}, {len(references)} and {len(answers)}"
        )
    for row, accepted in enumerate(references):
        if isinstance(accepted, str) or not len(accepted):
            raise SentenceError(f"references must be a list of texts for each question; row {row}")
    rows = zip(questions, references, answers, strict=True)
    prompts = [judge_prompt(*row, shots=shots) for row in rows]
    log_probs = yes_no_log_probs(model, prompts, cache=cache, progress=progress, confirm=confirm)
    mass = np.nansum(np.exp(log_probs), axis=1)
    is_unknown = np.isnan(log_probs).all(axis=1)
    is_refused = (mass < least_mass) | np.isnan(log_probs).any(axis=1)
    status = np.select([is_unknown, is_refused], ["unknown", "refused"], "judged")
    p_right = np.where(status == "judged", expit(log_probs[:, 0] - log_probs[:, 1]), np.nan)
    mass = np.where(is_unknown, np.nan, mass)
    return pd.DataFrame({"p_right": p_right, "mass": mass, "status": status})
