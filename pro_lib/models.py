"""Loading a causal language model and its tokenizer, and finding the tokens that end an answer.

It knows weights, devices and token texts; it does not know questions, strategies or files of answers.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from jinja2 import TemplateError
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, PreTrainedModel
from transformers import PreTrainedTokenizerBase as Tokenizer

from pro_lib.base import texts
from pro_lib.base.bundled import bundled_models, check_model, fingerprint, paper_models
from pro_lib.base.checks import QUANTIZATIONS, Dtype, Quantization, checked
from pro_lib.decoding import Endings, largest_packing_error

# A guess at what rounding may do; the test models stay far below it, and no large model has been tried.
PACKING_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.5, torch.float16: 0.1}
# What bounds how far a model sees: its name in the configuration, the kind of layers that have it (all), and in words.
_LIMITS = (
    ("sliding_window", "sliding_attention", "sliding window"),
    ("attention_chunk_size", "chunked_attention", "attention chunk"),
    ("max_position_embeddings", "", "number of positions"),
)


class UnsupportedModelError(ValueError):
    """The model cannot be run on the packed prefix tree."""


@checked
class _Options:
    dtype: Dtype
    quantization: Quantization | None


@dataclass(frozen=True)
class Model:
    """A loaded model: `network` in evaluation mode on `device`, its `tokenizer`, and how its answers end.

    `source` is its folder or hub id; `fingerprint` tells its files from those of another model of the same name;
    `packing_error` is how far a packed step was from plain forward passes, in nats.
    """

    name: str
    source: str
    fingerprint: str
    network: PreTrainedModel = field(repr=False)
    tokenizer: Tokenizer = field(repr=False)
    endings: Endings = field(repr=False)
    packing_error: float

    @property
    def device(self) -> torch.device:
        """Where the inputs go."""
        return self.network.device

    @property
    def dtype(self) -> str:
        """The precision of the weights, as in `load(dtype=)`."""
        return str(self.network.dtype).removeprefix("torch.")

    @property
    def quantization(self) -> str | None:
        """How the weights were quantised, as in `load(quantization=)`; None if they were not."""
        return next((kind for kind in QUANTIZATIONS if getattr(self.network, f"is_loaded_in_{kind}", False)), None)

    def parameters(self) -> dict[str, object]:
        """What of the model decides a run, as JSON can hold it."""
        shrunk = {"quantization": self.quantization} if self.quantization else {}
        return {"model": self.name, "fingerprint": self.fingerprint, "dtype": self.dtype, **shrunk}

    def encode(self, text: str) -> list[int]:
        """Token ids of a prompt, with the beginning-of-text token where the tokenizer adds one."""
        return texts.encode(self.tokenizer, text)

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Token ids of a conversation in the model's chat template, up to where its answer begins.

        Raises:
            UnsupportedModelError: the tokenizer has no chat template, or the template refuses the conversation.
        """
        try:
            text = self.tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
        except (TemplateError, ValueError) as error:
            message = f"model {self.name} has no chat template that takes the prompt; leave chat=True out ({error})"
            raise UnsupportedModelError(message) from error
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def decode(self, token_ids: Sequence[int]) -> str:
        """The answer's text: up to its first newline, without special tokens or surrounding white space."""
        return texts.answer_text(self.tokenizer, token_ids)

    def with_stop(self, stop: Sequence[str]) -> "Model":
        """The same model, with the single tokens that `stop` spells ending an answer as well."""
        table = self.endings.stop.clone()
        for text in stop:
            ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
            if len(ids) != 1:
                raise ValueError(f"stop={text!r} is {len(ids)} tokens of {self.name}; a stop must be exactly one")
            table[ids[0]] = True
        return replace(self, endings=Endings(table, self.endings.closing & ~table))

    def check_length(self, n_tokens: int) -> None:
        """Refuse a text of `n_tokens` that the model could not see whole.

        Raises:
            UnsupportedModelError: a sliding or chunked window, or the table of positions, is shorter.
        """
        config = self.network.config.get_text_config()
        kinds = getattr(config, "layer_types", None) or ("sliding_attention",)
        for name, kind, words in _LIMITS:
            limit = getattr(config, name, None)
            if limit and kind in ("", *kinds) and n_tokens > limit:
                raise UnsupportedModelError(
                    f"model {self.name}: the longest prompt and its answer take {n_tokens} tokens, "
                    f"but its {words} is {limit}; use fewer shots or a model that sees further"
                )


