"""Write `answers.jsonl`, the example of `pro score`, from a run on world-facts.

    python data/examples/make.py data/generations/world-facts/smollm2-135m/diverse_beam

The questions are chosen by accuracy alone: all test questions of the relations in which the model
answers between 20 and 80 % of the validation questions correctly. In the other relations, nearly
all answers are right or nearly all are wrong, so that little is left to tell apart. Repeated texts
are left out.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from pro_lib import evaluation, runs

OUTPUT = Path(__file__).with_name("answers.jsonl")
LOWEST_ACCURACY = 0.2
HIGHEST_ACCURACY = 0.8
DIGITS = 4  # of a log-probability


def chosen_relations(run: runs.Run) -> set[str]:
    """Return the relations with an accuracy from 20 to 80 % on the validation questions."""
    judged = evaluation.evaluate(run, split="validation")
    relations = run.questions.set_index("question_id")["relation"]
    accuracy = (
        pd.Series(judged.correct)
        .groupby(judged.answers["question_id"].map(relations).to_numpy())
        .mean()
    )
    return set(accuracy.index[accuracy.between(LOWEST_ACCURACY, HIGHEST_ACCURACY)])


def record(question: dict, answers: pd.DataFrame) -> dict:
    """Return a question with its finished answers in the format of records."""
    return {
        "question_id": question["question_id"],
        "question": question["question"],
        "relation": question["relation"],
        "references": list(question["references"]),
        "answers": [
            {"text": answer.text, "log_prob": round(answer.value, DIGITS)}
            for answer in answers.itertuples()
        ],
    }


def main(folder: str) -> None:
    """Write the questions in random order, so that the first ones are not of one relation."""
    run = runs.read_run(folder)
    relations = chosen_relations(run)
    questions = run.questions[
        (run.questions["split"] == "test") & run.questions["relation"].isin(relations)
    ]
    order = np.random.default_rng(0).permutation(len(questions))
    answers = run.ranked_answers().drop_duplicates(["question_id", "text"])
    answers_by_question = answers.groupby("question_id")
    records = [
        record(question, answers_by_question.get_group(question["question_id"]))
        for question in questions.iloc[order].to_dict("records")
    ]
    records[0] = {"model": run.info.model, "dataset": run.info.dataset, **records[0]}
    lines = [json.dumps(entry, ensure_ascii=False) for entry in records]
    OUTPUT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{OUTPUT}: {len(records)} questions of {len(relations)} relations")


if __name__ == "__main__":
    main(sys.argv[1])
