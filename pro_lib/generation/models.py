"""Causal language models, texts of their tokens, and which tokens end an answer; knows no question and no strategy."""

import hashlib
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import constants, get_session
from transformers import AutoConfig, AutoTokenizer, BitsAndBytesConfig, PreTrainedModel
from transformers import PreTrainedTokenizerBase as Tokenizer
from transformers.utils import cached_file

from pro_lib.common.catalog import (
    check_fetched,
    check_model,
    check_no_adapter,
    fingerprint,
    is_bundled,
    locate,
    model_folder_name,
)
from pro_lib.common.control_tokens import ADDED_CONTROL_TOKEN
from pro_lib.common.thoughts import THOUGHT_MARKS
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
from pro_lib.generation.decoding import Endings
from pro_lib.generation.decoding.compatibility import (
    Fit,
    PackingError,
    auto_class,
    best_fit,
    fit_for_length,
)
from pro_lib.generation.decoding.packed_tree import reducing_device

# Options of `from_pretrained` that a configuration and a tokenizer take as well.
_SHARED = (
    "trust_remote_code",
    "revision",
    "token",
    "cache_dir",
    "local_files_only",
    "subfolder",
    "gguf_file",
)
_LAST: "dict[tuple, Model]" = {}  # the model last loaded by `cached_model`, by what it was loaded from
# What ends every answer.
NEWLINE = ("\n",)
_EXACTLY = {"clean_up_tokenization_spaces": False}
# What chat templates take for today, so that a run does not depend on the day: the date that Llama's own fall back on.
TODAY = "2024-07-26"
_PATIENCE = 10.0  # seconds to wait for the hub's answer
_NOW = re.compile(r"""strftime_now\(\s*(["'])(.*?)\1\s*\)""")
# Characters of a chat template, and of a prompt that one makes: over longer ones tokenizers take minutes, or crash.
_LONGEST = 2**20


class UnsupportedModelError(SentenceError):
    """The model cannot say what follows a text, or not these texts."""


