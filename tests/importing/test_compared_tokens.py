"""Test files whose tokens are more, fewer or others than those of the answer."""

import math
import re
import warnings

import numpy as np
import pytest

from pro_lib.common.files import RunError
from pro_lib.importing import import_answers

FRANCE = {
    "question_id": "france",
    "question": "Which city governs France?",
    "references": ["Paris"],
}
PERU = {"question_id": "peru", "question": "Which city governs Peru?", "references": ["Lima"]}
SAID = {
    "before": r"had other tokens before them \(reasoning, a prefill or an echoed prompt",
    "after": "had other tokens after them",
    "ending": "are scored without their ending, for whose probability the server returned a "
    "placeholder",
    "thoughts": r"had thoughts \(reasoning\) before them",
}


def steps(tokens):
    return [
        {"token": text, "logprob": value, "bytes": list(text.encode())} for text, value in tokens
    ]


def chat(text, *tokens, message=None, **fields):
    """A chat completion; a token is (text, log-probability)."""
    choice = {"message": {"role": "assistant", "content": text} | (message or {})}
    choice |= {"logprobs": {"content": steps(tokens)}, "finish_reason": "stop"} | fields
    return {"id": "c", "object": "chat.completion", "choices": [choice]}


def completion(text, *tokens, **body):
    texts, values = zip(*tokens, strict=True)
    logprobs = {"tokens": list(texts), "token_logprobs": list(values)}
    return {
        "object": "text_completion",
        "choices": [{"text": text, "logprobs": logprobs, "finish_reason": "stop"}],
        **body,
    }


def tgi(text, *tokens, generated_tokens=None):
    listed = [{"text": name, "logprob": value, "special": False} for name, value in tokens]
    count = len(tokens) if generated_tokens is None else generated_tokens
    details = {"finish_reason": "eos_token", "generated_tokens": count, "tokens": listed}
    return {"generated_text": text, "details": details}


def llama_cpp(*tokens, **body):
    """An answer of an older server; a token is (text, {text: probability})."""
    listed = [
        {
            "content": text,
            "probs": [{"tok_str": other, "prob": value} for other, value in probs.items()],
        }
        for text, probs in tokens
    ]
    text = "".join(text for text, _ in tokens)
    return {
        "content": text,
        "stop": True,
        "stopped_eos": True,
        "completion_probabilities": listed,
        **body,
    }


def imported(write, *responses, **more):
    """The run of a file with a line for each response, and the messages about it."""
    wrapped = [
        asked | {"response": response}
        for asked, response in zip((FRANCE, PERU), responses, strict=False)
    ]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = import_answers(write(*wrapped), **more)
    return run, [str(warning.message) for warning in caught]


THOUGHT = (("<think>", -1.0), ("Rome", -3.0), ("?", -2.0), ("</think>", -0.5))
# By case: a response, the log-probability of its answer, worked by hand, and the warning.
SCORED = {
    "an ending": (chat("Paris", ("Par", -0.25), ("is", -0.5), ("</s>", -0.125)), -0.875, []),
    "reasoning in a field": (
        chat(
            "Paris", *THOUGHT, ("Par", -0.25), ("is", -0.5), message={"reasoning_content": "Rome?"}
        ),
        -0.75,
        ["thoughts"],
    ),
    "reasoning in the text": (
        chat("<think>Rome?</think>\n\nParis", *THOUGHT, ("\n\n", -0.0), ("Paris", -0.25)),
        -0.25,
        ["thoughts"],
    ),
    "reasoning in the tokens alone": (chat("Paris", *THOUGHT, ("Paris", -0.25)), -0.25, ["before"]),
    "a prefill": (chat("Paris", ("It", -1.0), (" is", -2.0), (" Paris", -0.25)), -0.25, ["before"]),
    "an echoed prompt": (
        completion(
            "Which city governs France? Paris",
            ("Which", None),
            (" city governs", -3.0),
            (" France?", -2.0),
            (" Par", -0.25),
            ("is", -0.5),
        ),
        -0.75,
        ["before"],
    ),
    "an echoed prompt that the server counts": (
        completion(
            "Q: France?\nA: Paris",
            ("Q: France?", None),
            ("\nA:", -3.0),
            (" Paris", -0.25),
            usage={"prompt_tokens": 2, "completion_tokens": 1},
        ),
        -0.25,
        ["before"],
    ),
    "the prompt in the text": (
        tgi("Which city governs France? In a word: Paris", (" Paris", -0.25)),
        -0.25,
        [],
    ),
    "a special token in the text": (
        chat("Paris<|im_end|>", ("Paris", -0.25), ("<|im_end|>", -0.5)),
        -0.75,
        [],
    ),
    "a placeholder for the ending": (
        chat("Paris", ("Par", -0.25), ("is", -0.5), ("", -9999.0)),
        -0.75,
        ["ending"],
    ),
    "a stop string that is named": (
        chat("Paris", ("Paris", -0.25), ("\nQ", -0.5), (":", -0.125), stop_reason="\nQ:"),
        -0.875,
        [],
    ),
    "a stop string that is not named": (
        chat("Paris", ("Paris", -0.25), ("\nQ", -0.5), (":", -1.0)),
        -0.25,
        ["after"],
    ),
    "characters in parts": (
        chat("Paris é", ("Paris", -0.25), (" �", -0.5), ("�", -0.125)),
        -0.875,
        [],
    ),
    "spellings of a tokenizer": (
        completion(
            "Paris é", ("▁Paris", -0.25), ("▁", -0.5), ("<0xC3>", -0.125), ("<0xA9>", -0.0625)
        ),
        -0.9375,
        [],
    ),
    "ids in place of texts": (
        chat("Paris", ("token_id:5", -0.25), ("token_id:6", -0.5)),
        -0.75,
        [],
    ),
    "probabilities": (
        llama_cpp((" Par", {"Lon": 0.5, " Par": 0.25}), ("is", {"is": 0.5})),
        math.log(1 / 8),
        [],
    ),
    "probabilities of the model": (
        llama_cpp(
            (" Paris", {" Paris": 0.25}), generation_settings={"temperature": -1.0, "top_k": 40}
        ),
        math.log(1 / 4),
        [],
    ),
}


