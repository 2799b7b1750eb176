"""Formulas in Markdown, typeset as MathML, which browsers draw without a script; knows LaTeX's dollars, and no page."""

import re
from collections.abc import Callable

from latex2mathml.converter import convert

CODE = re.compile(r"(^ *```.*?^ *```$|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
DISPLAYED = re.compile(r"\$\$(.+?)\$\$", re.DOTALL)
INLINE = re.compile(r"(?<!\\)\$(?!\s)([^$]+?)(?<!\s)\$")
# TeX leaves a thin space beside the name of a function, and browsers leave none beside an identifier.
NAME = re.compile(
    r"(?<=</m)(i|n|row|sub)>(?=<mi>(?:log|max|min)<)|(?<=<mi>)(log|max|min)</mi>(?!<mo)"
)
SPACE = '<mspace width="0.17em"></mspace>'
# What stands below a letter without a tail; site.css puts it low where no font for formulas is installed.
TALL = re.compile(r"<msub>(?=<mi>[A-Z]|<mrow>|<mtext>)")


class PageError(ValueError):
    """What is wrong with a page, in one sentence."""


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """The text with what is not code changed by the function."""
    return "".join(
        part if number % 2 else change(part) for number, part in enumerate(CODE.split(text))
    )


def typeset(markdown: str) -> str:
    """The text with `$…$` and `$$…$$` outside code as MathML. Raises `PageError` for what is no LaTeX."""

    def changed(part: str) -> str:
        part = DISPLAYED.sub(
            lambda found: f'<div class="formula">{displayed(found[1])}</div>', part
        )
        return INLINE.sub(
            lambda found: f'<span class="formula">{mathml(found[1], "inline")}</span>', part
        )

    return outside_code(markdown, changed)


def displayed(latex: str) -> str:
    """What stands in one `$$…$$`: formulas with a wide space between them, which may stand below each other."""
    return "".join(mathml(each, "block") for each in latex.split(r"\qquad"))


def mathml(latex: str, display: str) -> str:
    """One formula, on one line; Markdown finds nothing of its own in it."""
    try:
        text = convert(" ".join(latex.split()), display=display)
    except Exception as error:  # its own, which have nothing in common, and an IndexError
        raise PageError(
            f"a formula that cannot be read, {type(error).__name__}: {latex[:80]!r}"
        ) from error
    text = NAME.sub(
        lambda found: (f"{found[1]}>" if found[1] else f"{found[2]}</mi>") + SPACE, text
    )
    return TALL.sub('<msub class="tall">', text).replace("*", "&#x2A;").replace("_", "&#x5F;")