def load(
    name: str | Path,
    *,
    dtype: str = "auto",
    device: str = "auto",
    quantization: str | None = None,
    device_map: str | dict | None = None,
    trust_remote_code: bool = False,
) -> Model:
    """Load a model by bundled name (`facts-2m`, `facts-1m`), the paper's name (`Gemma-2B`, …), folder or hub id.

    Args:
        name: a folder in `data/models`, a name in `bundled.paper_models`, a folder anywhere, or a hub id.
        dtype: `auto` (bfloat16 on CUDA, float32 elsewhere and for bundled models), or a name in `checks.DTYPES`.
        device: `auto` (CUDA, then MPS, then CPU) or a torch device.
        quantization: None, `8bit` or `4bit` (needs the extra `quantization` and a CUDA device).
        device_map: given to transformers as it is, to spread a model over several devices.
        trust_remote_code: whether code that ships with a hub model may run here.

    Raises:
        FileNotFoundError: the folder holds no model, or the name cannot be had from the hub.
        UnsupportedModelError: the architecture cannot run on the packed tree (ALiBi, recurrent state, …).
        ValueError: an unknown dtype, device or quantization, or a name that no model can have.
    """
    name, _ = str(name), _Options(dtype=dtype, quantization=quantization)
    source, device = _locate(name), find_device(device)
    if dtype == "auto":
        dtype = "bfloat16" if device.startswith("cuda") and name not in bundled_models() else "float32"
    weights, code = {"dtype": getattr(torch, dtype)}, {"trust_remote_code": trust_remote_code}
    if quantization or device_map is not None:
        weights["device_map"] = device_map or device
    if quantization:
        kind = {f"load_in_{quantization}": True}
        weights["quantization_config"] = BitsAndBytesConfig(**kind, bnb_4bit_compute_dtype=getattr(torch, dtype))
    try:
        config = AutoConfig.from_pretrained(source, **code)
        text = config.get_text_config()
        if getattr(text, "alibi", False) or text.model_type in ("bloom", "mpt"):
            raise UnsupportedModelError(
                f"model {name} uses ALiBi, whose distances follow the order of the cache; the packed tree cannot run it"
            )
        tokenizer = AutoTokenizer.from_pretrained(source, **code)
        network = AutoModelForCausalLM.from_pretrained(source, **weights, **code).eval()
    except UnsupportedModelError:
        raise
    except (OSError, ValueError, KeyError, ImportError, SafetensorError) as error:  # as the files are damaged
        first_line = str(error).strip().partition("\n")[0] or type(error).__name__
        raise FileNotFoundError(f"model {name!r} could not be loaded from {source}: {first_line}") from error
    network = network if "device_map" in weights else network.to(device)
    endings = find_endings(tokenizer, network, network.get_output_embeddings().weight.shape[0])
    packing_error, folder = _checked_packing_error(name, network), Path(source)
    identity = fingerprint(folder) if folder.is_dir() else str(getattr(config, "_commit_hash", None))
    return Model(folder.name, source, identity, network, tokenizer, endings, packing_error)


def find_endings(tokenizer: Tokenizer, network: PreTrainedModel, vocabulary: int) -> Endings:
    """The stop and closing tokens of a model with `vocabulary` outputs.

    A token stops an answer if it is an end of text, or if its text has a newline with nothing but white space
    before it; it closes the answer if there is text before the newline.
    """
    # Tokens of the tokenizer alone: an output beyond them has no text and ends nothing.
    kinds = [texts.ending(texts.token_text(tokenizer, token_id)) for token_id in range(min(vocabulary, len(tokenizer)))]
    kinds += [None] * (vocabulary - len(kinds))
    stop, closing = (torch.tensor([kind == ending for kind in kinds]) for ending in ("stop", "closing"))
    for source in (tokenizer, network.config.get_text_config(), network.generation_config):
        ids = getattr(source, "eos_token_id", None)
        for token_id in [ids] if isinstance(ids, int) else ids or []:
            if token_id < vocabulary:
                stop[token_id], closing[token_id] = True, False
    if not stop.any():
        raise UnsupportedModelError("the tokenizer has neither an end-of-text token nor a newline token")
    return Endings(stop.to(network.device), closing.to(network.device))


def _locate(name: str) -> str:
    """The folder or hub id that a model of this name is loaded from."""
    known, folder = paper_models() | bundled_models(), Path(name).expanduser()
    if name in known:
        return str(known[name])
    if not folder.is_dir():
        check_model(str(folder))
        return name
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"model folder {folder} has no config.json")
    return str(folder.resolve())


def find_device(device: str) -> str:
    """The device of that name, `auto` being the best there is. Raises `ValueError` for one that is not there."""
    if device == "auto":
        mps = "mps" if torch.backends.mps.is_available() else "cpu"
        return "cuda" if torch.cuda.is_available() else mps
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device={device!r} is no device that this torch sees; choose cpu or auto") from error
    return device


def _checked_packing_error(name: str, network: PreTrainedModel) -> float:
    """One packed step against plain forward passes; a model that fails it would give wrong numbers silently."""
    model, tolerance = f"model {name} ({type(network).__name__})", PACKING_TOLERANCE[network.dtype]
    try:
        error = largest_packing_error(network)
    except (TypeError, ValueError, RuntimeError, AttributeError) as failure:
        raise UnsupportedModelError(f"{model} cannot run one packed step: {failure}") from failure
    if error > tolerance:
        raise UnsupportedModelError(
            f"{model} gives log-probabilities {error:.3g} nats off on a packed step (at most {tolerance:g} is "
            "rounding): it ignores the 4-D attention mask or the position ids"
        )
    if error > tolerance / 10:
        warnings.warn(f"{model}: a packed step is off by {error:.3g} nats", RuntimeWarning, stacklevel=3)
    return error
