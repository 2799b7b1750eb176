"""Test the figures of the paper: they are readable at both widths and agree with their tables."""

import numpy as np
import pandas as pd
import pytest
from figure_checks import grid, legend, texts, unreadable

from pro_lib import plots
from pro_lib.common.validation import SentenceError
from pro_lib.plots.style import method_styles

DATASETS, MODELS = ("world-facts", "mine"), ("facts-2m", "facts-1m")
PAPER_SIZED = {"model": ("Gemma-2B", "Gemma-7B", "Llama2-13B", "Falcon-11B", "Falcon-40B")}
PAPER_SIZED = {"dataset": ("TriviaQA", "SciQ", "NQ")} | PAPER_SIZED
HERE = {"dataset": DATASETS, "model": MODELS}
METHODS = ("PRO", "SD", "SE", "Deg", "NE", "PE", "ALL", "NLL")
DRAW = {
    "benchmark": plots.benchmark,
    "accuracy_by_coverage": plots.accuracy_by_coverage,
    "reliability": plots.reliability,
    "guarantees": plots.guarantees,
    "answer_sets": plots.answer_sets,
    "entropies": plots.entropies,
}
# Figures on tidy tables, in which no text may be smaller than this in print.
SMALLEST = {
    "guarantees": 7,
    "answer_sets": 7,
    "entropies": 7,
}
SMALLEST |= {"benchmark": 7, "accuracy_by_coverage": 7, "reliability": 7}


def tables(size, name):
    """The tables that a figure is drawn from."""
    columns = {"accuracy_by_coverage": {"method": METHODS, "coverage": [0.02, 0.3, 0.6, 1.0]}}
    columns |= {"reliability": {"method": ["PRO", "NLL", "PE"], "confidence": [0.1, 0.5, 0.9]}}
    columns |= {"guarantees": {"method": METHODS, "target": [0.7, 0.8]}}
    columns |= {
        "answer_sets": {"alpha": [0.005, 0.05, 0.1, 0.4]},
        "entropies": {"question_id": range(300)},
    }
    table = grid(**size, **columns.get(name, {"method": METHODS}))
    table = table.assign(mean_k=table["auroc"], accuracy=0.5, auroc_minus_pro=0.1, significant=True)
    if name in ("accuracy_by_coverage", "reliability"):
        table = table.assign(accuracy=table["auroc"], ece=0.05, n_in_bin=10)
        table = table.assign(accuracy_low=table["accuracy"] - 0.1, accuracy_high=0.95)
    if name == "guarantees":
        table["coverage"] = np.where(table["method"] == "SE", 0.0, 0.3)
        table["accuracy"] = np.where(table["method"] == "SE", np.nan, 0.8)
        table = table.assign(similarity=None, accuracy_low=table["accuracy"], accuracy_high=0.9)
    if name == "answer_sets":
        table["delta"] = np.where(table["alpha"] == 0.1, 0.5, np.nan)
        table = table.assign(missed_limit=0.6, missed=0.5, share_empty=0.2, set_size=123.4)
        table = table.assign(missed_low=0.4, missed_high=0.6)
    if name == "entropies":
        table = table.assign(
            entropy=table["auroc"], tree_bound=0.5, entropy_low=0.5, entropy_high=1.0
        )
    return (table,)


# How many panels each figure has of two data sets and two models.
PANELS = {"benchmark": 4}
PANELS |= {"accuracy_by_coverage": 4, "reliability": 4}
PANELS |= {"guarantees": 8, "answer_sets": 4, "entropies": 4}
# Figures with a panel for each model, and how many panels a model has on a data set.
BY_MODEL = {
    "benchmark": 1,
    "guarantees": 2,
    "answer_sets": 1,
    "entropies": 1,
}
BY_MODEL |= {"accuracy_by_coverage": 1, "reliability": 1}
WITHOUT_PROTOCOL = (
    "accuracy_by_coverage",
    "reliability",
    "answer_sets",
    "entropies",
)
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


def test_a_method_without_a_guarantee_says_so():
    rows = {"method": ["PRO", "SE"], "similarity": [None, "alias"], "target": 0.7}
    table = pd.DataFrame(rows | {"coverage": [0.4, 0.0], "accuracy": [0.8, np.nan]})
    [ax] = plots.guarantees(table).axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["PRO", "SE (alias)"]
    assert [(text.get_text(), text.get_position()[1]) for text in ax.texts] == [
        ("not guaranteed", 1)
    ]


