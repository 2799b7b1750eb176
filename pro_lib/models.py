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
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedConfig, PreTrainedModel
from transformers import PreTrainedTokenizerBase as Tokenizer

from pro_lib.bundled import bundled_models, fingerprint, paper_models
from pro_lib.decoding.strategies import Endings
from pro_lib.decoding.tree import largest_packing_error
from pro_lib.storage import QUANTIZATIONS

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# A guess at what rounding may do; the test models stay far below it, and no large model has been tried.
PACKING_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.5, torch.float16: 0.1}


class UnsupportedModelError(ValueError):
    """The model cannot be run on the packed prefix tree."""


@dataclass(frozen=True)
class Model:
    """A loaded model: `network` in evaluation mode on `device`, its `tokenizer`, and how its answers end.

    `fingerprint` tells its files from those of another model of the same name.
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
        kinds = (kind for kind in QUANTIZATIONS if getattr(self.network, f"is_loaded_in_{kind}", False))
        return next(kinds, None)

    def encode(self, text: str) -> list[int]:
        """Token ids of a prompt, with the beginning-of-text token where the tokenizer adds one."""
        ids = self.tokenizer(text)["input_ids"]
        return ids[:-1] if len(ids) > 1 and ids[-1] == self.tokenizer.eos_token_id else ids

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Token ids of a conversation in the model's chat template, up to where its answer begins.

        Raises:
            UnsupportedModelError: the tokenizer has no chat template, or the template refuses the conversation.
        """
        if not getattr(self.tokenizer, "chat_template", None):
            raise UnsupportedModelError(f"model {self.name} has no chat template; leave chat=True out")
        try:
            text = self.tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
        except TemplateError as error:
            raise UnsupportedModelError(
                f"the chat template of model {self.name} refuses the prompt: {error}"
            ) from error
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def decode(self, token_ids: Sequence[int]) -> str:
        """The answer's text: up to its first newline, without special tokens or surrounding white space."""
        text = self.tokenizer.decode(list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text.lstrip().partition("\n")[0].strip()

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
        for kind, limit in _length_limits(self.network.config.get_text_config()).items():
            if n_tokens > limit:
                raise UnsupportedModelError(
                    f"model {self.name}: the longest prompt and its answer take {n_tokens} tokens, "
                    f"but its {kind} is {limit}; use fewer shots or a model that sees further"
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
        dtype: `auto` (float32 on a CPU and for bundled models, else bfloat16), or a name in `DTYPES`.
        device: `auto` (CUDA, then MPS, then CPU) or a torch device.
        quantization: None, `8bit` or `4bit` (needs the extra `quantization` and a CUDA device).
        device_map: given to transformers as it is, to spread a model over several devices.
        trust_remote_code: whether code that ships with a hub model may run here.

    Raises:
        FileNotFoundError: there is no such folder, and the name cannot be had from the hub.
        UnsupportedModelError: the architecture cannot run on the packed tree (ALiBi, recurrent state, …).
        ValueError: an unknown dtype, device or quantization.
    """
    source, is_bundled = _locate(name)
    device = _device(device)
    weights_dtype = _dtype(dtype, device, is_bundled)
    options = {"trust_remote_code": trust_remote_code}
    placement = {"device_map": device_map} if device_map is not None else {}
    if quantization is not None:
        placement = {
            "device_map": device_map or device,
            "quantization_config": _quantization(quantization, weights_dtype),
        }
    try:
        config = AutoConfig.from_pretrained(source, **options)
        _refuse_unsupported(str(name), config)
        tokenizer = AutoTokenizer.from_pretrained(source, **options)
        network = AutoModelForCausalLM.from_pretrained(source, dtype=weights_dtype, **placement, **options)
    except UnsupportedModelError:
        raise
    except (OSError, ValueError, KeyError, ImportError, SafetensorError) as error:
        first_line = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise FileNotFoundError(f"model {str(name)!r} could not be loaded from {source}: {first_line}") from error
    if not placement:
        network = network.to(device)
    network.eval()
    vocabulary = network.get_output_embeddings().weight.shape[0]
    endings = find_endings(tokenizer, network, vocabulary)
    packing_error = _checked_packing_error(str(name), network)
    identity = fingerprint(Path(source)) if Path(source).is_dir() else str(getattr(config, "_commit_hash", None))
    folder = Path(source).resolve() if Path(source).is_dir() else Path(source)
    return Model(folder.name, source, identity, network, tokenizer, endings, packing_error)


def find_endings(tokenizer: Tokenizer, network: PreTrainedModel, vocabulary: int) -> Endings:
    """The stop and closing tokens of a model with `vocabulary` outputs.

    A token stops an answer if it is an end of text, or if its text has a newline with nothing but white space
    before it; it closes the answer if there is text before the newline.
    """
    stop = torch.zeros(vocabulary, dtype=torch.bool)
    closing = torch.zeros(vocabulary, dtype=torch.bool)
    # Tokens of the tokenizer alone: an output beyond them has no text and ends nothing.
    for token_id in range(min(vocabulary, len(tokenizer))):
        before, newline, _ = tokenizer.decode([token_id], clean_up_tokenization_spaces=False).partition("\n")
        if newline:
            (closing if before.strip() else stop)[token_id] = True
    for token_id in _end_of_text_ids(tokenizer, network):
        if token_id < vocabulary:
            stop[token_id] = True
            closing[token_id] = False
    if not stop.any():
        raise UnsupportedModelError("the tokenizer has neither an end-of-text token nor a newline token")
    return Endings(stop.to(network.device), closing.to(network.device))


def _end_of_text_ids(tokenizer: Tokenizer, network: PreTrainedModel) -> set[int]:
    ids: set[int] = set()
    for source in (tokenizer, network.config.get_text_config(), network.generation_config):
        value = getattr(source, "eos_token_id", None)
        ids.update([value] if isinstance(value, int) else value or [])
    return ids


def _locate(name: str | Path) -> tuple[str, bool]:
    """Where `name` is to be loaded from, and whether it is one of the bundled models."""
    bundled, paper = bundled_models(), paper_models()
    if str(name) in bundled:
        return str(bundled[str(name)]), True
    if str(name) in paper:
        return paper[str(name)], False
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise FileNotFoundError(f"model folder {folder} has no config.json")
        return str(folder), False
    if folder.is_absolute() or str(name).count("/") > 1 or str(name).startswith("."):
        raise FileNotFoundError(f"model folder {name} does not exist")
    if "/" not in str(name):
        raise FileNotFoundError(
            f"model {name!r} is neither bundled ({', '.join(bundled)}), nor one of the paper's "
            f"({', '.join(paper)}), nor a folder, nor a hub id owner/name"
        )
    return str(name), False


def _device(device: str) -> str:
    if device != "auto":
        try:
            kind = torch.device(device).type
        except RuntimeError as error:
            raise ValueError(f"device={device!r} is not a torch device such as 'cpu' or 'cuda:0'") from error
        if kind == "cuda" and not torch.cuda.is_available():
            raise ValueError(f"device={device!r}: this torch sees no CUDA device; choose cpu or auto")
        return device
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _dtype(dtype: str, device: str, is_bundled: bool) -> torch.dtype:
    if dtype == "auto":
        return torch.float32 if is_bundled or not device.startswith("cuda") else torch.bfloat16
    if dtype not in DTYPES:
        raise ValueError(f"dtype={dtype!r} is unknown; choose auto, {', '.join(DTYPES)}")
    return DTYPES[dtype]


def _quantization(quantization: str, compute_dtype: torch.dtype):
    if quantization not in QUANTIZATIONS:
        raise ValueError(f"quantization={quantization!r} is unknown; choose {' or '.join(QUANTIZATIONS)}")
    from transformers import BitsAndBytesConfig

    if quantization == "8bit":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=compute_dtype)


def _refuse_unsupported(name: str, config: PreTrainedConfig) -> None:
    text_config = config.get_text_config()
    if getattr(text_config, "alibi", False) or text_config.model_type in ("bloom", "mpt"):
        raise UnsupportedModelError(
            f"model {name} uses ALiBi, whose distances follow the order of the cache; "
            "the packed tree keeps many texts in one cache and cannot run it"
        )


def _length_limits(config: PreTrainedConfig) -> dict[str, int]:
    """The longest text each mechanism of the model sees whole, in tokens."""
    limits = {}
    layer_types = getattr(config, "layer_types", None)
    if (window := getattr(config, "sliding_window", None)) and "sliding_attention" in (
        layer_types or ["sliding_attention"]
    ):
        limits["sliding window"] = window
    if (chunk := getattr(config, "attention_chunk_size", None)) and "chunked_attention" in (layer_types or []):
        limits["attention chunk"] = chunk
    if positions := getattr(config, "max_position_embeddings", None):
        limits["number of positions"] = positions
    return limits


def _checked_packing_error(name: str, network: PreTrainedModel) -> float:
    """One packed step against plain forward passes; a model that fails it would give wrong numbers silently."""
    try:
        error = largest_packing_error(network)
    except (TypeError, ValueError, RuntimeError, AttributeError, NotImplementedError) as failure:
        raise UnsupportedModelError(
            f"model {name} ({type(network).__name__}) cannot run one packed step: {failure}"
        ) from failure
    tolerance = PACKING_TOLERANCE[network.dtype]
    if error > tolerance:
        raise UnsupportedModelError(
            f"model {name} ({type(network).__name__}) gives log-probabilities {error:.3g} nats off on a packed "
            f"step (at most {tolerance:g} is rounding): it ignores the 4-D attention mask or the position ids"
        )
    if error > tolerance / 10:
        warnings.warn(f"model {name}: a packed step is off by {error:.3g} nats", RuntimeWarning, stacklevel=3)
    return error
