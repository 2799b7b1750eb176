"""AUROC of PRO from an exact search, from beams, and of the search's own scores (notebook 07)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from pro_lib import scoring
from pro_lib.evaluation.alpha_choice import Splits
from pro_lib.evaluation.evaluation import Evaluation
from pro_lib.evaluation.inputs import AlphaScore
from pro_lib.evaluation.methods import METHODS, Method
from pro_lib.evaluation.run_evaluation import evaluate
from pro_lib.labels.estimates import LabelSample
from pro_lib.metrics.correctness import AnswerRules
from pro_lib.metrics.roc import FloatArray
from pro_lib.plots.captions import (
    comparison,
    corrected,
    join_caption,
    listed,
    setting_names,
    verdicts,
    with_signs,
)
from pro_lib.plots.exact_search import SearchRuns
from pro_lib.plots.figure import checked_table, row_figure
from pro_lib.plots.settings import method_columns, per_setting, with_setting
from pro_lib.plots.style import Figure, distinct_values, line_style

_SHOWN = (
    "AUROC of each score minus that of PRO with an exact search (open mark), with 95 % confidence "
    "intervals: “PRO, beams” has the answers of beams and all others, also NLL and ALL, those of "
    "the search, each with the best α on validation questions. The judged answer is the most "
    "probable one of search, beams and greedy decoding, so that AUROC can differ from other "
    "figures; questions without a complete answer of search or beams are left out. "
    f"{corrected('settings for PRO with beams, over settings and scores for the others')}"
)
_REFERENCE: dict[str, Any] = line_style(0) | {"mfc": "white"}
# Names of `Evaluation.alpha_scores`.
_PRO_OF_BEAMS = "PRO of beams"
_SAME_ALPHA = "PRO of beams at the same α"
_SEARCH_SCORES: dict[str, Callable[..., FloatArray]] = {
    "α-floor": scoring.alpha_floor,
    "tree bound": scoring.tree_bound,
    "probability not found": scoring.mass_not_found,
}
_ANSWERS = {"threshold": "PRO, exact search", "diverse_beam": "PRO, beams"}


@per_setting
def table(
    runs: SearchRuns,
    *,
    split: str = "test",
    rules: AnswerRules | None = None,
    n_validation: int | None = 100,
    seed: int = 0,
    label_sample: LabelSample | None = None,
) -> list[pd.DataFrame]:
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
    validation = _evaluation(runs, "validation", rules)
    reported = _evaluation(runs, split, rules)
    if label_sample is not None:
        reported = label_sample.with_labels(reported)
    splits = Splits(validation, reported, n_validation, seed)
    alphas = splits.alphas_of(reported.alpha_names)
    scores = reported.scores(alphas)[[*alphas, "NLL", "ALL"]]
    alphas[_SAME_ALPHA] = alphas["PRO"]
    scores[_SAME_ALPHA] = reported.pro(alphas["PRO"], name=_PRO_OF_BEAMS)
    is_beams = scores.columns.isin([_PRO_OF_BEAMS, _SAME_ALPHA])
    columns = pd.DataFrame(method_columns(list(scores), alphas=alphas)).drop(columns="similarity")
    columns.loc[is_beams, "method"] = "PRO"
    columns.loc[scores.columns == _SAME_ALPHA, "alpha_choice"] = "exact search"
    judgement = reported.judgement
    options = {"is_reference": scores.columns == "PRO"}
    differences = judgement.differences(scores.to_numpy(), scores["PRO"].to_numpy(), **options)
    columns = columns.assign(
        **judgement.auroc(scores.to_numpy()).columns("auroc"),
        interval=judgement.interval,
        **differences.columns("pro"),
    )
    strategies = np.where(is_beams, runs.beams.info.strategy, reported.strategy)
    return [with_setting(columns, reported).assign(strategy=strategies)]


def draw(table: pd.DataFrame, *, figure_columns: int = 2) -> Figure:
    """Draw the paired difference of AUROC of each score to PRO of the exact search.

    PRO of beams at the α of the search is not drawn.

    Args:
        table: needs the columns method, strategy, alpha, alpha_choice, auroc, and auroc_minus_pro
            with its interval. It may have dataset, model, protocol and n_questions, and with
            p_value significant differences are marked.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
    """
    needed = ["method", "strategy", "alpha", "alpha_choice", "auroc", "auroc_minus_pro"]
    table = _drawn(checked_table(table, needed, "exact_search_auroc"))
    alphas = table["alpha"].map(" ({:g})".format, na_action="ignore").fillna("")
    texts = table["auroc"].map("{:.3f}".format) + alphas
    names = table["method"].mask(table["is_pro"], table["strategy"].replace(_ANSWERS))
    is_reference = names == _ANSWERS["threshold"]
    table = table.assign(row=names, text=texts, is_reference=is_reference)
    table = table.sort_values("method", key=lambda name: name != "PRO", kind="stable")
    with row_figure(
        table,
        *("dataset", "model", "protocol"),
        value="auroc_minus_pro",
        group="is_reference",
        styles={False: line_style(0), True: _REFERENCE},
        title="AUROC against PRO with an exact search",
        x="AUROC minus that of PRO with an exact search; at the right, AUROC (α)",
        figure_columns=figure_columns,
        reference=_ANSWERS["threshold"],
        row_height=0.18,
    ) as (figure, panels):
        if figure_columns == 1:
            panels[0][0].locator_params(axis="x", nbins=3)  # of all panels
        return figure


def caption(table: pd.DataFrame) -> str:
    """Compare PRO of beams, NLL and the other scores with PRO of the exact search."""
    table = _drawn(table)
    options: dict[str, Any] = {"quantity": "auroc_minus_pro", "reference": "PRO with the search"}
    beams = table[table["is_pro"] & (table["strategy"] != "threshold")]
    others = table[~table["is_pro"]]
    nll = others[others["method"] == "NLL"]
    sentences = [
        comparison(beams, "PRO with beams", **options),
        comparison(nll, "NLL", family=others, **options),
    ]
    findings = [sentence.removesuffix(".") for sentence in sentences]
    for words, rows in verdicts(others, others["sign"]):
        if words.startswith("significantly"):
            has_one_model = len(distinct_values(table, "model")) == 1
            settings = rows["dataset"] if has_one_model else setting_names(rows)
            parts = [
                f"{listed(some['method'])} ({setting})"
                for setting, some in rows.groupby(settings, sort=False)
            ]
            findings.append(f"{words.removesuffix(' than')}: {listed(parts)}")
    return join_caption(_SHOWN, table, f"{'; '.join(filter(None, findings))}.")


def _drawn(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows without PRO of beams at the α of the search, with significant signs."""
    table = table.assign(is_pro=table["method"] == "PRO")
    drawn = table[table["alpha_choice"] != "exact search"]
    return with_signs(drawn, "is_pro", quantity="auroc_minus_pro")


def _evaluation(runs: SearchRuns, split: str, rules: AnswerRules | None) -> Evaluation:
    """Return the evaluation of the search, with the scores of beams and of the tree besides it."""
    others = [runs.beams, runs.greedy]
    search = evaluate(runs.search, others=others, split=split, rules=rules)
    beams = runs.beams.select(question_ids=list(search.answers["question_id"]))
    of_beams = evaluate(beams, others=[runs.search, runs.greedy], rules=rules)
    search = search.select(search.answers["question_id"].isin(of_beams.answers["question_id"]))
    run = runs.search.select(question_ids=list(search.answers["question_id"]))
    inputs = {"log_probs": search.log_probs, "search_alpha": search.search_alpha}
    inputs["open_log_probs"] = run.open_log_probs()
    inputs["prefix_log_probs"], inputs["next_entropies"] = run.tree()
    beam_inputs = {"log_probs": of_beams.log_probs, "search_alpha": None}
    scores = {_PRO_OF_BEAMS: AlphaScore(METHODS["PRO"], beam_inputs)}
    for name, function in _SEARCH_SCORES.items():
        scores[name] = AlphaScore(Method(name, function, ""), inputs)
    return replace(search, alpha_scores=scores)
