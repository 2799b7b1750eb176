"""Labels by hand: the label file, several labellers, the plan, and the tables of estimates."""

import json
from dataclasses import replace

import numpy as np
import pytest
from invented_settings import evaluation_of

from pro_lib import metrics
from pro_lib.common.files import RunError
from pro_lib.labels import (
    Label,
    LabelPlan,
    LabelSample,
    PlannedAnswers,
    append_label,
    append_undo,
    label_table,
    labeller_agreement,
    merge_labels,
    read_label_file,
)
from pro_lib.labels.estimates import estimate_words

PLACE = {
    "dataset": "toy",
    "phase": 1,
    "probability": 0.5,
    "n_first": 2,
    "n_second": 0,
    "n_answers": 4,
    "plan": "p",
}


def label(question_id, correct, *, text="Paris", labeller="ada", **values):
    place = PLACE | {"time": "2026-01-01T00:00:00+00:00"} | values
    return Label(question_id=question_id, text=text, correct=correct, labeller=labeller, **place)


def evaluation(n=120, *, seed=0, prefix="answer"):
    """An evaluation whose judge is right four times in five, and the true labels by question."""
    rng = np.random.default_rng(seed)
    truth = rng.random(n) < 0.4
    nll = rng.normal(size=n) + 1.2 * ~truth
    verdict = truth ^ (rng.random(n) >= 0.8)
    baselines = {"NLL": nll, "SE, lexical": nll + rng.normal(size=n), "ALL": nll + 0.1}
    log_probs = np.column_stack([-np.abs(nll) - 0.1, -np.abs(nll) - 2])
    result = evaluation_of(log_probs, verdict, **baselines)
    ids = [f"q{number}" for number in range(n)]
    texts = [f"{prefix} {number}" for number in range(n)]
    answers = result.answers.assign(question_id=ids, text=texts, question=None, references=None)
    answers = answers.assign(exact_match=verdict, alias_match=verdict)
    result = replace(result, answers=answers, dataset="toy", exclusions="")
    return result, dict(zip(ids, truth.tolist(), strict=True))


def planned_answers(judged, **options):
    return PlannedAnswers(LabelPlan.create(judged, **options), judged)


def advanced(planned, labels):
    """Return the answers after their plan was advanced by these labels."""
    return planned.advance(planned.current_labels(label_table(labels)))


def label_all(planned, truth, stop=None):
    """Label the answers of a plan, and return the plan and the labels."""
    labels = []
    while stop is None or len(labels) < stop:
        n_before = len(labels)
        # `next_request` returns these one by one; see the test of a plan that is saved.
        for position, is_repetition in planned.plan.requests()[n_before:stop]:
            request = planned.request(position, is_repetition)
            labels.append(planned.label(request, truth[request.question_id], labeller="ada"))
        if len(labels) == n_before:
            break
        planned = advanced(planned, labels)
    return planned.plan, labels


def labelled(n, n_labels, stop=None):
    """Return an evaluation, a plan, and its labels."""
    judged, truth = evaluation(n)
    return judged, *label_all(planned_answers(judged, n_labels=n_labels), truth, stop)


def sample_of(plan, labels):
    return LabelSample(label_table(labels), plan)


# The label file

UNDO = None
FIRST = label("1", True)
SECOND = label("2", False)
CHANGE = label("1", None, change=True)
# By what happens: the lines of the file, and the labels that count.
LINES = {
    "labels of two": ([FIRST, label("2", True, labeller="ben"), SECOND], [True, True, False]),
    "undo": ([FIRST, SECOND, label("2", True, labeller="ben"), UNDO], [True, True]),
    "undo without a label": ([UNDO], []),
    "change": ([FIRST, SECOND, label("1", True, repetition=True), UNDO, CHANGE], [None, False]),
    "undo of a change": ([FIRST, SECOND, CHANGE, UNDO], [True, False]),
    "change of a withdrawn label": ([FIRST, UNDO, CHANGE], [None]),
    "change after the question was edited": ([FIRST, label("1", False), CHANGE], [True, None]),
}


