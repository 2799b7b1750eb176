"""Test that a question set's own columns break nothing and change no number."""

import json

import numpy as np
import pandas as pd
import pytest

from pro_lib import evaluation, generate, import_answers, load_questions, read_run
from pro_lib.app import explorer
from pro_lib.common.validation import SentenceError
from pro_lib.plots import alpha_sweep, benchmark
from pro_lib.questions import question_sets
from pro_lib.runs import storage

TAKEN = [*storage.CERTIFICATE_COLUMNS, "score_x", "score_NLL", "score_"]
OTHERS = [
    "_answers",
    "_own",
    "rank",
    "row",
    "value",
    "mean",
    "votes",
    "correct",
    "rouge_l",
    "exact_match",
    "cluster",
]
OTHERS += [
    "relation",
    "exposure",
    "conflict",
    "note",
    "NLL",
    "PRO",
    "id",
    "answer",
    "index",
    "level_0",
    "closed",
    "",
]
NAMES = [*TAKEN, *OTHERS, *storage._ANSWER_COLUMNS, *evaluation.Evaluation.__annotations__]
NAMES = [name for name in dict.fromkeys(NAMES) if name not in question_sets.QUESTION_COLUMNS]
KINDS = [
    lambda n: n,
    lambda n: [n + 0.5, float("inf")][n % 2],
    lambda n: f"t{n}",
    lambda n: n % 2 == 0,
    lambda n: None,
    lambda n: [0.5] * n,
    lambda n: [{}, {"a": n}, {"b": [n]}][n % 3],
    lambda n: [1, "x", [1], {"k": 2}, None, 2.5][n % 6],
    lambda n: n if n < 6 else f"t{n}",
    lambda n: None if n % 3 else n,
]


def own_values(n, shift):
    """Return values of a question for all names. The kind of a name depends on the shift."""
    kinds = {name: KINDS[(place + shift) % 10] for place, name in enumerate(NAMES)}
    return {name: kind(n) for name, kind in kinds.items()}


FACTS = (
    load_questions("world-facts", limit=12, n_shots=0)
    .table[list(question_sets.QUESTION_COLUMNS)]
    .to_dict("records")
)
SHOWN = ("exposure", "conflict", "note")  # of a question, by the explorer


