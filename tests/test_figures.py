import itertools
from pathlib import Path
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from pro_lib import figures

ROOT = Path(__file__).parent.parent

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
FIXED = grid(dataset=DATASETS, model=MODELS, k=[1, 2, 3, "adaptive"])
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
        "reference": ["Paris", "Paris", None],
    }
)
SEARCHES = grid(dataset=DATASETS, model=MODELS, alpha=[0.01, 0.1]).assign(
    certified=0.7, fallback=0.2, undecided=0.1, token_forwards=[9.0, 4.0] * 4, greedy_forwards=3.0, beam_forwards=20.0
)
RECALL = SEARCHES.drop(columns="n_questions").assign(recall=0.9, all_found=0.8)
BOUNDS = SEARCHES.assign(pro=1.0, alpha_floor=1.1, tree_bound=2.0, entropy=3.0, entropy_low=2.8, entropy_high=3.2)
ENTROPIES = grid(dataset=DATASETS, model=MODELS, question_id=["a", "b", "c"]).drop(columns="auroc")
ENTROPIES = ENTROPIES.assign(tree_bound=2.0, estimate=[3.0, 5.0, 4.0] * 4, low=2.5, high=5.5)
ENTROPIES = ENTROPIES.assign(anytime_low=2.1, anytime_high=[14.0, 16.0, 15.0] * 4)
PAPER = METHODS.replace({"PRO, default": "SD"})
CURVES = grid(dataset=DATASETS, model=MODELS, method=("PRO", "NLL", "oracle"), coverage=[0.1, 0.5, 1.0]).assign(
    accuracy=0.7
)
BINS = grid(dataset=DATASETS, model=MODELS, method=("PRO", "NLL"), confidence=[0.2, 0.8]).assign(
    accuracy=0.5, accuracy_low=0.4, accuracy_high=0.6, ece=0.05, n=40
)
GAINS = pd.DataFrame(
    list(itertools.product(("sharpness", "spellings"), ("1", "5"), ("K = 2", "α = 0.4"))),
    columns=["panel", "level", "score"],
).assign(gain=[-0.15, 0.0, 0.01, -0.01] * 2, low=-0.2, high=0.1)
AT = np.linspace(0.05, 0.45, 9)
MAP = pd.DataFrame([(a, b, a / b) for a in AT for b in AT if b <= a], columns=["p_1", "p_2", "gain"])
REACH = pd.DataFrame({"alpha": 0.1, "p_1": AT, "least": AT * 0.8})
ALL = {
    "gains": (lambda: figures.gains(GAINS, "panel", level="level", score="score", label="AUROC"), 2),
    "places": (lambda: figures.places(MAP, REACH), 2),
    "beside_paper": (lambda: figures.beside_paper(PAPER, PAPER), 1),
    "accuracy_coverage": (lambda: figures.accuracy_coverage(CURVES), 4),
    "reliability": (lambda: figures.reliability(BINS), 4),
    "auroc_vs_alpha": (lambda: figures.auroc_vs_alpha(SWEEP, CHOICES), 4),
    "k_vs_alpha": (lambda: figures.k_vs_alpha(KEPT), 2),
    "fixed_k": (lambda: figures.fixed_k(FIXED), 2),
    "rouge_thresholds": (lambda: figures.rouge_thresholds(THRESHOLDS), 4),
    "benchmark": (lambda: figures.benchmark(METHODS), 4),
    "exact_search": (lambda: figures.exact_search(SEARCHES, RECALL, BOUNDS), 16),
    "entropies": (lambda: figures.entropies(ENTROPIES), 4),
    "answers": (lambda: figures.answers(ANSWERS, alpha=0.4), 2),
    "answers_found": (lambda: figures.answers_found(FOUND), 4),
}


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def committed(name):
    return pd.read_csv(ROOT / "figures" / f"{name}.csv")


def embedded(name, columns):
    """The figure of this name from the committed numbers of the bundled models."""
    if name == "auroc_vs_alpha":
        return figures.auroc_vs_alpha(committed("02_alpha_sweep"), committed("02_alpha_choices"), columns=columns)
    if name == "fixed_k":
        return figures.fixed_k(committed("04_fixed_k"), columns=columns)
    if name == "beside_paper":
        paper = pd.read_csv(ROOT / "data" / "paper" / "main_table.csv")
        return figures.beside_paper(committed("06_benchmark"), paper, columns=columns)
    if name == "answers":
        return figures.answers(committed("00_explore_examples"), alpha=0.4, columns=columns)
    if name == "rouge_thresholds":  # those that the notebook shows
        table, hidden = committed("05_rouge_threshold"), ("PE-MC", "SE-MC", "WD", "gap", "S-NLL", "SC", "agree")
        return figures.rouge_thresholds(table[~table["method"].str.startswith(hidden)], columns=columns)
    if name == "exact_search":
        table = committed("07_exact_search")
        return figures.exact_search(table, table, committed("07_bounds"), columns=columns)
    if name == "places":
        at = np.linspace(0.005, 0.995, 199)
        over = pd.DataFrame([(a, b, (1 - a) * np.log(a / b)) for a in at for b in at if b <= min(a, 1 - a)])
        return figures.places(over.set_axis(["p_1", "p_2", "gain"], axis=1), committed("08_map"), columns=columns)
    if name == "gains":
        table, names = committed("08_when_does_pro_help"), {"level": "level", "score": "score", "label": "AUROC"}
        return figures.gains(table[~table["panel"].str.contains(",")], "panel", **names, columns=columns)
    file = {
        "k_vs_alpha": "03_k_vs_alpha",
        "benchmark": "06_benchmark",
        "accuracy_coverage": "06_answered",
        "reliability": "06_reliability",
        "answers_found": "01_generate",
        "entropies": "09_entropy",
    }[name]
    return getattr(figures, name)(committed(file), columns=columns)


