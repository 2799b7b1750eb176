"""Lists that the cells of question files contain as text, in JSON, Python or NumPy notation."""

import ast
import json
import re
from collections.abc import Sequence

from pro_lib.questions.cell_values import ANSWER_KEYS, plain_name


def list_in_text(text: str) -> "tuple[str, list | dict] | None":
    """Return the notation and the value of a list or object in a text, or None for other texts.

    The notation is JSON, Python, or NumPy, which separates elements by spaces; or Lisp, for the
    descriptions of WebQuestions.

    Example:
        >>> list_in_text("['Paris' 'City of Light']")
        ('NumPy', ['Paris', 'City of Light'])
    """
    text = text.strip()
    if text.startswith("(list (description"):
        descriptions = re.findall(r'\(description (?:"([^"]*)"|([^()"]*))\)', text)
        return "Lisp", [quoted or bare for quoted, bare in descriptions]
    if not re.fullmatch(r"\[.*\]|\(.*,.*\)|\{.*\}", text, re.DOTALL):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return _python_list(text)
    return ("JSON", value) if isinstance(value, (list, dict)) else None


def _python_list(text: str) -> "tuple[str, list | dict] | None":
    """Return the list of a Python or NumPy notation."""
    without_names = re.sub(r"\barray\(", "(", text)
    without_types = re.sub(r",\s*dtype=[\w.<>'\"]+\s*\)", ")", without_names)
    tokens = _tokens(without_types)
    if tokens is None:
        return None
    notation, n_commas = _with_commas(tokens)
    try:
        value = ast.literal_eval(notation.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None
    if isinstance(value, (set, frozenset)):
        value = sorted(value, key=str)
    if isinstance(value, tuple):
        value = list(value)
    if not isinstance(value, (list, dict)):
        return None
    return ("NumPy" if n_commas else "Python", value)


# A quoted text, a number or name, or a sign of a Python notation.
_TOKEN = re.compile(
    r"""\s+|[rbuRBU]?"(?:[^"\\\n]|\\.)*"|[rbuRBU]?'(?:[^'\\\n]|\\.)*'"""
    r"|[+-]?[\w.]+(?:[+-]\d+)?|[\[\](){},:]"
)


def _tokens(text: str) -> list[str] | None:
    """Return the tokens of a Python notation, or None if the text is not one."""
    tokens = []
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            return None
        tokens.append(match[0])
        place = match.end()
    return tokens


def _with_commas(tokens: Sequence[str]) -> tuple[str, int]:
    """Return a notation with commas between its elements, and the number of commas that were added.

    NumPy leaves the commas out, and Python would join the texts of `['a' 'b']`. Names of missing
    values, such as nan, become None.
    """
    parts: list[str] = []
    n_commas = 0
    before = "["
    for token in tokens:
        if token.isspace():
            parts.append(token)
            continue
        if token[0] not in "])},:" and before[0] not in "[({,:":
            parts.append(",")
            n_commas += 1
        parts.append("None" if token in ("nan", "NaN", "null") else token)
        before = token
    return "".join(parts), n_commas


def is_list_of_texts(value: object) -> bool:
    """Return whether a list contains texts.

    Lists of numbers, such as coordinates, do not.
    """
    if isinstance(value, dict):
        return any(plain_name(str(name)) in ANSWER_KEYS for name in value)
    if not isinstance(value, list):
        return False
    return not value or any(isinstance(inner, (str, list, dict)) for inner in value)
