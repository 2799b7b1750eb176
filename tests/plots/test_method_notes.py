import pandas as pd

from pro_lib import plots
from pro_lib.common.method_labels import method_labels
from pro_lib.plots.method_notes import method_note


def test_a_note_explains_the_methods_and_similarities_of_a_table():
    table = pd.DataFrame({"method": ["PRO", "SE", "ALL"], "similarity": [None, "alias", None]})
    expected = (
        "ALL: NLL per token. SE: semantic entropy. alias: meanings compared by the references."
    )
    assert method_note(table) == expected


def test_pro_alone_needs_no_note():
    assert method_note(pd.DataFrame({"method": ["PRO"]})) == ""


def test_a_figure_explains_every_method_that_it_names():
    methods = [name for name in plots.PAPER_METHODS if name != "PRO"]
    table = pd.DataFrame({"method": ["PRO", *methods], "auroc": 0.8})
    note = " ".join(plots.benchmark(table).get_supxlabel().split())
    assert all(f"{name}: " in note for name in method_labels(table) if name != "PRO")


def test_lines_of_accuracy_have_a_point_at_each_tenth_of_the_questions():
    coverages = [n / 50 for n in range(1, 51)]
    parts = [
        pd.DataFrame({"method": name, "coverage": coverages, "accuracy": 0.5})
        for name in ("PRO", "NLL")
    ]
    [ax] = plots.accuracy_by_coverage(pd.concat(parts)).axes
    assert [len(line.get_xdata()) for line in ax.lines if len(line.get_xdata()) > 2] == [10]