@dataclass(frozen=True)
class Model:
    """A loaded model, from the folder or hub id `source`; `fingerprint` digests its files, `ends` end an answer."""

    name: str
    source: str
    fingerprint: str
    network: PreTrainedModel = field(repr=False)
    tokenizer: Tokenizer = field(repr=False)
    endings: Endings = field(repr=False)
    fit: Fit
    ends: tuple[str, ...] = NEWLINE

    @property
    def device(self) -> torch.device:
        """Where the inputs go."""
        return self.network.device

    @property
    def dtype(self) -> str:
        """The precision of the weights, as in `load_model(dtype=)`."""
        return str(self.network.dtype).removeprefix("torch.")

    @property
    def quantization(self) -> str | None:
        """How the weights were quantised, as in `load_model(quantization=)`; None if they were not."""
        return next(
            (
                kind
                for kind in QUANTIZATIONS
                if getattr(self.network, f"is_loaded_in_{kind}", False)
            ),
            None,
        )

    @property
    def is_remote(self) -> bool:
        """Whether the weights are behind a server; its answers are then stored question by question."""
        return False

    @property
    def concurrency(self) -> int:
        """How many requests a server gets at once."""
        return 1

    def parameters(self) -> dict[str, Any]:
        """Return what of the model decides a run, as JSON can hold it."""
        quantization = {"quantization": self.quantization} if self.quantization else {}
        return {
            "model": self.name,
            "fingerprint": self.fingerprint,
            "dtype": self.dtype,
            **quantization,
        }

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a prompt, with a beginning-of-text token where the tokenizer adds one, and no end.

        A control token that is written in the text, such as `<|endoftext|>`, is encoded as its letters, with a
        warning. Raises `UnsupportedModelError` if the tokenizer cannot do that.
        """
        written = self._control_tokens_in(text)
        ids = (
            self._without_control_tokens(text, written)
            if written
            else self.tokenizer(text)["input_ids"]
        )
        return ids[:-1] if len(ids) > 1 and ids[-1] == self.tokenizer.eos_token_id else ids

    def _without_control_tokens(self, text: str, written: str) -> list[int]:
        """Return the token ids of a text in which a control token is written, with a warning."""
        _, control_ids = control_tokens(self.tokenizer, len(self.tokenizer))
        ids = self.tokenizer(text, split_special_tokens=True)["input_ids"]
        n_added = sum(token in control_ids for token in self.tokenizer("")["input_ids"])
        if sum(token in control_ids for token in ids) > n_added:
            words = f"and the tokenizer of {self.name} takes it for a control token, not for text"
            raise UnsupportedModelError(
                f"the prompt contains {written!r}, {words}; write it otherwise"
            )
        words = "in a prompt is encoded as text, not as the control token"
        warnings.warn(f"model {self.name}: {written!r} {words}", UserWarning, stacklevel=2)
        return ids

    def _control_tokens_in(self, text: str) -> str | None:
        """Return the first control token that is written in a text; None if there is none."""
        pattern, _ = control_tokens(self.tokenizer, len(self.tokenizer))
        match = pattern.search(text)
        return match[0] if match else None

    def encode_chat(self, messages: list[dict[str, str]], options: Mapping[str, Any]) -> list[int]:
        """Return the token ids of a conversation in the chat template, up to where the answer begins.

        `options` are the template's, and `date`, its today. Raises `UnsupportedModelError` if the template refuses it,
        or if a message contains a control token, which would end it or begin another.
        """
        for message in messages:
            written = self._control_tokens_in(message["content"])
            if written:
                words = "which the chat template would take for a control token; write it otherwise, or use chat=False"
                raise UnsupportedModelError(
                    f"the prompt for model {self.name} contains {written!r}, {words}"
                )
        try:
            template, settings = self.tokenizer.get_chat_template(), dict(options)
            if len(template) > _LONGEST:
                raise ValueError(f"it has {len(template):,} characters, more than {_LONGEST:,}")
            for name in options:
                if name not in template and not (name == "date" and "strftime_now" in template):
                    raise ValueError(f"it has no option {name!r}")
            day = date.fromisoformat(settings.pop("date", TODAY))
            # Transformers answers this call with the day it is, whatever it is given.
            template = _NOW.sub(lambda call: repr(day.strftime(call[2])), template)
            if "strftime_now(" in template:
                raise ValueError("it asks for the date in a way that is not known here")
            settings |= {
                "chat_template": template,
                "tokenize": False,
                "add_generation_prompt": True,
            }
            text: Any = self.tokenizer.apply_chat_template(messages, **settings)
            if len(text) > _LONGEST:
                raise ValueError(
                    f"what it makes of the prompt has {len(text):,} characters, more than {_LONGEST:,}"
                )
            if text.rstrip().endswith(tuple(THOUGHT_MARKS)):
                raise ValueError(
                    "it opens a thinking block; an option may close it: chat={'enable_thinking': False}"
                )
        except (
            Exception
        ) as error:  # a template is a program of the model's makers, and may want all memory
            words = f"has no chat template that takes the prompt; leave chat=True out ({error})"
            raise UnsupportedModelError(f"model {self.name} {words}") from error
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return an answer's text: up to its first newline or stop, without special tokens or white space around it."""
        text = str(self.tokenizer.decode(list(token_ids), skip_special_tokens=True, **_EXACTLY))
        return _before(text.lstrip(), self.ends).strip()

    def with_stop(self, stop: Sequence[str]) -> "Model":
        """Return the same model, whose answers end at these texts too; `ValueError` where no token is one of them."""
        if not stop:
            return self
        texts = token_texts(self.tokenizer, len(self.tokenizer))
        single = {*texts, *map(str.strip, texts)}
        for text in stop:
            if not text.strip() or text not in single:
                raise ValueError(
                    f"stop={text!r} is no single token of {self.name} that holds more than white space"
                )
        ends = (*self.ends, *stop)
        return replace(self, ends=ends, endings=find_endings(self.tokenizer, self.network, ends))

    def fit_for(self, n_tokens: int) -> Fit:
        """Return which tree texts of up to `n_tokens` are asked on; `UnsupportedModelError` if too long for any."""
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
    device: "str | torch.device" = "auto",
    quantization: str | None = None,
    **from_pretrained: Any,
) -> Model:
    """Load a model by bundled name (`facts-2m`), the paper's name (`Gemma-2B`), folder, GGUF file or hub id.

    Args:
        name: one of these, or a pair `(network, tokenizer)` of a model that is already in memory. A pair is used as
            it is, so it takes no other argument (see `wrap_network`).
        dtype: `auto` (bfloat16 on CUDA, float32 elsewhere and for bundled models), or a name in
            `common.validation.DTYPES`.
        device: `auto` (CUDA, then MPS, then CPU) or a torch device.
        quantization: None, `8bit` or `4bit` (needs the extra `quantization` and a CUDA device).
        from_pretrained: options given to transformers as they are, as `device_map` or `trust_remote_code`.

    Raises:
        FileNotFoundError: transformers cannot load it or torch does not see the device, in their words.
        ValueError: an unknown dtype, quantization or name, a pipe, an adapter, a Git LFS pointer;
            `UnsupportedModelError` if the weights are not those of the configuration, or if nothing follows a text.
    """
    if isinstance(name, tuple):
        given = {
            "dtype": dtype,
            "device": str(device),
            "quantization": quantization,
            **from_pretrained,
        }
        return _wrap_pair(name, given)
    device = not_empty(str(device), "device")
    for option, value, choices in (
        ("dtype", dtype, ("auto", *DTYPES)),
        ("quantization", quantization, QUANTIZATIONS),
    ):
        if value is not None and value not in choices:
            raise ValueError(f"{option}={value!r} is none of {', '.join(choices)}")
    check_model(name)
    path = Path(source := locate(name))
    if device == "auto":
        device = (
            "cuda"
            if torch.cuda.is_available()
            else "mps"
            if torch.backends.mps.is_available()
            else "cpu"
        )
    if dtype == "auto":
        dtype = "bfloat16" if device.startswith("cuda") and not is_bundled(name) else "float32"
    check_reachable(source, from_pretrained)
    options = {"trust_remote_code": False, "dtype": getattr(torch, dtype), **from_pretrained}
    with refusing(FileNotFoundError, f"model {str(name)!r} could not be loaded"):
        torch.empty(0, device=device)
        if quantization:
            config = BitsAndBytesConfig(
                **{f"load_in_{quantization}": True, "bnb_4bit_compute_dtype": options["dtype"]}
            )
            options = {"quantization_config": config, "device_map": device} | options
        # Before a pipe in the folder is waited for
        identity = fingerprint(path) if path.exists() else None
        folder = path / (options.get("subfolder") or "")
        check_no_adapter(folder)
        try:
            network, tokenizer = _from_pretrained(source, options)
        except SentenceError:
            raise
        except Exception:
            # Only now, since a folder may have pointers to files that are not needed.
            if folder.exists():
                check_fetched(folder)
            raise
        if not options.get("device_map"):
            network.to(torch.device(device))  # type: ignore[arg-type]  # as transformers wraps it
        identity = identity or str(getattr(network.config, "_commit_hash", None))
        return _made(network, tokenizer, model_folder_name(name), source, identity)


