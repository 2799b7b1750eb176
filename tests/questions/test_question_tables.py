"""Test text files of real tools: encodings, separators, quotes, and rows that do not fit."""

import warnings

import pytest

from pro_lib import load_questions
from pro_lib.common.files import RunError
from pro_lib.questions.csv_files import decimal_points


@pytest.fixture
def read(tmp_path):
    """Return the questions of a file with their references, and the warnings."""

    def questions(content, name="set.csv", **options):
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            table = load_questions(path=tmp_path / name, n_shots=0, **options).table
        said = [str(warning.message).removeprefix(f"{tmp_path / name}: ") for warning in caught]
        return table[["question", "references"]].to_numpy().tolist(), said

    return questions


# --- Encodings ---

ROWS = "question,answer\nWo liegt Köln?,Deutschland\n"
EXPECTED = [["Wo liegt Köln?", ["Deutschland"]]]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_unicode_of_any_width_is_read_without_a_word(read, encoding):
    assert read(ROWS.encode(encoding)) == (EXPECTED, [])
    line = '{"question": "Wo liegt Köln?", "answer": "Deutschland"}\n'
    assert read(line.encode(encoding), "set.jsonl") == (EXPECTED, [])


def test_windows_1252_is_read_and_said_with_a_sample(read):
    rows, [said] = read(ROWS.encode("cp1252"))
    assert rows == EXPECTED
    assert said.startswith(
        "read as Windows-1252, such as 'Köln?' in line 2; if letters are wrong, save it as UTF-8"
    )


UNCERTAIN = {
    "cp1251": "Москва",
    "cp1250": "Lech Wałęsa",
    "cp1254": "İstanbul",
    "cp1253": "Αθήνα",
    "shift_jis": "東京",
    "gb18030": "巴黎",
    "mac_roman": "Café",
    "cp850": "München",
}


@pytest.mark.parametrize("encoding", UNCERTAIN)
def test_an_encoding_that_is_not_certain_is_an_error_with_the_line(read, encoding):
    content = f"question,answer\nWhat?,Rome\nWho?,{UNCERTAIN[encoding]}\n"
    with pytest.raises(RunError, match=r"set\.csv, line 3 cannot be read: its encoding is not UTF"):
        read(content.encode(encoding))


def test_a_damaged_byte_in_utf8_costs_its_row_alone(read):
    content = ROWS.encode() + b"Wo ist Nizza?,S\xfcden\n"
    rows, [said] = read(content)
    assert rows == EXPECTED
    assert (
        said == "1 of 2 rows cannot be used: line 3: column 'answer' has bytes that are not UTF-8; "
        "they are left out"
    )


# --- Separators and quotes ---

DIALECTS = {
    "semicolon": ("question;answer\nWho, please?;Ann\n", "fields separated by ';'"),
    "tab": ("question\tanswer\nWho, please?\tAnn\n", "fields separated by a tab"),
    "pipe": ("question|answer\nWho, please?|Ann\n", "fields separated by '|'"),
    "sep line": ("sep=;\nquestion;answer\nWho, please?;Ann\n", "fields separated by ';'"),
    "quoted sep line": (
        '"sep=|"\r\nquestion|answer\r\nWho, please?|Ann\r\n',
        "fields separated by '|'",
    ),
    "backslash": (
        'question,answer\n"Who, please?",Ann\n"\\"Eve\\", who?",Bob\n',
        "escaped by backslashes",
    ),
}


@pytest.mark.parametrize("name", DIALECTS)
def test_separators_are_recognized_and_said(read, name):
    content, words = DIALECTS[name]
    rows, [said] = read(content)
    assert rows[0] == ["Who, please?", ["Ann"]]
    assert words in said


PLAIN = {
    "space after comma": 'question, answer\n"Who, please?", "Ann, or Bob"\n',
    "spaces around names": "  question , answer \nWho?,Ann\n",
    "index column": ",question,answer\n0,Who?,Ann\n1,What?,Bob\n",
    "index column read back": "Unnamed: 0.1,Unnamed: 0,question,answer\n0,0,Who?,Ann\n",
    "empty columns": "question,answer,,\nWho?,Ann,,\n,,,\n",
    "old line ends": "question,answer\rWho?,Ann\r",
    "surplus separators": "question,answer\nWho?,Ann,,\n",
}


