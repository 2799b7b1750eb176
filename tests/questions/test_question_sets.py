"""Question sets: the bundled ones, files, splits, limits, prompts, and what bad input is told."""

import gzip
import json
import subprocess
import sys

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from test_damaged_input import WRITE

from pro_lib.common.catalog import DATA, HUB
from pro_lib.common.files import RunError, sha256
from pro_lib.questions.question_sets import SPLITS, load_questions

FACTS = [
    json.loads(line)
    for line in (DATA / "world_facts" / "facts.jsonl").read_text(encoding="utf-8").splitlines()
]
COLUMNS = ("question_id", "question", "references", "split")
ROWS = [
    ("q1", "Capital of France?", ["Paris"], "test"),
    ("q2", "Capital of Peru?", ["Lima"], "test"),
    ("q3", "Author of Emma?", ["Jane Austen", "Austen"], "validation"),
    ("q4", "Capital of Italy?", ["Rome"], "train_shots"),
    ("q5", "Capital of Spain?", ["Madrid"], "train_shots"),
]
ROWS = [dict(zip(COLUMNS, row, strict=True)) for row in ROWS]


def numbered(n):
    return [{"question": f"Question {i}?", "references": [str(i)]} for i in range(n)]


@pytest.mark.parametrize(
    ("name", "wording"),
    [("world-facts", "question"), ("world-facts-reworded", "question_reworded")],
)
def test_a_bundled_set_has_the_facts_of_the_split_with_answer_and_aliases(name, wording):
    questions = load_questions(name, split="validation")
    expected = [
        [fact["fact_id"], fact[wording], [fact["answer"], *fact["aliases"]], "validation"]
        for fact in FACTS
        if fact["split"] == "validation"
    ]
    assert questions.table[[*COLUMNS]].to_numpy().tolist() == expected
    assert repr(questions) == f"QuestionSet({name}: {len(expected):,} questions, 10 shots)"


def test_a_change_of_loaded_questions_does_not_change_the_next_ones():
    usual = load_questions("world-facts").table.to_json()
    changed = load_questions("world-facts").table
    changed.loc[0, "question"] = "Another question?"
    changed["references"].iloc[0].append("another answer")
    assert load_questions("world-facts").table.to_json() == usual


def ids_of(**options):
    return load_questions("world-facts", **options).table["question_id"].tolist()


def test_limit_draws_with_the_seed_and_keeps_the_order():
    some, others = (ids_of(limit=20, seed=seed) for seed in (1, 2))
    assert some == [name for name in ids_of() if name in some]
    assert some != others
    assert set(ids_of(limit=5, seed=1)) < set(some)


DRAWS = {
    "limit": {"n_shots": 0, "limit": 12},
    "shots": {"n_shots": 12},
    "validation": {"n_shots": 0, "split": "validation", "n_validation": 12},
}


@pytest.mark.parametrize("options", DRAWS.values(), ids=DRAWS)
def test_an_added_or_deleted_row_changes_one_drawn_question_at_most(options):
    def draw(rows):
        questions = load_questions(path=rows, **options)
        return {question for question, _ in questions.shots} or set(questions.table["question"])

    rows = numbered(30)
    drawn = draw(rows)
    assert len(drawn) == 12
    n_kept = [len(drawn & draw(rows[:n] + rows[n + 1 :])) for n in range(30)]
    assert sorted(n_kept) == [11] * 12 + [12] * 18  # a question that was drawn is deleted, or not
    more = [{"question": f"Who is {n}?", "references": [str(n)]} for n in range(6)]
    assert len(drawn & draw([*more, *rows])) >= 6
    assert drawn == draw(rows[::-1])


def test_equal_texts_are_not_drawn_together():
    rows = [{"question": f"What is {n % 3}?", "references": [str(n)]} for n in range(60)]
    with pytest.warns(UserWarning, match="repeat the text"):
        drawn = load_questions(path=rows, n_shots=0, limit=12).table
    assert drawn["question"].nunique() == 3


