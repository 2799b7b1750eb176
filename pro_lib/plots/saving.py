"""Write a figure and its numbers, and keep existing files that would change by rounding only.

Files change only if something to see or to read has changed, so that running a notebook on another
machine leaves a work tree clean. The rules are in `save_figure`.
"""

import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from pro_lib.common.files import check_output, csv_text, write_whole, writing
from pro_lib.common.validation import not_empty
from pro_lib.plots.style import STYLE, Figure, plt

# CSV files hold six significant digits, so that one unit in the last is at most 1e-5 of a value.
_LAST_DIGIT = 1.01e-5
_ZERO = 1e-9
# Another kind of processor rounds otherwise, and a sampled token can flip by it: values may differ
# by this much, absolute or relative, and in few rows by more.
_PROCESSOR = 1e-3
_SHARE_OF_ROWS = 0.01
_FARTHEST = 0.05  # of numbers in these rows, unless there are as many as of single questions
_MANY_ROWS = 1000
# Rounding changes the number of questions that two scores place differently, and the p-value of a
# difference near 0 more than its interval.
_PLACES = ("n_differ",)
_P_VALUES = ("p_value", "p_holm")
_FACTOR_OF_P_VALUES = 10
# Largest move of a point of a drawing that is not seen, in points (1/72 inch).
_DRAWING_TOLERANCE = 0.1
# The first line of a caption, so that no other Markdown file is replaced.
_CAPTION_MARK = "<!-- caption of a figure, written with it -->"
# Characters that a question may hold, and no XML: Matplotlib writes them as they are.
_NOT_XML = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]|\xef\xbf[\xbe\xbf]")
_IDENTIFIER = re.compile(r'(?<=id=")[^"]*|(?<=href="#)[^"]*|(?<=url\(#)[^)]*')
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
_WORDS = re.compile(r">([^<]*)</text>")


@dataclass(frozen=True)
class SavedFigure:
    """A saved figure with its caption, which a notebook shows below it."""

    figure: Figure
    caption: str

    def _ipython_display_(self) -> None:
        from IPython.display import Markdown, display

        display(self.figure, Markdown(self.caption))


def save_figure(
    figure: Figure | None,
    table: pd.DataFrame,
    name: str,
    *,
    caption: str = "",
    figures_dir: str | Path = "figures",
    inputs: Iterable[str | Path] = (),
) -> list[Path]:
    """Write `<name>.csv`, the numbers, `<name>.png` and `<name>.svg`, the figure, and its caption.

    The files are kept as they are if all of them exist, can be opened and agree with the new ones.
    The table agrees if it differs as little as on another kind of processor (`tables_agree`). The
    drawing agrees if no point moves by more than 0.1 pt; if values of the table differ in more
    than their last digit, only the words of the drawing have to be the same. Otherwise all of them
    are written. The caption is `<name>.md`, and is written if its words have changed, or if the
    table has.

    Args:
        figure: the figure, or None for a table without one.
        table: the numbers behind the figure.
        name: the name of the files, without an ending.
        caption: the caption in Markdown; empty writes none.
        figures_dir: the folder of the files, which is made if needed.
        inputs: files that the numbers come from; replacing one of them is an error.

    Returns:
        The files that were written; an empty list if all were kept.

    Raises:
        RunError: if a file is an input or cannot be written, or the caption would replace a file
            that is not a caption.
    """
    folder = Path(not_empty(figures_dir, "figures_dir"))
    not_empty(name, "name")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    endings = ["csv"] if figure is None else ["csv", "png", "svg"]
    paths = [folder / f"{name}.{ending}" for ending in endings]
    inputs = list(inputs)
    for path in paths:
        check_output(path, option=f"figures_dir={folder}", inputs=inputs)
    caption_path = folder / f"{name}.md"
    if caption:
        words = "is not a caption, so it is kept"
        check_output(
            caption_path,
            option=f"figures_dir={folder}",
            inputs=inputs,
            is_ours=_is_caption,
            foreign=words,
        )
    numbers = csv_text(table, format_float=_number_text)
    drawing = "" if figure is None else svg_text(figure)
    written = []
    if not _are_current(paths, numbers, drawing):
        written = paths
        write_whole(numbers.encode(), folder / f"{name}.csv")
        if figure is not None:
            write_whole(_png(figure), folder / f"{name}.png")
            write_whole(drawing.encode(), folder / f"{name}.svg")
    text = f"{_CAPTION_MARK}\n\n{caption}\n"
    if caption and not _is_current_caption(caption_path, text, numbers):
        write_whole(text.encode(), caption_path)
        written = [*written, caption_path]
    if figure is not None:
        plt.close(figure)
    return written


def read_caption(path: str | Path) -> str:
    """Return the caption of a figure without the mark of its file."""
    return Path(path).read_text(encoding="utf-8").removeprefix(_CAPTION_MARK).strip()


