"""From an answer as an API returned it to the answer of a record, or to the reason why it is left out."""

import re

from pydantic import ValidationError

from pro_lib.common.validation import sentence
from pro_lib.importing.formats import ParsedAnswer, ResponseFormat
from pro_lib.importing.formats.parsed import TokenText
from pro_lib.importing.left_out import (
    NO_FINISH_REASON,
    NO_LOG_PROBS,
    NOT_RETURNED,
    OPEN_THOUGHT,
    REFUSED,
    THOUGHT_IN_TOKENS,
    UNREADABLE,
    Problem,
)
from pro_lib.importing.records import AnswerRecord
from pro_lib.importing.response_formats import NATURAL

# What servers write for a log-probability that they do not give; vLLM also for -inf and for places not filled.
NOT_GIVEN = -9999.0
# Special tokens that servers return behind an answer, such as </s>, <|im_end|> or <end_of_turn>.
_SPECIAL_TOKENS = re.compile(r"(\s*(<[^<>\s]{1,40}>))*\s*")


def record_of(answer: ParsedAnswer, response_format: ResponseFormat) -> AnswerRecord | Problem:
    """Return a record's answer, or why the answer cannot be used."""
    if answer.text is None and answer.reason is not None:
        return Problem(REFUSED)
    if not isinstance(answer.reason, str):
        words = "must be text: it says whether the answer is complete, and no chunk of a stream has it"
        return Problem(NO_FINISH_REASON, f"finish_reason={answer.reason!r} {words}")
    if answer.has_thoughts and answer.text == "":
        return Problem(OPEN_THOUGHT, "the answer ends within a thought; raise the limit of tokens")
    problem = _missing_log_probs(answer, response_format)
    if problem is not None:
        return problem
    tokens = answer.token_log_probs
    if tokens is not None and not tokens and answer.text:
        tokens = None
    finished = answer.reason in NATURAL
    whole = answer.log_prob if tokens is None else None
    if finished and tokens == []:
        return Problem(NOT_RETURNED)
    if answer.has_thoughts and not (tokens is whole is None) and not _is_spelled(answer.token_texts, answer.text):
        words = "the log-probabilities include those of a thought, and it cannot be told which belong to the answer"
        return Problem(THOUGHT_IN_TOKENS, words)
    end = None if finished or tokens is whole is None else 0.0
    fields = {"text": answer.text, "finished": finished, "end_log_prob": end, "correct": answer.correct}
    try:
        record = AnswerRecord.model_validate(fields | {"log_prob": whole, "token_log_probs": tokens})
    except ValidationError as error:
        return Problem(UNREADABLE, sentence(error), is_detail=True)
    if any(value <= NOT_GIVEN for value in record.token_log_probs or ()):
        return Problem(NOT_RETURNED)
    return record


def _missing_log_probs(answer: ParsedAnswer, response_format: ResponseFormat) -> Problem | None:
    """Return what is wrong with an answer whose API returns log-probabilities, and which has none."""
    is_missing = answer.token_log_probs is None or (answer.text and not answer.token_log_probs)
    if not is_missing or answer.log_prob is not None:
        return None
    if answer.problem is not None:
        return Problem(NO_LOG_PROBS, answer.problem)
    if answer.lacks_log_probs or not response_format.request:
        return None
    return Problem(NO_LOG_PROBS, f"logprobs are missing; ask for them with {response_format.request}")


def _is_spelled(token_texts: list[TokenText] | None, text: object) -> bool:
    """Return whether the tokens spell a text and nothing else but special tokens behind it."""
    if token_texts is None or not isinstance(text, str) or None in token_texts:
        return False
    parts = [part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogatepass") for part in token_texts]
    joined, answer = b"".join(parts).decode("utf-8", "replace").strip(), text.strip()
    return joined.startswith(answer) and _SPECIAL_TOKENS.fullmatch(joined[len(answer) :]) is not None
