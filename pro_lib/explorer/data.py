"""A run as data that a browser can draw, rounded nowhere; knows runs and what is right, no widget and no page.

The page computes PRO, K and AUROC itself (`explorer.js`), from the log-probabilities and the log α given here.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from pro_lib import bundled, correctness, sweeps
from pro_lib.evaluation import Choices, evaluate, rouge_and_correct
from pro_lib.parts import CERTIFICATE_COLUMNS, RunInfo
from pro_lib.runs import Run
from pro_lib.same import identities
from pro_lib.similarities import Lexical

_SLIDER = np.arange(1, 101) / 100
_SAID = ("exposure", "conflict", "note")  # what a dataset may add to its questions
_CERTIFICATE = [name for name in CERTIFICATE_COLUMNS if not name.startswith("tree_") or name == "tree_bound"]


def alpha_values(search_alpha: float | None, *, alpha: float) -> np.ndarray:
    """The slider's α: those that sweeps draw, 0.01 … 1, and `alpha`; none below the α of a search."""
    grid = sweeps.alpha_grid(search_alpha, of=sweeps.DRAWN_ALPHAS)
    alphas = np.unique(np.round([*grid, *_SLIDER, alpha], 9))
    return alphas[alphas >= grid[0]]


def run_data(
    run: Run,
    *,
    alpha: float = 0.4,
    split: str = "all",
    label: str | None = None,
    cannot_ask: str | None = None,
) -> dict:
    """A run as one JSON-able object.

    Args:
        alpha: will be among the slider's, and is where it stands first.
        split: shown first, where the run has it.
        label: what the run is called in the list of runs; None for its name.
        cannot_ask: the sentence why its model cannot be asked; None where it can.

    Returns:
        alphas and log_alphas (None for -inf), `questions` (id, question, references, split, correct, what the dataset
        adds, certificate), and `answers`, for every question a list of
        [text, log-probability of the complete answer, identity (the same number for repeats), spelling (the same number
        for one normalised text), finished, correct], downwards, repeats included, those cut by length last. What is not
        known is None.
    """
    alphas, answers = alpha_values(run.search_alpha, alpha=alpha), _answers(run)
    slider = {"alphas": alphas.tolist(), "log_alphas": [float(np.log(value)) if value else None for value in alphas]}
    about = {"name": run.name, "label": label or run.name, "model": run.info.model, "cannot_ask": cannot_ask}
    about["has_texts"] = bool(run.questions["question"].notna().any() or run.answers["text"].notna().any())
    rows = zip(run.questions.to_dict("records"), answers, strict=True)
    questions = [_question(row, ranked) for row, ranked in rows]
    return slider | {"alpha": alpha, "split": split} | about | {"questions": questions, "answers": answers}


def _question(row: Mapping[str, object], answers: list[list]) -> dict:
    known = {name: _known(row[name]) for name in ("question", "split", *_SAID) if name in row}
    question = {name: value for name, value in known.items() if value is not None}
    question = {"id": row["question_id"], "question": f"question {row['question_id']}"} | question
    question["references"] = None if row["references"] is None else list(row["references"])
    question["correct"] = answers[0][5] if answers and answers[0][4] else None
    if "status" in row:
        question["certificate"] = {name: _known(row[name]) for name in _CERTIFICATE if name in row}
    return question


def _answers(run: Run) -> list[list[list]]:
    finished = run.ranked(distinct=False)
    row = pd.Index(run.questions["question_id"]).get_indexer(run.answers["question_id"])
    cut = run.answers.assign(row=row, value=run.answers["log_prob"])[~run.answers["finished"].to_numpy(bool)]
    correct = rouge_and_correct(finished, run.questions.iloc[finished["row"]].reset_index(drop=True))["correct"]
    columns = ["row", "token_ids", "text", "value", "mean", "finished", "correct"]
    parts = finished.assign(correct=correct)[columns], cut.assign(mean=np.nan, correct=None)[columns]
    table = pd.concat(parts, ignore_index=True)
    found: list[list[list]] = [[] for _ in range(len(run.questions))]
    numbers: list[dict] = [{} for _ in found]
    for key, answer in zip(identities(table), table.itertuples(), strict=True):
        known, rows, is_text = numbers[answer.row], found[answer.row], isinstance(answer.text, str)
        spelling = correctness.normalize(answer.text) if is_text else key
        same = [known.setdefault(each, len(known)) for each in (("answer", key), ("spelling", spelling))]
        text = answer.text if is_text else f"answer {len(rows) + 1}"
        rows.append([text, float(answer.value), *same, bool(answer.finished), _known(answer.correct)])
    return found


def _known(value: object) -> object:
    """A value as JSON knows it; None where it is missing."""
    return None if pd.isna(value) else value.item() if isinstance(value, np.generic) else value


def compared(run: Run, samples: Run | None = None, *, distinct: bool = True) -> dict:
    """Every method but PRO on the questions of a run, with lexical similarity: ids, texts, correct, scores, counts.

    `samples` is a run of samples of the same questions; what needs them is left out otherwise. Raises `RunError` where
    no answer can be judged.
    """
    alike = {"lexical": Lexical()}
    judged = evaluate(run, samples=samples, similarities=alike, choices=Choices(distinct=distinct))
    return {
        "distinct": distinct,
        "ids": list(judged.answers["question_id"]),
        "texts": [_known(text) for text in judged.answers["text"]],
        "correct": judged.correct.tolist(),
        "scores": {name: judged.baselines[name].tolist() for name in judged.baselines},
        "counts": judged.exclusions.sentence(),
    }


def appendix_run() -> Run:
    """The three questions of the paper's appendix as a run; what the paper prints of each is its `note`."""
    table, printed = bundled.paper("appendix_examples"), bundled.paper("appendix_scores")
    table = table.loc[table.index.repeat(table["count"])].reset_index(drop=True)
    answers = pd.DataFrame({"question_id": table["question"], "rank": table.groupby("question").cumcount()})
    answers = answers.assign(text=table["answer"], token_ids=None, token_log_probs=None)
    answers = answers.assign(log_prob=np.log(table["probability"]), end_log_prob=np.nan, finished=True)
    asked = table.drop_duplicates("question", ignore_index=True)
    printed = printed[printed["selection"] == "adaptive"].set_index("question").loc[asked["question"]]
    says = (f"The paper prints PRO = {at.pro:g} at α = {at.alpha:g}, repeats counted." for at in printed.itertuples())
    questions = pd.DataFrame({"question_id": asked["question"], "question": asked["question"]})
    questions = questions.assign(references=[[truth] for truth in asked["truth"]], split=None, note=list(says))
    return Run(answers, questions, RunInfo("nq", "Gemma-7B", "the paper's appendix"))


def stored_runs(generations_dir: str | Path) -> dict[str, Path]:
    """The run folders below a folder, by their path from there."""
    found = sorted(Path(generations_dir).rglob("run.json"))
    return {path.parent.relative_to(generations_dir).as_posix(): path.parent for path in found}
