"""The parameters that notebooks share, declared once, and the runs and evaluations they ask for; knows no score by its formula, and does not draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from pro_lib import endpoint, imports, metrics, semantic
from pro_lib import questions as question_sets
from pro_lib import runs as run_tables
from pro_lib.bundled import ROOT, bundled_models, fingerprint, paper_models
from pro_lib.evaluation import (
    CORRECTNESS,
    Choices,
    Evaluation,
    Searched,
    evaluate,
    read_labels,
    searched,
    split_records,
)
from pro_lib.imports import records
from pro_lib.runs import Run
from pro_lib.storage import ENGINES, QUANTIZATIONS, STRATEGIES

if TYPE_CHECKING:
    from pro_lib.models import Model

# A comparison of methods needs beams for PRO, NLL, ALL, PE, SE and SD, and samples for PE-MC, NE and Deg.
BEAMS, SAMPLES, EXACT = "diverse_beam", "multinomial", "threshold"


_held: tuple[tuple, Model] | None = None


def _loaded(name: str, **options: object) -> Model:
    """The model, loaded unless it was the last one asked for; the one before is let go first. As `models.load`."""
    global _held
    key = (name, *sorted(options.items()))
    if _held is None or _held[0] != key:
        from pro_lib import models

        _held = None
        _held = key, models.load(name, **options)
    return _held[1]


def _folder_name(model: str) -> str:
    """What a model's run folders are called, which is the name it has once it is loaded."""
    named = bundled_models() | paper_models()
    folder = Path(named.get(model, model))
    return folder.resolve().name if model not in named and folder.is_dir() else folder.name


