"""Labels by hand: the label file, several labellers, the plan, and the tables of estimates."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from invented_settings import evaluation_of

from pro_lib import metrics
from pro_lib.common.files import RunError
from pro_lib.labels import (
    Label,
    LabelPlan,
    LabelSample,
    append_label,
    append_undo,
    collect_answers,
    label_table,
    labeller_agreement,
    merge_labels,
    read_label_file,
)
from pro_lib.labels.estimates import estimate_words
from pro_lib.labels.file import answer_key

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
    verdict = np.where(rng.random(n) < 0.8, truth, ~truth)
    baselines = {"NLL": nll, "SE, lexical": nll + rng.normal(size=n), "ALL": nll + 0.1}
    log_probs = np.column_stack([-np.abs(nll) - 0.1, -np.abs(nll) - 2])
    result = evaluation_of(log_probs, verdict, **baselines)
    ids = [f"q{number}" for number in range(n)]
    texts = [f"{prefix} {number}" for number in range(n)]
    answers = result.answers.assign(question_id=ids, text=texts, question=None, references=None)
    answers = answers.assign(exact_match=verdict, alias_match=verdict)
    result = replace(result, answers=answers, dataset="toy", exclusions="")
    return result, dict(zip(ids, truth.tolist(), strict=True))


def estimated(plan, labels, judged, **options):
    return LabelSample(label_table(labels), plan).estimate(judged, **options)


def agreement_of(plan, labels, judged, **options):
    return LabelSample(label_table(labels), plan).judge_agreement(judged, **options)


def label_all(plan, truth, labels=(), *, labeller="ada", stop=None):
    """Label the answers of a plan, and return the plan and the labels."""
    labels = list(labels)
    while stop is None or len(labels) < stop:
        n_before = len(labels)
        # `next_request` returns these one by one; see the test of a plan that is saved.
        for unit, is_repetition in plan.requests()[n_before:stop]:
            request = plan.request(unit, is_repetition)
            labels.append(plan.label(request, truth[request.question_id], labeller=labeller))
        if len(labels) == n_before:
            break
        plan = plan.advance(label_table(labels))
    return plan, labels


def labelled(n, n_labels):
    """Return an evaluation, a plan, and all labels of the plan."""
    judged, truth = evaluation(n)
    return judged, *label_all(LabelPlan.create(judged, n_labels=n_labels), truth)


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
    "undo of a change and a label": ([FIRST, SECOND, CHANGE, UNDO, UNDO], [True]),
    "change of a withdrawn label": ([FIRST, UNDO, CHANGE], [None]),
}


@pytest.mark.parametrize("name", LINES)
def test_a_label_file_returns_the_labels_that_were_not_withdrawn_or_changed(tmp_path, name):
    lines, expected = LINES[name]
    path = tmp_path / "labels.jsonl"
    for line in lines:
        if line is UNDO:
            append_undo(path, "ada")
        else:
            append_label(path, line)
    assert read_label_file(path)["correct"].tolist() == expected
    assert len(path.read_text().splitlines()) == len(lines)


def test_a_line_cut_by_a_kill_is_ignored_and_replaced_by_the_next_label(tmp_path):
    path = tmp_path / "labels.jsonl"
    append_label(path, FIRST)
    with open(path, "ab") as file:
        file.write(b'{"dataset": "toy", "question' + b" " * 5000)
    assert read_label_file(path)["question_id"].tolist() == ["1"]
    append_label(path, label("2", False, text="Rom ä", time=""))
    last = read_label_file(path).iloc[-1]
    assert (last["question_id"], last["text"]) == ("2", "Rom ä")
    assert pd.Timestamp(last["time"]).tzinfo is not None  # the current time


@pytest.mark.parametrize("line", ["{", '{"dataset": "toy"}', "[]", '{"undo": true}'])
def test_a_damaged_line_is_named(tmp_path, line):
    path = tmp_path / "labels.jsonl"
    append_label(path, FIRST)
    with open(path, "a") as file:
        file.write(line + "\n")
    with pytest.raises(RunError, match=r"labels.jsonl, line 2"):
        read_label_file(path)


@pytest.mark.parametrize(
    ("first", "second", "is_shared"),
    [
        ("Paris", " paris. ", True),
        ("-5", "5", False),
        ("1.5", "15", False),
        ("?", "!", False),
        ("São", "Sao", False),
    ],
)
def test_answers_share_a_label_if_their_words_are_the_same(first, second, is_shared):
    assert (answer_key(first) == answer_key(second)) is is_shared


# Several labellers


def votes_of(question_id, *votes):
    """Return labels of one answer by ada, ben and cy."""
    names = ("ada", "ben", "cy")
    return [label(question_id, vote, labeller=names[place]) for place, vote in enumerate(votes)]


@pytest.mark.parametrize(
    ("votes", "others", "correct", "is_disputed"),
    [
        ((True, True, False), [], True, True),
        ((True, False, None), [], None, True),
        ((None, None, False), [], False, False),
        ((None, None, None), [], None, False),
        ((True,), [label("1", False, repetition=True)], True, False),
        ((True, False, True), [label("1", False, labeller="j", adjudication=True)], False, False),
        ((True, False), [label("1", None, labeller="j", adjudication=True)], None, False),
    ],
)
def test_most_labellers_decide_and_an_adjudication_decides_alone(
    votes, others, correct, is_disputed
):
    other_answer = votes_of("2", True)
    merged = merge_labels(label_table([*other_answer, *votes_of("1", *votes), *others]))
    assert merged["correct"].tolist() == [True, correct]
    assert merged["is_disputed"].tolist() == [False, is_disputed]


def test_the_agreement_of_two_labellers_by_hand():
    # Of ten answers both say right to 4 and wrong to 3. Expected by chance: .6 · .5 + .4 · .5.
    pairs = [(True, True)] * 4 + [(False, False)] * 3 + [(True, False)] * 2 + [(False, True)]
    rows = [row for number, pair in enumerate(pairs) for row in votes_of(str(number), *pair)]
    rows += [*votes_of("99", True), label("2", False, labeller="judge", adjudication=True)]
    table = labeller_agreement(label_table(rows))
    assert table["labeller"].tolist() == ["ada", "ben", "ada"]
    row = table.iloc[-1]
    assert [*row[["n_both", "n_same", "kappa"]]] == pytest.approx([10, 7, (0.7 - 0.5) / 0.5])
    assert row["agreement_low"] < 0.7 < row["agreement_high"]
    alike = labeller_agreement(label_table(votes_of("1", True, True))).iloc[-1]
    assert alike["agreement"] == 1
    assert np.isnan(alike["kappa"])  # all labels are the same


def test_the_consistency_of_each_labeller():
    rows = [*votes_of("1", True, True), *votes_of("2", True), *votes_of("3", None)]
    # Whoever changes a label on purpose is not inconsistent.
    rows.append(label("4", True, change=True))
    again = {"1": True, "2": False, "3": True, "4": False}
    rows += [label(question_id, correct, repetition=True) for question_id, correct in again.items()]
    ada, ben, _ = labeller_agreement(label_table(rows)).to_dict("records")
    for row, n_both, agreement in ((ada, 2, 0.5), (ben, 0, np.nan)):
        assert (row["other_labeller"], row["n_both"]) == (None, n_both)
        assert row["agreement"] == pytest.approx(agreement, nan_ok=True)


# The plan


def test_a_plan_depends_on_its_seed_only():
    judged, truth = evaluation()
    plans = [
        label_all(LabelPlan.create(judged, n_labels=60, seed=seed), truth)[0] for seed in (1, 1, 2)
    ]
    assert plans[0].requests() == plans[1].requests()
    assert plans[0].first != plans[2].first
    assert len({*plans[0].first, *plans[0].second}) == 60


def test_a_plan_that_is_saved_and_read_continues_as_if_it_had_not_been(tmp_path):
    judged, truth = evaluation()
    whole, expected = label_all(LabelPlan.create(judged, n_labels=30), truth)
    assert len(expected) == whole.n_requests == 33
    LabelPlan.create(judged, n_labels=30).save(tmp_path / "plan.json")
    labels = []
    for stop in (5, 23, 33):
        plan = LabelPlan.read(tmp_path / "plan.json", judged)
        while len(labels) < stop:
            plan = plan.advance(label_table(labels))
            request = plan.next_request(label_table(labels), "ada")
            labels.append(plan.label(request, truth[request.question_id], labeller="ada"))
        plan.save(tmp_path / "plan.json")
    assert labels == expected
    assert plan.next_request(label_table(labels), "ada") is None
    assert plan.next_request(label_table(labels), "ben").text == labels[0].text


def test_one_answer_in_ten_is_repeated_once_and_not_at_once():
    judged, truth = evaluation()
    plan, _ = label_all(LabelPlan.create(judged, n_labels=100), truth)
    requests = plan.requests()
    repeated = [unit for unit, is_repetition in requests if is_repetition]
    assert len(repeated) == len(set(repeated)) == 10
    for position, (unit, is_repetition) in enumerate(requests):
        if is_repetition:
            assert position - requests.index((unit, False)) >= 8


def test_the_second_phase_is_drawn_after_the_first_and_then_stays():
    judged, truth = evaluation()
    plan = LabelPlan.create(judged, n_labels=60)
    n_first = len(plan.first)
    _, labels = label_all(plan, truth, stop=n_first + n_first // 10 - 1)
    assert plan.advance(label_table(labels[:-1])).second is None
    plan, labels = label_all(plan, truth)
    changed = [replace_correct(each, not each.correct) for each in labels[:5]]
    assert plan.advance(label_table([*changed, *labels[5:]])) is plan


def replace_correct(given, correct):
    return given.model_copy(update={"correct": correct})


def test_a_plan_is_for_its_answers_only(tmp_path):
    judged, truth = evaluation()
    other, _ = evaluation(prefix="other")
    plan = LabelPlan.create(judged, n_labels=60)
    plan.save(tmp_path / "plan.json")
    with pytest.raises(
        RunError, match=r"other answers: none of its 120 answers is among these 120"
    ):
        LabelPlan.read(tmp_path / "plan.json", other)
    plan, labels = label_all(plan, truth)
    for another in (LabelPlan.create(other), LabelPlan.create(judged, n_labels=60, seed=2)):
        with pytest.raises(RunError, match="do not belong to this plan, the first"):
            another.next_request(label_table(labels), "ada")


@pytest.mark.parametrize("change", [{"plan": "other"}, {"probability": 0.1}, {"phase": 2}])
def test_labels_of_another_draw_are_refused(change):
    judged, plan, labels = labelled(120, 60)
    labels[3] = labels[3].model_copy(update=change)
    with pytest.raises(RunError, match="1 labels do not belong to this plan, the first"):
        plan.check(label_table(labels))
    with pytest.raises(RunError, match="1 labels do not belong to this plan, the first"):
        estimated(plan, labels, judged)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"first": [0, 0]}, "different positions below 120"),
        ({"first": [120]}, "different positions below 120"),
        ({"second": [5], "probabilities": []}, "the same length"),
        ({"questions": ["one"]}, "the same length"),
        ({"answers": [["toy", "q0", "answer 0"]] * 2}, "an answer is listed twice"),
        ({"version": 2}, "version"),
        ({"digest": ""}, r"plan.json cannot be read: digest"),
    ],
)
def test_a_plan_that_was_edited_or_damaged_is_refused(tmp_path, change, message):
    judged, _ = evaluation()
    path = tmp_path / "plan.json"
    LabelPlan.create(judged, n_labels=60).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(RunError, match=message):
        LabelPlan.read(path, judged)


def test_a_label_that_copies_share_counts_once_at_a_coverage():
    judged, truth = evaluation(40)
    answers = judged.answers.assign(text_number=np.arange(40) // 2)
    answers["text"] = [f"answer {number // 2}" for number in range(40)]
    judged = replace(judged, answers=answers)
    truth = {f"q{number}": number % 4 < 2 for number in range(40)}
    plan, labels = label_all(LabelPlan.create(judged, n_labels=20), truth)
    judgement = LabelSample(label_table(labels), plan).with_labels(judged).labels
    assert judgement.counts["n_labels"] == 20
    assert not np.isnan(judgement.accuracy_at(judged.baselines["NLL"], [40]).value).any()


def test_a_plan_of_few_labels_is_refused():
    with pytest.raises(RunError, match="planned labels must be at least 20; got 10"):
        LabelPlan.create(evaluation()[0], n_labels=10)


def test_copies_of_a_question_with_the_same_answer_share_its_label():
    judged, _ = evaluation(40)
    answers = judged.answers.assign(text_number=np.arange(40) % 30)
    # Questions 30 to 34 have the texts and the answers of 0 to 4;
    # 35 to 39 have those texts and other answers.
    answers.loc[30:34, "text"] = [f"Answer {number}." for number in range(5)]
    answers.loc[35:39, "text_number"] = range(5)
    plan = LabelPlan.create(replace(judged, answers=answers), n_labels=35)
    assert len(plan.today) == 35
    ids = ["q0", "q1", "q2", "q3", "q34"]  # the smallest of the copies, as texts
    assert plan.today.table["question_id"].tolist()[-5:] == ids
    assert plan.today.codes.tolist()[30:] == [0, 1, 2, 3, 4, 30, 31, 32, 33, 34]


def test_the_units_of_repeated_questions_do_not_depend_on_the_order_of_the_rows():
    judged, _ = evaluation(40)
    answers = judged.answers.assign(text_number=np.arange(40) % 20)
    answers.loc[20:, "text"] = answers.loc[:19, "text"].to_numpy()
    judged = replace(judged, answers=answers)
    backwards = judged.rows(np.arange(40)[::-1])
    plan = LabelPlan.create(judged, n_labels=20)
    assert (plan.places(collect_answers(backwards)) >= 0).all()


# Estimates


def test_with_all_labels_the_tables_hold_what_is_true():
    judged, truth = evaluation(80)
    plan, labels = label_all(LabelPlan.create(judged, n_labels=80), truth)
    correct = np.array(list(truth.values()))
    table = estimated(plan, labels, judged, scope="questions")
    assert table["method"].tolist() == ["NLL", "PRO", "SE", "ALL"]
    assert table["similarity"].tolist() == ["", "", "lexical", ""]
    expected = [
        metrics.auroc(judged.baselines[name], correct) for name in ("NLL", "SE, lexical", "ALL")
    ]
    np.testing.assert_allclose(table["auroc"].iloc[[0, 2, 3]], expected)
    np.testing.assert_allclose(table["auroc_low"], table["auroc"])
    for place, name in enumerate(("nll", "pro")):
        difference = table["auroc"] - table["auroc"].iloc[place]
        np.testing.assert_allclose(table[f"auroc_minus_{name}"], difference, atol=1e-12)
    np.testing.assert_allclose(
        table["auroc_by_judge"].iloc[0], metrics.auroc(judged.baselines["NLL"], judged.correct)
    )
    assert table["n_effective"].tolist() == pytest.approx([80] * 4)
    judges = agreement_of(plan, labels, judged, scope="questions")
    assert judges["judge"].tolist() == ["rouge_l", "alias_match", "exact_match"]
    np.testing.assert_allclose(judges["accuracy"], correct.mean())
    np.testing.assert_allclose(judges["agreement"], (judged.correct == correct).mean())
    sample = LabelSample(label_table(labels), plan)
    judgement = sample.with_labels(judged, scope="questions").labels
    covered = judgement.accuracy_at(judged.baselines["NLL"], [20, 80])
    sure = judged.baselines["NLL"].rank() <= 20
    np.testing.assert_allclose(covered.value, [correct[sure].mean(), correct.mean()])
    np.testing.assert_allclose(covered.low, covered.value)


def test_some_labels_give_intervals_that_hold_the_truth_and_narrow():
    judged, truth = evaluation(400)
    plan, labels = label_all(LabelPlan.create(judged, n_labels=150), truth)
    exact = metrics.auroc(judged.baselines["NLL"], np.array(list(truth.values())))
    widths = []
    for n_labels in (80, 165):
        row = estimated(plan, labels[:n_labels], judged, scope="questions").iloc[0]
        assert row["auroc_low"] < exact < row["auroc_high"]
        widths.append(row["auroc_high"] - row["auroc_low"])
    assert widths[1] < widths[0]
    population = estimated(plan, labels, judged).iloc[0]
    assert population["auroc_high"] - population["auroc_low"] > widths[1]


def test_an_estimate_from_few_labels_of_a_class_is_not_shown():
    judged, truth = evaluation(200)
    plan, labels = label_all(LabelPlan.create(judged, n_labels=60), truth, stop=14)
    table = estimated(plan, labels, judged)
    assert table["shown"].str.contains(r"^only \d labels of right answers; 10 are needed$").all()
    assert table.filter(regex="^auroc(?!_by_judge)").isna().all(axis=None)
    judges = agreement_of(plan, labels, judged)
    assert judges["shown"].str.contains(r"^only 1\d labels; 20 are needed$").all()
    assert judges["accuracy"].isna().all()


@pytest.mark.parametrize("n_labels", [0, 1, 3])
def test_tables_exist_before_there_are_enough_labels(n_labels):
    judged, plan, labels = labelled(60, 30)
    table = label_table(labels[:n_labels])
    sample = LabelSample(table, plan)
    assert sample.estimate(judged)["n_labels"].tolist() == [n_labels] * 4
    assert sample.judge_agreement(judged)["agreement"].isna().all()
    judgement = sample.with_labels(judged).labels
    assert np.isnan(judgement.accuracy_at(judged.baselines["NLL"], [30, 60]).value).all()
    assert len(labeller_agreement(table)) == min(n_labels, 1)


def test_an_accuracy_beyond_1_is_not_shown_and_the_reason_is_said():
    judged, truth = evaluation()
    truth = dict.fromkeys(truth, True)
    reasons = {}
    for seed in (0, 1):
        plan, labels = label_all(LabelPlan.create(judged, n_labels=40, seed=seed), truth)
        row = agreement_of(plan, labels, judged).iloc[0]
        reasons[row["shown"]] = row["accuracy"]
    assert np.isnan(reasons["an estimate is not between 0 and 1; label more answers"])
    assert 0.98 < reasons["yes"] <= 1


def test_undecided_answers_are_counted_and_others_stand_for_them():
    judged, plan, labels = labelled(200, 100)
    labels[::10] = [replace_correct(each, None) for each in labels[::10]]
    row = estimated(plan, labels, judged).iloc[0]
    n_undecided = sum(each.correct is None and not each.repetition for each in labels)
    assert row["n_undecided"] == n_undecided
    assert row["n_labels"] == 100 - n_undecided


def test_clusters_widen_intervals_of_the_population_only():
    judged, plan, labels = labelled(200, 100)
    clustered = replace(judged, answers=judged.answers.assign(cluster=np.arange(200) // 40))
    for scope, is_same in (("questions", True), ("population", False)):
        widths = []
        for each in (judged, clustered):
            row = estimated(plan, labels, each, scope=scope).iloc[0]
            widths.append(row["auroc_high"] - row["auroc_low"])
        assert (widths[0] == widths[1]) == is_same
    few = replace(judged, answers=judged.answers.assign(cluster=np.arange(200) // 60))
    [shown] = estimated(plan, labels, few)["shown"].unique()
    assert shown == "only 4 clusters of questions; 5 are needed"


def test_answers_that_the_plan_did_not_know_are_refused():
    judged, truth = evaluation(120)
    known = judged.rows(np.arange(70))
    plan, labels = label_all(LabelPlan.create(known, n_labels=60), truth)
    sample = LabelSample(label_table(labels), plan)
    with pytest.raises(RunError, match="50 of 120 answers are not among those of the label plan"):
        sample.estimate(judged)
    with pytest.raises(RunError, match="50 of the 120 answers are not in the plan"):
        sample.judgement(collect_answers(judged))
    with pytest.raises(RunError, match="unknown scope 'all'"):
        sample.estimate(known, scope="all")


# Words


def test_the_words_of_estimates_say_identical_and_why_a_value_is_missing():
    judged, plan, labels = labelled(200, 100)
    table = estimated(plan, labels, judged)
    words, sentences = estimate_words(table, ["ada"])
    rows = words.set_index("method")
    assert rows.loc["NLL", "difference to NLL"] == "–"
    assert rows.loc["ALL", "difference to NLL"] == "identical"  # NLL plus a constant
    ends = {"auroc_minus_nll_low": -0.0001, "auroc_minus_nll_high": 0.0004}
    tiny, _ = estimate_words(table.assign(**ends), ["ada"])
    assert set(tiny["difference to NLL"]) == {"–", "within ±0.0005"}
    row = table.set_index("method").loc["NLL"]
    ends = f"{row['auroc_low']:.3f} to {row['auroc_high']:.3f}"
    assert rows.loc["NLL", "AUROC by labels"] == f"{row['auroc']:.3f} (95 %: {ends})"
    assert rows.loc["SE, lexical", "difference to NLL"].startswith("−0.")
    assert sentences[1].startswith("100 answers have a decided label (")
    table = estimated(plan, labels[:14], judged)
    few, sentences = estimate_words(table, ["ada"])
    assert set(few["AUROC by labels"]) == {"not shown"}
    assert sentences[2] == f"Not shown: {table['shown'].iloc[0]}."


def test_an_answer_without_text_cannot_be_labelled():
    judged, _ = evaluation()
    judged.answers.loc[3, "text"] = None
    with pytest.raises(RunError, match="the answer to question 'q3' has no text"):
        LabelPlan.create(judged)
