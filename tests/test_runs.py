"""Runs of any origin: log-probabilities, conventions, distinct answers, the most probable one, selecting, reading."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from pro_lib import imports, scores, store
from pro_lib import runs as run_tables
from pro_lib.files import RunError
from pro_lib.runs import Run, most_probable
from pro_lib.store import Cost, RunFolder, RunInfo, part_table, tables

NAN = np.nan
INFO = RunInfo("set", "model", "greedy", {"seed": 0})
COLUMNS = ("question_id", "text", "token_ids", "token_log_probs", "end_log_prob", "finished")
# Three questions: "a" has an answer of each kind, "b" nothing that ended, "c" the same answer twice.
ANSWERS = [
    ("a", "Paris", [5], [-1.0], -0.5, True),
    ("a", "Paris, France", [5, 6], [-1.0, -0.25], None, True),  # its last token carries text and the line's end
    ("a", "Lyon", [7], [-2.0], -1.0, True),
    ("a", "Pa Pa Pa", [8, 9, 9], [-0.1, -0.1, -0.1], 0.0, False),
    ("b", "Pa Pa Pa", [8, 9, 9], [-0.1, -0.1, -0.1], 0.0, False),
    ("c", "Rome", [4], [-0.25], -0.25, True),
    ("c", "Rome", [4], [-0.25], -0.25, True),
]


def part_of(rows, questions):
    """The table of a part: the questions, and those of the rows that answer one of them."""
    answers = {name: [] for name in questions["question_id"]}
    for row in rows:
        record = dict(zip(COLUMNS, row, strict=True))
        answers.get(record["question_id"], []).append(record | {"log_prob": sum(record["token_log_probs"])})
    return part_table(questions, answers.values(), [None] * len(questions))


def question_table(ids, split="test"):
    rows = [{"question_id": name, "question": f"{name}?", "references": [name], "split": split} for name in ids]
    return pd.DataFrame(rows, columns=["question_id", "question", "references", "split"])


def run_of(rows, ids="abc"):
    return Run(*tables([part_of(rows, question_table(ids))]), INFO)


def means(run, **options):
    return run.matrix(run.ranked(**options), "mean")


@pytest.fixture
def run():
    return run_of(ANSWERS)


def test_both_conventions_by_hand(run):
    complete = [[-1.25, -1.5, -3.0], [NAN, NAN, NAN], [-0.5, NAN, NAN]]
    answer_tokens = [[-1.0, -1.25, -2.0], [NAN, NAN, NAN], [-0.25, NAN, NAN]]
    np.testing.assert_array_equal(run.log_probs(), complete)
    np.testing.assert_array_equal(run.log_probs(convention="answer_tokens"), answer_tokens)


def test_the_ending_counts_as_a_token_unless_the_last_token_carried_it(run):
    complete = [[-1.25 / 2, -1.5 / 2, -3.0 / 2], [NAN, NAN, NAN], [-0.5 / 2, NAN, NAN]]
    answer_tokens = [[-1.0, -1.25 / 2, -2.0], [NAN, NAN, NAN], [-0.25, NAN, NAN]]
    np.testing.assert_array_equal(means(run), complete)
    np.testing.assert_array_equal(means(run, convention="answer_tokens"), answer_tokens)


@pytest.mark.parametrize("ending", [0.0, -1e-9])
def test_a_certain_ending_is_an_event_as_a_nearly_certain_one_is(tmp_path, ending):
    answer = {"token_log_probs": [-0.5, -0.25], "end_log_prob": ending}
    runs = run_of([("a", "Rome", [4, 5], [-0.5, -0.25], ending, True)], "a"), records_run(tmp_path, answer)
    for run in runs:
        np.testing.assert_allclose(means(run), [[-0.25]], atol=1e-8)
        assert run.answers["end_log_prob"].tolist() == [ending]


def test_a_last_token_that_is_known_to_carry_the_ending_leaves_nothing_unknown(tmp_path):
    run = records_run(tmp_path, {"token_log_probs": [-0.5, -0.25], "closed": True})
    for convention in ("complete", "answer_tokens"):
        np.testing.assert_array_equal(run.log_probs(convention=convention), [[-0.75]])
        np.testing.assert_array_equal(means(run, convention=convention), [[-0.375]])


def test_repeats_are_kept_when_asked_for(run):
    np.testing.assert_array_equal(run.log_probs(distinct=False)[2], [-0.5, -0.5, NAN])
    np.testing.assert_array_equal(means(run, distinct=False)[2], [-0.25, -0.25, NAN])


def test_answers_cut_by_length_never_count():
    for distinct in (True, False):
        np.testing.assert_array_equal(run_of(ANSWERS[3:5], "ab").log_probs(distinct=distinct), [[NAN], [NAN]])


def test_an_answer_without_tokens_is_its_ending():
    run = run_of([("a", "", [], [], -0.75, True)], "a")
    for matrix in (run.log_probs(), means(run)):
        np.testing.assert_array_equal(matrix, [[-0.75]])


def records_run(tmp_path, *answers):
    path = tmp_path / "answers.jsonl"
    frame = pd.DataFrame({"question_id": ["a"], "answers": [list(answers)]})
    frame.to_json(path, orient="records", lines=True)
    return imports.from_records(path)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        # The same text from other tokens is another answer; the same tokens are the same, whatever their numbers say.
        (
            [{"token_ids": [1, 2], "text": "x"}, {"token_ids": [3], "text": "x"}, {"token_ids": [1, 2], "text": "y"}],
            [-1, -2],
        ),
        ([{"text": "x"}, {"text": "y"}, {"text": "x"}], [-1, -2]),
        ([{"log_prob": -1}, {"log_prob": -2}, {"log_prob": -1}], [-1, -2]),
        ([{"text": "x"}, {}, {}, {"text": "x"}], [-1, -2, -3]),
        ([{"token_ids": [1]}, {}, {"text": "x"}, {"token_ids": [1]}], [-1, -2, -3]),
    ],
    ids=["token ids", "text", "log-probability", "text for some", "ids for some"],
)
def test_distinct_goes_by_ids_then_text_then_log_probability(tmp_path, answers, expected):
    run = records_run(tmp_path, *({"log_prob": -1 - n, **answer} for n, answer in enumerate(answers)))
    np.testing.assert_array_equal(run.log_probs(), [expected])
    assert run.log_probs(distinct=False).shape == (1, len(answers))


def test_answer_tokens_is_refused_where_the_endings_are_unknown(tmp_path):
    run = records_run(tmp_path, {"log_prob": -1, "end_log_prob": -0.5}, {"log_prob": -2})
    for ask in (run.log_probs, run.ranked, run.top):
        with pytest.raises(RunError, match="run answers/records/records does not say what its endings cost"):
            ask(convention="answer_tokens")


def test_an_unknown_convention_is_refused(run):
    with pytest.raises(ValueError, match="convention='raw' is unknown; choose complete or answer_tokens"):
        run.log_probs(convention="raw")


def test_top_is_the_most_probable_finished_answer_and_missing_where_there_is_none(run):
    complete, answer_tokens = run.top(), run.top(convention="answer_tokens")
    assert complete.columns.tolist() == ["question_id", "text", "value"]
    assert complete["question_id"].tolist() == ["a", "b", "c"]
    assert complete["text"].fillna("-").tolist() == ["Paris, France", "-", "Rome"]
    assert answer_tokens["text"].fillna("-").tolist() == ["Paris", "-", "Rome"]
    np.testing.assert_array_equal(complete["value"], [-1.25, NAN, -0.5])
    np.testing.assert_array_equal(answer_tokens["value"], [-1.0, NAN, -0.25])


def test_top_brings_what_records_know_of_its_correctness(tmp_path):
    run = records_run(
        tmp_path,
        {"text": "x", "log_prob": -2, "rouge_l": 0.9, "correct": True},
        {"text": "y", "log_prob": -1, "rouge_l": 0.1, "correct": False},
    )
    assert run.top().to_dict("records") == [
        {"question_id": "a", "text": "y", "value": -1.0, "rouge_l": 0.1, "correct": False}
    ]


def test_scores_are_a_row_per_question_with_its_answer_and_what_pro_read(run):
    # p = 0.5, 0.25 and the first of them twice; nothing of "b" ended; "c" is cut to one answer of p = 1/4.
    rows = [("a", "Lima", [1], [np.log(0.5)], 0.0, True), ("a", "Quito", [2], [np.log(0.25)], 0.0, True), ANSWERS[4]]
    run = run_of([*rows, rows[0], ("c", "Rome", [4], [np.log(0.25)], 0.0, True)])
    table = run.scores(alpha=0.25)
    assert table.columns.tolist() == ["question_id", "question", "text", "pro", "nll", "n_kept", "mass"]
    assert table["question"].tolist() == ["a?", "b?", "c?"]
    assert table["text"].fillna("-").tolist() == ["Lima", "-", "Rome"]
    # PRO_2 = -log 0.25 - 0.5 log(0.5 / 0.25) - 0.25 log 1 = 1.5 log 2
    np.testing.assert_allclose(table["pro"], [1.5 * np.log(2), NAN, np.log(4)])
    np.testing.assert_allclose(table["nll"], [np.log(2), NAN, np.log(4)])
    assert (table["n_kept"].tolist(), table["mass"].tolist()) == ([2, 0, 1], pytest.approx([0.75, 0.0, 0.25]))
    assert run.scores(alpha=0.5)["n_kept"].tolist() == [1, 0, 1]
    with pytest.warns(scores.PremiseWarning, match="^1 of 3 questions"):
        assert run.scores(alpha=0.25, distinct=False)["mass"].tolist() == pytest.approx([1.25, 0.0, 0.25])


def test_a_run_shows_what_it_is_and_its_answers_beside_their_questions(run):
    table = run.to_df()
    assert table["question_id"].tolist() == [*"aaaabcc"]
    assert table["question"].tolist() == [f"{name}?" for name in "aaaabcc"]
    assert table["text"].tolist() == run.answers["text"].tolist()
    unanswered = replace(run, answers=run.answers[run.answers["question_id"] != "b"]).to_df()
    assert unanswered["text"].fillna("-").tolist()[4] == "-"
    odd = run.questions.assign(text="of the question", question="<b>&$")
    assert replace(run, questions=odd).to_df()[["text_of_question", "text"]].iloc[0].tolist() == [
        "of the question",
        "Paris",
    ]
    assert repr(run) == "Run(set/model/greedy: 3 questions, 7 answers)"
    shown = replace(run, questions=odd, info=replace(INFO, model="<i>"))._repr_html_()
    assert shown.startswith("<p>Run(set/&lt;i&gt;/greedy: 3 questions, 7 answers)</p><table")
    assert "&lt;b&gt;&amp;$" in shown
    assert "<b>" not in shown


def test_ranked_lists_answers_by_question_and_downwards(run):
    ranked = run.ranked()
    assert ranked["text"].tolist() == ["Paris, France", "Paris", "Lyon", "Rome"]
    assert ranked["row"].tolist() == [0, 0, 0, 2]
    assert ranked["value"].tolist() == [-1.25, -1.5, -3.0, -0.5]
    assert ranked["mean"].tolist() == [-0.625, -0.75, -1.5, -0.25]
    assert ranked.index.tolist() == [0, 1, 2, 3]
    assert len(run.ranked(distinct=False)) == 5


def test_most_probable_takes_each_answer_from_the_run_that_found_the_best(run):
    other = run_of(
        [
            ("b", "Oslo", [1], [-1.0], -1.0, True),
            ("c", "Milan", [2], [-0.5], -0.5, True),
            ("a", "Nice", [3], [-0.5], -0.25, True),
        ],
        "cba",
    )
    other = other.select(question_ids=list("abc"))
    best = most_probable([run.top(), other.top()])
    assert best["question_id"].tolist() == ["a", "b", "c"]
    assert best["text"].tolist() == ["Nice", "Oslo", "Rome"]
    assert best["value"].tolist() == [-0.75, -2.0, -0.5]
    assert most_probable([other.top(), run.top()])["text"].tolist() == ["Nice", "Oslo", "Rome"]


def test_most_probable_is_missing_where_no_run_has_an_answer(run):
    best = most_probable([run.top(), run.top()])
    assert best["text"].fillna("-").tolist() == ["Paris, France", "-", "Rome"]
    np.testing.assert_array_equal(best["value"], [-1.25, NAN, -0.5])


def test_most_probable_takes_runs_that_know_more_of_an_answer_than_others(tmp_path):
    judged = records_run(tmp_path, {"text": "x", "log_prob": -2, "rouge_l": 0.9})
    best = most_probable([judged.top(), run_of(ANSWERS[:1], "a").top()])
    assert best["text"].tolist() == ["Paris"]
    assert best["rouge_l"].isna().tolist() == [True]
    assert most_probable([judged.top(), run_of(ANSWERS[3:4], "a").top()])["rouge_l"].tolist() == [0.9]


def test_select_by_split_and_by_ids_in_the_order_named(run):
    both = Run(run.answers, pd.concat([question_table("ab"), question_table("c", "validation")]), INFO)
    assert both.select(split="validation").questions["question_id"].tolist() == ["c"]
    assert both.select(split="validation").answers["text"].tolist() == ["Rome", "Rome"]
    turned = both.select(question_ids=["c", "a"])
    assert turned.questions["question_id"].tolist() == ["c", "a"]
    assert turned.questions.index.tolist() == [0, 1]
    np.testing.assert_array_equal(turned.log_probs(), [[-0.5, NAN, NAN], [-1.25, -1.5, -3.0]])
    np.testing.assert_array_equal(both.select(split="test", question_ids=["b"]).log_probs(), [[NAN]])
    assert both.select(question_ids=[]).log_probs().shape == (0, 1)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"split": "dev"}, r"has no question of split 'dev' \(it has 'test'\)"),
        ({"question_ids": ["a", "z"]}, "has no question 'z'"),
        ({"question_ids": ["a", "b", "a"]}, "is asked for a question more than once"),
        ({"split": "test", "question_ids": ["z"]}, "has no question 'z'"),
    ],
)
def test_select_refuses_what_the_run_does_not_have(run, asked, sentence):
    with pytest.raises(RunError, match="run set/model/greedy " + sentence):
        run.select(**asked)


def write_run(path, *, parts=None):
    with RunFolder(path, INFO) as folder:
        for part in folder.missing(question_table("abc"), per_part=2)[:parts]:
            store.write_part(folder.path, part, folder.info, part_of(ANSWERS, part.questions), Cost())
        if parts is None:
            folder.finish({"device": "cpu"})


def test_what_a_run_folder_holds_is_what_was_written(tmp_path, run):
    write_run(tmp_path)
    stored = run_tables.read(tmp_path)
    assert_frame_equal(stored.questions, run.questions)
    assert_frame_equal(stored.answers, run.answers)
    np.testing.assert_array_equal(stored.log_probs(), run.log_probs())
    assert stored.name == "set/model/greedy"


def test_an_unfinished_run_is_read_as_far_as_it_got_with_a_warning(tmp_path):
    write_run(tmp_path, parts=1)
    with pytest.warns(UserWarning, match="holds 2 of the 3 questions planned; run the generation again"):
        run = run_tables.read(tmp_path)
    assert run.questions["question_id"].tolist() == ["a", "b"]


def test_the_entropy_of_samples_is_the_mean_along_them_with_students_limits():
    rows = [("a", "x", [1], [-1.0], -0.5, True)] * 3 + [("b", "y", [2], [-1.0], 0.0, False)] * 3
    run = run_of(rows, "ab")
    with pytest.raises(RunError, match="no samples of the model itself"):
        run.entropy()
    run = replace(run, answers=run.answers.assign(path_entropy=[2.0, 4.0, 3.0, 0.0, 0.0, 0.0]))
    estimate, low, high = run.entropy()
    half = 4.30265 / np.sqrt(3)  # the variance of 2, 4, 3 is 1, Student's factor for two degrees 4.3027
    assert estimate.tolist() == [3.0, 0.0]
    assert low == pytest.approx([3 - half, 0.0], abs=1e-4)
    assert high == pytest.approx([3 + half, 0.0], abs=1e-4)


TOKENS = st.lists(st.integers(1, 2), max_size=2)
PROBS = st.sampled_from([-0.25, -0.5, -1.0])
ROWS = st.tuples(st.sampled_from("abc"), st.just("x"), TOKENS, PROBS, PROBS, st.booleans())


@given(st.lists(ROWS, max_size=12), st.booleans(), st.booleans())
def test_log_probs_agree_with_a_loop_over_the_answers(rows, distinct, complete):
    rows = [(name, text, ids, [each] * len(ids), end, ended) for name, text, ids, each, end, ended in rows]
    expected = []
    for question_id in "cab":
        values = []
        for name, _, ids, log_probs, end, ended in rows:
            if name == question_id and ended:
                values.append((sum(log_probs) + end * complete, ids))
        values.sort(key=lambda pair: -pair[0])
        kept = [v for n, (v, ids) in enumerate(values) if not distinct or ids not in [i for _, i in values[:n]]]
        expected.append(kept)
    convention = "complete" if complete else "answer_tokens"
    matrix = run_of(rows, "cab").log_probs(convention=convention, distinct=distinct)
    assert matrix.shape == (3, max(1, *map(len, expected)))
    assert [[value for value in row if not np.isnan(value)] for row in matrix.tolist()] == expected


def test_texts_stand_where_their_log_probabilities_do(run):
    for options in ({}, {"distinct": False}, {"convention": "answer_tokens"}):
        ranked = run.ranked(**options)
        texts, values = run.matrix(ranked, "text", None), run.log_probs(**options)
        assert texts.shape == values.shape
        np.testing.assert_array_equal(pd.isna(texts), np.isnan(values))
        for row, text, value in zip(ranked["row"], ranked["text"], ranked["value"], strict=True):
            assert value in values[row][texts[row] == text]


def test_a_file_is_read_by_what_its_first_entry_holds(tmp_path):
    token = {"token": "yes", "logprob": -0.5}
    choice = {"message": {"content": "yes"}, "finish_reason": "stop", "logprobs": {"content": [token]}}
    output = {"text": "yes", "token_ids": [7], "cumulative_logprob": -0.5, "finish_reason": "stop"}
    files = {
        "records": {"question_id": "a", "answers": [{"log_prob": -0.5, "text": "yes"}]},
        "openai": {"question_id": "a", "response": {"choices": [choice]}},
        "vllm": {"question_id": "a", "prompt": "?", "outputs": [output]},
    }
    for name, content in files.items():
        path = tmp_path / f"{name}.jsonl"
        path.write_text(json.dumps(content) + "\n")
        run = imports.from_file(path)
        assert run.info.model == name
        np.testing.assert_allclose(run.log_probs(), [[-0.5]])
    path.write_text('{"something": 1}')
    with pytest.raises(RunError, match=r"vllm.jsonl, line 1: neither answers \(our records\), nor choices"):
        imports.from_file(path)
