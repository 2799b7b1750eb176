"""AUROC of PRO from an exact search, from beams, and of the search's own scores (notebook 07)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from pro_lib import scoring
from pro_lib.evaluation.alpha_choice import chosen_alpha
from pro_lib.evaluation.evaluation import Evaluation, Splits
from pro_lib.evaluation.inputs import AlphaScore
from pro_lib.evaluation.methods import METHODS, Method
from pro_lib.evaluation.run_evaluation import evaluate
from pro_lib.labels.estimates import LabelSample
from pro_lib.metrics.correctness import Choices
from pro_lib.metrics.roc import FloatArray
from pro_lib.plots.captions import comparison, join_caption
from pro_lib.plots.exact_search import SearchRuns
from pro_lib.plots.figure import checked_table, draw_rows, labelled_figure
from pro_lib.plots.settings import method_columns, per_setting, with_setting
from pro_lib.plots.style import COLORS, Figure

_SHOWN = (
    "AUROC of PRO with the answers of an exact search, and of other scores, and the paired "
    "difference of each to the first row, with 95 % confidence intervals. Each score has the α "
    "that is best on validation questions, except PRO of beams at the same α. "
    "The α-floor and the tree bound are lower bounds of the entropy; 1 − found is the probability "
    "of the answers that were not found."
)
# Names of `Evaluation.alpha_scores`.
_PRO_OF_BEAMS = "PRO of beams"
_SAME_ALPHA = "PRO of beams at the same α"
_SEARCH_SCORES: dict[str, Callable[..., FloatArray]] = {
    "α-floor": scoring.alpha_floor,
    "tree bound": scoring.tree_bound,
    "probability not found": scoring.mass_not_found,
}
_ANSWERS = {"threshold": "exact", "diverse_beam": "beams"}
# The labels of the panels, by the column that they show.
_PANELS = {"auroc": "AUROC", "auroc_minus_pro": "minus first row"}


@per_setting
def table(
    runs: SearchRuns,
    *,
    split: str = "test",
    choices: Choices | None = None,
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
    validation = _evaluation(runs, "validation", choices)
    reported = _evaluation(runs, split, choices)
    if label_sample is not None:
        reported = label_sample.with_labels(reported)
    splits = Splits(validation, reported, n_validation, seed)
    alphas = {name: chosen_alpha(splits, name=name) for name in reported.alpha_names}
    scores = reported.with_pro(alphas)[[*alphas, "NLL", "ALL"]]
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


def draw(
    table: pd.DataFrame,
    *,
    figure_columns: int = 2,
    title: str = "AUROC with an exact search and with beams",
) -> Figure:
    """Draw AUROC of each score, and its paired difference to PRO of the exact search.

    Args:
        table: needs the columns method, strategy, alpha, alpha_choice, auroc and auroc_minus_pro,
            the last two with their intervals (auroc_low, auroc_high, auroc_minus_pro_low,
            auroc_minus_pro_high). It may have dataset, model, protocol and n_questions.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        title: the title of the figure.
    """
    ends = [f"{quantity}_{end}" for quantity in _PANELS for end in ("low", "high")]
    needed = ["method", "strategy", "alpha", "alpha_choice", *_PANELS, *ends]
    table = checked_table(table, needed, "exact_search_auroc")
    table = table.assign(row=_score_names(table))
    is_pro = table["method"] == "PRO"
    names = list(dict.fromkeys([*table.loc[is_pro, "row"], *table.loc[~is_pro, "row"]]))
    settings = list(table.columns.intersection(["dataset", "model", "protocol"]))
    n_settings = len(table.drop_duplicates(settings))
    parts = [table.assign(quantity=name) for name in _PANELS]
    with labelled_figure(
        pd.concat(parts).drop(columns="n_questions", errors="ignore"),
        *settings,
        "quantity",
        title=title,
        untitled=["quantity"],
        figure_columns=figure_columns,
        per_line=2,
        height=0.17 * len(names),
        least_height=0.1 * len(names),
    ) as (figure, panels):
        for place, (ax, setting, rows) in enumerate(panels):
            style = {"color": COLORS[0], "marker": "o", "ms": 3.5}
            draw_rows(ax, rows, setting["quantity"], names, styles={"": style})
            ax.locator_params(axis="x", nbins=2 * figure_columns)
            if place >= 2 * n_settings - 2:
                ax.set_xlabel(_PANELS[setting["quantity"]])
            if setting["quantity"] != "auroc":
                ax.axvline(0, color="black", lw=0.6)
                continue
            beside: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "va": "center"}
            for _, row in rows.dropna(subset="alpha").iterrows():
                text = f" α = {row['alpha']:g}"
                ax.text(1, names.index(row["row"]), text, fontsize=7, **beside)
    return figure


def caption(table: pd.DataFrame) -> str:
    """Compare PRO of beams, with its own α and with that of the search, with the exact search."""
    beams = table[(table["method"] == "PRO") & (table["strategy"] != "threshold")]
    is_same = beams["alpha_choice"] == "exact search"
    findings = []
    for subject, rows in (
        ("PRO of beams", beams[~is_same]),
        ("With the same α it", beams[is_same]),
    ):
        reference = "PRO of the exact search"
        findings.append(comparison(rows, subject, reference=reference, quantity="auroc_minus_pro"))
    return join_caption(_SHOWN, table, *findings)


def _score_names(table: pd.DataFrame) -> list[str]:
    """Return the name of the score of each row; that of PRO says which answers it uses."""
    names = []
    for row in table.to_dict("records"):
        name = row["method"].replace("probability not found", "1 − found")
        answers = _ANSWERS.get(row["strategy"], row["strategy"])
        if row["alpha_choice"] == "exact search":
            name = f"{answers}, same α"
        elif name == "PRO":
            name = f"PRO, {answers}"
        names.append(name)
    return names


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