MANY = [name for name in ALL if name not in ("beside_paper", "exact_search", "answers", "gains", "places")]
PAPER_SIZED = {
    "dataset": ("TriviaQA", "SciQ", "NQ"),
    "model": ("Gemma-2B", "Gemma-7B", "Llama2-13B", "Falcon-11B", "Falcon-40B"),
}


def paper_sized(name, columns):
    """The same with as many datasets and models as the paper has; AUROCs scattered, so that some ends are near."""
    eight = {"method": ("PRO", "SD", "SE", "Deg", "NE", "PE", "ALL", "NLL")}
    if name == "auroc_vs_alpha":
        sweep = grid(**PAPER_SIZED, split=("test",), alpha=[0, 0.001, 0.01, 0.1, 1])
        return figures.auroc_vs_alpha(sweep, sweep[sweep["alpha"] == 0.1].assign(kind="oracle"), columns=columns)
    if name == "k_vs_alpha":
        sweep = grid(**PAPER_SIZED, alpha=[0, 0.001, 0.01, 0.1, 1])
        return figures.k_vs_alpha(sweep.rename(columns={"auroc": "mean_kept"}), columns=columns)
    if name == "fixed_k":
        return figures.fixed_k(grid(**PAPER_SIZED, k=[*range(1, 11), "adaptive"]), columns=columns)
    if name == "rouge_thresholds":
        sweep = grid(**PAPER_SIZED, threshold=[0.1, 0.2, 0.3, 0.4, 0.5], **eight).assign(accuracy=0.5)
        return figures.rouge_thresholds(sweep, columns=columns)
    if name == "benchmark":
        table = grid(**PAPER_SIZED, **eight).assign(difference=0.1, significant=True)
        return figures.benchmark(table, columns=columns)
    if name == "answers_found":
        found = grid(**PAPER_SIZED, distinct=range(1, 11))
        return figures.answers_found(found.rename(columns={"auroc": "mass"}), columns=columns)
    if name == "accuracy_coverage":
        curves = grid(**PAPER_SIZED, **eight, coverage=[0.02, 0.25, 0.5, 0.75, 1])
        return figures.accuracy_coverage(curves.rename(columns={"auroc": "accuracy"}), columns=columns)
    bins = grid(**PAPER_SIZED, method=("PRO", "NLL", "PE"), confidence=[0.0, 0.5, 1.0])
    named = {"auroc": "accuracy", "low": "accuracy_low", "high": "accuracy_high"}
    return figures.reliability(bins.rename(columns=named).assign(ece=0.05, n=40), columns=columns)


def written(figure):
    """Every text that is drawn and its box in pixels; the labels of ticks beyond the axes are not drawn."""
    figure.draw_without_rendering()
    beyond = set()
    for axis in itertools.chain.from_iterable((ax.xaxis, ax.yaxis) for ax in figure.axes):
        low, high = sorted(axis.get_view_interval())
        ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
        beyond |= {tick.label1 for tick in ticks if not low - 1e-9 <= tick.get_loc() <= high + 1e-9}
    found = figure.findobj(Text)
    texts = [text for text in found if text.get_visible() and text.get_text().strip() and text not in beyond]
    # That of an annotation has its arrow in it, which may well touch another text.
    return [(text, Text.get_window_extent(text)) for text in texts]


