from . import (
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
from .app.experiment import Experiment
from .app.single_question import answerer, ask
from .generation.models import load_model
from .generation.run_generation import generate
from .generation.transformers_generate import diverse_beam_generate, exact_generate
from .importing.answer_files import import_answers
from .questions.question_sets import load_questions
from .runs.run import read_run

__version__: str
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
