"""Question sets, by name or from a file, and the prompts that are made of them."""

from pro_lib.questions.question_files import read_questions
from pro_lib.questions.question_sets import QuestionSet, as_set, empty_question_set, load_questions

__all__ = [
    "QuestionSet",
    "as_set",
    "empty_question_set",
    "load_questions",
    "read_questions",
]