def unreadable(figure):
    """What is wrong with the texts of a figure: too small, over its edge, or over each other."""
    texts, page = written(figure), figure.bbox
    found = [f"{text.get_text()!r} has {text.get_fontsize()} pt" for text, _ in texts if text.get_fontsize() < 6]
    for text, box in texts:
        if box.x0 < 0 or box.y0 < 0 or box.x1 > page.width or box.y1 > page.height:
            found.append(f"{text.get_text()!r} leaves the figure")
    boxes = np.array([box.extents for _, box in texts]).reshape(-1, 4)
    overlap = np.minimum(boxes[:, None, 2:], boxes[None, :, 2:]) - np.maximum(boxes[:, None, :2], boxes[None, :, :2])
    # Boxes are rounded to whole pixels.
    for one, other in np.argwhere(np.triu((overlap > 0.5).all(axis=2), k=1)):
        found.append(f"{texts[one][0].get_text()!r} lies over {texts[other][0].get_text()!r}")
    return found


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize(
    ("drawn", "name"),
    [*((embedded, name) for name in ALL), *(pytest.param(paper_sized, name, marks=pytest.mark.slow) for name in MANY)],
)
def test_the_embedded_numbers_and_as_many_as_the_paper_has_can_be_read_at_one_and_at_two_columns(drawn, name, columns):
    figure = drawn(name, columns)
    assert figure.get_figwidth() == {1: 3.3, 2: 7.0}[columns]
    assert figure.get_figheight() < 9
    assert unreadable(figure) == []


def test_what_cannot_be_read_is_found():
    figure = plt.figure()
    assert unreadable(figure) == []
    figure.text(0.1, 0.1, "small", fontsize=5)
    figure.text(0.99, 0.5, "outside")
    figure.text(0.5, 0.5, "over")
    figure.text(0.52, 0.51, "other")
    assert unreadable(figure) == ["'small' has 5.0 pt", "'outside' leaves the figure", "'over' lies over 'other'"]


def test_titles_count_the_questions_where_the_table_does():
    tables = (
        table[(table["dataset"] == "mine") & (table["model"] == "facts-1m")] for table in (SEARCHES, RECALL, BOUNDS)
    )
    titles = [ax.get_title() for ax in figures.exact_search(*tables).axes]
    assert ["n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}123" in title for title in titles] == [False, True, True, True]


@pytest.mark.parametrize("name", ALL)
def test_a_figure_has_a_titled_panel_per_setting_and_labelled_axes(name):
    make, n_panels = ALL[name]
    figure = make()
    assert isinstance(figure, Figure)
    panels = [ax for ax in figure.axes if ax.get_visible()]
    assert len(panels) == n_panels
    assert figure.get_supxlabel() or any(ax.get_xlabel() for ax in panels)
    if name not in ("beside_paper", "exact_search", "answers", "answers_found", "gains", "places"):
        assert all("123" in ax.get_title() for ax in panels)


def test_lines_go_through_the_numbers_of_the_table():
    panel = figures.auroc_vs_alpha(SWEEP, CHOICES).axes[0]
    expected = SWEEP[(SWEEP["dataset"] == "world-facts") & (SWEEP["split"] == "validation")]
    for model, line in zip(MODELS, panel.lines, strict=False):
        rows = expected[expected["model"] == model]
        np.testing.assert_array_equal(line.get_xdata(), rows["alpha"])
        np.testing.assert_array_equal(line.get_ydata(), rows["auroc"])


@pytest.mark.parametrize("formats", [("png", "svg"), ("png", "svg", "pdf")])
def test_saving_leaves_bitmap_vector_and_numbers_and_the_same_bytes_twice(tmp_path, formats):
    options = {} if formats == ("png", "svg") else {"formats": formats}
    for folder in ("one", "two"):
        figure = figures.fixed_k(FIXED, columns=1)
        figures.save(figure, FIXED, "fixed", figures_dir=tmp_path / folder, **options)
    one, two = ({p.name: p.read_bytes() for p in (tmp_path / f).iterdir()} for f in ("one", "two"))
    assert set(one) == {"fixed.csv", *(f"fixed.{name}" for name in formats)}
    assert one == two
    with Image.open(tmp_path / "one" / "fixed.png") as image:
        assert image.width == 660
    if "pdf" in formats:
        # Type 42 is TrueType; publishers refuse Type 3.
        assert b"/Type3" not in one["fixed.pdf"]
        assert one["fixed.pdf"].startswith(b"%PDF")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "one" / "fixed.csv"), FIXED.astype({"k": str}), rtol=1e-5)


def test_a_figure_drawn_outside_its_style_is_the_one_that_is_saved(tmp_path):
    figures.save(figures.k_vs_alpha(KEPT), KEPT, "kept", figures_dir=tmp_path)
    figures.k_vs_alpha(KEPT).savefig(tmp_path / "shown.png", dpi=200)
    with Image.open(tmp_path / "kept.png") as kept, Image.open(tmp_path / "shown.png") as shown:
        assert kept.tobytes() == shown.tobytes()


def test_colours_differ_in_greyscale_or_in_their_dashes_and_markers():
    looks = set(zip(map(str, figures.DASHES), figures.MARKERS, strict=True))
    assert len(looks) == len(figures.COLORS)
    assert len(set(map(str, figures.DASHES))) == len(set(figures.MARKERS)) == len(figures.COLORS)