def _is_current_caption(path: Path, text: str, numbers: str) -> bool:
    """Return whether a caption has this text, or only other numbers if the table was kept."""
    if not path.is_file():
        return False
    stored = path.read_text(encoding="utf-8")
    stored_numbers = path.with_suffix(".csv").read_text(encoding="utf-8")
    if tables_agree(numbers, stored_numbers, is_exact=True):
        return stored == text
    return _NUMBER.sub("", stored) == _NUMBER.sub("", text)


def _is_caption(path: Path) -> bool:
    return path.read_text(encoding="utf-8").startswith(_CAPTION_MARK)


def _number_text(value: float) -> str:
    """Return a number with six significant digits, or all digits if it is whole, as a count is."""
    is_exact = float(value).is_integer() and abs(value) < 2**53
    return f"{value:.0f}" if is_exact else f"{value:.6g}"


def _are_current(paths: list[Path], numbers: str, drawing: str) -> bool:
    """Return whether all files exist, agree with the new ones, and can be opened."""
    if not all(path.is_file() for path in paths):
        return False
    stored = {path.suffix: path.read_bytes() for path in paths}
    stored_numbers = stored[".csv"].decode(errors="replace")
    if not tables_agree(numbers, stored_numbers):
        return False
    if not drawing:
        return True
    stored_drawing = stored[".svg"].decode(errors="replace")
    if not _is_picture(stored[".png"]):
        return False
    if tables_agree(numbers, stored_numbers, is_exact=True):
        return drawings_agree(drawing, stored_drawing)
    return _drawn_words(drawing) == _drawn_words(stored_drawing)


def _drawn_words(drawing: str) -> list[str]:
    """Return the texts of an SVG drawing without their numbers."""
    words = (_NUMBER.sub("", text) for text in _WORDS.findall(drawing))
    return [text for text in words if text.strip(" .−-")]


def _is_picture(data: bytes) -> bool:
    """Return whether bytes are a PNG picture that is whole, by its checksums."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=["PNG"]) as picture:
            picture.verify()
    except Exception:  # a damaged file raises errors of many types
        return False
    return True


def tables_agree(one: str, other: str, *, is_exact: bool = False) -> bool:
    """Return whether two CSV texts differ as much as on two kinds of processors at most.

    Texts and counts are equal, and other values differ by at most 0.001, absolute or relative. In a
    table of 100 rows or more, numbers of one row in a hundred may differ by up to 0.05, and by any
    amount in a table of 1,000 rows or more, whose rows are single questions. The column n_differ is
    not compared, because rounding can place a question differently, and p-values may differ by ten
    times as much.

    Args:
        one: a text.
        other: the other text.
        is_exact: whether values may differ by one unit in the sixth significant digit only.
    """
    try:
        tables = [pd.read_csv(io.StringIO(text), dtype=object) for text in (one, other)]
    except ValueError:  # a file is damaged
        return False
    if tables[0].shape != tables[1].shape or list(tables[0]) != list(tables[1]):
        return False
    relative, absolute = (_LAST_DIGIT, _ZERO) if is_exact else (_PROCESSOR, _PROCESSOR)
    differs = np.zeros(len(tables[0]), bool)
    for name in tables[0].columns.difference(_PLACES):
        texts = [table[name].fillna("") for table in tables]
        first, second = (pd.to_numeric(text, errors="coerce") for text in texts)
        factor = _FACTOR_OF_P_VALUES if name in _P_VALUES and not is_exact else 1
        is_near = np.isclose(first, second, rtol=factor * relative, atol=0)
        is_near |= np.isclose(first, second, rtol=0, atol=factor * absolute)
        is_count = texts[0].str.isdecimal() & texts[1].str.isdecimal()
        differs |= (texts[0] != texts[1]) & (is_count | ~is_near)
        farthest = factor * _FARTHEST if len(differs) < _MANY_ROWS else np.inf
        is_far = (first - second).abs() > farthest * np.maximum(first.abs(), 1)
        is_other_text = (first.isna() | second.isna()) & (texts[0] != texts[1])
        if (is_far | is_other_text).any():
            return False
    n_allowed = 0 if is_exact else int(_SHARE_OF_ROWS * len(differs))
    return bool(differs.sum() <= n_allowed)


def drawings_agree(one: str, other: str) -> bool:
    """Return whether two SVG texts differ by invisible moves at most; identifiers may differ."""
    texts = [_IDENTIFIER.sub("", text) for text in (one, other)]
    if _NUMBER.sub("", texts[0]) != _NUMBER.sub("", texts[1]):
        return False
    if _WORDS.findall(one) != _WORDS.findall(other):
        return False
    points = [map(float, _NUMBER.findall(text)) for text in texts]
    return all(abs(x - y) <= _DRAWING_TOLERANCE for x, y in zip(*points, strict=True))


def svg_text(figure: Figure) -> str:
    """Return the figure as SVG without a date or the version of a library."""
    buffer = io.BytesIO()
    with plt.rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        # The layout is the same for the PNG, and costs half of the time.
        figure.set_layout_engine("none")
    return _NOT_XML.sub("�".encode(), buffer.getvalue()).decode()


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    with plt.rc_context(STYLE):
        figure.savefig(buffer, format="png", dpi=200, metadata={"Software": None})
    return buffer.getvalue()
