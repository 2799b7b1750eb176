"""Test the figures of the paper: they are readable at both widths and agree with their tables."""

import numpy as np
import pandas as pd
import pytest
from figure_checks import grid, legend, unreadable

from pro_lib import plots
from pro_lib.common.validation import SentenceError
from pro_lib.plots.style import method_styles

DATASETS, MODELS = ("world-facts", "mine"), ("facts-2m", "facts-1m")
PAPER_SIZED = {"model": ("Gemma-2B", "Gemma-7B", "Llama2-13B", "Falcon-11B", "Falcon-40B")}
PAPER_SIZED = {"dataset": ("TriviaQA", "SciQ", "NQ")} | PAPER_SIZED
HERE = {"dataset": DATASETS, "model": MODELS}
METHODS = ("PRO", "SD", "SE", "Deg", "NE", "PE", "ALL", "NLL")
DRAW = {
    "alpha_sweep": plots.alpha_sweep,
    "rouge_thresholds": plots.rouge_thresholds,
    "generated_answers": plots.generated_answers,
    "exposure": plots.exposure,
}
# Figures on tidy tables, in which no text may be smaller than this in print.
SMALLEST = {"alpha_sweep": 7, "rouge_thresholds": 7}
SMALLEST |= {
    "exposure": 7,
    "generated_answers": 7,
}


def tables(size, name):
    """The tables that a figure is drawn from."""
    alphas = [0, 0.001, 0.05, 0.4, 1]
    if name == "alpha_sweep":
        sweep = grid(**size, alpha=alphas)
        return sweep, sweep[sweep["alpha"] == 0.4].assign(alpha_choice="validation")
    columns = {
        "rouge_thresholds": {"rouge_threshold": [0.1, 0.2, 0.3, 0.4, 0.5], "method": METHODS}
    }
    measures = {
        "measure": ["PRO", "accuracy", "NLL"],
        "exposure": [0, 4, 32],
        "conflict": [0.0, 0.25],
    }
    columns["exposure"] = measures
    columns["generated_answers"] = {"question_id": range(60)}
    table = grid(**size, **columns.get(name, {"method": METHODS}))
    table = table.assign(mean_k=table["auroc"], accuracy=0.5, auroc_minus_pro=0.1, significant=True)
    if name == "exposure":
        table = table.assign(mean=table["auroc"], mean_low=0.5, mean_high=1.0)
    if name == "generated_answers":
        table = table.assign(n_distinct=table["question_id"] % 11, mass=table["auroc"])
    return (table,)


# How many panels each figure has of two data sets and two models.
PANELS = {"alpha_sweep": 2, "rouge_thresholds": 4, "generated_answers": 4}
# Figures with a panel for each model, and how many panels a model has on a data set.
BY_MODEL = {
    "rouge_thresholds": 1,
    "guarantees": 2,
}
WITHOUT_PROTOCOL = ("generated_answers",)
EACH = pytest.mark.parametrize("name", PANELS)


@pytest.mark.parametrize("figure_columns", [1, 2])
@pytest.mark.parametrize(
    "size", [HERE, pytest.param(PAPER_SIZED, marks=pytest.mark.slow)], ids=["here", "paper"]
)
@EACH
def test_a_figure_can_be_read_at_one_and_at_two_columns(name, size, figure_columns):
    figure = DRAW[name](*tables(size, name), figure_columns=figure_columns)
    assert figure.get_figwidth() == {1: 3.3, 2: 7.0}[figure_columns]
    assert unreadable(figure, SMALLEST.get(name, 6)) == []
    titles = [ax.get_title() for ax in figure.axes]
    assert all("n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}1,234" in title for title in titles)
    assert max(title.count("\n") for title in titles) <= 1
    assert figure.get_supxlabel() or all(ax.get_xlabel() for ax in figure.axes)
    if size is HERE:
        assert len(figure.axes) == PANELS[name]


@EACH
def test_a_setting_without_rows_has_no_panel_and_two_protocols_have_one_each(name):
    first, *rest = tables(HERE, name)
    holed = first[(first["dataset"] != "mine") | (first["model"] != "facts-1m")]
    assert len(DRAW[name](holed, *rest).axes) == PANELS[name] - BY_MODEL.get(name, 0)
    if name in WITHOUT_PROTOCOL:
        return
    both = [
        pd.concat(table.assign(protocol=p) for p in ("paper", "workbench"))
        for table in (first, *rest)
    ]
    assert len(DRAW[name](*both).axes) == 2 * PANELS[name]


@pytest.mark.parametrize("figure_columns", [1, 2])
def test_figures_of_a_single_run_can_be_read_at_one_and_at_two_columns(figure_columns):
    one = {"dataset": ("world-facts",), "model": ("facts-2m",)}
    answers = grid(
        **one,
        question=[f"{n}: what do you call a number of questions?" for n in range(6)],
        text=["a" * 40, ""],
    )
    answers = answers.assign(
        probability=0.3, is_kept=[True, False] * 6, is_correct=True, pro=12.345
    )
    answers["reference"] = "Sergei Rachmaninoff"
    figures = [plots.examples(answers, alpha=0.3, figure_columns=figure_columns)]
    figures.append(plots.exposure(*tables(one, "exposure"), figure_columns=figure_columns))
    for figure in figures:
        assert figure.get_figwidth() == {1: 3.3, 2: 7.0}[figure_columns]
        assert unreadable(figure, 7) == []


