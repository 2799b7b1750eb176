"""The answers to six questions, and which of them PRO keeps (notebook 00)."""

import textwrap
from typing import Any

import numpy as np
import pandas as pd

from pro_lib import scoring
from pro_lib.common import catalog
from pro_lib.metrics.correctness import rouge_and_correct
from pro_lib.plots.captions import join_caption, span
from pro_lib.plots.figure import checked_table, labelled_figure
from pro_lib.plots.settings import with_run
from pro_lib.plots.style import COLORS, SHARE_TICKS, Figure, set_ticks
from pro_lib.runs.run import Run

_N_EXAMPLES = 6
_N_ANSWERS = 5  # drawn of each
_KINDS = ("unknown", "right", "wrong", "several kept")
_TITLE_LENGTHS = {1: 25, 2: 34}  # characters of a line above a panel, by the figure's columns
_LABEL_LENGTH = 24  # characters of an answer beside a panel
_EDGE = {"edgecolor": COLORS[0], "lw": 0.8}
_BARS: dict[bool, dict[str, Any]] = {
    True: {"color": COLORS[0], "label": "used by PRO", **_EDGE},
    False: {"color": "white", "label": "not used", **_EDGE, "edgecolor": COLORS[7]},
}
_BOX = {"fc": "white", "ec": "none", "pad": 0.5}
_ALPHA: dict[str, Any] = {"color": COLORS[1], "lw": 1, "ls": "--"}
_COLUMNS = ["question", "text", "probability", "is_kept", "is_correct", "pro", "reference"]


def table(run: Run, *, alpha: float = 0.4, seed: int = 0, split: str = "test") -> pd.DataFrame:
    """Return the answers to six questions, drawn with `seed`, as `details` does.

    There are three kinds of questions: PRO keeps more than one answer at α, or it keeps one answer
    that is correct, or one that is wrong. The same number is drawn of each kind that occurs. If
    correctness is unknown, questions with one answer are a kind, too.
    """
    ids = run.questions["question_id"].to_numpy(object)
    is_correct = rouge_and_correct(run.top(), run.questions)["correct"]
    kinds = is_correct.map({True: "right", False: "wrong"}).fillna("unknown")
    n_kept = scoring.adaptive_k(run.log_probs(), alpha, search_alpha=run.search_alpha)
    kinds[n_kept > 1] = "several kept"
    # The order of the kinds decides which random numbers each gets.
    occurring = [kind for kind in _KINDS if (kinds == kind).any()]
    n_each = _N_EXAMPLES // len(occurring)
    generator = np.random.default_rng(seed)
    chosen_ids: list[str] = []
    for kind in occurring:
        ids_of_kind = ids[(kinds == kind).to_numpy()]
        chosen_ids += generator.permutation(ids_of_kind)[:n_each].tolist()
    return details(run.select(question_ids=chosen_ids), alpha=alpha, split=split)


def details(
    run: Run, *, alpha: float = 0.4, distinct: bool = True, split: str = "test"
) -> pd.DataFrame:
    """Return every answer of a run with its probability and its PRO, the most probable first.

    Args:
        run: the run of the questions.
        alpha: α of PRO.
        distinct: count repeated answers once.
        split: the name of the split of the questions.

    Returns:
        A table with the dataset, model, strategy, split and n_questions, and

        - question_id, question, and reference: the first reference answer.
        - k: the rank of the answer.
        - text, probability and is_correct. A missing text is called "answer" with its rank.
        - is_kept: whether PRO keeps the answer at α.
        - pro_at_k: PRO of the first k answers.
        - pro: PRO of the question at α.
    """
    log_probs = run.log_probs(distinct=distinct)
    answers = run.ranked_answers(distinct=distinct)
    row = answers["row"].to_numpy()
    place = answers.groupby("row").cumcount().to_numpy()
    questions = run.questions.iloc[row].reset_index(drop=True)
    n_kept = scoring.adaptive_k(log_probs, alpha, search_alpha=run.search_alpha)
    ranks = pd.Series(place + 1).astype(str)
    columns = {
        "question_id": answers["question_id"],
        "question": questions["question"].fillna("question " + questions["question_id"]),
        "k": place + 1,
        "text": answers["text"].fillna("answer " + ranks),
        "probability": np.exp(answers["value"]),
        "is_kept": place < n_kept[row],
        "is_correct": rouge_and_correct(answers, questions)["correct"],
        "pro_at_k": scoring.pro_all_k(log_probs)[row, place],
        "pro": scoring.pro(log_probs, alpha=alpha, search_alpha=run.search_alpha)[row],
        "reference": questions["references"].str[0],
    }
    return with_run(columns, run, split)


