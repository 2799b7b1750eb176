"""What an exact search finds, certifies, bounds and costs, against its α (notebook 07)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pro_lib import metrics, scoring
from pro_lib.evaluation.evaluation import DEFAULT_ALPHA, alpha_grid
from pro_lib.metrics.auroc import FloatArray
from pro_lib.plots.captions import join_caption, percent_span, signed_span
from pro_lib.plots.figure import checked_table, labelled_figure
from pro_lib.plots.settings import per_setting, with_run
from pro_lib.plots.style import Axes, Figure, draw_curve, set_ticks
from pro_lib.runs.run import Run

_SHOWN = (
    "An exact search finds every answer with p ≥ α. Certified: it found all of them, at least one; "
    "fallback: no answer has p ≥ α; undecided: it stopped too early. Entropy and bounds are means "
    "over the questions that are certified at this α; the entropy is estimated from samples, with "
    "its 95 % confidence interval (band). The cost is in tokens put through the model. Beams are "
    "those of diverse beam search."
)
# The thresholds that are reported, besides the α of the search and the default α.
SEARCH_ALPHAS = (0.4, 0.2, 0.1, 0.05, 0.02, 0.01)
# Bounds are compared up to the rounding of the stored log-probabilities.
_ROUNDING = 1e-6
_TICKS = (0.005, 0.02, 0.1, 0.4)
_BOUNDS = "entropy (nats)"
# The panels, with the names of their lines by column of the table
_PANELS = {
    "found by beams": {
        "recall": "answers with p ≥ α",
        "share_all_recalled": "all of a question",
    },
    "share of questions": {
        "share_certified": "certified",
        "share_fallback": "fallback",
        "share_undecided": "undecided",
    },
    _BOUNDS: {
        "entropy": "entropy",
        "tree_bound": "tree bound",
        "alpha_floor": "α-floor",
        "pro": "PRO",
    },
    "tokens per question": {
        "token_forwards": "exact search",
        "beam_forwards": "diverse beams",
        "greedy_forwards": "greedy decoding",
    },
}


@dataclass(frozen=True)
class SearchRuns:
    """The runs of one model on one dataset that are compared, with the same questions.

    Attributes:
        search: the answers of an exact search (strategy `threshold`).
        beams: the answers of diverse beam search.
        greedy: the answers of greedy decoding.
        samples: samples of the model itself, for the estimate of the entropy.
    """

    search: Run
    beams: Run
    greedy: Run
    samples: Run

    def select(self, split: str) -> SearchRuns:
        """Return the runs of the questions of one split."""
        return SearchRuns(
            search=self.search.select(split=split),
            beams=self.beams.select(split=split),
            greedy=self.greedy.select(split=split),
            samples=self.samples.select(split=split),
        )


@per_setting
def table(
    runs: SearchRuns, *, split: str = "test", default: float = DEFAULT_ALPHA
) -> list[pd.DataFrame]:
    """Return the results of an exact search at each α, the share that beams find, and the costs.

    One search is run, at the smallest α. Its tree contains the tree of every larger α, from which
    the other rows are read. Columns of a row, besides dataset, model, strategy, split, n_questions
    and alpha:

    - share_certified, share_fallback, share_undecided: shares of the questions by the status of the
      search. Certified: all answers with p ≥ α were found, and there is at least one. Fallback:
      no answer reaches α. Undecided: a prefix with p ≥ α was not finished.
    - mean_answers, found_mass, alpha_floor, tree_bound, expanded_prefixes, token_forwards: means
      over all questions of the number of answers with p ≥ α, their probability, the two bounds on
      the entropy in nats, and the cost.
    - greedy_forwards, beam_forwards: the cost of greedy decoding and of beams.
    - n_recalled, recall: number and share of the answers with p ≥ α that beams found as well.
    - n_with_answers, share_all_recalled: number of questions that have answers with p ≥ α, and the
      share of them for which beams found all of these answers.
    """
    setting = runs.select(split)
    matrices = _Search.of_run(setting.search)
    answers = _with_recall(setting)
    costs = {
        "greedy_forwards": _forwards_per_question(setting.greedy),
        "beam_forwards": _forwards_per_question(setting.beams),
    }
    rows = []
    for alpha in _search_alphas(setting.search, default):
        questions = matrices.at(alpha)
        shares = {
            f"share_{status}": (questions["status"] == status).mean()
            for status in ("certified", "fallback", "undecided")
        }
        means = questions.drop(columns=["status", "pro"]).rename(
            columns={"answers": "mean_answers"}
        )
        row = {"alpha": alpha, **shares, **means.mean().to_dict(), **costs}
        rows.append(row | _recall(answers[answers["value"] >= np.log(alpha)]))
    return [with_run(pd.DataFrame(rows), setting.search, split)]


@per_setting
def bounds(
    runs: SearchRuns, *, split: str = "test", default: float = DEFAULT_ALPHA
) -> list[pd.DataFrame]:
    """Return PRO, the two bounds of a search and the entropy, on the questions certified at each α.

    PRO is a lower bound of the entropy only for certified questions. Their number grows as α falls,
    so the rows are about different questions. Columns, besides dataset, model, strategy, split,
    n_questions and alpha:

    - n_certified: number of certified questions; the other columns are about these.
    - pro, alpha_floor, tree_bound: means in nats.
    - entropy: mean of the estimates of the entropy by samples, with its 95 % interval.
    - entropy_interval_width: mean width of the 95 % interval of the entropy of one question.
    - n_ordered: number of questions with PRO ≤ α-floor ≤ tree bound.
    - entropy_minus_tree_bound: mean paired difference, with its 95 % interval.
    """
    setting = runs.select(split)
    matrices = _Search.of_run(setting.search)
    entropies = setting.samples.entropy().rename(columns={"estimate": "entropy"})
    rows = []
    for alpha in _search_alphas(setting.search, default):
        questions = matrices.at(alpha).join(entropies)
        certified = questions[questions["status"] == "certified"]
        rows.append({"alpha": alpha, "n_certified": len(certified)} | _bounds(certified))
    return [with_run(pd.DataFrame(rows), setting.search, split)]


def draw(
    table: pd.DataFrame,
    bounds: pd.DataFrame | None = None,
    *,
    figure_columns: int = 2,
    title: str = "What an exact search finds, certifies and costs",
) -> Figure:
    """Draw what an exact search finds against its α: four panels for each dataset and model.

    Args:
        table: needs the columns alpha, recall, share_all_recalled, share_certified, share_fallback,
            share_undecided, token_forwards, beam_forwards and greedy_forwards. It may have dataset
            and model.
        bounds: the entropy and its lower bounds, with the columns alpha, pro, alpha_floor,
            tree_bound and entropy; it may have entropy_low and entropy_high, which are drawn as a
            band. Without it there are three panels.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        title: the title of the figure.
    """
    parts = []
    for name, lines in _PANELS.items():
        source = bounds if name == _BOUNDS else table
        if source is not None:
            checked = checked_table(source, ["alpha", *lines], "exact_search")
            parts.append(checked.assign(panel=name))
    with labelled_figure(
        pd.concat(parts).drop(columns="n_questions", errors="ignore"),
        *("dataset", "model", "panel"),
        title=title,
        x="α, down to which the search finds every answer",
        figure_columns=figure_columns,
        per_line=2 * figure_columns,
        height=1.5,
    ) as (figure, panels):
        for ax, setting, rows in panels:
            _draw_lines(ax, _PANELS[setting["panel"]], rows)
    return figure


def caption(table: pd.DataFrame, bounds: pd.DataFrame) -> str:
    """Say what beams find, what is certified, and how the bounds are ordered."""
    findings = []
    for alpha in dict.fromkeys((table["alpha"].max(), table["alpha"].min())):
        rows = table[table["alpha"] == alpha]
        recall = rows["recall"].dropna()
        beams = "no answer has p ≥ α"
        if len(recall):
            beams = f"beams find {percent_span(recall)} of the answers with p ≥ α"
        certified = percent_span(rows["share_certified"])
        findings.append(
            f"At α = {alpha:g}, {beams} and {certified} of the questions are certified."
        )
    return join_caption(_SHOWN, table, *findings, _bounds_sentence(bounds))


def _bounds_sentence(bounds: pd.DataFrame) -> str:
    """Say whether the bounds are in order, and how far the tree bound is from the entropy."""
    certified = bounds[bounds["n_certified"] > 0]
    n_violations = (certified["n_certified"] - certified["n_ordered"]).sum()
    order = "PRO ≤ α-floor ≤ tree bound holds for each certified question"
    if n_violations:
        order = f"PRO ≤ α-floor ≤ tree bound is violated in {n_violations:,} cases"
    if certified.empty:
        return "No question is certified, so the bounds are not compared."
    differences = certified["entropy_minus_tree_bound"].dropna()
    if differences.empty:
        return f"{order}."
    return f"{order}; the mean entropy minus the tree bound is {signed_span(differences)} nats."


def _draw_lines(ax: Axes, lines: dict[str, str], rows: pd.DataFrame) -> None:
    for index, (column, label) in enumerate(lines.items()):
        style: dict[str, Any] = {"label": label, "ms": 3, "interval": f"{column}_"}
        draw_curve(ax, rows["alpha"], rows, index, y=column, **style)
    ax.set_xscale("log")
    set_ticks(ax, [alpha for alpha in _TICKS if alpha >= rows["alpha"].min()])
    ax.set_ylim(0, None)
    shape: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "borderpad": 0}
    ax.legend(**shape, handlelength=2, labelspacing=0.2)
    # The title stands above the legend.
    ax.set_title(ax.get_title(), pad=4 + 9 * len(lines))


def _search_alphas(search: Run, default: float) -> FloatArray:
    """Return the thresholds that are reported, from the largest to that of the search."""
    return alpha_grid(search.search_alpha, alphas=(default, *SEARCH_ALPHAS))[::-1]


def _forwards_per_question(run: Run) -> float:
    return run.info.cost.token_forwards / run.info.n_planned


@dataclass(frozen=True)
class _Search:
    """The matrices of a search: log-probabilities of answers and prefixes, NaN where fewer."""

    search_alpha: float | None
    answers: FloatArray
    open_answers: FloatArray
    prefixes: FloatArray
    entropies: FloatArray
    is_greedy: FloatArray

    @classmethod
    def of_run(cls, run: Run) -> _Search:
        columns = ["tree_log_probs", "tree_entropies", "tree_greedy"]
        tree = run.questions[["question_id", *columns]].explode(columns)
        matrices = [run.matrix(tree, column) for column in columns]
        return cls(run.search_alpha, run.log_probs(), run.open_log_probs(), *matrices)

    def at(self, alpha: float) -> pd.DataFrame:
        """Return the results of a search at an α that is not below that of the run.

        The tree of such a search is a part of the tree of this one. The table has a row per
        question.
        """
        log_alpha = np.log(alpha)
        is_expanded = (self.prefixes >= log_alpha) | (self.is_greedy == 1)
        prefixes = np.where(is_expanded, self.prefixes, np.nan)
        options: dict[str, Any] = {"alpha": alpha, "search_alpha": self.search_alpha}
        floor = scoring.alpha_floor(self.answers, open_log_probs=self.open_answers, **options)
        n_answers = (self.answers >= log_alpha).sum(axis=1)
        n_expanded = (~np.isnan(prefixes)).sum(axis=1)
        is_open = (self.open_answers >= log_alpha).any(axis=1)
        return pd.DataFrame(
            {
                "answers": n_answers,
                "found_mass": 1 - scoring.mass_not_found(self.answers, **options),
                "alpha_floor": floor,
                "tree_bound": scoring.tree_bound(prefixes, self.entropies),
                "expanded_prefixes": n_expanded,
                "token_forwards": n_expanded - 1,
                "pro": scoring.pro(self.answers, **options),
                "status": np.select(
                    [is_open, n_answers > 0], ["undecided", "certified"], "fallback"
                ),
            }
        )


def _with_recall(setting: SearchRuns) -> pd.DataFrame:
    """Return the answers of the search, and in the column `recalled` whether beams found them."""
    answers = setting.search.ranked_answers()
    beam_keys = set(_answer_keys(setting.beams.ranked_answers()))
    return answers.assign(recalled=[key in beam_keys for key in _answer_keys(answers)])


def _answer_keys(answers: pd.DataFrame) -> list[tuple[str, tuple[int, ...]]]:
    """Return the question and the token ids of each answer."""
    return list(zip(answers["question_id"], map(tuple, answers["token_ids"]), strict=True))


def _recall(answers: pd.DataFrame) -> dict[str, float]:
    """Return the columns about the answers that beams found as well."""
    by_question = answers.groupby("question_id")["recalled"].all()
    return {
        "n_recalled": answers["recalled"].sum(),
        "recall": answers["recalled"].mean(),
        "n_with_answers": len(by_question),
        "share_all_recalled": by_question.mean(),
    }


def _bounds(certified: pd.DataFrame) -> dict[str, float]:
    """Return the means over certified questions, and how the bounds are ordered."""
    names = ["pro", "alpha_floor", "tree_bound", "entropy"]
    row: dict[str, float] = certified[names].mean().to_dict()
    row["entropy_low"], row["entropy_high"] = _mean_interval(certified["entropy"])
    row["entropy_interval_width"] = (certified["high"] - certified["low"]).mean()
    steps = certified[["pro", "alpha_floor", "tree_bound"]].diff(axis=1).iloc[:, 1:]
    row["n_ordered"] = int((steps >= -_ROUNDING).all(axis=1).sum())
    difference = certified["entropy"] - certified["tree_bound"]
    row["entropy_minus_tree_bound"] = difference.mean()
    low, high = _mean_interval(difference)
    row["entropy_minus_tree_bound_low"] = low
    row["entropy_minus_tree_bound_high"] = high
    return row


def _mean_interval(values: pd.Series) -> tuple[float, float]:
    """Return the ends of the 95 % normal interval of a mean, or NaN if the values do not vary."""
    low, high = metrics.normal(values.mean(), values.sem(ddof=0) or np.nan)
    return float(low), float(high)
