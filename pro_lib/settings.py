"""The parameters that notebooks share, checked, and the runs they ask for, generated where they are missing.

It knows names, folders and which runs a comparison needs; it does not know how a run is judged, scored or drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pro_lib import generations, qa
from pro_lib.generations import Run
from pro_lib.run_files import ROOT, STRATEGIES, bundled_models, fingerprint
from pro_lib.workbench import Judged, Searched, judge, searched, split_records

if TYPE_CHECKING:
    from pro_lib.models import Model

# A comparison of methods needs beams for PRO, NLL, ALL and PE, and samples for the Monte-Carlo forms.
BEAMS, SAMPLES, EXACT = "diverse_beam", "multinomial", "threshold"


_held: tuple[tuple[str, str, str], "Model"] | None = None


def _loaded(name: str, device: str, dtype: str) -> "Model":
    """The model, loaded unless it was the last one asked for; the one before is let go first."""
    global _held
    if _held is None or _held[0] != (name, device, dtype):
        from pro_lib import models

        _held = None
        _held = (name, device, dtype), models.load(name, device=device, dtype=dtype)
    return _held[1]


@dataclass(frozen=True)
class Settings:
    """The parameters that notebooks share, checked when they are put together.

    Folders that are None are `data/generations` and `figures` of the repository.

    Args:
        reported: the parameters are for a report on `split`, so that it may not be `validation`, where α is chosen.

    Raises:
        ValueError: one sentence naming the parameter, its value and what it may be.
    """

    model: str | Sequence[str] = "facts-2m"
    dataset: str | Sequence[str] = "world-facts"
    split: str = "test"
    strategy: str = BEAMS
    alpha: float = 0.4
    search_alpha: float = 0.02
    n_answers: int = 10
    limit: int | None = None
    n_validation: int | None = 100
    seed: int = 0
    batch_size: int | None = None
    device: str = "auto"
    dtype: str = "auto"
    records: str | None = None
    generations_dir: str | Path | None = None
    figures_dir: str | Path | None = None
    reported: bool = False

    def __post_init__(self):
        for name, folder in (("generations_dir", "data/generations"), ("figures_dir", "figures")):
            # Notebooks run in folders of their own, so a default must not depend on where that is.
            object.__setattr__(self, name, Path(getattr(self, name) or ROOT / folder))
        for name in ("model", "dataset"):
            if not self._list(name) or not all(isinstance(value, str) and value for value in self._list(name)):
                raise ValueError(f"{name}={getattr(self, name)!r} must be a name or a list of names")
        if self.split not in qa.SPLITS and self.records is None:
            raise ValueError(f"split={self.split!r} is unknown; choose {', '.join(qa.SPLITS)}")
        if self.reported and self.split == "validation":
            raise ValueError("split='validation' is where alpha is chosen; report on another split")
        if self.strategy not in STRATEGIES:
            raise ValueError(f"strategy={self.strategy!r} is unknown; choose {', '.join(STRATEGIES)}")
        if not isinstance(self.alpha, (int, float)) or isinstance(self.alpha, bool) or not 0 <= self.alpha <= 1:
            raise ValueError(f"alpha={self.alpha!r} must lie in [0, 1]")
        is_number = isinstance(self.search_alpha, (int, float)) and not isinstance(self.search_alpha, bool)
        if not is_number or not 0 < self.search_alpha <= 1:
            raise ValueError(f"search_alpha={self.search_alpha!r} must lie in (0, 1]")
        if self.strategy == EXACT and self.records is None and self.alpha < self.search_alpha:
            raise ValueError(f"alpha={self.alpha!r} is below search_alpha={self.search_alpha!r}: not searched so far")
        for name, may_be_none in (("n_answers", False), ("limit", True), ("n_validation", True), ("batch_size", True)):
            value = getattr(self, name)
            if (value is None and may_be_none) or (type(value) is int and value >= 1):
                continue
            raise ValueError(f"{name}={value!r} must be a positive whole number{' or None' if may_be_none else ''}")
        if type(self.seed) is not int or self.seed < 0:
            raise ValueError(f"seed={self.seed!r} must be a whole number of at least 0")
        if self.records is not None and not Path(self.records).is_file():
            raise ValueError(f"records={self.records!r} is not a file")
        bundled = bundled_models()
        for model in self.models if self.records is None else []:
            if model not in bundled and not Path(model).is_dir() and model.count("/") != 1:
                raise ValueError(
                    f"model={model!r} is neither bundled ({', '.join(bundled)}), nor a folder, nor a hub id owner/name"
                )
        for dataset in self.datasets:
            if self.records is None and dataset not in qa.BUNDLED and not Path(dataset).is_file():
                raise ValueError(f"dataset={dataset!r} is neither {' nor '.join(qa.BUNDLED)} nor a file")

    @property
    def models(self) -> list[str]:
        """The models, always a list."""
        return self._list("model")

    @property
    def datasets(self) -> list[str]:
        """The datasets, always a list."""
        return self._list("dataset")

    def questions(self, dataset: str, *splits: str) -> qa.QuestionSet:
        """The questions of a bundled set or a file, of the splits named."""
        source = {"name": dataset} if dataset in qa.BUNDLED else {"path": dataset}
        return qa.load(**source, split=splits or self.split, limit=self.limit, seed=self.seed)

    def run(self, model: str, dataset: str, *splits: str, strategy: str | None = None) -> Run:
        """The stored run of these questions, generated where it is missing; or the records, if they are given."""
        if self.records is not None:
            return generations.from_records(self.records)
        strategy = strategy or self.strategy
        questions = self.questions(dataset, *splits)
        stored = self._stored(model, questions, strategy)
        return stored if stored is not None else self._generated(model, questions, strategy)

    def judged(self, model: str, dataset: str, split: str, *, everything: bool = False) -> Judged:
        """The answers of one strategy to one split, the most probable one of each question judged.

        Of the validation split, `n_validation` questions drawn with the seed, unless `everything` is asked for.
        """
        judged = judge(self._both_splits(model, dataset, self.strategy), split=split)
        return judged if everything else self._drawn(judged)

    def compared(self, model: str, dataset: str, split: str, *, own: bool = False) -> Judged:
        """Every method on one split: beams, samples and greedy answers, one answer of each question judged.

        Of the validation split, `n_validation` questions drawn with the seed.
        """
        beams = self._both_splits(model, dataset, BEAMS)
        if self.records is not None:
            return self._drawn(judge(beams, samples=beams, split=split))
        samples, greedy = (self._both_splits(model, dataset, strategy) for strategy in (SAMPLES, "greedy"))
        return self._drawn(judge(beams, samples=samples, others=[greedy], split=split, own=own))

    def searched(self, model: str, dataset: str, split: str) -> Searched:
        """An exact search at `search_alpha` beside beams, on the validation questions drawn or on another split."""
        exact, beams, greedy = (self._both_splits(model, dataset, name) for name in (EXACT, BEAMS, "greedy"))
        lined_up = searched(exact, beams, others=[greedy], split=split)
        drawn = self._drawn(lined_up.judged)
        return lined_up if drawn is lined_up.judged else lined_up.only(drawn.answers["question_id"])

    def deeper(self, model: str, dataset: str, search_alpha: float) -> Run:
        """A search of the reported split down to another α, kept apart from that at `search_alpha`."""
        if search_alpha == self.search_alpha:
            return self._both_splits(model, dataset, EXACT).select(split=self.split)
        folder = self.generations_dir / f"search_alpha={search_alpha:g}"
        return replace(self, search_alpha=search_alpha, generations_dir=folder).run(model, dataset, strategy=EXACT)

    def sampled(self, model: str, dataset: str, question_ids: Sequence[str], *, n_samples: int) -> Run:
        """Many samples of some questions of the reported split, to estimate entropies from; kept apart."""
        questions = self.questions(dataset)
        table = questions.table[questions.table["question_id"].isin(set(question_ids))]
        folder = self.generations_dir / f"n_samples={n_samples}"
        asked = replace(questions, table=table.reset_index(drop=True))
        apart = replace(self, n_answers=n_samples, generations_dir=folder)
        stored = apart._stored(model, asked, SAMPLES)
        return stored if stored is not None else apart._generated(model, asked, SAMPLES)

    def pairs(self) -> list[tuple[str, str]]:
        """Every (model, dataset), model by model, so that each is loaded once; with records there is one."""
        if self.records is not None and self.strategy == EXACT:
            raise ValueError(f"records={self.records!r} hold no search: exact search needs a model")
        if self.records is not None:
            return [("records", Path(self.records).stem)]
        return [(model, dataset) for model in self.models for dataset in self.datasets]

    def _both_splits(self, model: str, dataset: str, strategy: str) -> Run:
        """One run of the validation questions and of those reported, so that each is generated once."""
        if self.records is not None:
            return split_records(generations.from_records(self.records), seed=self.seed)
        return self.run(model, dataset, *dict.fromkeys(("validation", self.split)), strategy=strategy)

    def _drawn(self, judged: Judged) -> Judged:
        is_validation = judged.split == "validation" and self.n_validation is not None
        return judged.drawn(self.n_validation, seed=self.seed) if is_validation else judged

    def _list(self, name: str) -> list[str]:
        value = getattr(self, name)
        return [value] if isinstance(value, str) else list(value)

    def _stored(self, model: str, questions: qa.QuestionSet, strategy: str) -> Run | None:
        """A finished run that answers these questions as asked for; the model is not loaded to find out."""
        folder = self.generations_dir / questions.name / Path(model).name / strategy
        if not (folder / "run.json").is_file():
            return None
        run = generations.read(folder)
        asked = {"shots": [list(shot) for shot in questions.shots], "template": questions.template}
        asked |= {"header": questions.header} | ({} if self.dtype == "auto" else {"dtype": self.dtype})
        asked |= {"n_answers": self.n_answers} if strategy in (BEAMS, SAMPLES) else {}
        asked |= {"search_alpha": self.search_alpha} if strategy == EXACT else {}
        asked |= {"seed": self.seed} if strategy == SAMPLES else {}
        source = bundled_models().get(model, Path(model))
        asked |= {"fingerprint": fingerprint(source)} if (source / "config.json").is_file() else {}
        differs = any(run.info.parameters.get(name) != value for name, value in asked.items())
        held = set(run.questions["question_id"])
        if differs or not held.issuperset(questions.table["question_id"]):
            return None
        return run.asked_as(questions.table)

    def _generated(self, model: str, questions: qa.QuestionSet, strategy: str) -> Run:
        from pro_lib import generate

        return generate.generate(
            _loaded(model, self.device, self.dtype),
            questions,
            strategy=strategy,
            n_answers=self.n_answers,
            out=self.generations_dir,
            batch_size=self.batch_size,
            seed=self.seed,
            search_alpha=self.search_alpha,
        )