def check_reachable(source: str, options: Mapping[str, Any]) -> None:
    """Raise `FileNotFoundError` if a model of the hub is not in the cache and the hub cannot be reached.

    One request is enough to know; transformers would retry for half a minute.
    """
    if os.path.exists(source) or constants.HF_HUB_OFFLINE or options.get("local_files_only"):
        return
    shared = {
        name: options[name] for name in ("cache_dir", "revision", "subfolder") if options.get(name)
    }
    with suppress(OSError, ValueError):
        if cached_file(source, "config.json", local_files_only=True, **shared):
            return
    try:
        get_session().head(constants.ENDPOINT, timeout=_PATIENCE)
    except Exception as error:  # the hub's client raises many errors without a network
        words = f"it is not in the cache, and {constants.ENDPOINT} cannot be reached ({describe(error)})"
        remedy = "connect to the internet, or give the folder of a model"
        raise FileNotFoundError(
            one_line(f"model {source!r} could not be loaded: {words}; {remedy}")
        ) from error


def _wrap_pair(pair: tuple[Any, ...], options: Mapping[str, Any]) -> Model:
    """Return the model of a pair `(network, tokenizer)`; `ValueError` for another tuple, or an option of loading."""
    if len(pair) != 2 or not isinstance(pair[0], PreTrainedModel):
        raise ValueError("a tuple must be a pair (network, tokenizer) of transformers")
    defaults = {"dtype": "auto", "device": "auto", "quantization": None}
    refused = [
        option
        for option, value in options.items()
        if option not in defaults or value != defaults[option]
    ]
    if refused:
        raise ValueError(
            f"{refused[0]} cannot be set for a pair (network, tokenizer), which is used as it is"
        )
    return wrap_network(*pair)