@pytest.mark.parametrize(("lines", "expected"), LINES.values(), ids=LINES)
def test_a_label_file_returns_the_labels_that_were_not_withdrawn_or_changed(
    tmp_path, lines, expected
):
    path = tmp_path / "labels.jsonl"
    for line in lines:
        if line is UNDO:
            append_undo(path, "ada")
        else:
            append_label(path, line)
    assert read_label_file(path)["correct"].tolist() == expected
    assert len(path.read_text().splitlines()) == len(lines)


DAMAGED = ["{", '{"dataset": "toy"}', "[]", '{"undo": true}', '{"undo": false, "labeller": "me"}']


@pytest.mark.parametrize("line", DAMAGED)
def test_a_damaged_line_is_named(tmp_path, line):
    path = tmp_path / "labels.jsonl"
    append_label(path, FIRST)
    with open(path, "a") as file:
        file.write(line + "\n")
    with pytest.raises(RunError, match=r"labels.jsonl, line 2"):
        read_label_file(path)


# Several labellers


def votes_of(question_id, *votes):
    """Return labels of one answer by ada, ben and cy."""
    names = ("ada", "ben", "cy")
    return [label(question_id, vote, labeller=names[place]) for place, vote in enumerate(votes)]


JUDGE = {"labeller": "j", "adjudication": True}


@pytest.mark.parametrize(
    ("votes", "others", "correct", "is_disputed"),
    [
        ((True, True, False), None, True, True),
        ((True, False, None), None, None, True),
        ((None, None, False), None, False, False),
        ((True,), label("1", False, repetition=True), True, False),
        ((True, False, True), label("1", False, **JUDGE), False, False),
        ((True, False), label("1", None, **JUDGE), None, False),
    ],
)
def test_most_labellers_decide_and_an_adjudication_decides_alone(
    votes, others, correct, is_disputed
):
    labels = [label("2", True), *votes_of("1", *votes), *([others] if others else [])]
    merged = merge_labels(label_table(labels))
    assert merged["correct"].tolist() == [True, correct]
    assert merged["is_disputed"].tolist() == [False, is_disputed]


def test_the_agreement_of_two_labellers_and_the_consistency_of_each_by_hand():
    # Of ten answers both say right to 4 and wrong to 3. Expected by chance: .6 · .5 + .4 · .5.
    ada, ben = "++++---++-", "++++-----+"
    pairs = zip(ada, ben, strict=True)
    rows = []
    for number, (one, other) in enumerate(pairs):
        rows += votes_of(str(number), one == "+", other == "+")
    rows += [label("20", False), label("21", None), label("22", True, change=True)]
    # The last two do not count: one had no decision, the other was changed on purpose.
    rows += [label(name, True, repetition=True) for name in ("0", "20", "21", "22")]
    rows.append(label("20", False, labeller="judge", adjudication=True))
    table = labeller_agreement(label_table(rows))
    assert table["labeller"].tolist() == ["ada", "ben", "ada"]
    assert table["other_labeller"].tolist() == [None, None, "ben"]
    assert table["n_both"].tolist() == [2, 0, 10]
    assert table["n_same"].tolist() == [1, 0, 7]
    np.testing.assert_array_equal(table["agreement"], [0.5, np.nan, 0.7])
    np.testing.assert_allclose(table["kappa"], [np.nan, np.nan, (0.7 - 0.5) / 0.5])
    assert table["agreement_low"][2] < 0.7 < table["agreement_high"][2]
    alike = labeller_agreement(label_table(votes_of("1", True, True))).iloc[-1]
    assert (alike["agreement"], np.isnan(alike["kappa"])) == (1, True)


# The plan


def test_a_plan_depends_on_its_seed_only():
    judged, truth = evaluation()
    first, again, other = (planned_answers(judged, n_labels=60, seed=seed) for seed in (1, 1, 2))
    plan, _ = label_all(first, truth)
    requests = plan.requests()
    assert requests == label_all(again, truth)[0].requests()
    assert first.plan.first != other.plan.first
    assert len({*plan.first, *plan.second}) == 60
    # One answer in ten is repeated once, and not at once.
    repeated = [position for position, is_repetition in requests if is_repetition]
    assert len(repeated) == len(set(repeated)) == 6
    for position in repeated:
        assert requests.index((position, True)) - requests.index((position, False)) > 8