def appendix(run: Run) -> pd.DataFrame:
    """Return the answers of the paper's appendix, with PRO at each K and the PRO that is printed.

    Args:
        run: the three questions of the appendix, with the printed probabilities.

    Returns:
        A table with question, k, text, probability, is_kept and pro (at α = 0.1, repeats counted),
        is_correct, pro_at_k, and printed_pro, which is missing where the paper prints nothing.
    """
    printed = catalog.paper("appendix_scores").rename(columns={"pro": "printed_pro"})
    rows = details(run, alpha=0.1, distinct=False).astype({"k": "Int64"})
    keys = ["question", "k"]
    rows = rows.merge(printed[[*keys, "printed_pro"]], on=keys, how="left")
    values = ["probability", "is_kept", "is_correct", "pro", "pro_at_k", "printed_pro"]
    return rows[[*keys, "text", *values]]


def draw(
    table: pd.DataFrame,
    *,
    alpha: float,
    figure_columns: int = 2,
) -> Figure:
    """Draw the probabilities of the answers to some questions: a panel for each question.

    A panel has the five most probable answers. A figure of one column has every second question, so
    that each kind is there.

    Args:
        table: has a row per answer, and needs the columns question, text, probability, is_kept,
            is_correct, pro and reference. It may have dataset and model.
        alpha: α, drawn as a line.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
    """
    table = checked_table(table, _COLUMNS, "examples")
    length = _TITLE_LENGTHS[figure_columns]
    questions = table["question"].unique()[:: 3 - figure_columns]
    shown = (
        table[table["question"].isin(questions)].groupby("question", sort=False).head(_N_ANSWERS)
    )
    most = max(3, shown["question"].value_counts().max())
    with labelled_figure(
        shown.drop(columns="n_questions", errors="ignore"),
        "question",
        title="Probabilities of answers, and which of them PRO uses",
        x="probability of the answer",
        y="answer (✓: correct)",
        figure_columns=figure_columns,
        per_line=figure_columns,
        untitled=["question"],
        height=0.13 * most + 0.4,
        least_height=0.45,
        sharex=True,
        sharey=False,
    ) as (figure, panels):
        for ax, rows in panels:
            places = pd.Series(range(len(rows)), rows.index)
            for is_kept, some in rows.groupby("is_kept", sort=False):
                bars = ax.barh(places[some.index], some["probability"], **_BARS[bool(is_kept)])
                values = some["probability"].map("{:.3f}".format).replace("0.000", "<0.001")
                ax.bar_label(bars, values, fontsize=7, padding=2, bbox=_BOX)
            marks = rows["is_correct"].eq(True).map({True: "✓ ", False: ""})
            names = [_short(text, _LABEL_LENGTH) or "(empty)" for text in rows["text"].fillna("")]
            ax.set_yticks(range(len(rows)), marks + names)
            first = rows.iloc[0]
            lines = textwrap.wrap(first["question"], length, max_lines=3, placeholder=" …")
            if isinstance(first["reference"], str):
                lines.append(_short(f"reference: {first['reference']}", length))
            lines.append(f"PRO = {first['pro']:.2f} nats, K = {rows['is_kept'].sum()}")
            ax.set_title("\n".join(lines), loc="left", fontsize=7)
            ax.axvline(alpha, label=f"α = {alpha:g}", **_ALPHA)
            ax.set(xlim=(0, 1), ylim=(most - 0.5, -0.5))
            set_ticks(ax.xaxis, SHARE_TICKS)
    return figure


def caption(table: pd.DataFrame, *, alpha: float) -> str:
    """Say what the bars are, and what PRO is for the most and the least certain question."""
    pro = table.groupby("question", sort=False)["pro"].first()
    n_kept = table.groupby("question", sort=False)["is_kept"].sum()
    n_several = int((n_kept > 1).sum())
    found = " found by diverse beams" if (table["strategy"] == "diverse_beam").all() else ""
    kinds = "one answer used and correct, or one used and wrong"
    if n_several:
        kinds += ", or several used"
    shown = (
        f"The most probable answers{found} to {len(pro)} questions with their probabilities, at "
        f"most {_N_ANSWERS} each, repeats not counted, and α = {alpha:g} (dashed). PRO uses the "
        "filled answers, which have p ≥ α or are the most probable, and ✓ marks correct ones. The "
        f"questions are drawn by kind: {kinds}."
    )
    uses = f"uses several answers for {n_several} of {len(pro)} questions"
    if not n_several:
        uses = f"is NLL here, because no question has several answers with p ≥ {alpha:g} (K = 1)"
    finding = f"PRO is {span(pro, '{:.2f}')} nats, and {uses}."
    return join_caption(shown, table.assign(correctness="ROUGE-L > 0.3"), finding)


def _short(text: str, most: int) -> str:
    """Return a text that is cut after a whole word, so that it fits the figure.

    Only a first word that is too long by itself is cut inside.
    """
    words = textwrap.shorten(text, most, placeholder=" …")
    return words if words != "…" else f"{text.strip()[: most - 2]} …"