def wrap_network(network: PreTrainedModel, tokenizer: Tokenizer, *, name: str = "loaded") -> Model:
    """Return a network in memory, with its tokenizer, as a model whose runs are stored under `name`."""
    digest = hashlib.sha256(network.config.to_json_string().encode())
    for tensor in network.state_dict().values():
        digest.update(
            tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        )
    return _made(network, tokenizer, name, network.name_or_path or name, digest.hexdigest()[:16])


def _made(
    network: PreTrainedModel, tokenizer: Tokenizer, name: str, source: str, identity: str
) -> Model:
    """Return the model of a network in place; `UnsupportedModelError` where it cannot say what follows a text."""
    try:
        fit, found = best_fit(network.eval()), find_endings(tokenizer, network)
        if tokenizer.vocab_size > (
            n_outputs := len(found.stop)
        ):  # which counts no special token that was added
            raise PackingError(
                f"has {n_outputs} tokens, its tokenizer {tokenizer.vocab_size}: another model's"
            )
    except PackingError as reason:
        raise UnsupportedModelError(f"model {source} {reason}") from reason
    if fit.plain:
        warnings.warn(fit.notice(name), UserWarning, stacklevel=3)
    return Model(name, source, identity, network, tokenizer, found, fit)


def cached_model(model: "str | Path | Model", **options: Any) -> Model:
    """Return a loaded model as it is; one named is loaded unless it was the last loaded so, which is let go first."""
    if isinstance(model, Model):
        return model
    source = Path(locate(not_empty(model, "model")))
    key = (
        str(model),
        repr(sorted(options.items())),
        fingerprint(source) if source.exists() else None,
    )
    if key not in _LAST:
        _LAST.clear()
        _LAST[key] = load_model(model, **options)
    return _LAST[key]


def _from_pretrained(source: str, options: Mapping[str, Any]) -> tuple[PreTrainedModel, Tokenizer]:
    """Return network and tokenizer; `UnsupportedModelError` if the weights are not those of the configuration."""
    name = source
    if source.endswith(".gguf"):
        options = {**options, "gguf_file": os.path.basename(source)}
        source = os.path.dirname(source) or "."
    shared = {name: value for name, value in options.items() if name in _SHARED}
    config = AutoConfig.from_pretrained(source, **shared)
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModelError(
            f"model {name} is an encoder-decoder: answers follow from what its encoder read"
        )
    tokenizer = AutoTokenizer.from_pretrained(source, **shared)
    told = {"output_loading_info": True, "ignore_mismatched_sizes": True}
    with weights.without_reports():
        network, loading = auto_class(config).from_pretrained(source, **told, **options)
    wrong = weights.contradictions(network, loading, lambda: _folder(source, shared))
    if wrong:
        raise UnsupportedModelError(f"model {name} {wrong}")
    return network, tokenizer


