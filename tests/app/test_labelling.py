"""Labelling by hand: the session, its server and the page in a real browser."""

import json
import re
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import numpy as np
import pandas as pd
import pytest
from commands import answer, json_of, record, refused, typed, write_lines
from test_explorer import many

from pro_lib import importing
from pro_lib.app import label_page
from pro_lib.app.cli.label import default_label_file
from pro_lib.app.label_page import LabelServer
from pro_lib.app.scored_answers import score_answers
from pro_lib.common.files import RunError
from pro_lib.common.line_file import read_lines
from pro_lib.evaluation import Splits, evaluate
from pro_lib.labels import LabelSample, labeller_agreement, plan_path, read_label_file
from pro_lib.labels.estimates import estimate_words, estimated_aurocs
from pro_lib.labels.session import LabelSession


def half_right(*, n=60):
    """Return a run of questions; the judge calls half of the answers right."""
    run = many(n=n)
    references = [["beta"] if number % 6 == 1 else ["alpha"] for number in range(n)]
    return replace(run, questions=run.questions.assign(references=references, split="test"))


RUN = half_right()


def records_file(folder, n, **fields):
    """Write records of two answers to each question, half of them right, and return the path."""
    fields = {"references": ["alpha"]} | fields
    rows = []
    for number in range(n):
        likely = answer("alpha" if number % 2 else "beta", 0.9 - number / 100)
        rows.append(record(number, answer("gamma", 0.05), likely, **fields))
    return write_lines(folder / "records.jsonl", rows)


def opened(folder, run=RUN, n_planned=30, **options):
    return LabelSession.open(run, folder / "run.labels.jsonl", n_planned=n_planned, **options)


def labels_of(session):
    return read_label_file(session.path)


def estimates_of(session):
    return session.reply("estimates")["estimates"]


def is_right(state):
    """Return whether the shown answer equals the reference."""
    return state["answer"]["text"] in state["answer"]["references"]


def give(session, n, state=None):
    """Label `n` answers as right exactly if they equal the reference; return the state."""
    state = state or session.reply("open")
    for _ in range(n):
        state = session.reply("give", state["n_given"], is_right(state))
    return state


@contextmanager
def served(session):
    with LabelServer(session) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def post(server, action, **fields):
    """Send a message to a server, with its token; return its reply."""
    message = {"action": action, "n_given": 0, "correct": None, "labels_file": None} | fields
    request = urllib.request.Request(
        f"http://{server.host}/message", json.dumps(message).encode(), {"X-Token": server.token}
    )
    with urllib.request.urlopen(request) as response:
        return json.load(response)


def test_the_page_gets_the_question_the_references_and_the_answer_and_nothing_else(tmp_path):
    state = opened(tmp_path).reply("open")
    assert set(state["answer"]) == {"question", "references", "text"}
    assert state["answer"]["references"] == ["alpha"]
    assert (state["n_given"], state["n_left"], state["n_requests"]) == (0, 33, 33)
    assert (state["last"], state["minutes"], state["guideline"]) == (None, None, "")


def test_a_message_from_an_old_page_or_of_another_run_changes_nothing(tmp_path):
    session = opened(tmp_path)
    state = session.reply("give", 0, True)
    assert session.reply("give", 0, True) == state
    assert session.reply("give", 1, True, "labels of another run.jsonl") == state
    assert session.reply("give", 1, True, state["labels_file"])["n_given"] == 2


def with_questions(**columns):
    return replace(RUN, questions=RUN.questions.assign(**columns))


def with_answers(**columns):
    return replace(RUN, answers=RUN.answers.assign(**columns))


def with_other_ids():
    """Return the run in which the ids are shifted by one row, as by an inserted row."""
    ids = dict(zip(IDS, [*IDS[1:], "q60"], strict=True))
    tables = {"answers": RUN.answers, "questions": RUN.questions}
    return replace(
        RUN, **{k: v.assign(question_id=v["question_id"].map(ids)) for k, v in tables.items()}
    )


def labelled_pairs(run):
    """Return the question and the words of the judged answer of each question."""
    return set(zip(run.questions["question"], run.top()["text"].str.lower(), strict=True))


