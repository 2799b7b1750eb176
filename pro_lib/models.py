"""Loading a causal language model and its tokenizer, and finding the tokens that end an answer.

It knows weights, devices and token texts; it does not know questions, strategies or files of answers.
"""

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from jinja2 import TemplateError
from torch import Tensor
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel
from transformers import PreTrainedConfig as Config
from transformers import PreTrainedTokenizerBase as Tokenizer

from pro_lib import tokens
from pro_lib.bundled import bundled_models, check_model, fingerprint, paper_models
from pro_lib.checks import QUANTIZATIONS, Dtype, Quantization, SentenceError, checked, extra, one_line
from pro_lib.engine import Endings
from pro_lib.engine.fit import NOTABLE, Fit, PackingError, auto_class, check_config, fitted, fitted_to

_held: "tuple[tuple, Model] | None" = None


class UnsupportedModelError(SentenceError):
    """The model cannot say what follows a text, or not these texts."""


@checked
class _Options:
    dtype: Dtype
    quantization: Quantization | None


@dataclass(frozen=True)
class Model:
    """A loaded model: `network` in evaluation mode on `device`, its `tokenizer`, and how its answers end.

    `source` is its folder or hub id; `fingerprint` tells its files from those of another model of the same name;
    `fit` says which tree it is asked on, and how far a step of that was from plain forward passes; `ends` are the texts
    that end an answer.
    """

    name: str
    source: str
    fingerprint: str
    network: PreTrainedModel = field(repr=False)
    tokenizer: Tokenizer = field(repr=False)
    endings: Endings = field(repr=False)
    fit: Fit
    ends: tuple[str, ...] = tokens.NEWLINE

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
        return tokens.encode(self.tokenizer, text)

    def encode_chat(self, messages: Sequence[Mapping[str, str]], options: Mapping[str, object]) -> list[int]:
        """Token ids of a conversation in the model's chat template, up to where its answer begins.

        Raises:
            UnsupportedModelError: the tokenizer has no chat template, or it refuses the conversation or the options.
        """
        try:
            text = tokens.chat_text(self.tokenizer, messages, options)
        except (TemplateError, ValueError, TypeError) as error:
            message = f"model {self.name} has no chat template that takes the prompt; leave chat=True out ({error})"
            raise UnsupportedModelError(message) from error
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def decode(self, token_ids: Sequence[int]) -> str:
        """The answer's text: up to its first newline or stop, without special tokens or surrounding white space."""
        return tokens.answer_text(self.tokenizer, token_ids, self.ends)

    def with_stop(self, stop: Sequence[str]) -> "Model":
        """The same model, whose answers end at these texts as they do at a newline.

        Raises:
            ValueError: no token is one of the texts by itself, so that answers could pass it.
        """
        if not stop:
            return self
        known = {text for token in tokens.token_texts(self.tokenizer) for text in (token, token.strip())}
        for text in stop:
            if not text.strip() or text not in known:
                why = "is only white space" if not text.strip() else f"is no single token of {self.name}"
                raise ValueError(f"stop={text!r} {why}; a stop is a text that one token can hold")
        old, ends = self.endings, (*self.ends, *stop)
        kinds = tokens.endings(self.tokenizer, ends, size=len(old.stop))
        more, closing = (table.to(self.device) for table in _tables(kinds))
        stops = old.stop | more
        return replace(self, ends=ends, endings=Endings(stops, (old.closing | closing) & ~stops))

    def fit_for(self, n_tokens: int) -> Fit:
        """Which tree texts of up to `n_tokens` are asked on. Raises `UnsupportedModelError`: too long for any."""
        try:
            fit = fitted_to(self.network, self.fit, n_tokens)
        except PackingError as reason:
            raise UnsupportedModelError(f"model {self.name} {reason}") from reason
        if fit.plain and not self.fit.plain:
            warnings.warn(fit.notice(self.name), UserWarning, stacklevel=3)
        return fit


