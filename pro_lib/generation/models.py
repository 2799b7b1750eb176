"""Load causal language models, check them, and encode prompts for them."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pro_lib.common.validation import extra

with extra("models", "a model on this machine"):
    import torch
    from huggingface_hub import constants, get_session
    from transformers import AutoConfig, AutoTokenizer, BitsAndBytesConfig
    from transformers import PreTrainedTokenizerBase as Tokenizer
    from transformers.utils import cached_file

from pro_lib.common.catalog import (
    check_fetched,
    check_model,
    check_no_adapter,
    fingerprint,
    locate,
    model_folder_name,
)
from pro_lib.common.downloads import converted_gguf
from pro_lib.common.validation import (
    DTYPES,
    QUANTIZATIONS,
    SentenceError,
    describe,
    not_empty,
    one_line,
    refusing,
)
from pro_lib.generation import weights
from pro_lib.generation.chat_templates import render_chat
from pro_lib.generation.choices import choice_totals, encode_choices
from pro_lib.generation.decoding.compatibility import (
    Fit,
    PackingError,
    auto_class,
    best_fit,
    fit_for_length,
)
from pro_lib.generation.decoding.next_tokens import Endings
from pro_lib.generation.decoding.packed_tree import ForwardCounts
from pro_lib.generation.precision import best_device, resolved_dtype
from pro_lib.generation.tokens import (
    NEWLINE,
    control_tokens,
    decode,
    find_endings,
    first_control_token,
    text_before,
    token_texts,
)
from pro_lib.runs.question_table import json_cell

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Options of `from_pretrained` that configurations and tokenizers accept too.
_SHARED_OPTIONS = (
    "trust_remote_code",
    "revision",
    "token",
    "cache_dir",
    "local_files_only",
    "subfolder",
    "gguf_file",
)
# The model that `cached_model` loaded last, by its name, options and fingerprint.
_LAST: dict[tuple, Model] = {}
_HUB_TIMEOUT = 10.0  # seconds
# Measured on two cores with the bundled model. In smaller batches, calls of the network cost more
# per question; larger ones compute more attention that is masked.
_BATCH_SIZE = 32
# On CUDA, a step of few rows takes as long as launching its kernels (docs/results/speed.md).
_CUDA_BATCH_SIZE = 128


class UnsupportedModelError(SentenceError):
    """The model cannot predict the text after a prompt, or does not support these prompts."""


@dataclass(frozen=True)
class Model:
    """A loaded model.

    Args:
        name: the name of the model, under which its runs are stored.
        source: the folder, GGUF file or hub id from which it was loaded.
        fingerprint: digest of the model's files or weights.
        network: the network of transformers.
        tokenizer: the tokenizer of the network.
        endings: the tokens that end an answer.
        fit: the kind of tree on which the network computes answers.
        ends: the texts that end an answer.
        overrides: the options of loading that replace values of the model's configuration.
    """

    name: str
    source: str
    fingerprint: str
    network: PreTrainedModel = field(repr=False)
    tokenizer: Tokenizer = field(repr=False)
    endings: Endings = field(repr=False)
    fit: Fit
    ends: tuple[str, ...] = NEWLINE
    # Whether a server has the weights. The answers are then stored question by question.
    is_remote: ClassVar[bool] = False
    overrides: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)

    @property
    def device(self) -> torch.device:
        """The device of the inputs."""
        return self.network.device

    @property
    def dtype(self) -> str:
        """The precision of the weights, as in `load_model(dtype=)`."""
        return str(self.network.dtype).removeprefix("torch.")

    @property
    def quantization(self) -> str | None:
        """The quantization of the weights, as in `load_model(quantization=)`, or None."""
        for name in QUANTIZATIONS:
            if getattr(self.network, f"is_loaded_in_{name}", False):
                return name
        return None

    @property
    def prompts_at_once(self) -> int:
        """The number of prompts in one batch if the caller does not set it."""
        return _CUDA_BATCH_SIZE if self.device.type == "cuda" else _BATCH_SIZE

    def parameters(self) -> dict[str, Any]:
        """Return the properties of the model that decide a run, as JSON can store them."""
        parameters = {"model": self.name, "fingerprint": self.fingerprint, "dtype": self.dtype}
        if self.quantization:
            parameters["quantization"] = self.quantization
        if self.overrides:
            loading = {name: json_cell(value) for name, value in self.overrides.items()}
            return parameters | {"loading": loading}
        return parameters

    @property
    def reply_settings(self) -> dict[str, Any]:
        """The settings that decide replies, in addition to the model's name and fingerprint."""
        settings = self.parameters()
        del settings["model"], settings["fingerprint"]
        return settings

    def change_since(self, parameters: Mapping[str, Any]) -> str:
        """Return how the model differs from the one that had these parameters, or "".

        Weights in memory do not change, but a server may replace its model.
        """
        return ""

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a prompt.

        They begin with a beginning-of-text token if the tokenizer adds one, and do not end with an
        end-of-text token. If a control token such as `<|endoftext|>` is written in the text, its
        letters are encoded, and a warning says so.

        Raises:
            UnsupportedModelError: the tokenizer cannot encode a control token as letters.
        """
        control_token = first_control_token(self.tokenizer, text)
        if control_token is None:
            token_ids = self.tokenizer(text)["input_ids"]
        else:
            token_ids = self._encode_as_letters(text, control_token)
        ends_text = len(token_ids) > 1 and token_ids[-1] == self.tokenizer.eos_token_id
        return token_ids[:-1] if ends_text else token_ids

    def _encode_as_letters(self, text: str, control_token: str) -> list[int]:
        """Return the token ids of a text in which a control token is written, with a warning."""
        _, control_ids = control_tokens(self.tokenizer, len(self.tokenizer))
        token_ids = self.tokenizer(text, split_special_tokens=True)["input_ids"]
        n_control_tokens = sum(token in control_ids for token in token_ids)
        n_added = sum(token in control_ids for token in self.tokenizer("")["input_ids"])
        if n_control_tokens > n_added:
            raise UnsupportedModelError(
                f"the prompt contains {control_token!r}, which the tokenizer of {self.name} reads "
                "as a control token, not as text; write it in another way"
            )
        words = "in a prompt is encoded as ordinary text, not as the control token"
        warnings.warn(f"model {self.name}: {control_token!r} {words}", UserWarning, stacklevel=2)
        return token_ids

    def encode_chat(self, messages: list[dict[str, str]], options: Mapping[str, Any]) -> list[int]:
        """Return the token ids of a conversation, up to the place where the answer begins.

        Args:
            messages: the conversation, as `{"role": …, "content": …}`.
            options: options of the chat template; `date` is the day that it takes for today.

        Raises:
            UnsupportedModelError: the chat template raises an error, or a message contains a
                control token, which would end the message or begin another one.
        """
        for message in messages:
            control_token = first_control_token(self.tokenizer, message["content"])
            if control_token is not None:
                raise UnsupportedModelError(
                    f"the prompt for model {self.name} contains {control_token!r}, which the chat "
                    "template would take for a control token; write it in another way, or use "
                    "chat=False"
                )
        if not self.tokenizer.chat_template:
            raise UnsupportedModelError(
                f"model {self.name} has no chat template; leave chat=True (--chat) out"
            )
        try:
            text = render_chat(self.tokenizer, messages, options)
        except Exception as error:  # a template can raise any error, also about memory
            words = f"{self.name} cannot be used ({describe(error)}); use chat=False"
            raise UnsupportedModelError(f"the chat template of model {words}") from error
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of an answer.

        It ends before the first newline or stop text, and has no special tokens and no white space
        around it.
        """
        text = decode(self.tokenizer, token_ids, skip_special_tokens=True)
        return text_before(text.lstrip(), self.ends).strip()

    def choice_log_probs(
        self,
        prompts: Sequence[str],
        choices: Sequence[str],
        *,
        counts: ForwardCounts | None = None,
    ) -> NDArray[np.float64]:
        r"""Return log P(choice | prompt) in nats, for `scoring.p_true` and `metrics.judge`.

        All prompts of a batch go through the network together, and text that all prompts begin with
        goes through it once. A choice of several tokens needs one more pass for each further token.

        Args:
            prompts: n prompts.
            choices: C continuations. A choice usually begins with a space.
            counts: a counter to which the passes and tokens are added.

        Returns:
            (n, C) log-probabilities in nats; NaN for a prompt that the tokenizer cannot encode, as
            one in which a control token is written.

        Raises:
            SentenceError: there is no choice, or a choice adds no token to a prompt.

        Example:
            >>> from pro_lib import load_model
            >>> model = load_model("facts-2m")
            >>> model.choice_log_probs(["Q: Capital of France?\nA:"], [" Paris", " Rome"]).shape
            (1, 2)
        """
        if not choices:
            raise SentenceError("choices must have at least one text; got []")
        encoded: dict[int, tuple[list[int], list[list[int]]]] = {}
        for place, prompt in enumerate(prompts):
            with suppress(UnsupportedModelError):
                encoded[place] = encode_choices(self.encode, prompt, choices)
        results = np.full((len(prompts), len(choices)), np.nan)
        if not encoded:
            return results
        counts = counts or ForwardCounts()
        places = list(encoded)
        prompt_ids = [ids for ids, _ in encoded.values()]
        choice_ids = [continuations for _, continuations in encoded.values()]
        longest = max(len(ids) + max(map(len, ends)) for ids, ends in encoded.values())
        fit = self.fit_for(longest)
        prefix = fit.prefix(self.network, [ids[:-1] for ids in prompt_ids], counts)
        for start in range(0, len(places), self.prompts_at_once):
            batch = slice(start, start + self.prompts_at_once)
            tree = fit.tree(self.network, prompt_ids[batch], prefix=prefix, counts=counts)
            results[places[batch]] = choice_totals(tree, choice_ids[batch])
        return results

    def with_stop(self, stop: Sequence[str]) -> Model:
        """Return the same model, whose answers also end at other texts.

        Raises:
            ValueError: one of the texts in `stop` is not a single token.
        """
        if not stop:
            return self
        texts = token_texts(self.tokenizer, len(self.tokenizer))
        single_tokens = {*texts, *map(str.strip, texts)}
        for text in stop:
            if not text.strip() or text not in single_tokens:
                raise ValueError(
                    f"stop={text!r} must be one token of {self.name}, and more than white space"
                )
        ends = (*self.ends, *stop)
        return replace(self, ends=ends, endings=find_endings(self.tokenizer, self.network, ends))

    def fit_for(self, n_tokens: int) -> Fit:
        """Return the kind of tree for texts of up to `n_tokens` tokens.

        Raises:
            UnsupportedModelError: such texts are too long for the model.
        """
        try:
            fit = fit_for_length(self.network, self.fit, n_tokens)
        except PackingError as reason:
            raise UnsupportedModelError(f"model {self.name} {reason}") from reason
        if fit.plain and not self.fit.plain:
            warnings.warn(fit.notice(self.name), UserWarning, stacklevel=3)
        return fit