def test_bundled_shots_are_ten_of_train_shots_with_their_first_reference():
    questions = load_questions("world-facts", limit=5)
    # Whatever else is drawn
    assert questions.shots == load_questions("world-facts", limit=7, seed=2).shots
    answers = {fact["question"]: fact["answer"] for fact in FACTS if fact["split"] == "train_shots"}
    assert len(set(questions.shots)) == 10
    assert all(answers[question] == answer for question, answer in questions.shots)


def test_a_shot_is_not_a_question_of_its_split():
    both = load_questions("world-facts", split="train_shots", limit=60, n_shots=12)
    assert len(both.shots) == 12
    assert not {question for question, _ in both.shots} & set(both.table["question"])


@pytest.mark.parametrize(
    ("n", "options", "n_shots"), [(60, {}, 10), (20, {}, 5), (3, {}, 0), (12, {"n_shots": 2}, 2)]
)
def test_a_file_without_train_shots_sets_its_shots_apart_whatever_is_asked(n, options, n_shots):
    rows = numbered(n)
    whole = load_questions(path=rows, **options)
    assert len(whole.shots) == n_shots
    questions = [*whole.table["question"], *(question for question, _ in whole.shots)]
    assert sorted(questions) == sorted(row["question"] for row in rows)
    for draw in ({"limit": 2}, {"seed": 5}, {"split": ["validation", "test"], "n_validation": 1}):
        other = load_questions(path=rows, **options, **draw)
        assert other.shots == whole.shots
        assert set(other.table["question"]) <= set(whole.table["question"])


def test_prompts_are_header_shots_and_question_and_other_questions_use_the_same_template():
    form = {"header": "Answer briefly.\n\n", "template": "Q: {question}\nA:"}
    questions = load_questions(path=ROWS, n_shots=1, **form)
    [(shot, answer)] = questions.shots
    prefix = f"Answer briefly.\n\nQ: {shot}\nA: {answer}\n\n"
    assert questions.prefix() == prefix
    assert questions.prompts()[0] == f"{prefix}Q: Capital of France?\nA:"
    others = questions.with_questions(["Who?", "Where?"])
    assert others.prompts() == [f"{prefix}Q: {text}\nA:" for text in ("Who?", "Where?")]
    assert others.table["question_id"].tolist() == ["asked-0", "asked-1"]
    assert others.table["references"].tolist() == [None, None]


def test_files_of_every_format_and_rows_in_memory_are_the_same_questions(tmp_path):
    asked = {"split": ["validation", "test"], "n_shots": 1, "separator": ";"}
    expected = load_questions(path=ROWS, **asked)
    assert expected.table.to_dict("records") == [ROWS[2], *ROWS[:2]]
    files = [tmp_path / f"questions{suffix}" for suffix in WRITE]
    for path in files:
        path.write_bytes(WRITE[path.suffix](ROWS))
    files.append(tmp_path / "questions.jsonl.gz")
    files[-1].write_bytes(gzip.compress(WRITE[".jsonl"](ROWS)))
    for source in (*files, tuple(ROWS), pd.DataFrame(ROWS, index=["a"] * len(ROWS))):
        found = load_questions(path=source, **asked)
        assert_frame_equal(found.table, expected.table)
        assert (found.name, found.shots) == ("questions", expected.shots)


def test_texts_of_csv_stay_as_they_are_written(write):
    path = write(
        "\ufeffquestion,references,code,split", "Symbol of sodium?,NA,007,test", name="set.csv"
    )
    table = load_questions(path=path).table
    assert table.to_numpy().tolist() == [["set-0", "Symbol of sodium?", ["NA"], "test", "007"]]


def test_numbers_of_parquet_stay_whole_where_some_are_missing(tmp_path):
    large = 2**60 + 1
    table = pd.DataFrame({"question": ["A?", "B?"], "question_id": [7, large]})
    table["level"] = pd.array([large, None], dtype="Int64")
    table["references"] = [[1, 2], [3]]
    table.to_parquet(tmp_path / "set.parquet")
    read = load_questions(path=tmp_path / "set.parquet", n_shots=0).table
    assert read["question_id"].tolist() == ["7", str(large)]
    assert read["level"].tolist() == [large, None]
    assert read["references"].tolist() == [["1", "2"], ["3"]]


