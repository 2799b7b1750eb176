import itertools

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from PIL import Image

from pro_lib import figures

DATASETS, MODELS = ("world-facts", "mine"), ("facts-2m", "facts-1m")


def grid(**columns):
    """A table with a row for every combination, an AUROC and its interval."""
    rows = list(itertools.product(*columns.values()))
    table = pd.DataFrame(rows, columns=list(columns))
    auroc = 0.6 + 0.3 * np.random.default_rng(0).random(len(table))
    return table.assign(auroc=auroc, low=auroc - 0.05, high=auroc + 0.05, n_questions=123)


ALPHAS = [0, 0.001, 0.05, 0.4, 1]
SWEEP = grid(dataset=DATASETS, model=MODELS, split=("validation", "test"), alpha=ALPHAS)
CHOICES = SWEEP[SWEEP["alpha"] == 0.4].assign(kind="selected")
FIXED = grid(dataset=DATASETS, model=MODELS, k=[1, 2, 3])
ADAPTIVE = grid(dataset=DATASETS, model=MODELS, alpha=[0.4])
THRESHOLDS = grid(dataset=DATASETS, model=MODELS, threshold=[0.1, 0.3, 0.5], method=("PRO", "NLL")).assign(accuracy=0.5)
METHODS = grid(dataset=DATASETS, model=MODELS, method=("PRO", "PRO, default", "NLL"))
KEPT = SWEEP[SWEEP["split"] == "test"].rename(columns={"auroc": "mean_kept"})
FOUND = pd.DataFrame(
    [(d, m, n, n / 10) for d in DATASETS for m in MODELS for n in (1, 3, 9)],
    columns=["dataset", "model", "distinct", "mass"],
)
ANSWERS = pd.DataFrame(
    {
        "question": ["Capital of France?"] * 2 + ["Author of Emma?"],
        "text": ["Paris", "a very long answer that would not fit beside its bar", "$Jane_Austen$"],
        "probability": [0.6, 0.1, 0.2],
        "kept": [True, False, True],
        "correct": [True, None, False],
        "uncertainty": [0.5, 0.5, 1.6],
    }
)
SEARCHES = grid(dataset=DATASETS, model=MODELS, alpha=[0.01, 0.1]).assign(
    certified=0.7, fallback=0.2, undecided=0.1, token_forwards=[9.0, 4.0] * 4, greedy_forwards=3.0, beam_forwards=20.0
)
RECALL = SEARCHES.assign(recall=0.9, all_found=0.8)
BOUNDS = SEARCHES.assign(pro=1.0, alpha_floor=1.1, tree_bound=2.0, entropy=3.0, entropy_low=2.8, entropy_high=3.2)
PAPER = METHODS.replace({"PRO, default": "SD"})
CURVES = grid(dataset=DATASETS, model=MODELS, method=("PRO", "NLL", "oracle"), coverage=[0.1, 0.5, 1.0]).assign(
    accuracy=0.7
)
BINS = grid(dataset=DATASETS, model=MODELS, method=("PRO", "NLL"), confidence=[0.2, 0.8]).assign(
    accuracy=0.5, accuracy_low=0.4, accuracy_high=0.6, ece=0.05, n=40
)
ALL = {
    "beside_paper": (lambda: figures.beside_paper(PAPER, PAPER), 1),
    "answered": (lambda: figures.answered(CURVES), 4),
    "reliability": (lambda: figures.reliability(BINS), 4),
    "auroc_vs_alpha": (lambda: figures.auroc_vs_alpha(SWEEP, CHOICES), 4),
    "k_vs_alpha": (lambda: figures.k_vs_alpha(KEPT), 2),
    "fixed_k": (lambda: figures.fixed_k(FIXED, ADAPTIVE), 2),
    "rouge_thresholds": (lambda: figures.rouge_thresholds(THRESHOLDS), 4),
    "benchmark": (lambda: figures.benchmark(METHODS), 4),
    "exact_search": (lambda: figures.exact_search(SEARCHES, RECALL, BOUNDS), 16),
    "answers": (lambda: figures.answers(ANSWERS, alpha=0.4), 2),
    "answers_found": (lambda: figures.answers_found(FOUND), 4),
}


@pytest.mark.parametrize("name", ALL)
def test_a_figure_has_a_titled_panel_per_setting_and_labelled_axes(name):
    make, n_panels = ALL[name]
    figure = make()
    assert isinstance(figure, Figure)
    panels = [ax for ax in figure.axes if ax.get_visible()]
    assert len(panels) == n_panels
    assert any(ax.get_xlabel() for ax in panels)
    if name in ("auroc_vs_alpha", "k_vs_alpha", "fixed_k", "rouge_thresholds", "benchmark", "answered", "reliability"):
        assert all("123" in ax.get_title() for ax in panels)


