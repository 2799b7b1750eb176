"""The explorer of notebook 00: what it shows, and its widgets."""

import base64
import functools
import html
import io
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pro_lib import bundled, evaluation, metrics, scores, semantic, sweeps
from pro_lib import questions as question_sets
from pro_lib import runs as run_tables
from pro_lib import settings as notebook_settings
from pro_lib.asking import answered
from pro_lib.bundled import bundled_models
from pro_lib.runs import Run
from pro_lib.storage import RunError, RunInfo
from pro_lib.tables import explained

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# ---- The explorer: what it shows.

ORDERS = ("as asked", "most uncertain first", "least uncertain first")
_SLIDER = np.arange(1, 101) / 100
_NEXT_TO_NOTHING = 0.005
# Where all probability lies after a search, in the order of the ledger, in colours that the colour-blind tell apart.
_MASSES = {"found": "#0072B2", "small_endings": "#56B4E9", "pruned": "#bbbbbb"}
_MASSES |= {"length_cut": "#E69F00", "budget_cut": "#000000"}


@dataclass(frozen=True)
class View:
    """A run laid out for looking at: everything that an α slider needs, computed once.

    `questions` has a row per question: question_id, question, references, text (its most probable answer), correct
    (None where it is not known), searchable (question, references and answers, for finding) and what the dataset
    adds. `alphas` (A,) are the slider's; `uncertainty` (n, A) is PRO, and `sweep` the table of `alphas` with AUROC
    (NaN where it is not defined) and mean K, of the questions with an answer. `distinct` as in `Run.log_probs`.
    """

    run: Run
    distinct: bool
    questions: pd.DataFrame
    alphas: np.ndarray
    uncertainty: np.ndarray
    sweep: pd.DataFrame

    def column(self, alpha: float) -> int:
        """Which of `alphas` is nearest."""
        return int(np.abs(self.alphas - alpha).argmin())


def view(run: Run, *, alpha: float = 0.4, distinct: bool = True) -> View:
    """Lay out a run; `alpha` will be among the slider's. A `PremiseWarning` as in `scores.pro`."""
    log_probs = run.log_probs(distinct=distinct)
    grid = sweeps.alpha_grid(run.search_alpha)
    alphas = np.unique(np.round([*grid, *_SLIDER, alpha], 9))
    alphas = alphas[alphas >= grid[0]]
    uncertainty, kept = (
        score(log_probs, alpha=alphas, search_alpha=run.search_alpha) for score in (scores.pro, scores.adaptive_k)
    )
    top = run.top()
    correct = evaluation.rouge_and_correct(top, run.questions)["correct"].to_numpy(object)
    texts = run.answers["text"].fillna("").groupby(run.answers["question_id"], sort=False).agg(" ".join)
    questions = run.questions.assign(
        question=run.questions["question"].fillna("question " + run.questions["question_id"]),
        text=top["text"].to_numpy(object),
        correct=np.where(pd.isna(correct), None, correct),
    )
    references = questions["references"].map(lambda names: "" if names is None else " ".join(names))
    found = texts.reindex(questions["question_id"], fill_value="").to_numpy(object)
    questions["searchable"] = (questions["question"] + " " + references + " " + found).str.casefold()
    scored = ~np.isnan(uncertainty[:, 0])
    used = scored & questions["correct"].notna().to_numpy()
    try:
        aurocs = metrics.auroc_columns(uncertainty[used], questions["correct"][used].to_numpy(bool))
    except ValueError:  # all right, all wrong, or none known: there is no AUROC, and everything else stands
        aurocs = np.full(len(alphas), np.nan)
    mean_kept = kept[scored].mean(axis=0) if scored.any() else np.nan
    sweep = pd.DataFrame({"alpha": alphas, "auroc": aurocs, "mean_kept": mean_kept})
    return View(run, distinct, questions, alphas, uncertainty, sweep)


def filtered(
    shown: View,
    *,
    alpha: float = 0.4,
    right: bool | None = None,
    between: tuple[float, float] | None = None,
    exposure: int | None = None,
    text: str = "",
    order: str = ORDERS[0],
) -> np.ndarray:
    """Rows of the view's questions that are asked for, in the order asked for.

    Args:
        right: only those answered right, or wrong; None for both and for those that cannot be judged.
        between: only those with PRO at `alpha` in this range, in nats; those without a score stay.
        exposure: only those whose fact the model has seen so often.
        text: only those in whose question, references or answers this is found, whatever its case.
        order: one of `ORDERS`.
    """
    uncertainty = shown.uncertainty[:, shown.column(alpha)]
    mask = np.ones(len(uncertainty), dtype=bool)
    if right is not None:
        mask &= (shown.questions["correct"] == right).to_numpy(bool)
    if between is not None:
        mask &= ~((uncertainty < between[0]) | (uncertainty > between[1]))
    if exposure is not None:
        mask &= (shown.questions["exposure"] == exposure).to_numpy(bool)
    if text.strip():
        mask &= shown.questions["searchable"].str.contains(text.strip().casefold(), regex=False).to_numpy(bool)
    rows = np.flatnonzero(mask)
    if order == ORDERS[0]:
        return rows
    sign = -1 if order == ORDERS[1] else 1
    return rows[np.argsort(sign * uncertainty[rows], kind="stable")]