def test_more_lines_than_colours_still_differ():
    many = grid(dataset=["d"], model=[f"m{i}" for i in range(16)], alpha=ALPHAS)
    lines = figures.k_vs_alpha(many.rename(columns={"auroc": "mean_kept"})).axes[0].lines[:16]
    assert len({(line.get_color(), line.get_linestyle(), str(line._dash_pattern)) for line in lines}) == 16


def test_a_legend_names_the_lines():
    figure = figures.auroc_vs_alpha(SWEEP, CHOICES)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [*MODELS, "chosen on validation"]


def test_panels_wrap_at_one_column_and_stand_side_by_side_at_two():
    one, two = ([ax.get_position() for ax in figures.k_vs_alpha(KEPT, columns=c).axes] for c in (1, 2))
    assert one[0].x0 == one[1].x0
    assert one[0].y0 > one[1].y1
    assert two[0].y0 == two[1].y0
    assert two[0].x1 < two[1].x0


def test_where_panels_are_narrow_the_less_important_ticks_are_left_out():
    many = grid(**PAPER_SIZED, split=("test", "validation"), alpha=ALPHAS)
    rich, poor = (figures.auroc_vs_alpha(many, many.head(0).assign(kind=""), columns=c).axes[0] for c in (2, 1))
    assert list(rich.get_xticks()) == [0, 0.01, 0.1, 0.4, 1]
    assert list(poor.get_xticks()) == [0, 0.1, 1]
    labels = [tick.label1.get_text() for tick in poor.figure.axes[-1].xaxis.get_major_ticks()]
    assert labels == ["0", "0.1", "1"]


def marks(*kinds):
    """Choices of one model at one place, a row of each of these kinds."""
    return pd.concat([CHOICES.query("split == 'test' and model == 'facts-2m'").assign(kind=kind) for kind in kinds])


def test_choices_that_meet_are_all_seen_the_smaller_upon_the_larger():
    panel = figures.auroc_vs_alpha(SWEEP, marks("selected", "default", "oracle")).axes[2]
    drawn = [line for line in panel.lines if len(line.get_xdata()) == 1]
    assert [line.get_marker() for line in drawn] == ["o", "s", "*"]
    sizes = [line.get_markersize() + line.get_markeredgewidth() for line in drawn]
    assert all(np.diff(sizes) > 2)
    assert all(np.diff([line.get_zorder() for line in drawn]) < 0)


def test_a_word_too_long_for_a_line_begins_one_and_is_broken_at_its_hyphens():
    # Three panels beside long names at one column: nine letters a line.
    longer = {"SE-MC, lexical": "Deg, NLI disagreement", "facts-2m": "gpt-3.5-turbo"}
    table = PROMISED.replace(longer).query("target == 0.7")
    table = pd.concat([table.assign(target=target) for target in (0.7, 0.8, 0.9)])
    titles = [ax.get_title().split("\n") for ax in figures.coverage_promised(table, columns=1).axes]
    assert titles[0] == ["70%", "right,", "gpt-3.5-", "turbo,", "n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}123"]


@pytest.mark.parametrize("columns", [1, 2])
def test_what_all_panels_share_is_said_once_and_what_a_legend_says_is_not_said_again(columns):
    one = [t.query("model == 'facts-2m' and dataset == 'mine'") for t in (SEARCHES, RECALL, BOUNDS)]
    figure = figures.exact_search(*one, columns=columns)
    assert figure.get_supxlabel() == "search α\nmine, facts-2m"
    assert not any("mine" in ax.get_title() for ax in figure.axes)
    shared = figures.coverage_promised(PROMISED.query("model == 'facts-2m'"), columns=columns)
    assert shared.get_supxlabel() == "share\nworld-facts, facts-2m"
    assert [" ".join(ax.get_title().split()) for ax in shared.axes] == [f"{n}% right, n = 123" for n in (70, 90)]
    assert "facts-2m" not in figures.k_vs_alpha(KEPT.query("model == 'facts-2m'"), columns=columns).get_supxlabel()
    # A figure of one panel says it in the title.
    assert (
        figures.benchmark(METHODS.query("model == 'facts-2m' and dataset == 'mine'")).get_supxlabel().count("mine") == 0
    )


def test_scales_that_are_not_linear_are_named():
    assert "log scale beyond ±0.05" in figures.rouge_thresholds(THRESHOLDS).get_supylabel()
    assert "log scale beyond ±0.05" in figures.accuracy_coverage(CURVES).get_supylabel()
    assert (
        "log scale beyond ±0.02"
        in figures.gains(GAINS, "panel", level="level", score="score", label="AUROC").get_supxlabel()
    )
    assert "log scale above 0.001" in figures.k_vs_alpha(KEPT).get_supxlabel()


