"""Exact search and beams within `generate` of transformers: the answers of the package itself, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import DynamicCache

import pro_lib
from pro_lib import questions as question_sets
from pro_lib.generate import generate

GOLDEN = json.loads((Path(__file__).parent / "golden" / "diverse_beam.json").read_text())


def batch(model, prompts):
    """Token ids and mask of prompts, padded on the left."""
    return dict(model.tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left"))


def searched(model, prompts, **options):
    """What `generate` returns with an exact search in place of its decoding."""
    options = {"custom_generate": pro_lib.exact_generate, "max_new_tokens": 32, "endings": model.tokenizer} | options
    return model.network.generate(**batch(model, prompts), **options)


def texts(model, sequences, prompts):
    length = batch(model, prompts)["input_ids"].shape[1]
    return [text.strip() for text in model.tokenizer.batch_decode(sequences[:, length:], skip_special_tokens=True)]


@pytest.mark.parametrize("options", [{"search_alpha": 0.05}, {"top_n": 3}, {"search_alpha": 0.02, "budget": 9}])
def test_the_answers_are_those_of_the_search_in_process(facts_2m, options, size):
    questions = question_sets.load("world-facts", limit=40 if size == "quick" else 200)
    run = generate(facts_2m, questions, strategy="threshold", progress=False, **options)
    prompts = questions.prompts()
    output = searched(facts_2m, prompts, return_dict_in_generate=True, **options)
    expected = run.log_probs()
    np.testing.assert_allclose(output.log_probs[:, : expected.shape[1]], expected, atol=1e-5, rtol=1e-5)
    assert [c.status for c in output.certificates] == run.questions["status"].tolist()
    masses = [c.found_mass for c in output.certificates]
    np.testing.assert_allclose(masses, run.questions["found_mass"], atol=1e-5)
    ranked, rows = run.ranked(), iter(texts(facts_2m, output.sequences, prompts))
    for question_id, n_answers, row in zip(
        run.questions["question_id"], output.n_answers.tolist(), output.log_probs, strict=True
    ):
        ours = [next(rows) for _ in range(n_answers)][: int((~row.isnan()).sum())]
        assert sorted(ours) == sorted(ranked.loc[ranked["question_id"] == question_id, "text"])


def test_without_a_dict_it_returns_the_likeliest_answer_with_its_prompt_end_and_padding(facts_2m):
    prompts = [*question_sets.load("world-facts", limit=8).prompts(), "Question: Who?\nAnswer:"]
    inputs, output = batch(facts_2m, prompts), searched(facts_2m, prompts, search_alpha=0.05)
    length = inputs["input_ids"].shape[1]
    assert torch.equal(output[:, :length], inputs["input_ids"])
    whole = searched(facts_2m, prompts, search_alpha=0.05, return_dict_in_generate=True)
    first = whole.sequences[np.cumsum([0, *whole.n_answers.tolist()[:-1]])]
    assert texts(facts_2m, output, prompts) == texts(facts_2m, first, prompts)
    eos, pad = (getattr(facts_2m.network.generation_config, name) for name in ("eos_token_id", "pad_token_id"))
    for row in output[:, length:].tolist():
        answer = [token for token in row if token not in (eos, pad)]
        assert row == answer + [eos] + [pad] * (len(row) - len(answer) - 1)


def test_a_prompt_has_the_same_answers_whatever_stands_beside_it(facts_2m):
    prompts = ["Question: Who?\nAnswer:", *question_sets.load("world-facts", limit=3, n_shots=3).prompts()]
    together = searched(facts_2m, prompts, search_alpha=0.01, return_dict_in_generate=True)
    for row, prompt in zip(together.log_probs, prompts, strict=True):
        alone = searched(facts_2m, [prompt], search_alpha=0.01, return_dict_in_generate=True)
        np.testing.assert_allclose(row[: alone.log_probs.shape[1]], alone.log_probs[0], atol=1e-5)


def test_answers_end_at_the_tokens_of_the_generation_config_alone_unless_a_tokenizer_says_more(facts_2m):
    [prompt] = question_sets.load("world-facts", limit=1).prompts()
    ids = batch(facts_2m, [prompt])["input_ids"]
    likely = facts_2m.network(ids).logits[0, -1].topk(2)
    config = {"eos_token_id": likely.indices.tolist(), "endings": None, "search_alpha": 0.01}
    output = searched(facts_2m, [prompt], return_dict_in_generate=True, **config)
    # Both likely tokens end the answer at once: its probability is theirs, added up.
    p = facts_2m.network(ids).logits[0, -1].detach().double().softmax(-1)[likely.indices].sum()
    assert float(output.log_probs[0, 0].exp()) == pytest.approx(float(p), abs=1e-6)
    assert output.sequences[0, ids.shape[1] :].tolist()[0] == likely.indices[0]


@pytest.mark.parametrize("n_shots", [0, 10])
def test_beams_are_those_of_transformers_4_56_2(facts_2m, n_shots):
    prompts = [prompt for prompt in GOLDEN["prompts"] if prompt["n_shots"] == n_shots]
    rows = [torch.tensor(prompt["ids"]) for prompt in prompts]
    width = max(map(len, rows))
    ids = torch.stack([torch.nn.functional.pad(row, (width - len(row), 0)) for row in rows])
    mask = torch.stack([torch.arange(width) >= width - len(row) for row in rows]).long()
    output = facts_2m.network.generate(
        input_ids=ids, attention_mask=mask, custom_generate=pro_lib.diverse_beam_generate, n_answers=4,
        endings=facts_2m.tokenizer, max_new_tokens=32, return_dict_in_generate=True,
    )  # fmt: skip
    assert output.n_answers.tolist() == [4] * len(prompts)
    assert output.certificates == (None,) * len(prompts)
    for row, prompt in zip(output.log_probs, prompts, strict=True):
        sums = [sum(a["log_probs"]) + (a["end"] or 0) for a in prompt["answers"]["4"] if a["finished"]]
        np.testing.assert_allclose(row[: len(sums)], sorted(sums, reverse=True), atol=1e-4)
        assert row[len(sums) :].isnan().all()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"do_sample": True}, "sample"),
        ({"num_beams": 2}, "num_beams"),
        ({"repetition_penalty": 1.2}, "RepetitionPenaltyLogitsProcessor"),
        ({"bad_words_ids": [[5]]}, "NoBadWordsLogitsProcessor"),
        ({"min_new_tokens": 2}, "MinNewTokensLengthLogitsProcessor"),
        ({"max_time": 1.0}, "MaxTimeCriteria"),
        ({"output_scores": True}, "output_scores"),
        ({"inputs_embeds": torch.zeros(1, 1, 1)}, "inputs_embeds"),
        ({"eos_token_id": [], "endings": None}, "eos_token_id"),
        ({"search_alpha": 0.0}, "search_alpha"),
        ({"search_alfa": 0.1}, "search_alfa"),
        ({"max_new_tokens": 10**6}, "positions"),
    ],
)
def test_what_would_change_the_probabilities_is_refused_by_name(facts_2m, options, named):
    with pytest.raises(ValueError, match=named):
        searched(facts_2m, ["Question: Who?\nAnswer:"], **options)


def test_a_filled_cache_and_a_network_in_training_are_refused(facts_2m):
    cache, inputs = DynamicCache(), batch(facts_2m, ["Question: Who?\nAnswer:"])
    facts_2m.network(inputs["input_ids"][:, :2], past_key_values=cache)
    with pytest.raises(ValueError, match="past_key_values"):
        searched(facts_2m, ["Question: Who?\nAnswer:"], past_key_values=cache)
    try:
        facts_2m.network.train()
        with pytest.raises(ValueError, match=r"train\(\)"):
            searched(facts_2m, ["Question: Who?\nAnswer:"])
    finally:
        facts_2m.network.eval()
