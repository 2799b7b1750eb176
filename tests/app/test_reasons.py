"""Why questions and answers are not used, as the commands say it."""

from collections import Counter
from functools import partial

import pytest
from commands import answer, json_of, record, refused, typed
from test_response_formats import ended, response_of

from pro_lib.app import explorer
from pro_lib.importing import import_answers

paris = partial(record, references=["Paris"])


def questions_file(write, n_questions, n_paris):
    """Write questions; the reference of the first ones is Paris, that of the others is Lyon."""
    rows = [record(n, references=["Paris" if n < n_paris else "Lyon"]) for n in range(n_questions)]
    return write(*rows, name="questions.jsonl")


def chat(reason="stop", **message):
    """A response with a finish reason, and fields of its message."""
    body = response_of("openai_chat")
    body["choices"][0]["finish_reason"] = reason
    body["choices"][0]["message"] |= message
    return body


BLOCKED = {"promptFeedback": {"blockReason": "SAFETY"}}
REFUSED = response_of("openai_responses")
REFUSED["output"][1]["content"] = [{"type": "refusal", "refusal": "No."}]
FILTERED = ended("openai_responses", "incomplete")
FILTERED["incomplete_details"] = {"reason": "content_filter"}
UNKNOWN_NUMBERS = chat()
UNKNOWN_NUMBERS["choices"][0]["logprobs"] = None

PARIS = answer("Paris", 0.5)

# By response or answer of a record: the reason why it is not used, and the words of the error with
# --strict, if there is one.
UNUSED = {
    "limit": (chat("length"), "cut", "choice 0: the answer was cut (finish reason 'length')"),
    "limit of thoughts": (chat("length", content=None), "cut", "was cut before its text"),
    "filter of Gemini": (ended("gemini_batch", "SAFETY"), "filtered", "(finish reason 'safety')"),
    "filter of Responses": (FILTERED, "filtered", "(finish reason 'content_filter')"),
    "blocked question": (BLOCKED, "filtered", "a filter or a refusal stopped the answer"),
    "refusal": (chat(content=None, refusal="No."), "filtered", "refusal"),
    "refusal of Responses": (REFUSED, "filtered", "refusal"),
    "tool": (chat("tool_calls"), "tool call", "the model called a tool"),
    "tool without text": (chat("tool_calls", content=None), "tool call", "called a tool"),
    "aborted": (chat("abort"), "failed", "the request failed (finish reason 'abort')"),
    "error": ({"error": {"message": "late"}}, "failed", "the response failed (late)"),
    "no numbers": (UNKNOWN_NUMBERS, "no log-probabilities", "logprobs are missing"),
    "other tokens": (chat(content="Rome"), "contradictory", "whose tokens spell a different text"),
    "no finish reason": (chat(None), "unreadable", "finish_reason=None must be text"),
    "no text": (chat(content=None), "no answer", "the answer has no text"),
    "cut": (PARIS | {"finished": False}, "cut", "answers[0]: the answer was cut"),
    "unreadable": (PARIS | {"log_prob": 5}, "unreadable", "answers[0]: log_prob=5 must be"),
    "contradictory": (
        PARIS | {"tokens": ["Rome"], "token_log_probs": [-1.0]},
        "contradictory",
        "answers[0]: an answer whose tokens spell a different text",
    ),
    "text alone": (PARIS | {"log_prob": None}, "no log-probabilities", None),
}


@pytest.mark.filterwarnings(
    "ignore:1 answers .* left out",
    "ignore:.*had thoughts",
    "ignore:.*have no log-probability",
)
@pytest.mark.parametrize("name", UNUSED)
def test_what_is_not_used_is_counted_by_its_reason(name, write):
    second, reason, sentence = UNUSED[name]
    if "log_prob" in second:
        lines = [paris(0, PARIS), paris(1, second)]
    else:
        bodies = enumerate([chat(), second])
        lines = [{"custom_id": f"q{n}", "response": {"body": body}} for n, body in bodies]
    path = write(*lines, name="responses.jsonl")
    given = (path, "--questions", questions_file(write, 3, 3))
    content = json_of(*given)
    expected = Counter([reason, "no answer"])  # q2 has no response
    assert content["not_used"] == {"questions": expected, "answers": {reason: 1}}
    used, unused, _ = content["answers"]
    assert (used["reason"], unused["reason"]) == ("", reason)
    assert (unused["pro"], unused["mistrust"]) == (None, False)
    if sentence is not None:
        error = refused("score", *given, "--strict")
        assert f"{path}, line 2" in error
        assert sentence in error


