"""Measure P(True), and a model as judge of its own answers, on the runs of a model.

    python benchmarks/self_evaluation.py --model smollm2-135m --dataset world-facts sciq.txt

The runs are those of `make figures-smollm2` and `make figures-gemma`, with at most 1,000 questions
of each split. A row of the table is a method on a question set, in the protocol in which each
answer counts once, or the judge on a question set. Replies of the model are kept, so that an
interrupted run continues.
"""

from pathlib import Path
from typing import Any

import pandas as pd
from measuring import parse_arguments

from pro_lib import Experiment, metrics
from pro_lib.evaluation.p_true import P_TRUE
from pro_lib.metrics.judge_model import JUDGE_THRESHOLD
from pro_lib.plots import benchmark

METHODS = [P_TRUE, "NLL", "PRO"]
COLUMNS = [
    "dataset",
    "model",
    "method",
    "n_questions",
    "accuracy",
    "auroc",
    "auroc_low",
    "auroc_high",
    "auroc_minus_pro",
    "auroc_minus_pro_low",
    "auroc_minus_pro_high",
    "significant",
    "n_refused",
    "agreement",
    "agreement_low",
    "agreement_high",
    "called_right",
]


def methods(experiment: Experiment) -> pd.DataFrame:
    """Return AUROC of P(True), NLL and PRO, a row per method and question set."""
    table = benchmark.table(experiment.splits("all"))
    is_shown = table["method"].isin(METHODS) & ~table["alpha_choice"].isin(["oracle", "default"])
    table = table[is_shown]
    return table.assign(accuracy=table["n_correct"] / table["n_questions"])


def judged(experiment: Experiment, dataset: str) -> dict[str, Any]:
    """Return how often the model as judge agrees with the table of aliases."""
    [pair] = [pair for pair in experiment.pairs() if pair[1] == dataset]
    evaluation = experiment.evaluations(*pair, "test", methods="all")[0][-1]
    answers = evaluation.answers
    questions = experiment.run(*pair).questions.set_index("question_id")
    asked = questions.loc[answers["question_id"]]
    references = [list(one) for one in asked["references"]]
    folder = experiment.generations_dir / evaluation.dataset / evaluation.model
    verdicts = metrics.judge(
        list(asked["question"]),
        references,
        list(answers["text"]),
        model=experiment.loaded(pair[0]),
        cache=folder / "judge.jsonl",
        progress=True,
    )
    is_judged = (verdicts["status"] == "judged").to_numpy()
    is_right = metrics.alias_match(list(answers["text"]), references)[is_judged]
    says_right = (verdicts["p_right"] >= JUDGE_THRESHOLD).to_numpy()[is_judged]
    n_agreed = int((is_right == says_right).sum())
    low, high = metrics.wilson(n_agreed / is_judged.sum(), is_judged.sum())
    return {
        "dataset": evaluation.dataset,
        "model": evaluation.model,
        "method": "judge",
        "n_questions": len(answers),
        "accuracy": is_right.mean(),
        "n_refused": int((~is_judged).sum()),
        "agreement": n_agreed / is_judged.sum(),
        "agreement_low": float(low),
        "agreement_high": float(high),
        "called_right": says_right.mean(),
    }


def main() -> None:
    """Write the table."""
    options = {"--model": "smollm2-135m", "--dataset": ["world-facts"], "--generations": Path}
    arguments = parse_arguments(__doc__, {**options, "--output": Path})
    experiment = Experiment(
        model=arguments.model,
        dataset=arguments.dataset,
        limit=1000,
        methods=P_TRUE,
        similarity=["lexical", "alias"],
        generations_dir=arguments.generations,
        protocol="workbench",
    )
    rows = [judged(experiment, dataset) for dataset in arguments.dataset]
    table = pd.concat([methods(experiment), pd.DataFrame(rows)])[COLUMNS]
    print(table.to_string(index=False))
    if arguments.output is None:
        return
    if arguments.output.exists():
        earlier = pd.read_csv(arguments.output)
        table = pd.concat([earlier[earlier["model"] != arguments.model], table])
    table.to_csv(arguments.output, index=False, float_format="%.6g")


if __name__ == "__main__":
    main()