def test_rows_without_a_number_say_so():
    holed = METHODS[(METHODS["method"] != "NLL") | (METHODS["dataset"] != "mine")]
    said = [[text.get_text() for text in ax.texts if text.get_text() == "n/a"] for ax in figures.benchmark(holed).axes]
    assert said == [[], ["n/a"]] * 2
    bare = GAINS.assign(gain=np.where(GAINS["level"] == "5", np.nan, GAINS["gain"]))
    figure = figures.gains(bare, "panel", level="level", score="score", label="AUROC")
    assert [[text.get_text() for text in ax.texts] for ax in figure.axes] == [["n/a"]] * 2
    lacking = PROMISED[(PROMISED["model"] != "facts-1m") | (PROMISED["method"] != "b")]
    said = [[t.get_text() for t in ax.texts if t.get_text() == "n/a"] for ax in figures.coverage_promised(lacking).axes]
    assert said == [[], [], ["n/a"], ["n/a"]]


def luminances(figure):
    """The lightness of each line's colour that a legend shows, with its dashes and marker, as grey has it."""
    entries = [entry for legend in figure.legends for entry in legend.legend_handles if hasattr(entry, "get_marker")]
    return [
        (
            round(255 * float(np.dot(to_rgb(entry.get_color()), (0.299, 0.587, 0.114))) / 25),
            entry.get_marker(),
            str(entry._dash_pattern),
        )
        for entry in entries
    ]


@pytest.mark.parametrize("name", ["rouge_thresholds", "beside_paper", "accuracy_coverage", "gains"])
def test_the_entries_of_a_legend_differ_in_grey(name):
    told = luminances(embedded(name, 2))
    assert len(told) > 4
    assert len(set(told)) == len(told)


def test_points_upon_each_other_are_both_seen():
    bins = BINS.query("model == 'facts-2m' and dataset == 'mine'")
    points = [drawn for drawn in figures.reliability(bins).axes[0].collections if isinstance(drawn, PathCollection)]
    assert [len(drawn.get_facecolors()) for drawn in points] == [0, 0]


def test_a_step_goes_to_the_edge_of_its_number_and_does_not_fall_there():
    panel = figures.answers_found(FOUND).axes[0]
    line = panel.lines[0]
    assert panel.get_xlim() == (-0.5, 9.5)
    assert line.get_xdata()[-1] > 9.5
    assert line.get_ydata()[-1] == line.get_ydata()[-2] == pytest.approx(1 / 3)
    legend = figures.answers_found(FOUND).legends[0]
    assert {entry.get_marker() for entry in legend.legend_handles} == {""}


def test_each_contour_is_named_once_and_no_legend_lies_in_a_panel_of_entropies():
    assert [text.get_text() for text in embedded("places", 1).axes[0].texts] == ["0.2", "0.5", "1.0"]
    figure = figures.entropies(ENTROPIES)
    assert [len(figure.legends), *(ax.get_legend() for ax in figure.axes)] == [1, None, None, None, None]
    assert "2 % of the limits lie above" in figure.get_supxlabel()


def test_marks_at_the_edges_are_whole_and_narrow_bands_have_no_edges():
    panel = figures.k_vs_alpha(KEPT).axes[0]
    assert [line.get_clip_on() for line in panel.lines if line.get_marker() in figures.MARKERS] == [False] * 2
    assert all(band.get_edgecolor()[0][3] == 0 for band in panel.collections)


def test_intervals_are_drawn_and_named_where_the_table_has_them():
    ax = figures.k_vs_alpha(KEPT)
    assert [len(panel.collections) for panel in ax.axes] == [2] * 2
    assert "95 %" in ax.get_supylabel()
    bare = figures.k_vs_alpha(KEPT.drop(columns=["low", "high"]))
    assert not any(panel.collections for panel in bare.axes)
    assert "95 %" not in bare.get_supylabel()
    bars = THRESHOLDS.assign(difference_low=-0.1, difference_high=0.1)
    for table, n_bars in ((THRESHOLDS, 0), (bars, 1)):
        figure = figures.rouge_thresholds(table)
        assert [len(panel.collections) for panel in figure.axes] == [n_bars] * 4
        assert ("95 %" in figure.get_supylabel()) == bool(n_bars)
    # Wilson's interval of 50 questions in 100.
    recall = RECALL.assign(all_found=0.5, questions=100)
    band = figures.exact_search(SEARCHES, recall, BOUNDS).axes[0].collections[0].get_paths()[0].vertices[:, 1]
    np.testing.assert_allclose([band.min(), band.max()], [0.40383, 0.59617], atol=1e-5)


def test_the_subject_comes_first_whatever_its_row():
    last = BINS.sort_values("method")
    assert list(dict.fromkeys(last["method"])) == ["NLL", "PRO"]
    first = figures.reliability(last).legends[0].legend_handles[0]
    assert first.get_label() == "PRO"
    assert first.get_color() == figures.COLORS[0]