@pytest.mark.parametrize("case", SCORED)
def test_the_tokens_that_spell_the_answer_are_scored(write, case):
    response, log_prob, said = SCORED[case]
    run, messages = imported(write, response)
    np.testing.assert_allclose(run.log_probs(), [[log_prob]], rtol=0, atol=1e-12)
    assert run.answers["text"].str.strip().tolist() in (["Paris"], ["Paris é"])
    for message, name in zip(messages, said, strict=True):
        assert re.search(f": 1 answers {SAID[name]}", message)


GOOD = chat("Lima", ("Lima", -0.5))
# By case: a response that is left out, and the words for the reason.
LEFT_OUT = {
    "fewer tokens": (chat("Paris", ("Par", -0.25)), "whose tokens spell less than their text"),
    "other tokens": (chat("Paris", ("Rome", -0.25)), "whose tokens spell a different text"),
    "a placeholder within": (
        chat("Paris", ("Par", -9999.0), ("is", -0.5)),
        "whose probability was not returned",
    ),
    "no first probability": (
        chat("Paris", ("Par", None), ("is", -0.5)),
        "whose first token has no probability",
    ),
    "a prompt with an unknown end": (
        completion("Q: France?\nA: Paris", ("Q: France?", None), ("\nA:", -3.0), (" Paris", -0.25)),
        "whose first token has no probability, as in an echoed prompt, and which start at an "
        "unknown token",
    ),
    "the prompt in the text, and too few tokens": (
        tgi("Which city governs France? In a word: Paris", (" Paris", -0.25), generated_tokens=2),
        "whose tokens spell less than their text",
    ),
    "a special token within": (
        chat("Paris<|im_end|>Rome", ("Paris", -0.25), ("<|im_end|>", -0.5), ("Rome", -0.5)),
        "with a special token within their text",
    ),
    "tokens of the reasoning alone": (
        chat("Paris", ("<think>", -1.0), ("Paris", -3.0), message={"reasoning": "Paris"}),
        "that end within a thought",
    ),
    "ids in place of texts, with reasoning": (
        chat("Paris", ("token_id:5", -0.25), ("token_id:6", -0.5), message={"reasoning": "Hm"}),
        "whose log-probabilities include those of a thought",
    ),
}


@pytest.mark.parametrize("case", LEFT_OUT)
def test_an_answer_that_the_tokens_do_not_spell_is_left_out_counted_and_named(write, case):
    response, reason = LEFT_OUT[case]
    run, messages = imported(write, response, GOOD)
    np.testing.assert_array_equal(run.log_probs(), [[np.nan], [-0.5]])
    [message] = [message for message in messages if "left out" in message]
    assert message.startswith(f"1 answers {reason}")
    assert message.endswith("are left out: line 1, choice 0")
    with pytest.raises(RunError, match="line 1, choice 0: "):
        imported(write, response, GOOD, strict=True)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            {"generation_settings": {"temperature": 0.8, "top_k": 40, "top_p": 1.0}},
            r"filters \(temperature=0.8, top_k=40\)",
        ),
        ({}, "filters, not the model's; ask with temperature=-1"),
    ],
)
def test_probabilities_after_sampling_are_refused_with_the_way_to_ask(write, body, words):
    filtered = llama_cpp((" Paris", {" Paris": 1.0, " Lyon": 0.0 if not body else 0.1}), **body)
    with pytest.raises(RunError, match=words):
        imported(write, filtered)