def test_lines_go_through_the_numbers_of_the_table():
    panel = figures.auroc_vs_alpha(SWEEP, CHOICES).axes[0]
    expected = SWEEP[(SWEEP["dataset"] == "world-facts") & (SWEEP["split"] == "validation")]
    for model, line in zip(MODELS, panel.lines, strict=False):
        rows = expected[expected["model"] == model]
        np.testing.assert_array_equal(line.get_xdata(), rows["alpha"])
        np.testing.assert_array_equal(line.get_ydata(), rows["auroc"])


def test_saving_leaves_bitmap_vector_and_numbers_and_the_same_bytes_twice(tmp_path):
    for folder in ("one", "two"):
        figures.save(figures.fixed_k(FIXED, ADAPTIVE), FIXED, "fixed", figures_dir=tmp_path / folder)
    one, two = ({p.name: p.read_bytes() for p in (tmp_path / f).iterdir()} for f in ("one", "two"))
    assert set(one) == {"fixed.png", "fixed.svg", "fixed.csv"}
    assert one["fixed.svg"] == two["fixed.svg"]
    assert one["fixed.csv"] == two["fixed.csv"]
    with Image.open(tmp_path / "one" / "fixed.png") as image:
        assert image.width > 800
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "one" / "fixed.csv"), FIXED, rtol=1e-5)


def test_colours_differ_in_greyscale_or_in_their_dashes_and_markers():
    looks = set(zip(map(str, figures.DASHES), figures.MARKERS, strict=True))
    assert len(looks) == len(figures.COLORS)


def test_significant_differences_to_pro_are_marked_by_their_direction():
    table = METHODS.assign(difference=np.where(METHODS["method"] == "NLL", -0.1, 0.1), significant=True)
    table.loc[table["method"] == "PRO", "significant"] = False
    marks = [text.get_text() for text in figures.benchmark(table).axes[0].texts]
    assert marks == ["▲", "▼"]
    assert not figures.benchmark(METHODS).axes[0].texts


def test_printed_values_stand_where_the_paper_has_them_and_no_legend_where_it_has_none():
    printed = pd.DataFrame(
        {"dataset": "mine", "model": "facts-1m", "selection": "fixed", "k": [1, 2], "auroc": [0.7, 0.8]}
    )
    printed = printed.astype({"k": "Int64"})
    figure = figures.fixed_k(FIXED, ADAPTIVE, printed)
    grey = [line for line in figure.axes[1].lines if line.get_color() == "#777777" and len(line.get_xdata())]
    np.testing.assert_array_equal(grey[0].get_ydata(), [0.7, 0.8])
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == [*MODELS, "the paper"]
    assert len(figures.fixed_k(FIXED, ADAPTIVE, printed.head(0)).legends[0].get_texts()) == 2
    thresholds = pd.DataFrame(
        {"dataset": "mine", "model": "facts-2m", "method": "NLL", "threshold": [0.3], "auroc": [0.66]}
    )
    axes = figures.rouge_thresholds(THRESHOLDS, thresholds).axes
    grey = [list(line.get_ydata()) for ax in axes for line in ax.lines if line.get_color() == "#777777"]
    assert [0.66] in grey


def test_differences_to_pro_are_taken_within_a_setting():
    table = pd.DataFrame({"dataset": ["a", "a", "b", "b"], "model": "m", "method": ["PRO", "SD, nli"] * 2})
    table["auroc"] = [0.8, 0.7, 0.6, 0.65]
    paper = pd.DataFrame({"dataset": "a", "model": "m", "method": ["PRO", "SD"], "auroc": [0.5, 0.6]})
    points = [
        line.get_xdata()
        for line in figures.beside_paper(table, paper).axes[0].lines
        if len(line.get_xdata()) and line.get_marker() == "o"
    ]
    np.testing.assert_allclose(points[0], [0.1])
    np.testing.assert_allclose(points[1], [-0.1, 0.05])


def test_dollar_signs_in_answers_are_dollar_signs():
    labels = [label for ax in figures.answers(ANSWERS, alpha=0.4).axes for label in ax.get_yticklabels()]
    assert "$Jane_Austen$" in [label.get_text() for label in labels]
    assert not any(label.get_parse_math() for label in labels)
