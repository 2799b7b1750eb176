"""The columns in which the question files of known datasets have questions and right answers."""

import re
from dataclasses import dataclass


def plain_name(name: str) -> str:
    """Return a column's name in lower case with underscores.

    Example:
        >>> plain_name("Best Answer"), plain_name("bestAnswer")
        ('best_answer', 'best_answer')
    """
    stripped_name = name.strip().strip("\ufeff")
    separated = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", stripped_name)
    return re.sub(r"[\s_-]+", "_", separated).casefold()


# Usual names of columns, as `plain_name` writes them, in order of preference.
QUESTION_NAMES = (
    "question",
    "query",
    "prompt",
    "input",
    "problem",
    "question_text",
    "question_stem",
    "utterance",
    "user_input",
)
ID_NAMES = ("question_id", "id", "qid", "_id", "q_id", "interaction_id", "record_id")
# What a user can say about a file: the column of each field, and the separator of references.
COLUMN_NAMES = ("question_id", "question", "references", "split", "choices", "separator")


@dataclass(frozen=True)
class QuestionFormat:
    """The columns of a dataset.

    Attributes:
        datasets: the names of the datasets.
        references: the columns with the right answers. The first one must exist, and the others
            are read with it if they exist.
        choices: the columns with the choices that `references` names: one column with all of
            them, or one column for each.
        first: the index of the first choice.
        question: the column with the question if its name is not a usual one.
        separator: the text between several references in one text.
    """

    datasets: str
    references: tuple[str, ...]
    choices: tuple[str, ...] = ()
    first: int = 0
    question: str = ""
    separator: str | None = None


def _row(datasets: str, references: str, choices: str = "", **fields: object) -> QuestionFormat:
    """Return a row of the table from names of columns that are separated by spaces."""
    return QuestionFormat(datasets, tuple(references.split()), tuple(choices.split()), **fields)  # type: ignore[arg-type]


# Usual names of the column with right answers.
_OTHER_NAMES = (
    "reference",
    "target",
    "targets",
    "gold",
    "expected",
    "golden_answers",
    "gold_answers",
    "gold_answer",
    "ground_truths",
    "ground_truth",
    "reference_answer",
    "expected_answer",
    "target_value",
)
# Columns that name one of several choices.
_KEYS = ("answer_key", "answer_idx", "answer", "correct", "label", "correct_index", "answer_index")
# The first format that fits a file is used.
FORMATS: tuple[QuestionFormat, ...] = (
    _row("the workbench", "references"),
    *(
        _row("ARC, CommonsenseQA, OpenBookQA, QASC, MedQA, MMLU, RACE, AQuA", key, choices)
        for key in _KEYS
        for choices in ("choices", "options", "option_a option_b option_c option_d option_e")
    ),
    _row("MMLU as CSV", "answer", "a b c d e"),
    _row("choices in columns", "answer_key", "a b c d e"),
    _row("HellaSwag", "label", "endings", question="ctx"),
    _row("MedMCQA", "cop", "opa opb opc opd"),
    _row("SocialIQA", "label", "answer_a answer_b answer_c", first=1),
    _row("CosmosQA", "label", "answer0 answer1 answer2 answer3"),
    _row("PIQA", "label", "sol1 sol2", question="goal"),
    _row("WinoGrande", "answer", "option1 option2", first=1, question="sentence"),
    _row(
        "TriviaQA, NQ-open, SQuAD, HotpotQA, GSM8K, SimpleQA, MuSiQue, CRAG",
        "answer aliases answer_aliases alt_ans",
    ),
    _row("SQuAD, WebQuestions", "answers"),
    _row("TruthfulQA", "best_answer correct_answers", separator=";"),
    _row("GPQA, SciQ", "correct_answer"),
    _row("FreshQA", " ".join(f"answer_{n}" for n in range(10))),
    _row("PopQA", "possible_answers"),
    _row("DROP", "answers_spans"),
    _row("TruthfulQA", "mc1_targets"),
    _row("OpenAI's evals", "ideal"),
    *(_row("other files", name) for name in _OTHER_NAMES),
)
KNOWN_NAMES = frozenset(
    name
    for each in FORMATS
    for name in (*each.references, *each.choices, each.question, *QUESTION_NAMES, *ID_NAMES)
) - {""}
