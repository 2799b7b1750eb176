"""The report on scored answers: one HTML page with figures, without scripts or requests.

`report.html` is its template.
"""

from __future__ import annotations

import html
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader

from pro_lib.app.score_summary import difference_lines, head_lines, mistrust_line, reservations
from pro_lib.app.score_table import printed_table, question_table
from pro_lib.common.validation import printable
from pro_lib.evaluation.alpha_choice import Splits

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from pro_lib.app.mistrust import Mistrust
    from pro_lib.app.scored_answers import ScoredAnswers

_GENERATOR = "PRO workbench report"  # by which the command recognizes its own pages
_N_LISTED = 20  # most and least certain answers
# The kinds of the columns of tables; those of other columns are numbers.
_KINDS = {
    "": "text",
    "question": "long",
    "answer": "long",
    "correct": "text",
    "field": "text",
    "kept answers": "long",
}
_ID = re.compile(r'(?<= id=")|(?<=href="#)|(?<=url\(#)')
_TERMS = {
    "AUROC": "The probability that a wrong answer is scored as more uncertain than a right one. 1 "
    "is perfect, 0.5 is chance.",
    "95 % interval": "A confidence interval. Differences between methods are smaller than the "
    "overlap of their intervals suggests, because the methods score the same answers.",
    "Coverage": "The share of questions that are answered, the most certain ones first.",
    "Confidence": "The probability of a right answer. It is fitted to the score on some of the "
    "judged questions and compared with the answers of the others.",
    "ECE": "Expected calibration error: the mean distance between confidence and accuracy.",
    "K": "The number of answers that PRO keeps.",
}


def report_html(scored: ScoredAnswers, mistrust: Mistrust, *, name: str) -> str:
    """Return the report as an HTML page.

    Args:
        scored: the scored answers.
        mistrust: the answers to mistrust; its method ranks the answers.
        name: the name of the file or the run, for the title.
    """
    from pro_lib.evaluation.methods import METHODS

    method = mistrust.method
    rows = question_table(scored, mistrust).iloc[scored.ranking(method)]
    ranked = printed_table(rows, scored, method)
    ranked = ranked[ranked[method].notna()]
    meanings = {key: METHODS[key].meaning for key in scored.methods if key in METHODS}
    definitions = {key: f"{text[0].upper()}{text[1:]}." for key, text in meanings.items()}
    environment = Environment(
        loader=PackageLoader("pro_lib.app", ""),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"text": _text, "kind": lambda name: _KINDS.get(name, "number")}
    return environment.get_template("report.html").render(
        generator=_GENERATOR,
        title=f"Uncertainty of answers: {name}",
        method=method,
        summary=[*head_lines(scored, method), mistrust_line(scored, mistrust)],
        fields=mistrust.by_field,
        has_auroc=scored.has_both_classes,
        **(_judged_parts(scored, method) if scored.has_both_classes else {}),
        least=ranked.head(_N_LISTED),
        most=ranked.tail(_N_LISTED).iloc[::-1],
        definitions={**_TERMS, **definitions},
    )


def is_report(path: Path) -> bool:
    """Return whether a file is a page of `report_html`."""
    with open(path, "rb") as file:
        head = file.read(1000)
    return f'<meta name="generator" content="{_GENERATOR}">'.encode() in head


def _text(value: object, most: int = 300) -> str:
    """Return a text on one line, without control characters, and not longer than `most`."""
    if isinstance(value, float):
        return f"{value:z.3f}"
    text = printable(" ".join(str(value).split()))
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _judged_parts(scored: ScoredAnswers, method: str) -> dict[str, Any]:
    """Return the tables and figures that need right answers."""
    from pro_lib.plots import answered, benchmark, reliability

    name = scored.full_name(method)
    scores = scored.reported_scores
    has_scores = method in scores
    aurocs = scored.comparison[["method", "auroc", "auroc_low", "auroc_high"]]
    figures = {"auroc": benchmark.draw(aurocs, every_method=True, figure_columns=1)}
    has_nll = has_scores and "NLL" in scores
    if has_nll and not scores[method].rank().equals(scores["NLL"].rank()):
        same = Splits(scored.reported, scored.reported, None, alphas=[scored.alpha.alpha])
        curves = answered.table([same], methods=["NLL", name])
        figures["accuracy"] = answered.draw(curves, figure_columns=1)
    splits = scored.splits() if has_scores else None
    if splits is not None:
        bins = reliability.table([splits], methods=[name])
        figures["reliability"] = reliability.draw(bins, fewest=1, figure_columns=1)
    return {
        "coverage": _coverage(scored, method) if has_scores else None,
        "differences": [*difference_lines(scored), *reservations(scored)],
        **{f"{name}_figure": partial(_svg, figure, name) for name, figure in figures.items()},
    }


def _coverage(scored: ScoredAnswers, method: str) -> pd.DataFrame:
    """Return the table of accuracy by coverage, as texts."""
    table = scored.most_certain(method)
    columns = {
        "answered": table["coverage"].map("{:.0%}".format),
        "questions": table["n_answered"].map("{:,}".format),
        "accuracy": table["accuracy"].map("{:.1%}".format),
        "95 % interval": table["accuracy_low"].map("{:.1%}".format)
        + " to "
        + table["accuracy_high"].map("{:.1%}".format),
    }
    return table[[]].assign(**columns)


def _svg(figure: Figure, prefix: str, label: str) -> str:
    """Return a figure as inline SVG, whose ids begin with a prefix."""
    from pro_lib import plots
    from pro_lib.plots.style import plt

    svg = plots.svg_text(figure)
    plt.close(figure)
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = _ID.sub(f"{prefix}-", svg)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{html.escape(label)}" ', 1)
