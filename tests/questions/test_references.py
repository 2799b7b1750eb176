"""Right answers in the shapes that datasets and tools give them, read as the same lists."""

import json
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pro_lib.common.files import RunError
from pro_lib.questions.question_sets import load_questions
from pro_lib.questions.references import read_column, split_at_semicolons
from pro_lib.questions.text_lists import list_in_text


def loaded(*rows, **options):
    """The references of rows in memory, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = load_questions("set", path=list(rows), n_shots=0, split=None, **options).table
    return table["references"].tolist(), [
        str(warning.message).removeprefix("questions: ") for warning in caught
    ]


def asked(*cells, column="answer", **more):
    """The same for one column of references, with the same other columns in each row."""
    return loaded(
        *({"question": f"Question {n}?", column: cell, **more} for n, cell in enumerate(cells))
    )


# --- Lists written as text ---

LISTS = [
    ("['Rome', \"Rome's\"]", "Python", ["Rome", "Rome's"]),
    ('["Rome", "Eternal \\u0043ity"]', "JSON", ["Rome", "Eternal City"]),
    ("['Rome' 'Roma']", "NumPy", ["Rome", "Roma"]),
    ("['Rome'\n 'Roma']", "NumPy", ["Rome", "Roma"]),
    ("('Rome', 'Roma')", "Python", ["Rome", "Roma"]),
    (
        "{'text': array(['Rome'], dtype=object), 'answer_start': array([3], dtype=int32)}",
        "Python",
        ["Rome"],
    ),
    ("{'text': ['Rome', 'Roma'], 'answer_start': [3, 9]}", "Python", ["Rome", "Roma"]),
    ("['Rome', nan, None]", "Python", ["Rome"]),
    ("['a; b']", "Python", ["a; b"]),
    ('(list (description "Rome in Italy") (description Roma))', "Lisp", ["Rome in Italy", "Roma"]),
]


@pytest.mark.parametrize("column", ["answer", "answers", "references"])
@pytest.mark.parametrize(("text", "notation", "expected"), LISTS)
def test_a_list_that_is_written_as_text_is_that_list(text, notation, expected, column):
    assert asked(text, column=column) == (
        [expected],
        [f"references from column {column!r}, read as {notation} lists"],
    )


@pytest.mark.parametrize(
    "text", ["[REDACTED]", "(2, 3)", "[0, 1]", "{x: x > 0}", "f(x)", "[a] or [b]"]
)
def test_brackets_that_write_no_list_of_texts_are_text(text):
    assert asked(text, "Rome") == ([[text], ["Rome"]], [])


def test_a_list_that_cannot_be_read_is_left_out_and_said():
    references, said = asked("['Rome', 'Roma'", "['Rome' ...]", "['Oslo']")
    assert references == [["Oslo"]]
    words = "looks like a list but cannot be read as one"
    assert (
        f"2 of 3 rows cannot be used: entry 1: answer=\"['Rome', 'Roma'\" {words}; entry 2: "
        in said[1]
    )


# Texts as answers are; a text around which white space stands is one without it.
TEXTS = st.text(
    st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=12
)
ANSWERS = st.lists(
    TEXTS.filter(lambda text: text not in ("<unk>",)), min_size=1, max_size=4, unique=True
)
SHAPES = {
    "list": list,
    "array": np.array,
    "python": repr,
    "json": json.dumps,
    "unicode json": lambda texts: json.dumps(texts, ensure_ascii=False),
    "numpy": lambda texts: "[" + " ".join(map(repr, texts)) + "]",
    "squad": lambda texts: {"text": texts, "answer_start": [0] * len(texts)},
    "squad as text": lambda texts: repr({"text": texts, "answer_start": [0] * len(texts)}),
    "trivia": lambda texts: {"value": texts[0], "aliases": texts, "normalized_aliases": ["other"]},
    "objects": lambda texts: [{"text": text} for text in texts],
}


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=200, deadline=None)
@given(columns=st.lists(ANSWERS, min_size=1, max_size=4))
def test_random_columns_of_every_shape_are_read_as_the_same_lists(shape, columns):
    reading = read_column("answers", [SHAPES[shape](texts) for texts in columns])
    assert [list(dict.fromkeys(texts)) for texts in reading.answers] == columns


@settings(max_examples=200, deadline=None)
@given(
    st.lists(TEXTS.filter(lambda text: ";" not in text and "&" not in text), min_size=1, max_size=4)
)
def test_texts_joined_by_semicolons_come_apart_again(texts):
    assert [text.strip() for text in split_at_semicolons("; ".join(texts))] == texts


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40))
def test_any_text_in_brackets_is_a_list_or_none(text):
    found = list_in_text(f"[{text}]")
    assert found is None or isinstance(found[1], list)


# --- Texts ---


def test_an_entity_does_not_end_an_answer_and_stays_as_it_is_written():
    references, [said] = asked(
        "Simon &amp; Garfunkel", "Guns N&#39; Roses;GNR", "AT&T;Bell", column="references"
    )
    assert references == [["Simon &amp; Garfunkel"], ["Guns N&#39; Roses", "GNR"], ["AT&T", "Bell"]]
    assert (
        said
        == "references from column 'references', with HTML entities such as &amp; kept as they are"
    )


def test_the_answer_of_a_rationale_follows_its_mark():
    references, [said] = asked("He has 8 * 9 = 72.\n#### 72", "Twice as many.\n#### 1,200\n")
    assert references == [["72"], ["1,200"]]
    assert said == "references from column 'answer', the text after ####"
    assert asked("#### 72 is a heading", "Rome", "Oslo")[0][0] == ["#### 72 is a heading"]


def test_whole_numbers_of_a_column_with_gaps_are_whole(tmp_path):
    table = pd.DataFrame(
        {"question": list("abc"), "answer": [1969, None, 0.5], "aliases": [None, ["x"], None]}
    )
    assert table["answer"].dtype == float
    table.to_parquet(tmp_path / "set.parquet")
    read = load_questions(path=tmp_path / "set.parquet", n_shots=0).table
    assert read["references"].tolist() == [["1969"], ["x"], ["0.5"]]
    references, said = asked("1969.0", "", "1989.0")
    assert references == [["1969"], ["1989"]]
    assert said[0] == "references from column 'answer', whole numbers without .0"
    assert asked("1969.0", "version 2.0")[0] == [["1969.0"], ["version 2.0"]]


def test_a_map_of_parquet_is_an_object(tmp_path):
    maps = pa.map_(pa.string(), pa.list_(pa.string()))
    answers = pa.array([[("text", ["Rome"])], [("IT", ["Roma"]), ("EN", ["Rome"])]], maps)
    table = pa.table({"question": ["A?", "B?"], "answers": answers})
    pq.write_table(table, tmp_path / "set.parquet")
    with pytest.warns(UserWarning, match=r"row 2: references=\{'IT': .* must be text or lists"):
        read = load_questions(path=tmp_path / "set.parquet", n_shots=0).table
    assert read["references"].tolist() == [["Rome"]]


@pytest.mark.parametrize(
    "missing", ["<unk>", "", " ", [], [""], ["<unk>"], None, {"text": []}, [None], "[]", "['']"]
)
def test_a_question_without_an_answer_is_left_out_counted_and_named(missing):
    references, said = asked("Rome", missing, "Oslo", column="answers")
    assert references == [["Rome"], ["Oslo"]]
    assert said[-1].startswith("1 of 3 rows cannot be used: entry 2: references=")
    with pytest.raises(RunError, match=r"^questions holds no questions with answers; 2 of 2 rows"):
        asked(missing, missing, column="answers")


# --- Choices ---

GASES = ["Oxygen", "Carbon dioxide", "Helium", "Neon"]
NAMED = [
    ([1, 0, 3], "by index, counted from 0", [1, 0, 3]),
    ([1.0, 0.0, 3.0], "by index, counted from 0", [1, 0, 3]),
    (["1", "0", "2"], "by index, counted from 0", [1, 0, 2]),
    ([1, 4, 2], "by index, counted from 1", [0, 3, 1]),
    (["1", "4", "2"], "by index, counted from 1", [0, 3, 1]),
    (["B", "a", "(D)"], "by letter or label", [1, 0, 3]),
    (["B. Carbon dioxide", "A) Oxygen"], "by letter or label", [1, 0]),
    ([2], "by index, counted from 0", [2]),
]


@pytest.mark.parametrize(("cells", "words", "places"), NAMED)
def test_an_index_or_a_letter_is_the_text_of_its_choice(cells, words, places):
    references, [said] = asked(*cells, choices=GASES)
    assert references == [[GASES[place]] for place in places]
    assert (
        said
        == f"references from column 'answer', which names the choices in column 'choices' {words}"
    )


FORMS = {
    "list": {"choices": GASES},
    "options": {"options": GASES},
    "texts and labels": {"choices": {"text": GASES, "label": ["A", "B", "C", "D"]}},
    "objects": {
        "choices": [
            {"text": text, "label": label} for text, label in zip(GASES, "ABCD", strict=True)
        ]
    },
    "by letter": {"options": dict(zip("ABCD", GASES, strict=True))},
    "with letters": {
        "options": [f"{label}) {text}" for label, text in zip("ABCD", GASES, strict=True)]
    },
    "columns": dict(zip("ABCD", GASES, strict=True)),
    "long columns": {f"option_{label}": text for label, text in zip("abcd", GASES, strict=True)},
    "as text": {"choices": repr(GASES)},
    "as NumPy": {"choices": "['Oxygen' 'Carbon dioxide'\n 'Helium' 'Neon']"},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("column", ["answer", "answerKey", "label"])
def test_choices_are_found_in_every_form(form, column):
    references, [said] = asked("B", "D", column=column, **FORMS[form])
    assert references == [["Carbon dioxide"], ["Neon"]]
    assert said.startswith(f"references from column {column!r}, which names the choices in column")


def test_labels_count_before_places():
    rows = [
        {"question": "A?", "choices": {"text": ["x", "y"], "label": ["1", "2"]}, "answerKey": "1"},
        {"question": "B?", "choices": {"text": ["x", "y"], "label": ["A", "B"]}, "answerKey": "B"},
    ]
    assert loaded(*rows)[0] == [["x"], ["y"]]


def test_the_text_of_a_choice_is_that_text_and_references_are_never_looked_up():
    assert asked("Neon", "Helium", choices=GASES) == ([["Neon"], ["Helium"]], [])
    assert asked("1", choices=["1", "2"]) == ([["1"]], [])
    assert asked("1", "B", column="references", choices=GASES) == ([["1"], ["B"]], [])
    assert asked("noble gases", "Neon", choices=GASES) == ([["noble gases"], ["Neon"]], [])


AMBIGUOUS = [
    (["1", "2"], GASES, "places counted from 0 or from 1"),
    ([3], ["1", "2", "3", "4"], "the choices themselves or their places"),
]


@pytest.mark.parametrize(("cells", "choices", "words"), AMBIGUOUS)
def test_what_may_name_either_of_two_choices_is_refused(cells, choices, words):
    with pytest.raises(
        RunError, match=f"^questions: column 'answer' is ambiguous: it may hold {words}; write"
    ):
        asked(*cells, choices=choices)


def test_a_choice_that_is_not_there_costs_its_row_alone():
    references, said = asked("A", "B", "E", -1, choices=GASES)
    assert references == [["Oxygen"], ["Carbon dioxide"]]
    assert (
        "2 of 4 rows cannot be used: entry 3: answer='E' is not one of the 4 choices; entry 4"
        in said[1]
    )


# --- Columns of known datasets ---

DATASETS = {
    "SQuAD": (
        {"id": "1", "question": "Q?", "answers": {"text": ["a", "b"], "answer_start": [1, 2]}},
        ["a", "b"],
    ),
    "TriviaQA": (
        {"question_id": "1", "question": "Q?", "answer": {"value": "a", "aliases": ["a", "b"]}},
        ["a", "b"],
    ),
    "NQ-open": ({"question": "Q?", "answer": ["a", "b"]}, ["a", "b"]),
    "SciQ": (
        {"question": "Q?", "distractor1": "x", "distractor2": "y", "correct_answer": "a"},
        ["a"],
    ),
    "TruthfulQA": ({"Question": "Q?", "Best Answer": "a", "Correct Answers": "a; b"}, ["a", "b"]),
    "PopQA": ({"id": 1, "question": "Q?", "possible_answers": '["a", "b"]'}, ["a", "b"]),
    "SimpleQA": ({"metadata": "{'topic': 'x'}", "problem": "Q?", "answer": "a"}, ["a"]),
    "HotpotQA": (
        {"_id": "1", "question": "Q?", "answer": "a", "supporting_facts": [["x", 0]]},
        ["a"],
    ),
    "WebQuestions": ({"url": "u", "question": "Q?", "answers": ["a", "b"]}, ["a", "b"]),
    "GSM8K": ({"question": "Q?", "answer": "2 + 3 = 5\n#### 5"}, ["5"]),
    "MMLU": (
        {"question": "Q?", "subject": "s", "choices": ["w", "x", "y", "z"], "answer": 0},
        ["w"],
    ),
    "ARC": (
        {"question": "Q?", "choices": {"text": ["x", "y"], "label": ["A", "B"]}, "answerKey": "B"},
        ["y"],
    ),
    "MedMCQA": (
        {"question": "Q?", "opa": "w", "opb": "x", "opc": "y", "opd": "z", "cop": 0},
        ["w"],
    ),
    "DROP": ({"question": "Q?", "answers_spans": {"spans": ["a"], "types": ["span"]}}, ["a"]),
    "AI2's own": (
        {
            "question": {
                "stem": "Q?",
                "choices": [{"text": "x", "label": "A"}, {"text": "y", "label": "B"}],
            },
            "answerKey": "A",
        },
        ["x"],
    ),
    "the hub's viewer": (
        {"row_idx": 0, "row": {"question": "Q?", "answers": ["a"]}, "truncated_cells": []},
        ["a"],
    ),
}


@pytest.mark.parametrize("name", DATASETS)
def test_the_columns_of_known_datasets_are_read(name):
    row, expected = DATASETS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = load_questions("set", path=[row], n_shots=0).table
    assert table[["question", "references"]].to_numpy().tolist() == [["Q?", expected]]


NESTED = {
    "SQuAD": {
        "version": "v2.0",
        "data": [
            {
                "title": "t",
                "paragraphs": [
                    {
                        "context": "c",
                        "qas": [
                            {
                                "id": "1",
                                "question": "Q?",
                                "answers": [{"text": "a", "answer_start": 1}],
                                "is_impossible": False,
                            },
                            {"id": "2", "question": "R?", "answers": [], "is_impossible": True},
                        ],
                    }
                ],
            }
        ],
    },
    "TriviaQA": {
        "Data": [
            {
                "QuestionId": "1",
                "Question": "Q?",
                "Answer": {"Value": "a", "Aliases": [], "NormalizedAliases": ["A"]},
            },
            {"QuestionId": "2", "Question": "R?", "Answer": {"Value": "<unk>", "Aliases": []}},
        ],
        "Split": "dev",
    },
    "pandas": {
        "id": {"0": "1", "1": "2"},
        "question": {"0": "Q?", "1": "R?"},
        "answer": {"0": "a", "1": None},
    },
}


@pytest.mark.parametrize("name", NESTED)
def test_questions_within_the_one_object_of_a_file_are_read(name, write):
    path = write(NESTED[name], name="set.json")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = load_questions(path=path, n_shots=0, split=None).table
    assert "1 of 2 rows cannot be used" in str(caught[-1].message)
    assert table[["question_id", "question", "references"]].to_numpy().tolist() == [
        ["1", "Q?", ["a"]]
    ]


# --- Names of columns ---


def test_names_of_another_case_are_recognized_and_said():
    references, [said] = loaded({"Question": "Q?", "ANSWER": "a"})
    assert references == [["a"]]
    assert said == "question from column 'Question'; references from column 'ANSWER'"


def test_the_column_that_is_written_just_so_wins_and_two_others_are_refused():
    assert loaded({"Question": "other", "question": "Q?", "answer": "a"})[0] == [["a"]]
    with pytest.raises(
        RunError, match=r"has two columns for the question, 'Question' and 'QUESTION'; choose"
    ):
        loaded({"Question": "Q?", "QUESTION": "R?", "answer": "a"})


def test_named_columns_may_differ_in_case():
    columns = {"question": "frage", "references": ["Antwort", "alias"]}
    rows = {"Frage": "Q?", "Antwort": "a", "Alias": "b"}
    assert loaded(rows, columns=columns) == ([["a", "b"]], [])


# --- Rows that cannot be used ---


@pytest.mark.parametrize("form", ["lines", "list"])
def test_an_unpaired_surrogate_costs_its_row_alone(write, form):
    rows = [
        '{"question": "A?", "answer": "a"}',
        '{"question": "B\\ud800?", "answer": "b"}',
        '{"question": "C?"',
    ]
    rows = (
        rows
        if form == "lines"
        else ["[", f"{rows[0]},", f"{rows[1]},", '{"question": " ", "answer": "c"}', "]"]
    )
    path = write(*rows, name="set.json")
    with pytest.warns(
        UserWarning,
        match=r"2 of 3 rows cannot be used: .*question='B\\ud800\?'.*; they are left out",
    ):
        table = load_questions(path=path, n_shots=0).table
    assert table["question"].tolist() == ["A?"]


def test_an_id_that_is_used_twice_is_an_error_even_if_a_row_is_left_out():
    rows = [{"id": 1, "question": "A?", "answer": "a"}, {"id": 1, "question": "B?", "answer": ""}]
    with pytest.raises(RunError, match=r"^entry 2: question_id '1' was already used \(entry 1\)"):
        loaded(*rows)


def test_the_first_rows_that_are_left_out_are_named_and_the_others_counted():
    _, [said] = asked("Rome", *[""] * 7)
    assert said.startswith("7 of 8 rows cannot be used: entry 2: ")
    assert said.endswith("entry 6: references='' must hold a text and 2 more; they are left out")