def question_answers(run: Run, *, alpha: float, distinct: bool = True) -> pd.DataFrame:
    """The answers to the one question of `run`: the columns of `explained`, and what repeats and what was cut.

    Further columns: copies (times it was found), spellings (answers of the same text, see
    `run_tables.normalized`), together (their probability), finished. Answers still open at the length limit come
    last, with the probability of what there is of them; PRO does not read them, nor do their columns say more.
    """
    table = explained(run, alpha=alpha, distinct=distinct)
    ranked = {which: run.ranked(distinct=which) for which in (False, True)}
    (every, _), (_, once), (each, own) = (_shared(ranked[which]) for which in (False, True, distinct))
    mass = np.exp(ranked[True]["value"]).groupby(once).agg(["size", "sum"])
    table["copies"] = each.map(every.value_counts()).to_numpy()
    table["spellings"], table["together"] = own.map(mass["size"]).to_numpy(), own.map(mass["sum"]).to_numpy()
    table["finished"] = True
    cut = run.answers[~run.answers["finished"].to_numpy(bool)]
    rest = pd.DataFrame({"text": cut["text"].fillna("answer"), "probability": np.exp(cut["log_prob"])})
    rest = rest.assign(kept=False, copies=1, spellings=1, finished=False).drop_duplicates()
    return pd.concat([table, rest], ignore_index=True) if len(rest) else table


