"""Errors and warnings of the package are short sentences of usual words."""

import ast
import re

from conftest import ROOT

LONGEST_SENTENCE = 35  # words
# Words of which a reader has to guess the meaning.
UNUSUAL = re.compile(
    r"\bis none of\b|\bhas not\b|\bcannot be had\b|\bknows no\b|\bby hand of\b|\bdoors?\b|\bhouse\b"
    r"|\bwalls?\b|\brooms?\b|\bpacks?\b|\blayouts?\b|\bpromises?\b"
)


def is_message(node):
    """Return whether a statement or a call creates an error or a warning."""
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func).endswith("Error")
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) == "warnings.warn"
    return isinstance(node, ast.Raise)


def message_texts(tree):
    """Return the texts of the errors and warnings of a module, with each value as x."""
    texts = []
    for message in filter(is_message, ast.walk(tree)):
        for node in ast.walk(message):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            values = [part.value if isinstance(part, ast.Constant) else "x" for part in parts]
            texts.append("".join(map(str, values)))
    return [text for text in texts if re.search(r"[a-z]{2} [a-z]", text)]


def is_wrong(text):
    """Return whether a message has unusual words or marks, a long sentence or a wrong begin."""
    return bool(
        UNUSUAL.search(text)
        or any(len(part.split()) > LONGEST_SENTENCE for part in re.split("[.;:] ", text))
        or re.match(r"(Of|What|Where|By|That which)\b", text)
        or re.search(r"(?<!\.)\.\.(?!\.)|;;|,,|  ", text)
    )


def test_messages_are_short_sentences_of_usual_words():
    paths = (ROOT / "pro_lib").rglob("*.py")
    texts = [text for path in paths for text in message_texts(ast.parse(path.read_text()))]
    assert len(texts) > 240
    assert [text for text in texts if is_wrong(text)] == []
