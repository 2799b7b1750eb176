"""Question sets: the bundled ones, files, splits, limits, prompts, and what bad input is told."""

import json

import datasets
import pandas as pd
import pytest
from datasets import Dataset, DatasetDict, Features, List, Value
from pandas.testing import assert_frame_equal

from pro_lib.bundled import DATA
from pro_lib.questions import HUB, SPLITS, QuestionsError, load

FACTS, LONG = (
    [json.loads(line) for line in (DATA / "world_facts" / name).read_text(encoding="utf-8").splitlines()]
    for name in ("facts.jsonl", "facts_long.jsonl")
)
ROWS = [
    {"question_id": "q1", "question": "Capital of France?", "references": ["Paris"], "split": "test"},
    {"question_id": "q2", "question": "Capital of Peru?", "references": ["Lima"], "split": "test"},
    {
        "question_id": "q3",
        "question": "Author of Emma?",
        "references": ["Jane Austen", "Austen"],
        "split": "validation",
    },
    {"question_id": "q4", "question": "Capital of Italy?", "references": ["Rome"], "split": "train_shots"},
    {"question_id": "q5", "question": "Capital of Spain?", "references": ["Madrid"], "split": "train_shots"},
]


def as_csv(rows):
    return pd.DataFrame(rows).assign(references=[";".join(row["references"]) for row in rows]).to_csv(index=False)


@pytest.fixture
def write(tmp_path):
    """Write a question file: bytes, text, or rows in the format that the suffix says."""

    def file(name, content):
        path = tmp_path / name
        if isinstance(content, list) and path.suffix == ".parquet":
            pd.DataFrame(content).to_parquet(path)
            return path
        if isinstance(content, list):
            lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in content)
            content = as_csv(content) if path.suffix == ".csv" else lines
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return file


def test_bundled_set_has_the_facts_of_the_split_with_answer_and_aliases():
    table = load("world-facts", split="validation").table
    facts = [fact for fact in FACTS if fact["split"] == "validation"]
    assert table["question_id"].tolist() == [fact["fact_id"] for fact in facts]
    assert table["question"].tolist() == [fact["question"] for fact in facts]
    assert table["references"].tolist() == [[fact["answer"], *fact["aliases"]] for fact in facts]
    assert table["exposure"].tolist() == [fact["exposure"] for fact in facts]
    assert set(table["split"]) == {"validation"}


def test_bundled_wordings_ask_for_the_same_facts_in_different_words():
    seen, reworded = (load("world-facts", limit=40, seed=3), load("world-facts-reworded", limit=40, seed=3))
    assert seen.table["question_id"].tolist() == reworded.table["question_id"].tolist()
    assert seen.table["references"].tolist() == reworded.table["references"].tolist()
    assert (seen.table["question"] != reworded.table["question"]).all()
    assert (seen.name, reworded.name) == ("world-facts", "world-facts-reworded")


def test_limit_draws_with_the_seed_and_keeps_the_order():
    everything = load("world-facts").table["question_id"].tolist()
    some = load("world-facts", limit=20, seed=1).table["question_id"].tolist()
    assert some == load("world-facts", limit=20, seed=1).table["question_id"].tolist()
    assert some != load("world-facts", limit=20, seed=2).table["question_id"].tolist()
    assert some != everything[:20]
    positions = [everything.index(name) for name in some]
    assert positions == sorted(set(positions))
    assert len(some) == 20


def test_limit_counts_for_each_split_and_splits_come_in_the_order_asked_for():
    both = load("world-facts", split=["validation", "test"], limit=5)
    assert both.table["split"].tolist() == ["validation"] * 5 + ["test"] * 5
    assert len(both) == 10
    assert both.table.index.tolist() == list(range(10))


@pytest.mark.parametrize("asked", [{"split": ["test", "test"]}, {"limit": 99}])
def test_a_split_named_twice_is_asked_once_and_a_large_limit_keeps_them_all(write, asked):
    assert len(load(path=write("set.jsonl", ROWS), **asked)) == 2


