"""Measure time and peak memory of reading, scoring and sweeping a large synthetic run.

    python benchmarks/large_run.py [--questions 100000]

The run folder is written part by part, as `generate` does. The steps are measured in a new process.
"""

import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
from measuring import parse_arguments

from pro_lib.runs import storage
from pro_lib.runs.storage import Cost, RunFolder, RunInfo, part_table

N_ANSWERS = 10
N_TOKENS = 6
PER_PART = 4096


def write(folder: Path, n_questions: int) -> None:
    """Write a run of `n_questions`, with ten answers of six tokens in order of probability."""
    rng = np.random.default_rng(0)
    ids = [f"q{number}" for number in range(n_questions)]
    table = {
        "question_id": ids,
        "question": "Who?",
        "references": [["answer 0"]] * n_questions,
        "split": "test",
    }
    with RunFolder(folder, RunInfo("large", "synthetic", "diverse_beam")) as run:
        questions = pd.DataFrame(table)
        for part, rows in run.missing(questions, per_part=PER_PART).items():
            n = len(rows)
            storage.write_part(
                run.path, part, run.info, part_table(rows, _answers(rng, n), [None] * n), Cost()
            )
        run.finish({}, questions, {})


def _answers(rng: np.random.Generator, n: int) -> list[list[dict]]:
    log_probs = np.log(
        rng.dirichlet(np.r_[np.full(N_ANSWERS, 0.3), 0.5], size=n)[:, :N_ANSWERS] + 1e-9
    )
    log_probs = -np.sort(-log_probs, axis=1)
    first_is_right = np.exp(log_probs[:, 0]) > rng.random(n)
    tokens = rng.integers(3, 30_000, size=(n, N_ANSWERS, N_TOKENS))

    def answer(row: int, rank: int, value: float) -> dict:
        text = "answer 0" if first_is_right[row] and rank == 0 else f"other{rank}"
        parts = {
            "token_ids": tokens[row, rank],
            "token_log_probs": np.full(N_TOKENS, value / N_TOKENS),
        }
        return {"text": text, **parts, "log_prob": value, "end_log_prob": 0.0, "finished": True}

    return [
        [answer(row, rank, value) for rank, value in enumerate(values)]
        for row, values in enumerate(log_probs)
    ]


def measure(folder: Path) -> pd.DataFrame:
    """Read, score, judge, sweep and test the run.

    Returns:
        Columns: step, seconds, peak_mib (of the process up to this step).
    """
    rows = []
    started = time.perf_counter()

    def done(step: str) -> None:
        nonlocal started
        seconds = time.perf_counter() - started
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        rows.append((step, seconds, peak))
        started = time.perf_counter()

    from pro_lib import evaluation, metrics, runs, scoring
    from pro_lib.plots.alpha_sweep import rows_at

    done("imports")
    run = runs.read_run(folder)
    done("read the folder")
    log_probs = run.log_probs()
    done("log-probabilities, repeats left out")
    uncertainties = pd.DataFrame(
        {"PRO": scoring.pro(log_probs, alpha=0.4), "NLL": scoring.nll(log_probs)}
    )
    uncertainties["PE"] = scoring.predictive_entropy(log_probs)
    done("PRO, NLL, PE")
    judged = evaluation.evaluate(run)
    done("judge one answer per question, ROUGE-L")
    rows_at(judged, np.linspace(0, 1, 101))
    done("sweep of 101 α")
    metrics.compare_aurocs(uncertainties, judged.correct)
    done("AUROC of three methods, DeLong")
    return pd.DataFrame(rows, columns=["step", "seconds", "peak_mib"])


def main(words: list[str] | None = None) -> None:
    """Write the folder, measure in a fresh process, print the table."""
    arguments = parse_arguments(__doc__, {"--questions": 100_000}, words)
    with (
        tempfile.TemporaryDirectory() as temporary,
        ProcessPoolExecutor(1, get_context("spawn")) as fresh,
    ):
        folder = Path(temporary) / "large" / "synthetic" / "diverse_beam"
        write(folder, arguments.questions)
        table = fresh.submit(measure, folder).result()
    print(table.round(1).to_string(index=False))


if __name__ == "__main__":
    main()
