"""Find the question in a request: the turn of a conversation that differs between requests."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from pro_lib.common.files import json_digest
from pro_lib.common.nested import as_items, as_mapping, first_value
from pro_lib.importing.response_formats import message_fields
from pro_lib.questions.file_readers import decoded

# Fields that contain the request in logs and in the batches of OpenAI, Vertex, Anthropic and
# Bedrock.
_REQUEST_NAMES = ("body", "request", "params", "modelInput", "kwargs", "input", "inputs")
_PROMPT_NAMES = ("messages", "contents", "prompt", "input", "inputs")
_ROLES = {"human": "user", "ai": "assistant", "model": "assistant", "developer": "system"}
_SYSTEM_NAMES = ("system", "systemInstruction", "instructions")
# If a file has at least `_MANY` requests, a turn that this share of them has is not the question.
_MANY = 10
_SHARED_BY = 0.9


class Turn(NamedTuple):
    """A turn of a conversation.

    `other` identifies images and whatever else is not text.
    """

    role: str
    text: str
    other: str = ""


Conversation: TypeAlias = tuple[Turn, ...]


def conversations_of(entry: dict, body: object) -> list[Conversation]:
    """Return the conversations of an entry's request, several for a list of prompts.

    The list is empty if the request is unknown.

    Args:
        entry: the entry, which may contain the request next to the response.
        body: the response; some servers repeat the prompt in it.
    """
    for request in _requests(entry, body):
        for name in _PROMPT_NAMES:
            conversations = _conversations(request.get(name))
            if conversations:
                system = first_value(request, _SYSTEM_NAMES)
                is_given = isinstance(system, (str, dict, list))
                first_turns = [_turn(system)._replace(role="system")] if is_given else []
                return [(*first_turns, *conversation) for conversation in conversations]
    return []


def _requests(entry: dict, body: object) -> Iterator[dict]:
    """Yield the dictionaries that may contain the prompt, the most likely first."""
    yield entry
    for name in _REQUEST_NAMES:
        request = decoded(entry.get(name))
        if isinstance(request, dict):
            yield request
            for inner_name in ("body", "params"):
                yield as_mapping(request.get(inner_name))
    yield as_mapping(body)


def _conversations(value: object) -> list[Conversation]:
    """Return the conversations of a prompt: a text, token ids, turns, or a list of these."""
    if isinstance(value, str):
        return [(Turn("user", value),)]
    if not isinstance(value, list) or not value:
        return []
    if all(type(part) is int for part in value):
        return [(Turn("user", "", json_digest(value)[:16]),)]
    if all(isinstance(part, dict) for part in value):
        return [tuple(_turn(part) for part in value)]
    if all(isinstance(part, (str, list)) for part in value):
        return [next(iter(_conversations(part)), ()) for part in value]
    return []


def _turn(value: Any) -> Turn:
    """Return a turn of a chat, in the form of OpenAI, Gemini, Anthropic or LangChain."""
    kind, fields = message_fields(value)
    role = str(fields.get("role", kind)).lower().removesuffix("message")
    content = first_value(fields, ("content", "parts", "text")) if fields else value
    texts = []
    other_parts = []
    for part in as_items(content):
        text = part if isinstance(part, str) else as_mapping(part).get("text")
        if isinstance(text, str):
            texts.append(text)
        else:
            other_parts.append(part)
    digest = json_digest(other_parts)[:16] if other_parts else ""
    return Turn(_ROLES.get(role, role), " ".join(texts), digest)


def without_answer(conversation: Conversation, answers: Iterable[object]) -> Conversation:
    """Return a conversation without the answer at its end, which some logs add to the request."""
    if len(conversation) > 1 and conversation[-1].role == "assistant":
        answer_texts = {text.strip() for text in answers if isinstance(text, str)}
        if conversation[-1].text.strip() in answer_texts:
            return conversation[:-1]
    return conversation


def question_texts(conversations: Sequence[Conversation | None]) -> list[str | None]:
    """Return the question of each conversation, or None for a conversation without text.

    It is the last user turn among those that differ between the conversations. The very last turn
    of a request may be the same in all of them, such as "Answer in one word", or may be the
    beginning of the answer.
    """
    distinct = list(dict.fromkeys(conversation for conversation in conversations if conversation))
    counts = Counter(turn for conversation in distinct for turn in set(conversation))
    needed = len(distinct) if len(distinct) < _MANY else _SHARED_BY * len(distinct)
    shared_turns = {turn for turn, count in counts.items() if count >= needed}
    texts = {conversation: _question_text(conversation, shared_turns) for conversation in distinct}
    return [texts.get(conversation) if conversation else None for conversation in conversations]


def _question_text(conversation: Conversation, shared_turns: set[Turn]) -> str | None:
    """Return the last text of a user among the turns that are not shared, or the next best text."""
    differing_turns = [turn for turn in conversation if turn not in shared_turns]
    for turns in (differing_turns, conversation):
        texts = [turn for turn in turns if turn.text]
        user_texts = [turn for turn in texts if turn.role not in ("assistant", "system")]
        if texts:
            return (user_texts or texts)[-1].text
    return None
