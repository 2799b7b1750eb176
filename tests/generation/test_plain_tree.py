"""The plain tree beside plain forward passes and the packed tree; a question alone and among 32."""

from dataclasses import replace

import pytest
import torch
from test_generate import assert_runs_agree
from test_packed_tree import check_grown, check_rows
from test_strategies import check_plain_passes
from tiny_models import widen
from transformers import AutoConfig, AutoModelForCausalLM

from pro_lib import generate, load_questions
from pro_lib.generation.decoding import packed_tree as engine
from pro_lib.generation.decoding.compatibility import Fit, PackingError, best_fit, fit_for_length
from pro_lib.generation.decoding.packed_tree import ForwardCounts
from pro_lib.generation.decoding.plain_tree import PlainTree

PREFIX = [1, *range(20, 30)]
PROMPTS = [[*PREFIX, 50, 60, 70], [*PREFIX, 55], [*PREFIX, 50, 61], [*PREFIX, 51, 61]]
SMALL = {"vocab_size": 299, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SMALL |= {"intermediate_size": 64}
KV = {"num_key_value_heads": 2}
LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
# Networks with a state and keys, a short convolution and keys, both in turn, ALiBi, a window
# shorter than the text, positions that skip padding, and a state that is not a cache.
KINDS = {
    "qwen3_5_text": SMALL | KV | LINEAR | {"layer_types": ["linear_attention", "full_attention"]},
    "lfm2": SMALL | KV | {"layer_types": ["conv", "full_attention"]},
    "jamba": SMALL
    | KV
    | {"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_dt_rank": 4, "mamba_d_state": 8},
    "bloom": {"vocab_size": 299, "hidden_size": 16, "n_layer": 2, "n_head": 2},
    "gpt_oss": SMALL
    | KV
    | {"head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 12},
    "roberta": SMALL | {"is_decoder": True},
    "rwkv": {
        "vocab_size": 299,
        "hidden_size": 16,
        "attention_hidden_size": 16,
        "num_hidden_layers": 2,
    },
}
UNCACHED = ("rwkv", "roberta")


def network_of(kind, shape=None):
    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(kind, **shape or KINDS[kind])
    ).eval()
    widen(network)
    return network


@pytest.mark.parametrize(
    ("kind", "cached", "at_once"),
    [
        *((kind, kind not in UNCACHED, 3) for kind in KINDS),
        ("lfm2", False, 3),
        ("lfm2", True, 256),
        ("rwkv", False, 256),
    ],
)
def test_a_grown_tree_gives_what_plain_forward_passes_give(monkeypatch, kind, cached, at_once):
    monkeypatch.setattr(engine, "_AT_ONCE", at_once)
    network = network_of(kind)
    counts = ForwardCounts()
    tree = PlainTree(network, PROMPTS, counts, cached=cached)
    # Branches, dies and branches again, some rows waiting meanwhile.
    check_grown(tree, network, PROMPTS, [(6, [0, 3]), (5, [1]), (2, []), (4, [0])])
    assert counts.prompt_tokens == sum(map(len, PROMPTS))
    assert counts.token_forwards == 17 if cached else counts.token_forwards > 17 * len(PREFIX)
    check_rows(tree.plant(), network, PROMPTS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_right_tree_is_found_for_a_network(kind):
    network = network_of(kind)
    fit = best_fit(network)
    assert bool(fit.plain) == (kind != "gpt_oss")
    assert fit.cached == (kind not in UNCACHED)
    longer = fit_for_length(network, fit, 40)
    assert longer.plain
    assert longer.error < 1e-5


def test_the_plain_check_detects_a_wrong_cache(monkeypatch):
    """Then the tree is used without a cache."""
    network = network_of("lfm2")
    assert best_fit(network).cached
    monkeypatch.setattr(
        "transformers.cache_utils.LinearAttentionCacheLayerMixin.reorder_cache", lambda *_: None
    )
    fit = best_fit(network)
    assert not fit.cached
    assert fit.error < 1e-5


SETTINGS = [{"strategy": "greedy"}, {"strategy": "multinomial", "n_answers": 5, "seed": 3}]
SETTINGS += [{"strategy": "diverse_beam", "n_answers": 5}]
SETTINGS += [{"strategy": "threshold", "search_alpha": 0.02}, {"strategy": "threshold", "top_n": 3}]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_alone_among_32_and_on_the_plain_tree_questions_have_the_same_answers_by_plain_passes(
    facts_2m, settings
):
    many = load_questions("world-facts", split="validation", limit=32)
    few = replace(many, table=many.table.iloc[[0, 15, 31]])
    how = {**settings}
    packed = generate(facts_2m, many, batch_size=32, **how).select(
        question_ids=list(few.table["question_id"])
    )
    alone = generate(facts_2m, few, batch_size=1, **how)
    plain = generate(replace(facts_2m, fit=Fit(0.0, plain="is made to")), few, **how)
    check_plain_passes(facts_2m, few, packed.answers)
    for run in (packed, alone, plain):
        run.questions["prompt_tokens"] = 0  # the plain tree shares no prefix
        assert run.info.parameters == packed.info.parameters
        assert_runs_agree(run, packed, longest=32)
    assert plain.info.provenance["tree"] == "plain, since the model is made to"
    assert packed.info.provenance["tree"] == "packed"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_an_encoder_that_packs_within_the_rounding_of_half_precision_is_refused(dtype):
    with pytest.raises(PackingError, match="is not a causal model"):
        best_fit(network_of("bert", SMALL).to(getattr(torch, dtype)))