def test_a_setting_without_rows_has_no_panel():
    def holed(table):
        return table[(table["dataset"] != "mine") | (table["model"] != "facts-1m")]

    for figure in (
        figures.auroc_vs_alpha(holed(SWEEP), holed(CHOICES)),
        figures.k_vs_alpha(holed(KEPT)),
        figures.fixed_k(holed(FIXED)),
        figures.answers_found(holed(FOUND)),
    ):
        assert [len(ax.lines) > 0 for ax in figure.axes] == [True] * len(figure.axes)
    for figure in (
        figures.rouge_thresholds(holed(THRESHOLDS)),
        figures.benchmark(holed(METHODS)),
        figures.accuracy_coverage(holed(CURVES)),
        figures.reliability(holed(BINS)),
    ):
        assert ["n\N{NO-BREAK SPACE}=" in ax.get_title() for ax in figure.axes] == [True, True, True]
        assert unreadable(figure) == []


@pytest.mark.parametrize(
    ("draw", "sentence"),
    [
        (lambda: figures.k_vs_alpha(KEPT, columns=3), "columns=3 must be 1 or 2"),
        (lambda: figures.k_vs_alpha(SWEEP), "sweep has no column 'mean_kept'; it needs dataset, model, alpha"),
        (lambda: figures.fixed_k(FIXED[FIXED["k"] != "adaptive"]), "sweep at k = adaptive has no rows"),
        (lambda: figures.benchmark(METHODS.head(0)), "table has no rows"),
        (lambda: figures.auroc_vs_alpha(SWEEP, CHOICES.assign(kind="best")), "kind 'best' is none of selected"),
        (lambda: figures.save(plt.figure(), KEPT, "x", formats=["jpg"]), "formats has 'jpg', which is none of png"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_a_sentence(draw, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=sentence):
        draw()
    assert not list(tmp_path.iterdir())


def test_significant_differences_to_pro_are_marked_by_their_direction():
    table = METHODS.assign(difference=np.where(METHODS["method"] == "NLL", -0.1, 0.1), significant=True)
    table.loc[table["method"] == "PRO", "significant"] = False
    marks = {text.get_text()[4:] for text in figures.benchmark(table).axes[0].texts}
    assert marks == {"", "▲", "▼"}
    assert not any(text.get_text()[4:] for text in figures.benchmark(METHODS).axes[0].texts)


def test_methods_stand_in_the_order_of_their_means_with_values_and_far_ones_at_the_edge():
    table = pd.DataFrame({"dataset": ["a"] * 3 + ["b"] * 3, "model": "m", "method": ["PRO", "SE-MC", "NLL"] * 2})
    left, right = figures.benchmark(table.assign(auroc=[0.8, 0.3, 0.85, 0.7, 0.65, 0.9])).axes
    assert [label.get_text() for label in left.get_yticklabels()] == ["NLL", "PRO", "SE-MC"]
    assert sorted(text.get_text() for text in left.texts) == [".300", ".800", ".850"]
    at = {line.get_ydata()[0]: line for line in left.lines if len(line.get_xdata()) == 1}
    assert at[2].get_xdata()[0] == left.get_xlim()[0] == pytest.approx(0.7)
    assert at[2].get_marker() != at[1].get_marker() == "o"
    assert [line.get_xdata()[0] for line in right.lines if len(line.get_xdata()) == 1] == [0.7, 0.7, 0.9]


def test_differences_to_nll_are_taken_at_the_same_coverage_and_threshold():
    accuracy = {"PRO": [0.9, 0.7], "NLL": [0.8, 0.75], "oracle": [1.0, 0.8]}
    curves = (
        pd.DataFrame(accuracy, index=[0.5, 1])
        .rename_axis("coverage")
        .melt(var_name="method", value_name="accuracy", ignore_index=False)
    )
    curves = curves.reset_index().assign(dataset="d", model="m")
    [panel] = figures.accuracy_coverage(curves.assign(low=curves["accuracy"] - 0.1, high=1.0)).axes
    lines = {line.get_label(): line.get_ydata() for line in panel.lines}
    np.testing.assert_allclose(lines["PRO"], [0.1, -0.05])
    assert not {"NLL", "oracle"} & lines.keys()
    np.testing.assert_allclose(sorted(set(panel.collections[0].get_paths()[0].vertices[:, 1])), [-0.1, 0.2, 0.25])
    assert panel.get_xticklabels()[-1].get_text() == "100%\n(0.75)"
    sweep = curves.rename(columns={"coverage": "threshold", "accuracy": "auroc"})
    lines = {line.get_label(): line.get_ydata() for line in figures.rouge_thresholds(sweep).axes[0].lines}
    np.testing.assert_allclose(lines["PRO"], [0.1, -0.05])
    assert "NLL" not in lines


def test_the_area_of_a_bin_is_its_share_of_the_questions():
    bins = BINS.query("model == 'facts-2m' and dataset == 'mine'").assign(n=[30, 10] * 2)
    *_, points = figures.reliability(bins).axes[0].collections
    np.testing.assert_allclose(np.diff(points.get_sizes()), [-300 * (0.75 - 0.25)])


def test_lines_with_choices_on_them_have_no_marks_of_their_own():
    panel = figures.auroc_vs_alpha(SWEEP, CHOICES).axes[2]
    assert [line.get_marker() for line in panel.lines if len(line.get_xdata()) > 1] == [""] * 2
    assert {line.get_marker() for line in panel.lines if len(line.get_xdata()) == 1} == {"o"}


def test_bands_that_overlap_have_edges_dashed_as_their_lines():
    bands = figures.auroc_vs_alpha(SWEEP, CHOICES).axes[0].collections
    assert len({str(band.get_linestyle()) for band in bands}) == len(bands) == 2
    assert all(band.get_linewidth()[0] > 0 for band in bands)


def test_a_status_that_no_question_has_is_not_in_the_key():
    same = (table.query("model == 'facts-2m' and dataset == 'mine'") for table in (SEARCHES, RECALL, BOUNDS))
    searches, *others = same
    for undecided, names in ((0.1, ["certified", "fallback", "undecided"]), (0.0, ["certified", "fallback"])):
        ax = figures.exact_search(searches.assign(undecided=undecided), *others).axes[1]
        assert [text.get_text() for text in ax.get_legend().get_texts()] == names


def test_the_right_answer_is_said_where_it_is_known():
    titles = [ax.get_title() for ax in figures.answers(ANSWERS, alpha=0.4).axes]
    assert ["right: Paris" in title for title in titles] == [True, False]
    assert "PRO = 0.50 nats, K = 1" in titles[0]
    assert "right:" not in figures.answers(ANSWERS.drop(columns="reference"), alpha=0.4).axes[0].get_title()


def test_printed_values_stand_where_the_paper_has_them_and_no_legend_where_it_has_none():
    printed = pd.DataFrame(
        {"dataset": "mine", "model": "facts-1m", "selection": "fixed", "k": [1, 2], "auroc": [0.7, 0.8]}
    )
    printed = printed.astype({"k": "Int64"})
    figure = figures.fixed_k(FIXED, printed)
    grey = [line for line in figure.axes[1].lines if line.get_color() == "#777777" and len(line.get_xdata())]
    np.testing.assert_array_equal(grey[0].get_ydata(), [0.7, 0.8])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [*MODELS, "the paper"]
    without = figures.fixed_k(FIXED, printed.head(0))
    assert [text.get_text() for text in without.legends[0].get_texts()] == list(MODELS)
    thresholds = pd.DataFrame(
        {"dataset": "mine", "model": "facts-2m", "method": ["NLL", "PRO"], "threshold": 0.3, "auroc": [0.66, 0.75]}
    )
    axes = figures.rouge_thresholds(THRESHOLDS, thresholds).axes
    grey = [list(line.get_ydata()) for ax in axes for line in ax.lines if line.get_color() == "#777777"]
    assert [pytest.approx(0.09)] in grey
    chosen = CHOICES.query("split == 'test' and model == 'facts-1m'")
    figure = figures.auroc_vs_alpha(SWEEP, CHOICES, chosen.assign(auroc=0.51))
    [line] = {line for line in figure.axes[0].lines if list(line.get_ydata()) == [0.51]}
    assert (line.get_marker(), line.get_color()) == ("o", figures.COLORS[1])
    assert "the paper" in [text.get_text() for text in figure.legends[0].get_texts()]


def test_differences_to_pro_are_taken_within_a_setting():
    table = pd.DataFrame({"dataset": ["a", "a", "b", "b"], "model": "m", "method": ["PRO", "SD, nli"] * 2})
    table["auroc"] = [0.8, 0.7, 0.6, 0.65]
    paper = pd.DataFrame({"dataset": "a", "model": "m", "method": ["PRO", "SD"], "auroc": [0.5, 0.6]})
    points = [
        line.get_xdata()
        for line in figures.beside_paper(table, paper).axes[0].lines
        if len(line.get_xdata()) and line.get_label().endswith("settings")
    ]
    np.testing.assert_allclose(points[0], [0.1])
    np.testing.assert_allclose(points[1], [-0.1, 0.05])


def test_each_similarity_stands_by_itself_beside_the_paper():
    table = grid(dataset=["a", "b"], model=["m"], method=("PRO", "NLL", "SD, lexical", "SD, alias"))
    figure = figures.beside_paper(table, PAPER)
    labels = [label for line in figure.axes[0].lines if (label := line.get_label()).endswith("settings")]
    assert labels == [
        "the paper, 4 settings",
        "here, 2 settings",
        "here, lexical, 2 settings",
        "here, alias, 2 settings",
    ]
    drawn = {line.get_label(): len(line.get_xdata()) for line in figure.axes[0].lines}
    assert drawn["here, lexical, 2 settings"] == drawn["here, alias, 2 settings"] == 2


def test_bounds_are_drawn_of_the_questions_certified_with_the_entropy_of_the_same():
    bounds = BOUNDS[BOUNDS["model"] == MODELS[0]].query("dataset == @DATASETS[0]").assign(entropy=[3.0, 2.0])
    same = (table[(table["model"] == MODELS[0]) & (table["dataset"] == DATASETS[0])] for table in (SEARCHES, RECALL))
    [ax] = [
        ax for ax in figures.exact_search(*same, bounds).axes if "a sample, nats" in " ".join(ax.get_title().split())
    ]
    lines = {line.get_label(): list(line.get_ydata()) for line in ax.lines}
    assert set(lines) == {"H, tree and draws", "tree bound", "α-floor", "PRO"}
    assert lines["H, tree and draws"] == [3.0, 2.0]


def test_dollar_signs_in_answers_are_dollar_signs():
    labels = [label for ax in figures.answers(ANSWERS, alpha=0.4).axes for label in ax.get_yticklabels()]
    assert "$Jane_Austen$" in [label.get_text() for label in labels]
    assert not any(label.get_parse_math() for label in labels)


@pytest.mark.filterwarnings("ignore:Glyph .* missing from font")
def test_control_characters_leave_an_svg_well_formed(tmp_path):
    hostile = "".join(map(chr, [*range(9), 11, 12, *range(14, 32), 0xFFFE, 0xFFFF]))
    table = ANSWERS.assign(question=f"A{hostile}?", text=[f"{n}{hostile}" for n in range(3)])
    figures.save(figures.answers(table, alpha=0.4), table, "found", figures_dir=tmp_path)
    drawn = "".join(ElementTree.parse(tmp_path / "found.svg").getroot().itertext())
    assert "A�" in drawn
    assert "0�" in drawn


def test_a_folder_that_refuses_is_said_in_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"file/figures cannot be written: Not a directory"):
        figures.save_table(ANSWERS, "found", figures_dir=tmp_path / "file" / "figures")


@pytest.mark.parametrize("columns", [1, 2])
def test_what_a_model_was_told_can_be_read_at_one_and_at_two_columns(columns):
    cells = itertools.product(["accuracy", "NLL", "PRO"], [0, 1, 2, 4, 8, 16, 32, 64], [0.0, 0.25, 0.5])
    told = pd.DataFrame(cells, columns=["measure", "exposure", "conflict"]).assign(mean=0.9, low=0.8, high=12.5)
    figure = figures.by_exposure(told.assign(n=range(1000, 1000 + len(told))), columns=columns)
    assert figure.get_figwidth() == {1: 3.3, 2: 7.0}[columns]
    assert unreadable(figure) == []


PROMISED = grid(
    dataset=["world-facts"], model=MODELS, method=[*"abcdefghijklmnopqr", "SE-MC, lexical"], target=(0.7, 0.9)
)
PROMISED = PROMISED.rename(columns={"auroc": "accuracy"}).assign(coverage=np.linspace(0, 1, len(PROMISED)))
SETS = grid(dataset=["world-facts"], model=MODELS, alpha=[0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4])
SETS = SETS.assign(delta=[*[np.nan] * 13, 0.6], limit=0.6, missed=0.55, size=12.7, empty=0.1)


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("drawn", [(figures.coverage_promised, PROMISED), (figures.sets_missed, SETS)])
def test_promises_can_be_read_at_one_and_at_two_columns(drawn, columns):
    figure = drawn[0](drawn[1], columns=columns)
    assert figure.get_figwidth() == {1: 3.3, 2: 7.0}[columns]
    assert unreadable(figure) == []


def test_bars_are_what_may_be_answered_and_say_where_that_is_nothing():
    figure = figures.coverage_promised(PROMISED)
    assert [ax.get_title().split(",")[0] for ax in figure.axes] == ["70% right", "90% right"] * 2
    panel = PROMISED[(PROMISED["model"] == "facts-2m") & (PROMISED["target"] == 0.7)]
    bars = dict(zip((round(bar.get_y() + 0.35) for bar in figure.axes[0].patches), figure.axes[0].patches, strict=True))
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    widths = {names[row]: bar.get_width() for row, bar in bars.items()}
    assert widths == dict(zip(panel["method"], panel["coverage"], strict=True))
    assert [text.get_text() for ax in figure.axes for text in ax.texts] == ["nothing"]


def test_lines_are_of_fixed_alphas_and_diamonds_of_promised_sets():
    lines = {line.get_label(): line for line in figures.sets_missed(SETS).axes[1].lines}
    assert [len(line.get_xdata()) for line in lines.values()] == [6, 6, 6, 6, 1]
    diamond = lines["δ promised, at τ"]
    assert (diamond.get_xdata()[0], diamond.get_ydata()[0]) == (0.4, 0.6)
    assert list(lines["missed"].get_ydata()) == [0.55] * 6
