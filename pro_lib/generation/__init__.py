"""Models and decoding: from a model and questions to a run. Only this package needs torch."""

from typing import TYPE_CHECKING

from pro_lib.common.lazy import load_lazily

if TYPE_CHECKING:
    from pro_lib.generation.generate import generate
    from pro_lib.generation.models import Model, UnsupportedModelError, load
    from pro_lib.generation.server import connect
    from pro_lib.generation.transformers_generate import diverse_beam_generate, exact_generate

__all__ = [
    "Model",
    "UnsupportedModelError",
    "connect",
    "diverse_beam_generate",
    "exact_generate",
    "generate",
    "load",
]

load_lazily(
    __name__,
    {
        "generate": ["generate"],
        "models": ["Model", "UnsupportedModelError", "load"],
        "server": ["connect"],
        "transformers_generate": ["diverse_beam_generate", "exact_generate"],
    },
)