def load_model(
    name: str | Path | tuple[PreTrainedModel, Tokenizer],
    *,
    dtype: str = "auto",
    device: str | torch.device = "auto",
    quantization: str | None = None,
    **from_pretrained: Any,
) -> Model:
    """Load a causal language model.

    Args:
        name: a bundled model (`facts-2m`), a model of the paper (`Gemma-2B`), a folder, a GGUF file
            or a hub id. A pair `(network, tokenizer)` is a model that is already in memory; it is
            used as it is, so no other argument may be set (see `wrap_network`).
        dtype: `auto` (bfloat16 on CUDA, float32 elsewhere and for bundled models), or a name in
            `common.validation.DTYPES`.
        device: `auto` (CUDA, then MPS, then CPU) or a torch device.
        quantization: None, `8bit` or `4bit` (needs the extra `quantization` and a CUDA device).
        from_pretrained: options for transformers, such as `device_map` or `trust_remote_code`.

    Returns:
        The model, in evaluation mode on its device.

    Raises:
        FileNotFoundError: transformers cannot load the model, or torch does not have the device.
        ValueError: the dtype, quantization or name is unknown, or the source is a pipe, an adapter
            or a Git LFS pointer.
        UnsupportedModelError: the weights do not match the configuration, or the model is not a
            causal language model.

    Example:
        >>> from pro_lib import load_model
        >>> load_model("facts-1m", device="cpu").dtype
        'float32'
    """
    if isinstance(name, tuple):
        settings = {"dtype": dtype, "device": str(device), "quantization": quantization}
        return _wrap_pair(name, settings | from_pretrained)
    device = not_empty(str(device), "device")
    _check_choice("dtype", dtype, ("auto", *DTYPES))
    if quantization is not None:
        _check_choice("quantization", quantization, QUANTIZATIONS)
    check_model(name)
    source = locate(name)
    dtype = resolved_dtype(name, dtype=dtype, device=device)
    if device == "auto":
        device = best_device()
    check_reachable(source, from_pretrained)
    options = {"trust_remote_code": False, "dtype": getattr(torch, dtype), **from_pretrained}
    with refusing(FileNotFoundError, f"model {str(name)!r} could not be loaded"):
        torch.empty(0, device=device)  # an error if torch does not have the device
        if quantization:
            options = _quantization_options(quantization, options["dtype"], device) | options
        # The fingerprint is an error for a pipe in the folder, which transformers would wait for.
        identity = _fingerprint(source, from_pretrained)
        network, tokenizer = _load_network(source, options)
        if not options.get("device_map"):
            network.to(torch.device(device))  # type: ignore[arg-type]  # as transformers wraps it
        identity = identity or str(getattr(network.config, "_commit_hash", None))
        model = _checked_model(network, tokenizer, model_folder_name(name), source, identity)
        return replace(model, overrides=_overrides(network, from_pretrained))


