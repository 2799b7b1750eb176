"""Values of JSON in a file: one a line, a list, and over several lines."""

import json
import tracemalloc

import pytest

from pro_lib.questions.file_readers import json_lines

ROWS = [{"id": 1, "text": "a\nb"}, {"id": 2, "list": [1, {"x": None}]}]
LINES = ["line 1", "line 2"]
ENTRIES = ["entry 1", "entry 2"]
# By form: the content of a file, the places of its values, and the values.
FORMS = {
    "lines": ("\n".join(map(json.dumps, ROWS)), LINES, ROWS),
    "array": (json.dumps(ROWS), ENTRIES, ROWS),
    "array over lines": (json.dumps(ROWS, indent=2), ENTRIES, ROWS),
    "in data": (json.dumps({"data": ROWS}), ENTRIES, ROWS),
    "objects over lines": ("\n".join(json.dumps(row, indent=1) for row in ROWS), ENTRIES, ROWS),
    "one object over lines": (json.dumps(ROWS[1], indent=2), ENTRIES[:1], ROWS[1:]),
    "lists on lines": ('[1, 2]\n\n[{"a": 3}]\n', ["line 1", "line 3"], [[1, 2], [{"a": 3}]]),
    "a letter beyond ASCII": ('{"question": "é"}\n', LINES[:1], [{"question": "é"}]),
}


@pytest.mark.parametrize("form", FORMS)
def test_values_are_read_in_every_form(write, form):
    content, places, values = FORMS[form]
    path = write(content, name="f.jsonl")
    assert list(json_lines(path)) == [
        (f"{path}, {place}", value) for place, value in zip(places, values, strict=True)
    ]


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


def test_the_last_line_may_show_that_a_file_is_not_utf8(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes('{"question": "Cafe"}\n{"question": "Zoé"}\n'.encode("cp1252"))
    with pytest.warns(UserWarning, match="Windows-1252"):
        rows = [row for _, row in json_lines(path)]
    assert rows == [{"question": "Cafe"}, {"question": "Zoé"}]
