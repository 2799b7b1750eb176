"""An answer with its values, their check, and the problem of an answer that is not used."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, ValidationError

from pro_lib.common import reasons
from pro_lib.common.validation import Format, Probability, Text, rule, sentence

# Words for problems that a reason alone does not describe, in messages such as "2 answers that end
# within a thought are left out".
NOT_RETURNED = "whose probability was not returned"
NO_FINISH_REASON = "without a finish reason"
OPEN_THOUGHT = "that end within a thought"
THOUGHT_IN_TOKENS = "whose log-probabilities include those of a thought"
# The words for a reason. No reason means that another answer stands for this one.
_WORDS = {
    reasons.FAILED: "that failed",
    reasons.FILTERED: "that a filter or a refusal stopped",
    reasons.CUT: "that were cut",
    reasons.TOOL_CALL: "that call a tool",
    reasons.NO_LOG_PROBS: "without log-probabilities",
    reasons.UNREADABLE: "that cannot be read",
    reasons.NO_ANSWER: "without text",
    "": "that are copies of another answer",
}
# A sum of log-probabilities in float32 may be a little above 0.
_ROUNDING = 1e-4
# A given sum or mean may differ from that of the tokens by this share and by this much per token.
_TOLERANCE = 1e-3


def _is_log_prob(value: object) -> bool:
    return isinstance(value, (int, float)) and -sys.float_info.max <= value <= _ROUNDING


_AT_MOST_ZERO = rule(
    (int, float), _is_log_prob, "must be a log-probability, a finite number of at most 0"
)
_TokenLogProb = Annotated[float, _AT_MOST_ZERO, AfterValidator(float)]
# Values above 0 are rounding errors; they become 0, so that no probability exceeds 1.
_LogProb = Annotated[_TokenLogProb, AfterValidator(lambda value: min(value, 0.0))]


class ParsedAnswer(NamedTuple):
    """An answer. Values that a file does not have are None.

    Attributes:
        text: the answer, without its thoughts.
        token_texts: the text of every token (bytes, where an API gives them), in the order of
            `token_log_probs`. The tokens may be more than those of the answer: a prompt that is
            echoed, or a thought.
        token_log_probs: the log-probability of every token, in nats.
        finished: whether the model ended the answer; False if the answer was cut at a length.
        token_ids: the id of every token.
        log_prob: the log-probability of all tokens together, in nats.
        end_log_prob: the log-probability of the ending.
        mean_log_prob: `log_prob` divided by the number of tokens.
        closed: whether the last token contains text and also ends the answer.
        correct, rouge_l: the verdict on the answer.
        finish_reason: in lower case.
        position: the position of the answer in the response.
        token_specials: whether a token is special, where the API says so.
        prompt: the text of the prompt, or of the question in it.
        n_prompt_tokens: the number of the prompt's tokens, as the server counts them.
        n_generated: the number of tokens that the model generated, as the server counts them.
        stop: the stop string that ended the answer, if the API names it.
        has_thoughts: whether the model wrote a thought before the answer.
        problem: why the log-probabilities cannot be used, as a sentence without subject.
        n_before, n_after: the numbers of tokens before and after the answer that are left out.
        lacks_ending: whether the ending has a placeholder instead of a log-probability.
    """

    text: Any = None
    token_texts: Any = None
    token_log_probs: Any = None
    finished: Any = True
    token_ids: Any = None
    log_prob: Any = None
    end_log_prob: Any = None
    mean_log_prob: Any = None
    closed: Any = False
    correct: Any = None
    rouge_l: Any = None
    finish_reason: Any = None
    position: int | None = None
    token_specials: Sequence[bool] | None = None
    prompt: str | None = None
    n_prompt_tokens: int | None = None
    n_generated: int | None = None
    stop: str | None = None
    has_thoughts: bool = False
    problem: str | None = None
    n_before: int = 0
    n_after: int = 0
    lacks_ending: bool = False


class _Checked(Format):
    """The values of an answer that a run has."""

    text: Text | None
    token_ids: list[int] | None
    token_log_probs: list[_TokenLogProb] | None
    end_log_prob: _LogProb | None
    log_prob: _LogProb | None
    finished: bool
    closed: bool
    correct: bool | None
    mean_log_prob: _LogProb | None
    rouge_l: Probability | None


RUN_COLUMNS = tuple(_Checked.model_fields)
NUMBER_COLUMNS = ("log_prob", "end_log_prob", "mean_log_prob", "rouge_l")


@dataclass(frozen=True, slots=True)
class Problem:
    """Why an answer is not used.

    Attributes:
        reason: one of `common.reasons.REASONS`, or "" if another answer stands for this one.
        sentence: the problem, if the error says more than the reason.
        remedy: what to do if all answers of a file have the problem.
        is_detail: whether the sentence differs from answer to answer, so that a warning shows it.
        words: the words for the problem in a warning; "" for those of the reason.
    """

    reason: str
    sentence: str = ""
    remedy: str = ""
    is_detail: bool = False
    words: str = ""

    @property
    def kind(self) -> str:
        """The words for the problem, as in "2 answers that failed are left out"."""
        return self.words or _WORDS[self.reason]


def run_values(answer: ParsedAnswer) -> dict[str, Any] | Problem:
    """Return the values of an answer by column of a run, or why one of them is wrong."""
    log_prob = answer.log_prob
    tokens = answer.token_log_probs
    can_be_summed = isinstance(tokens, list) and (tokens or answer.end_log_prob is not None)
    if log_prob is None and can_be_summed:
        with suppress(TypeError, OverflowError):
            log_prob = sum(tokens)
    try:
        if log_prob is not answer.log_prob:
            answer = answer._replace(log_prob=log_prob)
        values = _Checked.model_validate(answer)
    except ValidationError as error:
        return Problem(reasons.UNREADABLE, sentence(error), is_detail=True)
    if values.log_prob is None and (values.text is None or tokens == []):
        words = f"log_prob={answer.log_prob} must be given, or token_log_probs instead of it"
        return Problem(reasons.UNREADABLE, words, is_detail=True)
    return vars(values)


def contradiction(answer: ParsedAnswer) -> Problem | None:
    """Return the problem of an answer whose log-probabilities contradict each other, or None."""
    log_prob = answer.log_prob
    mean = answer.mean_log_prob
    tokens = answer.token_log_probs if isinstance(answer.token_log_probs, list) else []
    ending = answer.end_log_prob or 0.0
    sums = [value for value in (log_prob, mean) if value is not None]
    if not sums or not all(map(_is_log_prob, (*tokens, *sums, ending))):
        return None  # the check of single values refuses it
    total = sum(tokens) if tokens else log_prob
    if total is None:
        return None
    words = ""
    allowed = _TOLERANCE * (len(tokens) + 1 + abs(total))
    means = [total / max(len(tokens), 1), (total + ending) / (len(tokens) + 1)]
    if tokens and log_prob is not None and abs(log_prob - total) > allowed:
        words = f"log_prob={log_prob} contradicts token_log_probs, whose sum is {total:.6g}"
    elif tokens and mean is not None and min(abs(mean - each) for each in means) > allowed:
        words = f"mean_log_prob={mean} contradicts token_log_probs, whose mean is {means[0]:.6g}"
    elif mean is not None and mean < total + ending - allowed:
        words = f"mean_log_prob={mean} is below log_prob={total}"
    kind = "whose log-probabilities contradict each other"
    return Problem(reasons.CONTRADICTORY, words, is_detail=True, words=kind) if words else None