CHANGED = "Labels that do not count, because the text of their question has changed"
GONE = "Labels that do not count, because their answer has changed or no longer exists"
LOST = "Planned answers that are not shown, because they have changed or no longer exist"
OUTSIDE = "Answers that are outside the plan and its estimates, because they were added or changed"
REFERENCES = "Labels that count, although the references have changed since"
IDS, TEXTS = RUN.questions["question_id"], RUN.questions["question"]
NO_BETA = RUN.answers["text"].replace({"beta": "delta"})
# By what is changed: the changed run, and how the notes begin.
CHANGES = {
    "nothing": (RUN, []),
    "case of questions": (with_questions(question=TEXTS.str.upper()), []),
    "negated questions": (with_questions(question="Not: " + TEXTS), [CHANGED]),
    "rotated texts": (
        with_questions(question=[*TEXTS[1:], TEXTS[0]]),
        [OUTSIDE, LOST, CHANGED, REFERENCES],
    ),
    "other ids": (with_other_ids(), []),
    "other order": (RUN.select(question_ids=list(IDS[::-1])), []),
    "case of answers": (with_answers(text=RUN.answers["text"].str.upper()), []),
    "other answers": (with_answers(text=NO_BETA), [OUTSIDE, LOST, GONE]),
    "log-probabilities": (with_answers(log_prob=RUN.answers["log_prob"] * 2), []),
    "added questions": (half_right(n=80), [OUTSIDE]),
    "deleted questions": (RUN.select(question_ids=list(IDS[5:])), [LOST, GONE]),
    "references": (with_questions(references=[["gamma"]] * 60), [REFERENCES]),
    "split": (with_questions(split="validation"), []),
    "no references": (with_questions(references=None), [REFERENCES]),
}


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """A folder with 22 labels, two of them repetitions."""
    folder = tmp_path_factory.mktemp("labelled")
    give(opened(folder), 22)
    return folder


@pytest.mark.parametrize("change", CHANGES)
def test_a_label_counts_as_long_as_its_question_and_its_answer_exist(labelled, tmp_path, change):
    shutil.copytree(labelled, tmp_path, dirs_exist_ok=True)
    run, beginnings = CHANGES[change]
    labels = read_label_file(tmp_path / "run.labels.jsonl")
    pairs = zip(labels["question"], labels["text"].str.lower(), strict=True)
    lowered = {(question.lower(), text) for question, text in labelled_pairs(run)}
    expected = [(question.lower(), text) in lowered for question, text in pairs]
    session = opened(tmp_path, run, None)
    state = session.reply("open")
    assert state["n_given"] == sum(expected)
    for beginning in beginnings:
        assert any(note.startswith(beginning) for note in state["notes"]), state["notes"]
    assert len(state["notes"]) == len(beginnings)
    # The plan can be completed, and an answer whose question has changed is asked again.
    while state["answer"]:
        asked = (state["answer"]["question"], state["answer"]["text"].lower())
        assert asked in labelled_pairs(run)
        state = session.reply("give", state["n_given"], True)
    assert state["n_given"] == state["n_requests"]
    current = session.planned.current_labels(labels_of(session))
    judgement = session.planned.judgement(current.labels)
    is_counted = ~current.existing["repetition"]
    assert judgement.counts["n_labels"] == is_counted.sum()