def test_a_plan_that_is_saved_and_read_continues_as_if_it_had_not_been(tmp_path):
    judged, truth = evaluation(60)
    begun = planned_answers(judged, n_labels=30)
    _, expected = label_all(begun, truth)
    assert len(expected) == begun.n_requests == 33
    begun.plan.save(tmp_path / "plan.json")
    labels = []
    for stop in (5, 23, 33):
        planned = PlannedAnswers.read(tmp_path / "plan.json", judged)
        while len(labels) < stop:
            planned = advanced(planned, labels)
            current = planned.current_labels(label_table(labels))
            request = planned.next_request(current, "ada")
            labels.append(planned.label(request, truth[request.question_id], labeller="ada"))
        planned.plan.save(tmp_path / "plan.json")
    assert labels == expected
    current = planned.current_labels(label_table(labels))
    assert planned.next_request(current, "ada") is None
    assert planned.next_request(current, "ben").text == labels[0].text


def replace_correct(given, correct):
    return given.model_copy(update={"correct": correct})


def test_the_second_phase_is_drawn_after_the_first_and_then_stays():
    judged, plan, labels = labelled(120, 60)
    started = planned_answers(judged, n_labels=60)
    assert advanced(started, labels[:20]).plan.second is None
    assert advanced(started, labels[:22]).plan.second == plan.second
    changed = [replace_correct(each, not each.correct) for each in labels[:5]]
    assert advanced(PlannedAnswers(plan, judged), [*changed, *labels[5:]]).plan is plan


@pytest.mark.parametrize("change", [{"plan": "other"}, {"probability": 0.1}, {"phase": 2}])
def test_labels_of_another_draw_are_refused(change):
    judged, plan, labels = labelled(120, 30)
    labels[3] = labels[3].model_copy(update=change)
    sample = sample_of(plan, labels)
    with pytest.raises(RunError, match="1 labels do not belong to this plan, the first"):
        sample.estimate(judged)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"first": [0, 0]}, "different positions below 40"),
        ({"first": [40]}, "different positions below 40"),
        ({"probabilities": [0.5]}, "the same length"),
        ({"questions": ["one"]}, "the same length"),
        ({"answers": [["toy", "q0", "answer 0"]] * 2}, "an answer is listed twice"),
        ({"version": 2}, "version"),
        ({"digest": ""}, r"plan.json cannot be read: digest"),
    ],
)
def test_a_plan_that_was_edited_or_damaged_is_refused(tmp_path, change, message):
    judged, _ = evaluation(40)
    path = tmp_path / "plan.json"
    LabelPlan.create(judged, n_labels=20).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(RunError, match=message):
        LabelPlan.read(path)


def test_few_labels_and_an_answer_without_text_are_refused():
    judged, _ = evaluation()
    with pytest.raises(RunError, match="planned labels must be at least 20; got 10"):
        LabelPlan.create(judged, n_labels=10)
    judged.answers.loc[3, "text"] = None
    with pytest.raises(RunError, match="the answer to question 'q3' has no text"):
        LabelPlan.create(judged)


def repeated(n, n_texts):
    """Return an evaluation of questions of which the last repeat the first, with their answers."""
    judged, _ = evaluation(n)
    numbers = np.arange(n) % n_texts
    texts = [f"Answer {number}." for number in numbers]
    return replace(judged, answers=judged.answers.assign(text=texts, text_number=numbers))


def test_copies_of_a_question_with_the_same_answer_share_its_label():
    judged = repeated(40, 30)
    judged.answers.loc[35:, "text"] = [f"another {number}" for number in range(5)]
    planned = planned_answers(judged, n_labels=35)
    ids = ["q0", "q1", "q2", "q3", "q34"]  # the smallest of the copies, as texts
    assert planned.answers.table["question_id"].tolist()[:5] == ids
    assert planned.answers.units.tolist()[30:] == [0, 1, 2, 3, 4, 30, 31, 32, 33, 34]
    # The units do not depend on the order of the rows.
    assert PlannedAnswers(planned.plan, judged.select(np.arange(40)[::-1])).is_planned.all()


