"""Models and decoding: from a model and questions to a run. Only this package needs torch."""

from typing import TYPE_CHECKING

from pro_lib.common.lazy import load_lazily

if TYPE_CHECKING:
    from pro_lib.generation.generate import generate
    from pro_lib.generation.models import Model, UnsupportedModelError, load_model
    from pro_lib.generation.server import connect_server
    from pro_lib.generation.transformers_generate import diverse_beam_generate, exact_generate

__all__ = [
    "Model",
    "UnsupportedModelError",
    "connect_server",
    "diverse_beam_generate",
    "exact_generate",
    "generate",
    "load_model",
]

load_lazily(
    __name__,
    {
        "generate": ["generate"],
        "models": ["Model", "UnsupportedModelError", "load_model"],
        "server": ["connect_server"],
        "transformers_generate": ["diverse_beam_generate", "exact_generate"],
    },
)
