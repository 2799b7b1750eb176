"""Decide whether an answer can be used, and with which of its tokens."""

from collections import Counter
from typing import Any

from pro_lib.common import reasons
from pro_lib.common.validation import is_damaged
from pro_lib.importing.parsed_answers import (
    NO_FINISH_REASON,
    NOT_RETURNED,
    OPEN_THOUGHT,
    THOUGHT_IN_TOKENS,
    ParsedAnswer,
    Problem,
    contradiction,
    run_values,
)
from pro_lib.importing.response_formats import NATURAL, NOT_ENDED
from pro_lib.importing.token_alignment import (
    DIFFERENT,
    ECHO_UNKNOWN,
    TOO_FEW,
    align,
    is_placeholder,
)

# Messages about answers that are scored on some of their tokens; they begin with "3 answers".
_TOKENS_BEFORE = (
    "had other tokens before them (reasoning, a prefill or an echoed prompt, for example), "
    "which are not scored; their values are conditional on these tokens"
)
_TOKENS_AFTER = (
    "had other tokens after them (a stop string, for example); they are scored without an ending"
)
_ENDING_NOT_GIVEN = (
    "are scored without their ending, for whose probability the server returned a placeholder"
)
_THOUGHT_WORDS = (
    "the log-probabilities include those of a thought, "
    "and it cannot be told which belong to the answer"
)
_REMEDIES = {
    TOO_FEW: "ask for the text without the prompt (return_full_text=false)",
    ECHO_UNKNOWN: "ask with echo=false",
    DIFFERENT: "remove the texts of the tokens to score all of them",
}
# What finish reasons mean, by the reason why answers with them are left out.
_MEANINGS = {
    reasons.FAILED: "the request failed",
    reasons.FILTERED: "a filter or a refusal stopped the answer",
    reasons.TOOL_CALL: "the model called a tool",
}


def usable_values(
    answer: ParsedAnswer, prompt: str | None, *, is_record: bool, notes: Counter[str]
) -> dict[str, Any] | Problem:
    """Return the values of an answer by column of a run, or why the answer cannot be used.

    Args:
        answer: the answer, as it was parsed.
        prompt: the text of the prompt, or of the question in it, if it is known.
        is_record: whether it is of a format of this project.
        notes: counts messages about answers that are scored on some of their tokens.
    """
    if not is_record:
        problem = _problem(answer)
        if problem is not None:
            return problem
        tokens = answer.token_log_probs if answer.token_log_probs or not answer.text else None
        answer = answer._replace(
            finished=answer.finish_reason in NATURAL,
            token_log_probs=tokens,
            log_prob=None if tokens else answer.log_prob,  # the server's sum is of all tokens
        )
    is_compared = answer.token_texts is not None or not is_record
    is_spelled = isinstance(answer.token_log_probs, list) and isinstance(answer.text, str)
    if is_spelled and is_compared and not is_damaged(answer.text):
        aligned = align(answer, prompt)
        if isinstance(aligned, str):
            return _problem_of_tokens(aligned, answer)
        answer = aligned
        has_tokens_before = answer.n_before and not answer.has_thoughts  # thoughts have a message
        flags = {
            _TOKENS_BEFORE: has_tokens_before,
            _TOKENS_AFTER: answer.n_after,
            _ENDING_NOT_GIVEN: answer.lacks_ending,
        }
        notes.update(note for note, is_so in flags.items() if is_so)
    problem = contradiction(answer)
    if problem is not None:
        return problem
    has_log_prob = answer.token_log_probs is not None or answer.log_prob is not None
    if not is_record and has_log_prob and answer.finished is False:
        # An answer that was cut has no ending, so the ending adds nothing to its log-probability.
        answer = answer._replace(end_log_prob=0.0)
    return run_values(answer)


def _problem(answer: ParsedAnswer) -> Problem | None:
    """Return the problem of an answer by what its API says about it, or None."""
    if answer.problem is not None:
        return Problem(reasons.NO_LOG_PROBS, answer.problem)
    if not isinstance(answer.finish_reason, str):
        message = (
            f"finish_reason={answer.finish_reason!r} must be text: it says whether the answer is "
            "complete, and no chunk of a stream has it"
        )
        return Problem(reasons.UNREADABLE, message, words=NO_FINISH_REASON)
    reason = NOT_ENDED.get(answer.finish_reason)
    if reason in _MEANINGS:
        return Problem(reason, f"{_MEANINGS[reason]} (finish reason {answer.finish_reason!r})")
    is_finished = answer.finish_reason in NATURAL
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


def _problem_of_tokens(words: str, answer: ParsedAnswer) -> Problem:
    """Return the problem of an answer whose tokens do not fit its text."""
    if words == NOT_RETURNED:
        values = enumerate(answer.token_log_probs)
        place = next((f"[{n}]={value}" for n, value in values if is_placeholder(value)), "")
        message = f"token_log_probs{place} stands for a probability that was not returned"
        return Problem(reasons.NO_LOG_PROBS, message, words=words)
    if words == THOUGHT_IN_TOKENS:
        return Problem(reasons.NO_LOG_PROBS, _THOUGHT_WORDS, words=words)
    remedy = _REMEDIES.get(words, "")
    return Problem(reasons.CONTRADICTORY, f"an answer {words}", remedy, words=words)
