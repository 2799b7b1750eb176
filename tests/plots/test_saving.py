"""Saved figures: written when something visible has changed, and kept otherwise."""

import os

import pandas as pd
import pytest

from pro_lib import plots
from pro_lib.common.files import RunError
from pro_lib.plots.saving import drawings_agree, tables_agree

TABLE = pd.DataFrame({"alpha": [0.0, 0.4, 1.0], "mean_k": [9.123456, 2.5, 1.0], "model": "m"})
FILES = {"a.csv", "a.png", "a.svg"}


def save(folder, table=TABLE, **options):
    """Save the figure of a table and return the names of the files that were written."""
    figure = plots.k_vs_alpha.draw(table, **options)
    return {path.name for path in plots.save_figure(figure, table, "a", figures_dir=folder)}


def test_a_figure_is_written_as_bitmap_vector_and_numbers(tmp_path):
    assert save(tmp_path) == FILES == set(os.listdir(tmp_path))
    stored = pd.read_csv(tmp_path / "a.csv")
    pd.testing.assert_frame_equal(stored, TABLE.round(5), rtol=1e-6)
    assert "Matplotlib v" not in (tmp_path / "a.svg").read_text()


def test_files_are_kept_if_values_differ_by_rounding(tmp_path):
    save(tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in FILES}
    assert save(tmp_path, TABLE.assign(mean_k=TABLE["mean_k"] * (1 + 5e-6))) == set()
    assert {name: (tmp_path / name).read_bytes() for name in FILES} == before


def test_files_are_kept_if_values_differ_as_on_another_processor(tmp_path):
    save(tmp_path)
    assert save(tmp_path, TABLE.assign(mean_k=TABLE["mean_k"] * 1.0009)) == set()
    # A drawing with other words is written, even then.
    other = TABLE.assign(mean_k=TABLE["mean_k"] * 1.0009)
    figure = plots.k_vs_alpha.draw(other)
    figure.supylabel("another label")
    written = plots.save_figure(figure, other, "a", figures_dir=tmp_path)
    assert {path.name for path in written} == FILES


def test_files_are_written_if_a_value_differs_by_more(tmp_path):
    save(tmp_path)
    assert save(tmp_path, TABLE.assign(mean_k=TABLE["mean_k"] * 1.002)) == FILES


@pytest.mark.parametrize("change", [{"alpha_scale": "linear"}, {"figure_columns": 1}])
def test_files_are_written_if_the_drawing_has_changed(change, tmp_path):
    save(tmp_path)
    assert save(tmp_path, **change) == FILES


def test_files_are_written_if_one_is_missing(tmp_path):
    for name in FILES:
        save(tmp_path)
        (tmp_path / name).unlink()
        assert save(tmp_path) == FILES


@pytest.mark.parametrize("name", sorted(FILES))
def test_files_are_written_if_one_is_damaged(name, tmp_path):
    save(tmp_path)
    whole = (tmp_path / name).read_bytes()
    middle = len(whole) // 2
    for damaged in (b"", whole[:-20], whole[:middle] + bytes(20) + whole[middle + 20 :]):
        (tmp_path / name).write_bytes(damaged)
        assert save(tmp_path) == FILES
        assert (tmp_path / name).read_bytes() == whole


@pytest.mark.parametrize("kind", [int, float])
def test_a_count_is_stored_and_compared_exactly(kind, tmp_path):
    def saved(*counts):
        table = TABLE.assign(n_tokens=[kind(count) for count in counts])
        return save(tmp_path, table), (tmp_path / "a.csv").read_text().splitlines()[1]

    assert saved(1_000_000, 1, 2) == (FILES, "0,9.12346,m,1000000")
    assert saved(1_000_009, 1, 2) == (FILES, "0,9.12346,m,1000009")
    assert saved(1_000_009, 1, 2)[0] == set()


def test_texts_that_look_like_formulas_are_marked(tmp_path):
    save(tmp_path, TABLE.assign(model="=1+1"))
    assert (tmp_path / "a.csv").read_text().count(",'=1+1\n") == len(TABLE)


def test_a_table_without_a_figure_is_one_file(tmp_path):
    assert plots.save_figure(None, TABLE, "b", figures_dir=tmp_path) == [tmp_path / "b.csv"]
    assert plots.save_figure(None, TABLE, "b", figures_dir=tmp_path) == []
    assert os.listdir(tmp_path) == ["b.csv"]


def test_a_figure_does_not_replace_a_file_that_it_is_drawn_from(tmp_path):
    (tmp_path / "a.csv").write_text("mine\n")
    with pytest.raises(RunError, match="is an input"):
        plots.save_figure(None, TABLE, "a", figures_dir=tmp_path, inputs=[tmp_path / "a.csv"])
    assert (tmp_path / "a.csv").read_text() == "mine\n"


