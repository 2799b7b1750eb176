"""The marks of a thought (a reasoning block) in a text, and the text without it."""

# The marks at the beginning and the end of thoughts, for DeepSeek and Qwen, Seed, Mistral, Cohere,
# gpt-oss, Gemma and Kimi.
THOUGHT_MARKS: dict[str, str] = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|channel|>analysis": "<|channel|>final<|message|>",
    "<|channel>thought": "<channel|>",
    "◁think▷": "◁/think▷",
    "<reasoning>": "</reasoning>",
}
# gpt-oss, where a server leaves out the special tokens between its channels.
_BARE_ANALYSIS = "analysis"
_BARE_FINAL = "assistantfinal"


def thought_mark(text: str) -> str | None:
    """Return the mark of a thought that the text begins with, if it does."""
    stripped = text.lstrip()
    return next((mark for mark in THOUGHT_MARKS if stripped.startswith(mark)), None)


def without_thoughts(text: str) -> tuple[str, bool]:
    """Return the text after the thoughts at its beginning, and whether there is a thought.

    A thought that does not end leaves an empty text. A text may begin within a thought, because
    chat templates write its first mark into the prompt. Then only the mark at its end is there.

    Example:
        >>> without_thoughts("<think>Hm.</think> Paris")
        ('Paris', True)
        >>> without_thoughts("Paris")
        ('Paris', False)
    """
    rest = _after_first_thought(text)
    has_thought = rest is not None
    while rest is not None:
        text = rest
        rest = _after_first_thought(text)
    return text, has_thought


def _after_first_thought(text: str) -> str | None:
    """Return the text after its first thought, or None if there is no thought."""
    opening = thought_mark(text)
    if opening is not None:
        _, _, rest = text.partition(opening)[2].partition(THOUGHT_MARKS[opening])
        return rest.lstrip()
    ends = [closing for closing in THOUGHT_MARKS.values() if closing in text]
    if ends:
        first = min(ends, key=text.index)
        return text.partition(first)[2].lstrip()
    if text.startswith(_BARE_ANALYSIS) and _BARE_FINAL in text:
        return text.partition(_BARE_FINAL)[2].lstrip()
    return None
