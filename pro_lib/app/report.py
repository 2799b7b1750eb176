"""The report on scored answers: one HTML page with figures, without scripts or requests."""

from __future__ import annotations

import html
import re
import string
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pro_lib.app.score_summary import (
    alpha_lines,
    count_lines,
    difference_lines,
    reservations,
)
from pro_lib.common.validation import printable

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from pro_lib.evaluation.scored_answers import Mistrust, ScoredAnswers

_GENERATOR = "PRO workbench report"  # by which the command recognizes its own pages
_N_LISTED = 20  # most and least certain answers
_MOST_CHARACTERS = 300  # of a text in a table
# The kinds of the columns of tables.
_KINDS = {
    "": "text",
    "question": "long",
    "answer": "long",
    "correct": "text",
    "kept answers": "long",
}
_ID = re.compile(r'(?<= id=")|(?<=href="#)|(?<=url\(#)')

# The names in braces are those of the methods; a page defines the methods that it shows.
DEFINITIONS = {
    "PRO": "A lower bound of the entropy of the answers, from the K most probable ones. Answers "
    "with a probability of at least α are kept, and at least one.",
    "NLL": "The negative log-probability of the most probable answer.",
    "ALL": "NLL divided by the number of tokens.",
    "PE": "Predictive entropy: the sum of −p log p over the answers.",
    "PE-MC": "Predictive entropy, averaged over sampled answers.",
    "NE": "PE-MC with log-probabilities per token.",
    "SE": "Semantic entropy: the entropy over meanings. Answers with the same words, or almost the "
    "same, share a meaning.",
    "SD": "Semantic density: how little probability lies close to the answer in meaning.",
    "Deg": "How much the sampled answers differ in meaning, on average.",
    "SC": "Self-consistency: the share of samples with another meaning than the answer.",
    "S-NLL": "NLL with the probabilities of equal meanings added.",
    "S-PRO": "PRO with the probabilities of equal meanings added.",
}
_TERMS = {
    "AUROC": "The probability that a wrong answer is scored as more uncertain than a right one. 1 "
    "is perfect, 0.5 is chance.",
    "95 % interval": "A confidence interval. Differences between methods are smaller than the "
    "overlap of their intervals suggests, because the methods score the same answers.",
    "Coverage": "The share of questions that are answered, the most certain ones first.",
    "Confidence": "The probability of a right answer. It is fitted to the score on a random half "
    "of the judged questions and compared with the answers of the other half.",
    "ECE": "Expected calibration error: the mean distance between confidence and accuracy.",
    "K": "The number of answers that PRO keeps.",
}

_STYLES = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1b1b1b; background: #fff; margin: 0 auto;
  max-width: 60rem; padding: 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p { margin: .4rem 0; overflow-wrap: anywhere; }
