"""The tables of exact search: its answers and cost, its bounds, and AUROC of its scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pro_lib import metrics, scoring
from pro_lib.evaluation.evaluate import evaluate
from pro_lib.evaluation.evaluation import DEFAULT_ALPHA, Evaluation, Splits, alpha_grid
from pro_lib.evaluation.inputs import AlphaScore
from pro_lib.evaluation.methods import METHODS, Method
from pro_lib.evaluation.sweeps import chosen_alpha
from pro_lib.evaluation.tables.settings import (
    auroc_columns,
    with_run,
    with_setting,
)
from pro_lib.metrics.auroc import FloatArray
from pro_lib.metrics.correctness import Choices
from pro_lib.runs.run import Run

if TYPE_CHECKING:
    from pro_lib.labels import LabelSample

# The thresholds that are reported, besides the α of the search and the default α.
SEARCH_ALPHAS = (0.4, 0.2, 0.1, 0.05, 0.02, 0.01)
# Bounds are compared up to the rounding of the stored log-probabilities.
_ROUNDING = 1e-6
# Names of `Evaluation.alpha_scores`.
_PRO_OF_BEAMS = "PRO of beams"
_SEARCH_SCORES: dict[str, Callable[..., FloatArray]] = {
    "α-floor": scoring.alpha_floor,
    "tree bound": scoring.tree_bound,
    "probability not found": scoring.mass_not_found,
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


def exact_search(
    runs: Sequence[SearchRuns],
    *,
    split: str = "test",
    default: float = DEFAULT_ALPHA,
) -> pd.DataFrame:
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
    tables = []
    for search_runs in runs:
        rows = []
        setting = search_runs.select(split)
        search = setting.search
        matrices = _Search.of_run(search)
        answers = _with_recall(setting)
        costs = {
            "greedy_forwards": _forwards_per_question(setting.greedy),
            "beam_forwards": _forwards_per_question(setting.beams),
        }
        for alpha in _search_alphas(search, default):
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
        tables.append(with_run(pd.DataFrame(rows), search, split))
    return pd.concat(tables, ignore_index=True)


def entropy_bounds(
    runs: Sequence[SearchRuns],
    *,
    split: str = "test",
    default: float = DEFAULT_ALPHA,
) -> pd.DataFrame:
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
    tables = []
    for search_runs in runs:
        rows = []
        setting = search_runs.select(split)
        matrices = _Search.of_run(setting.search)
        entropies = setting.samples.entropy().rename(columns={"estimate": "entropy"})
        for alpha in _search_alphas(setting.search, default):
            questions = matrices.at(alpha).join(entropies)
            certified = questions[questions["status"] == "certified"]
            rows.append({"alpha": alpha, "n_certified": len(certified)} | _bounds(certified))
        tables.append(with_run(pd.DataFrame(rows), setting.search, split))
    return pd.concat(tables, ignore_index=True)


def exact_search_auroc(
    runs: Sequence[SearchRuns],
    *,
    split: str = "test",
    choices: Choices | None = None,
    n_validation: int | None = 100,
    seed: int = 0,
    label_sample: LabelSample | None = None,
) -> pd.DataFrame:
    """Return AUROC of PRO from an exact search, of PRO from beams, and of the scores of a search.

    The judged answer is the most probable one of search, beams and greedy decoding, the same for
    all scores. The columns are those of the setting, and

    - strategy: that of the answers from which the score is computed.
    - method and alpha.
    - alpha_choice: `validation` if α is chosen for this score on the validation questions, and
      `exact search` if it is the α of PRO from the exact search.
    - auroc with its interval.
    - n_differ: the fewest questions that must move so that the score and PRO of the exact search
      have one order.
    - auroc_minus_pro: the paired difference to that PRO, with its interval and p_value (not
      corrected).

    With a `label_sample`, AUROCs and differences are estimated from its labels.
    """
    tables = []
    for search_runs in runs:
        validation = _evaluation(search_runs, "validation", choices)
        reported = _evaluation(search_runs, split, choices)
        if label_sample is not None:
            reported = label_sample.with_labels(reported)
        splits = Splits(validation, reported, n_validation, seed)
        tables.append(_auroc_rows(splits, search_runs.beams.info.strategy))
    return pd.concat(tables, ignore_index=True)


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


def _evaluation(runs: SearchRuns, split: str, choices: Choices | None) -> Evaluation:
    """Return the evaluation of the search, with the scores of beams and of the tree besides it."""
    others = [runs.beams, runs.greedy]
    search = evaluate(runs.search, others=others, split=split, choices=choices).judged
    beams = runs.beams.select(question_ids=list(search.answers["question_id"]))
    of_beams = evaluate(beams, others=[runs.search, runs.greedy], choices=choices).judged
    search = search.rows(search.answers["question_id"].isin(of_beams.answers["question_id"]))
    run = runs.search.select(question_ids=list(search.answers["question_id"]))
    inputs = {"log_probs": search.log_probs, "search_alpha": search.search_alpha}
    inputs["open_log_probs"] = run.open_log_probs()
    inputs["prefix_log_probs"], inputs["next_entropies"] = run.tree()
    beam_inputs = {"log_probs": of_beams.log_probs, "search_alpha": None}
    scores = {_PRO_OF_BEAMS: AlphaScore(METHODS["PRO"], beam_inputs)}
    for name, function in _SEARCH_SCORES.items():
        scores[name] = AlphaScore(Method(name, function, ""), inputs)
    return replace(search, alpha_scores=scores)


def _auroc_rows(splits: Splits, beam_strategy: str) -> pd.DataFrame:
    """Return the rows of one setting. The first one is PRO of the exact search."""
    reported = splits.reported
    exact = reported.strategy
    alpha = chosen_alpha(splits)
    rows: list[tuple[Any, ...]] = [("PRO", exact, alpha, "validation", reported.pro(alpha))]
    for name in (_PRO_OF_BEAMS, *_SEARCH_SCORES):
        own_alpha = chosen_alpha(splits, name=name)
        method, strategy = ("PRO", beam_strategy) if name == _PRO_OF_BEAMS else (name, exact)
        rows.append((method, strategy, own_alpha, "validation", reported.pro(own_alpha, name=name)))
    for name in ("NLL", "ALL"):
        rows.append((name, exact, np.nan, None, reported.baselines[name].to_numpy()))
    same_alpha = reported.pro(alpha, name=_PRO_OF_BEAMS)
    rows.append(("PRO", beam_strategy, alpha, "exact search", same_alpha))
    methods, strategies, alphas, alpha_choices, values = zip(*rows, strict=True)
    scores = np.column_stack(values)
    is_pro = np.arange(len(methods)) == 0
    differences = reported.judgement.differences(scores, scores[:, 0], is_reference=is_pro)
    columns = {
        "method": methods,
        "alpha": alphas,
        "alpha_choice": alpha_choices,
        **auroc_columns(scores, reported),
        **differences.columns("pro"),
    }
    return with_setting(pd.DataFrame(columns), reported).assign(strategy=strategies)
