"""The entropy along samples: Σ H(next | v) over the prefixes v of each, beside whole outcome spaces."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from test_strategies import STOPS, Script
from test_threshold import TableTree, entropy, worlds

from pro_lib.engine import Multinomial
from pro_lib.engine.sampling import multinomial


@given(worlds())
def test_the_entropy_of_a_path_is_that_of_its_prefixes_and_has_the_expectation_of_the_answers(world):
    ids = [f"q{number}" for number in range(world.n_questions)]
    samples = Multinomial(n_answers=6, max_new_tokens=world.length).decode(
        TableTree(world), world.endings, question_ids=ids
    )
    for question, (answers, _) in enumerate(samples):
        outcomes, prefixes = world.outcomes(question)

        def along(token_ids, finished, prefixes=prefixes):
            """The oracle: of every prefix from which a next event was drawn."""
            closed = len(token_ids) > 0 and bool(world.endings.closing[token_ids[-1]])
            n = len(token_ids) + (finished and not closed)
            return sum(prefixes[token_ids[:length]][1] for length in range(n))

        for answer in answers:
            assert answer.path_entropy == pytest.approx(along(answer.token_ids, answer.finished), abs=1e-5)
        # No draw: by the chain rule the probabilities of the outcomes weigh their paths to H(Y).
        mean = sum(math.exp(log_prob) * along(*outcome) for outcome, log_prob in outcomes.items())
        assert mean == pytest.approx(entropy(outcomes), abs=1e-5)


def test_the_entropy_of_a_path_by_hand():
    """Two stop tokens of 0.3 and 0.2 make one ending of 0.5; after token 2 the ending is certain."""
    steps = [0.3, 0.2, 0.5, 0.0], [0.5, 0.5, 0.0, 0.0]
    numbers = torch.tensor([[[0.6, 0.1], [0.2, 0.9]]], dtype=torch.float64)
    [[longer, empty]] = multinomial(Script(*steps), STOPS, uniforms=numbers)
    assert (longer.token_ids, empty.token_ids) == ((2,), ())
    assert longer.path_entropy == pytest.approx(np.log(2), abs=1e-6)
    assert empty.path_entropy == pytest.approx(np.log(2), abs=1e-6)


@pytest.mark.parametrize("settings", [{"temperature": 0.9}, {"top_p": 0.9}])
def test_samples_of_a_shaped_model_have_none(settings):
    numbers = torch.tensor([[[0.6, 0.1]]], dtype=torch.float64)
    [[answer]] = multinomial(Script([0.3, 0.2, 0.5, 0], [0.5, 0.5, 0, 0]), STOPS, uniforms=numbers, **settings)
    assert answer.path_entropy is None
