"""What to install where a package of an extra is missing; knows what transformers takes to place weights, no other."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


@contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """What is imported within is of the extra of this name; an `ImportError` says what lacks it, and what to type."""
    try:
        yield
    except ModuleNotFoundError as error:
        lacking = (error.name or str(error)).partition(".")[0]
        raise ImportError(f"{what} needs {lacking}: pip install 'pro-workbench[{name}]'", name=lacking) from error


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
