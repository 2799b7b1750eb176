"""Lines and answers that cannot be used: left out, counted and named, or refused."""

import contextlib
import gc
import json
import math
import re

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from test_response_formats import chat, completion, gemini

from pro_lib.app import cli
from pro_lib.common.files import RunError
from pro_lib.importing.importers import from_openai, import_answers
from pro_lib.importing.records import from_records


def changed(**fields):
    body = chat(id="changed")
    body["choices"][0] |= fields
    return body


def failed(**body):
    return {
        "custom_id": "f",
        "response": {"status_code": 500, "request_id": "r", "body": body},
        "error": None,
    }


# By kind of line: the line, the message about it, and the words of the error.
BAD = {
    "error of OpenAI": (
        {"error": {"message": "late", "code": 429}},
        "that failed",
        "the response failed (late)",
    ),
    "error of vLLM": (
        {"object": "error", "message": "long", "code": 400},
        "that failed",
        "the response failed (long)",
    ),
    "error of Anthropic": (
        {"type": "error", "error": {"message": "busy"}},
        "that failed",
        "the response failed (busy)",
    ),
    "error of FastAPI": ({"detail": "Not found"}, "that failed", "the response failed (Not found)"),
    "error of a proxy": ({"message": "no route"}, "that failed", "the response failed (no route)"),
    "status without body": (failed(), "that failed", "an empty response with status 500"),
    "empty text as body": (
        {"response": {"status_code": 503, "body": ""}},
        "that failed",
        "status 503",
    ),
    "no response": ({"question": "Q?", "response": None}, "that failed", "the response is empty"),
    "failed in Vertex": (
        {"status": "Bad Request", "request": {}, "response": {}},
        "that failed",
        "Bad Request",
    ),
    "no choice": (changed() | {"choices": []}, "that failed", "it holds no answers"),
    "no log-probabilities": (
        changed(logprobs=None),
        "without log-probabilities",
        "logprobs are missing",
    ),
    "no finish reason": (
        changed(finish_reason=None),
        "without a finish reason",
        "finish_reason=None must be text",
    ),
    "refusal": (
        changed(message={"content": None, "refusal": "No."}),
        "that a filter or a refusal stopped",
        "(finish reason 'refusal')",
    ),
    "-inf": (
        changed(logprobs={"content": [{"logprob": -math.inf}]}),
        "whose probability was not returned",
        "[0]=-inf stands for",
    ),
    "nan": (
        changed(logprobs={"content": [{"logprob": math.nan}]}),
        "whose probability was not returned",
        "[0]=nan stands for",
    ),
    "null": (
        changed(logprobs={"content": [{"logprob": None}]}),
        "whose probability was not returned",
        "[0]=None stands for",
    ),
    "half a character": (
        changed(message={"content": "\ud800"}),
        "that cannot be read",
        "hex escape",
    ),
    "broken": ('{"choices": [{', "that cannot be read", "it must be JSON in UTF-8"),
    "number": ("5", "that cannot be read", "unrecognized response format"),
    "list of numbers": ("[1, 2]", "that cannot be read", "unrecognized response format"),
    "nothing known": ({"answer_of": 3}, "that cannot be read", "unrecognized response format"),
    "other prompts": (
        {"prompt": ["a", "b"], "response": chat()},
        "that cannot be read",
        "1 answers to 2 prompts",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_is_left_out_counted_and_named_or_refused(write, name):
    line, kind, words = BAD[name]
    path = write(chat(id="a"), line, chat(id="b"))
    with pytest.warns(UserWarning, match=rf"^1 answers {kind}.* left out: line 2") as said:
        run = import_answers(path)
    assert len(said) == 1
    assert "ask for" not in str(said[0].message)  # the others have what is missing
    np.testing.assert_array_equal(run.log_probs()[~np.isnan(run.log_probs())], [-0.75, -0.75])
    with pytest.raises(RunError, match=re.escape(words)) as refused:
        import_answers(path, strict=True)
    assert str(refused.value).startswith(f"{path}, line 2")
    assert "ask for" not in str(refused.value)


def test_a_file_of_one_problem_says_the_problem_and_the_remedy(write):
    path = write(*(changed(logprobs=None) | {"id": str(n)} for n in range(3)))
    words = r"line 1, choice 0: logprobs are missing \(3 answers\); ask for them with logprobs=true"
    with pytest.raises(RunError, match=words):
        import_answers(path)
    with pytest.raises(
        RunError, match=r"line 1: unrecognized response format; supported are .* \(2 answers\)$"
    ):
        import_answers(write({"a": 1}, {"b": 2}))
    with pytest.raises(RunError, match=r"line 1 cannot be read|line 1: cannot be read: "):
        import_answers(write("{no", "{no"))
    with pytest.raises(
        RunError,
        match=r"left out are 1 that failed \(line 1: .*late.*\), 1 without log-probabilities",
    ):
        import_answers(write(BAD["error of OpenAI"][0], changed(logprobs=None)))


def test_the_first_of_many_are_named(write):
    lines = [chat(id="a"), *[{"error": {"message": "late"}}] * 7]
    with pytest.warns(
        UserWarning, match=r"^7 answers that failed are left out: line 2; .*; line 6 and 2 more$"
    ):
        import_answers(write(*lines))


def test_a_bad_choice_among_others_is_left_out(write):
    body = chat(id="a")
    body["choices"].insert(0, changed(finish_reason=None)["choices"][0])
    with pytest.warns(
        UserWarning, match=r"^1 answers without a finish reason are left out: line 1, choice 0$"
    ):
        run = import_answers(write(body))
    np.testing.assert_array_equal(run.log_probs(), [[-0.75]])


def test_pieces_of_a_stream_without_a_mark_are_told_by_their_common_id():
    cut = completion(None)
    with pytest.raises(
        RunError,
        match="entry 1, choice 0: the answer has no finish reason, as the pieces of a stream",
    ):
        from_openai([cut, completion()])
    with pytest.warns(UserWarning, match="1 answers without a finish reason"):
        from_openai([cut | {"id": "another"}, completion()])
    with pytest.warns(UserWarning, match="1 answers without a finish reason"):
        from_openai([gemini(None) | {"responseId": None}, gemini()])


def test_a_key_message_is_no_mark_of_a_vendor(write):
    for line in ({"message": "no route"}, {"message": {"role": "assistant", "content": "Paris"}}):
        with pytest.raises(RunError) as refused:
            import_answers(write(line))
        assert "finish_reason" not in str(refused.value)


# --- Records ---

RECORD = {"question_id": "a", "references": ["x"], "answers": [{"text": "x", "log_prob": -1}]}
BAD_RECORDS = {
    "broken": '{"question_id": "b", "ans',
    "list": "[1]",
    "no answers": {"question_id": "b"},
    "no id": {"answers": []},
    "-inf": {"question_id": "b", "answers": [{"text": "y", "log_prob": -math.inf}]},
    "null": {"question_id": "b", "answers": [{"text": "y", "token_log_probs": [-1, None]}]},
    "reference": {"question_id": "b", "references": 5, "answers": [{"text": "y", "log_prob": -1}]},
}


@pytest.mark.parametrize("name", BAD_RECORDS)
def test_a_bad_record_is_left_out_counted_and_named_or_refused(write, name):
    path = write(RECORD, BAD_RECORDS[name], RECORD | {"question_id": "c"})
    with pytest.warns(UserWarning, match=r"^1 answers that cannot be read are left out: line 2 \("):
        run = import_answers(path)
    assert run.answers["question_id"].tolist() == ["a", "c"]
    with pytest.raises(RunError, match="line 2"):
        import_answers(path, strict=True)


def test_a_bad_answer_of_a_record_leaves_the_others():
    answers = [{"text": "x", "log_prob": math.nan}, {"text": "y", "log_prob": -2}]
    with pytest.warns(
        UserWarning, match=r"entry 1 \(answers\[0\].log_prob=nan must be a log-probability"
    ):
        run = from_records([RECORD | {"answers": answers}])
    assert run.answers[["rank", "text", "log_prob"]].to_numpy().tolist() == [[0, "y", -2.0]]


# --- The command, and the reading of large files ---


def test_the_commands_refuse_with_strict(write, tmp_path):
    path = write(chat(id="a"), {"error": {"message": "late"}})
    for command in (["score"], ["explore", "--html", str(tmp_path / "page.html")]):
        result = CliRunner().invoke(cli.pro, [command[0], str(path), *command[1:], "--strict"])
        assert result.exit_code == 1
        assert "line 2: the response failed (late)" in result.output
    with pytest.warns(UserWarning, match="1 answers that failed"):
        assert CliRunner().invoke(cli.pro, ["score", str(path)]).exit_code == 0


def test_the_collection_of_garbage_goes_on_after_a_file_was_read(write):
    for lines in ([chat()], ["{no"]):
        path = write(*lines)
        with contextlib.suppress(RunError):
            import_answers(path)
        assert gc.isenabled()


LINES = st.sampled_from(sorted(BAD))


@pytest.mark.filterwarnings("ignore::UserWarning")
@given(st.lists(st.none() | LINES, min_size=1, max_size=6).filter(lambda lines: None in lines))
def test_good_lines_are_read_as_they_would_be_alone(tmp_path_factory, lines):
    texts, expected = [], []
    for n, name in enumerate(lines):
        line = chat() if name is None else BAD[name][0]
        if isinstance(line, dict):
            line = line | {"id": str(n)}
        texts.append(line if isinstance(line, str) else json.dumps(line))
        expected += [str(n)] * (name is None)
    path = tmp_path_factory.mktemp("lines") / "r.jsonl"
    path.write_text("\n".join(texts))
    run = import_answers(path)
    assert run.answers["question_id"].tolist() == expected
    assert run.answers["log_prob"].tolist() == [-0.75] * len(expected)
