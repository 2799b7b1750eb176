"""Typeset the formulas of Markdown as MathML, which browsers draw without a script."""

import re
from collections.abc import Callable

from latex2mathml.converter import convert

CODE = re.compile(r"(^ *```.*?^ *```$|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
DISPLAYED = re.compile(r"\$\$(.+?)\$\$", re.DOTALL)
INLINE = re.compile(r"(?<!\\)\$(?!\s)([^$]+?)(?<!\s)\$")
# TeX puts a thin space around the name of a function; browsers put none around an identifier.
NAME = re.compile(
    r"(?<=</m)(i|n|row|sub)>(?=<mi>(?:log|max|min)<)|(?<=<mi>)(log|max|min)</mi>(?!<mo)"
)
SPACE = '<mspace width="0.17em"></mspace>'
# Subscripts of letters without descenders; site.css lowers them if no math font is installed.
TALL = re.compile(r"<msub>(?=<mi>[A-Z]|<mrow>|<mtext>)")


class PageError(ValueError):
    """An error in a page, as one sentence."""


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """Return the text with a function applied to everything outside code."""
    return "".join(
        part if number % 2 else change(part) for number, part in enumerate(CODE.split(text))
    )


def typeset(markdown: str) -> str:
    """Return the text with `$…$` and `$$…$$` outside code as MathML.

    Raises:
        PageError: if a formula is not valid LaTeX.
    """
    return outside_code(markdown, lambda part: INLINE.sub(inline, DISPLAYED.sub(displayed, part)))


def displayed(match: re.Match) -> str:
    """Return the formulas of one `$$…$$`, which a wide space separates."""
    formulas = [mathml(formula, "block") for formula in match[1].split(r"\qquad")]
    return f'<div class="formula">{"".join(formulas)}</div>'


def inline(match: re.Match) -> str:
    """Return the formula of one `$…$`."""
    return f'<span class="formula">{mathml(match[1], "inline")}</span>'


def mathml(latex: str, display: str) -> str:
    """Return one formula on one line, with the characters escaped that Markdown would interpret."""
    try:
        text = convert(" ".join(latex.split()), display=display)
    except Exception as error:  # the errors of the converter have no common class
        raise PageError(
            f"a formula cannot be parsed, {type(error).__name__}: {latex[:80]!r}"
        ) from error
    text = NAME.sub(
        lambda match: (f"{match[1]}>" if match[1] else f"{match[2]}</mi>") + SPACE, text
    )
    return TALL.sub('<msub class="tall">', text).replace("*", "&#x2A;").replace("_", "&#x5F;")
