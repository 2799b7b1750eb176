"""Labelling by hand: the session, its server and the page in a real browser."""

import json
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
from test_explorer import many

from pro_lib import importing
from pro_lib.app.explorer.label_server import LabelServer
from pro_lib.app.explorer.labelling import LabelSession
from pro_lib.app.label_files import default_label_file
from pro_lib.common.files import RunError
from pro_lib.evaluation.labels import estimate, labeller_agreement, plan_path, read_label_file


def half_right():
    """Return a run of 60 questions; the judge calls half of the answers right."""
    run = many(n=60)
    references = [["beta"] if number % 6 == 1 else ["alpha"] for number in range(60)]
    return replace(run, questions=run.questions.assign(references=references, split="test"))


RUN = half_right()


def opened(folder, **options):
    return LabelSession.open(RUN, folder / "run.labels.jsonl", n_planned=30, **options)


def labels_of(session):
    return read_label_file(session.path)


def give(session, n, state=None):
    """Label `n` answers as right exactly if they equal the reference; return the state."""
    state = state or session.reply("open")
    for _ in range(n):
        is_right = state["answer"]["text"] in state["answer"]["references"]
        state = session.reply("give", state["n_given"], is_right)
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


def post(server, message, token):
    request = urllib.request.Request(
        f"http://{server.host}/message", json.dumps(message).encode(), {"X-Token": token}
    )
    with urllib.request.urlopen(request) as response:
        return json.load(response)


def test_the_page_gets_the_question_the_references_and_the_answer_and_nothing_else(tmp_path):
    state = opened(tmp_path).reply("open")
    assert set(state["answer"]) == {"question", "references", "text"}
    assert state["answer"]["references"] == ["alpha"]
    assert (state["n_given"], state["n_requests"], state["estimates"]) == (0, 33, [])


def test_a_new_session_continues_after_the_last_label(tmp_path):
    state = give(opened(tmp_path), 5)
    assert opened(tmp_path).reply("open") == state


def test_a_message_that_arrives_twice_gives_one_label(tmp_path):
    session = opened(tmp_path)
    first = session.reply("give", 0, True)
    assert session.reply("give", 0, True) == first
    assert first["n_given"] == 1


def test_undo_shows_the_last_answer_again(tmp_path):
    session = opened(tmp_path)
    before = give(session, 3)
    after = session.reply("give", 3, None)
    assert session.reply("undo", after["n_given"]) == before


def test_a_complete_plan_ends_with_the_estimates_of_python_and_the_own_consistency(tmp_path):
    session = opened(tmp_path)
    state = give(session, 33)
    labels = read_label_file(session.path)
    assert len(labels) == 33
    assert state["answer"] is None
    assert state["consistency"]["n_repeated"] == state["consistency"]["n_same"] == 3
    table = estimate(labels, session.evaluations)
    shown = {row["method"]: row["auroc"] for row in state["estimates"] if not row["similarity"]}
    expected = table[table["similarity"] == ""].set_index("method")["auroc"].dropna()
    assert len(expected)
    assert {name: shown[name] for name in expected.index} == pytest.approx(expected.to_dict())


def test_labels_of_a_sample_are_not_read_as_the_correctness_of_all_answers(tmp_path):
    session = opened(tmp_path)
    give(session, 1)
    with pytest.raises(RunError, match="line 1: these labels are of a sample"):
        importing.read_labels(session.path)


def test_several_labellers_see_their_agreement_and_at_the_end_the_disagreements(tmp_path):
    session = opened(tmp_path, labeller="ben")
    answer = session.reply("open")["answer"]
    is_right = answer["text"] in answer["references"]
    state = session.reply("give", 0, not is_right)
    assert "disagreements" not in state
    assert state["labellers"] == []
    give(session, 32, state)
    # Another person decides the first answer differently, and all others alike.
    lines = [json.loads(line) for line in session.path.read_text().splitlines()]
    lines = [line | {"labeller": "ada"} for line in lines]
    lines[0]["correct"] = is_right
    with session.path.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    state = session.reply("open")
    [pair] = state["labellers"]
    assert (pair["labeller"], pair["other_labeller"]) == ("ada", "ben")
    assert (pair["n_both"], pair["n_same"]) == (30, 29)
    assert pair["kappa"] == pytest.approx(labeller_agreement(labels_of(session))["kappa"][0])
    [disagreement] = state["disagreements"]
    assert (disagreement["question"], disagreement["text"]) == (answer["question"], answer["text"])
    assert disagreement["right" if is_right else "wrong"] == ["ada"]
    assert disagreement["wrong" if is_right else "right"] == ["ben"]


