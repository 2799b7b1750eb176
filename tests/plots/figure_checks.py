"""What the tests of figures share: invented tables, and whether a figure can be read."""

import itertools

import numpy as np
import pandas as pd
from matplotlib.legend import Legend
from matplotlib.text import Text


def grid(**columns):
    """A table with a row for every combination, an AUROC and its interval."""
    table = pd.DataFrame(list(itertools.product(*columns.values())), columns=list(columns))
    auroc = 0.6 + 0.3 * np.random.default_rng(0).random(len(table))
    ends = {
        "low": auroc - 0.05,
        "high": auroc + 0.05,
        "difference_low": -0.1,
        "difference_high": 0.1,
    }
    tidy = {"auroc_low": auroc - 0.05, "auroc_high": auroc + 0.05, "auroc_minus_nll": auroc - 0.7}
    return table.assign(auroc=auroc, **ends, **tidy, n_questions=1234)


def texts(figure):
    """Return every text that is drawn, with its box in pixels."""
    figure.draw_without_rendering()
    beyond = set()
    for axis in itertools.chain.from_iterable((ax.xaxis, ax.yaxis) for ax in figure.axes):
        low, high = sorted(axis.get_view_interval())
        ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
        beyond |= {tick.label1 for tick in ticks if not low - 1e-9 <= tick.get_loc() <= high + 1e-9}
    written = [
        text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()
    ]
    # The box of an annotation has its arrow in it, which may well touch another text.
    return [(text, Text.get_window_extent(text)) for text in written if text not in beyond]


def legend(figure):
    """Return the entries of the legend, which may stand in the place of a missing panel."""
    return [text.get_text() for each in figure.findobj(Legend) for text in each.get_texts()]


def significance_marks(ax):
    """Return the marks at the right of an axes by the place of their row."""
    return {
        place: line.get_marker()
        for line in ax.lines
        if line.get_marker() in ("+", "x") and np.isfinite(line.get_xdata()).all()
        for place in line.get_ydata()
    }


def finding(caption):
    """Return the paragraph of the findings, which the line of abbreviations follows."""
    return caption.split("\n\n")[1]


def panels(figure):
    return [ax for ax in figure.axes if ax.axison]


def unreadable(figure, smallest=6):
    """Return the faults of a figure's texts: too small, over its edge, or over each other."""
    written, page = texts(figure), figure.bbox
    sizes = {text.get_text(): text.get_fontsize() for text, _ in written}
    faults = [f"{text!r} has {size} pt" for text, size in sizes.items() if size < smallest]
    for text, box in written:
        if box.x0 < 0 or box.y0 < 0 or box.x1 > page.width or box.y1 > page.height:
            faults.append(f"{text.get_text()!r} leaves the figure")
    boxes = np.array([box.extents for _, box in written]).reshape(-1, 4)
    overlap = np.minimum(boxes[:, None, 2:], boxes[None, :, 2:]) - np.maximum(
        boxes[:, None, :2], boxes[None, :, :2]
    )
    # Boxes are rounded to whole pixels.
    for one, other in np.argwhere(np.triu((overlap > 0.5).all(axis=2), k=1)):
        faults.append(f"{written[one][0].get_text()!r} lies over {written[other][0].get_text()!r}")
    return faults


def check_figure(draw, table, n_panels=None):
    """Check that a table gives a readable figure at both widths, with its title and axes named."""
    for figure_columns, width in ((1, 3.3), (2, 7.0)):
        figure = draw(table, figure_columns=figure_columns)
        assert figure.get_figwidth() == width
        assert unreadable(figure, 7) == []
        assert max(ax.get_title().count("\n") for ax in figure.axes) <= 1
        assert figure.get_supxlabel() or all(ax.get_xlabel() for ax in panels(figure))
        assert len(figure.get_supxlabel().split("\n")) <= 3
        if n_panels is not None:
            assert len(panels(figure)) == n_panels
            assert figure_columns == 2 or figure.get_figheight() <= 4.5