def _shared(answers: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """What repeats of an answer share, see `run_tables.identities`, and what its spellings share."""
    repeats = pd.Series([str(key) for key in run_tables.identities(answers)], index=answers.index)
    return repeats, answers["text"].map(run_tables.normalized, na_action="ignore").fillna(repeats)


def prefix_tree(run: Run, decode: Callable[[Sequence[int]], str], *, n_nodes: int = 30) -> pd.DataFrame:
    """The prefix tree that was searched for the one question of `run`, a row per node, parents first.

    Columns: node, parent (-1: none), kind, text (what it adds), probability, greedy. A `prefix` was put through the
    model; an `answer` ended; `open` was cut at the length limit; `cut`, one at most under a prefix, is all the rest
    of it: endings and continuations below α, what a budget left, and prefixes that are neither greedy nor among
    the `n_nodes` most probable. A prefix that goes on in one prefix only, and loses next to nothing (0.005) besides,
    is one node with it. The leaves' probabilities sum to 1.

    Raises `RunError` where the run is no exact search.
    """
    run.tree()  # says what is missing
    ledger = run.questions.iloc[0]
    parents, p, greedy = ledger["tree_parents"], np.exp(np.asarray(ledger["tree_log_probs"])), ledger["tree_greedy"]
    paths: list[tuple[int, ...]] = []
    for parent, token in zip(parents, ledger["tree_tokens"], strict=True):
        paths.append((*paths[parent], int(token)) if parent >= 0 else ())
    shown = {*np.argsort(-p, kind="stable")[:n_nodes].tolist(), *np.flatnonzero(greedy).tolist()}
    places, ends = {paths[v]: v for v in shown}, {v: [] for v in shown}
    for answer in run.answers.itertuples():
        ids = tuple(int(token) for token in answer.token_ids)
        # An answer ends at a prefix that was expanded, or with a token that closes it or after which it is cut.
        parent = places.get(ids, places.get(ids[:-1])) if answer.finished else places.get(ids[:-1])
        if parent is not None:
            ends[parent].append(answer)
    rows: list[tuple] = []

    def add(v: int, parent: int, text: str, lost: float) -> None:
        text += _added(decode, paths[v])
        below = [u for u in sorted(shown) if parents[u] == v]
        lost += p[v] - sum(p[u] for u in below) - sum(np.exp(e.log_prob + e.end_log_prob) for e in ends[v])
        if len(below) == 1 and not ends[v] and lost < _NEXT_TO_NOTHING:
            return add(below[0], parent, text, lost)
        node = len(rows)
        rows.append((node, parent, "prefix", text, p[v], bool(greedy[v])))
        last = bool(greedy[v]) and not any(greedy[u] for u in below)
        for end in ends[v]:
            kind = "answer" if end.finished else "open"
            rows.append((len(rows), node, kind, end.text, float(np.exp(end.log_prob + end.end_log_prob)), last))
        for u in below:
            add(u, node, "", 0.0)
        rows.append((len(rows), node, "cut", "cut", max(lost, 0.0), False))

    add(0, -1, "", 0.0)
    return pd.DataFrame(rows, columns=["node", "parent", "kind", "text", "probability", "greedy"])


def _added(decode: Callable[[Sequence[int]], str], path: tuple[int, ...]) -> str:
    """What the last token adds to the text: some tokenizers cannot spell it alone."""
    whole, before = decode(path), decode(path[:-1])
    return whole[len(before) :] if whole.startswith(before) else decode(path[-1:])


def disagreements(judged: evaluation.Evaluation, questions: pd.DataFrame, *, first: str, second: str, alpha: float):
    """Questions on which two methods disagree, the largest difference of ranks first, a row per question.

    Columns: question_id, question, text (the answer judged), correct, first_score, second_score, first and second
    (ranks in percent, 100 = most uncertain, ties share one), difference (first minus second).
    """
    uncertainties = judged.uncertainties(alpha=alpha)
    one, other = uncertainties[first], uncertainties[second]
    table = judged.answers[["question_id", "text"]].assign(
        correct=judged.correct,
        first_score=one,
        second_score=other,
        first=100 * one.rank() / len(one),
        second=100 * other.rank() / len(other),
    )
    table = table.assign(difference=table["first"] - table["second"])
    table = table.merge(questions[["question_id", "question"]], on="question_id", how="left", validate="1:1")
    return table.sort_values("difference", key=np.abs, ascending=False, kind="stable", ignore_index=True)


def appendix_run() -> Run:
    """The three questions of the paper's appendix as a run; what the paper prints of each is its `note`."""
    table, printed = bundled.paper("appendix_examples"), bundled.paper("appendix_scores")
    table = table.loc[table.index.repeat(table["count"])].reset_index(drop=True)
    answers = pd.DataFrame({"question_id": table["question"], "rank": table.groupby("question").cumcount()})
    answers = answers.assign(text=table["answer"], token_ids=None, token_log_probs=None)
    answers = answers.assign(log_prob=np.log(table["probability"]), end_log_prob=np.nan, finished=True)
    asked = table.drop_duplicates("question", ignore_index=True)
    printed = printed[printed["selection"] == "adaptive"].set_index("question").loc[asked["question"]]
    questions = pd.DataFrame({"question_id": asked["question"], "question": asked["question"]}).assign(
        references=[[truth] for truth in asked["truth"]],
        split=None,
        note=[
            f"The paper prints PRO = {at.pro:g} at α = {at.alpha:g}, repeats counted." for at in printed.itertuples()
        ],
    )
    return Run(answers, questions, RunInfo("nq", "Gemma-7B", "the paper's appendix"))


def stored_runs(generations_dir: str | Path) -> dict[str, Path]:
    """The run folders below a folder, by their path from there."""
    found = sorted(Path(generations_dir).rglob("run.json"))
    return {path.parent.relative_to(generations_dir).as_posix(): path.parent for path in found}


# ---- The explorer: texts of its panels. What comes from models and files is escaped.


def error_html(error: Exception) -> str:
    """An error as a sentence for a panel; its type is named only where it is not one of ours."""
    text = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
    return f'<div class="pro-error" role="alert">{html.escape(text)}</div>'


def progress_html(text: str) -> str:
    """What is shown while something takes longer."""
    return f'<div class="pro-progress" role="status"><progress></progress> {html.escape(text)}</div>'


def picture_html(figure: "Figure", *, alt: str) -> str:
    """A figure as a picture with a text for those who do not see it; the figure is closed."""
    import matplotlib.pyplot as plt

    written = io.BytesIO()
    figure.savefig(written, format="png", dpi=100, pil_kwargs={"compress_level": 1})
    plt.close(figure)
    data = base64.b64encode(written.getvalue()).decode()
    return f'<img class="pro-picture" alt="{html.escape(alt)}" src="data:image/png;base64,{data}">'


def _probability(p: float) -> str:
    return f"{p:.4f}" if p >= 1e-3 else f"{p:.1e}"


def answers_html(table: pd.DataFrame, *, alpha: float) -> str:
    """The answers of `question_answers` as bars: filled where PRO keeps them, a line at α."""
    rows = []
    for place, row in enumerate(table.itertuples(), start=1):
        notes = [
            (row.finished and not pd.isna(row.correct) and row.correct, "✓ right"),
            (row.copies > 1, f"found {row.copies} times"),
            (row.spellings > 1, f"{row.spellings:.0f} spellings, together {row.together:.3g}"),
            (not row.finished, "still open where it was cut"),
        ]
        look, width = "pro-bar pro-kept" if row.kept else "pro-bar", 100 * min(row.probability, 1)
        bar = f'<div class="{look}" style="width:{width:.2f}%"></div>'
        line = f'<div class="pro-line" style="left:{100 * alpha:.2f}%"></div>'
        cells = (
            f'<td>{place}</td><td class="pro-text">{html.escape(str(row.text))}</td>'
            f'<td><div class="pro-track">{bar}{line}</div></td><td>{_probability(row.probability)}</td>'
            f"<td>{'kept' if row.kept else ''}</td><td>{f'{row.running_pro:.3f}' if row.finished else ''}</td>"
            f'<td class="pro-text">{"; ".join(text for holds, text in notes if holds)}</td>'
        )
        rows.append(f"<tr>{cells}</tr>")
    names = ("", "answer", f"probability (line: α = {alpha:g})", "p", "", "PRO<sub>K</sub>", "")
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    return f'<table class="pro-table"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def question_html(run: Run, table: pd.DataFrame, *, alpha: float, standing: str = "") -> str:
    """The one question of `run`: what was asked, what PRO says of it, and its answers, those of `table`.

    `standing` is a sentence that is added: where the score stands among others.
    """
    question, finished = run.questions.iloc[0], table[table["finished"].astype(bool)]
    asked = f"question {question['question_id']}" if pd.isna(question["question"]) else question["question"]
    head = f'<div class="pro-head">{html.escape(asked)}</div>'
    if finished.empty:
        return (
            f"{head}<p>No answer ended before it was cut.</p>{_ledger_html(question)}{answers_html(table, alpha=alpha)}"
        )
    best, kept, mass = finished.iloc[0], int(finished["kept"].sum()), finished["probability"].sum()
    verdict = "" if pd.isna(best["correct"]) else " ✓ right" if best["correct"] else " ✗ wrong"
    references = question["references"]
    facts = [
        f"<b>{html.escape(best['text'])}</b>{verdict}",
        f"<b>PRO = {best['uncertainty']:.3f} nats</b>, K = {kept} of {len(finished)} answers",
        f"their mass together {mass:.3f}",
        *([f"references: {html.escape('; '.join(references))}"] if references is not None else []),
        *(f"{name} {html.escape(str(question[name]))}" for name in ("exposure", "conflict") if name in question),
    ]
    notes = [html.escape(question["note"])] if "note" in question else []
    if best["probability"] < alpha:
        notes.append("Nothing reaches α: PRO is the NLL of the most probable answer.")
    if mass > 1 + 1e-6:
        notes.append("The mass exceeds 1: these are not distinct answers, and PRO need not bound the entropy.")
    notes += [standing] if standing else []
    notes = "".join(f"<p>{note}</p>" for note in notes)
    return f"{head}<p>{' · '.join(facts)}</p>{notes}{_ledger_html(question)}{answers_html(table, alpha=alpha)}"


def _ledger_html(question: pd.Series) -> str:
    """What an exact search is sure of: its status, its bounds, and where all the probability lies."""
    if "status" not in question:
        return ""
    bar, words = "", []
    for name, color in _MASSES.items():
        share = question[f"{name}_mass"]
        bar += f'<div style="width:{100 * share:.2f}%;background:{color}"></div>'
        words.append(f'<span style="color:{color}">■</span> {name.replace("_", " ")} {share:.3f}')
    masses = f'<div class="pro-mass">{bar}</div><p>{" &nbsp; ".join(words)}</p>'
    searched = f"Searched down to α = {question['search_alpha']:g}: <b>{html.escape(question['status'])}</b>"
    why = f" ({html.escape(question['why'])})" if question["why"] else ""
    # A search over an endpoint has no upper bound.
    upper = f" ≤ {question['upper_bound']:.1f}" if pd.notna(question["upper_bound"]) else ""
    bounds = f"α-floor {question['alpha_floor']:.3f} ≤ tree bound {question['tree_bound']:.3f} ≤ H(Y){upper} nats"
    return f"<p>{searched}{why}. {bounds}, {question['expanded_prefixes']:,} prefixes expanded.</p>{masses}"


def standing(shown: View, row: int, *, alpha: float) -> str:
    """Where a question's score stands among those of right and of wrong answers, as a sentence."""
    values, correct = shown.uncertainty[:, shown.column(alpha)], shown.questions["correct"]
    parts = [
        f"{(values[of] < values[row]).mean():.0%} of the {of.sum():,} {name} ones"
        for name, of in (("right", (correct == True).to_numpy()), ("wrong", (correct == False).to_numpy()))  # noqa: E712
        if of.any()
    ]
    alone = correct.notna().sum() < 2 or np.isnan(values[row])
    return "" if alone else f"More uncertain than {' and '.join(parts)}."


def disagreements_html(table: pd.DataFrame, *, names: tuple[str, str], n: int = 10) -> str:
    """The first `n` rows of `disagreements`, numbered as in the figure."""
    rows = table.head(n)
    columns = {
        "question": rows["question"].fillna(rows["question_id"]),
        "answer": rows["text"].fillna(""),
        "": np.where(rows["correct"].astype(bool), "✓ right", "✗ wrong"),
        names[0]: rows["first_score"].map("{:.3f}".format),
        "rank": rows["first"].map("{:.0f} %".format),
        f"{names[1]} ": rows["second_score"].map("{:.3f}".format),
        "rank ": rows["second"].map("{:.0f} %".format),
    }
    # pandas escapes the texts, and cuts none of them.
    with pd.option_context("display.max_colwidth", None):
        return pd.DataFrame(columns).set_axis(np.arange(1, len(rows) + 1)).to_html(classes="pro-wrapped", border=0)


def summary_html(shown: View, *, alpha: float) -> str:
    """The run at `alpha` in a sentence."""
    at, correct = shown.sweep.iloc[shown.column(alpha)], shown.questions["correct"].dropna().astype(bool)
    n, auroc = len(shown.questions), f"{at['auroc']:.3f}"
    if correct.empty:
        auroc = "not defined: no answer can be judged"
    elif np.isnan(at["auroc"]):
        auroc = f"not defined: all {len(correct):,} judged answers are {'right' if correct.all() else 'wrong'}"
    judged = "" if len(correct) == n else f" of the {len(correct):,} that can be judged"
    accuracy = f", {correct.mean():.0%} right{judged}" if len(correct) else ""
    kept = "no answer ended" if np.isnan(at["mean_kept"]) else f"mean K {at['mean_kept']:.2f}"
    name = html.escape(shown.run.name)
    return f"<b>AUROC {auroc}</b> · {kept} · {name}, n = {n:,}{accuracy}"


# ---- The explorer: its widgets.

_CSS = """<style>
.pro-head{font-size:1.25em;font-weight:600;margin:.2em 0}
.pro-table{border-collapse:collapse;line-height:1.35}
.pro-table th,.pro-table td{padding:1px 8px;text-align:right;white-space:nowrap}
.pro-table .pro-text{text-align:left;white-space:normal;max-width:22em}
.pro-wrapped{line-height:1.35}.pro-app .pro-wrapped td,.pro-app .pro-wrapped th{padding:1px 6px;text-align:left}
.pro-track{position:relative;width:220px;height:13px;background:#f2f2f2}
.pro-bar{height:11px;border:1px solid #0072B2;background:#fff;box-sizing:content-box}.pro-kept{background:#0072B2}
.pro-line{position:absolute;top:-2px;height:17px;border-left:2px solid #D55E00;box-shadow:0 0 0 1px #fff}
.pro-app .pro-wrapped td:nth-child(n+4){white-space:nowrap}
.pro-mass{display:flex;width:420px;height:11px;border:1px solid #888}
.pro-picture{max-width:100%;background:#fff}.pro-error{color:#a30000;font-weight:600}
.pro-app p{margin:.25em 0;line-height:1.35}
</style>"""
# JupyterLab takes arrow keys for going from cell to cell, also from a list or slider that has the focus, unless that
# very element says otherwise; widgets cannot say so from Python. The picture is a transparent pixel.
_KEYS = """<img alt="" style="display:none" onload="window.proKeys ||= (document.addEventListener('focusin', event =>
event.target.closest('.pro-app') && event.target.setAttribute('data-lm-suppress-shortcuts', 'true')), true)"
src="data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7">"""
_LISTED = 500  # questions in the list; a browser is slow with thousands
_PAPER = "the paper's appendix"


class Explorer:
    """The widgets of `explore`, wired to the functions above. `box` is what is shown."""

    def __init__(self, run: Run, settings: notebook_settings.Settings):
        self.settings, self._views, self._compared, self._asked = settings, {}, {}, None
        self._runs = {f"{run.name} (this notebook)": run, _PAPER: appendix_run()}
        self._runs |= stored_runs(settings.generations_dir)
        self._wiring = False
        self._build()
        self._wire()
        self._guarded(self._choose_run)()

    def _build(self) -> None:
        import ipywidgets as w

        def text() -> w.HTML:
            return w.HTML(layout=w.Layout(flex="0 1 auto", min_width="0"))

        line, broad = w.Layout(width="98%"), w.Layout(width="460px")
        self.runs = w.Dropdown(options=list(self._runs), description="Run", layout=broad)
        self.splits = w.Dropdown(options=["all"], description="Split", layout=w.Layout(width="220px"))
        self.paper = w.Button(description="The paper's examples", layout=w.Layout(width="auto"))
        self.repeats = w.Checkbox(description="count repeated answers, as the paper does", indent=False)
        self.repeats.layout.width = "auto"
        self.alpha = w.SelectionSlider(options=[self.settings.alpha], description="α", layout=broad)
        self.summary, self.status = text(), text()

        self.right = w.ToggleButtons(options=["all", "right", "wrong"])
        self.right.style.button_width = "30%"
        self.find = w.Text(placeholder="text in question or answers", layout=line, continuous_update=False)
        self.between = w.FloatRangeSlider(min=0, max=1, step=0.05, description="PRO", layout=line, readout_format=".1f")
        self.exposure = w.Dropdown(description="exposure", layout=line)
        self.order = w.Dropdown(options=ORDERS, description="order", layout=line)
        self.list = w.Select(rows=12, layout=line)
        self.previous, self.next = w.Button(description="◀ previous"), w.Button(description="next ▶")
        self.listed, self.question, self.picture = text(), text(), text()
        filters = [self.right, self.find, self.between, self.exposure, self.order, self.list]
        left = w.VBox([*filters, w.HBox([self.previous, self.next]), self.listed])
        left.layout = w.Layout(width="30%", min_width="250px")
        questions = w.VBox([w.HBox([left, self.question]), self.picture])

        self.ask_text = w.Text(placeholder="type a question, then Enter", layout=broad)
        self.ask_alpha = w.Dropdown(options=[0.2, 0.1, 0.05, 0.02, 0.01, 0.005], value=0.02, description="search α")
        self.ask_button = w.Button(description="Ask", button_style="primary")
        self.answer, self.tree = text(), text()
        asking = w.VBox([w.HBox([self.ask_text, self.ask_alpha, self.ask_button]), self.answer, self.tree])

        self.first, self.second = (w.Dropdown(description=name) for name in ("method", "against"))
        self.open = w.Select(rows=11, description="look at", layout=line)
        self.disagreed, self.scatter = text(), text()
        self.scatter.layout.flex = "0 0 44%"
        comparing = w.VBox([w.HBox([self.first, self.second]), w.HBox([self.scatter, self.disagreed]), self.open])

        self.tabs = w.Tab([questions, asking, comparing], titles=("Questions", "Ask", "Compare"))
        top = [w.HBox([self.runs, self.splits, self.paper]), w.HBox([self.alpha, self.repeats])]
        self.box = w.VBox([w.HTML(_CSS + _KEYS), *top, self.summary, self.status, self.tabs])
        self.box.add_class("pro-app")

    def _wire(self) -> None:
        filters = (self.right, self.find, self.between, self.exposure, self.order)
        for widgets, handler in (
            ([self.runs], self._choose_run),
            ([self.splits, self.repeats], self._choose_view),
            ([self.alpha], self._show),
            (filters, functools.partial(self._fill, -1)),
            ([self.list], self._show_question),
            ([self.first, self.second], self._show_compared),
            ([self.open], self._look_at),
        ):
            for widget in widgets:
                widget.observe(self._guarded(handler), names="value")
        self.tabs.observe(self._guarded(self._show), names="selected_index")
        for button, handler in (
            (self.paper, self._choose_paper),
            (self.previous, functools.partial(self._step, -1)),
            (self.next, functools.partial(self._step, 1)),
            (self.ask_button, self._ask),
        ):
            button.on_click(self._guarded(handler))
        asked = self._guarded(self._ask)
        self.ask_text.on_msg(lambda _, content, __: asked() if content.get("event") == "submit" else None)

    def _guarded(self, handler: Callable[[], None]) -> Callable[..., None]:
        """The handler, ending in a sentence when it fails or warns: a traceback would land where nobody looks."""

        def guarded(*_: object) -> None:
            if self._wiring:
                return
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", UserWarning)
                try:
                    handler()
                    # A violated premise is said question by question; what else there is, is said here.
                    said = {str(warning.message): None for warning in caught if warning.category is UserWarning}
                    self.status.value = html.escape(" ".join(said))
                except Exception as error:
                    self.status.value = error_html(error)

        return guarded

    def _set(self, widget: object, **traits: object) -> None:
        """Change a widget without setting its handler off."""
        before, self._wiring = self._wiring, True
        for name, value in traits.items():
            setattr(widget, name, value)
        self._wiring = before

    # Which run is looked at.

    def _choose_paper(self) -> None:
        self._show_all()
        self._set(self.runs, value=_PAPER)
        self._choose_run()

    def _show_all(self) -> None:
        """Open the questions, without a filter."""
        for widget, value in ((self.right, "all"), (self.find, ""), (self.exposure, "any"), (self.order, ORDERS[0])):
            self._set(widget, value=value)
        self._set(self.between, value=(0, self.between.max))
        self._set(self.tabs, selected_index=0)

    def _choose_run(self) -> None:
        self.status.value = progress_html(f"Reading {self.runs.value} …")
        run = self._runs[self.runs.value]
        self._run = run if isinstance(run, Run) else run_tables.read(run)
        self._set(self.list, options=())  # the question shown before is one of another run, and so is the one asked
        self._asked = None
        splits = list(self._run.questions["split"].dropna().unique())
        value = self.settings.split if self.settings.split in splits else "all"
        self._set(self.splits, options=["all", *splits], value=value)
        self._choose_view()

    def _choose_view(self) -> None:
        self._key = (self.runs.value, self.splits.value, self.repeats.value)
        if self._key not in self._views:
            self.status.value = progress_html("Scoring the questions at every α …")
            run = self._run if self.splits.value == "all" else self._run.select(split=self.splits.value)
            self._views[self._key] = view(run, alpha=self.settings.alpha, distinct=not self.repeats.value)
        self.view = self._views[self._key]
        alphas = self.view.alphas.tolist()
        value = alphas[self.view.column(self.alpha.value)]
        self._set(self.alpha, options=[(f"{alpha:g}", alpha) for alpha in alphas], value=value)
        highest = np.nanmax(self.view.uncertainty[:, self.view.column(value)], initial=0.1)
        self._set(self.between, max=np.ceil(highest), value=(0, np.ceil(highest)))
        seen = sorted(self.view.questions.get("exposure", pd.Series(dtype=float)).dropna().unique().tolist())
        self._set(self.exposure, options=["any", *seen], value="any")
        self.exposure.disabled = not seen
        self._show()

    # What is shown of it.

    def _show(self) -> None:
        """The summary and the tab that is open; the others are brought up to date when they are opened."""
        self.summary.value = summary_html(self.view, alpha=self.alpha.value)
        (self._fill, self._show_asked, self._show_compared)[self.tabs.selected_index]()

    def _fill(self, row: int | None = None) -> None:
        """The list of questions that pass the filters, and `row`, or the one shown before, or else the first."""
        low, high = self.between.value
        rows = filtered(
            self.view,
            alpha=self.alpha.value,
            right={"right": True, "wrong": False}.get(self.right.value),
            # An end that was not moved leaves out nothing.
            between=(low or -np.inf, high if high < self.between.max else np.inf),
            exposure=None if self.exposure.value == "any" else self.exposure.value,
            text=self.find.value,
            order=self.order.value,
        ).tolist()
        row = self.list.value if row is None else row
        row = row if row in set(rows) else next(iter(rows), None)
        listed = list(dict.fromkeys([*rows[:_LISTED], row])) if rows else []
        texts, correct = self.view.questions["question"], self.view.questions["correct"]
        marks = {True: "✓", False: "✗", None: "?"}
        options = tuple((f"{marks[correct[at]]} {texts[at]}", at) for at in listed)
        if options != self.list.options:
            self._set(self.list, options=options)
        self._set(self.list, value=row)
        first = f", the first {_LISTED} listed" if len(rows) > _LISTED else ""
        self.listed.value = f"{len(rows):,} of {len(texts):,} questions{first}"
        self._show_question()

    def _show_question(self) -> None:
        from pro_lib import figures

        row, alpha = self.list.value, self.alpha.value
        if row is None:
            self.question.value, self.picture.value = "<p>No question passes the filters.</p>", ""
            return
        one = self.view.run.select(question_ids=[self.view.questions["question_id"][row]])
        table = question_answers(one, alpha=alpha, distinct=self.view.distinct)
        says = standing(self.view, row, alpha=alpha)
        self.question.value = question_html(one, table, alpha=alpha, standing=says)
        places = pd.DataFrame(
            {
                "uncertainty": self.view.uncertainty[:, self.view.column(alpha)],
                "correct": self.view.questions["correct"],
                "shown": np.arange(len(self.view.questions)) == row,
            }
        )
        ledger = one.questions.iloc[0]
        bounds = {"α-floor": ledger["alpha_floor"], "tree bound": ledger["tree_bound"]} if "status" in ledger else None
        figure = figures.looked_at(table[table["finished"]], places, self.view.sweep, alpha=alpha, bounds=bounds)
        self.picture.value = picture_html(figure, alt=f"PRO as K grows, scores, AUROC, mean K at α = {alpha:g}. {says}")

    def _step(self, by: int) -> None:
        if self.list.index is not None:
            self.list.index = min(max(self.list.index + by, 0), len(self.list.options) - 1)

    # Asking.

    def _ask(self) -> None:
        info = self.view.run.info
        name = _model_name(self.view.run, self.settings)
        self.status.value = progress_html(f"Loading {info.model} …")
        model = self.settings.loaded(name)
        self.status.value = progress_html(f"{info.model} is searching …")
        shots = tuple((question, answer) for question, answer in info.parameters["shots"])
        asked_as = {name: info.parameters[name] for name in ("header", "template")}
        questions = question_sets.QuestionSet(info.dataset, pd.DataFrame(), shots, **asked_as)
        options = {"strategy": "threshold", "search_alpha": self.ask_alpha.value}
        options |= {
            name: info.parameters[name] for name in ("chat", "max_new_tokens", "stop") if name in info.parameters
        }
        run = answered(model, self.ask_text.value, questions=questions, **options)
        self._asked = run, prefix_tree(run, model.decode)
        self._show_asked()

    def _show_asked(self) -> None:
        from pro_lib import figures

        if self._asked is None:
            self.answer.value, self.tree.value = self._to_be_asked(), ""
            return
        (run, tree), alpha = self._asked, self.alpha.value
        table = question_answers(run, alpha=alpha)
        self.answer.value = question_html(run, table, alpha=alpha)
        figure = figures.prefix_tree(tree, alpha=alpha)
        self.tree.value = picture_html(figure, alt="The prefixes searched, their probabilities and what was cut")

    def _to_be_asked(self) -> str:
        try:
            _model_name(self.view.run, self.settings)
        except RunError as error:
            return f"<p>{html.escape(str(error))}</p>"
        return f"<p>{html.escape(self.view.run.info.model)} will be asked with the same prompt as in the run above.</p>"

    # Comparing.

    def _show_compared(self) -> None:
        from pro_lib import figures

        if self._key not in self._compared:
            self.scatter.value = self.disagreed.value = ""
            self._set(self.open, options=())
            self.status.value = progress_html("Scoring the questions with every method …")
            run, choices = self.view.run, evaluation.Choices(distinct=self.view.distinct)
            judges = {"lexical": semantic.judge("lexical")}
            self._compared[self._key] = evaluation.evaluate(
                run, samples=self._samples(), judges=judges, choices=choices
            )
        judged, alpha = self._compared[self._key], self.alpha.value
        methods = tuple(judged.uncertainties(alpha=alpha).columns)
        if methods != self.first.options:
            other = "SE, lexical" if "SE, lexical" in methods else methods[-1]
            self._set(self.first, options=methods, value="PRO")
            self._set(self.second, options=methods, value=other)
        names = (self.first.value, self.second.value)
        table = disagreements(judged, self.view.questions, first=names[0], second=names[1], alpha=alpha)
        try:
            aurocs = (metrics.auroc(table[f"{which}_score"], table["correct"]) for which in ("first", "second"))
            says = ", ".join(f"{name} {auroc:.3f}" for name, auroc in zip(names, aurocs, strict=True))
        except metrics.OneClassError as error:
            says = str(error)
        self.disagreed.value = f"<p>AUROC: {html.escape(says)}</p>{disagreements_html(table, names=names)}"
        options = [("choose one of these to look at it", "")]
        options += [(f"{n}. {row.question}", row.question_id) for n, row in enumerate(table.head(10).itertuples(), 1)]
        if tuple(options) != self.open.options:  # else the next one is an arrow key away from the last one looked at
            self._set(self.open, options=options, value="")
        figure = figures.disagreement(table, names=names)
        self.scatter.value = picture_html(figure, alt=f"Ranks of the questions by {names[0]} and by {names[1]}")

    def _samples(self) -> Run | None:
        """Stored samples of the same questions, which some methods read."""
        run = self.view.run
        folder = self.settings.generations_dir / run.info.dataset / run.info.model / evaluation.SAMPLES
        try:
            return run_tables.read(folder).select(question_ids=list(run.questions["question_id"]))
        except RunError:
            return None

    def _look_at(self) -> None:
        if not self.open.value:
            return
        row = int(np.flatnonzero(self.view.questions["question_id"] == self.open.value)[0])
        self._show_all()
        self._fill(row)


def _model_name(run: Run, settings: notebook_settings.Settings) -> str:
    """What to load to ask the model of a run."""
    named = [name for name in settings.models if Path(name).name == run.info.model]
    source = run.info.model if run.info.model in bundled_models() else run.info.provenance.get("source")
    if not (named or source) or "shots" not in run.info.parameters:
        raise RunError(f"{run.name} comes without a model to ask; choose another run")
    return named[0] if named else source


def explore(run: Run, settings: notebook_settings.Settings):
    """The explorer: a widget that shows `run`, the other runs of `settings.generations_dir`, and the paper's examples.

    Choose a run, filter its questions, look at one; ask the model of the run; compare two methods. One α moves it all.
    """
    return Explorer(run, settings).box