def test_the_history_has_the_estimates_after_fewer_labels(tmp_path):
    session = opened(tmp_path)
    state = give(session, 25)
    first, last = state["history"]
    assert (first["n_labels"], last["n_labels"]) == (19, 23)
    labels = labels_of(session)
    assert labels["repetition"].head(20).sum() == 1
    expected = estimate(labels, session.evaluations).set_index("method").loc["NLL", "auroc"]
    assert last["auroc"] == pytest.approx(expected)


@contextmanager
def label_process(folder):
    """Start `pro label` in a process of its own, and return the process and how to send to it."""
    command = ["-m", "pro_lib", "label", "records.jsonl", "--planned", "20", "--no-browser"]
    with subprocess.Popen(
        [sys.executable, "-u", *command], stdout=subprocess.PIPE, text=True, cwd=folder
    ) as process:
        try:
            line = next(line for line in process.stdout if line.startswith("Page: "))
            host, token = re.search(r"http://(.*)/\?token=(.*)", line).groups()
            server = SimpleNamespace(host=host)
            yield process, lambda message: post(server, message, token)
        finally:
            process.kill()


def send_labels(send, n):
    """Label `n` answers as right exactly if they equal the reference; return the state."""
    state = send({"action": "open", "n_given": 0, "correct": None, "labels_file": None})
    for _ in range(n):
        answer = state["answer"]
        is_right = answer["text"] in answer["references"]
        state = send(
            {
                "action": "give",
                "n_given": state["n_given"],
                "correct": is_right,
                "labels_file": state["labels_file"],
            }
        )
    return state


def test_a_killed_process_loses_no_label_and_the_next_one_continues(tmp_path):
    rows = []
    for number in range(40):
        answers = [{"text": "gamma", "log_prob": -3.0}]
        answers.append({"text": "alpha" if number % 2 else "beta", "log_prob": -0.1 - number / 50})
        questions = {"question": f"Question {number}?", "references": ["alpha"]}
        rows.append({"question_id": f"q{number}", **questions, "answers": answers})
    (tmp_path / "records.jsonl").write_text("\n".join(map(json.dumps, rows)))
    path = tmp_path / "records.labels.jsonl"
    with label_process(tmp_path) as (process, send):
        assert send_labels(send, 9)["n_given"] == 9
        process.send_signal(signal.SIGKILL)
    with path.open("a") as file:  # a kill in the middle of a write leaves such a line
        file.write('{"dataset": "reco')
    with label_process(tmp_path) as (_, send):
        state = send_labels(send, 13)
    assert state["answer"] is None
    labels = read_label_file(path)
    assert labels["repetition"].tolist().count(False) == 20
    assert len(labels) == len(path.read_text().splitlines()) == state["n_requests"] == 22
    run = importing.import_answers(tmp_path / "records.jsonl")
    session = LabelSession.open(run, path)
    table = estimate(labels, session.evaluations).set_index("method")
    nll = next(row for row in state["estimates"] if row["method"] == "NLL")
    assert nll["auroc"] == pytest.approx(table.loc["NLL", "auroc"])


def test_the_order_of_the_questions_does_not_matter(tmp_path):
    state = give(opened(tmp_path), 3)
    ids = RUN.questions["question_id"].tolist()
    shuffled = RUN.select(question_ids=ids[::-1])
    again = LabelSession.open(shuffled, tmp_path / "run.labels.jsonl", n_planned=30)
    assert again.reply("open") == state


def test_labels_without_their_plan_are_an_error(tmp_path):
    session = opened(tmp_path)
    give(session, 1)
    plan_path(session.path).unlink()
    with pytest.raises(RunError, match=r"its plan .* is missing"):
        opened(tmp_path)


def test_another_number_of_planned_labels_is_an_error(tmp_path):
    give(opened(tmp_path), 1)
    with pytest.raises(RunError, match="plans 30 labels, not 40; after the first label"):
        LabelSession.open(RUN, tmp_path / "run.labels.jsonl", n_planned=40)


def test_the_number_of_planned_labels_can_change_before_the_first_label(tmp_path):
    opened(tmp_path)
    session = LabelSession.open(RUN, tmp_path / "run.labels.jsonl", n_planned=40)
    assert session.plan.n_labels == 40


