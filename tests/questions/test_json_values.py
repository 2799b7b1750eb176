"""Values of JSON in a file: one a line, a list, and over several lines."""

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pro_lib.questions import file_readers
from pro_lib.questions.file_readers import json_lines
from pro_lib.questions.json_values import json_values

ROWS = [{"id": 1, "text": "a\nb"}, {"id": 2, "list": [1, {"x": None}]}]


def values_of(text):
    return [value for _, value in json_values(text.encode(), "f.jsonl")]


FORMS = {
    "lines": lambda rows: "\n".join(map(json.dumps, rows)),
    "array": json.dumps,
    "array over lines": lambda rows: json.dumps(rows, indent=2),
    "in data": lambda rows: json.dumps({"data": rows}),
    "objects over lines": lambda rows: "\n".join(json.dumps(row, indent=1) for row in rows) + "\n",
}
ROW = st.dictionaries(
    st.text("ab", min_size=1), st.integers() | st.text() | st.lists(st.none()), min_size=1
)


@pytest.mark.parametrize("form", FORMS)
@given(rows=st.lists(ROW, min_size=2))
def test_rows_are_read_in_every_form(form, rows):
    assert values_of(FORMS[form](rows)) == rows


def test_one_object_over_several_lines_is_one_value():
    assert list(json_values(json.dumps(ROWS[1], indent=2).encode(), "f.json")) == [
        ("f.json, entry 1", ROWS[1])
    ]


def test_lines_that_are_lists_are_values_with_their_lines():
    found = list(json_values(b'[1, 2]\n\n[{"a": 3}]\n', "f.jsonl"))
    assert found == [("f.jsonl, line 1", [1, 2]), ("f.jsonl, line 3", [{"a": 3}])]


def test_a_file_of_json_lines_is_read_in_less_memory_than_its_size(tmp_path):
    path = tmp_path / "rows.jsonl"
    line = json.dumps({"question": "é" * 1000}, ensure_ascii=False)
    path.write_text(f"{line}\n" * 4000, encoding="utf-8")
    tracemalloc.start()
    n_rows = sum(1 for _ in json_lines(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert n_rows == 4000
    assert peak < path.stat().st_size / 2


def test_a_character_between_two_checked_pieces_is_not_damaged(tmp_path, monkeypatch):
    monkeypatch.setattr(file_readers, "_PIECE_SIZE", 1)
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question": "é"}\n', encoding="utf-8")
    assert file_readers._is_utf8_lines(path)
    assert list(json_lines(path)) == [(f"{path}, line 1", {"question": "é"})]


def test_the_last_line_may_show_that_a_file_is_not_utf8(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes('{"question": "Cafe"}\n{"question": "Zoé"}\n'.encode("cp1252"))
    with pytest.warns(UserWarning, match="Windows-1252"):
        rows = [row for _, row in json_lines(path)]
    assert rows == [{"question": "Cafe"}, {"question": "Zoé"}]