@pytest.mark.parametrize("target", [0.3, 0.4, 0.5, 0.55, 0.9])
def test_the_text_of_a_method_without_a_guarantee_does_not_cross_the_line_of_the_target(target):
    targets = [target, 0.95, 0.99]
    columns = {"method": ["PRO", "SE"], "target": targets}
    table = grid(**columns).assign(coverage=[0.4] * 3 + [0.0] * 3, accuracy=0.8)
    figure = plots.guarantees(table)
    boxes = [box for text, box in texts(figure) if text.get_text() == "not guaranteed"]
    ax = figure.axes[0]
    line = ax.transData.transform((target, 0))[0]
    box = min(boxes, key=lambda box: box.x0)
    assert box.x1 < line or box.x0 > line
    assert box.x1 <= ax.bbox.x1


def test_long_titles_of_panels_are_not_shortened():
    names = ["a-model-with-a-long-name-" + ending for ending in ("7b-it", "13b-it")]
    datasets = ["a-data-set-with-a-long-name", "b", "c"]
    table = grid(model=names, dataset=datasets, method=METHODS)
    figure = plots.benchmark(table)
    titles = [ax.get_title().replace("\n", " ") for ax in figure.axes]
    assert titles[0].startswith(f"{datasets[0]}, {names[0]}, n")
    assert unreadable(figure, 7) == []


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
    needed = {"entropies": ["entropy", "tree_bound"]}
    needed |= {"benchmark": ["method", "auroc"]}
    needed |= {"accuracy_by_coverage": ["method", "coverage", "accuracy"]}
    needed |= {"reliability": ["method", "confidence", "accuracy", "n_in_bin"]}
    needed |= {"guarantees": ["method", "target", "coverage", "accuracy"]}
    needed |= {
        "answer_sets": [
            "alpha",
            "delta",
            "missed_limit",
            "missed",
            "share_empty",
            "auroc",
            "set_size",
        ]
    }
    figure = DRAW[name](first[needed[name]])
    assert len(figure.axes) == {"guarantees": 2}.get(name, 1)
    assert len(figure.legends) == 1
    with pytest.raises(
        SentenceError, match=f"^The table has no column '{needed[name][0]}'; plots.{name} needs"
    ):
        DRAW[name](first.drop(columns=needed[name][0]))
    with pytest.raises(SentenceError, match=r"^The table has no rows"):
        DRAW[name](first.head(0))


def test_methods_far_below_the_best_stand_at_the_edge_and_differences_are_marked():
    table = pd.DataFrame(
        {"method": ["PRO", "SE", "NLL"], "auroc": [0.8, 0.3, 0.85], "dataset": "a", "model": "m"}
    )
    ends = {"auroc_low": table["auroc"] - 0.05, "auroc_high": table["auroc"] + 0.05}
    table = table.assign(auroc_minus_pro=[0.0, -0.5, 0.05], significant=[False, True, True], **ends)
    [panel] = plots.benchmark(table).axes
    assert [label.get_text() for label in panel.get_yticklabels()] == ["NLL", "PRO", "SE"]
    assert sorted(text.get_text() for text in panel.texts) == [" .300▼", " .800", " .850▲"]
    points = {line.get_ydata()[0]: line for line in panel.lines if len(line.get_xdata()) == 1}
    assert points[2].get_xdata()[0] == panel.get_xlim()[0] == pytest.approx(0.65)
    assert points[2].get_marker() != points[1].get_marker() == "o"
    marks = ["significantly better than PRO", "significantly worse than PRO"]
    assert legend(plots.benchmark(table)) == [*marks, "AUROC below 0.65"]
    [of_chance] = plots.benchmark(table.assign(auroc=table["auroc"] - 0.1)).axes
    assert of_chance.get_xlim()[0] == 0.5  # a weak panel shows how far it is from chance


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


def test_a_method_that_a_setting_does_not_have_is_marked_in_a_figure_of_guarantees():
    rows = {"method": ["PRO", "NLL", "PRO"], "model": ["a", "a", "b"], "target": 0.8}
    table = pd.DataFrame(rows | {"coverage": 0.5, "accuracy": 0.9})
    texts = [[text.get_text().strip() for text in ax.texts] for ax in plots.guarantees(table).axes]
    assert texts == [[], ["n/a"]]


def test_a_method_has_the_same_style_whatever_other_methods_are_drawn():
    few = dict(zip(["PRO", "Deg"], method_styles(["PRO", "Deg"]), strict=True))
    labels = ["PRO", "NLL", "S-PRO", "SE (lexical)", "Deg"]
    many = dict(zip(labels, method_styles(labels), strict=True))
    assert few == {"PRO": 0, "Deg": 7}
    assert many == {"PRO": 0, "NLL": 6, "S-PRO": 1, "SE (lexical)": 4, "Deg": 7}


def test_two_comparisons_of_meanings_have_different_styles():
    assert method_styles(["PRO", "SE (lexical)", "SE (alias)"]) == [0, 1, 2]
