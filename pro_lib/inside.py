"""Exact search and diverse beams within `generate` of transformers, for a network that is loaded; knows no run or text.

`network.generate(**inputs, custom_generate=pro_lib.exact_generate, search_alpha=0.05, return_dict_in_generate=True)`
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, PreTrainedModel
from transformers import PreTrainedTokenizerBase as Tokenizer

from pro_lib.engine.certificate import Certificate
from pro_lib.engine.exact import N_QUESTIONS, measured_epsilon
from pro_lib.engine.fit import Fit, PackingError, fitted, fitted_to
from pro_lib.engine.strategies import DiverseBeam, Threshold
from pro_lib.engine.tree import Counts, common_prefix_length, encode_prefix
from pro_lib.engine.walk import Answer, Endings
from pro_lib.models import UnsupportedModelError, find_endings
from pro_lib.packs import complete_log_probs, ranked

_FITS: "WeakKeyDictionary[PreTrainedModel, Fit]" = WeakKeyDictionary()  # measured once for each network
# What `generate` hands on of itself; anything else would change what the network says.
_USUAL = {"attention_mask", "position_ids", "cache_position", "use_cache", "logits_to_keep"}
_USUAL |= {"MaxLengthCriteria", "EosTokenCriteria"}
_OUTPUTS = ("output_scores", "output_logits", "output_attentions", "output_hidden_states")


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
    endings: Tokenizer | None = None, **model_kwargs: object,
) -> GenerateOutput | Tensor:  # fmt: skip
    """Find every answer with p ≥ `search_alpha` (else 0.02), or the `top_n`, to each prompt of a batch.

    Returns the most probable answer to each, as `generate` does; with `return_dict_in_generate` a `GenerateOutput`.
    Answers end at the end-of-text tokens of the generation config; with a tokenizer as `endings` also at a newline, as
    everywhere in this package. Where none reaches α there is the most probable one seen. `budget` are token-forwards.

    Raises `ValueError` for what would change the model's probabilities, by name, and `UnsupportedModelError`.
    """
    strategy = partial(Threshold, search_alpha=search_alpha, top_n=top_n, budget=budget)
    return _generated(network, input_ids, generation_config, strategy, endings, **model_kwargs)


def diverse_beam_generate(
    network: PreTrainedModel, input_ids: Tensor, *, generation_config: GenerationConfig, n_answers: int = 10,
    diversity_penalty: float = 1.0, endings: Tokenizer | None = None, **model_kwargs: object,
) -> GenerateOutput | Tensor:  # fmt: skip
    """Grow `n_answers` groups of one beam each, as `num_beam_groups` once did; otherwise as `exact_generate`."""
    strategy = partial(DiverseBeam, n_answers=n_answers, diversity_penalty=diversity_penalty)
    return _generated(network, input_ids, generation_config, strategy, endings, **model_kwargs)


def _generated(network, input_ids, config, strategy, tokenizer, *, attention_mask=None, **model_kwargs):
    _check(network, config, **model_kwargs)
    strategy = strategy(max_new_tokens=config.max_length - input_ids.shape[1])
    endings, mask = _endings(network, config, tokenizer), True if attention_mask is None else attention_mask.bool()
    prompts = [
        ids[seen].tolist() for ids, seen in zip(input_ids, torch.ones_like(input_ids).bool() & mask, strict=True)
    ]
    fit = _fit(network, max(map(len, prompts)) + strategy.max_new_tokens)
    prefix = encode_prefix(network, () if fit.plain else prompts[0][: common_prefix_length(prompts)])
    tree_of, epsilon = partial(fit.tree, network, prefix=prefix, counts=Counts()), 0.0
    if isinstance(strategy, Threshold) and network.dtype.itemsize <= 2:
        length = {"max_new_tokens": strategy.max_new_tokens}
        epsilon = measured_epsilon(tree_of, prompts[:N_QUESTIONS], endings, **length)
    results = strategy.decode(tree_of(prompts), endings, question_ids=[""] * len(prompts), epsilon=epsilon)
    answers = [_likely(ranked(some), certificate) for some, certificate in results]
    if not config.return_dict_in_generate:
        return _sequences(input_ids, [some[:1] for some in answers], config, endings)
    values = [np.where([a.finished for a in some], complete_log_probs(some), np.nan) for some in answers]
    log_probs = pad_sequence([*map(torch.from_numpy, values)], batch_first=True, padding_value=math.nan)
    n_answers, certificates = torch.tensor([*map(len, answers)]), tuple(certificate for _, certificate in results)
    return GenerateOutput(_sequences(input_ids, answers, config, endings), n_answers, log_probs, certificates)


def _check(network, config, *, logits_processor=None, stopping_criteria=None, past_key_values=None, **model_kwargs):
    """Refuse, by name, what would change the probabilities of the model, or cannot be returned."""
    if (mode := config.get_generation_mode().value) != "greedy_search":
        raise ValueError(f"{mode} is another way to decode: pass do_sample=False and num_beams=1")
    used = [type(rule).__name__ for rule in (*(logits_processor or ()), *(stopping_criteria or ()))]
    used += [name for name in _OUTPUTS if getattr(config, name, None)] + ["train()"] * network.training
    used += [name for name, value in model_kwargs.items() if value is not None]
    used += ["past_key_values"] if past_key_values is not None and past_key_values.get_seq_length() else []
    used += ["is_encoder_decoder"] * network.config.is_encoder_decoder
    if refused := [name for name in used if name not in _USUAL]:
        raise ValueError(f"{', '.join(refused)} cannot be had here: answers are those of the model as it is")


def _endings(network: PreTrainedModel, config: GenerationConfig, tokenizer: Tokenizer | None) -> Endings:
    if tokenizer is None:
        n_outputs = network.get_output_embeddings().weight.shape[0]
        endings = Endings(*torch.zeros((2, n_outputs), dtype=torch.bool, device=network.device))
    else:
        endings = find_endings(tokenizer, network)
    endings.stop[[] if config.eos_token_id is None else config.eos_token_id] = True
    if not endings.stop.any():
        raise ValueError("the generation config has no eos_token_id, so that no answer would end")
    return endings


def _fit(network: PreTrainedModel, n_tokens: int) -> Fit:
    try:
        if network not in _FITS:
            _FITS[network] = fitted(network)
        return fitted_to(network, _FITS[network], n_tokens)
    except PackingError as reason:
        raise UnsupportedModelError(f"{type(network).__name__} {reason}") from reason


def _likely(answers: list[Answer], certificate: Certificate | None) -> list[Answer]:
    """Return of a search the complete answers with p ≥ α, or the first for all of them; beams as they are."""
    if certificate is None:
        return answers
    reaches = complete_log_probs(answers) >= math.log(certificate.search_alpha) - 1e-9
    return [answer for answer, at in zip(answers, reaches, strict=True) if at and answer.finished] or answers[:1]


def _sequences(prompts: Tensor, answers: Sequence[Sequence[Answer]], config: GenerationConfig, endings: Endings):
    """Return prompts and their answers `(rows, tokens)`, as `GenerateOutput` has them."""
    stop = int(np.ravel(endings.stop_ids.tolist() if config.eos_token_id is None else config.eos_token_id)[0])
    rows = []
    for prompt, some in zip(prompts, answers, strict=True):
        for answer in some:
            end = [stop] if answer.finished and answer.end_log_prob is not None else []
            rows.append(torch.cat([prompt, prompt.new_tensor([*answer.token_ids, *end])]))
    padding = stop if config.pad_token_id is None else config.pad_token_id
    return pad_sequence(rows, batch_first=True, padding_value=padding)