def test_labels_of_a_file_without_questions_count_and_a_sentence_says_so(labelled, tmp_path):
    shutil.copytree(labelled, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "run.labels.jsonl"
    for file, names in ((path, ("question", "references")), (plan_path(path), ("questions",))):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        write_lines(file, [{k: v for k, v in line.items() if k not in names} for line in lines])
    state = opened(tmp_path).reply("open")
    [note] = state["notes"]
    assert note.startswith("Labels from before label files contained the question")
    assert state["n_given"] == 22
    estimated = LabelSample.read(path).with_labels(evaluate(RUN))
    assert estimated.sampled_judgement.counts["n_labels"] == 20
    assert estimated.cautions().endswith(note)


@pytest.mark.parametrize(
    ("change", "n_labels"), [("negated questions", 0), ("references", 20), ("other ids", 20)]
)
def test_a_notebook_uses_the_labels_that_count_and_says_what_has_changed(
    labelled, change, n_labels
):
    run, beginnings = CHANGES[change]
    estimated = LabelSample.read(labelled / "run.labels.jsonl").with_labels(evaluate(run))
    assert estimated.sampled_judgement.counts["n_labels"] == n_labels
    for beginning in beginnings:
        assert f"{beginning}: 22." in estimated.cautions()


def test_a_plan_is_drawn_anew_for_other_answers_or_another_number_before_the_first_label(tmp_path):
    opened(tmp_path)
    session = opened(tmp_path, half_right(n=80), None)
    assert (len(session.planned.answers), session.planned.plan.n_labels) == (80, 30)
    assert session.reply("open")["notes"] == []
    first = opened(tmp_path)
    session = opened(tmp_path, n_planned=40)
    for _ in range(2):  # the second key is refused as the first
        with pytest.raises(RunError, match="was replaced by another plan; open the label file"):
            give(first, 1)
    assert not session.path.exists()
    assert session.planned.plan.n_labels == 40
    give(session, 1)
    with pytest.raises(RunError, match="plans 40 labels, not 50; after the first label"):
        opened(tmp_path, n_planned=50)
    plan_path(session.path).unlink()
    with pytest.raises(RunError, match=r"labels.plan.json cannot be read.*; restore the plan"):
        opened(tmp_path)


def test_undo_does_not_withdraw_a_label_that_the_page_did_not_show(tmp_path):
    session = opened(tmp_path)
    give(session, 3)
    last = labels_of(session)["question"].iloc[-1]
    session = opened(tmp_path, with_questions(question=TEXTS.replace({last: "Another question?"})))
    before = session.reply("open")
    assert before["n_given"] == 2
    assert session.reply("undo", 2) == before
    assert len(labels_of(session)) == 3


@pytest.mark.parametrize("n_validation", [0, 20])
def test_answers_without_references_are_labelled_and_scored_without_a_judge(tmp_path, n_validation):
    """Validation questions may have references; they choose α."""
    path = records_file(tmp_path, 40, references=None, split="test")
    rows = read_lines(path)
    judged = read_lines(records_file(tmp_path, n_validation, split="validation"))
    others = [
        row | {"question_id": f"v{number}", "question": f"What is {number}?"}
        for number, row in enumerate(judged)
    ]
    path = write_lines(tmp_path / "records.jsonl", [*rows, *others])
    session = opened(tmp_path, importing.import_answers(path), 40)
    for number in range(44):
        assert session.reply("open")["answer"]["references"] == []
        session.reply("give", number, number % 2 == 0)
    first, *_ = estimates_of(session)["rows"]
    assert set(first) == {"method", "difference to NLL", "AUROC by labels"}
    assert first["AUROC by labels"].startswith("0.")
    assert set(session.planned.answers.strata) == {0}
    out, _ = typed("score", path, "--labels", session.path)
    assert first["AUROC by labels"] in out
    assert estimates_of(session)["alpha"] in out


def test_a_complete_plan_ends_with_the_estimates_of_python_and_the_own_consistency(tmp_path):
    session = opened(tmp_path)
    state = give(session, 33)
    assert len(labels_of(session)) == 33
    assert (state["answer"], state["n_left"]) == (None, 0)
    assert state["consistency"]["n_both"] == state["consistency"]["n_same"] == 3
    sample = LabelSample.read(session.path)
    table = sample.estimate(session.planned.evaluation, alphas=session.alphas)
    words, sentences = estimate_words(table, sample.labels["labeller"])
    shown = estimates_of(session)
    assert (shown["rows"], shown["sentence"]) == (words.to_dict("records"), " ".join(sentences))
    assert all(re.fullmatch(r"[01]\.\d{3}", row["AUROC by ROUGE-L"]) for row in shown["rows"])
    with pytest.raises(RunError, match="line 1: these labels are of a sample"):
        importing.read_labels(session.path)


@pytest.fixture(scope="module")
def disputed(tmp_path_factory):
    """A folder in which ada and ben have labelled all answers, and differ on three of them."""
    folder = tmp_path_factory.mktemp("disputed")
    give(opened(folder, labeller="ada"), 33)
    ben = opened(folder, labeller="ben")
    state = ben.reply("open")
    for place in range(33):
        is_other = place in (1, 4, 6)
        comment = "a nickname" if is_other else ""
        state = ben.reply("give", place, is_right(state) ^ is_other, text=comment)
    return folder


@pytest.fixture
def disputes(disputed, tmp_path):
    """A copy of that folder."""
    return shutil.copytree(disputed, tmp_path, dirs_exist_ok=True)


def test_labellers_see_their_agreement_and_disagreements_at_the_end_only(disputes):
    ben = opened(disputes, labeller="ben")
    state = ben.reply("open")
    [pair] = state["agreement"]
    assert (pair["labeller"], pair["other_labeller"]) == ("ada", "ben")
    assert (pair["n_both"], pair["n_same"]) == (30, 27)
    assert pair["kappa"] == pytest.approx(labeller_agreement(labels_of(ben))["kappa"].iloc[-1])
    disagreement, *others = state["disagreements"]
    assert len(others) == 2
    votes = {vote["labeller"]: vote["correct"] for vote in disagreement.pop("votes")}
    assert votes == {"ada": is_right({"answer": disagreement}), "ben": not votes["ada"]}
    state = ben.reply("undo", 33)
    assert state["agreement"] == []
    assert "disagreements" not in state


def test_estimates_need_20_own_labels_and_the_history_is_of_these_alone(disputes):
    session = opened(disputes, labeller="cy")
    state = session.reply("open")
    for n in (0, 19):
        state = give(session, n, state)
        shown = estimates_of(session)
        assert (shown["rows"], shown["sentence"]) == ([], "Not shown before 20 labels of yours.")
    state = give(session, 3, state)  # 20 different answers
    shown = estimates_of(session)
    assert shown["rows"]
    assert not any("AUROC by ROUGE-L" in row for row in shown["rows"])
    assert "answers have a decided label by ada, ben and cy together" in shown["sentence"]
    assert session.reply("history")["history"] == []
    give(session, 5, state)
    [row] = session.reply("history")["history"]
    labels = labels_of(session)
    own = labels[(labels["labeller"] == "cy") & ~labels["repetition"]].head(20)
    table = estimated_aurocs(session.planned, own, alphas=session.alphas)
    pro = estimate_words(table, [])[0].set_index("method").loc["PRO", "difference to NLL"]
    assert (row["your labels"], row["difference of PRO to NLL"]) == ("20", pro)


def test_an_empty_answer_is_shown_in_words(tmp_path):
    session = opened(tmp_path, with_answers(text=""))
    assert session.reply("open")["answer"]["text"] == "(empty answer)"
    assert session.reply("give", 0, False)["last"]["text"] == "(empty answer)"
    assert labels_of(session)["text"].tolist() == [""]


@contextmanager
def label_process(folder):
    """Start `pro label` in a process of its own; yield the process and its server."""
    command = ["-m", "pro_lib", "label", "records.jsonl", "--planned", "20", "--no-browser"]
    with subprocess.Popen(
        [sys.executable, "-u", *command], stdout=subprocess.PIPE, text=True, cwd=folder
    ) as process:
        try:
            line = next(line for line in process.stdout if line.startswith("Page: "))
            host, token = re.search(r"http://(.*)/\?token=(.*)", line).groups()
            yield process, SimpleNamespace(host=host, token=token)
        finally:
            process.kill()


def send_labels(server, n):
    """Label `n` answers as right exactly if they equal the reference; return the state."""
    state = post(server, "open")
    for _ in range(n):
        same = {name: state[name] for name in ("n_given", "labels_file")}
        state = post(server, "give", correct=is_right(state), **same)
    return state


def test_a_killed_process_loses_no_label_and_the_next_one_continues(tmp_path):
    records_file(tmp_path, 40)
    path = tmp_path / "records.labels.jsonl"
    with label_process(tmp_path) as (process, server):
        assert send_labels(server, 9)["n_given"] == 9
        process.send_signal(signal.SIGKILL)
    with path.open("a") as file:  # a kill in the middle of a write leaves such a line
        file.write('{"dataset": "reco')
    with label_process(tmp_path) as (_, server):
        state = send_labels(server, 13)
        assert state["answer"] is None
        labels = read_label_file(path)
        assert labels["repetition"].tolist().count(False) == 20
        assert len(labels) == len(path.read_text().splitlines()) == state["n_requests"] == 22


def test_two_open_sessions_draw_the_second_phase_once(tmp_path):
    ada, ben = (opened(tmp_path, labeller=name) for name in ("ada", "ben"))
    ben.reply("open")
    give(ada, 22)
    for place in range(5):  # from these labels another second phase would be drawn
        ada.reply("change", 22, None, place=place)
    saved = plan_path(ada.path).read_bytes()
    # Without its own memory of the second phase, ben's session reads it from the file.
    assert ben.reply("give", 0, True)["n_given"] == 1
    assert ben.planned.plan.second == ada.planned.plan.second
    assert plan_path(ada.path).read_bytes() == saved


def test_the_list_has_the_own_labels_without_repetitions_and_each_can_be_changed(tmp_path):
    give(opened(tmp_path, labeller="ada"), 3)
    session = opened(tmp_path, labeller="ben")
    state = give(session, 12)  # the eleventh is a repetition
    rows = session.reply("labels")["labels"]
    assert [row["place"] for row in rows] == [*range(10), 11]
    row = rows[4]
    assert row["references"] == ["alpha"]
    new = not row["correct"]
    changed = session.reply("change", 12, new, text="a nickname", place=4)
    assert (changed["n_given"], changed["answer"]) == (12, state["answer"])
    again = session.reply("labels")["labels"]
    assert again == [*rows[:4], row | {"correct": new, "comment": "a nickname"}, *rows[5:]]
    assert len(labels_of(session)) == 15
    # Undo withdraws the change first, which the page shows as the last label, and then the last.
    assert changed["last"] == {"text": row["text"], "correct": new, "comment": "a nickname"}
    for _ in range(2):  # the same message twice
        undone = session.reply("undo", 12, n_lines=changed["n_lines"])
    assert (undone["n_given"], undone["n_lines"]) == (12, 14)
    assert session.reply("labels")["labels"] == rows
    assert session.reply("undo", 12)["n_given"] == 11


def test_the_page_knows_what_was_pressed_last_and_undo_shows_it_again(tmp_path):
    session = opened(tmp_path)
    before = session.reply("open")
    state = session.reply("give", 0, None, text="two meanings")
    last = {"text": before["answer"]["text"], "correct": None, "comment": "two meanings"}
    assert (state["last"], state["n_left"]) == (last, 32)
    assert labels_of(session)["comment"].tolist() == ["two meanings"]
    assert session.reply("undo", 1) == before | {"n_lines": 2}


def test_the_minutes_that_are_left_follow_from_the_median_time_of_a_label(tmp_path):
    session = opened(tmp_path)
    assert give(session, 5)["minutes"] < 28  # of the time of this test
    lines = [json.loads(line) for line in session.path.read_text().splitlines()]
    times = ("10:00:00", "10:00:20", "10:00:50", "12:00:00", "12:00:30")  # with a long break
    for line, clock in zip(lines, times, strict=True):
        line["time"] = f"2026-01-01T{clock}+00:00"
    write_lines(session.path, lines)
    assert opened(tmp_path).reply("open")["minutes"] == 28 * 30 / 60


def test_a_plan_whose_answers_are_gone_ends_with_those_that_exist(tmp_path):
    opened(tmp_path, n_planned=60)
    session = opened(tmp_path, RUN.select(question_ids=IDS[:50]), n_planned=60)
    state = session.reply("open")
    while state["answer"]:
        state = give(session, 1, state)
    assert (state["n_left"], state["n_given"]) == (0, state["n_requests"])
    assert len(labels_of(session).drop_duplicates("question_id")) == 50


def test_a_guideline_is_shown_to_every_labeller(tmp_path):
    state = opened(tmp_path, labeller="ada").reply("guideline", text="A nickname is right.\n")
    assert state["guideline"] == "A nickname is right.\n"
    assert opened(tmp_path, labeller="ben").reply("open") | {"notes": []} == state
    assert (tmp_path / "run.labels.guideline.txt").read_text() == "A nickname is right.\n"


def counts_of(folder):
    """Return the counts of disputed, undecided and decided answers that a notebook has."""
    estimated = LabelSample.read(folder / "run.labels.jsonl").with_labels(evaluate(RUN))
    counts = estimated.sampled_judgement.counts
    return counts["n_disputed"], counts["n_undecided"], counts["n_labels"]


def test_an_adjudicator_decides_the_answers_on_which_labellers_differ_and_no_other(disputes):
    assert counts_of(disputes) == (3, 3, 27)
    words = "'ben' has other labels in .*; labels and adjudications need different names"
    with pytest.raises(RunError, match=words):
        opened(disputes, labeller="ben", is_adjudication=True)
    judge = opened(disputes, labeller="adjudicator", is_adjudication=True)
    state = judge.reply("open")
    assert (state["n_given"], state["n_left"], state["n_requests"]) == (0, 3, 3)
    assert estimates_of(judge)["rows"] == []
    for number in range(3):
        votes = {vote["labeller"]: vote for vote in state["answer"]["votes"]}
        assert votes["ada"]["correct"] is not votes["ben"]["correct"]
        assert votes["ben"]["comment"] == "a nickname"
        state = judge.reply("give", number, is_right(state))
    assert (state["answer"], state["n_left"], state["disagreements"]) == (None, 0, [])
    assert (state["agreement"][0]["n_same"], state["agreement"][0]["n_both"]) == (27, 30)
    assert counts_of(disputes) == (0, 0, 30)
    assert judge.reply("change", 3, None, place=0)["n_given"] == 3
    # Undo takes the change back first, and then the last decision.
    assert judge.reply("undo", 3)["n_left"] == 0
    assert judge.reply("undo", 3)["n_left"] == 1
    with pytest.raises(RunError, match="'adjudicator' has other labels in"):
        opened(disputes, labeller="adjudicator")


def test_a_split_is_labelled_and_alpha_is_that_of_validation_questions_or_the_default(tmp_path):
    default = "PRO has α = 0.4, the default: "
    assert opened(tmp_path).alpha_sentence.startswith(default)
    # The labelled questions do not choose α, also if a run has no other ones than of validation.
    only, _ = CHANGES["split"]
    session = LabelSession.open(only, tmp_path / "only.jsonl", n_planned=20)
    assert session.alpha_sentence.startswith(default)
    run = with_questions(split=["validation"] * 20 + ["test"] * 40)
    other = LabelSession.open(run, tmp_path / "validation.jsonl", split="validation", n_planned=20)
    assert len(other.planned.answers) == 20
    session = LabelSession.open(run, tmp_path / "other.jsonl", n_planned=20)
    assert len(session.planned.answers) == 40
    pool = evaluate(run.select(split="validation"))
    chosen = Splits(pool, evaluate(run.select(split="test"))).alpha()
    assert session.alphas["PRO"] == chosen
    words = f"PRO has α = {chosen:g}, chosen by ROUGE-L > 0.3 on 20 validation questions"
    assert words in estimates_of(session)["alpha"]


@pytest.fixture
def scored_run(tmp_path):
    """A file of records with validation questions, and a session with all labels of its plan."""
    rows = []
    for number in range(90):
        reference = f"alpha {number}"
        text = reference if number % 3 > 0 and number % 11 > 2 else "beta"
        if number % 9 == 1:
            text += " and more"  # which ROUGE-L calls right, and a labeller does not
        answers = [{"text": f"gamma {number}", "log_prob": -2.0 - number % 7}]
        answers.append({"text": text, "log_prob": -0.1 - (number * 37 % 90) / 50})
        split = "validation" if number < 40 else "test"
        rows.append(record(number, *answers, references=[reference], split=split))
    path = write_lines(tmp_path / "records.jsonl", rows)
    session = opened(tmp_path, importing.import_answers(path), 40)
    give(session, 44)
    return path, session


def test_pro_score_prints_the_estimates_of_the_page_in_the_same_words(scored_run):
    path, session = scored_run
    page = estimates_of(session)
    words = [path, "--labels", session.path]
    out, _ = typed("score", *words)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    for row in page["rows"]:
        assert len(row) == 4
        assert " ".join(row.values()) in lines
    assert page["sentence"] in " ".join(lines)
    assert page["alpha"] in lines
    assert "The label of me was the same for 4 of 4 answers that were shown twice." in lines
    sample = LabelSample.read(session.path)
    row = sample.judge_agreement(session.planned.evaluation).iloc[0]
    agreement = f"{row.agreement:.1%} ({row.agreement_low:.1%} to {row.agreement_high:.1%})"
    assert f"ROUGE-L > 0.3 and the labels agree on an estimated {agreement} of" in out
    assert "Right means: labels of 40 answers." in out
    content = json_of(*words)
    judgement = session.planned.judgement(labels_of(session))
    assert content["accuracy"] == pytest.approx(judgement.accuracy)
    assert (content["rule"], content["n_judged"]) == ("labels of 40 answers", 40)
    aurocs = {row["method"]: row["AUROC by labels"] for row in page["rows"]}
    for row in content["auroc"]:  # each score at its own α
        name = row["method"] if row["method"] in aurocs else f"{row['method']}, lexical"
        known = "not shown" if row["auroc"] is None else f"{row['auroc']:.3f} "
        assert aurocs[name].startswith(known)
    table = session.path.with_name("scores.csv")
    typed("score", *words, "--output", table)
    scores = pd.read_csv(table).set_index("question_id")["correct"]
    labels = labels_of(session)
    labels = labels[~labels["repetition"]].set_index("question_id")["correct"]
    assert scores.dropna().to_dict() == labels.to_dict()
    # A sample judges no guarantee, no two files, and no report.
    assert "only a sample of the answers has labels" in refused("score", *words, "--target", 0.8)
    for command in (["score", path, *words], ["report", *words]):
        assert "in pro score with one file of responses" in refused(*command)


def test_pro_score_gives_each_score_the_alpha_of_the_page(scored_run):
    path, session = scored_run
    run = importing.import_answers(path)
    scored = score_answers(run, sample=LabelSample.read(session.path))
    assert scored.alphas == session.alphas
    name = "S-PRO, lexical"
    scored = replace(scored, sampled=replace(scored.sampled, alphas={"PRO": 0.4, name: 0.005}))
    expected = scored.judged.whole.pro(0.005, name=name)
    np.testing.assert_array_equal(scored.scores["S-PRO"], expected)
    assert not np.array_equal(expected, scored.judged.whole.pro(0.4, name=name))


def test_the_default_label_file_lies_beside_the_run(tmp_path):
    assert default_label_file(tmp_path) == tmp_path.with_name(f"{tmp_path.name}.labels.jsonl")
    assert default_label_file(tmp_path / "a.jsonl") == tmp_path / "a.labels.jsonl"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server on whose page nothing has been labelled."""
    with served(opened(tmp_path_factory.mktemp("served"))) as server:
        yield server
    assert not server.session.path.exists()


def test_the_server_refuses_requests_without_its_token(server):
    stranger = SimpleNamespace(host=server.host, token="wrong")
    for request in (
        lambda: urllib.request.urlopen(f"http://{server.host}/?token=wrong"),
        lambda: post(stranger, "give", correct=True),
    ):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            request()


@contextmanager
def connected(server):
    """Open a connection to the server."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as connection:
        yield connection


def message_head(server, length):
    lines = ["POST /message HTTP/1.1", f"Host: {server.host}", f"X-Token: {server.token}"]
    return "\r\n".join([*lines, f"Content-Length: {length}", "", ""]).encode()


@pytest.mark.parametrize("length", ["abc", "-1", "", "10000", "9" * 5000, "1.5"])
def test_a_message_of_unusable_length_is_answered_by_an_error(server, length, capfd):
    with connected(server) as connection:
        connection.sendall(message_head(server, length))
        status = connection.makefile("rb").readline()
    assert status.split()[1] == b"400"
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("head", [b"", b"GET / HT", "message"])
def test_a_dropped_connection_ends_quietly(server, head, capfd):
    n_threads = threading.active_count()
    with connected(server) as connection:
        connection.sendall(message_head(server, 50) if head == "message" else head)
        # Closing with this option resets the connection, as a killed browser does.
        linger = struct.pack("ii", 1, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    assert_threads_end(n_threads)
    assert post(server, "open")["n_given"] == 0
    assert capfd.readouterr().err == ""


def test_a_message_that_never_arrives_ends_its_thread(server, monkeypatch, capfd):
    assert 0 < label_page._Handler.timeout <= 60
    monkeypatch.setattr(label_page._Handler, "timeout", 0.2)
    with connected(server) as connection:
        n_threads = threading.active_count()
        connection.sendall(message_head(server, 50))
        assert connection.recv(100) == b""
        assert_threads_end(n_threads)
    assert capfd.readouterr().err == ""


def assert_threads_end(n_threads):
    end = time.monotonic() + 20
    while threading.active_count() > n_threads and time.monotonic() < end:
        time.sleep(0.02)
    assert threading.active_count() <= n_threads


def test_the_browser_opens_a_file_that_only_the_user_can_read(tmp_path, monkeypatch):
    path = records_file(tmp_path, 30)
    opened_pages = []

    def open_browser(address):
        page = Path(unquote(urlsplit(address).path))
        modes = [stat.S_IMODE(file.stat().st_mode) for file in (page, page.parent)]
        opened_pages.append((address, page, modes, page.read_text()))

    def stop(server):
        raise KeyboardInterrupt

    monkeypatch.setattr("webbrowser.open", open_browser)
    monkeypatch.setattr(LabelServer, "serve_forever", stop)
    out, _ = typed("label", path, "--planned", 20)
    [(address, page, modes, text)] = opened_pages
    [page_address] = re.findall("Page: (.*)", out)
    token = page_address.partition("token=")[2]
    assert len(token) >= 32
    assert token not in address
    assert address.startswith("file:///")
    assert modes == [0o600, 0o700]
    assert f'content="0; url={page_address}"' in text
    assert not page.exists()
    assert "Labels: " in out


def test_an_unknown_action_becomes_a_sentence_for_the_page(server):
    assert post(server, "stop")["status"].startswith("Unknown action 'stop'")


def label_with_keys(page, n, first):
    """Press the key of the true label `n` times; the page shows `first` labels before."""
    for number in range(first, first + n):
        page.get_by_text(f"{number} of 33 labels given").wait_for()
        reference, answer = page.locator("dd").all_inner_texts()
        page.keyboard.press("r" if answer == reference else "w")
    page.get_by_text(f"{first + n} of 33 labels given").wait_for()


def test_thirty_labels_by_keyboard_survive_reload_undo_and_the_end_of_the_server(tmp_path, browse):
    with ExitStack() as stack:
        with served(opened(tmp_path)) as first:
            page, errors = stack.enter_context(browse(first.address))
            label_with_keys(page, 10, 0)
            page.reload()
            label_with_keys(page, 5, 10)
            page.keyboard.press("u")
            label_with_keys(page, 3, 14)
            assert not errors
            assert not re.search("toy|ROUGE|probability", page.locator("#label").inner_text())
        page.keyboard.press("r")
        page.get_by_text("The server does not answer").wait_for()
        assert len(read_label_file(first.session.path)) == 17
        with served(opened(tmp_path)) as second:
            page.goto(second.address)
            label_with_keys(page, 16, 17)
            page.get_by_text("All planned answers have a label").wait_for()
            page.set_viewport_size({"width": 400, "height": 800})
            table = page.locator(".pro-scroll", has_text="AUROC by ROUGE-L")
            assert table.evaluate("area => area.scrollWidth <= area.clientWidth")
            shown = table.inner_text()
            assert page.locator("code").all_inner_texts() == ["pro score --labels"]
            assert "`" not in page.locator("#label").inner_text()
    assert len(read_label_file(first.session.path)) == 33
    nll = estimates_of(second.session)["rows"][0]
    assert nll["AUROC by labels"] in shown


def test_a_label_is_found_in_the_list_and_changed_with_a_comment(tmp_path, browse):
    with served(opened(tmp_path)) as server, browse(server.address) as (page, errors):
        page.get_by_text("Guideline", exact=True).click()
        page.get_by_role("button", name="write").click()
        page.get_by_label("guideline").fill("A nickname is right.\nr and w are letters.")
        page.get_by_role("button", name="save").click()
        page.get_by_text("A nickname is right.").wait_for()
        label_with_keys(page, 3, 0)
        page.keyboard.press("c")
        page.keyboard.type("rw: a nickname")  # letters of the keys are text here
        page.keyboard.press("Enter")
        label_with_keys(page, 1, 3)
        page.get_by_text("Last label:").wait_for()
        page.get_by_text("Your labels, which you can change").click()
        page.get_by_text("4 of 4 labels").wait_for()
        page.get_by_label("show").select_option("with a comment")
        page.get_by_text("1 of 4 labels").wait_for()
        before = labels_of(server.session)
        page.get_by_role("button", name="change").click()
        page.get_by_text("Give it anew, or keep it").wait_for()
        assert page.get_by_label("comment", exact=True).input_value() == "rw: a nickname"
        page.keyboard.press("d")
        page.get_by_role("cell", name="cannot decide").wait_for()
        page.get_by_text("4 of 33 labels given").wait_for()
        assert not errors
    after = labels_of(server.session)
    assert after["correct"].tolist() == [*before["correct"].tolist()[:3], None]
    assert after["comment"].tolist() == ["", "", "", "rw: a nickname"]


def test_an_adjudicator_sees_the_labels_of_others_and_decides_by_keys(disputes, browse):
    judge = opened(disputes, labeller="adjudicator", is_adjudication=True)
    with served(judge) as server, browse(server.address) as (page, errors):
        page.get_by_text("0 of 3 labels given · 3 left").wait_for()
        page.get_by_text("The estimates are shown after the last decision.").wait_for()
        assert page.get_by_text("first labels alone").count() == 0
        assert re.search(r"ben: (right|wrong) \(a nickname\)", page.locator("dl").inner_text())
        for number, key in enumerate("rwd"):
            page.get_by_text(f"{number} of 3 labels given").wait_for()
            page.keyboard.press(key)
        page.get_by_text("No answer is left on which labellers differ").wait_for()
        assert not errors
    assert labels_of(judge)["correct"].tolist()[-3:] == [True, False, None]
