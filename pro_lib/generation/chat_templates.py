"""Render a conversation with the chat template of a tokenizer."""

import json
import re
from collections.abc import Mapping
from datetime import date
from typing import Any

from transformers import PreTrainedTokenizerBase as Tokenizer

from pro_lib.common.thoughts import THOUGHT_MARKS

# The date that chat templates take for today, so that a run does not depend on the day. The
# templates of Llama fall back to the same date.
TODAY = "2024-07-26"
_DATE_CODE = re.compile(r"%[-_]?[A-Za-z]")
# A definition of `strftime_now` in the language of templates. CODES are dates by their codes.
_DATE_MACRO = """{% macro strftime_now(format) %}\
{% set date = namespace(text=format) %}\
{% for code, text in CODES.items() %}\
{% set date.text = date.text.replace(code, text) %}\
{% endfor %}{{ date.text }}{% endmacro %}
"""


def render_chat(
    tokenizer: Tokenizer, messages: list[dict[str, str]], options: Mapping[str, Any]
) -> str:
    """Return a conversation as text, up to the place where the answer begins.

    A template is a program of the model's authors, so any exception may come from it.

    Args:
        tokenizer: the tokenizer with the chat template.
        messages: the conversation, as `{"role": …, "content": …}`.
        options: options of the template; `date` is the day (YYYY-MM-DD) that it takes for today.

    Raises:
        ValueError: the template does not have one of the options, or renders an unusable prompt.
    """
    template = tokenizer.get_chat_template()
    _check_options(template, options)
    template_options = dict(options)
    today = date.fromisoformat(template_options.pop("date", TODAY))
    text: Any = tokenizer.apply_chat_template(
        messages,
        **template_options,
        chat_template=_with_fixed_date(template, today),
        tokenize=False,
        add_generation_prompt=True,
    )
    if text.rstrip().endswith(tuple(THOUGHT_MARKS)):
        raise ValueError(
            "it opens a thinking block; an option may close it: chat={'enable_thinking': False}"
        )
    return text


def _check_options(template: str, options: Mapping[str, Any]) -> None:
    """Raise `ValueError` for an option that the template does not use."""
    for name in options:
        is_date = name == "date" and "strftime_now" in template
        if name not in template and not is_date:
            raise ValueError(f"it has no option {name!r}")


def _with_fixed_date(template: str, today: date) -> str:
    """Return a template for which `strftime_now` returns `today`, in whatever way it is called."""
    # Transformers defines a function of this name that returns the current date, whatever options
    # it gets. A macro of the same name replaces it.
    if "strftime_now" not in template:
        return template
    codes = {code: today.strftime(code) for code in _DATE_CODE.findall(template)}
    return _DATE_MACRO.replace("CODES", json.dumps(codes)) + template
