"""Runs: log-probabilities, conventions, distinct answers, the most probable one, selection."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pro_lib import import_answers, read_run, scoring
from pro_lib.common.files import RunError
from pro_lib.runs import storage
from pro_lib.runs.run import most_probable_answers
from pro_lib.runs.storage import Cost, RunFolder, RunInfo, part_table

NAN = np.nan
COLUMNS = ("text", "token_ids", "token_log_probs", "end_log_prob", "finished")
# Three questions: "a" has an answer of each kind, "b" nothing that ended, "c" the same answer
# twice.
ANSWERS = [
    ("a", "Paris", [5], [-1.0], -0.5, True),
    # Its last token carries text and the line's end
    (
        "a",
        "Paris, France",
        [5, 6],
        [-1.0, -0.25],
        None,
        True,
    ),
    ("a", "Lyon", [7], [-2.0], -1.0, True),
    ("a", "Pa Pa Pa", [8, 9, 9], [-0.1, -0.1, -0.1], 0.0, False),
    ("b", "Pa Pa Pa", [8, 9, 9], [-0.1, -0.1, -0.1], 0.0, False),
    ("c", "Rome", [4], [-0.25], -0.25, True),
    ("c", "Rome", [4], [-0.25], -0.25, True),
]


def run_of(rows, ids="abc"):
    """Return a run of answers, each given with its question.

    If an answer does not have an ending, the last token includes it.
    """
    records = {
        name: {"question_id": name, "question": f"{name}?", "split": "test", "answers": []}
        for name in ids
    }
    for name, *values in rows:
        answer = dict(zip(COLUMNS, values, strict=True))
        records[name]["answers"].append(answer | {"closed": answer["end_log_prob"] is None})
    return import_answers([*records.values()])


def means(run, **options):
    return run.matrix(run.ranked_answers(**options), "mean")


def texts(table):
    return table["text"].fillna("-").tolist()


def records_run(*answers):
    return import_answers([{"question_id": "a", "answers": list(answers)}])


@pytest.fixture
def run():
    return run_of(ANSWERS)


def test_both_conventions_by_hand(run):
    """The ending counts as a token unless the last token includes it; repeats may be kept."""
    np.testing.assert_array_equal(means(run), [[-0.625, -0.75, -1.5], [NAN] * 3, [-0.25, NAN, NAN]])
    of_tokens = means(run, convention="answer_tokens")
    np.testing.assert_array_equal(of_tokens, [[-1.0, -0.625, -2.0], [NAN] * 3, [-0.25, NAN, NAN]])
    np.testing.assert_array_equal(means(run, distinct=False)[2], [-0.25, -0.25, NAN])
    np.testing.assert_array_equal(means(run_of([("a", "", [], [], -0.75, True)], "a")), [[-0.75]])
    for ending in (0.0, -1e-9):  # a certain ending is an event, as a nearly certain one is
        run = records_run({"token_log_probs": [-0.5, -0.25], "end_log_prob": ending})
        np.testing.assert_allclose(means(run), [[-0.25]], atol=1e-8)


TOKENS = st.lists(st.integers(1, 2), max_size=2)
PROBS = st.sampled_from([-0.25, -0.5, -1.0])
ROWS = st.tuples(
    st.sampled_from("abc"), st.just("x"), TOKENS, PROBS, st.none() | PROBS, st.booleans()
)


@pytest.mark.filterwarnings("ignore:.*all log-probabilities are exactly 0")
@given(st.lists(ROWS, min_size=1, max_size=12), st.booleans(), st.booleans())
def test_log_probs_agree_with_a_loop_over_the_answers(rows, distinct, complete):
    rows = [
        (name, text, ids, [p] * len(ids), end if ids else p, done)
        for name, text, ids, p, end, done in rows
    ]
    expected = []
    for question_id in "cab":
        own = [row for row in rows if row[0] == question_id and row[-1]]
        values = [
            (sum(log_probs) + (end or 0) * complete, ids) for _, _, ids, log_probs, end, _ in own
        ]
        values.sort(key=lambda pair: -pair[0])
        distinct_ones = [
            v for n, (v, ids) in enumerate(values) if ids not in [i for _, i in values[:n]]
        ]
        expected.append(distinct_ones if distinct else [v for v, _ in values])
    convention = "complete" if complete else "answer_tokens"
    matrix = run_of(rows, "cab").log_probs(convention=convention, distinct=distinct)
    assert matrix.shape == (3, max(1, *map(len, expected)))
    assert [[value for value in row if not np.isnan(value)] for row in matrix.tolist()] == expected


# The same text from other tokens is another answer; the same tokens are the same, whatever their
# numbers say.
IDS_FIRST = [
    {"token_ids": [1, 2], "text": "x"},
    {"token_ids": [3], "text": "x"},
    {"token_ids": [1, 2], "text": "y"},
]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (IDS_FIRST, [-1, -2]),
        ([{"log_prob": -1}, {"log_prob": -2}, {"log_prob": -1}], [-1, -2]),
        ([{"text": "x"}, {}, {}, {"text": "x"}], [-1, -2, -3]),
        ([{"token_ids": [1]}, {}, {"text": "x"}, {"token_ids": [1]}], [-1, -2, -3]),
        # Without ids and texts, answers of one probability and another length are two.
        ([{"log_prob": -0.1, "mean_log_prob": -0.1 / n} for n in (2, 3, 2)], [-0.1, -0.1]),
    ],
)
def test_distinct_goes_by_ids_then_text_then_log_probability(answers, expected):
    run = records_run(*({"log_prob": -1 - n, **answer} for n, answer in enumerate(answers)))
    np.testing.assert_array_equal(run.log_probs(), [expected])
    assert run.log_probs(distinct=False).shape == (1, len(answers))
    assert "index" not in run.ranked_answers()


def test_top_is_the_most_probable_finished_answer_and_missing_where_there_is_none(run):
    complete, answer_tokens = run.top(), run.top(convention="answer_tokens")
    assert complete["question_id"].tolist() == ["a", "b", "c"]
    assert texts(complete) == ["Paris, France", "-", "Rome"]
    assert texts(answer_tokens) == ["Paris", "-", "Rome"]
    np.testing.assert_array_equal(complete["value"], [-1.25, NAN, -0.5])
    np.testing.assert_array_equal(answer_tokens["value"], [-1.0, NAN, -0.25])
    judged = {"text": "y", "rouge_l": 0.1, "correct": False}
    less = {"text": "x", "log_prob": -2, "rouge_l": 0.9, "correct": True}
    [row] = records_run(less, judged | {"log_prob": -1}).top().to_dict("records")
    assert row == judged | {"question_id": "a", "value": -1.0}


def test_most_probable_takes_each_answer_from_the_run_that_found_the_best(run):
    rows = [("b", "Oslo", [1], [-1.0], -1.0, True), ("c", "Milan", [2], [-0.5], -0.5, True)]
    other = run_of([*rows, ("a", "Nice", [3], [-0.5], -0.25, True)])
    for tops in ([run.top(), other.top()], [other.top(), run.top()]):
        best = most_probable_answers(tops)
        assert best["question_id"].tolist() == ["a", "b", "c"]
        assert texts(best) == ["Nice", "Oslo", "Rome"]
        assert best["value"].tolist() == [-0.75, -2.0, -0.5]


def test_scores_are_a_row_per_question_with_its_answer_and_what_pro_read(run):
    table = run.scores(alpha=0.2)
    assert table["question"].tolist() == ["a?", "b?", "c?"]
    assert texts(table) == ["Paris, France", "-", "Rome"]
    log_probs = np.array([[-1.25, -1.5, -3.0], [NAN] * 3, [-0.5, NAN, NAN]])
    expected = [scoring.pro(log_probs, alpha=0.2), scoring.nll(log_probs)]
    np.testing.assert_allclose(table[["pro", "nll"]].T, expected)
    assert table["n_kept"].tolist() == [2, 0, 1]  # exp(-1.5) = 0.22 and exp(-3) = 0.05
    np.testing.assert_allclose(table["mass"], np.nansum(np.exp(log_probs), axis=1))


def test_select_by_split_and_by_ids_in_the_order_named(run):
    both = replace(run, questions=run.questions.assign(split=["test", "test", "validation"]))
    assert both.select(split="validation").answers["text"].tolist() == ["Rome", "Rome"]
    turned = both.select(question_ids=["c", "a"])
    assert turned.questions["question_id"].to_dict() == {0: "c", 1: "a"}
    np.testing.assert_array_equal(turned.log_probs(), [[-0.5, NAN, NAN], [-1.25, -1.5, -3.0]])
    assert both.select(question_ids=[]).log_probs().shape == (0, 1)


REFUSED = [
    ("select", {"split": "dev"}, r"has no question of split 'dev' \(it has 'test'\)"),
    ("select", {"split": "test", "question_ids": ["a", "z"]}, "has no question 'z'"),
    ("entropy", {}, "no samples of the model itself"),
    ("log_probs", {"convention": "raw"}, "convention='raw' is unknown"),
]


def test_what_a_run_does_not_have_is_refused(run):
    for call, options, words in REFUSED:
        with pytest.raises(ValueError, match=words):
            getattr(run, call)(**options)
    unknown_endings = records_run({"log_prob": -1, "end_log_prob": -0.5}, {"log_prob": -2})
    with pytest.raises(
        RunError, match="run records/records/records has no separate log-probability for the end"
    ):
        unknown_endings.log_probs(convention="answer_tokens")


def test_an_unfinished_run_is_read_as_far_as_it_got_with_a_warning(run, tmp_path):
    with RunFolder(tmp_path, RunInfo("set", "model", "greedy", {"seed": 0})) as folder:
        part, rows = next(iter(folder.missing(run.questions, per_part=2).items()))
        storage.write_part(
            folder.path, part, folder.info, part_table(rows, [[], []], [None, None]), Cost()
        )
    with pytest.warns(
        UserWarning, match="holds 2 of the 3 questions planned; run the generation again"
    ):
        unfinished = read_run(tmp_path)
    assert (unfinished.name, unfinished.questions["question_id"].tolist()) == (
        "set/model/greedy",
        ["a", "b"],
    )
    np.testing.assert_array_equal(unfinished.log_probs(), [[NAN], [NAN]])  # nothing was answered


def test_the_entropy_of_samples_is_the_mean_along_them_with_students_limits():
    rows = [("a", "x", [1], [-1.0], -0.5, True)] * 3 + [("b", "y", [2], [-1.0], 0.0, False)] * 3
    run = run_of(rows, "ab")
    run = replace(run, answers=run.answers.assign(path_entropy=[2.0, 4.0, 3.0, 0.0, 0.0, 0.0]))
    estimate, low, high = run.entropy().to_numpy().T
    # The variance of 2, 4, 3 is 1, Student's factor for two degrees 4.3027
    half = 4.30265 / np.sqrt(3)
    assert estimate.tolist() == [3.0, 0.0]
    assert low == pytest.approx([3 - half, 0.0], abs=1e-4)
    assert high == pytest.approx([3 + half, 0.0], abs=1e-4)


def test_a_run_of_other_questions_than_its_answers_or_of_equal_ids_is_refused(run):
    lost = "has answers to question 'a', which is not among its questions; use Run.select"
    equal = "has two questions with question_id 'a'; ids must be unique"
    of_equal_ids = run.questions.assign(question_id=["a", "a", "c"])
    for questions, words in ((run.questions.iloc[1:], lost), (of_equal_ids, equal)):
        with pytest.raises(RunError, match=words):
            replace(run, questions=questions)
    selected = run.select(question_ids=["b", "c"])
    assert selected.answers["question_id"].unique().tolist() == ["b", "c"]


def test_texts_without_log_probabilities_follow_the_answers_that_have_one():
    with pytest.warns(
        UserWarning, match=r"3 of 4 answers have no log-probability \(first to question .a.\)"
    ):
        run = records_run(*[{"text": text} for text in "xyy"], {"text": "z", "log_prob": -1.0})
    assert run.ranked_answers()["text"].tolist() == ["z", "y", "x"]
    np.testing.assert_array_equal(run.log_probs(), [[-1.0, NAN, NAN]])
    alone = run.as_texts()
    with pytest.raises(RunError, match="has texts without log-probabilities"):
        alone.log_probs()
    assert [run.n_with_log_probs(), alone.n_with_log_probs(), alone.is_texts] == [1, 0, True]
    assert alone.top()["text"].tolist() == ["y"]


BY_MEAN = [{"log_prob": -1.0, "mean_log_prob": mean} for mean in (-0.25, -0.5)]


@pytest.mark.filterwarnings("ignore:.*no log-probability")
@pytest.mark.parametrize(
    ("answers", "column", "expected"),
    [
        ([{"text": text, "log_prob": -1.0} for text in "yx"], "text", ["x", "y"]),
        (BY_MEAN, "mean", [-0.5, -0.25]),
        ([*BY_MEAN, {"text": "x"}], "mean", [-0.5, -0.25]),
    ],
)
def test_answers_of_equal_probability_are_ranked_by_text_then_mean(answers, column, expected):
    assert records_run(*answers).ranked_answers()[column].tolist()[:2] == expected