def test_a_label_that_copies_share_counts_once():
    judged = repeated(40, 20)
    truth = {f"q{number}": number % 2 == 0 for number in range(40)}
    plan, labels = label_all(planned_answers(judged, n_labels=20), truth)
    judgement = sample_of(plan, labels).with_labels(judged).sampled_judgement
    assert judgement.counts["n_labels"] == 20
    np.testing.assert_allclose(judgement.accuracy_at(np.zeros(40), [40]).value, 0.5)
    # It stays the label of the second copy if the first one has another answer today.
    judged.answers.loc[0, "text"] = "another"
    judgement = sample_of(plan, labels).with_labels(judged).sampled_judgement
    assert (len(judgement.units), judgement.counts["n_labels"]) == (39, 20)


# Estimates


def test_with_all_labels_the_tables_hold_what_is_true():
    judged, truth = evaluation(80)
    plan, labels = label_all(planned_answers(judged, n_labels=80), truth)
    correct = np.array(list(truth.values()))
    sample = sample_of(plan, labels)
    table = sample.estimate(judged, scope="questions").set_index("method")
    assert table["similarity"].to_dict() == {"NLL": "", "PRO": "", "SE": "lexical", "ALL": ""}
    scores = judged.scores({"PRO": 0.4})[["NLL", "PRO", "SE, lexical", "ALL"]]
    aurocs, by_judge = (
        np.array([metrics.auroc(scores[name], verdicts) for name in scores])
        for verdicts in (correct, judged.correct)
    )
    expected = dict.fromkeys(("auroc", "auroc_low", "auroc_high"), aurocs)
    expected |= {"auroc_minus_nll": aurocs - aurocs[0], "auroc_minus_pro": aurocs - aurocs[1]}
    expected |= {"auroc_by_judge": by_judge, "n_effective": 80}
    for name, values in expected.items():
        np.testing.assert_allclose(table[name], values, atol=1e-12, err_msg=name)
    judges = sample.judge_agreement(judged, scope="questions")
    assert judges["judge"].tolist() == ["rouge_l", "alias_match", "exact_match"]
    np.testing.assert_allclose(judges["accuracy"], correct.mean())
    np.testing.assert_allclose(judges["agreement"], (judged.correct == correct).mean())


def test_some_labels_give_intervals_that_hold_the_truth_and_narrow():
    judged, truth = evaluation(400)
    plan, labels = label_all(planned_answers(judged, n_labels=150), truth)
    exact = metrics.auroc(judged.baselines["NLL"], np.array(list(truth.values())))
    widths = []
    for n_labels, scope in ((80, "questions"), (165, "questions"), (165, "population")):
        row = sample_of(plan, labels[:n_labels]).estimate(judged, scope=scope).iloc[0]
        assert row["auroc_low"] < exact < row["auroc_high"]
        widths.append(row["auroc_high"] - row["auroc_low"])
    assert widths[1] < widths[0]
    assert widths[1] < widths[2]


@pytest.mark.parametrize("n_labels", [0, 1, 3, 14])
def test_too_few_labels_estimate_nothing_and_the_tables_say_why(n_labels):
    judged, plan, labels = labelled(60, 30)
    sample = sample_of(plan, labels[:n_labels])
    table = sample.estimate(judged)
    assert table["shown"].str.contains(r"^only \d labels of right answers; 10 are needed$").all()
    assert table.filter(regex="^auroc(?!_by_judge)").isna().all(axis=None)
    judges = sample.judge_agreement(judged)
    assert judges["shown"].str.contains(r"^only \d+ labels; 20 are needed$").all()
    assert judges[["accuracy", "agreement"]].isna().all(axis=None)
    judgement = sample.with_labels(judged).sampled_judgement
    assert np.isnan(judgement.accuracy_at(judged.baselines["NLL"], [30, 60]).value).all()


