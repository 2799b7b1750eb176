"""Values other than the defaults for every parameter of `Experiment`, and files for them."""

import math

from commands import record, write_lines

from pro_lib.app.parameters import help_texts

PARAMETERS = list(help_texts())
# Parameters that `Experiment` hands to the cells of notebooks and does not use itself.
FOR_CELLS = ("alpha", "target", "confidence", "figure_columns", "alpha_scale")
STRATEGIES = ("greedy", "multinomial", "diverse_beam", "threshold")
OTHER = {
    "model": "facts-2m",
    "dataset": "world-facts-reworded",
    "split": "validation",
    "strategy": "multinomial",
    "protocol": "workbench",
    "distinct": True,
    "convention": "answer_tokens",
    "alphas": [0.0],
    "alpha": 0.3,
    "target": [0.9],
    "confidence": 0.9,
    "search_alpha": 0.1,
    "n_answers": 2,
    "temperature": 0.7,
    "top_p": 0.5,
    "diversity_penalty": 0.1,
    "max_new_tokens": 16,
    "stop": ["a"],
    "limit": 7,
    "n_shots": 2,
    "header": "Answer.\n",
    "template": "Q: {question}\nA:",
    "n_validation": 5,
    "seed": 1,
    "batch_size": 3,
    "device": "cpu:0",
    "dtype": "bfloat16",
    "loading": {"attn_implementation": "eager"},
    "chat": True,
    "engine": "ray",
    "n_workers": 2,
    "similarity": "alias",
    "methods": "P(True)",
    "correctness": "exact_match",
    "figure_columns": 1,
    "alpha_scale": "linear",
}
# Parameters whose value is a file or folder that a test writes, or that are about such a file.
OF_FILES = ("records", "generations_dir", "figures_dir", "columns", "strict")


def four_answers(number, split):
    """Return a record of known references with four answers, the first of them twice."""
    texts = ["Quito", "Quito", "Lima", "Sucre"]
    answers = []
    for rank, text in enumerate(texts):
        log_prob = -0.9 - 0.01 * number - 0.7 * max(rank - 1, 0)
        # The more probable answer has the less probable ending, so the two conventions differ.
        answers.append(
            {"text": text, "token_log_probs": [log_prob], "end_log_prob": -0.1 / (1 + number % 4)}
        )
    # Every third answer is wrong, and every third right by ROUGE-L but no exact match.
    reference = ["Lima Sucre", "Quito city", "Quito"][number % 3]
    return record(number, *answers, references=[reference], split=split)


def write_records(path, n_questions=40, splits=("validation", "test")):
    """Write records that are in turn of these splits."""
    numbers = range(n_questions)
    return write_lines(path, [four_answers(n, splits[n % len(splits)]) for n in numbers])


def write_questions(path, n_questions=40):
    """Write the questions of `write_records` with other references and no splits."""
    rows = [record(n, references=["Sucre" if n % 5 else "Quito"]) for n in range(n_questions)]
    return write_lines(path, rows)


def total(log_probs):
    """The sum of a matrix of log-probabilities, as a number that tells matrices apart."""
    return round(sum(value for row in log_probs for value in row if not math.isnan(value)), 9)


def write_files(folder):
    """Write records with and without splits, and a file of their questions; return the folder."""
    write_records(folder / "split.jsonl")
    write_records(folder / "unsplit.jsonl", splits=(None,))
    write_questions(folder / "questions.jsonl")
    return folder


def other_value(name, kind, files, folder):
    """Another value of a parameter, for a strategy or for records."""
    if name == "columns":
        return {"question": "question"}
    if name == "strict":
        return True
    if name == "records":
        return str(files / "unsplit.jsonl")
    if name == "dataset" and kind == "records":
        return str(files / "questions.jsonl")
    if name == "model" and kind == "records":
        return "facts-1m"
    if name == "strategy" and kind == "multinomial":
        return "greedy"
    return folder / "other" if name in OF_FILES else OTHER[name]
