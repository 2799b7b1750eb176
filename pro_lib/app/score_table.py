"""The table of `pro score`: its scores, and its CSV file."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pro_lib.common.files import spreadsheet_text

if TYPE_CHECKING:
    import pandas as pd

    from pro_lib.runs.run import Run

_QUESTION_COLUMNS = ["question_id", "question", "text"]
_PROBABILITY_SCORES = ["pro", "nll", "n_kept", "mass"]
_TEXT_SCORES = ["SC", "Deg", "SE"]
# Headers of the tables that are written, by which the command recognizes its own files.
_HEADERS = (
    [*_QUESTION_COLUMNS, *_PROBABILITY_SCORES],
    [*_QUESTION_COLUMNS, *_TEXT_SCORES],
    [*_QUESTION_COLUMNS, *_PROBABILITY_SCORES, *_TEXT_SCORES],
)


@dataclass(frozen=True)
class ScoreTable:
    """The scores of a run's answers.

    Attributes:
        run: the run.
        alpha: α of PRO.
        rows: a row per question. If the run has log-probabilities, PRO, NLL, K and the mass of the
            answers kept; if some questions have texts alone, SC, Deg and SE too.
        n_texts_alone: how many questions have texts alone, in a run with log-probabilities.
    """

    run: Run
    alpha: float
    rows: pd.DataFrame
    n_texts_alone: int

    def runs(self) -> list[Run]:
        """Return the run, and its texts as a second run if some questions have texts alone."""
        return [self.run, self.run.as_texts()] if self.n_texts_alone else [self.run]


def score_table(run: Run, *, alpha: float) -> ScoreTable:
    """Compute the scores of a run's answers.

    Args:
        run: a run, with log-probabilities or texts.
        alpha: PRO keeps answers with p ≥ α.
    """
    from pro_lib import evaluation

    if run.is_texts:
        return ScoreTable(run, alpha, evaluation.text_scores(run), n_texts_alone=0)
    rows = run.scores(alpha=alpha)
    n_texts_alone = int((rows["text"].notna() & rows["nll"].isna()).sum())
    if n_texts_alone:
        text_scores = evaluation.text_scores(run.as_texts())
        rows = rows.join(text_scores[_TEXT_SCORES])
    return ScoreTable(run, alpha, rows, n_texts_alone)


def csv_text(table: pd.DataFrame, *, raw_text: bool) -> str:
    """Return a table as CSV.

    Args:
        table: the table.
        raw_text: whether texts are written as they are. Otherwise a text that a spreadsheet would
            read as a formula begins with ``'``.
    """
    if not raw_text:
        table = table.map(lambda cell: spreadsheet_text(cell) if isinstance(cell, str) else cell)
    text = table.to_csv(index=False)
    if "\r" in text:
        # Python's csv module does not quote a carriage return, which readers take for a row's end.
        return table.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC)
    return text


def is_score_table(path: Path) -> bool:
    """Return whether a CSV file begins as the tables that `pro score` writes."""
    with open(path, encoding="utf-8", newline="") as file:
        first_line = file.readline(1000)
    return next(csv.reader([first_line]), []) in _HEADERS