def load(
    name: str | Path,
    *,
    dtype: str = "auto",
    device: str = "auto",
    quantization: str | None = None,
    device_map: str | dict | None = None,
    trust_remote_code: bool = False,
) -> Model:
    """Load a model by bundled name (`facts-2m`, …), the paper's name (`Gemma-2B`, …), folder or hub id.

    Args:
        name: a folder in `data/models`, a name in `bundled.paper_models`, a folder anywhere, or a hub id.
        dtype: `auto` (bfloat16 on CUDA, float32 elsewhere and for bundled models), or a name in `checks.DTYPES`.
        device: `auto` (CUDA, then MPS, then CPU) or a torch device.
        quantization: None, `8bit` or `4bit` (needs the extra `quantization` and a CUDA device).
        device_map: given to transformers as it is, to spread a model over several devices.
        trust_remote_code: whether code that ships with a hub model may run here.

    Raises:
        FileNotFoundError: the folder holds no model, or a damaged one, or the name cannot be had from the hub.
        UnsupportedModelError: the architecture cannot say what follows a text (encoders, …), or weights are missing, or
            fewer than the tokenizer's tokens.
        ValueError: an unknown dtype, device or quantization, or a name that no model can have.
    """
    name, _ = str(name), _Options(dtype=dtype, quantization=quantization)
    source, device = _locate(name), find_device(device)
    if dtype == "auto":
        dtype = "bfloat16" if device.startswith("cuda") and name not in bundled_models() else "float32"
    weights, code = {"dtype": getattr(torch, dtype)}, {"trust_remote_code": trust_remote_code}
    weights |= placing(device, device_map=device_map, quantization=quantization, dtype=weights["dtype"])
    try:
        config = AutoConfig.from_pretrained(source, **code)
        check_config(config)
        tokenizer = AutoTokenizer.from_pretrained(source, **code)
        _check_size(name, config, Path(source), code)
        weights |= {"output_loading_info": True, "ignore_mismatched_sizes": True}  # so that both kinds are told here
        network, found = auto_class(config).from_pretrained(source, **weights, **code)
        network = (network if "device_map" in weights else network.to(device)).eval()
        if lacking := [*found["missing_keys"], *(key for key, *_ in found["mismatched_keys"])]:
            # Transformers would make them up at random.
            raise UnsupportedModelError(f"model {name} lacks weights, or has them in other shapes: {_named(lacking)}")
        fit, folder, size = fitted(network), Path(source), tokenizer.vocab_size
        vocabulary = (network.get_output_embeddings() or network.get_input_embeddings()).weight.shape[0]
        if size > vocabulary:  # special tokens added to a tokenizer, which may lie beyond, are not counted in this size
            raise UnsupportedModelError(f"model {name} has {vocabulary} tokens, its tokenizer {size}: another model's")
        endings = find_endings(tokenizer, network, vocabulary)
        identity = fingerprint(folder) if folder.is_dir() else str(getattr(config, "_commit_hash", None))
    except PackingError as reason:
        raise UnsupportedModelError(f"model {name} {reason}") from reason
    except (UnsupportedModelError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # whatever transformers, safetensors and their parsers make of damaged files
        said, _, more = str(error).strip().partition("\n")
        said += more if said.endswith(":") else ""
        if said.startswith("Unrecognized configuration class"):
            raise UnsupportedModelError(f"model {name} is no causal language model, but {config.model_type}") from error
        said = said if said and isinstance(error, OSError | ValueError) else f"{type(error).__name__}: {said}"
        where = "" if source == name else f" from {source}"
        raise FileNotFoundError(one_line(f"model {name!r} could not be loaded{where}: {said}")) from error
    if fit.error > NOTABLE[network.dtype]:
        warnings.warn(f"model {name}: a step is off by {fit.error:.3g} nats", RuntimeWarning, stacklevel=2)
    if fit.plain:
        warnings.warn(fit.notice(name), UserWarning, stacklevel=2)
    if unused := found["unexpected_keys"]:
        warnings.warn(f"model {name} has weights that are not used: {_named(unused)}", UserWarning, stacklevel=2)
    return Model(folder.name, source, identity, network, tokenizer, endings, fit)


def held(model: "str | Path | Model", **options: object) -> Model:
    """A loaded model as it is; or by name the last one loaded so, let go before another is, or its files anew."""
    global _held
    if isinstance(model, Model):
        return model
    source = Path(_locate(str(model)))
    asked = str(model), load.__kwdefaults__ | options, fingerprint(source) if source.is_dir() else None
    if _held is None or _held[0] != asked:
        _held = None
        _held = asked, load(model, **options)
    return _held[1]


def _check_size(name: str, config: Config, folder: Path, code: Mapping) -> None:
    """Refuse a configuration of far more weights than its files could hold, before memory is taken for them."""
    held = sum(path.stat().st_size for path in folder.glob("*") if path.suffix in (".safetensors", ".bin"))
    text = config.get_text_config()
    # A layer has more weights than this, and so many layers take long to be set up even without any.
    n_weights = getattr(text, "num_hidden_layers", 0) * getattr(text, "hidden_size", 0) ** 2
    if folder.is_dir() and n_weights <= 8 * held:
        with torch.device("meta"):
            n_weights = auto_class(config).from_config(config, **code).num_parameters()
    if folder.is_dir() and n_weights > 8 * held:  # not even a bit for each
        raise UnsupportedModelError(
            f"model {name}: config.json asks for {n_weights:,} weights, the files hold {held:,} bytes"
        )


def _named(keys: Collection[str]) -> str:
    first, *others = sorted(keys)
    return first + (f" and {len(others)} more" if others else "")


def find_endings(tokenizer: Tokenizer, network: PreTrainedModel, vocabulary: int) -> Endings:
    """The stop and closing tokens of a model with `vocabulary` outputs.

    A token stops an answer if it is an end of text, or if its text has a newline with nothing but white space
    before it; it closes the answer if there is text before the newline.
    """
    told = (network.config.get_text_config(), network.generation_config)
    stop, closing = _tables(tokens.endings(tokenizer, tokens.NEWLINE, *told, size=vocabulary))
    if not stop.any():
        raise UnsupportedModelError("the tokenizer has neither an end-of-text token nor a newline token")
    return Endings(stop.to(network.device), closing.to(network.device))


def _tables(kinds: Sequence[str | None]) -> tuple[Tensor, Tensor]:
    """Which tokens stop and which close an answer, each of shape `(vocabulary,)`."""
    stop, closing = (torch.tensor([kind == ending for kind in kinds]) for ending in ("stop", "closing"))
    return stop, closing


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


def placing(device: str, *, device_map: str | dict | None, quantization: str | None, dtype: Any) -> dict[str, Any]:
    """What transformers is told so that it spreads weights over devices or quantises them; nothing for one device.

    Raises `ImportError`, with the name of the extra, where it could not.
    """
    if quantization is None and device_map is None:
        return {}
    with extra(*(("quantization", "quantization") if quantization else ("multi-gpu", "device_map"))):
        for name in ("accelerate", "bitsandbytes")[: 2 if quantization else 1]:
            import_module(name)
    told: dict[str, Any] = {"device_map": device_map or device}
    if quantization:
        from transformers import BitsAndBytesConfig

        kind = {f"load_in_{quantization}": True, "bnb_4bit_compute_dtype": dtype}
        told["quantization_config"] = BitsAndBytesConfig(**kind)
    return told
