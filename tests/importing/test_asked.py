"""Which question a request asks, and which answers are samples of one question."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pro_lib.common.files import RunError
from pro_lib.importing.importers import from_openai

PERU, MALI, CHAD = (f"What is the capital of {name}?" for name in ("Peru", "Mali", "Chad"))


def completion(text, log_prob, index=0):
    logprobs = {
        "tokens": [text],
        "token_logprobs": [log_prob],
        "text_offset": [0],
        "top_logprobs": None,
    }
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": "stop"}


def response(*log_probs):
    return {
        "object": "text_completion",
        "choices": [completion(f"x{p}", p, n) for n, p in enumerate(log_probs)],
    }


def user(text, role="user"):
    return {"role": role, "content": text}


def asked(question):
    """Requests for a question, by the place of the question in them."""
    return {
        "last": [user("Be brief.", "system"), user(question)],
        "before an instruction": [user(question), user("Answer in one word.")],
        "before a prefill": [user(question), user("The answer is", "assistant")],
        "of the system": [user(f"Q: {question}", "system"), user("Answer.")],
        "in parts": [
            user([{"type": "text", "text": question}, {"type": "text", "text": "In one word."}])
        ],
    }


@pytest.mark.parametrize("form", asked(""))
def test_the_question_is_in_the_turns_that_differ_between_requests(form):
    order = (PERU, MALI, PERU, CHAD)
    entries = [
        {"messages": asked(q)[form], "response": response(-n)} for n, q in enumerate(order, start=1)
    ]
    run = from_openai(entries)
    np.testing.assert_array_equal(run.log_probs(), [[-1, -3], [-2, np.nan], [-4, np.nan]])
    assert [
        q in text for q, text in zip((PERU, MALI, CHAD), run.questions["question"], strict=True)
    ] == [True] * 3


def batches(question, body):
    """Lines of batches that carry their request, by vendor."""
    contents = [
        {"role": "user", "parts": [{"text": question}]},
        {"role": "user", "parts": [{"text": "In one word."}]},
    ]
    messages = [user(question), user("In one word.")]
    return {
        "vertex": {
            "status": "",
            "request": {"contents": contents, "generationConfig": {}},
            "response": body,
        },
        "openai": {
            "body": {"model": "m", "messages": messages},
            "response": {"status_code": 200, "body": body},
        },
        "responses": {
            "body": {"instructions": "Be brief", "input": messages},
            "response": {"body": body},
        },
        "anthropic": {
            "params": {"system": "Be brief", "messages": messages},
            "result": {"message": body},
        },
        "text": {"request": json.dumps({"messages": messages}), "response": body},
    }


@pytest.mark.parametrize("vendor", batches("", {}))
def test_a_batch_in_any_order_meets_its_questions_by_the_request_that_it_carries(vendor):
    questions = pd.DataFrame({"question_id": ["p", "m", "c"], "question": [PERU, MALI, CHAD]})
    questions["references"], questions["split"] = [["Lima"]] * 3, "test"
    entries = [batches(q, response(-n))[vendor] for n, q in enumerate((CHAD, PERU, MALI), start=1)]
    np.testing.assert_array_equal(
        from_openai(entries, questions=questions).log_probs(), [[-2], [-3], [-1]]
    )


@pytest.mark.filterwarnings("ignore:.*repeat the text of an earlier question")
def test_one_question_about_other_passages_or_images_is_another_question():
    passages = [
        [user(f"Passage {n}"), user("Read.", "assistant"), user("Who is it?")] for n in (1, 2, 1)
    ]
    parts = [
        [{"type": "text", "text": "Who is it?"}, {"type": "image_url", "image_url": {"url": u}}]
        for u in "aba"
    ]
    for requests in (passages, [[user(part)] for part in parts]):
        run = from_openai(
            [{"messages": m, "response": response(-n)} for n, m in enumerate(requests, start=1)]
        )
        np.testing.assert_array_equal(run.log_probs(), [[-1, -3], [-2, np.nan]])


def test_each_of_several_prompts_is_a_question_with_its_choices():
    prompts = [PERU, MALI, CHAD]
    run = from_openai([{"prompt": prompts, "response": response(-1.0, -2.0, -3.0)}])
    assert run.questions["question"].tolist() == prompts
    np.testing.assert_array_equal(run.log_probs(), [[-1], [-2], [-3]])
    shuffled = response(*(-float(n) for n in range(1, 7)))
    shuffled["choices"] = shuffled["choices"][::-1]  # `index` decides
    run = from_openai(
        [{"custom_id": "b", "body": {"prompt": prompts}, "response": {"body": shuffled}}]
    )
    np.testing.assert_array_equal(run.log_probs(), [[-1, -2], [-3, -4], [-5, -6]])
    assert run.questions["question_id"].tolist() == ["b-0", "b-1", "b-2"]
    ids = {"question_id": ["p", "m", "c"], "references": [["Lima"], ["Bamako"], ["N'Djamena"]]}
    run = from_openai([{"prompt": prompts, **ids, "response": response(-1.0, -2.0, -3.0)}])
    assert run.questions[["question_id", "references"]].to_dict("list") == ids
    run = from_openai([{"prompt": [[1, 2], [3]], "response": response(-1.0, -2.0)}])  # token ids
    np.testing.assert_array_equal(run.log_probs(), [[-1], [-2]])
    with pytest.raises(
        RunError, match=r"^entry 1: 2 answers to 3 prompts; each prompt needs equally many"
    ):
        from_openai([{"prompt": prompts, "response": response(-1.0, -2.0)}])


def test_an_answer_that_a_log_adds_to_the_request_is_no_part_of_the_question():
    entries = []
    for n, text in enumerate(("Lima", "Cusco"), start=1):
        messages = [user(PERU), user(text, "assistant")]
        entries.append(
            {"messages": messages, "response": {"choices": [completion(text, -float(n))]}}
        )
    np.testing.assert_array_equal(from_openai(entries).log_probs(), [[-1, -2]])


# --- Ids ---


def ids_read(*ids, texts=None):
    entries = [{"question_id": name, "response": response(-1.0)} for name in ids]
    for entry, text in zip(entries, texts or [], strict=False):
        entry["question"] = text
    return from_openai(entries).questions["question_id"].tolist()


@pytest.mark.parametrize("texts", [None, ["A?", "B?", "C?", "D?"]])
@pytest.mark.parametrize(
    "ids",
    [
        ["geo-1", "hist-2", "2021-05", "1.5"],
        ["2021-01", "2021-02", "2022-01", "2022-02"],
        ["1.1", "1.2", "2.1", "2.2"],
        ["geo-1", "hist-1", "art-1", "bio-1"],
    ],
)
def test_ids_that_end_in_numbers_stay_whole(ids, texts):
    assert ids_read(*ids, texts=texts) == ids


def test_ids_of_one_stem_stay_whole_where_their_texts_differ():
    ids = ["geo-1", "geo-2", "hist-1", "hist-2"]
    assert ids_read(*ids, texts=["A?", "B?", "C?", "D?"]) == ids


def test_ids_of_samples_are_cut_with_a_message():
    ids = ["geo-1", "geo-2", "hist-1"]
    with pytest.warns(
        UserWarning, match=r"samples of one question, so 'geo-1' counts as a sample of 'geo'"
    ):
        assert ids_read(*ids, texts=["A?", "A?", "B?"]) == ["geo", "hist"]


# --- Properties ---

CONVERSATION = st.lists(
    st.tuples(st.sampled_from(["system", "user", "assistant"]), st.sampled_from("ABC")),
    min_size=1,
    max_size=3,
)


@pytest.mark.filterwarnings("ignore:.*repeat the text of an earlier question")
@given(st.lists(CONVERSATION.map(tuple), min_size=1, max_size=8))
def test_answers_are_samples_of_one_question_only_if_their_whole_requests_are_the_same(
    conversations,
):
    entries = [
        {
            "messages": [{"role": role, "content": text} for role, text in turns],
            "response": response(-float(n)),
        }
        for n, turns in enumerate(conversations, start=1)
    ]
    found = {}
    run = from_openai(entries)
    for name, log_prob in zip(run.answers["question_id"], run.answers["log_prob"], strict=True):
        found.setdefault(name, set()).add(log_prob)
    expected = {}
    for n, turns in enumerate(conversations, start=1):
        expected.setdefault(turns, set()).add(-float(n))
    assert sorted(map(sorted, found.values())) == sorted(map(sorted, expected.values()))