def _check_choice(option: str, value: str, choices: Sequence[str]) -> None:
    """Raise `ValueError` for an option whose value is not one of the choices."""
    if value not in choices:
        raise ValueError(f"{option}={value!r} is unknown; choose {', '.join(choices)}")


def _fingerprint(source: str, options: Mapping[str, Any]) -> str | None:
    """Return the digest of the files that are loaded, or None for a model of the hub."""
    folder = Path(source, options.get("subfolder") or "")
    return fingerprint(folder) if folder.exists() else None


def _overrides(network: PreTrainedModel, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of loading that transformers wrote into the configuration."""
    configuration = network.config.to_dict()
    names = sorted({*options} & {*configuration} - {"dtype", "quantization_config"})
    return {name: options[name] for name in names}


def _quantization_options(kind: str, dtype: torch.dtype, device: str) -> dict[str, Any]:
    """Return the options of `from_pretrained` that quantize the weights."""
    settings = {f"load_in_{kind}": True, "bnb_4bit_compute_dtype": dtype}
    return {"quantization_config": BitsAndBytesConfig(**settings), "device_map": device}


def check_reachable(source: str, options: Mapping[str, Any]) -> None:
    """Raise `FileNotFoundError` if a hub model is not in the cache and the hub is unreachable.

    This takes one request; transformers would retry for half a minute.
    """
    if os.path.exists(source) or constants.HF_HUB_OFFLINE or options.get("local_files_only"):
        return
    names = ("cache_dir", "revision", "subfolder")
    cache_options = {name: options[name] for name in names if options.get(name)}
    with suppress(OSError, ValueError):
        if cached_file(source, "config.json", local_files_only=True, **cache_options):
            return
    try:
        get_session().head(constants.ENDPOINT, timeout=_HUB_TIMEOUT)
    except Exception as error:  # the hub's client raises many types without a network
        reason = f"{constants.ENDPOINT} cannot be reached ({describe(error)})"
        remedy = "connect to the internet, or give the folder of a model"
        message = (
            f"model {source!r} could not be loaded: it is not in the cache, and {reason}; {remedy}"
        )
        raise FileNotFoundError(one_line(message)) from error


def _wrap_pair(pair: tuple[Any, ...], options: Mapping[str, Any]) -> Model:
    """Return the model of a pair `(network, tokenizer)`."""
    from transformers import PreTrainedModel  # takes a second

    if len(pair) != 2 or not isinstance(pair[0], PreTrainedModel):
        raise ValueError(
            "model as a tuple must be a pair (network, tokenizer) of transformers; got "
            f"{tuple(type(part).__name__ for part in pair)}"
        )
    defaults = {"dtype": "auto", "device": "auto", "quantization": None}
    for name, value in options.items():
        if name not in defaults or value != defaults[name]:
            raise ValueError(
                f"{name} cannot be set for a pair (network, tokenizer), which is used as it is"
            )
    return wrap_network(*pair)


def wrap_network(network: PreTrainedModel, tokenizer: Tokenizer, *, name: str = "loaded") -> Model:
    """Return a network that is in memory as a model.

    Args:
        network: a causal language model of transformers.
        tokenizer: its tokenizer.
        name: the name under which the runs of the model are stored.

    Raises:
        UnsupportedModelError: the network is not a causal language model, or the tokenizer belongs
            to another one.
    """
    digest = hashlib.sha256(network.config.to_json_string().encode())
    for tensor in network.state_dict().values():
        values = tensor.detach().cpu().contiguous().flatten()
        digest.update(values.view(torch.uint8).numpy().tobytes())
    source = network.name_or_path or name
    return _checked_model(network, tokenizer, name, source, digest.hexdigest()[:16])


def _checked_model(
    network: PreTrainedModel, tokenizer: Tokenizer, name: str, source: str, identity: str
) -> Model:
    """Return the model of a network that is on its device."""
    try:
        fit = best_fit(network.eval())
        endings = find_endings(tokenizer, network)
        n_outputs = len(endings.stop)
        # `vocab_size` does not count special tokens that were added.
        if tokenizer.vocab_size > n_outputs:
            raise PackingError(
                f"has {n_outputs} tokens, but its tokenizer has {tokenizer.vocab_size}; use the "
                "tokenizer of this model"
            )
    except PackingError as reason:
        raise UnsupportedModelError(f"model {source} {reason}") from reason
    if fit.plain:
        warnings.warn(fit.notice(name), UserWarning, stacklevel=3)
    return Model(name, source, identity, network, tokenizer, endings, fit)


def cached_model(model: str | Path | Model, **options: Any) -> Model:
    """Return a loaded model as it is, or load one by name.

    The last model that was loaded by name is kept and returned again for the same name, options and
    files. It is released before another one is loaded.
    """
    if isinstance(model, Model):
        return model
    source = locate(not_empty(model, "model"))
    key = (str(model), repr(sorted(options.items())), _fingerprint(source, options))
    if key not in _LAST:
        _LAST.clear()
        _LAST[key] = load_model(model, **options)
    return _LAST[key]


def _load_network(source: str, options: Mapping[str, Any]) -> tuple[PreTrainedModel, Tokenizer]:
    """Return the network and the tokenizer that transformers loads."""
    folder = Path(source, options.get("subfolder") or "")
    check_no_adapter(folder)
    try:
        return _from_pretrained(source, options)
    except SentenceError:
        raise
    except Exception:
        # Pointers are an error only now, because a folder may have some for files that are not
        # needed.
        if folder.exists():
            check_fetched(folder)
        raise


def _from_pretrained(source: str, options: Mapping[str, Any]) -> tuple[PreTrainedModel, Tokenizer]:
    """Return the network and the tokenizer of a checkpoint."""
    name = source
    if source.endswith(".gguf") and not options.get("gguf_file"):
        source = str(converted_gguf(Path(source)) or source)
    if source.endswith(".gguf"):
        options = {**options, "gguf_file": os.path.basename(source)}
        source = os.path.dirname(source) or "."
    shared = {option: value for option, value in options.items() if option in _SHARED_OPTIONS}
    config = AutoConfig.from_pretrained(source, **shared)
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModelError(
            f"model {name} is an encoder-decoder, which is unsupported; choose a causal "
            "language model"
        )
    tokenizer = AutoTokenizer.from_pretrained(source, **shared)
    # Mismatched weights are reported here instead of by an error of transformers.
    report_options = {"output_loading_info": True, "ignore_mismatched_sizes": True}
    with weights.without_reports():
        network, loading_info = auto_class(config).from_pretrained(
            source, **report_options, **options
        )
    fault = weights.contradictions(network, loading_info, lambda: _folder(source, shared))
    if fault:
        raise UnsupportedModelError(f"model {name} {fault}")
    return network, tokenizer


def _folder(source: str, shared: Mapping[str, Any]) -> Path:
    """Return the folder of a model's files: its own, or the cached snapshot of a hub id."""
    if os.path.isdir(source):
        return Path(source, shared.get("subfolder") or "")
    excluded = ("trust_remote_code", "gguf_file")
    hub_options = {name: value for name, value in shared.items() if name not in excluded}
    return Path(str(cached_file(source, "config.json", **hub_options))).parent
