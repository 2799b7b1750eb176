"""The texts in the cells of question files: numbers, lists, and the objects of known datasets."""

import ast
import io
import json
import math
import re
import tokenize
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from pandas import isna
from pandas.api.types import is_scalar

# The values of datasets that do not publish their answers.
NO_ANSWER = ("", "<unk>")
# Keys of objects with answers: text in SQuAD, value and aliases in TriviaQA, spans in DROP.
_WRITTEN_KEYS = ("text", "value", "aliases", "spans")
_NORMALIZED_KEYS = ("normalized_value", "normalized_aliases")
_LIST_OF_TEXTS = r"[\[({]\s*['\"]|\(list \(description"
_LIST = rf"\[.*\]|\(.*,.*\)|\{{.*\}}|(?:{_LIST_OF_TEXTS}).*"
_ANSWER_KEYS = (*_WRITTEN_KEYS, *_NORMALIZED_KEYS)


def plain_name(name: str) -> str:
    """Return a column's name in lower case with underscores.

    Example:
        >>> plain_name("Best Answer"), plain_name("bestAnswer")
        ('best_answer', 'best_answer')
    """
    stripped_name = name.strip().strip("\ufeff")
    separated = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", stripped_name)
    return re.sub(r"[\s_-]+", "_", separated).casefold()


def is_missing(cell: object) -> bool:
    """Return whether a cell is None or NaN."""
    return bool(is_scalar(cell) and isna(cell))


def texts_in(value: object) -> list:
    """Return the texts within lists and objects, numbers as text, or None for any other value.

    Objects are those of SQuAD (text), TriviaQA (value, aliases), DROP (spans) and TruthfulQA
    (choices with labels). Missing values in a list are left out.

    Example:
        >>> texts_in({"text": ["Paris", 75]})
        ['Paris', '75']
    """
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        texts = []
        for inner in value:
            if not is_missing(inner):
                texts += texts_in(inner)
        return texts
    if isinstance(value, Mapping):
        return texts_in(_answers_of(value))
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        return [_number_text(value)]
    return [None]


def _answers_of(value: Mapping) -> list:
    """Return the answers in an object, or `[object()]`, which is not a text, if it has none."""
    fields = {plain_name(str(name)): inner for name, inner in value.items()}
    if "choices" in fields and "labels" in fields:
        pairs = zip(fields["choices"], fields["labels"], strict=False)
        return [choice for choice, label in pairs if label == 1]
    if not any(name in fields for name in _ANSWER_KEYS):
        return [object()]
    answers = [fields[name] for name in _WRITTEN_KEYS if fields.get(name) is not None]
    if any(texts_in(answer) for answer in answers):
        return answers
    normalized = [fields[name] for name in _NORMALIZED_KEYS if fields.get(name) is not None]
    return normalized or answers


def _number_text(value: str | float) -> str | None:
    """Return a number as text, without the `.0` that pandas adds in columns with gaps."""
    if not isinstance(value, float):
        return str(value)
    if not math.isfinite(value):
        return None
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else str(float(value))


def list_in_text(text: str) -> list | dict | None:
    """Return the list or object that a text contains in JSON or Python notation, else None.

    Raises:
        ValueError: the text begins like a list of texts but cannot be read.

    Example:
        >>> list_in_text("['Paris', 'City of Light']")
        ['Paris', 'City of Light']
    """
    stripped = text.strip()
    if not re.fullmatch(_LIST, stripped, re.DOTALL):
        return None
    try:
        value = json.loads(stripped)
    except (ValueError, RecursionError):
        value = _python_value(stripped)
    if isinstance(value, tuple):
        value = list(value)
    is_of_texts = isinstance(value, list) and all(
        isinstance(inner, (str, list, dict, type(None))) for inner in value
    )
    has_answers = isinstance(value, dict) and any(
        plain_name(str(name)) in _ANSWER_KEYS for name in value
    )
    if is_of_texts or has_answers:
        return value
    if value is None and re.match(_LIST_OF_TEXTS, stripped):
        raise ValueError(
            "looks like a list but cannot be read as one in JSON or Python notation; "
            "write lists as JSON (column.map(list).map(json.dumps) in pandas)"
        )
    return None


def _python_value(text: str) -> object:
    """Return the value of a Python notation, or None for other texts.

    NumPy writes lists without commas. Python would join the texts of such a list.
    """
    try:
        tokens = [token.type for token in tokenize.generate_tokens(io.StringIO(text).readline)]
        if (tokenize.STRING, tokenize.STRING) in pairwise(
            kind for kind in tokens if kind != tokenize.NL
        ):
            return None
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError, tokenize.TokenError):
        return None


def shortened(value: object) -> str:
    """Return the representation of a value for a message, with at most 80 characters."""
    representation = repr(value)
    return representation if len(representation) <= 80 else f"{representation[:77]}..."
