"""A run as data that a browser can draw, rounded nowhere; knows runs and what is right, no widget and no page.

The page computes PRO, K and AUROC itself (`explorer.js`), from the log-probabilities and the log α given here.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from pro_lib import bundled
from pro_lib.evaluation import DRAWN_ALPHAS, Choices, alpha_grid, evaluate, rouge_and_correct
from pro_lib.runs import Run, identities
from pro_lib.similarities import Lexical
from pro_lib.store import CERTIFICATE_COLUMNS, RunInfo

_OPTIONAL = ("question", "split", "exposure", "conflict", "note")  # what a question may have
_CERTIFICATE = [name for name in CERTIFICATE_COLUMNS if not name.startswith("tree_") or name == "tree_bound"]


def run_data(run: Run, *, alpha: float = 0.4) -> dict:
    """Return a run as one JSON-able object; what is missing is None.

    `alphas` are the slider's, `log_alphas` their logarithms (None for -inf). `questions` have id, question,
    references, split, correct and certificate. `answers` has a list for every question, downwards, those cut by
    length last: [text, log-probability of the complete answer, identity, finished, correct]. Repeats have the same
    identity, a number. The slider stands at `alpha` first.
    """
    alphas, answers = _alphas(run.search_alpha, alpha), _answers(run)
    questions = zip(run.questions.to_dict("records"), answers, strict=True)
    return {
        "name": run.name,
        "model": run.info.model,
        "alpha": alpha,
        "alphas": alphas.tolist(),
        "log_alphas": [float(np.log(value)) if value else None for value in alphas],
        "has_texts": bool(run.questions["question"].notna().any() or run.answers["text"].notna().any()),
        "questions": [_question(row, rows) for row, rows in questions],
        "answers": answers,
    }


def _alphas(search_alpha: float | None, alpha: float) -> np.ndarray:
    """The slider's α: those that sweeps draw, 0.01 … 1, and `alpha`; none below the α of a search."""
    grid = alpha_grid(search_alpha, of=DRAWN_ALPHAS)
    alphas = np.unique(np.round([*grid, *np.arange(1, 101) / 100, alpha], 9))
    return alphas[alphas >= grid[0]]


def _question(row: Mapping[str, object], answers: list[list]) -> dict:
    values = {name: _plain(row[name]) for name in _OPTIONAL if name in row}
    question = {"id": row["question_id"], "question": f"question {row['question_id']}"}
    question |= {name: value for name, value in values.items() if value is not None}
    question["references"] = None if row["references"] is None else list(row["references"])
    question["correct"] = answers[0][4] if answers and answers[0][3] else None
    if "status" in row:
        question["certificate"] = {name: _plain(row[name]) for name in _CERTIFICATE if name in row}
    return question


def _answers(run: Run) -> list[list[list]]:
    ended, numbers = run.ranked(distinct=False), pd.Index(run.questions["question_id"])
    correct = rouge_and_correct(ended, run.questions.iloc[ended["row"]].reset_index(drop=True))["correct"]
    cut = run.answers[~run.answers["finished"].to_numpy(bool)]
    cut = cut.assign(row=numbers.get_indexer(cut["question_id"]), value=cut["log_prob"], mean=np.nan, correct=None)
    columns = ["row", "token_ids", "text", "value", "mean", "finished", "correct"]
    table = pd.concat([ended.assign(correct=correct)[columns], cut[columns]], ignore_index=True)
    answers: list[list[list]] = [[] for _ in numbers]
    names: list[dict] = [{} for _ in numbers]
    for identity, answer in zip(identities(table), table.itertuples(), strict=True):
        rows, name = answers[answer.row], names[answer.row].setdefault(identity, len(names[answer.row]))
        text = answer.text if isinstance(answer.text, str) else f"answer {len(rows) + 1}"
        rows.append([text, float(answer.value), name, bool(answer.finished), _plain(answer.correct)])
    return answers


def _plain(value: object) -> object:
    """A value as JSON has it; None where it is missing."""
    return None if pd.isna(value) else value.item() if isinstance(value, np.generic) else value


def comparison(run: Run, samples: Run | None = None, *, distinct: bool = True) -> dict:
    """Return every method but PRO on the questions of a run: ids, texts, correct, scores, counts.

    `samples` is a run of samples of the same questions; methods that need them are left out otherwise. Raises
    `RunError` where no answer can be judged.
    """
    choices, similarities = Choices(distinct=distinct), {"lexical": Lexical()}
    judged = evaluate(run, samples=samples, similarities=similarities, choices=choices)
    return {
        "distinct": distinct,
        "ids": list(judged.answers["question_id"]),
        "texts": [_plain(text) for text in judged.answers["text"]],
        "correct": judged.correct.tolist(),
        "scores": {name: judged.baselines[name].tolist() for name in judged.baselines},
        "counts": judged.exclusions.sentence(),
    }


def appendix_run() -> Run:
    """Return the three questions of the paper's appendix as a run; what the paper prints of each is its `note`."""
    table, scores = bundled.paper("appendix_examples"), bundled.paper("appendix_scores")
    table = table.loc[table.index.repeat(table["count"])].reset_index(drop=True)
    answers = pd.DataFrame({"question_id": table["question"], "rank": table.groupby("question").cumcount()})
    answers = answers.assign(text=table["answer"], token_ids=None, token_log_probs=None)
    answers = answers.assign(log_prob=np.log(table["probability"]), end_log_prob=np.nan, finished=True)
    table = table.drop_duplicates("question", ignore_index=True)
    scores = scores[scores["selection"] == "adaptive"].set_index("question").loc[table["question"]]
    notes = [
        f"The paper prints PRO = {row.pro:g} at α = {row.alpha:g}, repeats counted." for row in scores.itertuples()
    ]
    questions = pd.DataFrame({"question_id": table["question"], "question": table["question"]})
    questions = questions.assign(references=[[truth] for truth in table["truth"]], split=None, note=notes)
    return Run(answers, questions, RunInfo("nq", "Gemma-7B", "the paper's appendix"))
