"""A judge behind a server: letters in the lists of a reply, faults, and the key."""

import math

import numpy as np
import pytest
from fake_server import connected, replying, serving

from pro_lib.common.files import RunError
from pro_lib.common.validation import SentenceError
from pro_lib.generation.choice_server import ChoiceServer
from pro_lib.metrics.judge_model import judge
from pro_lib.metrics.yes_no import YES_AND_NO, yes_no_log_probs

KEY = "sk-very-secret-0123456789"
SURE = {"A": 0.9, "B": 0.08, "maybe": 0.01}


def token(text, **probabilities):
    """An entry of a chat reply: the generated token, and the likely ones at its place."""
    listed = [{"token": name, "logprob": math.log(p)} for name, p in probabilities.items()]
    chosen = probabilities.get(text, 0.5)
    return {"token": text, "logprob": math.log(chosen), "top_logprobs": listed}


def chat(*tokens):
    return {"choices": [{"logprobs": {"content": list(tokens)}}]}


UNKNOWN = [math.nan, math.nan]
REPLIES = {
    "both letters": (chat(token("A", **SURE)), [0.9, 0.08]),
    "tokens of one letter": (
        chat(token("A", **{"A": 0.5, " A": 0.2, "(A)": 0.1, "B": 0.1})),
        [0.8, 0.1],
    ),
    "a letter after a bracket": (
        chat(token("(", **{"(": 0.8, "B": 0.1}), token("A", A=0.75, B=0.25)),
        [0.6, 0.3],
    ),
    "other words": (chat(token("Sorry", Sorry=0.9, I=0.1)), UNKNOWN),
    "no list": (chat({"token": "A", "logprob": -0.1}), UNKNOWN),
    "above 1": (chat(token("A", A=0.9, B=0.9)), UNKNOWN),
    "no number": (
        chat(token("A") | {"top_logprobs": [{"token": "A", "logprob": "high"}]}),
        UNKNOWN,
    ),
    "no choice": ({"choices": []}, UNKNOWN),
    "no object": ([], UNKNOWN),
}


@pytest.mark.parametrize("kind", REPLIES)
def test_the_letters_of_a_reply_have_their_probabilities_or_no_value(kind):
    reply, expected = REPLIES[kind]
    with replying(reply) as (url, _):
        values = ChoiceServer(url, "judge").choice_log_probs(["Is it?"], YES_AND_NO)
    np.testing.assert_allclose(np.exp(values), [expected])


ONE_TOKEN = {
    "it could change the verdict": (token("B", B=0.45), ("refused", 0.45, None)),
    "it has exactly one half": (token("A", A=0.5), ("refused", 0.5, None)),
    "it cannot": (token("B", B=0.97), ("judged", 1.0, 0.03)),
    "the judge says something else": (token("no", no=0.9, B=0.01), ("refused", 0.01, None)),
    "the letter alone is too little": (token("A", A=0.4, no=0.2), ("refused", 0.4, None)),
}


@pytest.mark.parametrize("kind", ONE_TOKEN)
def test_an_unlisted_letter_gets_the_rest_or_there_is_no_verdict(kind):
    reply, (status, mass, p_right) = ONE_TOKEN[kind]
    with replying(chat(reply)) as (url, _):
        table = judge(["Who?"], [["Ada"]], ["Bob"], model=ChoiceServer(url, model="judge"))
    assert table.at[0, "status"] == status
    assert table.at[0, "mass"] == pytest.approx(mass)
    assert table.at[0, "p_right"] == (
        pytest.approx(math.nan, nan_ok=True) if p_right is None else pytest.approx(p_right)
    )


def test_an_endpoint_for_texts_gets_the_common_beginning_of_the_choices():
    reply = {
        "choices": [{"logprobs": {"top_logprobs": [{"A": math.log(0.7), "B": math.log(0.2)}]}}]
    }
    with replying(reply) as (url, requests):
        server = ChoiceServer(url, model="judge", endpoint="completions")
        values = np.exp(server.choice_log_probs(["Is it?"], YES_AND_NO))
    np.testing.assert_allclose(values, [[0.7, 0.2]])
    path, _, body = requests[0]
    assert (path, body["prompt"]) == ("/v1/completions", "Is it? (")


def test_replies_of_another_server_are_not_used(tmp_path):
    with replying(chat(token("A", **SURE))) as (url, requests):
        changes = [
            {},
            {"base_url": url.replace("127.0.0.1", "localhost")},
            {"base_url": f"{url}/other"},
            {"endpoint": "completions"},
            {"model": "other"},
            {"top": 5},
        ]
        for change in changes:
            server = ChoiceServer(**{"base_url": url, "model": "judge"} | change)
            judge(["Who?"], [["Ada"]], ["Ada"], model=server, cache=tmp_path / "verdicts.jsonl")
    assert len(requests) == len(changes)


def test_the_key_is_sent_and_is_in_no_file_and_no_message(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    cache = tmp_path / "verdicts.jsonl"
    with replying(chat(token("A", **SURE)), (401, KEY)) as (url, requests):
        server = ChoiceServer(url, model="judge")
        judge(["Who?"], [["Ada"]], ["Ada"], model=server, cache=cache)
        with pytest.raises(RunError) as error:
            server.choice_log_probs(["Is it?"], YES_AND_NO)
    assert requests[0][1]["Authorization"] == f"Bearer {KEY}"
    for text in (cache.read_text(), str(error.value), repr(server)):
        assert KEY not in text


@pytest.mark.parametrize("choices", [(" (A)", " A"), (" (", " (B)")])
def test_choices_need_different_letters(choices):
    server = ChoiceServer("http://localhost:1/v1", model="judge")
    with pytest.raises(SentenceError, match="a different letter each"):
        server.choice_log_probs(["Is it?"], choices)


@pytest.mark.parametrize("most", [10_000, 20])
def test_a_connected_model_has_the_values_of_the_model_in_process_or_none(facts_2m, most):
    prompts = ["Question: What is the capital of France?\nAnswer:", "Question: Who?\nAnswer:"]
    choices = [" Paris", " Parma", " xylophone"]
    expected = facts_2m.choice_log_probs(prompts, choices)
    with serving(facts_2m, most=most) as url:
        values = connected(url, facts_2m, top=most).choice_log_probs(prompts, choices)
    is_listed = ~np.isnan(values)
    assert is_listed.all() == (most > 20)
    assert is_listed.any()
    np.testing.assert_allclose(values[is_listed], expected[is_listed], atol=1e-4)


def test_replies_of_a_connected_model_belong_to_its_server(facts_2m, tmp_path):
    prompts = ["Question: Who wrote Emma?\nAnswer:"]
    values = []
    for shift in (0.0, 0.5):

        def sampler(values, body, shift=shift):
            return (values * (1 + shift)).log_softmax(-1)

        with serving(facts_2m, sampler=sampler) as url:
            model = connected(url, facts_2m, top=10_000)
            values.append(yes_no_log_probs(model, prompts, cache=tmp_path / "file"))
    assert abs(values[0] - values[1]).min() > 0.1
