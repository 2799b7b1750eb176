"""Runs: the answers to a question set with their log-probabilities, as tables and as folders."""

from pro_lib.runs.certificate import Certificate
from pro_lib.runs.run import Run, identities, most_probable_answers, read_run
from pro_lib.runs.storage import Cost, RunInfo

__all__ = [
    "Certificate",
    "Cost",
    "Run",
    "RunInfo",
    "identities",
    "most_probable_answers",
    "read_run",
]