def test_a_second_labeller_does_not_see_the_estimates_of_the_first(tmp_path):
    give(opened(tmp_path, labeller="ada"), 33)
    ben = opened(tmp_path, labeller="ben")
    state = ben.reply("open")
    assert (state["estimates"], state["history"]) == ([], [])
    assert give(ben, 20, state)["estimates"]


def test_only_the_answers_of_the_split_are_labelled(tmp_path):
    splits = ["validation"] * 15 + ["test"] * 45
    run = replace(RUN, questions=RUN.questions.assign(split=splits))
    session = LabelSession.open(run, tmp_path / "labels.jsonl", n_planned=30)
    assert len(session.plan.answers) == 45
    other = LabelSession.open(run, tmp_path / "b.jsonl", n_planned=20, split="validation")
    assert len(other.plan.answers) == 15


def test_two_open_sessions_draw_the_second_phase_once(tmp_path):
    ada = opened(tmp_path, labeller="ada")
    ben = opened(tmp_path, labeller="ben")
    ben.reply("open")
    give(ada, 33)
    saved = plan_path(ada.path).read_bytes()
    # Without its own memory of the second phase, ben's session reads it from the file.
    state = give(ben, 33)
    assert plan_path(ada.path).read_bytes() == saved
    assert state["answer"] is None
    assert state["labellers"][0]["n_both"] == 30


def test_a_key_for_another_run_labels_nothing(tmp_path):
    session = opened(tmp_path)
    state = session.reply("give", 0, True, "labels of another run.jsonl")
    assert state["n_given"] == 0
    assert session.reply("give", 0, True, state["labels_file"])["n_given"] == 1


@pytest.mark.parametrize(
    "content", ['{"results": [1]}', "[1, 2]", '{"undo": false, "labeller": "me"}']
)
def test_a_file_that_is_not_a_label_file_is_kept(tmp_path, content):
    path = tmp_path / "results.json"
    path.write_text(content)
    with pytest.raises(RunError, match=r"results\.json"):
        LabelSession.open(RUN, path, n_planned=30)
    assert path.read_text() == content


def test_no_label_is_planned_for_zero(tmp_path):
    with pytest.raises(RunError, match="at least 20; got 0"):
        LabelSession.open(RUN, tmp_path / "labels.jsonl", n_planned=0)


def test_the_default_label_file_lies_beside_the_run(tmp_path):
    assert default_label_file(tmp_path) == tmp_path.with_name(f"{tmp_path.name}.labels.jsonl")
    assert default_label_file(tmp_path / "a.jsonl") == tmp_path / "a.labels.jsonl"


def test_the_server_refuses_requests_without_its_token(tmp_path):
    with served(opened(tmp_path)) as server:
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(f"http://{server.host}/?token=wrong")
        message = {"action": "give", "n_given": 0, "correct": True, "labels_file": None}
        with pytest.raises(urllib.error.HTTPError, match="403"):
            post(server, message, "wrong")
        assert not server.session.path.exists()
        assert post(server, message, server.token)["n_given"] == 1


def test_an_unknown_action_becomes_a_sentence_for_the_page(tmp_path):
    with served(opened(tmp_path)) as server:
        reply = post(
            server,
            {"action": "stop", "n_given": 0, "correct": None, "labels_file": None},
            server.token,
        )
    assert reply["status"] == "Unknown action 'stop'. Choose open, give or undo."


def label_with_keys(page, n, first):
    """Press the key of the true label `n` times; the page shows `first` labels before."""
    for number in range(first, first + n):
        page.get_by_text(f"{number} of 33 labels given").wait_for()
        reference, answer = page.locator("dd").all_inner_texts()
        page.keyboard.press("r" if answer == reference else "w")
    page.get_by_text(f"{first + n} of 33 labels given").wait_for()


def test_thirty_labels_by_keyboard_survive_reload_undo_and_the_end_of_the_server(tmp_path):
    browser = pytest.importorskip("test_browser", reason="playwright is not installed")
    if browser.CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    with ExitStack() as stack:
        with served(opened(tmp_path)) as first:
            page, errors = stack.enter_context(browser.browser_page(first.address))
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
            table = page.locator(".pro-table").first.inner_text()
            state = second.session.reply("open")
    assert len(read_label_file(first.session.path)) == 33
    nll = next(row for row in state["estimates"] if row["method"] == "NLL")
    assert nll["auroc"] is not None
    assert f"{nll['auroc']:.3f} (95\u00a0%: {nll['auroc_low']:.3f}" in table
