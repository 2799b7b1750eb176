from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pretended import Pretence
from test_threshold import TableTree, worlds
from tiny_models import FAMILIES
from transformers import AutoConfig

from pro_lib.generation.decoding import compatibility, next_tokens
from pro_lib.generation.decoding import packed_tree as engine
from pro_lib.generation.decoding.compatibility import PackingError, checked_error, positions
from pro_lib.generation.decoding.next_tokens import most_probable_tokens, places_above_floor
from pro_lib.generation.decoding.packed_tree import ForwardCounts, PackedTree, encode_prefix
from pro_lib.generation.decoding.strategies import DiverseBeam, Greedy, Multinomial, Threshold

PREFIX = [1, 20, 30, 40]
PROMPTS = [[*PREFIX, 50, 60, 70], [*PREFIX, 55], [*PREFIX, 50, 61]]


def check_rows(rows, network, texts):
    """The oracle: log-probabilities are those of one plain forward pass over each text."""
    with torch.no_grad():
        alone = [
            network(input_ids=torch.tensor([text])).logits[0, -1].float().log_softmax(-1)
            for text in texts
        ]
    torch.testing.assert_close(rows, torch.stack(alone), atol=1e-5, rtol=0)


def check_grown(tree, network, prompts, steps):
    """Check all rows of a tree by plain passes; `steps` are numbers of children and kept rows."""
    paths = [list(prompt) for prompt in prompts]
    generator = torch.Generator().manual_seed(0)
    check_rows(tree.plant(), network, paths)
    for width, keep in steps:
        parents = torch.randint(0, len(paths), (width,), generator=generator)
        tokens = torch.randint(3, 200, (width,), generator=generator)
        log_probs = tree.grow(parents, tokens, keep=torch.tensor(keep, dtype=torch.long))
        pairs = zip(parents.tolist(), tokens.tolist(), strict=True)
        children = [[*paths[parent], token] for parent, token in pairs]
        check_rows(log_probs, network, children)
        paths = [*(paths[row] for row in keep), *children]


def planted(network, prompts=PROMPTS, prefix=PREFIX):
    counts = ForwardCounts()
    tree = PackedTree(network, prompts, encode_prefix(network, prefix, counts=counts), counts)
    return tree, tree.plant(), counts


@pytest.mark.parametrize(
    ("family", "at_once"), [*((family, 2) for family in FAMILIES), ("llama", 256), ("gemma2", 256)]
)
def test_a_grown_tree_gives_what_plain_forward_passes_give(
    tiny_model, monkeypatch, family, at_once
):
    monkeypatch.setattr(engine, "_AT_ONCE", at_once)
    network = tiny_model(family).network
    # Branches, dies and branches again, so that the cache is compacted on the way.
    steps = [(6, []), (9, [0, 3]), (2, [1]), (2, []), (2, []), (5, []), (1, [4])]
    for prefix in ([], PREFIX):
        check_grown(planted(network, prefix=prefix)[0], network, PROMPTS, steps)


@pytest.mark.parametrize(
    ("limit", "calls", "grown_in"), [(1000, 1, 1), (4, 2, 1), (3, 2, 2), (1, 3, 4)]
)
@pytest.mark.parametrize("prefix", [PREFIX, []], ids=["shots", "none"])
def test_prompts_planted_in_pieces_take_as_many_passes(
    tiny_model, monkeypatch, prefix, limit, calls, grown_in
):
    monkeypatch.setattr(engine, "_AT_ONCE", limit)
    network = tiny_model("gemma2").network
    prompts = PROMPTS if prefix else [prompt[4:] for prompt in PROMPTS]
    tree, log_probs, counts = planted(network, prompts, prefix)
    check_rows(log_probs, network, prompts)
    assert counts.model_calls == calls + bool(prefix)
    grown = tree.grow(torch.tensor([2, 0, 0, 1]), torch.tensor([5, 6, 7, 8]))
    check_rows(
        grown, network, [[*prompts[row], token] for row, token in ((2, 5), (0, 6), (0, 7), (1, 8))]
    )
    assert counts.model_calls == calls + bool(prefix) + grown_in
    assert (tree.slots, counts.prompt_tokens) == (len(prefix) + 6 + 4, len(prefix) + 6)