def _folder(source: str, shared: Mapping[str, Any]) -> Path:
    """Return the folder of a model's files: its own, or the cached snapshot of a hub id."""
    hub = {
        name: value
        for name, value in shared.items()
        if name not in ("trust_remote_code", "gguf_file")
    }
    if os.path.isdir(source):
        return Path(source, hub.get("subfolder") or "")
    return Path(str(cached_file(source, "config.json", **hub))).parent


@lru_cache(maxsize=2)
def control_tokens(tokenizer: Any, n_tokens: int) -> tuple[re.Pattern, frozenset[int]]:
    """Return a pattern for the texts of a tokenizer's control tokens, and their ids.

    Added tokens of white space, words or HTML, which some tokenizers have, are not control tokens. `n_tokens` is the
    tokenizer's length, so that tokens that are added later count.
    """
    texts: dict[int, str] = {}
    for token_id, token in getattr(tokenizer, "added_tokens_decoder", {}).items():
        text = str(token.content)
        if text.strip() and (token.special or ADDED_CONTROL_TOKEN.fullmatch(text.strip())):
            texts[token_id] = text
    longest_first = sorted(texts.values(), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)"), frozenset(texts)


@lru_cache(maxsize=2)
def token_texts(tokenizer: Any, n_tokens: int) -> tuple[str, ...]:
    """Return the texts of the first `n_tokens`, each by itself, part of a character as U+FFFD; more may be added."""
    # mistral-common's SentencePiece writes pieces raw unless special tokens are skipped, which have then no text.
    texts = (
        tokenizer.decode([token_id], skip_special_tokens=True, **_EXACTLY)
        for token_id in range(n_tokens)
    )
    return tuple(
        text or tokenizer.decode([n], skip_special_tokens=False, **_EXACTLY)
        for n, text in enumerate(texts)
    )


def _before(text: str, ends: Sequence[str]) -> str:
    """Return a text up to the first of `ends` in it."""
    return min((text.partition(end)[0] for end in ends), key=len)


def endings(tokenizer: Any, ends: Sequence[str], *configurations: Any, size: int) -> Endings:
    """Return which of `size` tokens end an answer, `(V,)` each: they hold one of `ends`, or are an end of text."""
    stop, closing = torch.zeros(2, size, dtype=torch.bool)
    texts = () if tokenizer is None else token_texts(tokenizer, len(tokenizer))
    for token_id, text in enumerate(texts[:size]):
        if (
            before := _before(text, ends)
        ) != text:  # of few, and a tensor is slow to write single numbers to
            kind = closing if before.strip() else stop
            kind[token_id] = True
    for source in (tokenizer, *configurations):
        ids = getattr(source, "eos_token_id", None)
        for token_id in [ids] if isinstance(ids, int) else ids or []:
            if 0 <= token_id < size:
                stop[token_id] = True
    return Endings(stop, closing & ~stop)


def find_endings(
    tokenizer: Tokenizer | None,
    network: PreTrainedModel,
    ends: Sequence[str] = NEWLINE,
    *,
    config: Any = None,
) -> Endings:
    """Return the endings of a model, on the device where its log-probabilities are added up.

    Raises `PackingError` if no token stops. A tokenizer of None leaves those that `config`, a generation config, names.
    """
    own = (
        (network.config.get_text_config(), network.generation_config)
        if tokenizer is not None
        else ()
    )
    head: Any = network.get_output_embeddings() or network.get_input_embeddings()
    found = endings(tokenizer, ends, config, *own, size=len(head.weight))
    if not found.stop.any():
        raise PackingError("has neither an end-of-text token (no eos_token_id) nor a newline token")
    device = reducing_device(network.device)
    return Endings(found.stop.to(device), found.closing.to(device))
