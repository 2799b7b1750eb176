"""Exact search and diverse beams within `generate` of transformers, for a network that is loaded; knows no run or text.

`network.generate(**inputs, custom_generate=pro_lib.exact_generate, search_alpha=0.05, return_dict_in_generate=True)`
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, PreTrainedModel
from transformers import PreTrainedTokenizerBase as Tokenizer

from pro_lib.generation import decoding
from pro_lib.generation.batching import by_probability
from pro_lib.generation.decoding.compatibility import Fit, PackingError, best_fit, fit_for_length
from pro_lib.generation.models import UnsupportedModelError, find_endings
from pro_lib.runs.certificate import Certificate

# Measured once for each network
_FITS: "WeakKeyDictionary[PreTrainedModel, Fit]" = WeakKeyDictionary()
# What `generate` hands on of itself; anything else would change what the network says.
_USUAL = {"cache_position", "use_cache", "logits_to_keep", "MaxLengthCriteria", "EosTokenCriteria"}
_AS_IT_IS: dict[str, float] = {
    "temperature": 1,
    "top_p": 1,
    "output_scores": False,
    "output_logits": False,
}
_AS_IT_IS |= {"output_attentions": False, "output_hidden_states": False}


@dataclass(frozen=True)
class GenerateOutput:
    """The answers to n prompts, prompt by prompt and downwards in probability, those cut by length last.

    `sequences` (rows, tokens) begin with their prompt; what stopped shows an end-of-text token, then padding.
    `n_answers` (n,) says how many rows each prompt has. `log_probs` (n, N) are those of complete answers, nats, NaN
    where one was cut or a prompt has fewer. `certificates` are what a search is sure of, by prompt; None of beams.
    """

    sequences: Tensor
    n_answers: Tensor
    log_probs: Tensor
    certificates: tuple[Certificate | None, ...]


def exact_generate(
    network: PreTrainedModel, input_ids: Tensor, *, generation_config: GenerationConfig,
    search_alpha: float | None = None, top_n: int | None = None, budget: int | None = None,
    endings: Tokenizer | None = None, epsilon: float | None = None, **model_kwargs: Any,
) -> GenerateOutput | Tensor:  # fmt: skip
    """Find every answer with p ≥ `search_alpha` (else 0.02), or the `top_n`, to each prompt of a batch.

    Returns the most probable answer to each, as `generate` does; with `return_dict_in_generate` a `GenerateOutput`.
    Answers end at the end-of-text tokens of the generation config; with a tokenizer as `endings` also at a newline, as
    everywhere in this package. Where none reaches α there is the most probable one seen. `budget` are token-forwards.
    In half precision each call measures by how many nats log-probabilities may be off, unless `epsilon` says it.

    Raises `ValueError` for what would change the model's probabilities, by name, and `UnsupportedModelError`.
    """
    if epsilon is not None and not epsilon >= 0:
        raise ValueError(f"epsilon={epsilon!r} is no number of nats, 0 or more")
    strategy = partial(decoding.Threshold, search_alpha=search_alpha, top_n=top_n, budget=budget)
    return _generated(
        network, input_ids, generation_config, strategy, endings, epsilon, **model_kwargs
    )


def diverse_beam_generate(
    network: PreTrainedModel, input_ids: Tensor, *, generation_config: GenerationConfig, n_answers: int = 10,
    diversity_penalty: float = 1.0, endings: Tokenizer | None = None, **model_kwargs: Any,
) -> GenerateOutput | Tensor:  # fmt: skip
    """Grow `n_answers` groups of one beam each, as `num_beam_groups` once did; otherwise as `exact_generate`."""
    strategy = partial(
        decoding.DiverseBeam, n_answers=n_answers, diversity_penalty=diversity_penalty
    )
    return _generated(network, input_ids, generation_config, strategy, endings, 0.0, **model_kwargs)


def _generated(
    network, input_ids, config, strategy, tokenizer, epsilon, *, attention_mask=None, **model_kwargs
):
    """Decode the prompts on the tree that fits the network, and return what `generate` is to return."""
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    _check(network, config, mask, **model_kwargs)
    strategy = strategy(max_new_tokens=config.max_length - input_ids.shape[1])
    prompts = [ids[seen].tolist() for ids, seen in zip(input_ids, mask.bool(), strict=True)]
    try:
        endings = find_endings(tokenizer, network, config=config)
        if network not in _FITS:
            _FITS[network] = best_fit(network)
        fit = fit_for_length(
            network, _FITS[network], max(map(len, prompts)) + strategy.max_new_tokens
        )
    except PackingError as reason:
        raise UnsupportedModelError(f"{type(network).__name__} {reason}") from reason
    prefix = decoding.encode_prefix(
        network, () if fit.plain else prompts[0][: decoding.common_prefix_length(prompts)]
    )
    tree_of = partial(fit.tree, network, prefix=prefix, counts=decoding.ForwardCounts())
    if epsilon is None:
        length, is_half = strategy.max_new_tokens, network.dtype.itemsize <= 2
        epsilon = (
            decoding.measured_epsilon(tree_of, prompts, endings, max_new_tokens=length)
            if is_half
            else 0.0
        )
    ids = [""] * len(prompts)  # which seed samples alone
    results = strategy.decode(tree_of(prompts), endings, question_ids=ids, epsilon=epsilon)
    answers, values = zip(*(_likely(*result) for result in results), strict=True)
    if not config.return_dict_in_generate:
        return _sequences(input_ids, [some[:1] for some in answers], config, endings)
    log_probs = pad_sequence(
        [*map(torch.from_numpy, values)], batch_first=True, padding_value=math.nan
    )
    n_answers, certificates = (
        torch.tensor([*map(len, answers)]),
        tuple(certificate for _, certificate in results),
    )
    return GenerateOutput(
        _sequences(input_ids, answers, config, endings), n_answers, log_probs, certificates
    )


def _check(
    network, config, mask, *, logits_processor, stopping_criteria, position_ids=None, **model_kwargs
):
    """Refuse, by name, what would change the probabilities of the model, or cannot be returned."""
    if (mode := config.get_generation_mode().value) != "greedy_search":
        raise ValueError(f"{mode} is another way to decode: pass do_sample=False and num_beams=1")
    used = [type(rule).__name__ for rule in (*logits_processor, *stopping_criteria)]
    settings = {name: getattr(config, name, None) for name in _AS_IT_IS}
    used += [
        f"{name}={value}"
        for name, value in settings.items()
        if value not in (None, _AS_IT_IS[name])
    ]
    used += ["train()"] * network.training
    keys, states = model_kwargs.pop("past_key_values", None), model_kwargs.pop("cache_params", None)
    used += ["past_key_values"] if keys is not None and keys.get_seq_length() else []
    used += ["cache_params"] if states is not None and states.has_previous_state() else []
    used += [name for name, value in model_kwargs.items() if value is not None]
    counted = mask.cumsum(dim=-1) - 1  # as `generate` does
    used += (
        ["position_ids"]
        if position_ids is not None and ((position_ids - counted) * mask).any()
        else []
    )
    if refused := [name for name in used if name not in _USUAL]:
        raise ValueError(
            f"{', '.join(refused)} cannot be had here: answers are those of the model as it is"
        )
    if not mask.any(dim=-1).all():
        raise ValueError("attention_mask hides all tokens of a prompt")


def _likely(
    answers: list[decoding.Outcome], certificate: Certificate | None
) -> tuple[list, np.ndarray]:
    """Return answers and log-probabilities downwards, NaN of those cut; of a search those at α, or the first alone."""
    answers = by_probability(answers)
    values = np.array(
        [answer.complete_log_prob if answer.finished else math.nan for answer in answers]
    )
    n = (
        max(1, int(np.sum(values >= math.log(certificate.search_alpha) - 1e-9)))
        if certificate
        else len(answers)
    )
    return answers[:n], values[:n]


def _sequences(prompts, answers, config, endings):
    """Return prompts and their answers `(rows, tokens)`, as `GenerateOutput` has them."""
    stops = endings.stop_ids.tolist() if config.eos_token_id is None else config.eos_token_id
    stop, rows = stops if isinstance(stops, int) else int(stops[0]), []
    for prompt, some in zip(prompts, answers, strict=True):
        for answer in some:
            end = [stop] if answer.finished and answer.end_log_prob is not None else []
            rows.append(torch.cat([prompt, prompt.new_tensor([*answer.token_ids, *end])]))
    padding = stop if config.pad_token_id is None else config.pad_token_id
    return pad_sequence(rows, batch_first=True, padding_value=padding)