DIFFERENT = {
    "a text": ("m,x\na,1\n", "m,x\nb,1\n"),
    "a column": ("m,x\na,1\n", "m,y\na,1\n"),
    "a row": ("m,x\na,1\n", "m,x\na,1\na,1\n"),
    "a missing value": ("m,x\na,1\n", "m,x\na,\n"),
    "the third digit": ("m,x\na,1.234\n", "m,x\na,1.236\n"),
    "a count": ("m,x\na,1000000\n", "m,x\na,1000009\n"),
}


@pytest.mark.parametrize("one", DIFFERENT)
def test_tables_that_differ(one):
    assert not tables_agree(*DIFFERENT[one])


def test_tables_that_differ_by_one_unit_in_the_sixth_digit_agree():
    tables = ("x,y,z\n0.123456,0,1\n", "x,y,z\n0.123457,-1e-12,0.999999\n")
    assert tables_agree(*tables, is_exact=True)
    assert not tables_agree("x\n0.12345\n", "x\n0.12346\n", is_exact=True)


@pytest.mark.parametrize(
    ("n_rows", "value", "n_flipped", "agree"),
    [
        *((100, "0.54", 1, True), (100, "0.54", 2, False), (100, "0.9", 1, False)),
        *((1000, "0.9", 10, True), (1000, "0.9", 11, False), (1000, "a", 1, False)),
    ],
)
def test_one_row_in_a_hundred_may_differ_a_little(n_rows, value, n_flipped, agree):
    rows = ["0.5"] * n_rows
    flipped = [value] * n_flipped + rows[n_flipped:]
    assert tables_agree("\n".join(["x", *rows]), "\n".join(["x", *flipped])) is agree


LINE = (
    '<g id="l1" clip-path="url(#p1)"><path d="M 1 2 L 3.25 4" style="stroke: #0072b2"/>'
    '<text x="1">0.4</text></g>'
)


@pytest.mark.parametrize(
    ("column", "value", "agree"),
    [
        ("n_differ", "5", True),
        ("p_value", "0.975", True),
        ("p_holm", "0.99", False),
        ("auroc", "0.972", False),
    ],
)
def test_places_and_p_values_may_differ_by_more_than_other_values(column, value, agree):
    stored = "0" if column == "n_differ" else "0.97"
    assert tables_agree(f"{column}\n{stored}\n", f"{column}\n{value}\n") is agree


def test_drawings_agree_if_points_move_less_than_a_tenth_of_a_point():
    moved = LINE.replace("3.25", "3.3").replace("l1", "l2").replace("p1", "p2")
    assert drawings_agree(LINE, moved)


@pytest.mark.parametrize(
    ("old", "new"), [("3.25", "3.5"), (">0.4<", ">0.45<"), ("0072b2", "d55e00")]
)
def test_drawings_that_differ(old, new):
    assert not drawings_agree(LINE, LINE.replace(old, new))


def test_a_rectangle_may_be_a_little_wider_or_higher():
    rectangle = '<rect x="1" y="2" width="167.63" height="121.64"/>'
    assert drawings_agree(rectangle, rectangle.replace("167.63", "167.64").replace(".64", ".65"))
    assert not drawings_agree(rectangle, rectangle.replace("167.63", "168.63"))


def test_drawings_with_other_points_differ():
    assert not drawings_agree(LINE, LINE.replace("L 3.25 4", "L 3.25 4 L 5 6"))


def test_a_caption_is_written_beside_the_figure_and_only_if_it_has_changed(tmp_path):
    def saved(caption):
        paths = plots.save_figure(None, TABLE, "a", caption=caption, figures_dir=tmp_path)
        return [path.name for path in paths]

    assert saved("One. **Two.**") == ["a.csv", "a.md"]
    assert plots.read_caption(tmp_path / "a.md") == "One. **Two.**"
    assert saved("One. **Two.**") == []
    assert saved("Three.") == ["a.md"]
    assert saved("") == []


def test_a_caption_does_not_replace_another_markdown_file(tmp_path):
    (tmp_path / "a.md").write_text("# My notes\n")
    with pytest.raises(RunError, match=r"a\.md exists and is not a caption"):
        plots.save_figure(None, TABLE, "a", caption="One.", figures_dir=tmp_path)
    assert (tmp_path / "a.md").read_text() == "# My notes\n"
    assert not (tmp_path / "a.csv").exists()


def test_the_same_figure_has_the_same_bytes_twice(tmp_path):
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        figure = plots.k_vs_alpha.draw(TABLE, figure_columns=1)
        plots.save_figure(figure, TABLE, "a", caption="One.", figures_dir=folder)
    one, two = ({path.name: path.read_bytes() for path in each.iterdir()} for each in folders)
    assert set(one) == {*FILES, "a.md"}
    assert one == two