def test_a_tree_drops_dead_slots_but_not_the_prefix_and_can_be_planted_again(
    tiny_model,
):
    network = tiny_model("llama").network
    counts = ForwardCounts()
    prefix = encode_prefix(network, PREFIX, counts=counts)
    before = [(keys.clone(), values.clone()) for keys, values in prefix.layers]
    tree = PackedTree(network, PROMPTS, prefix, counts)
    rows = []
    for times in (1, 2):
        rows += [tree.plant(), tree.grow(torch.tensor([0, 1, 2]), torch.tensor([10, 11, 12]))]
        assert tree.slots == len(PREFIX) + 6 + 3
        tree.grow(torch.tensor([0, 0, 0, 1, 2, 2]), torch.arange(6) + 10)
        tree.grow(torch.tensor([3]), torch.tensor([9]))
        # The prefix, the prompt token of question 1, its child and grandchild, and the new node.
        assert tree.slots == len(PREFIX) + 4
        prompt_tokens = len(PREFIX) + times * (3 + 1 + 2)
        assert counts == ForwardCounts(
            prompt_tokens, token_forwards=times * 10, model_calls=1 + times * 4
        )
    assert torch.equal(torch.cat(rows[:2]), torch.cat(rows[2:]))
    for (keys, values), (keys_before, values_before) in zip(prefix.layers, before, strict=True):
        assert torch.equal(keys, keys_before)
        assert torch.equal(values, values_before)


@pytest.mark.parametrize(
    "prompts", [[[*PREFIX[:3], 99, 50], [*PREFIX, 60]], [PREFIX], [[7, 8]], PROMPTS]
)
def test_a_prefix_is_used_as_far_as_all_prompts_share_it_and_leave_a_token(tiny_model, prompts):
    network = tiny_model("llama").network
    tree, log_probs, counts = planted(network, prompts)
    check_rows(log_probs, network, prompts)

    def is_shared(length):
        return all(p[:length] == PREFIX[:length] and len(p) > length for p in prompts)

    shared = next(length for length in (4, 3, 0) if is_shared(length))
    assert tree.prefix_length == shared
    assert counts.prompt_tokens == len(PREFIX) + sum(len(prompt) - shared for prompt in prompts)


VOCABULARIES = st.sampled_from([1, 7, 12, 131, 640])


@given(VOCABULARIES, st.integers(1, 12), st.integers(0, 10_000))
def test_the_most_probable_tokens_are_those_of_a_full_sort(vocabulary, n, seed):
    generator = torch.Generator().manual_seed(seed)
    # A permutation: no ties, so the tokens are decided.
    ranks = torch.stack([torch.randperm(vocabulary, generator=generator) for _ in range(3)])
    log_probs = -0.1 * ranks.float()
    ids, values = most_probable_tokens(log_probs, n)
    for row, line in enumerate(log_probs.tolist()):
        best = sorted(sorted(range(vocabulary), key=lambda token, line=line: -line[token])[:n])
        assert (ids[row].tolist(), values[row].tolist()) == (best, [line[token] for token in best])


