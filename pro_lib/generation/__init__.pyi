from .models import Model, UnsupportedModelError, load_model
from .run_generation import generate
from .server import connect_server
from .transformers_generate import diverse_beam_generate, exact_generate

__all__ = [
    "Model",
    "UnsupportedModelError",
    "connect_server",
    "diverse_beam_generate",
    "exact_generate",
    "generate",
    "load_model",
]