def test_bars_of_examples_are_filled_where_pro_keeps_the_answer():
    rows = {"question": "What?", "text": ["yes", ""], "probability": [0.6, 0.1], "pro": 0.5}
    table = pd.DataFrame(rows | {"is_kept": [True, False], "is_correct": [True, False]})
    [ax] = plots.examples(table, alpha=0.4).axes
    assert [bar.get_width() for bar in ax.patches] == [0.6, 0.1]
    assert [bar.get_facecolor()[:3] == (1, 1, 1) for bar in ax.patches] == [False, True]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["✓ yes", "(empty)"]
    assert ax.get_title(loc="right") == "What?\nPRO = 0.50 nats, K = 1"
    assert [line.get_xdata()[0] for line in ax.lines] == [0.4]
    improbable = table.assign(probability=[0.02, 0.01])
    figure = plots.examples(improbable, alpha=0.4)
    assert figure.axes[0].get_xlim() == (0, pytest.approx(0.022))


def test_a_reference_and_an_answer_of_the_examples_end_after_a_whole_word():
    rows = {"question": "Who?", "text": ["Sir Nicholas Anthony Copernicus"], "probability": [0.6]}
    table = pd.DataFrame(rows | {"pro": 0.5, "is_kept": True, "is_correct": False})
    references = "Carl Anderson; Carl David Anderson; C. D. Anderson"
    [ax] = plots.examples(table.assign(reference=references)).axes
    title = ax.get_title(loc="right").split("\n")
    assert title[-1] == "reference: Carl Anderson; Carl David …"
    assert [label.get_text() for label in ax.get_yticklabels()] == ["Sir Nicholas Anthony …"]


def test_lines_go_through_the_numbers_of_the_table_and_the_chosen_alpha_lies_on_them():
    sweep, choices = tables(HERE, "alpha_sweep")
    figure = plots.alpha_sweep(sweep, choices)
    rows = sweep[sweep["dataset"] == "world-facts"]
    lines = figure.axes[0].lines
    for index, model in enumerate(MODELS):
        line = rows[rows["model"] == model]
        np.testing.assert_array_equal(lines[index].get_xydata(), line[["alpha", "auroc"]])
        assert list(lines[2 + index].get_xydata()[0]) == [
            0.4,
            line.set_index("alpha")["auroc"][0.4],
        ]
    assert legend(figure) == [*MODELS, "α chosen on validation questions"]


@pytest.mark.parametrize("name", SMALLEST)
def test_a_figure_has_a_title_and_two_named_axes(name):
    figure = DRAW[name](*tables(HERE, name), title="A title of mine")
    assert figure.legends[0].get_title().get_text() == "A title of mine"
    assert len(figure.legends) == 1
    assert figure.get_supxlabel() or all(ax.get_xlabel() for ax in figure.axes)
    assert "95 % interval" in " ".join(
        [figure.get_supxlabel(), figure.get_supylabel(), *legend(figure)]
    )


@pytest.mark.parametrize("name", SMALLEST)
def test_a_table_of_a_user_needs_few_columns_and_a_missing_one_is_named(name):
    first = tables({"model": ["mine"]}, name)[0]
    needed = {"alpha_sweep": ["alpha", "auroc"]}
    needed |= {"rouge_thresholds": ["rouge_threshold", "method", "auroc_minus_nll"]}
    needed |= {"exposure": ["measure", "exposure", "conflict", "mean"]}
    needed |= {"generated_answers": ["n_distinct", "mass"]}
    figure = DRAW[name](first[needed[name]])
    assert len(figure.axes) == {"generated_answers": 2, "exposure": 3}.get(name, 1)
    without_legend = ("alpha_sweep", "generated_answers")
    # A line needs no name if it is alone
    assert len(figure.legends) == (name not in without_legend)
    with pytest.raises(
        SentenceError, match=f"^The table has no column '{needed[name][0]}'; plots.{name} needs"
    ):
        DRAW[name](first.drop(columns=needed[name][0]))
    with pytest.raises(SentenceError, match=r"^The table has no rows"):
        DRAW[name](first.head(0))


@pytest.mark.parametrize("name", ["paper-questions", "workbench-2", "paper", "workbench, new"])
def test_a_dataset_or_a_model_keeps_its_name_in_the_title_whatever_it_begins_with(name):
    table = grid(
        dataset=(name, "other"), model=(f"{name}-model",), protocol=("paper", "workbench, repeats")
    )
    with plots.panels(table, "dataset", "protocol") as (figure, drawn):
        pass
    titles = [ax.get_title().replace("\n", " ") for ax, *_ in drawn]
    assert titles[0].startswith(f"repeats counted, {name}, n")
    assert titles[1].startswith(f"each answer once, repeats, {name}, n")
    assert figure.get_supxlabel() == f"all panels: model {name}-model"


def test_a_method_has_the_same_style_whatever_other_methods_are_drawn():
    few = dict(zip(["PRO", "Deg"], method_styles(["PRO", "Deg"]), strict=True))
    labels = ["PRO", "NLL", "S-PRO", "SE (lexical)", "Deg"]
    many = dict(zip(labels, method_styles(labels), strict=True))
    assert few == {"PRO": 0, "Deg": 7}
    assert many == {"PRO": 0, "NLL": 6, "S-PRO": 1, "SE (lexical)": 4, "Deg": 7}


def test_two_comparisons_of_meanings_have_different_styles():
    assert method_styles(["PRO", "SE (lexical)", "SE (alias)"]) == [0, 1, 2]
