"""Decide whether an answer can be used, and keep the tokens that spell it."""

from collections import Counter
from typing import Any

from pro_lib.common import reasons
from pro_lib.importing.answers import Answer, checked, contradiction
from pro_lib.importing.left_out import (
    NO_FINISH_REASON,
    NOT_RETURNED,
    OPEN_THOUGHT,
    THOUGHT_IN_TOKENS,
    Problem,
)
from pro_lib.importing.response_formats import NATURAL, NOT_ENDED, ResponseFormat
from pro_lib.importing.token_alignment import (
    DIFFERENT,
    ECHO_UNKNOWN,
    Alignment,
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
_REMEDIES = {
    ECHO_UNKNOWN: "ask with echo=false",
    DIFFERENT: "remove the texts of the tokens to score all of them",
}
# What finish reasons mean, by the reason why answers with them are left out.
_MEANINGS = {
    reasons.FAILED: "the request failed",
    reasons.FILTERED: "a filter or a refusal stopped the answer",
    reasons.TOOL_CALL: "the model called a tool",
}


def usable(
    answer: Answer, response_format: ResponseFormat, prompt: str | None, notes: Counter[str]
) -> dict[str, Any] | Problem:
    """Return the values of an answer by column of a run, or why the answer cannot be used.

    Args:
        answer: the answer, as it was parsed.
        response_format: its format.
        prompt: the text of the prompt, or of the question in it, if it is known.
        notes: counts messages about answers that are scored on some of their tokens.
    """
    if not response_format.is_record:
        problem = _problem(answer)
        if problem is not None:
            return problem
        tokens = answer.token_log_probs if answer.token_log_probs or not answer.text else None
        finished = answer.reason in NATURAL
        answer = answer._replace(finished=finished, token_log_probs=tokens, prompt=prompt)
    else:
        answer = answer._replace(prompt=prompt)
    tokens = answer.token_log_probs
    problem = contradiction(answer) if answer.token_texts is None else None
    is_spelled = isinstance(tokens, list) and isinstance(answer.text, str)
    is_compared = answer.token_texts is not None or not response_format.is_record
    if problem is None and is_spelled and is_compared and not is_damaged(answer.text):
        alignment = align(answer)
        if isinstance(alignment, Mismatch):
            return _mismatch_problem(alignment, answer)
        notes.update(_notes(answer, alignment))
        answer = _with_alignment(answer, alignment, response_format)
        problem = contradiction(answer)
    if problem is not None:
        return problem
    has_log_prob = answer.token_log_probs is not None or answer.log_prob is not None
    if not response_format.is_record and has_log_prob and answer.finished is False:
        # An answer that was cut has no ending, so the ending adds nothing to its log-probability.
        answer = answer._replace(end_log_prob=0.0)
    return checked(answer)


def _with_alignment(
    answer: Answer, alignment: Alignment, response_format: ResponseFormat
) -> Answer:
    """Return an answer with only the tokens that spell its text."""
    tokens = alignment.token_log_probs
    is_whole = tokens == answer.token_log_probs
    if is_whole and answer.text == alignment.text and answer.log_prob is None:
        return answer
    ids = answer.token_ids
    if isinstance(ids, list):
        ids = ids[alignment.n_before : alignment.n_before + len(tokens)]
    # The server's sum is that of all tokens.
    is_own_sum = is_whole and response_format.is_record
    return answer._replace(
        text=alignment.text,
        token_log_probs=tokens,
        token_ids=ids,
        log_prob=answer.log_prob if is_own_sum else None,
        mean_log_prob=answer.mean_log_prob if is_own_sum else None,
    )


def _problem(answer: Answer) -> Problem | None:
    """Return the problem of an answer by what its API says about it, or None."""
    if answer.problem is not None:
        return Problem(reasons.NO_LOG_PROBS, answer.problem)
    if not isinstance(answer.reason, str):
        words = (
            "must be text: it says whether the answer is complete, and no chunk of a stream has it"
        )
        message = f"finish_reason={answer.reason!r} {words}"
        return Problem(reasons.UNREADABLE, message, words=NO_FINISH_REASON)
    reason = NOT_ENDED.get(answer.reason)
    if reason in _MEANINGS:
        return Problem(reason, f"{_MEANINGS[reason]} (finish reason {answer.reason!r})")
    is_finished = answer.reason in NATURAL
    if answer.text is None and is_finished:
        return Problem(reasons.NO_ANSWER, "the answer has no text")
    if answer.text is None:
        return Problem(reasons.CUT, "the answer was cut before its text; raise the limit of tokens")
    if answer.has_thoughts and answer.text == "":
        message = "the answer ends within a thought; raise the limit of tokens"
        return Problem(reasons.CUT, message, words=OPEN_THOUGHT)
    if answer.token_log_probs:
        return None
    if is_finished and not answer.text and answer.log_prob is None:
        return Problem(reasons.NO_LOG_PROBS, words=NOT_RETURNED)
    if answer.has_thoughts and answer.log_prob is not None:
        return Problem(reasons.NO_LOG_PROBS, _THOUGHT_WORDS, words=THOUGHT_IN_TOKENS)
    return None


def _mismatch_problem(mismatch: Mismatch, answer: Answer) -> Problem:
    """Return the problem of an answer whose tokens do not fit its text."""
    if mismatch.reason == NOT_RETURNED:
        values = list(enumerate(answer.token_log_probs))
        places = [f"[{n}]={value}" for n, value in values if is_placeholder(value)]
        place = places[0] if places else ""
        message = f"token_log_probs{place} stands for a probability that was not returned"
        return Problem(reasons.NO_LOG_PROBS, message, words=NOT_RETURNED)
    if mismatch.reason == THOUGHT_IN_TOKENS:
        return Problem(reasons.NO_LOG_PROBS, _THOUGHT_WORDS, words=THOUGHT_IN_TOKENS)
    remedy = _REMEDIES.get(mismatch.reason, "")
    message = f"an answer {mismatch.reason}"
    return Problem(reasons.CONTRADICTORY, message, remedy, words=mismatch.reason)


def _notes(answer: Answer, alignment: Alignment) -> list[str]:
    """Return the messages about the tokens of an answer that is scored."""
    notes = []
    if alignment.n_before and not answer.has_thoughts:  # thoughts have a message of their own
        notes.append(TOKENS_BEFORE)
    if alignment.n_after:
        notes.append(TOKENS_AFTER)
    if alignment.lacks_ending:
        notes.append(ENDING_NOT_GIVEN)
    return notes
