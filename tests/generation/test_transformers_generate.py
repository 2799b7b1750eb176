"""Within `generate` of transformers: answers of `pro_lib.generate`, golden beams, and errors."""

import copy
import gc
import hashlib
import json
import math
import weakref

import numpy as np
import pytest
import torch
import transformers
from conftest import ROOT
from test_plain_tree import KINDS, network_of
from test_threshold import masses

import pro_lib
from pro_lib import load_questions
from pro_lib.common.catalog import DATA
from pro_lib.generation.batching import Job
from pro_lib.generation.decoding.beams import diverse_beam, greedy
from pro_lib.generation.decoding.next_tokens import Endings
from pro_lib.generation.decoding.packed_tree import ForwardCounts, PackedTree, encode_prefix
from pro_lib.generation.decoding.plain_tree import PlainTree
from pro_lib.generation.decoding.strategies import Threshold

CACHE = transformers.DynamicCache()
CACHE.update(torch.zeros(1, 2, 1, 8), torch.zeros(1, 2, 1, 8), 0)


def padded(prompts):
    """Return the output of a tokenizer that pads on the left, for prompts of token ids."""
    width = max(map(len, prompts))
    rows = [[0] * (width - len(ids)) + list(ids) for ids in prompts]
    mask = [[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts]
    return {"input_ids": torch.tensor(rows), "attention_mask": torch.tensor(mask)}


def inside(network, prompts, stop, loop=pro_lib.exact_generate, **settings):
    """Generate on a padded batch; return the output, and {token ids: log-probability} by prompt."""
    inputs = padded(prompts)
    options = {"custom_generate": loop, "pad_token_id": 0, "return_dict_in_generate": True}
    output = network.generate(**inputs, **options, **settings)
    answers = []
    groups = output.sequences.split(output.n_answers.tolist())
    for prompt, rows, log_probs in zip(inputs["input_ids"], groups, output.log_probs, strict=True):
        assert torch.equal(rows[:, : len(prompt)], prompt.expand(len(rows), -1))
        texts = (
            tuple(id_ for id_ in ids if id_ not in (0, *stop))
            for ids in rows[:, len(prompt) :].tolist()
        )
        answers.append(dict(zip(texts, log_probs.tolist(), strict=False)))
        assert log_probs[len(rows) :].isnan().all()
        np.testing.assert_array_equal(
            log_probs, sorted(log_probs, key=lambda p: (math.isnan(p), -p))
        )
    return output, answers


def total(answer):
    return sum(answer.token_log_probs, answer.end_log_prob or 0.0) if answer.finished else math.nan


def check(network, prompts, results, stop, n_at_once, **settings):
    """Compare batches with another search: sets of answers, log-probabilities and masses."""
    for start in range(0, len(prompts), n_at_once):
        output, answer_sets = inside(network, prompts[start : start + n_at_once], stop, **settings)
        for ours, ledger, (answers, certificate) in zip(
            answer_sets, output.certificates, results[start:], strict=False
        ):
            floor = math.log(certificate.search_alpha) - 1e-6
            best = max(answers, key=lambda a: (a.finished, total(a)))
            theirs = {a.token_ids: total(a) for a in answers if total(a) >= floor} or {
                best.token_ids: total(best)
            }
            assert ours.keys() == theirs.keys()
            np.testing.assert_allclose([ours[ids] for ids in theirs], [*theirs.values()], atol=1e-4)
            assert ledger.status == certificate.status
            np.testing.assert_allclose(masses(ledger), masses(certificate), atol=1e-4)


def check_beside_process(model, questions, n_at_once, **settings):
    """Hold batches against the search in process; return the share that is certified."""
    results = Job(model, questions, Threshold(**settings))._answered(questions.table)
    prompts = [model.encode(prompt) for prompt in questions.prompts()]
    stop = model.endings.stop_ids.tolist()
    check(model.network, prompts, results, stop, n_at_once, endings=model.tokenizer, **settings)
    return np.mean([certificate.status == "certified" for _, certificate in results])


def test_many_prompts_have_the_answers_of_the_search_in_process(facts_2m, size):
    limit = 20 if size == "quick" else 200
    questions = load_questions("world-facts", split="test", limit=limit, seed=0)
    assert check_beside_process(facts_2m, questions, 20, search_alpha=0.02, max_new_tokens=16) > 0.5
    few = load_questions("world-facts", split="test", limit=6, n_shots=0)
    check_beside_process(facts_2m, few, 1, top_n=5, max_new_tokens=8)
    check_beside_process(facts_2m, few, 6, search_alpha=0.02, budget=9, max_new_tokens=8)


@pytest.mark.filterwarnings("ignore:.*asked on the plain tree:UserWarning")
@pytest.mark.parametrize(
    "family", ["gemma2", "qwen2", "falcon-7b", "falcon-alibi", "mistral-window", *KINDS, "mamba"]
)
def test_every_family_has_the_answers_of_plain_passes_by_its_eos_list(
    tiny_model, family, monkeypatch
):
    sizes = {"vocab_size": 299, "hidden_size": 16, "state_size": 4, "num_hidden_layers": 2}
    monkeypatch.setitem(KINDS, "mamba", sizes)  # whose cache has a name of its own
    network = network_of(family) if family in KINDS else tiny_model(family).network
    stop = [0, 2, *range(5, 299, 5), 100_000]  # the last one is not a token of it
    prompts, table = (
        [[1, *range(20, 32), 51, 61], [1, 21, 56], [71]],
        torch.zeros(299, dtype=torch.bool),
    )
    table[stop[:-1]] = True
    settings = {"search_alpha": 0.03, "max_new_tokens": 4}
    tree = PlainTree(network, prompts, ForwardCounts(), cached=False)
    results = Threshold(**settings).decode(
        tree, Endings(table, table & False), question_ids=["", "", ""]
    )
    settings |= {"eos_token_id": stop}
    check(network, prompts, results, stop, 3, **settings)
    rows = network.generate(
        **padded(prompts), custom_generate=pro_lib.exact_generate, pad_token_id=2, **settings
    )
    for ids, row, (answers, _) in zip(
        prompts, rows[:, len(prompts[0]) :].tolist(), results, strict=True
    ):
        likeliest = max(answers, key=lambda a: (a.finished, total(a)))
        # The first of the list, then padding
        expected = [
            *likeliest.token_ids,
            *[0] * likeliest.finished,
        ]
        assert row == expected + [2] * (len(row) - len(expected)), ids


GOLDEN = json.loads((ROOT / "tests" / "golden" / "diverse_beam.json").read_text())


def test_the_golden_file_belongs_to_the_committed_weights():
    weights = (DATA / "models" / "facts-2m" / "model.safetensors").read_bytes()
    assert GOLDEN["weights"] == hashlib.sha256(weights).hexdigest()
    assert GOLDEN["versions"]["transformers"] == "4.56.2"


@pytest.mark.parametrize("n_shots", [0, 10])
@pytest.mark.parametrize("n_answers", [1, pytest.param(4, marks=pytest.mark.slow), 10])
def test_diverse_beams_are_those_of_transformers_4_56_2(facts_2m, n_answers, n_shots):
    prompts = [prompt for prompt in GOLDEN["prompts"] if prompt["n_shots"] == n_shots]
    assert len(prompts) >= 30
    network, endings, stop = facts_2m.network, facts_2m.endings, GOLDEN["stop_ids"]
    assert endings.stop_ids.tolist() == stop
    ids = [prompt["ids"] for prompt in prompts]
    tree = PackedTree(network, ids, encode_prefix(network, ids[0]), ForwardCounts())
    answer_sets = diverse_beam(tree, endings, n_answers=n_answers)
    assert n_answers > 1 or answer_sets == greedy(tree, endings)
    settings = {"n_answers": n_answers, "max_new_tokens": 32, "eos_token_id": stop}
    output, within = inside(network, ids, stop, pro_lib.diverse_beam_generate, **settings)
    assert (output.n_answers.tolist(), output.certificates) == (
        [n_answers] * len(ids),
        (None,) * len(ids),
    )
    for prompt, answers, totals in zip(prompts, answer_sets, within, strict=True):
        expected = sorted(
            prompt["answers"][str(n_answers)], key=lambda a: (a["ids"], a["finished"])
        )
        mine = sorted(answers, key=lambda a: (a.token_ids, a.finished))
        assert [(list(a.token_ids), a.finished) for a in mine] == [
            (a["ids"], a["finished"]) for a in expected
        ]
        for ours, theirs in zip(mine, expected, strict=True):
            np.testing.assert_allclose(ours.token_log_probs, theirs["log_probs"], atol=1e-4)
            assert ours.end_log_prob == pytest.approx(theirs["end"], abs=1e-4)
        assert totals == pytest.approx(
            {a.token_ids: total(a) for a in answers}, abs=4e-4, nan_ok=True
        )


REFUSED = {
    "group_beam_search": {"num_beams": 4, "num_beam_groups": 4, "diversity_penalty": 1.0},
    "beam_search .* num_beams=1": {"num_beams": 2},
    "sample .* do_sample=False": {"do_sample": True, "temperature": 0.7},
    "temperature=0.7": {"temperature": 0.7},
    "top_p=0.5": {"top_p": 0.5},
    "RepetitionPenaltyLogitsProcessor": {"repetition_penalty": 1.2},
    "NoBadWordsLogitsProcessor": {"bad_words_ids": [[5]]},
    "MinNewTokensLengthLogitsProcessor": {"min_new_tokens": 3},
    "PrefixConstrainedLogitsProcessor": {"prefix_allowed_tokens_fn": lambda *_: [5]},
    "TopKLogitsWarper": {"logits_processor": [transformers.TopKLogitsWarper(2)]},
    "MaxTimeCriteria": {"max_time": 3.0},
    "output_logits": {"output_logits": True, "return_dict_in_generate": True},
    "position_ids": {"position_ids": torch.tensor([[3, 4, 5]])},
    "past_key_values": {"past_key_values": CACHE},
    "attention_mask row 0": {"attention_mask": torch.tensor([[0, 0, 0]])},
    "inputs_embeds": {"inputs_embeds": torch.zeros(1, 3, 32)},
    "LlamaForCausalLM has 256 positions": {"max_new_tokens": 300},
    "no eos_token_id": {"eos_token_id": None},
}


@pytest.mark.parametrize("loop", [pro_lib.exact_generate, pro_lib.diverse_beam_generate])
def test_what_would_change_the_answers_is_refused_by_name(tiny_model, loop):
    network = tiny_model("llama").network
    for name, changes in REFUSED.items():
        arguments = {"inputs": torch.tensor([[1, 20, 30]]), "max_new_tokens": 4} | changes
        with pytest.raises(ValueError, match=name):
            network.generate(**arguments, custom_generate=loop)


def test_a_network_in_training_is_refused_and_one_is_not_kept(tiny_folders):
    network = transformers.AutoModelForCausalLM.from_pretrained(tiny_folders("llama"))
    how = {
        "inputs": torch.tensor([[1, 20, 30]]),
        "max_new_tokens": 4,
        "custom_generate": pro_lib.exact_generate,
    }
    with pytest.raises(ValueError, match=r"train\(\)"):
        network.train().generate(**how)
    network.eval().generate(**how)
    gone = weakref.ref(network)
    del network
    gc.collect()
    assert gone() is None


def test_in_half_precision_one_prompt_alone_has_an_epsilon_that_was_measured(facts_2m):
    network = copy.deepcopy(facts_2m.network).bfloat16()
    prompt = facts_2m.encode(
        load_questions("world-facts", split="test", limit=1, seed=2).prompts()[0]
    )
    settings = {"endings": facts_2m.tokenizer, "search_alpha": 0.02, "max_new_tokens": 12}
    assert 0.01 < inside(network, [prompt], [0], **settings)[0].certificates[0].epsilon < 1
    assert (
        inside(network, [prompt], [0], epsilon=0.125, **settings)[0].certificates[0].epsilon
        == 0.125
    )