@given(VOCABULARIES, st.integers(0, 10_000), st.lists(st.booleans(), min_size=3, max_size=3))
def test_tokens_that_reach_a_floor_are_those_of_a_full_scan(vocabulary, seed, greedy):
    generator = torch.Generator().manual_seed(seed)
    # Coarse numbers, so that some lie on the floor exactly, and some impossible tokens.
    log_probs = -torch.randint(0, 9, (3, vocabulary), generator=generator).float()
    log_probs[log_probs == -8] = -torch.inf
    lowest = torch.tensor([-1.0, 0.5, -6.0])
    top = log_probs.amax(dim=-1)
    takes_best = torch.tensor(greedy)
    ties = []
    expected = []  # of equal best tokens only the first
    for place, value in enumerate(log_probs.flatten().tolist()):
        row, token = divmod(place, vocabulary)
        is_best = greedy[row] and value == top[row]
        if value >= lowest[row] or is_best:
            ties.append(place)
        if value >= lowest[row] or (is_best and value not in log_probs[row, :token].tolist()):
            expected.append(place)
    how = {"most": len(expected) + 2, "padding": 1}
    assert places_above_floor(log_probs, top, lowest, takes_best, **how).tolist() == ties
    with Pretence():
        there = [
            tensor.to("cuda", non_blocking=True) for tensor in (log_probs, top, lowest, takes_best)
        ]
        Pretence.waits.clear()
        assert places_above_floor(*there, **how).held.tolist() == [*expected, 1, 1]
        assert not Pretence.waits
        assert places_above_floor(*there, most=2**21, padding=1).held.tolist() == expected
        assert Pretence.waits == {"nonzero": 1}


STRATEGIES = (
    *(Greedy(max_new_tokens=3), DiverseBeam(n_answers=4, max_new_tokens=3)),
    Multinomial(n_answers=5, temperature=0.7, top_p=0.9, max_new_tokens=3),
    *(Threshold(search_alpha=0.01, max_new_tokens=3), Threshold(top_n=3, max_new_tokens=3)),
)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
@given(worlds())
def test_rows_in_pieces_give_bit_for_bit_what_all_at_once_give(strategy, world):
    ids = [f"q{number}" for number in range(world.n_questions)]
    whole = strategy.decode(TableTree(world), world.endings, question_ids=ids)
    with mock.patch.object(next_tokens, "_PIECE", 1):
        assert repr(strategy.decode(TableTree(world), world.endings, question_ids=ids)) == repr(
            whole
        )


def shortsighted(attention_mask, **named):
    """Mask all but the last 64 slots, of any question."""
    far = torch.arange(max(0, attention_mask.shape[-1] - 64))
    return {
        "attention_mask": attention_mask.index_fill(-1, far, torch.finfo(torch.float32).min),
        **named,
    }


# A mask without effect, ignored positions, and a window that only many other slots reveal.
WRONG = {
    "blind": lambda attention_mask, **named: {"attention_mask": attention_mask * 0, **named},
    "lost": lambda position_ids, **named: named,
    "shortsighted": shortsighted,
}


@pytest.mark.parametrize("crowd", [0, 8_704])
@pytest.mark.parametrize("trouble", WRONG)
def test_the_packing_check_sees_a_network_that_packs_wrongly(
    tiny_model, monkeypatch, trouble, crowd
):
    monkeypatch.setattr(compatibility, "_CROWD", crowd)
    network = tiny_model("llama").network
    assert checked_error(network) < 1e-5
    forward = type(network).forward

    class Wrong(type(network)):
        def forward(self, *args, **named):
            packed = named.get("attention_mask") is not None
            return forward(self, *args, **(WRONG[trouble](**named) if packed else named))

    wrong = Wrong(network.config).eval()
    wrong.load_state_dict(network.state_dict())
    if trouble == "shortsighted" and not crowd:
        assert checked_error(wrong) < 1e-5
    else:
        with pytest.raises(
            PackingError,
            match="on a packed step: it ignores the 4-D mask or the positions, or counts",
        ):
            checked_error(wrong)


def test_the_number_of_positions_is_the_original_one_with_longrope():
    factors = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    rope = {"rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 32, **factors}
    shape = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "max_position_embeddings": 64,
    }
    configs = [
        AutoConfig.for_model("llama", **shape, **more)
        for more in (
            {},
            {"rope_parameters": rope | {"rope_type": "longrope"}},
            {"rope_parameters": rope | {"rope_type": "yarn"}},
        )
    ]
    assert [positions(config) for config in configs] == [64, 32, 64]
