"""What an exact search finds, certifies, bounds and costs, against its α (notebook 07)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import pandas as pd

from pro_lib import metrics, scoring
from pro_lib.evaluation.evaluation import DEFAULT_ALPHA, alpha_grid
from pro_lib.plots.captions import join_caption, listed, percent_span, setting_names, span
from pro_lib.plots.figure import checked_table, draw_against_alpha, labelled_figure
from pro_lib.plots.settings import per_setting, with_run
from pro_lib.plots.style import Figure
from pro_lib.runs.run import Run

_SHOWN = (
    "Share of the answers with p ≥ α, as an exact search finds them, that diverse beam search with "
    "{} beams finds too, and share of the questions for which it finds all of them. Both are "
    "counts, without confidence intervals, over the questions that have such answers, whose share "
    "of all questions is in parentheses."
)
# The thresholds that are reported, besides the α of the search and the default α.
SEARCH_ALPHAS = (0.4, 0.2, 0.1, 0.05, 0.02, 0.01)
# Bounds are compared up to the rounding of the stored log-probabilities.
_ROUNDING = 1e-6
_STATUSES = ("certified", "fallback", "undecided")
# The lines, by column of the table.
_LINES = {
    "recall": "answers that beams find",
    "share_all_recalled": "questions for which beams find all",
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

    def select(self, split: str) -> Self:
        """Return the runs of the questions of one split."""
        runs = (self.search, self.beams, self.greedy, self.samples)
        return type(self)(*[run.select(split=split) for run in runs])


class RunSource(Protocol):
    """The part of an experiment that has its runs."""

    def pairs(self) -> list[tuple[str, str]]:
        """Return every model and dataset."""

    def run_of_both_splits(self, model: str, dataset: str, strategy: str | None = None) -> Run:
        """Return the run of a strategy."""


def search_runs(experiment: RunSource) -> list[SearchRuns]:
    """Return the runs of every model and dataset of an experiment that are compared.

    Runs that are not stored are generated.
    """
    strategies = ("threshold", "diverse_beam", "greedy", "multinomial")
    return [
        SearchRuns(*(experiment.run_of_both_splits(*pair, name) for name in strategies))
        for pair in experiment.pairs()
    ]


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
    answers = setting.search.ranked_answers()
    of_beams = set(_answer_keys(setting.beams.ranked_answers()))
    answers["recalled"] = [key in of_beams for key in _answer_keys(answers)]
    rows = []
    for alpha, questions in _questions_at(setting.search, default):
        shares = {f"share_{name}": (questions["status"] == name).mean() for name in _STATUSES}
        means = questions.drop(columns=["status", "pro"]).mean()
        reaching = answers[answers["value"] >= np.log(alpha)]
        all_recalled = reaching.groupby("question_id")["recalled"].all()
        row = {
            "alpha": alpha,
            **shares,
            **means.rename({"answers": "mean_answers"}),
            "greedy_forwards": _forwards_per_question(setting.greedy),
            "beam_forwards": _forwards_per_question(setting.beams),
            "n_recalled": reaching["recalled"].sum(),
            "recall": reaching["recalled"].mean(),
            "n_with_answers": len(all_recalled),
            "share_all_recalled": all_recalled.mean(),
        }
        rows.append(row)
    return [with_run(rows, setting.search, split)]


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
    entropies = setting.samples.entropy().rename(columns={"estimate": "entropy"})
    rows = []
    for alpha, questions in _questions_at(setting.search, default):
        certified = questions.join(entropies)[questions["status"] == "certified"]
        certified["difference"] = certified["entropy"] - certified["tree_bound"]
        means = certified.mean(numeric_only=True)
        compared = certified[["entropy", "difference"]]
        low, high = metrics.normal(compared.mean(), compared.sem(ddof=0).replace(0, np.nan))
        bounds = certified[["pro", "alpha_floor", "tree_bound"]].to_numpy()
        row = {
            "alpha": alpha,
            "n_certified": len(certified),
            **means[["pro", "alpha_floor", "tree_bound", "entropy"]],
            "entropy_low": low[0],
            "entropy_high": high[0],
            "entropy_interval_width": means["high"] - means["low"],
            "n_ordered": int((np.diff(bounds) >= -_ROUNDING).all(axis=1).sum()),
            "entropy_minus_tree_bound": means["difference"],
            "entropy_minus_tree_bound_low": low[1],
            "entropy_minus_tree_bound_high": high[1],
        }
        rows.append(row)
    return [with_run(rows, setting.search, split)]


def draw(table: pd.DataFrame, *, figure_columns: int = 2) -> Figure:
    """Draw which of the answers of an exact search beams find: a panel for each model and dataset.

    Args:
        table: needs the columns alpha, recall, share_all_recalled, n_with_answers and
            n_questions. It may have dataset and model.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
    """
    table = checked_table(
        table, ["alpha", *_LINES, "n_with_answers", "n_questions"], "exact_search"
    )
    shares = 100 * table["n_with_answers"] / table["n_questions"]
    with labelled_figure(
        table.assign(noted=shares.map("{:.0f}\xa0%".format)),
        *("model", "dataset"),
        title="Probable answers that beam search finds",
        x="α (share of questions that have an answer with p ≥ α)",
        y="share found",
        figure_columns=figure_columns,
        least_height=0.7,
    ) as (figure, panels):
        draw_against_alpha(panels, _LINES)
    return figure


def caption(table: pd.DataFrame, *, n_beams: int = 10) -> str:
    """Say what beams find and what a search costs, at the largest and the smallest α."""
    ends = table[table["alpha"].isin([table["alpha"].min(), table["alpha"].max()])]
    recalls = ends.dropna(subset="recall").groupby("alpha")["recall"].agg(percent_span)
    parts = listed(f"{recall} of the answers at α = {alpha:g}" for alpha, recall in recalls.items())
    empty = ends[ends["recall"].isna()]
    if len(empty):
        parts += f" (there are none for {listed(setting_names(empty))})"
    smallest = table[table["alpha"] == table["alpha"].min()]
    costs = [span(smallest[f"{name}_forwards"], "{:.0f}") for name in ("token", "beam")]
    finding = (
        f"Beams find {parts}. The search puts {costs[0]} tokens per question through the model on "
        f"average at the smallest α, and beam search {costs[1]} (not drawn)."
    )
    return join_caption(_SHOWN.format(n_beams), table, finding)


def _forwards_per_question(run: Run) -> float:
    return run.info.cost.token_forwards / run.info.n_planned


def _questions_at(search: Run, default: float) -> Iterator[tuple[float, pd.DataFrame]]:
    """Yield the reported α from the largest to that of the search, with the results at each.

    The results have a row per question. The tree of a search at a larger α is a part of this tree.
    """
    columns = ["tree_log_probs", "tree_entropies", "tree_greedy"]
    tree = search.questions[["question_id", *columns]].explode(columns)
    prefixes, entropies, is_greedy = (search.matrix(tree, column) for column in columns)
    answers = search.log_probs()
    open_answers = search.open_log_probs()
    for alpha in alpha_grid(search.search_alpha, alphas=(default, *SEARCH_ALPHAS))[::-1]:
        log_alpha = np.log(alpha)
        expanded = np.where((prefixes >= log_alpha) | (is_greedy == 1), prefixes, np.nan)
        options: dict[str, Any] = {"alpha": alpha, "search_alpha": search.search_alpha}
        n_answers = (answers >= log_alpha).sum(axis=1)
        n_expanded = (~np.isnan(expanded)).sum(axis=1)
        is_open = (open_answers >= log_alpha).any(axis=1)
        results = {
            "answers": n_answers,
            "found_mass": 1 - scoring.mass_not_found(answers, **options),
            "alpha_floor": scoring.alpha_floor(answers, open_log_probs=open_answers, **options),
            "tree_bound": scoring.tree_bound(expanded, entropies),
            "expanded_prefixes": n_expanded,
            "token_forwards": n_expanded - 1,
            "pro": scoring.pro(answers, **options),
            "status": np.select([is_open, n_answers > 0], ["undecided", "certified"], "fallback"),
        }
        yield alpha, pd.DataFrame(results)


def _answer_keys(answers: pd.DataFrame) -> list[tuple[str, tuple[int, ...]]]:
    """Return the question and the token ids of each answer."""
    return list(zip(answers["question_id"], map(tuple, answers["token_ids"]), strict=True))
