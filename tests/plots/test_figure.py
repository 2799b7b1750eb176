"""Test what all figures share: panels with titles, labels, legends, and rows with intervals."""

import numpy as np
import pandas as pd
import pytest
from figure_checks import grid, legend, unreadable

from pro_lib.plots.figure import draw_rows, labelled_figure, row_figure
from pro_lib.plots.style import line_style

TITLE = {"title": "A title of mine"}


@pytest.mark.parametrize("name", ["paper-questions", "workbench-2", "paper"])
def test_a_dataset_keeps_its_name_in_the_title_whatever_it_begins_with(name):
    protocols = ("paper", "workbench, repeats")
    table = grid(dataset=(name, "other"), model=(f"{name}-model",), protocol=protocols)
    with labelled_figure(table, "dataset", "protocol", **TITLE) as (figure, panels):
        pass
    titles = [ax.get_title().replace("\n", " ") for ax, _ in panels]
    assert titles[0].startswith(f"repeats counted, {name}, n")
    assert titles[1].startswith(f"workbench, repeats, {name}, n")
    assert f"({name}-model)" in figure.legends[0].get_title().get_text().replace("\n", " ")


def test_long_titles_of_panels_are_not_shortened():
    names = ["a-model-with-a-long-name-" + ending for ending in ("7b-it", "13b-it")]
    datasets = ["a-data-set-with-a-long-name", "b", "c"]
    table = grid(model=names, dataset=datasets)
    with labelled_figure(table, "model", "dataset", **TITLE) as (figure, _):
        pass
    titles = [ax.get_title().replace("\n", " ") for ax in figure.axes]
    assert titles[0].startswith(f"{datasets[0]}, {names[0]}, n")
    assert unreadable(figure, 7) == []


def test_a_panel_above_an_empty_place_has_tick_labels():
    table = pd.DataFrame({"dataset": ["a", "b", "c"], "value": 0})
    with labelled_figure(table, "dataset", per_line=2, sharex=True, **TITLE) as (_, panels):
        pass
    has_labels = [ax.xaxis.get_tick_params()["labelbottom"] for ax, _ in panels]
    assert has_labels == [False, True, True]


def test_labels_are_centred_on_the_panels_and_the_title_has_the_setting_of_one_panel():
    table = pd.DataFrame({"dataset": ["d"], "model": "m", "n_questions": 1234})
    labels = {"x": "a long label\nof two lines", "y": "value", **TITLE}
    with labelled_figure(table, "dataset", **labels) as (figure, [(ax, _)]):
        for label in ("one", "two", "one"):
            ax.plot(0, 0, label=label)
    figure.draw_without_rendering()
    box = ax.get_position()
    assert figure._supylabel.get_position()[1] == pytest.approx((box.y0 + box.y1) / 2, abs=0.01)
    assert legend(figure) == ["one", "two"]
    title = figure.legends[0].get_title().get_text()
    assert title.replace("\xa0", " ") == "A title of mine (d, m, n = 1,234)"
    assert ax.get_title() == ""


def test_the_entries_of_a_legend_are_in_as_few_rows_as_fit():
    for labels, n_columns in ((["a", "b" * 40, "c"], 3), (["a" * 60, "b" * 60, "c", "d"], 2)):
        with labelled_figure(pd.DataFrame({"value": [0]}), **TITLE) as (figure, [(ax, _)]):
            for label in labels:
                ax.plot(0, 0, label=label)
        assert figure.legends[0]._ncols == n_columns


def test_a_figure_of_one_column_has_a_height_that_fits():
    table = pd.DataFrame({"dataset": [*"abc"], "value": 0})
    options = {"per_line": 2, "height": 9.0, "least_height": 0.5, "figure_columns": 1}
    with labelled_figure(table, "dataset", **options, **TITLE) as (figure, _):
        pass
    assert figure.get_figheight() == 4.5


def test_rows_have_a_value_an_interval_and_the_words_of_a_missing_one():
    rows = pd.DataFrame({"row": ["a", "b"], "judge": "x", "auroc": [0.8, None]})
    rows = rows.assign(auroc_low=rows["auroc"] - 0.1, auroc_high=rows["auroc"] + 0.1)
    with labelled_figure(rows, **TITLE) as (_, [(ax, _)]):
        draw_rows(ax, rows, "auroc", ["a", "b"], by="judge", styles={"x": line_style(1)})
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]
    assert ax.lines[0].get_xydata()[0].tolist() == [0.8, 0.0]
    assert [text.get_text() for text in ax.texts] == ["n/a"]
    [bar, _] = ax.collections[0].get_segments()
    assert bar[:, 0].tolist() == pytest.approx([0.7, 0.9])


def test_values_below_the_axis_are_in_the_legend():
    rows = pd.DataFrame({"row": ["a", "b", "b", "c"], "value": [0.5, -0.2, -0.3, -0.1]})
    options = {"value": "value", "row_height": 0.2, "least": 0.0, **TITLE}
    with row_figure(rows, **options) as (figure, [(ax, _)]):
        pass
    assert legend(figure) == ["off the axis: b, −0.30 to −0.20; c, −0.10"]
    assert -0.1 < ax.get_xlim()[0] < 0
    with row_figure(rows.head(1), **options) as (figure, _):
        pass
    assert legend(figure) == []


def test_an_arrow_stands_for_a_value_off_the_axis_and_an_interval_reaches_over_its_edge():
    rows = pd.DataFrame({"row": ["a", "b", "c"], "value": [0.5, 0.2, -0.1]})
    rows = rows.assign(value_low=rows["value"] - 0.3, value_high=0.6)
    with labelled_figure(rows, **TITLE) as (_, [(ax, _)]):
        draw_rows(ax, rows, "value", ["a", "b", "c"], least=0.0)
    points, arrows = (line.get_xydata().tolist() for line in ax.lines)
    assert (points, arrows) == ([[0.5, 0.0], [0.2, 1.0]], [[0.0, 2.0]])
    starts = [segment[0].tolist() for segment in ax.collections[0].get_segments()]
    np.testing.assert_allclose(starts, [[0.2, 0.0], [-0.1, 1.0]])


def test_a_difference_without_a_moved_question_has_no_interval_and_its_axis_has_two_sides():
    rows = pd.DataFrame({"row": ["a", "b"], "auroc_minus_nll": [0.0, 0.1], "n_differ": [0, 3]})
    rows = rows.assign(auroc_minus_nll_low=-0.1, auroc_minus_nll_high=0.2)
    with labelled_figure(rows, x="AUROC minus that of NLL", **TITLE) as (figure, [(ax, _)]):
        draw_rows(ax, rows, "auroc_minus_nll", ["a", "b"])
    assert [segment[0, 1] for segment in ax.collections[0].get_segments()] == [1.0]
    assert figure.get_supxlabel().endswith("← worse      better →")