@pytest.mark.parametrize("seed", [0, 1])
def test_bundled_shots_are_ten_of_train_shots_with_their_first_reference(seed):
    questions = load("world-facts", limit=5, seed=seed)
    assert questions.shots == load("world-facts", limit=7, seed=2).shots  # whatever else is drawn
    answers = {fact["question"]: fact["answer"] for fact in FACTS if fact["split"] == "train_shots"}
    assert len(questions.shots) == 10
    assert len(set(questions.shots)) == 10
    assert all(answers[question] == answer for question, answer in questions.shots)


def test_the_set_answered_in_sentences_has_names_as_references_and_sentences_in_its_shots():
    questions = load("world-facts-long", split="validation")
    facts = [fact for fact in LONG if fact["split"] == "validation"]
    assert questions.table["references"].tolist() == [[fact["answer"], *fact["aliases"]] for fact in facts]
    for column in ("question", "relation", "exposure", "conflict", "n_true", "sentence"):
        assert questions.table[column].tolist() == [fact[column] for fact in facts]
    said = {fact["question"]: fact["sentence"] for fact in LONG if fact["split"] == "train_shots"}
    assert len(questions.shots) == 10
    assert all(said[question] == sentence for question, sentence in questions.shots)


def test_a_file_may_say_how_its_shots_answer(write):
    rows = [
        {"question": f"Capital of {n}?", "references": [f"Town {n}"], "sentence": f"It is Town {n}."} for n in "abc"
    ]
    questions = load(path=write("set.jsonl", rows), n_shots=2)
    assert sorted(questions.shots) == sorted(
        (row["question"], row["sentence"]) for row in rows if row["question"] not in set(questions.table["question"])
    )


def test_shots_are_never_among_the_questions_asked():
    questions = load("world-facts", split="train_shots", limit=60, n_shots=12)
    assert len(questions.shots) == 12
    assert not {question for question, _ in questions.shots} & set(questions.table["question"])


def test_shots_do_not_fall_back_on_other_splits_when_train_shots_is_asked():
    with pytest.raises(QuestionsError, match="n_shots=1: dataset 'world-facts' has 0 questions for shots"):
        load("world-facts", split="train_shots", n_shots=1)


def test_a_file_without_train_shots_sets_its_shots_apart_whatever_is_asked(write):
    rows = [{"question": f"Question {n}?", "references": [str(n)]} for n in range(12)]
    path = write("set.jsonl", rows)
    whole = load(path=path, n_shots=2)
    left = {(row["question"], row["references"][0]) for row in rows} - {
        (question, references[0])
        for question, references in zip(whole.table["question"], whole.table["references"], strict=True)
    }
    assert set(whole.shots) == left
    assert len(whole) == 10
    for asked in ({"limit": 4}, {"seed": 5, "fraction": 0.5}, {"split": ["validation", "test"], "n_validation": 4}):
        other = load(path=path, n_shots=2, **asked)
        assert other.shots == whole.shots
        assert set(other.table["question"]) <= set(whole.table["question"])


def test_a_question_asked_under_another_id_is_no_shot(write):
    rows = [{"question": "Same?", "references": ["yes"]}, {"question": "Same?", "references": ["yes"]}]
    with pytest.raises(QuestionsError, match=r"is not in dataset 'set'; it has nothing left beside 1 shots"):
        load(path=write("set.jsonl", rows), limit=1, n_shots=1)


def test_prompts_are_header_shots_and_question_in_the_template(write):
    questions = load(
        path=write("set.jsonl", ROWS), n_shots=1, header="Answer briefly.\n\n", template="Q: {question}\nA:"
    )
    (shot, answer) = questions.shots[0]
    assert questions.prefix() == f"Answer briefly.\n\nQ: {shot}\nA: {answer}\n\n"
    assert questions.prompts() == [
        questions.prefix() + "Q: Capital of France?\nA:",
        questions.prefix() + "Q: Capital of Peru?\nA:",
    ]


def test_prefix_is_a_true_prefix_of_every_bundled_prompt():
    questions = load("world-facts-reworded", limit=10)
    assert questions.prefix().count("Question: ") == 10
    for prompt, question in zip(questions.prompts(), questions.table["question"], strict=True):
        assert prompt == questions.prefix() + f"Question: {question}\nAnswer:"


