"""The PRO workbench: uncertainty of the answers of language models, from their probabilities.

Packages and functions load on first use, so that scoring log-probabilities does not load torch.
"""

import importlib
import logging
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pro_lib import (
        app,
        common,
        evaluation,
        generation,
        importing,
        metrics,
        plots,
        questions,
        runs,
        scoring,
    )
    from pro_lib.app.ask import answerer, ask
    from pro_lib.app.experiment import Experiment
    from pro_lib.generation.generate import generate
    from pro_lib.generation.models import load_model
    from pro_lib.generation.transformers_generate import diverse_beam_generate, exact_generate
    from pro_lib.importing.importers import import_answers
    from pro_lib.questions.question_sets import load_questions
    from pro_lib.runs.run import read_run

# OpenMP threads wait for each other in busy loops. Short loops help if another process, such as a
# second notebook, uses the same cores: long ones made decoding ten times slower on two cores.
# The variable has an effect only if it is set before torch is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

logging.getLogger(__name__).addHandler(logging.NullHandler())
__version__ = "0.1.0"
__all__ = [
    "Experiment",
    "answerer",
    "app",
    "ask",
    "common",
    "diverse_beam_generate",
    "evaluation",
    "exact_generate",
    "generate",
    "generation",
    "import_answers",
    "importing",
    "load_model",
    "load_questions",
    "metrics",
    "plots",
    "questions",
    "read_run",
    "runs",
    "scoring",
]

_PACKAGES = {
    "app",
    "common",
    "evaluation",
    "generation",
    "importing",
    "metrics",
    "plots",
    "questions",
    "runs",
    "scoring",
}
# Public functions: the module and the name that each has there.
_NAMES = {
    "Experiment": ("pro_lib.app.experiment", "Experiment"),
    "answerer": ("pro_lib.app.ask", "answerer"),
    "ask": ("pro_lib.app.ask", "ask"),
    "diverse_beam_generate": ("pro_lib.generation.transformers_generate", "diverse_beam_generate"),
    "exact_generate": ("pro_lib.generation.transformers_generate", "exact_generate"),
    "generate": ("pro_lib.generation.generate", "generate"),
    "import_answers": ("pro_lib.importing.importers", "import_answers"),
    "load_model": ("pro_lib.generation.models", "load_model"),
    "load_questions": ("pro_lib.questions.question_sets", "load_questions"),
    "read_run": ("pro_lib.runs.run", "read_run"),
}


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _NAMES:
        module, attribute = _NAMES[name]
        return getattr(importlib.import_module(module), attribute)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