@dataclass(frozen=True)
class Settings:
    """The parameters that notebooks share, checked when they are put together.

    Folders that are None are `data/generations` and `figures` of the repository. `quantization`, `device_map` and
    `trust_remote_code` are as in `models.load`, `chat`, `engine` and `n_workers` as in `generate`.

    Args:
        similarity: what decides whether answers mean the same: names of `semantic.JUDGES`, or an NLI model's folder
            or hub id; several are compared.
        correctness: what makes an answer right: a name of `CORRECTNESS`, or a file of labels (`read_labels`).
        columns: the columns of a paper that a figure spans, 1 or 2.
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
    fraction: float | None = None
    n_shots: int | None = None
    n_validation: int | None = 100
    seed: int = 0
    batch_size: int | None = None
    device: str = "auto"
    dtype: str = "auto"
    quantization: str | None = None
    device_map: str | None = None
    trust_remote_code: bool = False
    chat: bool = False
    engine: str = "local"
    n_workers: int | None = None
    similarity: str | Sequence[str] = "lexical"
    correctness: str = "rouge_l"
    records: str | None = None
    generations_dir: str | Path | None = None
    figures_dir: str | Path | None = None
    columns: int = 2
    reported: bool = False

    def __post_init__(self):
        for name, folder in (("generations_dir", "data/generations"), ("figures_dir", "figures")):
            # Notebooks run in folders of their own, so a default must not depend on where that is.
            object.__setattr__(self, name, Path(getattr(self, name) or ROOT / folder))
        for name in ("model", "dataset"):
            if not self._list(name) or not all(isinstance(value, str) and value for value in self._list(name)):
                raise ValueError(f"{name}={getattr(self, name)!r} must be a name or a list of names")
        if self.split not in question_sets.SPLITS and self.records is None:
            raise ValueError(f"split={self.split!r} is unknown; choose {', '.join(question_sets.SPLITS)}")
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
        for name, may_be_none in (
            ("n_answers", False),
            ("limit", True),
            ("n_validation", True),
            ("batch_size", True),
            ("n_workers", True),
        ):
            value = getattr(self, name)
            if (value is None and may_be_none) or (type(value) is int and value >= 1):
                continue
            raise ValueError(f"{name}={value!r} must be a positive whole number{' or None' if may_be_none else ''}")
        if self.fraction is not None and not (type(self.fraction) in (int, float) and 0 < self.fraction <= 1):
            raise ValueError(f"fraction={self.fraction!r} must lie in (0, 1], or be None")
        if self.n_shots is not None and (type(self.n_shots) is not int or self.n_shots < 0):
            raise ValueError(f"n_shots={self.n_shots!r} must be a whole number of at least 0, or None")
        if self.engine not in ENGINES:
            raise ValueError(f"engine={self.engine!r} is unknown; choose {', '.join(ENGINES)}")
        if self.quantization not in (None, *QUANTIZATIONS):
            raise ValueError(
                f"quantization={self.quantization!r} is unknown; choose {', '.join(QUANTIZATIONS)} or None"
            )
        if type(self.columns) is not int or self.columns not in (1, 2):
            raise ValueError(f"columns={self.columns!r} must be 1 or 2, the columns of a paper that a figure spans")
        if type(self.seed) is not int or self.seed < 0:
            raise ValueError(f"seed={self.seed!r} must be a whole number of at least 0")
        for name in self._list("similarity"):
            if not isinstance(name, str) or not (name in semantic.JUDGES or Path(name).is_dir() or "/" in name):
                known = ", ".join(semantic.JUDGES)
                raise ValueError(f"similarity={name!r} is neither {known}, nor an NLI model's folder or hub id")
        if self.correctness not in CORRECTNESS and not Path(self.correctness).is_file():
            known = ", ".join(CORRECTNESS)
            raise ValueError(f"correctness={self.correctness!r} is neither {known}, nor a file of labels")
        if self.records is not None and not Path(self.records).is_file():
            raise ValueError(f"records={self.records!r} is not a file")
        bundled, paper = bundled_models(), paper_models()
        for model in self.models if self.records is None else []:
            if model not in (*bundled, *paper) and not Path(model).is_dir() and model.count("/") != 1:
                raise ValueError(
                    f"model={model!r} is neither bundled ({', '.join(bundled)}), nor one of the paper's "
                    f"({', '.join(paper)}), nor a folder, nor a hub id owner/name"
                )
        for dataset in self.datasets:
            if self.records is None and dataset not in question_sets.NAMES and not Path(dataset).exists():
                raise ValueError(
                    f"dataset={dataset!r} is neither {', '.join(question_sets.NAMES)}, nor a file or folder"
                )

    @property
    def models(self) -> list[str]:
        """The models, always a list."""
        return self._list("model")

    @property
    def datasets(self) -> list[str]:
        """The datasets, always a list."""
        return self._list("dataset")

    def questions(self, dataset: str, *splits: str) -> question_sets.QuestionSet:
        """The questions of a set by name, of a file or of a folder, of the splits named.

        Files without a validation split lend `n_validation` of their questions to one.
        """
        drawn = {"limit": self.limit, "fraction": self.fraction, "seed": self.seed, "n_shots": self.n_shots}
        if dataset in question_sets.NAMES:
            return question_sets.load(dataset, split=splits or self.split, **drawn)
        return question_sets.load(
            path=dataset, split=splits or self.split, n_validation=self.n_validation or 100, **drawn
        )

    def run(self, model: str, dataset: str, *splits: str, strategy: str | None = None) -> Run:
        """The stored run of these questions, generated where it is missing; or the records, if they are given."""
        if self.records is not None:
            return self._recorded()
        strategy = strategy or self.strategy
        questions = self.questions(dataset, *splits)
        stored = self._stored(model, questions, strategy)
        return stored if stored is not None else self._generated(model, questions, strategy)

    @property
    def choices(self) -> Choices:
        """What makes an answer right, as `correctness` says."""
        if self.correctness in CORRECTNESS:
            return Choices(correctness=self.correctness)
        return Choices(labels=read_labels(self.correctness))

    def judges(self, model: str, dataset: str) -> dict[str, semantic.Judge | None]:
        """What decides whether answers mean the same, by name; None for `alias` where questions lack references."""
        return {Path(name).name: self._judge(name, model, dataset) for name in self._list("similarity")}

    def _judge(self, name: str, model: str, dataset: str) -> semantic.Judge | None:
        if name == "alias":
            table = self._alias_table(dataset)
            return semantic.Alias(table) if table["references"].notna().all() else None
        if name in semantic.JUDGES and name != "nli":
            return semantic.judge(name)
        chosen = {} if name == "nli" else {"model": name}
        device = None if self.device == "auto" else self.device
        return semantic.Nli(
            **chosen, device=device, cache=self.generations_dir / Path(dataset).stem / _folder_name(model)
        )

    def _alias_table(self, dataset: str) -> pd.DataFrame:
        if self.records is not None:
            return self._recorded().questions
        if dataset in question_sets.BUNDLED:
            # Of all splits: a wrong answer is often the right one to another question.
            return question_sets.load(dataset, split=None, n_shots=0).table
        return self.questions(dataset, "validation", self.split).table

    def judged(self, model: str, dataset: str, split: str, *, everything: bool = False) -> Evaluation:
        """The answers of one strategy to one split, the most probable one of each question judged.

        Of the validation split, `n_validation` questions drawn with the seed, unless `everything` is asked for.
        """
        judged = evaluate(self._both_splits(model, dataset, self.strategy), split=split, choices=self.choices)
        return judged if everything else self._drawn(judged)

    def compared(
        self,
        model: str,
        dataset: str,
        split: str,
        *,
        everything: bool = False,
        meanings: bool = True,
        choices: Choices | None = None,
    ) -> Evaluation:
        """Every method on one split: beams, samples and greedy answers, one answer of each question judged.

        Of the validation split, `n_validation` questions drawn with the seed, unless `everything` is asked for.
        `meanings=False` leaves out the methods that compare answers; `choices` stands for `correctness` and more.
        """
        beams, samples, others = self.runs_compared(model, dataset)
        judges = self.judges(model, dataset) if meanings else {}
        choices = choices or self.choices
        judged = evaluate(beams, samples=samples, others=others, split=split, judges=judges, choices=choices)
        return judged if everything else self._drawn(judged)

    def runs_compared(self, model: str, dataset: str) -> tuple[Run, Run, list[Run]]:
        """Beams, samples and further runs of the validation split and of the one reported."""
        beams = self._both_splits(model, dataset, BEAMS)
        if self.records is not None:
            return beams, beams, []
        samples, greedy = (self._both_splits(model, dataset, strategy) for strategy in (SAMPLES, "greedy"))
        return beams, samples, [greedy]

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
            return split_records(self._recorded(), seed=self.seed)
        return self.run(model, dataset, *dict.fromkeys(("validation", self.split)), strategy=strategy)

    def _recorded(self) -> Run:
        """The records; a question file given as `dataset` says what was asked where they do not."""
        dataset = self.datasets[0]
        file = dataset not in question_sets.NAMES and Path(dataset).exists()
        table = question_sets.load(path=dataset, split=None).table if file else None
        if records.layout(Path(self.records)) == "endpoint":
            return endpoint.read(self.records, questions=table)
        return imports.from_file(self.records, questions=table)

    def _drawn(self, judged: Evaluation) -> Evaluation:
        if judged.split == "validation":
            return judged if self.n_validation is None else judged.drawn(self.n_validation, seed=self.seed)
        if self.reported and judged.one_class():
            raise metrics.OneClassError(f"{judged.one_class()}, so no score can be told from another on them")
        return judged

    def _list(self, name: str) -> list[str]:
        value = getattr(self, name)
        return [value] if isinstance(value, str) else list(value)

    def _stored(self, model: str, questions: question_sets.QuestionSet, strategy: str) -> Run | None:
        """A finished run that answers these questions as asked for; the model is not loaded to find out."""
        folder = self.generations_dir / questions.name / _folder_name(model) / strategy
        if not (folder / "run.json").is_file():
            return None
        run = run_tables.read(folder)
        asked = {"shots": [list(shot) for shot in questions.shots], "template": questions.template}
        asked |= {"header": questions.header} | ({} if self.dtype == "auto" else {"dtype": self.dtype})
        asked |= {} if self.quantization is None else {"quantization": self.quantization}
        asked |= {"n_answers": self.n_answers} if strategy in (BEAMS, SAMPLES) else {}
        asked |= {"search_alpha": self.search_alpha} if strategy == EXACT else {}
        asked |= {"seed": self.seed} if strategy == SAMPLES else {}
        asked |= {"chat": True if self.chat else None}
        source = bundled_models().get(model, Path(model))
        asked |= {"fingerprint": fingerprint(source)} if (source / "config.json").is_file() else {}
        differs = any(run.info.parameters.get(name) != value for name, value in asked.items())
        held = set(run.questions["question_id"])
        if differs or not held.issuperset(questions.table["question_id"]):
            return None
        return run.asked_as(questions.table)

    def _generated(self, model: str, questions: question_sets.QuestionSet, strategy: str) -> Run:
        from pro_lib import generate

        where = {"out": self.generations_dir, "engine": self.engine, "n_workers": self.n_workers}
        return generate.generate(self.loaded(model), questions, **self._decoding(strategy), **where)

    def estimate(self, model: str, dataset: str) -> str:
        """What generating the run would take here, in a sentence; or that it is there already."""
        from pro_lib import generate

        if self.records is not None:
            return "Records are read; nothing is generated."
        questions = self.questions(dataset)
        setting = f"{questions.name}, {_folder_name(model)}, {self.strategy}"
        if self._stored(model, questions, self.strategy) is not None:
            return f"{setting}: already there."
        expected = generate.estimate(self.loaded(model), questions, **self._decoding(self.strategy))
        return f"{setting}: {expected.sentence()}."

    def store(self, table: pd.DataFrame, name: str) -> pd.DataFrame:
        """Write a table to `figures_dir/<name>.csv`, whatever becomes of the notebook that shows it; return it."""
        from pro_lib import figures

        return figures.save_table(table, name, figures_dir=self.figures_dir)

    def loaded(self, model: str) -> Model:
        """The model, loaded as the parameters say, unless it was the last one asked for."""
        placed = {"quantization": self.quantization, "device_map": self.device_map}
        placed |= {"trust_remote_code": self.trust_remote_code}
        return _loaded(model, device=self.device, dtype=self.dtype, **placed)

    def _decoding(self, strategy: str) -> dict[str, object]:
        names = ("n_answers", "batch_size", "seed", "search_alpha", "chat")
        return {"strategy": strategy} | {name: getattr(self, name) for name in names}