def test_what_was_drawn_from_where_is_recorded_as_json(write):
    path = write(*ROWS)
    draw = {"split": ["validation", "test"], "limit": 1, "seed": 4, "n_shots": 2}
    questions = load_questions("mine", path=path, **draw)
    expected = draw | {"dataset": "mine", "path": str(path), "digest": sha256(path.read_bytes())}
    expected |= {"columns": {name: [name] for name in COLUMNS}}
    expected |= {"n_validation": None, "usual_shots": 2}
    assert json.loads(json.dumps(questions.source)) == expected


def test_one_of_several_reference_columns_may_be_empty_but_not_all():
    columns = {"references": ["answer", "aliases"]}
    rows = [
        {"question": "A?", "answer": "a", "aliases": None},
        {"question": "B?", "answer": "", "aliases": ["b", "c"]},
    ]
    table = load_questions(path=rows, columns=columns).table
    assert table["references"].tolist() == [["a"], ["b", "c"]]
    rows.append({"question": "C?", "aliases": []})
    with pytest.raises(RunError, match=r"entry 3: references=.* must hold a text"):
        load_questions(path=rows, columns=columns, strict=True)


def trivia(number, value, *aliases, question=None):
    answer = {"aliases": list(aliases), "normalized_aliases": ["other"], "type": "", "value": value}
    row = {"question_id": f"tc_{number}", "answer": answer}
    return row | {"question": question or f"Trivia {number}?"}


def science(number, split):
    answers = {"distractor1": "wrong", "correct_answer": f"right {number}; really", "support": ""}
    return {"question": f"Science {split} {number}?", **answers}


HUB_ROWS = {
    "trivia_qa": {
        # Questions come once per kind of evidence, so that the hub has rows twice.
        "train": [trivia(n, f"answer {n}") for n in range(20) for _ in range(2)]
        + [
            trivia(98, "leaked", question="Trivia 100?"),
            trivia(101, "leaked", question="Other words?"),
        ],
        "validation": [
            trivia(100, "Sunset Boulevard", "Sunset Blvd", "Sunset Boulevard", " ", "sunset blvd"),
            trivia(100, "Sunset Boulevard", "Sunset Blvd"),
            trivia(101, "Bacall"),
        ],
        "test": [trivia(200, "<unk>")],
    },
    "sciq": {
        "train": [science(n, "train") for n in range(15)] + [science(0, "test")],
        "validation": [science(n, "validation") for n in range(9)],
        "test": [science(n, "test") for n in range(5)],
    },
    "nq": {
        "train": [{"question": f"nq train {n}", "answer": [f"a{n}"]} for n in range(300)],
        "validation": [
            {"question": f"nq {n}", "answer": [f"a{n}", f"b{n}", f"a{n}"]} for n in range(7)
        ],
    },
}


def hub_dataset(name):
    from datasets import Dataset, DatasetDict  # takes time

    return DatasetDict({split: Dataset.from_list(part) for split, part in HUB_ROWS[name].items()})


@pytest.fixture
def hub(monkeypatch):
    """Replace the hub by one with the three sets; return the list of its requests."""
    asked = []
    names = {
        (repository, configuration): name for name, (repository, configuration, _) in HUB.items()
    }

    def load_dataset(repository, configuration=None):
        asked.append((repository, configuration))
        return hub_dataset(names[repository, configuration])

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    return asked