def test_braces_in_a_question_are_kept_as_they_are(write):
    rows = [{"question": "What is {x} and {question}?", "references": ["a set"]}]
    assert load(path=write("set.jsonl", rows)).prompts() == ["Question: What is {x} and {question}?\nAnswer:"]


def test_what_of_a_prompt_decides_a_run_says_chat_only_where_it_is(write):
    questions = load(path=write("set.jsonl", ROWS), n_shots=2, header="H")
    asked = {
        "header": "H",
        "template": "Question: {question}\nAnswer:",
        "shots": [list(shot) for shot in questions.shots],
    }
    assert json.loads(json.dumps(questions.parameters())) == asked
    assert questions.parameters(chat=True) == asked | {"chat": True}


def test_a_question_set_shows_its_name_and_sizes_and_in_a_notebook_its_first_rows():
    questions = load("world-facts", split="test", limit=7)
    assert repr(questions) == "QuestionSet(world-facts: 7 questions, 10 shots)"
    assert questions._repr_html_().count("<tr") == 6  # names of columns, and five


def test_with_questions_asks_others_in_the_same_way():
    bundled = load("world-facts", limit=3)
    asked = bundled.with_questions(["Who?", "Where?"])
    assert asked.prompts() == [bundled.prefix() + f"Question: {text}\nAnswer:" for text in ("Who?", "Where?")]
    assert asked.table["question_id"].tolist() == ["asked-0", "asked-1"]
    assert asked.table["references"].tolist() == [None, None]
    assert len(bundled) == 3


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_every_file_format_gives_the_same_table(write, suffix):
    questions = load(path=write(f"set.{suffix}", ROWS), split=["validation", "test"])
    assert questions.name == "set"
    assert questions.shots == ()
    assert questions.table.to_dict("list") == {
        "question_id": ["q3", "q1", "q2"],
        "question": ["Author of Emma?", "Capital of France?", "Capital of Peru?"],
        "references": [["Jane Austen", "Austen"], ["Paris"], ["Lima"]],
        "split": ["validation", "test", "test"],
    }


def test_rows_in_memory_are_questions_as_those_of_a_file_are(write):
    expected = load(path=write("questions.jsonl", ROWS), split="test", n_shots=1)
    for rows in (ROWS, tuple(ROWS), pd.DataFrame(ROWS)):
        found = load(path=rows, split="test", n_shots=1)
        assert_frame_equal(found.table, expected.table)
        assert (found.name, found.shots, found.source) == (
            "questions",
            expected.shots,
            expected.source | {"path": None},
        )
    numbered = pd.DataFrame({"query": ["A?", "B?"], "references": [("x", "y"), "z"], "level": [1, None]})
    table = load("mine", path=numbered, columns={"question": "query"}).table
    assert table["references"].tolist() == [["x", "y"], ["z"]]
    assert (table["question_id"].tolist(), table["level"].isna().tolist()) == (
        ["questions-0", "questions-1"],
        [False, True],
    )


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([], "^questions holds no questions"),
        ([{"question": "A?"}], "^questions has no column 'references'.* it has question$"),
        ([{"question": "A?", "references": "x"}, 5], "^entry 2: not an object but int"),
        (
            [{"question": "A?", "references": "x"}, {"question": 5, "references": "x"}],
            "^entry 2: question=5 must be a text",
        ),
        (pd.DataFrame({"question": ["A?", None], "references": "x"}), "^row 2: question=nan must be a text"),
        ({"question": "A?"}, "^dict is neither a file nor a list of objects, nor a table$"),
        (5, "^int is neither a file nor a list of objects, nor a table$"),
    ],
)
def test_bad_rows_in_memory_are_refused_with_their_place(rows, sentence):
    with pytest.raises(QuestionsError, match=sentence):
        load(path=rows)


def test_a_file_without_ids_and_splits_gets_both_and_keeps_further_columns(write):
    rows = [
        {"question": "A?", "references": " a ; b;", "level": 3},
        {"question": "B?", "references": ["c"], "level": 4},
    ]
    table = load("mine", path=write("set.jsonl", rows)).table
    assert table.columns.tolist() == ["question_id", "question", "references", "split", "level"]
    assert table["question_id"].tolist() == ["set-0", "set-1"]
    assert table["references"].tolist() == [["a", "b"], ["c"]]
    assert table["level"].tolist() == [3, 4]
    assert set(table["split"]) == {"test"}