def test_a_file_of_echoed_prompts_with_unknown_ends_says_how_to_ask(write):
    response, _ = LEFT_OUT["a prompt with an unknown end"]
    with pytest.raises(
        RunError, match=r"starts? at an unknown token \(2 answers\); ask with echo=false$"
    ):
        imported(write, response, response)


@pytest.mark.parametrize("probs", [{" Lyon": 0.5}, {}])
def test_a_chosen_token_without_a_probability_is_left_out(write, probs):
    run, messages = imported(write, llama_cpp((" Paris", probs)), GOOD)
    np.testing.assert_array_equal(run.log_probs(), [[np.nan], [-0.5]])
    assert messages == [
        "1 answers whose probability was not returned are left out: line 1, choice 0"
    ]


# --- Our own records ---


def records(*answers):
    return [
        {"question_id": str(n), "question": f"Q{n}?", "answers": [answer]}
        for n, answer in enumerate(answers)
    ]


def test_records_with_the_texts_of_tokens_are_compared_as_well(write):
    tokens = {
        "tokens": ["Hm", "</think>", "Par", "is", "</s>"],
        "token_log_probs": [-3.0, -1.0, -0.25, -0.5, -0.125],
    }
    thought = {"text": "Paris", "token_ids": [9, 8, 5, 6, 2], **tokens}
    usual = {"text": "Lima", "tokens": ["Lima"], "token_log_probs": [-0.5], "log_prob": -0.5}
    unknown = {"text": "Bern", "token_log_probs": [-2.0]}
    run = import_answers(write(*records(thought, usual, unknown)))
    np.testing.assert_array_equal(run.log_probs(), [[-0.875], [-0.5], [-2.0]])
    assert run.answers["token_log_probs"][0] == [-0.25, -0.5, -0.125]
    assert run.answers["token_ids"][0] == [5, 6, 2]
    assert "tokens" not in run.answers


def test_a_record_whose_tokens_do_not_spell_its_text_is_left_out(write):
    path = write(
        *records(
            {"text": "Paris", "tokens": ["Par"], "token_log_probs": [-0.5]}, {"log_prob": -1.0}
        )
    )
    with pytest.warns(
        UserWarning, match="1 answers whose tokens spell less than their text are left out: line 1"
    ):
        run = import_answers(path)
    np.testing.assert_array_equal(run.log_probs(), [[np.nan], [-1.0]])
    with pytest.raises(RunError, match=r"line 1: answers\[0\] is one whose tokens spell less"):
        import_answers(path, strict=True)


def test_tokens_of_a_table_keep_their_case(tmp_path):
    path = tmp_path / "answers.csv"
    row = 'a,Paris,"[""Par"", ""is""]","[-0.25, -0.5]"'
    path.write_text(f"question_id,text,tokens,token_log_probs\n{row}\n")
    np.testing.assert_array_equal(import_answers(path).log_probs(), [[-0.75]])


def masked_response(text, log_prob):
    token = {"token": "*", "logprob": log_prob}
    return {
        "choices": [
            {
                "message": {"content": text},
                "finish_reason": "stop",
                "logprobs": {"content": [token]},
            }
        ]
    }


def test_tokens_that_all_have_one_text_are_not_compared(write):
    path = write(
        {"question_id": "a", "response": masked_response("Lima", -0.5)},
        {"question_id": "b", "response": masked_response("Paris", -0.25)},
    )
    with pytest.warns(UserWarning, match="all tokens have the same text, which spells no answer"):
        run = import_answers(path)
    np.testing.assert_array_equal(run.log_probs(), [[-0.5], [-0.25]])


def test_tokens_of_one_text_that_spell_another_answer_are_left_out_beside_answers_that_they_spell(
    write,
):
    path = write(
        {"question_id": "a", "response": masked_response("Lima", -0.5)},
        {"question_id": "b", "response": masked_response("*", -0.25)},
    )
    with pytest.warns(UserWarning, match="tokens spell a different text are left out"):
        run = import_answers(path)
    np.testing.assert_array_equal(run.log_probs(), [[np.nan], [-0.25]])
