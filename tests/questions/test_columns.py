"""Test that a question set's own columns break nothing and change no number."""

import json

import numpy as np
import pandas as pd
import pytest

from pro_lib import evaluation, generation, importing, runs
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
KINDS = {
    "whole numbers": lambda n: n,
    "numbers": lambda n: [n + 0.5, float("inf")][n % 2],
    "texts": lambda n: f"t{n}",
    "booleans": lambda n: n % 2 == 0,
    "nothing": lambda n: None,
    "lists": lambda n: [0.5] * n,
    "objects": lambda n: [{}, {"a": n}, {"b": [n]}][n % 3],
    "several": lambda n: [1, "x", [1], {"k": 2}, None, 2.5][n % 6],
    "another kind later": lambda n: n if n < 6 else f"t{n}",
    "some missing": lambda n: None if n % 3 else n,
}
FACTS = (
    question_sets.load_questions("world-facts", limit=12, n_shots=0)
    .table[list(question_sets.QUESTION_COLUMNS)]
    .to_dict("records")
)
SHOWN = ("exposure", "conflict", "note")  # of a question, by the explorer


def results(model, rows, out):
    """Return the output of search, evaluation, sweeps and explorer for the questions."""
    for n in (len(rows) // 2, len(rows)):
        questions = question_sets.load_questions("mine", path=rows[:n], split=None, n_shots=0)
        how = {"strategy": "threshold", "search_alpha": 0.05, "out": out, "progress": False}
        asked = generation.generate(model, questions, **how)
    [folder] = (out / "mine" / model.name).iterdir()
    read, judged = runs.read_run(folder), evaluation.evaluate(asked)
    splits = evaluation.Splits(judged, judged, n_validation=None)
    benchmark.table([splits]), explorer.to_html(read, out / "page.html")
    data = explorer.run_data(read)
    # A column "relation" declares clusters, which the ends of intervals depend on.
    data.pop("sweeps")
    for question in data["questions"]:
        for name in SHOWN:
            question.pop(name, None)
    sweep = alpha_sweep.rows_at(judged)[["alpha", "auroc", "mean_k"]]
    tables = [asked.answers, read.answers, judged.with_pro({"PRO": 0.4}), sweep]
    tables += [
        run.questions[[*question_sets.QUESTION_COLUMNS, *storage.CERTIFICATE_COLUMNS]]
        for run in (asked, read)
    ]
    return [
        json.dumps(data),
        *(table.to_json(double_precision=15) for table in tables),
    ], read.questions


@pytest.fixture(scope="module")
def clean(facts_2m, tmp_path_factory):
    return results(facts_2m, FACTS, tmp_path_factory.mktemp("clean"))[0]


@pytest.mark.parametrize("kind", KINDS)
def test_own_columns_of_any_name_and_kind_move_nothing_and_come_back(
    facts_2m, clean, tmp_path, kind
):
    rows = [row | dict.fromkeys(NAMES, KINDS[kind](n)) for n, row in enumerate(FACTS)]
    with pytest.warns(UserWarning, match="get own_ before names that runs need: status, "):
        said, questions = results(facts_2m, rows, tmp_path)
    assert said == clean
    own = {f"own_{name}" for name in TAKEN} | {*NAMES} - {*TAKEN}
    assert set(questions) == own | {*question_sets.QUESTION_COLUMNS, *storage.CERTIFICATE_COLUMNS}
    for name in ("own_status", "_answers", "relation"):
        for n, value in enumerate(questions[name].tolist()):
            given = KINDS[kind](n)
            assert value == given or (given is None and pd.isna(value)), (name, n)


@pytest.mark.parametrize("kind", KINDS)
def test_questions_beside_records_may_have_such_columns_too(kind):
    answers = [
        [{"text": "ab"[n % 2], "log_prob": -1 - n / 9}, {"text": "c", "log_prob": -3.0}]
        for n in range(12)
    ]
    ids = [{"question_id": str(n), "question": f"Q{n}", "references": ["a"]} for n in range(12)]
    records = [ids[n] | {"answers": answers[n], "scores": {"x": n}} for n in range(12)]
    alone = evaluation.evaluate(importing.from_records(records)).with_pro({"PRO": 0.4})
    own = pd.DataFrame(
        [about | dict.fromkeys(NAMES, KINDS[kind](n)) for n, about in enumerate(ids)]
    )
    with pytest.warns(UserWarning, match="own_ before names"):
        run = importing.from_records(records, questions=own)
    pd.testing.assert_frame_equal(evaluation.evaluate(run).with_pro({"PRO": 0.4}), alone)


def test_scores_made_elsewhere_stand_beside_ours_of_the_same_name_and_follow_their_question():
    names = ("NLL", "PRO", "PRO, default", "oracle", "Stated")
    records = []
    for n in range(9):
        record = {"question_id": n, "references": ["a"], "scores": dict.fromkeys(names, float(n))}
        records.append(record | {"answers": [{"text": "ab"[n % 2], "log_prob": -1.0 - n}]})
    ids = list(map(str, range(9)))
    asked = {"question_id": ids, "question": [f"What is {n}?" for n in ids]}
    turned = pd.DataFrame({**asked, "references": [["a"]] * 9})[::-1]
    for questions, expected in ((None, np.arange(9.0)), (turned, np.arange(9.0)[::-1])):
        judged = evaluation.evaluate(importing.from_records(records, questions=questions))
        methods = judged.with_pro({"PRO": 0.4, "PRO, default": 0.4})
        given = ["NLL, given", "PRO, given", "PRO, default, given", "oracle, given", "Stated"]
        computed = ["PRO", "PRO, default", "NLL"]
        assert methods.columns.drop(computed).tolist() == given
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
def test_columns_without_a_name_of_their_own_are_refused_in_a_sentence(tmp_path, words):
    with pytest.raises(SentenceError, match=rf"has the column .*{words}"):
        question_sets.load_questions(path=SOURCES[words])
    (tmp_path / "answers.csv").write_text("question_id,answer,response,log_prob\nq,a,b,-1\n")
    with pytest.raises(SentenceError, match=r"has the column 'text' twice"):
        importing.from_records(tmp_path / "answers.csv")
