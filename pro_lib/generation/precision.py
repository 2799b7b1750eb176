"""The device and the precision of a model that the user does not choose.

This module does not need torch to be installed, so that a stored run can be read without it.
"""

from contextlib import suppress
from pathlib import Path

from pro_lib.common.catalog import is_bundled


def best_device() -> str:
    """Return the type of the fastest device of this machine; `cpu` if torch is not installed."""
    with suppress(ImportError):
        import torch

        if torch.cuda.is_available():
            return "cuda"
        if torch.backends.mps.is_available():
            return "mps"
    return "cpu"


def resolved_dtype(model: str | Path, *, dtype: str, device: str) -> str:
    """Return the precision in which `load_model` loads a model.

    Args:
        model: the name of the model.
        dtype: `auto` for bfloat16 on CUDA and float32 elsewhere and for bundled models, or a
            precision, which is returned.
        device: `auto` for the best device, or a device of torch.
    """
    if dtype != "auto":
        return dtype
    if is_bundled(model):
        return "float32"
    device = best_device() if device == "auto" else device
    return "bfloat16" if device.startswith("cuda") else "float32"
