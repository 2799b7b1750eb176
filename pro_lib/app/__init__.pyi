from .experiment import Experiment
from .single_question import Answer, Answerer, NoAnswerError, Reply, answerer, ask

__all__ = ["Answer", "Answerer", "Experiment", "NoAnswerError", "Reply", "answerer", "ask"]