figure { margin: .5rem 0; }
figure svg { display: block; width: 100%; height: auto; max-width: 32rem; }
figcaption, .quiet { color: #555; font-size: .9rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0;
  border-bottom: 1px solid #ddd; }
td.number, th.number { text-align: right; white-space: nowrap; }
td.text { overflow-wrap: anywhere; }
td.long { overflow-wrap: anywhere; min-width: 7rem; }
.wrong { color: #a33b00; }
.right { color: #00598a; }
dt { font-weight: 600; }
dd { margin: 0 0 .4rem; }
@media (max-width: 600px) {
  th, td { font-size: .85rem; padding-right: .4rem; }
  td.long { min-width: 5.5rem; }
}
@media print {
  body { font-size: 10pt; max-width: none; padding: 0; }
  h2 { break-after: avoid; }
  figure, tr, dd { break-inside: avoid; }
  .wide { overflow: visible; }
  figure svg { max-width: 12cm; }
}
"""
_PAGE = string.Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="generator" content="$generator">
<title>$title</title>
<style>$styles</style></head>
<body>
<h1>$title</h1>
$body
</body></html>
""")


def report_html(scored: ScoredAnswers, mistrust: Mistrust, *, name: str) -> str:
    """Return the report as an HTML page.

    Args:
        scored: the scored answers.
        mistrust: the answers to mistrust; its method ranks the answers.
        name: the name of the file or the run, for the title.
    """
    method = mistrust.method
    parts = [_section("Summary", _summary(scored, mistrust))]
    evaluation = scored.evaluation
    if evaluation is not None and not evaluation.one_class():
        parts += [
            _section("Answering only the most certain questions", _coverage(scored, method)),
            _section("AUROC of all methods", _aurocs(scored)),
            _section("Confidence and accuracy", _reliability(scored, method)),
        ]
    parts += [_section("Answers", _answers(scored, mistrust))]
    parts += [_section("Definitions", _definitions(scored))]
    return _PAGE.substitute(
        generator=_GENERATOR,
        title=_text(f"Uncertainty of answers: {name}"),
        styles=_STYLES,
        body="\n".join(parts),
    )


def is_report(path: Path) -> bool:
    """Return whether a file is a page of `report_html`."""
    with open(path, "rb") as file:
        head = file.read(1000)
    return f'<meta name="generator" content="{_GENERATOR}">'.encode() in head


def _section(title: str, content: str) -> str:
    return f"<section>\n<h2>{title}</h2>\n{content}\n</section>"


def _text(value: object, *, most: int = _MOST_CHARACTERS) -> str:
    """Return a text for HTML: escaped, on one line, without control characters, and not long."""
    text = printable(" ".join(str(value).split()))
    if len(text) > most:
        text = f"{text[: most - 1]}…"
    return html.escape(text)


def _summary(scored: ScoredAnswers, mistrust: Mistrust) -> str:
    """Return the counts, the origin of α and the rule of the marks."""
    lines = [*count_lines(scored), *alpha_lines(scored)]
    evaluation = scored.evaluation
    if evaluation is None:
        lines.append("Accuracy and AUROC are unknown, because the right answers are not known.")
    elif evaluation.one_class():
        lines.append(f"AUROC is not defined: {evaluation.one_class()}.")
    lines.append(mistrust.sentence)
    return "\n".join(f"<p>{_text(line, most=1000)}</p>" for line in lines)


def _coverage(scored: ScoredAnswers, method: str) -> str:
    """Return the table of accuracy by coverage, and the risk-coverage curve."""
    from pro_lib import evaluation, plots

    if method not in scored.judged_scores():
        return f"<p>{_text(method)} does not have a score for every judged question.</p>"
    rows = [
        [f"{row.coverage:.0%}", f"{row.n_answered:,}", f"{row.accuracy:.1%}", _percents(row)]
        for row in scored.most_certain(method).itertuples()
    ]
    heads = ["answered", "questions", "accuracy", "95 % interval"]
    caption = f"Accuracy of the most certain answers, by {method}"
    methods = list(dict.fromkeys([method, *(name for name in ("PRO", "NLL") if name != method)]))
    figure = plots.risk_coverage(evaluation.risk_coverage(scored, methods), figure_columns=1)
    words = "Risk-coverage curve: the lower a curve, the better the order of its method."
    return _table(caption, heads, rows) + _figure(figure, "risk", words)


def _percents(row: object) -> str:
    return f"{getattr(row, 'low'):.1%} to {getattr(row, 'high'):.1%}"  # noqa: B009


def _aurocs(scored: ScoredAnswers) -> str:
    """Return the figure of the AUROCs, and the sentences about their differences."""
    from pro_lib import evaluation, plots

    notes = [*difference_lines(scored), *reservations(scored)]
    figure = plots.benchmark(
        evaluation.auroc_table(scored),
        figure_columns=1,
        title="AUROC of each method, with its 95 % interval",
    )
    words = "A method to the right separates wrong from right answers better."
    return _figure(figure, "auroc", words) + "".join(f"<p>{_text(note)}</p>" for note in notes)


def _reliability(scored: ScoredAnswers, method: str) -> str:
    """Return the reliability diagram, or why there is none."""
    from pro_lib import evaluation, plots

    table = evaluation.calibration_table(scored, [method])
    if table.empty:
        return "<p>There are too few judged questions to fit a confidence.</p>"
    title = f"Accuracy against the confidence that {method} gives"
    words = (
        "Reliability diagram: points on the dotted line have the accuracy that their confidence "
        "says. The confidence was fitted on a random half of the judged questions."
    )
    return _figure(plots.reliability(table, figure_columns=1, title=title), "reliability", words)


def _figure(figure: Figure, prefix: str, words: str) -> str:
    """Return a figure as inline SVG, whose ids begin with a prefix."""
    from pro_lib import plots
    from pro_lib.plots.style import plt

    svg = plots.svg_text(figure)
    plt.close(figure)
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = _ID.sub(f"{prefix}-", svg)
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{html.escape(words)}" ', 1)
    return f"<figure>\n{svg}\n<figcaption>{html.escape(words)}</figcaption></figure>\n"


def _table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an HTML table.

    Columns that `_KINDS` does not name have numbers.
    """
    kinds = [_KINDS.get(name, "number") for name in heads]
    head = "".join(
        f'<th scope="col" class="{kind}">{_text(cell)}</th>'
        for kind, cell in zip(kinds, heads, strict=True)
    )
    lines = []
    for row in rows:
        cells = zip(kinds, row, strict=True)
        line = "".join(f'<td class="{kind}">{_text(cell)}</td>' for kind, cell in cells)
        lines.append(f"<tr>{line}</tr>")
    body = "\n".join(lines)
    return (
        f'<div class="wide"><table><caption>{_text(caption)}</caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>\n"
    )


def _answers(scored: ScoredAnswers, mistrust: Mistrust) -> str:
    """Return the tables of the most and the least certain answers."""
    from pro_lib.app.score_table import printed_table

    method = mistrust.method
    table = printed_table(scored, mistrust, method)
    order = scored.ranking(method)
    n_scored = int((~(table[method].isna())).sum())
    ranked = table.iloc[order[:n_scored]]
    n = min(_N_LISTED, n_scored)
    least = _answer_rows(f"The {n} least certain answers (! is to be mistrusted)", ranked.head(n))
    most = _answer_rows(f"The {n} most certain answers", ranked.tail(n).iloc[::-1])
    return least + most


def _answer_rows(caption: str, table: pd.DataFrame) -> str:
    """Return the rows of the terminal's table as HTML."""
    heads = [str(name) for name in table]
    rows = [[_cell(value) for value in row] for row in table.itertuples(index=False)]
    return _table(caption, heads, rows)


def _cell(value: object) -> str:
    return f"{value:z.3f}" if isinstance(value, float) else str(value)


def _definitions(scored: ScoredAnswers) -> str:
    """Return the definitions of the methods that the page shows, and of its terms."""
    shown = {name: DEFINITIONS[name] for name in scored.methods if name in DEFINITIONS}
    items = {**_TERMS, **shown}
    lines = [f"<dt>{_text(name)}</dt><dd>{_text(words)}</dd>" for name, words in items.items()]
    note = '<p class="quiet">All scores: a higher value means more uncertainty.</p>'
    return f"{note}\n<dl>\n" + "\n".join(lines) + "\n</dl>"