def test_whole_number_ids_become_text_and_blank_lines_are_skipped(write):
    first, second = ({"question_id": n, "question": f"{n}?", "references": "a"} for n in (7, 12))
    path = write("set.jsonl", f"{json.dumps(first)}\n\n{json.dumps(second)}")
    assert load(path=path).table["question_id"].tolist() == ["7", "12"]


def test_separators_that_json_allows_within_a_text_do_not_break_a_line(write):
    rows = [{"question": "One\u2028two\x85three?", "references": ["a"]}]
    assert load(path=write("set.jsonl", rows)).table["question"].tolist() == ["One\u2028two\x85three?"]


def test_texts_of_csv_stay_as_they_are_written(write):
    table = load(path=write("set.csv", "\ufeffquestion,references,code,split\nSymbol of sodium?,NA,007,test\n")).table
    assert table.to_dict("records") == [
        {"question_id": "set-0", "question": "Symbol of sodium?", "references": ["NA"], "split": "test", "code": "007"}
    ]


def test_numbers_of_parquet_stay_whole_where_some_are_missing(write):
    ids = pd.array([7, 2**60 + 1], dtype="Int64")
    table = pd.DataFrame({"question_id": ids, "question": ["A?", "B?"], "references": ["a", "b"]})
    table["level"] = pd.array([2**60 + 1, None], dtype="Int64")
    path = write("set.parquet", "")
    table.to_parquet(path)
    read = load(path=path).table
    assert read["question_id"].tolist() == ["7", str(2**60 + 1)]
    assert read["level"].tolist() == [2**60 + 1, None]


GOOD = '{"question": "A?", "references": ["a"]}\n'
BAD_FILES = [
    ("empty.jsonl", "", "holds no questions"),
    ("header.csv", "question,references\n", "holds no questions"),
    ("rows.parquet", [], "holds no questions"),
    ("column.jsonl", '{"question": "A?"}', "has no column 'references', .*; it has question$"),
    ("column.csv", "text,references\nA?,a\n", "has no column 'question', .*; it has text, references$"),
    ("twice.csv", "question,references,question\nA?,a,B?\n", "has the column 'question' twice"),
    ("no_refs.jsonl", GOOD + '{"question": "B?", "references": []}', "line 2: references=.* must hold a text"),
    ("no_refs.csv", "question,references\nA?,a\n\nB?,\n", "line 4: references=.* must hold a text"),
    ("left_out.jsonl", GOOD + '{"question": "B?"}', "line 2: references=.* must hold a text"),
    ("number.jsonl", GOOD + '{"question": "B?", "references": 1.5}', "line 2: references=.* text or lists of texts"),
    ("numbers.parquet", [{"question": "A?", "references": [1, 2]}], "row 1: references=.* text or lists of texts"),
    ("question.jsonl", GOOD + '{"question": " ", "references": "b"}', "line 2: question=' ' must be a text"),
    ("question_number.jsonl", '{"question": 5, "references": "b"}', "line 1: question=5 must be a text"),
    ("split.jsonl", GOOD[:-2] + ', "split": "test"}\n' + GOOD, "line 2: split=nan must be a text"),
    ("same.jsonl", GOOD[:-2] + ', "question_id": 1}\n' + GOOD[:-2] + ', "question_id": "1"}', r"'1' .*line 1\)$"),
    ("no_id.jsonl", GOOD + GOOD[:-2] + ', "question_id": 3}', "line 1: question_id=nan should be a valid string"),
    ("no_id.csv", "question_id,question,references\n,A?,a\n", "line 2: question_id='' .* at least 1 item"),
    ("latin.jsonl", GOOD.encode() + "{'café'}".encode("latin-1"), "line 2: not JSON in UTF-8"),
    ("latin.csv", "question,references\nB?,café\n".encode("latin-1"), "cannot be read: 'utf-8' codec can't decode"),
    ("array.jsonl", GOOD + "[1, 2]", "line 2: not an object"),
    ("longer.csv", "question,references\nA?,a\nB, or C?,b\n", "line 3: 3 fields, but the header has 2; quote"),
    ("short.csv", "question,references\nA?,a\nB?\n", "line 3: 1 fields, but the header has 2"),
    ("quote.csv", 'question,references\nA?,"a\n', "cannot be read: unexpected end of data"),
    ("junk.parquet", b"PAR1 and nothing", "cannot be read"),
    ("set.tsv", GOOD, "is none of .jsonl, .csv, .parquet"),
]


