"""The interfaces for users: the command `pro`, single questions, experiments, the explorer."""

from typing import TYPE_CHECKING

from pro_lib.common.lazy import load_lazily

if TYPE_CHECKING:
    from pro_lib.app.ask import Answer, Answerer, NoAnswerError, Reply, answerer, ask
    from pro_lib.app.experiment import Experiment

__all__ = [
    "Answer",
    "Answerer",
    "Experiment",
    "NoAnswerError",
    "Reply",
    "answerer",
    "ask",
]

load_lazily(
    __name__,
    {
        "ask": ["Answer", "Answerer", "NoAnswerError", "Reply", "answerer", "ask"],
        "experiment": ["Experiment"],
    },
)
