"""Turn an answer, as an API returned it, into the answer of a record, or say why it is left out."""

from collections import Counter
from typing import Any

from pydantic import ValidationError

from pro_lib.common import reasons
from pro_lib.common.validation import sentence
from pro_lib.importing.formats import ParsedAnswer, ResponseFormat
from pro_lib.importing.left_out import (
    NO_FINISH_REASON,
    NOT_RETURNED,
    OPEN_THOUGHT,
    THOUGHT_IN_TOKENS,
    Problem,
)
from pro_lib.importing.records import CheckedAnswer, checked_answer
from pro_lib.importing.response_formats import NATURAL, NOT_ENDED
from pro_lib.importing.token_alignment import (
    ECHO_UNKNOWN,
    Alignment,
    AnswerTokens,
    Mismatch,
    align,
    is_placeholder,
)
from pro_lib.questions.tables import is_damaged

# Messages about answers that are scored on some of their tokens; they begin with "3 answers".
TOKENS_BEFORE = (
    "had other tokens before them (reasoning, a prefill or an echoed prompt, for example), "
    "which are not scored; their values are conditional on these tokens"
)
TOKENS_AFTER = (
    "had other tokens after them (a stop string, for example); they are scored without an ending"
)
ENDING_NOT_GIVEN = (
    "are scored without their ending, for whose probability the server returned a placeholder"
)
_THOUGHT_WORDS = (
    "the log-probabilities include those of a thought, "
    "and it cannot be told which belong to the answer"
)
# What finish reasons mean, by the reason why answers with them are left out.
_MEANINGS = {
    reasons.FAILED: "the request failed",
    reasons.FILTERED: "a filter or a refusal stopped the answer",
    reasons.TOOL_CALL: "the model called a tool",
}


def record_of(
    answer: ParsedAnswer,
    response_format: ResponseFormat,
    notes: Counter[str],
    prompt: str | None = None,
) -> CheckedAnswer | Problem:
    """Return a record's answer, or why the answer cannot be used.

    Args:
        answer: the answer, as an API returned it.
        response_format: the format of the response.
        notes: counts messages about answers that are scored on some of their tokens. The messages
            about this answer are added.
        prompt: the text of the prompt, or of the question in it, if it is known.
    """
    token_log_probs = _token_log_probs(answer)
    problem = (
        _missing_part(answer)
        or _missing_log_probs(answer, response_format)
        or _unusable_log_probs(answer, token_log_probs)
    )
    if problem is not None:
        return problem
    text = answer.text
    if isinstance(token_log_probs, list) and isinstance(text, str) and not is_damaged(text):
        alignment = align(_answer_tokens(answer, text, token_log_probs, prompt))
        if isinstance(alignment, Mismatch):
            return _mismatch_problem(alignment, token_log_probs)
        notes.update(_notes(answer, alignment))
        text = alignment.text
        token_log_probs = alignment.token_log_probs
    return _validated(answer, text, token_log_probs)


def _token_log_probs(answer: ParsedAnswer) -> Any:
    """Return the log-probabilities of the tokens, or None for an empty list beside a text."""
    if answer.text and not answer.token_log_probs:
        return None
    return answer.token_log_probs


def _validated(answer: ParsedAnswer, text: Any, token_log_probs: Any) -> CheckedAnswer | Problem:
    """Return the record of an answer with this text and these log-probabilities of its tokens."""
    log_prob = answer.log_prob if token_log_probs is None else None
    is_finished = answer.reason in NATURAL
    has_log_prob = token_log_probs is not None or log_prob is not None
    fields = {
        "text": text,
        "finished": is_finished,
        # An answer that was cut has no ending, so the ending adds nothing to its log-probability.
        "end_log_prob": 0.0 if has_log_prob and not is_finished else None,
        "correct": answer.correct,
        "log_prob": log_prob,
        "token_log_probs": token_log_probs,
    }
    try:
        return checked_answer(fields)
    except ValidationError as error:
        return Problem(reasons.UNREADABLE, sentence(error), is_detail=True)