@pytest.mark.parametrize(("name", "content", "sentence"), BAD_FILES, ids=[case[0] for case in BAD_FILES])
def test_a_bad_file_is_refused_with_its_name_and_row(write, name, content, sentence):
    path = write(name, content)
    with pytest.raises(QuestionsError, match=sentence) as caught:
        load(path=path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


BAD_REQUESTS = [
    ({"split": "train"}, "split='train' is not in dataset 'set'; it has test, train_shots, validation$"),
    ({"split": ["test", "dev"]}, "split='dev' is not in dataset 'set'"),
    ({"split": []}, r"split=\[\] is not in dataset"),
    ({"n_shots": 3}, "n_shots=3: dataset 'set' has 2 questions for shots"),
    ({"n_shots": -1}, "n_shots=-1"),
    ({"limit": 0}, "limit=0 must be a positive whole number"),
    ({"limit": 1.5}, "limit=1.5"),
    ({"limit": True}, "limit=True"),
    ({"fraction": 0}, r"fraction=0 must lie in \(0, 1\]"),
    ({"fraction": 1.01}, "fraction=1.01"),
    ({"fraction": float("nan")}, "fraction=nan"),
    ({"fraction": True}, "fraction=True"),
    ({"fraction": "half"}, "fraction='half'"),
    ({"columns": {"answers": "references"}}, "columns=: answers='references' Extra inputs are not permitted"),
    ({"columns": {"question": ["question", "split"]}}, "columns=: question=.* at most 1 item"),
    ({"columns": {"references": []}}, r"columns=: references=\[\] .* at least 1 item"),
    ({"columns": {"question": 5}}, "columns=: question=5 should be a valid list"),
    ({"columns": {"question": "query"}}, "has no column 'query', .*; it has question_id, question, references, split$"),
    ({"template": "Answer:"}, "template='Answer:' must contain {question}"),
]


@pytest.mark.parametrize(("request_", "sentence"), BAD_REQUESTS)
def test_a_bad_request_is_refused_with_the_parameter(write, request_, sentence):
    with pytest.raises(ValueError, match=sentence):
        load(path=write("set.jsonl", ROWS), **request_)


def test_an_unknown_dataset_and_a_missing_file_are_named(tmp_path):
    with pytest.raises(
        QuestionsError,
        match="'squad' is unknown; choose world-facts, world-facts-reworded, world-facts-long, trivia_qa",
    ):
        load("squad")
    with pytest.raises(QuestionsError, match=r"nowhere\.jsonl cannot be read: No such file"):
        load(path=tmp_path / "nowhere.jsonl")


def test_a_fraction_draws_that_part_of_each_split_with_the_seed_as_a_limit_does():
    tenth = load("world-facts", split=["validation", "test"], fraction=0.1, seed=3).table
    for split, part in tenth.groupby("split"):
        everything = load("world-facts", split=split)
        assert len(part) == round(0.1 * len(everything))
        limited = load("world-facts", split=split, limit=len(part), seed=3).table
        assert part["question_id"].tolist() == limited["question_id"].tolist()


@pytest.mark.parametrize(
    ("drawn", "n_questions"),
    [
        ({"fraction": 1}, 10),
        ({"fraction": 0.24}, 2),
        ({"fraction": 1e-09}, 1),
        ({"fraction": 0.7}, 7),
        ({"fraction": 0.5, "limit": 3}, 3),
        ({"fraction": 0.5, "limit": 8}, 5),
    ],
)
def test_fraction_and_limit_are_both_upper_bounds(write, drawn, n_questions):
    rows = [{"question": f"Question {n}?", "references": [str(n)]} for n in range(10)]
    assert len(load(path=write("set.jsonl", rows), **drawn)) == n_questions


def test_what_was_drawn_from_where_is_recorded_as_json(write):
    path = write("set.jsonl", ROWS)
    questions = load("mine", path=path, split=["validation", "test"], limit=1, fraction=0.5, seed=4, n_shots=2)
    assert json.loads(json.dumps(questions.source)) == {
        "dataset": "mine",
        "path": str(path),
        "columns": {name: [name] for name in ("question_id", "question", "references", "split")},
        "split": ["validation", "test"],
        "n_validation": None,
        "limit": 1,
        "fraction": 0.5,
        "seed": 4,
        "n_shots": 2,
        "usual_shots": 0,
    }
    bundled = load("world-facts", limit=2)
    assert (bundled.source["path"], bundled.source["columns"], bundled.source["n_shots"]) == (None, {}, 10)


def test_named_columns_win_over_those_called_like_ours_and_others_are_kept(write):
    row = {"question": "long form", "short": "A?", "references": ["r"], "gold": "a", "id": 7, "part": "dev", "x": 1}
    columns = {"question": "short", "references": "gold", "question_id": "id", "split": "part"}
    table = load(path=write("set.jsonl", [row]), columns=columns, split="dev").table
    expected = {"question_id": "7", "question": "A?", "references": ["a"], "split": "dev", "x": 1}
    assert table.to_dict("records") == [expected]


def test_one_of_several_reference_columns_may_be_empty_but_not_all(write):
    columns = {"references": ["answer", "aliases"]}
    rows = [{"question": "A?", "answer": "a", "aliases": None}, {"question": "B?", "answer": "", "aliases": ["b", "c"]}]
    assert load(path=write("set.jsonl", rows), columns=columns).table["references"].tolist() == [["a"], ["b", "c"]]
    with pytest.raises(QuestionsError, match=r"line 3: references=.* must hold a text"):
        load(path=write("set.jsonl", [*rows, {"question": "C?", "aliases": []}]), columns=columns)


TEXT, TEXTS = Value("string"), List(Value("string"))
LAYOUTS = {
    "trivia_qa": Features(
        {
            **dict.fromkeys(("question", "question_id", "question_source"), TEXT),
            "search_results": {"title": TEXTS, "rank": List(Value("int32"))},
            "answer": {"aliases": TEXTS, "normalized_aliases": TEXTS, "type": TEXT, "value": TEXT},
        }
    ),
    "sciq": Features(
        dict.fromkeys(("question", "distractor3", "distractor1", "distractor2", "correct_answer", "support"), TEXT)
    ),
    "nq": Features({"question": TEXT, "answer": TEXTS}),
}


def trivia(number, value, *aliases, question=None):
    normalized = [alias.lower() for alias in aliases]
    return {
        "question": question or f"Trivia {number}?",
        "question_id": f"tc_{number}",
        "question_source": "http://www.triviacountry.com/",
        "search_results": {"title": [], "rank": []},
        "answer": {"aliases": list(aliases), "normalized_aliases": normalized, "type": "", "value": value},
    }


def science(number, split, **fields):
    distractors = {f"distractor{n}": f"wrong {n}" for n in (1, 2, 3)}
    row = {"question": f"Science {split} {number}?", "correct_answer": f"right {number}; really", "support": ""}
    return row | distractors | fields


HUB_ROWS = {
    "trivia_qa": {
        # Questions come once per kind of evidence, so that the hub has rows twice.
        "train": [trivia(n, f"answer {n}") for n in range(20) for _ in range(2)]
        + [trivia(98, "leaked", question="Trivia 100?"), trivia(101, "leaked", question="Other words?")],
        "validation": [
            trivia(100, "Sunset Boulevard", "Sunset Blvd", "Sunset Boulevard", " ", "sunset blvd"),
            trivia(100, "Sunset Boulevard", "Sunset Blvd"),
            trivia(101, "Bacall"),
        ],
        "test": [trivia(n, "<unk>") for n in range(200, 203)],
    },
    "sciq": {
        "train": [science(n, "train") for n in range(15)] + [science(99, "test", question="Science test 0?")],
        "validation": [science(n, "validation") for n in range(4)],
        "test": [science(n, "test") for n in range(5)],
    },
    "nq": {
        "train": [{"question": f"nq train {n}", "answer": [f"a{n}"]} for n in range(3000)],
        "validation": [{"question": f"nq {n}", "answer": [f"a{n}", f"b{n}", f"a{n}"]} for n in range(7)],
    },
}


def hub_dataset(name):
    rows = {split: Dataset.from_list(part, features=LAYOUTS[name]) for split, part in HUB_ROWS[name].items()}
    return DatasetDict(rows)


@pytest.fixture
def hub(monkeypatch):
    """The hub, holding the three sets in their own column layout; a list of what was asked of it."""
    asked = []
    names = {(repository, configuration): name for name, (repository, configuration, _) in HUB.items()}

    def load_dataset(repository, configuration=None):
        asked.append((repository, configuration))
        return hub_dataset(names[repository, configuration])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return asked


def test_trivia_qa_is_its_labelled_split_each_question_once_with_every_alias(hub):
    questions = load("trivia_qa", n_shots=5)
    assert hub == [("mandarjoshi/trivia_qa", "rc.nocontext")]
    assert questions.table.to_dict("records") == [
        {
            "question_id": "tc_100",
            "question": "Trivia 100?",
            "references": ["Sunset Boulevard", "Sunset Blvd", "sunset blvd"],
            "split": "test",
        },
        {"question_id": "tc_101", "question": "Trivia 101?", "references": ["Bacall"], "split": "test"},
    ]


def test_sciq_has_its_three_splits_and_an_answer_is_not_cut_at_a_semicolon(hub):
    questions = load("sciq", split=["test", "validation"])
    assert hub == [("allenai/sciq", None)]
    assert questions.table["split"].tolist() == ["test"] * 5 + ["validation"] * 4
    assert questions.table["question_id"].tolist()[:2] == ["sciq-test-0", "sciq-test-1"]
    assert questions.table["references"].tolist()[1] == ["right 1; really"]
    assert all(question.startswith("Science train") for question, _ in questions.shots)
    assert len(questions.shots) == 10


def test_nq_open_tests_on_the_hubs_validation_split(hub):
    questions = load("nq")
    assert hub == [("google-research-datasets/nq_open", None)]
    assert questions.name == "nq"
    assert questions.table["question"].tolist() == [f"nq {n}" for n in range(7)]
    assert questions.table["references"].tolist() == [[f"a{n}", f"b{n}"] for n in range(7)]
    assert questions.table["question_id"].tolist()[0] == "nq-validation-0"


@pytest.mark.parametrize("name", ["trivia_qa", "nq"])
@pytest.mark.parametrize("seed", [0, 5])
def test_validation_and_shots_share_no_question_with_each_other_or_with_the_test(hub, name, seed):
    splits = [set(load(name, split=split, n_shots=0).table["question"]) for split in SPLITS]
    assert sum(map(len, splits)) == len(set.union(*splits))
    drawn = load(name, split=["validation", "test"], limit=3, seed=seed, n_shots=8)
    assert {question for question, _ in drawn.shots} <= splits[0]
    assert drawn.shots == load(name, n_shots=8, seed=seed + 1).shots
    assert set(drawn.table["question"]) <= splits[1] | splits[2]
    other = load(name, split="validation", limit=3, seed=seed + 1).table["question"].tolist()
    assert other != drawn.table["question"].tolist()[:3]


def test_validation_out_of_train_is_a_thousand_questions_or_half_of_a_small_one(hub):
    assert [len(load(name, split="validation")) for name in ("nq", "trivia_qa")] == [1000, 10]
    assert len(load("nq", split="train_shots", n_shots=0)) == 2000


def test_a_hub_set_saved_to_disk_is_the_same_set(hub, tmp_path):
    hub_dataset("trivia_qa").save_to_disk(tmp_path)
    saved, fetched = (load("trivia_qa", path=path, n_shots=4) for path in (tmp_path, None))
    assert len(hub) == 1
    pd.testing.assert_frame_equal(saved.table, fetched.table)
    assert saved.shots == fetched.shots
    assert saved.prompts() == fetched.prompts()
    assert saved.source["path"] == str(tmp_path)
    with pytest.raises(QuestionsError, match="is a saved dataset; say which with name=, one of trivia_qa, sciq, nq"):
        load(path=tmp_path)
    with pytest.raises(
        QuestionsError, match=r"'sciq' cannot be loaded from folder .*Column 'correct_answer' doesn't exist"
    ):
        load("sciq", path=tmp_path)


def test_a_damaged_saved_set_is_refused(tmp_path):
    hub_dataset("nq").save_to_disk(tmp_path)
    (tmp_path / "train" / "state.json").write_text("{")
    with pytest.raises(QuestionsError, match="dataset 'nq' cannot be loaded from folder"):
        load("nq", path=tmp_path)


@pytest.mark.parametrize("keep", [["test"], ["train"], ["train", "test"]])
def test_a_hub_set_without_labelled_questions_or_without_shots_is_refused(hub, tmp_path, keep):
    DatasetDict({split: hub_dataset("trivia_qa")[split] for split in keep}).save_to_disk(tmp_path)
    with pytest.raises(QuestionsError, match="has no split with answers to ask, or none to take shots from"):
        load("trivia_qa", path=tmp_path)


def test_two_questions_of_a_hub_set_cannot_share_an_id(hub, tmp_path):
    parts = hub_dataset("trivia_qa")
    DatasetDict(parts | {"test": parts["validation"]}).save_to_disk(tmp_path)
    with pytest.raises(QuestionsError, match="question_id 'tc_100' was already used"):
        load("trivia_qa", path=tmp_path)


def test_a_file_under_the_name_of_a_hub_set_stays_a_file(hub, write):
    questions = load("sciq", path=write("set.jsonl", ROWS))
    assert (questions.name, len(questions), questions.shots, hub) == ("sciq", 2, (), [])


def test_without_a_network_there_is_one_sentence(monkeypatch):
    def load_dataset(repository, configuration):
        raise ConnectionError("Couldn't reach 'allenai/sciq' on the Hub\n(OfflineModeIsEnabled)")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(
        QuestionsError, match=r"'sciq' cannot be loaded from the Hugging Face hub \(allenai/sciq\)"
    ) as e:
        load("sciq")
    assert "Couldn't reach 'allenai/sciq' on the Hub (OfflineModeIsEnabled); without a network" in str(e.value)
    assert "\n" not in str(e.value)


def test_a_file_without_a_validation_split_lends_one_always_the_same(write):
    path = write("set.jsonl", [{"question": f"Question {n}?", "references": [str(n)]} for n in range(10)])
    both = load(path=path, split=["validation", "test"], n_validation=4, seed=7).table
    assert both["split"].value_counts().to_dict() == {"test": 6, "validation": 4}
    alone = load(path=path, split="test", n_validation=4).table
    assert list(alone["question_id"]) == list(both.loc[both["split"] == "test", "question_id"])
    with pytest.warns(
        UserWarning, match="'set' has no validation split: 5 of its 10 questions are taken for one, not 6"
    ):
        few = load(path=path, split=["validation", "test"], n_validation=6).table
    assert few["split"].value_counts().to_dict() == {"test": 5, "validation": 5}
    assert len(load(path=path, n_validation=6)) == 10


def test_a_split_that_is_there_is_left_as_it_is_and_none_means_all(write):
    rows = [
        {"question": f"{s} {n}?", "references": ["x"], "split": s} for s in ("validation", "test") for n in range(4)
    ]
    path = write("set.jsonl", rows)
    assert (load(path=path, split="validation", n_validation=1).table["split"] == "validation").sum() == 4
    assert len(load(path=path, split=None)) == 8
    assert set(load("world-facts", split=None, n_shots=0).table["split"]) == set(SPLITS)


@pytest.mark.parametrize("name", ["../../elsewhere", "a/b", "..", "", " ", "a\\b", "a\0b"])
def test_a_name_that_would_lead_out_of_the_run_folder_is_refused(write, name):
    with pytest.raises(ValueError, match=r"^name=.* of a question set must do as the name of a folder"):
        load(name, path=write("set.jsonl", ROWS))
