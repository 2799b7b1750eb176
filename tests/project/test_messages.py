"""Test the wording of all errors and warnings; run this file as a script to print them all.

python tests/project/test_messages.py
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[2] / "pro_lib"
LONGEST_SENTENCE = 35  # words
# Words of which a reader has to guess the meaning.
UNUSUAL = re.compile(
    r"\bis none of\b|\bhas not\b|\bcannot be had\b|\bknows no\b|\bby hand of\b|\bdoors?\b|\bhouse\b"
    r"|\bwalls?\b|\brooms?\b|\bpacks?\b|\blayouts?\b|\bpromises?\b"
)


class Message(NamedTuple):
    """An error or a warning in the code; a value in its text is shown as {expression}."""

    place: str
    kind: str
    text: str


def read_messages(path: Path) -> Iterator[Message]:
    """Yield the messages of a module, in their order."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for scope in [tree, *functions]:
        assigned = assigned_texts(scope)
        for node in own_nodes(scope):
            call = message_call(node)
            if call is None or not call.args:
                continue
            text = text_of(call.args[0], assigned)
            if re.search(r"[a-z]{2} [a-z]", text):
                place = f"{path.relative_to(PACKAGE.parent)}:{call.lineno}"
                yield Message(place, ast.unparse(call.func), text)


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a module or function without those of functions in it."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, ast.FunctionDef):
            yield child
            yield from own_nodes(child)


def message_call(node: ast.AST) -> ast.Call | None:
    """Return the call that creates an error or a warning, if the node is one."""
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        return node.exc
    is_return = isinstance(node, ast.Return) and isinstance(node.value, ast.Call)
    if is_return and ast.unparse(node.value.func).endswith("Error"):
        return node.value
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn":
        return node
    return None


def assigned_texts(scope: ast.AST) -> dict[str, str]:
    """Return the texts that are assigned to names in a scope; the last one of each name."""
    texts: dict[str, str] = {}
    for node in own_nodes(scope):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            text = text_of(node.value, texts)
            if " " in text:
                texts[node.targets[0].id] = text
    return texts


def text_of(node: ast.expr, assigned: dict[str, str]) -> str:
    """Return the text of an expression."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part, assigned) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return text_of(node.value, assigned)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text_of(node.left, assigned) + text_of(node.right, assigned)
    if isinstance(node, ast.Name) and node.id in assigned:
        return assigned[node.id]
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("one_line", "printable"):
        return text_of(node.args[0], assigned)
    return f"{{{ast.unparse(node)}}}"


def sentences(text: str) -> list[str]:
    """Return the sentences of a message, without its values."""
    without_values = re.sub(r"\{[^{}]*\}", "x", text)
    return re.split(r"[.;:] ", without_values)


def all_messages() -> list[Message]:
    return [message for path in sorted(PACKAGE.rglob("*.py")) for message in read_messages(path)]


def is_wrong(text: str) -> bool:
    """Return whether a message has unusual words or marks, a long sentence or a wrong begin."""
    return bool(
        UNUSUAL.search(re.sub(r"\{[^{}]*\}", "", text))
        or any(len(sentence.split()) > LONGEST_SENTENCE for sentence in sentences(text))
        or re.match(r"(Of|What|Where|By|That which)\b", text)
        or re.search(r"(?<!\.)\.\.(?!\.)|;;|,,|  ", text)
    )


def test_messages_are_short_sentences_of_usual_words():
    messages = all_messages()
    kinds = {message.kind for message in messages}
    assert {"ValueError", "RunError", "SentenceError", "warnings.warn"} <= kinds
    assert len(messages) > 240
    assert [message for message in messages if is_wrong(message.text)] == []


if __name__ == "__main__":
    for message in all_messages():
        print(f"{message.place} ({message.kind})\n    {message.text}")
