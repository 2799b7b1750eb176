"""The fields of structured answers: their values, their tokens, and why an answer has none."""

import pytest

from pro_lib import import_answers
from pro_lib.common.files import RunError

# Tokens, separated by |, and the value and the numbers of the tokens of each field.
TOKENS = {
    "whole tokens": ('{"|a|":| "|Paris|"|}', {"a": ("Paris", [4, 5])}),
    "tokens that reach over both edges": ('{"|a|":| "Par|is|",| "b|":| 42,| "c": |7}', {
        "a": ("Paris", [3, 4, 5]),
        "b": ("42", [8]),
        "c": ("7", [10]),
    }),
    "one token": ('{"a": "x", "b": true}', {"a": ("x", [0]), "b": ("true", [0])}),
    "escapes": ('{"a": "|say |\\"|hi|\\"|"|, "b": "|caf|\\u00|e9|"}', {
        "a": ('say "hi"', [1, 2, 3, 4, 5]),
        "b": ("café", [7, 8, 9, 10]),
    }),
    "letters of several bytes": ('{"a": "|café|"|, "b": "|日|本|"|}', {
        "a": ("café", [1, 2]),
        "b": ("日本", [4, 5, 6]),
    }),
    "other values": ('{"a": |-1.5e3|, "b": |true|, "c": |null|, "d": |""|}', {
        "a": ("-1.5e3", [1]),
        "b": ("true", [3]),
        "c": ("null", [5]),
        "d": ("", [7]),
    }),
    "nested": ('{"a": {"b": "|x|"}, "c": [|1|, [|2|], {"d": |3|}], "e": [], "f": {}}', {
        "a.b": ("x", [1, 2]),
        "c[0]": ("1", [3]),
        "c[1][0]": ("2", [5]),
        "c[2].d": ("3", [7]),
    }),
    "a code fence": ('Here it is:\n```json\n{"a": |1|}\n```', {"a": ("1", [1])}),
    "a fence within a text": ('{"a": "|```json {|"}', {"a": ("```json {", [1, 2])}),
    "a repeated key": ('{"a": |1|, "a": |2|}', {"a": ("2", [3])}),
    "SentencePiece": ('{"a":|▁"|Par|is|"}', {"a": ("Paris", [2, 3, 4])}),
}  # fmt: skip


def record(*texts, question_id="q", **fields):
    answers = []
    for text in texts:
        tokens = text.split("|")
        log_probs = [-float(n) for n in range(len(tokens))]
        whole = "".join(tokens).replace("▁", " ")
        answers.append({"text": whole, "tokens": tokens, "token_log_probs": log_probs})
    return {"question_id": question_id, "answers": answers, **fields}


def fields_of(*rows, **options):
    return import_answers(list(rows), fields=True, **options)


def values(run):
    return dict(zip(run.answers["question_id"], run.answers["text"], strict=True))


@pytest.mark.parametrize("name", TOKENS)
def test_a_field_has_its_value_and_the_tokens_that_overlap_it(name):
    text, expected = TOKENS[name]
    answers = fields_of(record(text)).answers
    found = {
        row.question_id.removeprefix("q/"): (row.text, [-value for value in row.token_log_probs])
        for row in answers.itertuples()
    }
    assert found == expected
    assert answers["log_prob"].tolist() == [-sum(tokens) for _, tokens in expected.values()]


def test_samples_with_another_order_and_other_fields_share_their_questions():
    references = [{"b": 2.0, "missing": None, "a": "x"}, {"a": "y"}]
    run = fields_of(
        record('{"a": "|x|", "b": |2}', '{"b": |3|, "extra": |4}', references=references)
    )
    assert run.questions["question_id"].tolist() == ["q/a", "q/b", "q/extra", "q/missing"]
    assert run.questions["references"].tolist() == [["x", "y"], ["2.0"], None, ["null"]]
    assert run.reasons().tolist() == ["", "", "", "no answer"]
    of_b = run.answers[run.answers["question_id"] == "q/b"]
    assert of_b[["rank", "text", "log_prob"]].to_numpy().tolist() == [[0, "2", -3], [1, "3", -1]]
    assert set(run.questions["question"]) == {"q"}  # one cluster


def test_fields_of_lists_share_the_column_field():
    run = fields_of(record('{"items": [{"price": 1}, {"price": 2}]}'))
    assert run.questions["question_id"].tolist() == ["q/items[0].price", "q/items[1].price"]
    assert run.questions["field"].tolist() == ["items[].price"] * 2


BROKEN = {
    "Paris": "it does not begin with {",
    '["a"]': "it does not begin with {",
    '{"a": 1': "Expecting ',' delimiter",
    '{"a": }': "Expecting value",
    '{"a": 1} {"a": 2}': "more text follows it: '{\"a\": 2}'",
    '{"a":' * 5000: "maximum recursion depth",
}


@pytest.mark.parametrize("text", BROKEN)
def test_an_answer_that_is_not_an_object_is_left_out_with_its_reason(text):
    broken = record(text, question_id="q1", references={"a": 1})
    message = "1 answers that are not JSON objects are left out.*answers"
    with pytest.warns(UserWarning, match=message) as caught:
        run = fields_of(record('{"a": 1}', question_id="q0"), broken)
    assert BROKEN[text] in str(caught[0].message)
    assert values(run) == {"q0/a": "1"}
    assert run.reasons().tolist() == ["", "unreadable"]


def test_a_cut_answer_and_a_question_without_fields_keep_their_reason():
    cut = {"question_id": "q1", "answers": [{"text": '{"a": 1', "log_prob": -1, "finished": False}]}
    with pytest.warns(UserWarning, match="1 answers that were cut are left out"):
        run = fields_of(record('{"a": 1}', question_id="q0"), cut)
    assert run.questions["question_id"].tolist() == ["q0/a", "q1"]
    assert run.reasons().tolist() == ["", "cut"]


def test_answers_without_tokens_have_values_without_log_probabilities():
    row = {"question_id": "q", "answers": [{"text": '{"a": 1}'}, {"text": '{"a": 1}'}]}
    run = fields_of(row)
    assert run.is_texts
    assert run.answers["text"].tolist() == ["1", "1"]


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("columns.csv", "id,vendor,total\nq1,Acme;ACME Inc.,\nq0,Bell,7\n", {"separator": ";"}),
        ("own names.csv", "Nr,vendor,total\nq0,Bell,7\nq1,Acme;ACME Inc.,\n",
         {"columns": {"question_id": "Nr"}, "separator": ";"}),
        ("objects.jsonl",
         '{"question_id": "q0", "references": {"vendor": "Bell", "total": 7}}\n'
         '{"question_id": "q1", "references": [{"vendor": "Acme"}, {"vendor": "ACME Inc."}]}\n',
         {}),
    ],
)  # fmt: skip
def test_right_values_are_columns_or_objects(name, content, options, tmp_path):
    path = tmp_path / name
    path.write_text(content)
    # The prompts contain the id of another question.
    rows = [
        record('{"vendor": "|Acme|"}', question_id=f"q{n}", question=f"Read q{1 - n}.")
        for n in range(2)
    ]
    run = fields_of(*rows, questions=path, **options)
    references = dict(zip(run.questions["question_id"], run.questions["references"], strict=True))
    expected = {"q0/vendor": ["Bell"], "q0/total": ["7"], "q1/vendor": ["Acme", "ACME Inc."]}
    assert references == expected


def test_a_reference_that_is_not_an_object_is_an_error():
    with pytest.raises(RunError, match="the reference 'Paris' of question 'q' is not a JSON obj"):
        fields_of(record('{"a": 1}', references=["Paris"]))
