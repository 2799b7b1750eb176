"""Half precision: the measured error ε, and the questions that it leaves undecided."""

import math

import numpy as np
import pytest
from test_accelerator import QUESTIONS
from test_threshold import likely_answers

from pro_lib import generate
from pro_lib.generation import models as pro_models
from pro_lib.generation.decoding.exact_search import measured_epsilon
from pro_lib.generation.decoding.packed_tree import ForwardCounts, PackedTree, encode_prefix
from pro_lib.generation.decoding.plain_tree import PlainTree
from pro_lib.generation.decoding.strategies import Threshold

LENGTH = 4
HOW = {"strategy": "threshold", "max_new_tokens": LENGTH}
KINDS = [("llama", "bfloat16"), ("gemma2", "float16"), ("falcon-7b", "bfloat16")]


@pytest.fixture
def halved(tiny_folders):
    """Return a function that loads a tiny model of a family in half precision."""
    return lambda family, dtype="bfloat16": pro_models.load_model(
        tiny_folders(family), device="cpu", dtype=dtype
    )


@pytest.mark.parametrize(("family", "dtype"), KINDS)
@pytest.mark.parametrize("plain", [False, True])
def test_epsilon_is_twice_the_largest_difference_of_prefixes_asked_together_and_alone(
    halved, family, dtype, plain
):
    model = halved(family, dtype)
    # The output depends on the batch size here, in case that the kernels round all batches alike.
    head = model.network.get_output_embeddings()
    head.register_forward_hook(
        lambda _, inputs, logits: logits.float() * (1 + logits[..., 0].numel() / 1e4)
    )

    def make_tree(batch):
        if plain:
            return PlainTree(model.network, batch, ForwardCounts())
        return PackedTree(model.network, batch, encode_prefix(model.network, []), ForwardCounts())

    prompts = [model.encode(prompt) for prompt in QUESTIONS.prompts()]
    epsilon = measured_epsilon(make_tree, prompts, model.endings, max_new_tokens=LENGTH)

    def steps(batch):
        """Yield for each prompt the log-probability of every prefix and every ended answer."""
        search = Threshold(search_alpha=0.01, max_new_tokens=LENGTH)
        for answers, _ in search.decode(make_tree(batch), model.endings, question_ids=[]):
            log_probs = {}
            for answer in answers:
                ids = answer.token_ids
                for length in range(len(ids) + 1):
                    log_probs[ids[:length]] = sum(answer.token_log_probs[:length])
                if answer.finished and answer.end_log_prob:
                    total = sum(answer.token_log_probs) + answer.end_log_prob
                    log_probs[(*ids, "end")] = total
            yield log_probs

    largest = np.zeros(LENGTH + 1)
    for prompt, together in zip(prompts, steps(prompts), strict=True):
        [alone] = steps([prompt])
        for path in together.keys() & alone.keys():
            largest[len(path)] = max(largest[len(path)], abs(together[path] - alone[path]))
    np.testing.assert_allclose(epsilon, 2 * np.maximum.accumulate(largest), atol=1e-9)
    assert epsilon[-1] < 1
    assert epsilon[-1] > 0 or plain


@pytest.mark.parametrize(("family", "dtype"), KINDS)
def test_questions_decided_together_have_the_same_result_alone(halved, family, dtype):
    model = halved(family, dtype)
    n_decided = 0
    for alpha in (0.3, 0.1, 0.03, 0.01, 0.003):
        together = generate(model, QUESTIONS, search_alpha=alpha, **HOW)
        alone = generate(model, QUESTIONS, search_alpha=alpha, batch_size=1, **HOW)
        statuses = list(zip(together.questions["status"], alone.questions["status"], strict=True))
        sets = [likely_answers(run, math.log(alpha)) for run in (together, alone)]
        for question_id, (one, other) in zip(
            together.questions["question_id"], statuses, strict=True
        ):
            if "undecided" not in (one, other):
                assert one == other
                assert sets[0].get(question_id) == sets[1].get(question_id)
                n_decided += 1
    assert n_decided > 3


def test_epsilon_does_not_depend_on_an_earlier_run_with_another_stop(halved):
    how = HOW | {"search_alpha": 0.01}
    first = halved("llama")
    second = halved("llama")
    expected = generate(first, QUESTIONS, **how).questions["epsilon"]
    generate(second, QUESTIONS, stop=["A"], **how)
    assert generate(second, QUESTIONS, **how).questions["epsilon"].tolist() == expected.tolist()
