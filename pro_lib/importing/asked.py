"""Find the question in a request: its conversation, and the turn in which the requests of a file differ."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from pro_lib.common.files import sha256
from pro_lib.common.nested import as_items, as_mapping
from pro_lib.questions.json_values import decoded

# Fields that hold the request beside the response, in logs and in the batches of OpenAI, Vertex, Anthropic and Bedrock.
_REQUEST_NAMES = ("body", "request", "params", "modelInput", "kwargs", "input")
_PROMPT_NAMES = ("messages", "contents", "prompt", "input", "inputs")
_ROLES = {"human": "user", "ai": "assistant", "model": "assistant", "developer": "system"}
# In a file with at least ten requests, a turn that nine in ten of them share does not tell the questions apart.
_MANY, _NEARLY_ALL = 10, 0.9


class Turn(NamedTuple):
    """A turn of a conversation; `other` identifies images and whatever else is not text."""

    role: str
    text: str
    other: str = ""


Conversation: TypeAlias = tuple[Turn, ...]


def conversations_of(entry: dict, body: object) -> list[Conversation]:
    """Return the conversations of an entry's request, several for a list of prompts; none if they are unknown.

    Args:
        entry: the entry, which may hold the request beside the response.
        body: the response; some servers repeat the prompt in it.
    """
    for request in _requests(entry, body):
        for name in _PROMPT_NAMES:
            found = _conversations(request.get(name))
            if found:
                system = request.get(
                    "system", request.get("systemInstruction", request.get("instructions"))
                )
                first = (
                    [_turn(system)._replace(role="system")]
                    if isinstance(system, (str, dict, list))
                    else []
                )
                return [(*first, *conversation) for conversation in found]
    return []


def _requests(entry: dict, body: object) -> Iterator[dict]:
    yield entry
    for name in _REQUEST_NAMES:
        request = decoded(entry.get(name))
        if isinstance(request, dict):
            yield request
            yield from (as_mapping(request.get(inner)) for inner in ("body", "params"))
    yield as_mapping(body)


def _conversations(value: object) -> list[Conversation]:
    """Return the conversations of a prompt: a text, token ids, turns, or a list of several of these."""
    if isinstance(value, str):
        return [(Turn("user", value),)]
    if not isinstance(value, list) or not value:
        return []
    if all(type(part) is int for part in value):
        return [(Turn("user", "", _digest(value)),)]
    if all(isinstance(part, dict) for part in value):
        return [tuple(_turn(part) for part in value)]
    if all(isinstance(part, (str, list)) for part in value):
        return [(_conversations(part) or [()])[0] for part in value]
    return []


def _turn(value: Any) -> Turn:
    """Return a turn of a chat, in the form of OpenAI, Gemini, Anthropic or LangChain."""
    fields = as_mapping(value)
    kind = as_items(fields.get("id"))[-1:] if fields.get("lc") is not None else []
    fields = as_mapping(fields.get("kwargs") if kind else fields.get("data", fields))
    role = fields.get("role", fields.get("type", as_mapping(value).get("type")))
    if kind:
        role = str(kind[0]).lower().removesuffix("message")
    content = (
        fields.get("content", fields.get("parts", fields.get("text")))
        if isinstance(value, dict)
        else value
    )
    texts, others = [], []
    for part in as_items(content):
        text = part if isinstance(part, str) else as_mapping(part).get("text")
        if isinstance(text, str):
            texts.append(text)
        else:
            others.append(part)
    return Turn(
        _ROLES.get(str(role), str(role)), " ".join(texts), _digest(others) if others else ""
    )


def _digest(value: object) -> str:
    return sha256(json.dumps(value, sort_keys=True, default=str).encode())[:16]


def without_answer(conversation: Conversation, answers: Iterable[object]) -> Conversation:
    """Return a conversation without the answer at its end, which some logs add to the request."""
    if len(conversation) > 1 and conversation[-1].role == "assistant":
        said = {text.strip() for text in answers if isinstance(text, str)}
        if conversation[-1].text.strip() in said:
            return conversation[:-1]
    return conversation


def question_texts(conversations: Sequence[Conversation | None]) -> list[str | None]:
    """Return the question of each conversation: the last user turn among those in which the conversations differ.

    The last turn of a request may be the same in all, such as "Answer in one word", or the beginning of the answer.
    The result is None for a conversation without text.
    """
    distinct = list(dict.fromkeys(one for one in conversations if one))
    counts = Counter(turn for conversation in distinct for turn in set(conversation))
    needed = len(distinct) if len(distinct) < _MANY else _NEARLY_ALL * len(distinct)
    shared = {turn for turn, count in counts.items() if count >= needed}
    texts = {conversation: _question_text(conversation, shared) for conversation in distinct}
    return [texts.get(conversation) if conversation else None for conversation in conversations]


def _question_text(conversation: Conversation, shared: set[Turn]) -> str | None:
    differing = [turn for turn in conversation if turn not in shared]
    for turns in (differing, conversation):
        for is_role in (True, False):
            texts = [
                turn.text
                for turn in turns
                if turn.text and (turn.role not in ("assistant", "system")) == is_role
            ]
            if texts:
                return texts[-1]
    return None


def prompt_of(index: int, n_answers: int, n_prompts: int) -> int | None:
    """Return which of several prompts an answer belongs to; each prompt has equally many answers, in a row."""
    if n_prompts == 0 or n_answers % n_prompts:
        return None
    return index // (n_answers // n_prompts)


def listed_texts(value: object) -> list[str]:
    """Return a list of several texts as it is, and anything else as an empty list."""
    if isinstance(value, list) and value and all(isinstance(text, str) for text in value):
        return value
    return []