# By set: where the hub has it, and all that it tests on.
TESTED = {
    "trivia_qa": (("mandarjoshi/trivia_qa", "rc.nocontext"), [
        ["tc_100", "Trivia 100?", ["Sunset Boulevard", "Sunset Blvd", "sunset blvd"], "test"],
        ["tc_101", "Trivia 101?", ["Bacall"], "test"],
    ]),
    "sciq": (("allenai/sciq", None), [
        [f"sciq-test-{n}", f"Science test {n}?", [f"right {n}; really"], "test"] for n in range(5)
    ]),
    "nq": (("google-research-datasets/nq_open", None), [
        [f"nq-validation-{n}", f"nq {n}", [f"a{n}", f"b{n}"], "test"] for n in range(7)
    ]),
}  # fmt: skip


@pytest.mark.parametrize("name", TESTED)
def test_a_set_of_the_hub_has_the_questions_of_its_labelled_split_once_with_every_answer(hub, name):
    place, expected = TESTED[name]
    questions = load_questions(name)
    assert hub == [place]
    assert (questions.name, len(questions.shots)) == (name, 10)
    assert questions.table[[*COLUMNS]].to_numpy().tolist() == expected


@pytest.mark.parametrize("name", TESTED)
def test_validation_and_shots_share_no_question_with_each_other_or_with_the_test(hub, name):
    splits = [
        set(load_questions(name, split=split, n_shots=0).table["question"]) for split in SPLITS
    ]
    assert sum(map(len, splits)) == len(set.union(*splits))
    drawn, other = (
        load_questions(name, split="validation", limit=3, n_shots=8, seed=seed) for seed in (0, 5)
    )
    assert {question for question, _ in drawn.shots} <= splits[0]
    assert drawn.shots == other.shots
    assert set(drawn.table["question"]) <= splits[1]
    assert drawn.table["question"].tolist() != other.table["question"].tolist()


def test_a_hub_set_saved_to_disk_is_the_same_set(hub, tmp_path):
    hub_dataset("trivia_qa").save_to_disk(tmp_path)
    saved, fetched = (load_questions("trivia_qa", path=path) for path in (tmp_path, None))
    assert_frame_equal(saved.table, fetched.table)
    assert (saved.prompts(), len(hub)) == (fetched.prompts(), 1)
    assert saved.source["path"] == str(tmp_path)
    with pytest.raises(RunError, match="say which with name=, one of trivia_qa, sciq, nq"):
        load_questions(path=tmp_path)
    with pytest.raises(RunError, match=r"'sciq' cannot be loaded from /.*'correct_answer'"):
        load_questions("sciq", path=tmp_path)


@pytest.mark.parametrize("keep", [["test"], ["train"], ["train", "test"]])
def test_a_hub_set_without_labelled_questions_or_without_shots_is_refused(hub, tmp_path, keep):
    dataset = hub_dataset("trivia_qa")
    for split in dataset.keys() - keep:
        del dataset[split]
    dataset.save_to_disk(tmp_path)
    with pytest.raises(RunError, match="'trivia_qa' needs a train split for shots"):
        load_questions("trivia_qa", path=tmp_path)


def test_a_file_without_a_validation_split_lends_one_always_the_same():
    rows = numbered(10)
    both = {"path": rows, "n_shots": 0, "split": ["validation", "test"]}
    table = load_questions(**both, n_validation=4, seed=7).table
    assert table["split"].value_counts().to_dict() == {"test": 6, "validation": 4}
    alone = load_questions(path=rows, n_shots=0, split="test", n_validation=4).table
    assert list(alone["question_id"]) == list(table.loc[table["split"] == "test", "question_id"])
    # A validation split that was not asked for is not a smaller one.
    assert len(load_questions(path=rows, n_shots=0, n_validation=6)) == 10
    words = "'set' has no validation split, and only 5 of its 10 questions are used for"
    with pytest.warns(UserWarning, match=words):
        few = load_questions("set", **both, n_validation=6).table
    assert few["split"].value_counts().to_dict() == {"test": 5, "validation": 5}