@pytest.mark.parametrize("name", PLAIN)
def test_what_is_certain_is_read_without_a_word(read, name):
    rows, said = read(PLAIN[name])
    expected = (
        ["Who, please?", ["Ann, or Bob"]] if name == "space after comma" else ["Who?", ["Ann"]]
    )
    assert (rows[0], said) == (expected, [])


def test_a_tab_separated_file_may_have_quotation_marks_as_text(read):
    rows, [said] = read('question\tanswer\n"Odd\tBob\nWho said "hi"?\tAnn\n', "set.tsv")
    assert rows == [['"Odd', ["Bob"]], ['Who said "hi"?', ["Ann"]]]
    assert said == "quotation marks taken as text"


def test_long_fields_and_line_ends_in_quotes_are_read(read):
    long = "x" * 200_000
    rows, said = read(f'question,answer,context\n"Who\nis it?",Ann,{long}\n')
    assert (rows, said) == ([["Who\nis it?", ["Ann"]]], [])


def test_rows_of_another_length_are_named_by_line_and_left_out(read):
    content = 'question,answer\n"Who\nis it?",Ann\nWhere?,Paris, France\nWhen?\nWhy?,Because\n'
    rows, [said] = read(content)
    assert rows == [["Who\nis it?", ["Ann"]], ["Why?", ["Because"]]]
    assert said == (
        "2 of 4 rows cannot be used: "
        "line 4: it has 3 fields, the header has 2; quote fields that contain the separator; "
        "line 5: it has 1 field, the header has 2; quote fields that contain the separator; they "
        "are left out"
    )
    with pytest.raises(
        RunError, match=r"set\.csv: 2 of 4 rows cannot be used: line 4: .* \(strict\)$"
    ):
        read(content, strict=True)


def test_ids_of_rows_do_not_depend_on_those_left_out(tmp_path):
    (tmp_path / "set.csv").write_text("question,answer\nA?,a\nB?\nC?,c\n")
    with pytest.warns(UserWarning, match="1 of 3 rows"):
        table = load_questions(path=tmp_path / "set.csv", n_shots=0).table
    assert table["question_id"].tolist() == ["set-0", "set-2"]


# --- Files of another kind ---

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
ZIP = b"PK\x03\x04\0\0"
OTHERS = [
    ("set.csv", POINTER, "is a Git LFS pointer"),
    ("set.jsonl", POINTER, "is a Git LFS pointer"),
    ("set.parquet", POINTER, "is a Git LFS pointer"),
    ("set.jsonl", b"\n<!DOCTYPE html>\n<html>", "is a web page"),
    ("set.csv", ZIP, "is an Excel workbook or an archive, not CSV"),
    ("set.xlsx", ZIP, "has an unknown ending"),
    ("set.csv", b"PAR1", "is a Parquet file"),
]


@pytest.mark.parametrize(("name", "content", "words"), OTHERS)
def test_a_file_of_another_kind_is_an_error_that_says_what_it_is(read, name, content, words):
    with pytest.raises(RunError, match=words):
        read(content, name)


# --- Decimal commas ---

COLUMNS = [
    (["-0,1054", "-1,5", ""], ["-0.1054", "-1.5", ""]),
    (["-1,234", "-0,5"], ["-1.234", "-0.5"]),
    (["-1,234", "-2,500"], ["-1,234", "-2,500"]),  # thousands, or decimals
    (["-1.5", "-0,5"], ["-1.5", "-0,5"]),
    (["-1,5e-3", None], ["-1.5e-3", None]),
    (["a, b"], ["a, b"]),
]


@pytest.mark.parametrize(("cells", "expected"), COLUMNS)
def test_a_decimal_comma_becomes_a_point_where_it_is_certain(cells, expected):
    assert decimal_points(cells) == expected
