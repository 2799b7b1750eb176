"""Exact search and diverse beam search within `generate` of transformers, for a loaded network."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from numpy.typing import ArrayLike

from pro_lib.common.validation import extra

with extra("models", "`generate` of transformers"):
    import torch
    from torch import Tensor
    from torch.nn.utils.rnn import pad_sequence
    from transformers import GenerationConfig
    from transformers import PreTrainedTokenizerBase as Tokenizer

from pro_lib.generation.batching import by_probability
from pro_lib.generation.decoding.compatibility import Fit, PackingError, best_fit, fit_for_length
from pro_lib.generation.decoding.exact_search import measured_epsilon
from pro_lib.generation.decoding.next_tokens import Endings
from pro_lib.generation.decoding.packed_tree import ForwardCounts
from pro_lib.generation.decoding.steps import Outcome
from pro_lib.generation.decoding.strategies import DiverseBeam, Strategy, Threshold
from pro_lib.generation.models import UnsupportedModelError
from pro_lib.generation.tokens import find_endings
from pro_lib.runs.certificate import Certificate

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# The kind of tree for short texts, by network; it is measured once for each network.
_FITS: WeakKeyDictionary[PreTrainedModel, Fit] = WeakKeyDictionary()
# Arguments and rules that `generate` always passes on. Any other would change the probabilities.
_USUAL_ARGUMENTS = {
    "cache_position",
    "use_cache",
    "logits_to_keep",
    "MaxLengthCriteria",
    "EosTokenCriteria",
}
# Settings of a generation configuration that may not differ from these values.
_REQUIRED_SETTINGS: dict[str, float] = {
    "temperature": 1,
    "top_p": 1,
    "output_scores": False,
    "output_logits": False,
    "output_attentions": False,
    "output_hidden_states": False,
}


@dataclass(frozen=True)
class GenerateOutput:
    """The answers to n prompts.

    The answers to a prompt are in descending order of probability; those cut by length are last.

    Args:
        sequences: token ids, `(rows, tokens)`. A row is a prompt with one of its answers, an
            end-of-text token if a stop token ended the answer, and padding.
        n_answers: the number of rows of each prompt, `(n,)`.
        log_probs: log-probabilities of complete answers in nats, `(n, N)`. They are NaN for answers
            that were cut, and where a prompt has fewer than N answers.
        certificates: the certificate of the search of each prompt; None for beam search.
    """

    sequences: Tensor
    n_answers: Tensor
    log_probs: Tensor
    certificates: tuple[Certificate | None, ...]


def exact_generate(  # noqa: PLR0913  # transformers passes these by name
    network: PreTrainedModel,
    input_ids: Tensor,
    *,
    generation_config: GenerationConfig,
    search_alpha: float | None = None,
    top_n: int | None = None,
    budget: int | None = None,
    endings: Tokenizer | None = None,
    epsilon: float | None = None,
    **model_kwargs: Any,
) -> GenerateOutput | Tensor:
    """Find every answer with p ≥ `search_alpha`, or the `top_n` answers, to each prompt of a batch.

    Pass this function as `custom_generate` to the `generate` method of a network. Answers end at
    the end-of-text tokens of the generation configuration.

    Args:
        network: the network; transformers passes it.
        input_ids: the prompts, `(n, tokens)`; transformers passes them.
        generation_config: the generation configuration; transformers passes it. Its settings must
            not change the probabilities of the network.
        search_alpha: the least probability α of the answers; 0.02 if `top_n` is None too.
        top_n: the number of most probable answers to find, instead of `search_alpha`.
        budget: the most tokens that the network evaluates for a prompt; None for no limit.
        endings: a tokenizer, so that answers also end at a newline, as in `pro_lib.generate`.
        epsilon: the largest error of log-probabilities in nats. If it is None, it is measured in
            each call in half precision, and 0 otherwise.
        **model_kwargs: other arguments that transformers passes.

    Returns:
        The most probable answer to each prompt, `(n, tokens)`, as from `generate`. With
        `return_dict_in_generate`, a `GenerateOutput` with all answers. If no answer to a prompt
        reaches α, it has the most probable one that the search has seen.

    Raises:
        ValueError: an argument would change the probabilities of the network.
        UnsupportedModelError: the network is not a causal language model, or a prompt is too long.

    Example:
        >>> import torch, pro_lib
        >>> model = pro_lib.load_model("facts-1m", device="cpu")
        >>> prompt = torch.tensor([model.encode("What is the capital of Peru?")])
        >>> output = model.network.generate(
        ...     prompt,
        ...     custom_generate=pro_lib.generation.exact_generate,
        ...     search_alpha=0.05,
        ...     max_new_tokens=8,
        ...     return_dict_in_generate=True,
        ... )
        >>> len(output.certificates)
        1
    """
    if epsilon is not None and not epsilon >= 0:
        raise ValueError(f"epsilon must be a number of nats, 0 or more; got {epsilon!r}")
    strategy = partial(Threshold, search_alpha=search_alpha, top_n=top_n, budget=budget)
    return _generate(
        network, input_ids, generation_config, strategy, endings, epsilon, **model_kwargs
    )


def diverse_beam_generate(
    network: PreTrainedModel,
    input_ids: Tensor,
    *,
    generation_config: GenerationConfig,
    n_answers: int = 10,
    diversity_penalty: float = 1.0,
    endings: Tokenizer | None = None,
    **model_kwargs: Any,
) -> GenerateOutput | Tensor:
    """Decode with diverse beam search, as `generate` did with `num_beam_groups`.

    Pass this function as `custom_generate` to the `generate` method of a network.

    Args:
        network: the network; transformers passes it.
        input_ids: the prompts, `(n, tokens)`; transformers passes them.
        generation_config: the generation configuration; transformers passes it. Its settings must
            not change the probabilities of the network.
        n_answers: the number N of groups, each with one beam.
        diversity_penalty: the Hamming penalty λ in nats (Vijayakumar et al. 2018).
        endings: a tokenizer, so that answers also end at a newline, as in `pro_lib.generate`.
        **model_kwargs: other arguments that transformers passes.

    Returns:
        As `exact_generate`: the most probable answers, or a `GenerateOutput` without certificates.

    Raises:
        ValueError: an argument would change the probabilities of the network.
        UnsupportedModelError: the network is not a causal language model, or a prompt is too long.

    Example:
        >>> import torch, pro_lib
        >>> model = pro_lib.load_model("facts-1m", device="cpu")
        >>> prompt = torch.tensor([model.encode("What is the capital of Peru?")])
        >>> output = model.network.generate(
        ...     prompt,
        ...     custom_generate=pro_lib.generation.diverse_beam_generate,
        ...     n_answers=3,
        ...     max_new_tokens=8,
        ...     return_dict_in_generate=True,
        ... )
        >>> output.n_answers.tolist()
        [3]
    """
    strategy = partial(DiverseBeam, n_answers=n_answers, diversity_penalty=diversity_penalty)
    return _generate(network, input_ids, generation_config, strategy, endings, 0.0, **model_kwargs)


def _generate(
    network: PreTrainedModel,
    input_ids: Tensor,
    config: GenerationConfig,
    strategy_of_length: Callable[..., Strategy],
    tokenizer: Tokenizer | None,
    epsilon: float | None,
    *,
    attention_mask: Tensor | None = None,
    **model_kwargs: Any,
) -> GenerateOutput | Tensor:
    """Decode the prompts on the tree that fits the network, and return what `generate` returns."""
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    _check_arguments(network, config, mask, **model_kwargs)
    strategy = strategy_of_length(max_new_tokens=config.max_length - input_ids.shape[1])
    prompts = [
        ids[is_visible].tolist() for ids, is_visible in zip(input_ids, mask.bool(), strict=True)
    ]
    longest = max(map(len, prompts)) + strategy.max_new_tokens
    try:
        endings = find_endings(tokenizer, network, config=config)
        if network not in _FITS:
            _FITS[network] = best_fit(network)
        fit = fit_for_length(network, _FITS[network], longest)
    except PackingError as reason:
        raise UnsupportedModelError(f"{type(network).__name__} {reason}") from reason
    prefix = fit.prefix(network, prompts)
    tree_of = partial(fit.tree, network, prefix=prefix, counts=ForwardCounts())
    largest_error: ArrayLike = 0.0
    if epsilon is not None:
        largest_error = epsilon
    elif network.dtype.itemsize <= 2:  # half precision
        length = strategy.max_new_tokens
        largest_error = measured_epsilon(tree_of, prompts, endings, max_new_tokens=length)
    question_ids = [""] * len(prompts)  # only samples depend on them
    results = strategy.decode(
        tree_of(prompts), endings, question_ids=question_ids, epsilon=largest_error
    )
    ranked = [_ranked_answers(*result) for result in results]
    if not config.return_dict_in_generate:
        first_answers = [answers[:1] for answers in ranked]
        return _sequences(input_ids, first_answers, config, endings)
    log_probs = [
        torch.tensor([_log_prob(answer) for answer in answers], dtype=torch.float64)
        for answers in ranked
    ]
    return GenerateOutput(
        sequences=_sequences(input_ids, ranked, config, endings),
        n_answers=torch.tensor([len(answers) for answers in ranked]),
        log_probs=pad_sequence(log_probs, batch_first=True, padding_value=math.nan),
        certificates=tuple(certificate for _, certificate in results),
    )


def _check_arguments(
    network: PreTrainedModel,
    config: GenerationConfig,
    mask: Tensor,
    *,
    logits_processor: Sequence,
    stopping_criteria: Sequence,
    position_ids: Tensor | None = None,
    **model_kwargs: Any,
) -> None:
    """Raise `ValueError` for arguments that would change the probabilities of the network."""
    mode = config.get_generation_mode().value
    if mode != "greedy_search":
        raise ValueError(
            f"{mode} cannot be combined with this search; pass do_sample=False and num_beams=1"
        )
    names = [type(rule).__name__ for rule in (*logits_processor, *stopping_criteria)]
    names += _changed_settings(config)
    if network.training:
        names.append("train()")
    names += _used_model_arguments(model_kwargs)
    if position_ids is not None:
        usual_position_ids = mask.cumsum(dim=-1) - 1
        if ((position_ids - usual_position_ids) * mask).any():
            names.append("position_ids")
    unsupported = [name for name in names if name not in _USUAL_ARGUMENTS]
    if unsupported:
        raise ValueError(
            f"{', '.join(unsupported)} cannot be used here, because it would change the "
            "probabilities of the network, which the search returns; remove it"
        )
    has_tokens = mask.any(dim=-1)
    if not has_tokens.all():
        row = int(has_tokens.int().argmin())
        raise ValueError(f"attention_mask row {row} is 0 everywhere, so its prompt has no token")


def _changed_settings(config: GenerationConfig) -> list[str]:
    """Return the settings of a configuration that change or record probabilities."""
    settings = {name: getattr(config, name, None) for name in _REQUIRED_SETTINGS}
    return [
        f"{name}={value}"
        for name, value in settings.items()
        if value not in (None, _REQUIRED_SETTINGS[name])
    ]


def _used_model_arguments(model_kwargs: Mapping[str, Any]) -> list[str]:
    """Return the names of the arguments that have a value, or a cache that is not empty."""
    others = dict(model_kwargs)
    cache = others.pop("past_key_values", None)
    states = others.pop("cache_params", None)
    names = []
    if cache is not None and cache.get_seq_length():
        names.append("past_key_values")
    if states is not None and states.has_previous_state():
        names.append("cache_params")
    return names + [name for name, value in others.items() if value is not None]


def _ranked_answers(answers: list[Outcome], certificate: Certificate | None) -> list[Outcome]:
    """Return answers in descending order of probability."""
    # For a search, these are only the answers that reach α, or the first one if none does.
    ranked = by_probability(answers)
    if certificate is None:
        return ranked
    least = math.log(certificate.search_alpha) - 1e-9
    n_likely = sum(_log_prob(answer) >= least for answer in ranked)
    return ranked[: max(1, n_likely)]


def _log_prob(answer: Outcome) -> float:
    """Return the log-probability of a complete answer in nats, or NaN if the answer was cut."""
    return answer.complete_log_prob if answer.finished else math.nan


def _sequences(
    prompts: Tensor,
    answers_by_prompt: Sequence[list[Outcome]],
    config: GenerationConfig,
    endings: Endings,
) -> Tensor:
    """Return prompts with their answers, `(rows, tokens)`, as `GenerateOutput` describes them."""
    stop_ids = config.eos_token_id
    if stop_ids is None:
        stop_ids = endings.stop_ids.tolist()
    stop_id = stop_ids if isinstance(stop_ids, int) else int(stop_ids[0])
    rows = []
    for prompt, answers in zip(prompts, answers_by_prompt, strict=True):
        for answer in answers:
            is_stopped = answer.finished and answer.end_log_prob is not None
            answer_ids = [*answer.token_ids, stop_id] if is_stopped else [*answer.token_ids]
            rows.append(torch.cat([prompt, prompt.new_tensor(answer_ids)]))
    padding = stop_id if config.pad_token_id is None else config.pad_token_id
    return pad_sequence(rows, batch_first=True, padding_value=padding)
