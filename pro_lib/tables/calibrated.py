"""The probability that an answer is right, learned from answers known to be; knows runs and PRO, asks no model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pro_lib import imports, runs, scores, selective, storage
from pro_lib.evaluation import Evaluation, evaluate
from pro_lib.runs import Run
from pro_lib.selective import Calibration

# What must be the same of a run for its PRO to say anything of another's; how far down a search looked need not be.
_MATTERS = ("chat", "diversity_penalty", "dtype", "fingerprint", "header", "max_new_tokens", "n_answers", "shots")
_MATTERS += ("stop", "strategy", "temperature", "template", "top_p")


@dataclass(frozen=True)
class Calibrated:
    """PRO at `alpha` as a probability of being right: fitted on some questions of a run, checked on its others.

    Calibrated is not guaranteed: what it is worth on the questions that did not enter the fit is `ece`, and on other
    questions than the run's it is worth what these have in common.
    """

    run: Run
    alpha: float
    n_fitted: int
    n_checked: int
    checked: Calibration

    def probability(self, uncertainty: float) -> float:
        """The probability that an answer of this PRO (nats) is right; NaN of NaN."""
        return float(self.checked.fit([uncertainty])[0]) if uncertainty == uncertainty else np.nan

    def sentence(self) -> str:
        """What it was fitted on, and how far it is off elsewhere."""
        fitted = f"calibrated on {self.n_fitted:,} questions of {self.run.info.dataset}"
        return f"{fitted}, error {self.checked.ece:.3f} on {self.n_checked:,} others"

    def check(self, parameters: Mapping[str, object], alpha: float) -> None:
        """Raise `ValueError` if answers made with these parameters, or scored at another α, are not the run's kind."""
        ours, theirs = ({name: of.get(name) for name in _MATTERS} for of in (self.run.info.parameters, parameters))
        differs = storage.difference(ours, theirs)
        if differs or alpha != self.alpha:
            differs = differs or f"alpha={self.alpha:g}, now alpha={alpha:g}"
            raise ValueError(f"calibration: run {self.run.name} was made with {differs}")


def calibrated(run: Run | str | Path, *, alpha: float = 0.4) -> Calibrated:
    """Fit on the validation questions of a run, or on a half of them where there is no such split; check on the others.

    `run` is one, or its folder. Raises `RunError` for one without right answers known, `OneClassError` where all are
    right, or all wrong, and `ValueError` as `scores.pro` does.
    """
    run = run if isinstance(run, Run) else runs.read(run)
    if "validation" not in set(run.questions["split"]):
        run = replace(run, questions=run.questions.assign(split=None))  # so that one is drawn
    both = imports.split_records(run, n_validation=None)
    fitted, others = evaluate(both, split="validation"), evaluate(both, split="test")

    def pro(judged: Evaluation) -> np.ndarray:
        return scores.pro(judged.log_probs, alpha=alpha, search_alpha=run.search_alpha)

    checked = selective.calibration(pro(fitted), fitted.correct, pro(others), others.correct)
    return Calibrated(run, alpha, len(fitted.correct), len(others.correct), checked)
