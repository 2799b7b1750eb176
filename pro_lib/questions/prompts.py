"""Few-shot prompts: the header, the shots, and the question in the template."""

from collections.abc import Sequence
from typing import Annotated

from pro_lib.common.validation import rule

TEMPLATE = "Question: {question}\nAnswer:"
Template = Annotated[
    str, rule(str, lambda template: "{question}" in template, "must contain {question}")
]


def filled_template(template: str, question: str) -> str:
    r"""Return the template with the question in it.

    Example:
        >>> filled_template("Q: {question}\nA:", "Who wrote Emma?")
        'Q: Who wrote Emma?\nA:'
    """
    return template.replace("{question}", question)


def few_shot_prefix(
    shots: Sequence[tuple[str, str]], *, header: str = "", template: str = TEMPLATE
) -> str:
    """Return the beginning of all prompts: the header, then every shot with its answer."""
    examples = [f"{filled_template(template, question)} {answer}\n\n" for question, answer in shots]
    return header + "".join(examples)


def chat_messages(
    question: str, shots: Sequence[tuple[str, str]], *, header: str = "", template: str = TEMPLATE
) -> list[dict[str, str]]:
    """Return a prompt as a conversation whose earlier turns are the shots.

    The header is at the start of the first message. It is not a system message, because some chat
    templates do not allow one.
    """
    turns: list[str] = []
    for shot, answer in shots:
        turns += [filled_template(template, shot), answer]
    turns.append(filled_template(template, question))
    turns[0] = header + turns[0]
    roles = ("user", "assistant")
    return [{"role": roles[number % 2], "content": text} for number, text in enumerate(turns)]