def _missing_part(answer: ParsedAnswer) -> Problem | None:
    """Return the problem of an answer without a text or an ending of its own, or None."""
    if not isinstance(answer.reason, str):
        words = (
            "must be text: it says whether the answer is complete, and no chunk of a stream has it"
        )
        message = f"finish_reason={answer.reason!r} {words}"
        return Problem(reasons.UNREADABLE, message, words=NO_FINISH_REASON)
    reason = NOT_ENDED.get(answer.reason)
    if reason in _MEANINGS:
        message = f"{_MEANINGS[reason]} (finish reason {answer.reason!r})"
        return Problem(reason, message)
    if answer.text is None and answer.reason in NATURAL:
        return Problem(reasons.NO_ANSWER, "the answer has no text")
    if answer.text is None:
        return Problem(reasons.CUT, "the answer was cut before its text; raise the limit of tokens")
    if answer.has_thoughts and answer.text == "":
        message = "the answer ends within a thought; raise the limit of tokens"
        return Problem(reasons.CUT, message, words=OPEN_THOUGHT)
    return None


def _unusable_log_probs(answer: ParsedAnswer, token_log_probs: Any) -> Problem | None:
    """Return the problem of an answer whose log-probabilities are not those of the answer."""
    if answer.reason in NATURAL and token_log_probs == []:
        return Problem(reasons.NO_LOG_PROBS, words=NOT_RETURNED)
    has_only_sum = token_log_probs is None and answer.log_prob is not None
    if answer.has_thoughts and has_only_sum:
        return Problem(reasons.NO_LOG_PROBS, _THOUGHT_WORDS, words=THOUGHT_IN_TOKENS)
    return None


def _answer_tokens(
    answer: ParsedAnswer, text: str, log_probs: list, prompt: str | None
) -> AnswerTokens:
    """Return the text and the tokens of an answer for their alignment."""
    return AnswerTokens(
        text,
        answer.token_texts or [None] * len(log_probs),
        log_probs,
        finished=answer.reason in NATURAL,
        token_specials=answer.token_specials,
        text_offsets=answer.text_offsets,
        prompt=prompt,
        n_prompt_tokens=answer.n_prompt_tokens,
        n_generated=answer.n_generated,
        stop=answer.stop,
        has_reasoning=answer.has_thoughts,
    )


def _mismatch_problem(mismatch: Mismatch, log_probs: list) -> Problem:
    """Return the problem of an answer whose tokens do not fit its text."""
    if mismatch.reason == NOT_RETURNED:
        placeholders = [(n, value) for n, value in enumerate(log_probs) if is_placeholder(value)]
        place = "[{}]={}".format(*placeholders[0]) if placeholders else ""
        message = f"token_log_probs{place} stands for a probability that was not returned"
        return Problem(reasons.NO_LOG_PROBS, message, words=NOT_RETURNED)
    if mismatch.reason == THOUGHT_IN_TOKENS:
        return Problem(reasons.NO_LOG_PROBS, _THOUGHT_WORDS, words=THOUGHT_IN_TOKENS)
    remedy = "ask with echo=false" if mismatch.reason == ECHO_UNKNOWN else ""
    message = f"an answer {mismatch.reason}"
    return Problem(reasons.CONTRADICTORY, message, remedy, words=mismatch.reason)


def _notes(answer: ParsedAnswer, alignment: Alignment) -> list[str]:
    """Return the messages about the tokens of an answer that is scored."""
    notes = []
    if alignment.n_before and not answer.has_thoughts:  # thoughts have a message of their own
        notes.append(TOKENS_BEFORE)
    if alignment.n_after:
        notes.append(TOKENS_AFTER)
    if alignment.lacks_ending:
        notes.append(ENDING_NOT_GIVEN)
    return notes


def _missing_log_probs(answer: ParsedAnswer, response_format: ResponseFormat) -> Problem | None:
    """Return the problem of an answer without log-probabilities whose API returns them, or None."""
    is_missing = answer.token_log_probs is None or (answer.text and not answer.token_log_probs)
    if not is_missing or answer.log_prob is not None:
        return None
    if answer.problem is not None:
        return Problem(reasons.NO_LOG_PROBS, answer.problem)
    if answer.lacks_log_probs or not response_format.request:
        return None
    remedy = f"ask for them with {response_format.request}"
    return Problem(reasons.NO_LOG_PROBS, "logprobs are missing", remedy)