def test_a_split_that_exists_stays_as_it_is_and_none_means_all():
    rows = [row | {"split": ("validation", "test")[n // 4]} for n, row in enumerate(numbered(8))]
    table = load_questions(path=rows, n_shots=0, split="validation", n_validation=1).table
    assert table["split"].tolist() == ["validation"] * 4
    assert len(load_questions(path=rows, n_shots=0, split=None)) == 8
    assert set(load_questions("world-facts", split=None, n_shots=0).table["split"]) == set(SPLITS)


def test_the_split_of_the_shots_is_not_asked():
    rows = [row | {"split": ("train_shots", "test")[n // 4]} for n, row in enumerate(numbered(8))]
    shown = load_questions(path=rows, split=None)
    assert (len(shown), len(shown.shots)) == (4, 4)


GOOD = '{"question": "A?", "references": ["a"]}\n'
SPLIT = '{"question": "A?", "references": ["a"], "split": "test"}\n'
MISSING = pd.DataFrame({"question": ["A?", None], "references": "x"})
STRICT = {"strict": True}
# A file's name and content, or rows in memory; other parameters; what the sentence names.
BAD = [
    ("header.csv", "question,references\n", {}, "holds no questions"),
    ("no_refs.csv", "question,references\nA?,a\n\nB?,\n", STRICT, "line 4: references="),
    ("split.jsonl", SPLIT + GOOD, STRICT, "line 2: split=None"),
    (None, MISSING, STRICT, "row 2: question=None"),
    ("test.txt", "who was first\n\nwhere is it\nRome\n", STRICT, "line 1: references"),
    (None, ROWS, {"split": ["test", "dev"]}, "split='dev'"),
    (None, ROWS, {"n_shots": 3}, "n_shots=3"),
    (None, ROWS, {"limit": -1}, "limit=-1"),
    (None, ROWS, {"n_validation": 2.5}, "n_validation=2.5"),
    (None, ROWS, {"seed": -1}, "seed=-1"),
    (None, ROWS, {"columns": {"question": ["question", "split"]}}, "columns=: question="),
    (None, ROWS, {"columns": {"question": "query"}}, "has no column 'query'"),
    (None, ROWS, {"template": "Answer:"}, "template='Answer:'"),
    (None, ROWS, {"name": "../../elsewhere"}, "name="),
    (None, None, {"name": "squad"}, "dataset 'squad'"),
    (None, None, {"path": "nowhere.jsonl"}, "nowhere.jsonl cannot be read"),
]


@pytest.mark.parametrize(("name", "content", "parameters", "field"), BAD)
def test_bad_questions_and_requests_are_refused_in_one_line(
    write, name, content, parameters, field
):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        load_questions(**{"path": write(content, name=name) if name else content} | parameters)
    assert field in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_a_network_there_is_one_sentence(monkeypatch):
    def load_dataset(*_):
        raise ConnectionError("offline\nmode")

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    with pytest.raises(
        RunError, match=r"'sciq' cannot .*hub \(allenai/sciq\); without a network.*offline mode"
    ):
        load_questions("sciq")


def test_damaged_arrow_files_are_errors_and_end_no_process(tmp_path):
    hub_dataset("sciq").save_to_disk(tmp_path / "cut")
    hub_dataset("sciq").save_to_disk(tmp_path / "offsets")
    [cut_file] = tmp_path.glob("cut/test/*.arrow")
    content = cut_file.read_bytes()
    cut_file.write_bytes(content[: len(content) // 2])
    # Lengths that lead out of the file
    place = content.rindex(b"right 0") - 64
    changed = content[:place] + b"\xff\xff\xff\x7f" * 16 + content[place + 64 :]
    [changed_file] = tmp_path.glob("offsets/test/*.arrow")
    changed_file.write_bytes(changed)
    code = """
import sys
from pro_lib import load_questions
for folder in sys.argv[1:]:
    try:
        load_questions("sciq", path=folder)
    except Exception as error:
        print(type(error).__name__, error)
"""
    command = [sys.executable, "-c", code, tmp_path / "cut", tmp_path / "offsets"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for line, file in zip(done.stdout.splitlines(), (cut_file, changed_file), strict=True):
        assert line.startswith(f"RunError {file} cannot be read: ")