def test_a_cut_answer_that_is_more_probable_is_counted_and_marked(write):
    cut = answer("Paris", 0.9, finished=False)
    path = write(
        *[paris(n, cut, answer("Lyon", 0.05)) for n in range(4)],
        paris(4, answer("Pa", 0.04, finished=False), answer("Paris", 0.05)),
        paris(5, cut),
    )
    out, _ = typed("score", path)
    assert "20.0% answered correctly (1 of 5 judged answers)" in out
    assert "1 of 6 questions are left out (q5): cut (1)." in out
    assert "Answers that are not used: cut (6)." in out
    assert "In 4 questions, marked with … in the table, a cut answer is more probable than" in out
    lines = [line for line in out.splitlines() if "?" in line]
    assert [line.split()[0] for line in lines] == ["…"] * 4 + ["4?", "5?"]
    assert "(cut)" in lines[5]
    content = json_of(path)
    assert content["n_likelier_cut"] == 4
    assert content["not_used"] == {"questions": {"cut": 1}, "answers": {"cut": 6}}
    assert [row["likelier_cut"] for row in content["answers"]] == [True] * 4 + [False] * 2
    page = path.with_name("report.html")
    typed("report", path, "--output", page)
    assert "In 4 questions, marked with … in the table" in page.read_text()
    data = explorer.run_data(import_answers(path))
    assert [question["likelier_cut"] for question in data["questions"]] == [True] * 4 + [False] * 2
    assert [question["reason"] for question in data["questions"]] == [""] * 5 + ["cut"]
    assert data["unused_answers"] == "cut (6)"


def test_answers_to_few_of_the_questions_are_scored_and_the_others_have_no_mark(write):
    rows = [record(n, answer("Paris", 0.9 - n / 50), answer("Rome", 0.01)) for n in range(30)]
    path = write(*rows, name="records.jsonl")
    given = ("--questions", questions_file(write, 377, 10))
    for methods in ((), ("--methods", "PRO"), ("--methods", "SE")):
        out, _ = typed("score", path, *given, *methods)
        assert "377 questions, 33.3% answered correctly (10 of 30 judged answers)." in out
        assert "left out (q30, q31, q32, q33, q34, …): no answer (347)." in out
        assert "log-probabilities" not in out
        assert "cut" not in out
    content = json_of(path, *given)
    assert sum(row["mistrust"] for row in content["answers"]) == 8  # a quarter of 30
    assert content["not_used"] == {"questions": {"no answer": 347}, "answers": {}}


def test_questions_without_references_are_named(write):
    rows = [paris(0, answer("Paris", 0.5)), paris(1, answer("Paris", 0.5))]
    del rows[1]["references"]
    content = json_of(write(*rows))
    assert content["not_used"]["questions"] == {"no reference": 1}
    assert "(q1): no reference (1)." in content["exclusions"]


@pytest.mark.filterwarnings("ignore:1 answers .* left out")
def test_reasons_survive_a_selection_of_questions():
    bodies = {"a": chat(), "b": chat("length"), "c": chat("tool_calls")}
    rows = [{"question_id": name, "response": body} for name, body in bodies.items()]
    run = import_answers([*rows, {"no": "response"}])
    assert run.reasons().tolist() == ["", "cut", "tool call"]
    assert run.unused_answers() == {"cut": 1, "tool call": 1, "unreadable": 1}
    selected = run.select(question_ids=["c", "a"])
    assert selected.reasons().tolist() == ["tool call", ""]
    assert selected.unused_answers() == {"tool call": 1, "unreadable": 1}
    # The most frequent reason of a question counts.
    cut = answer("Pa", 0.5, finished=False)
    run = import_answers([paris(0, cut, cut, answer("x", 0.5, correct="?"))])
    assert run.reasons().tolist() == ["cut"]