def test_an_accuracy_beyond_1_is_not_shown_and_the_reason_is_said():
    judged, truth = evaluation()
    truth = dict.fromkeys(truth, True)
    reasons = {}
    for seed in (0, 1):
        plan, labels = label_all(planned_answers(judged, n_labels=40, seed=seed), truth)
        row = sample_of(plan, labels).judge_agreement(judged).iloc[0]
        reasons[row["shown"]] = row["accuracy"]
    assert np.isnan(reasons["an estimate is not between 0 and 1; label more answers"])
    assert 0.98 < reasons["yes"] <= 1


def test_undecided_answers_are_counted_and_others_stand_for_them():
    judged, plan, labels = labelled(200, 100)
    labels[::10] = [replace_correct(each, None) for each in labels[::10]]
    row = sample_of(plan, labels).estimate(judged).iloc[0]
    n_undecided = sum(each.correct is None and not each.repetition for each in labels)
    assert row["n_undecided"] == n_undecided
    assert row["n_labels"] == 100 - n_undecided


def test_clusters_widen_intervals_of_the_population_only():
    judged, plan, labels = labelled(200, 100)
    sample = sample_of(plan, labels)
    clustered, few = (
        replace(judged, answers=judged.answers.assign(cluster=np.arange(200) // size))
        for size in (40, 60)
    )
    for scope, is_same in (("questions", True), ("population", False)):
        rows = [sample.estimate(each, scope=scope).iloc[0] for each in (judged, clustered)]
        widths = [row["auroc_high"] - row["auroc_low"] for row in rows]
        assert np.sign(widths[1] - widths[0]) == (0 if is_same else 1)
    [shown] = sample.estimate(few)["shown"].unique()
    assert shown == "only 4 clusters of questions; 5 are needed"


def test_answers_that_the_plan_did_not_know_are_refused(tmp_path):
    judged, truth = evaluation(120)
    other, _ = evaluation(120, prefix="other")
    plan, labels = label_all(planned_answers(judged.select(np.arange(70)), n_labels=60), truth)
    sample = sample_of(plan, labels)
    for unknown, n_unknown in ((judged, 50), (other, 120)):
        with pytest.raises(RunError, match=f"{n_unknown} of 120 answers are not among those of"):
            sample.estimate(unknown)
    plan.save(tmp_path / "plan.json")
    with pytest.raises(RunError, match="none of its 70 answers is among these 120"):
        PlannedAnswers.read(tmp_path / "plan.json", other)
    with pytest.raises(RunError, match="unknown scope 'all'"):
        sample.estimate(judged.select(np.arange(70)), scope="all")


def test_the_words_of_estimates_say_identical_and_why_a_value_is_missing():
    judged, plan, labels = labelled(200, 100)
    given = {"NLL, given": judged.baselines["NLL"] + 1}  # of records, beside the computed one
    judged = replace(judged, baselines=judged.baselines.assign(**given))
    table = sample_of(plan, labels).estimate(judged)
    words, sentences = estimate_words(table, ["ada"])
    rows = words.set_index("method")
    assert rows.loc["NLL", "difference to NLL"] == "–"
    assert rows.loc["ALL", "difference to NLL"] == "identical"  # NLL plus a constant
    assert rows.loc["SE, lexical", "difference to NLL"].startswith("−0.")
    assert rows.loc["NLL, given", "difference to NLL"] == "identical"
    value, low, high = table.loc[0, ["auroc", "auroc_low", "auroc_high"]]
    words = f"{value:.3f} (95 %: {low:.3f} to {high:.3f})"
    assert rows.loc["NLL", "AUROC by labels"] == words
    assert sentences[1].startswith("100 answers have a decided label (")
    ends = {"auroc_minus_nll_low": -0.0001, "auroc_minus_nll_high": 0.0004}
    tiny, _ = estimate_words(table.assign(**ends), ["ada"])
    assert set(tiny["difference to NLL"]) == {"–", "within ±0.0005"}
    few, sentences = estimate_words(table.assign(auroc=np.nan, shown="few labels"), ["ada"])
    assert set(few["AUROC by labels"]) == {"not shown"}
    assert sentences[2] == "Not shown: few labels."