def results(model, rows, out):
    """Return the output of search, evaluation, sweeps and explorer, and the stored questions."""
    for n in (len(rows) // 2, len(rows)):
        questions = load_questions("mine", path=rows[:n], split=None, n_shots=0)
        options = {"strategy": "threshold", "search_alpha": 0.05, "out": out}
        asked = generate(model, questions, **options)
    [folder] = (out / "mine" / model.name).iterdir()
    read = read_run(folder)
    judged = evaluation.evaluate(asked)
    benchmark.table([evaluation.Splits(judged, judged, n_validation=None)])
    explorer.to_html(read, out / "page.html")
    data = explorer.run_data(read)
    # A column "relation" declares clusters, which the ends of intervals depend on.
    data.pop("sweeps")
    for question in data["questions"]:
        for name in SHOWN:
            question.pop(name, None)
    sweep = alpha_sweep.rows_at(judged)[["alpha", "auroc", "mean_k"]]
    tables = [asked.answers, read.answers, judged.scores({"PRO": 0.4}), sweep]
    columns = [*question_sets.QUESTION_COLUMNS, *storage.CERTIFICATE_COLUMNS]
    tables += [run.questions[columns] for run in (asked, read)]
    texts = [table.to_json(double_precision=15) for table in tables]
    return [json.dumps(data), *texts], read.questions


@pytest.fixture(scope="module")
def clean(facts_2m, tmp_path_factory):
    return results(facts_2m, FACTS, tmp_path_factory.mktemp("clean"))[0]


@pytest.mark.parametrize("shift", [0, 3])
def test_own_columns_of_any_name_and_kind_move_nothing_and_come_back(
    facts_2m, clean, tmp_path, shift
):
    own = [own_values(n, shift) for n in range(len(FACTS))]
    rows = [row | values for row, values in zip(FACTS, own, strict=True)]
    with pytest.warns(UserWarning, match="get own_ before names that runs need: status, "):
        said, questions = results(facts_2m, rows, tmp_path)
    assert said == clean
    stored = {f"own_{name}" if name in TAKEN else name: name for name in NAMES}
    columns = {*question_sets.QUESTION_COLUMNS, *storage.CERTIFICATE_COLUMNS}
    assert set(questions) == stored.keys() | columns
    for column, name in stored.items():
        for values, value in zip(own, questions[column].tolist(), strict=True):
            is_missing = values[name] is None and pd.isna(value)
            assert is_missing or value == values[name], name


@pytest.mark.parametrize("shift", range(10))
def test_questions_beside_records_may_have_such_columns_too(shift):
    records = []
    for n in range(12):
        answers = [{"text": "ab"[n % 2], "log_prob": -1 - n / 9}, {"text": "c", "log_prob": -3.0}]
        record = {"question_id": str(n), "question": f"Q{n}", "references": ["a"]}
        records.append(record | {"answers": answers, "scores": {"x": n}})
    alone = evaluation.evaluate(import_answers(records)).scores({"PRO": 0.4})
    own = pd.DataFrame(records)[["question_id", "question", "references"]]
    own = own.join(pd.DataFrame([own_values(n, shift) for n in range(12)]))
    with pytest.warns(UserWarning, match="own_ before names"):
        run = import_answers(records, questions=own)
    pd.testing.assert_frame_equal(evaluation.evaluate(run).scores({"PRO": 0.4}), alone)


def test_scores_made_elsewhere_stand_beside_ours_of_the_same_name_and_follow_their_question():
    names = ("NLL", "PRO", "PRO, default", "oracle", "Stated")
    records = []
    for n in range(9):
        record = {"question_id": n, "references": ["a"], "scores": dict.fromkeys(names, float(n))}
        records.append(record | {"answers": [{"text": "ab"[n % 2], "log_prob": -1.0 - n}]})
    asked = {"question": [f"What is {n}?" for n in range(9)], "references": [["a"]] * 9}
    turned = pd.DataFrame({"question_id": list(map(str, range(9))), **asked})[::-1]
    for questions, expected in ((None, np.arange(9.0)), (turned, np.arange(9.0)[::-1])):
        judged = evaluation.evaluate(import_answers(records, questions=questions))
        methods = judged.scores({"PRO": 0.4, "PRO, default": 0.4})
        given = ["NLL, given", "PRO, given", "PRO, default, given", "oracle, given", "Stated"]
        assert methods.columns.drop(["PRO", "PRO, default", "NLL"]).tolist() == given
        for name in given:
            assert methods[name].tolist() == expected.tolist()
        assert methods["NLL"].tolist() == (1 + expected).tolist()


SOURCES = {
    "twice": pd.DataFrame([list("abb")], columns=["question", *["answer"] * 2]),
    ".own_status. twice": [row | {"status": 1, "own_status": 2} for row in FACTS],
    "not a text": pd.DataFrame(FACTS).assign(n=1).rename(columns={"n": 0}),
    "1, whose name is not a text": [row | {1: 2} for row in FACTS],
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("words", SOURCES)
def test_columns_without_a_name_of_their_own_are_refused(words):
    with pytest.raises(SentenceError, match=rf"has the column .*{words}"):
        load_questions(path=SOURCES[words])


def test_answers_with_a_column_twice_are_refused(tmp_path):
    (tmp_path / "answers.csv").write_text("question_id,answer,response,log_prob\nq,a,b,-1\n")
    with pytest.raises(SentenceError, match=r"has the column 'text' twice"):
        import_answers(tmp_path / "answers.csv")
