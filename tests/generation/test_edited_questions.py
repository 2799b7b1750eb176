"""Answers belong to their question, however a question file is edited between two runs."""

import warnings
from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_strategies import check_plain_passes

from pro_lib import generate, import_answers, load_questions, read_run
from pro_lib.app.experiment import Experiment
from pro_lib.common.files import RunError
from pro_lib.generation import models

# Edited files have the same text under two ids, of which loading warns.
pytestmark = pytest.mark.filterwarnings("ignore:.*repeat the text of an earlier question")

MODEL = "facts-1m"
FACTS = load_questions("world-facts", n_shots=0).table
POOL = FACTS.iloc[:: len(FACTS) // 12][["question", "references"]].to_dict("records")
SHOTS = [{"question_id": f"s{n}", **row, "split": "train_shots"} for n, row in enumerate(POOL[:2])]
# The file before it is edited: ids and places in the pool, whose rest is for edits.
BEFORE = [(f"q{number}", number + len(SHOTS)) for number in range(6)]


def written(path, rows, *, has_ids=True):
    """Write a question file with shots; `rows` are pairs of an id and a place in the pool."""
    table = [{"question_id": name, **POOL[place], "split": "test"} for name, place in rows]
    frame = pd.DataFrame([*SHOTS, *table])
    if not has_ids:
        del frame["question_id"]
    frame.to_json(path, orient="records", lines=True)
    return path


# Rows of a file after edits: rows of before, and others under an id of before or a new one.
EDITED = st.lists(
    st.sampled_from(BEFORE)
    | st.tuples(
        st.sampled_from([*(name for name, _ in BEFORE), "new", "newer"]),
        st.integers(len(SHOTS), len(POOL) - 1),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda row: row[0],
)
# Examples of a property test, each of which generates and scores a run.
N_EXAMPLES = {"quick": 5, "all": 25, "trials": 300}


def check_answers(model, run, question_set):
    """Check that every answer has the probability that the model gives it after its question."""
    table = run.questions[["question_id", "question", "references", "split"]]
    check_plain_passes(model, replace(question_set, table=table), run.answers, atol=1e-3)


def through_experiment(path, out, strategy):
    """The run that `pro run`, `pro generate` and notebooks take."""
    names = {"model": MODEL, "dataset": str(path)}
    options = {"strategy": strategy, "generations_dir": out, "device": "cpu", "n_answers": 2}
    return Experiment(**names, **options).run(*names.values())


def through_generate(path, out, strategy):
    loaded = models.cached_model(MODEL, device="cpu")
    questions = load_questions(path=path)
    return generate(loaded, questions, strategy=strategy, out=out)


@pytest.mark.parametrize(
    ("through", "strategy", "has_ids"),
    [
        (through_experiment, "greedy", True),
        (through_experiment, "multinomial", False),
        (through_generate, "greedy", False),
        (through_generate, "threshold", True),
    ],
)
def test_a_run_of_an_edited_file_has_the_answers_to_its_questions(
    tmp_path_factory, facts_1m, through, strategy, has_ids, size
):
    folder = tmp_path_factory.mktemp("edited")
    path = folder / "mine.jsonl"
    through(
        written(path, BEFORE, has_ids=has_ids),
        folder,
        strategy,
    )

    @settings(max_examples=N_EXAMPLES[size])
    @given(EDITED)
    def check(rows):
        # All examples share one folder, which keeps the answers of every earlier edit.
        run = through(written(path, rows, has_ids=has_ids), folder, strategy)
        question_set = load_questions(path=path)
        assert list(run.questions["question"]) == [POOL[place]["question"] for _, place in rows]
        assert list(run.questions["references"]) == [POOL[place]["references"] for _, place in rows]
        assert list(run.questions["question_id"]) == list(question_set.table["question_id"])
        assert set(run.answers["question_id"]) == set(run.questions["question_id"])
        check_answers(facts_1m, run, question_set)
        [stored] = folder.glob(f"mine/{MODEL}/{strategy}*")
        for options in ({}, {"all_questions": True}):  # as commands and a calibration are read
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                check_answers(facts_1m, read_run(stored, **options), question_set)

    check()


TEMPLATES = {
    "question": "{}",
    "prompt": "Question: Who wrote Emma?\nAnswer: Jane Austen\n\nQuestion: {}\nAnswer:",
}


@pytest.mark.filterwarnings("ignore:.*are left out")
@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
@pytest.mark.parametrize("has_ids", [True, False], ids=["ids", "texts"])
def test_records_beside_an_edited_file_are_paired_rightly_or_refused(
    tmp_path_factory, template, has_ids, size
):
    folder = tmp_path_factory.mktemp("records")
    texts = [POOL[place]["question"] for _, place in BEFORE]
    prefix = "q" if has_ids else "other"
    records = [
        {
            "question_id": f"{prefix}{number}",
            "question": template.format(text),
            "answers": [{"text": text, "log_prob": -1.0}],
        }
        for number, text in enumerate(texts)
    ]

    @settings(max_examples=N_EXAMPLES[size])
    @given(EDITED)
    def check(rows):
        path = written(folder / "mine.jsonl", rows)
        try:
            questions = load_questions(path=path, n_shots=0)
            run = import_answers(records, questions=questions)
        except RunError:
            return
        texts = run.questions.set_index("question_id")["question"]
        assert (run.answers["text"] == run.answers["question_id"].map(texts)).all()

    check()
