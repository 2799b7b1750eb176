"""The parameters that notebooks share, each declared once and checked when they are put together; computes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pro_lib import evaluation, semantic
from pro_lib import questions as question_sets
from pro_lib.base import bundled, checks
from pro_lib.decoding.strategies import STRATEGIES

# A comparison of methods needs beams for PRO, NLL, ALL, PE, SE and SD, and samples for PE-MC, NE and Deg.
BEAMS, SAMPLES, EXACT, GREEDY = "diverse_beam", "multinomial", "threshold", "greedy"


def listed(names: str | Sequence[str]) -> list[str]:
    """One name or several, always as a list."""
    return [names] if isinstance(names, str) else list(names)


def _is_names(value: str | Sequence[str]) -> bool:
    return bool(value) and all(isinstance(name, str) and name for name in listed(value))


Columns = checks.rule(int, lambda value: value in (1, 2), "must be 1 or 2, the columns of a paper that a figure spans")
Names = checks.rule((str, list, tuple), _is_names, "must be a name or a list of names")


@checks.checked
class Parameters:
    """The parameters that notebooks share, checked when they are put together.

    Folders that are None are `data/generations` and `figures` of the repository. `quantization`, `device_map` and
    `trust_remote_code` are as in `models.load`, `chat`, `engine` and `n_workers` as in `generate`, and what decides the
    answers as in `decoding.strategies`.

    Raises:
        ValueError: one sentence naming the parameter, its value and what it may be.
    """

    model: Names = "facts-2m"
    dataset: Names = "world-facts"
    split: str = "test"
    strategy: checks.choice(*STRATEGIES) = BEAMS
    alpha: checks.Probability = 0.4
    search_alpha: checks.PositiveShare = 0.02
    n_answers: checks.PositiveInt = 10
    limit: checks.PositiveInt | None = None
    fraction: checks.PositiveShare | None = None
    n_shots: checks.WholeNumber | None = None
    n_validation: checks.PositiveInt | None = 100
    seed: checks.WholeNumber = 0
    batch_size: checks.PositiveInt | None = None
    device: str = "auto"
    dtype: str = "auto"
    quantization: checks.Quantization | None = None
    device_map: str | None = None
    trust_remote_code: checks.Flag = False
    chat: checks.Flag = False
    engine: checks.Engine = "local"
    n_workers: checks.PositiveInt | None = None
    similarity: Names = "lexical"
    """What decides whether answers mean the same: names of `semantic.SIMILARITIES`, or an NLI model's folder or hub id;
    several are compared."""
    correctness: str = "rouge_l"
    """What makes an answer right: a name of `evaluation.CORRECTNESS`, or a file of labels for `read_labels`."""
    records: str | None = None
    generations_dir: str | Path | None = None
    figures_dir: str | Path | None = None
    columns: Columns = 2
    """The columns of a paper that a figure spans, 1 or 2."""
    reported: checks.Flag = False
    """The parameters are for a report on `split`, so that it may not be `validation`, where α is chosen."""

    def __post_init__(self) -> None:
        # Notebooks run in folders of their own, so a default must not depend on where that is.
        for name, folder in (("generations_dir", "data/generations"), ("figures_dir", "figures")):
            object.__setattr__(self, name, Path(getattr(self, name) or bundled.ROOT / folder))
        if self.reported and self.split == "validation":
            raise ValueError("split='validation' is where alpha is chosen; report on another split")
        for name in listed(self.similarity):
            if not (name in semantic.SIMILARITIES or Path(name).is_dir() or "/" in name):
                known = ", ".join(semantic.SIMILARITIES)
                raise ValueError(f"similarity={name!r} is neither {known}, nor an NLI model's folder or hub id")
        if self.correctness not in evaluation.CORRECTNESS and not Path(self.correctness).is_file():
            known = ", ".join(evaluation.CORRECTNESS)
            raise ValueError(f"correctness={self.correctness!r} is neither {known}, nor a file of labels")
        if self.records is None:
            self._check_asked()
        elif not Path(self.records).is_file():
            raise ValueError(f"records={self.records!r} is not a file")

    def _check_asked(self) -> None:
        """What only matters where a model is asked."""
        if self.split not in question_sets.SPLITS:
            raise ValueError(f"split={self.split!r} is unknown; choose {', '.join(question_sets.SPLITS)}")
        if self.strategy == EXACT and self.alpha < self.search_alpha:
            raise ValueError(f"alpha={self.alpha!r} is below search_alpha={self.search_alpha!r}: not searched so far")
        for model in self.models:
            bundled.check_model(model)
        for dataset in self.datasets:
            if dataset not in question_sets.NAMES and not Path(dataset).exists():
                known = ", ".join(question_sets.NAMES)
                raise ValueError(f"dataset={dataset!r} is neither {known}, nor a file or folder")

    @property
    def models(self) -> list[str]:
        """The models, always a list."""
        return listed(self.model)

    @property
    def datasets(self) -> list[str]:
        """The datasets, always a list."""
        return listed(self.dataset)
