"""What notebooks call: shared parameters, the runs they ask for, and one answer judged per question for every method.

It ties questions, runs, correctness and scores together; it does not know a score by its formula, and it does not draw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pro_lib import correctness, generations, metrics, qa, scores, semantic
from pro_lib.generations import Run
from pro_lib.run_files import (
    ENGINES,
    QUANTIZATIONS,
    ROOT,
    STRATEGIES,
    RunError,
    bundled_models,
    fingerprint,
    paper_models,
)
from pro_lib.sweeps import Judged, Searched

if TYPE_CHECKING:
    from pro_lib.models import Model

ROUGE_THRESHOLD = 0.3
CORRECTNESS = ("rouge_l", "exact_match", "alias_match")
LABEL_COLUMNS = ("question_id", "text", "correct")
# A comparison of methods needs beams for PRO, NLL, ALL, PE, SE and SD, and samples for PE-MC, NE and Deg.
BEAMS, SAMPLES, EXACT = "diverse_beam", "multinomial", "threshold"


@dataclass(frozen=True)
class Choices:
    """What counts as an answer and what as right. The defaults are this project's; docs/audit.md says what others do.

    Args:
        convention: `complete` (ending included) or `answer_tokens` (ending left out), as in `Run.log_probs`.
        distinct: leave repeated beams out.
        correctness: `rouge_l` above 0.3, `exact_match` or `alias_match` (see `correctness`).
        references: `max`, ROUGE-L of the best reference, or `last`, of the last one only.
        labels: labels from outside, of people or of a judge model, columns question_id, text, correct; they replace
            every other correctness. An answer without a label is left out and counted.
    """

    convention: str = "complete"
    distinct: bool = True
    correctness: str = "rouge_l"
    references: str = "max"
    labels: pd.DataFrame | None = None


def judge(
    beams: Run,
    *,
    samples: Run | None = None,
    others: Sequence[Run] = (),
    split: str | None = None,
    judges: Mapping[str, semantic.Judge | None] | None = None,
    choices: Choices | None = None,
) -> Judged:
    """Judge one answer per question and line up what the methods say of it.

    The answer judged is the most probable one that any of the runs found; what each run's own most probable answer
    is worth stands beside it (`Judged.by`). A question that a method cannot score, or that has no answer to judge, is
    left out for all methods and counted.

    Args:
        beams: the run that PRO, NLL, ALL, PE (Eq. 2), SE and SD read.
        samples: the run that PE-MC, NE and Deg read, repeats kept; None leaves them out.
        others: further runs whose answers may be the most probable one.
        split: the split to judge; None for all questions of `beams`.
        judges: which answers mean the same: SE, SE-MC, SD, Deg, WD and gap once for each, named `SE, <key>`; None
            for a judge that this dataset cannot have.
        choices: None for this project's.
    """
    choices = choices or Choices()
    beams = beams.select(split=split) if split is not None else beams
    ids = list(beams.questions["question_id"])
    runs = [run.select(question_ids=ids) for run in (beams, *([samples] if samples is not None else []), *others)]
    samples = runs[1] if samples is not None else None
    top = generations.most_probable(runs, convention=choices.convention)
    answers = top[["question_id", "text"]].join(rouge_and_correct(top, beams.questions, choices))
    if answers["correct"].isna().all():
        raise RunError(f"run {beams.name}: no answer can be judged without references and texts, rouge_l or correct")
    for run in runs:
        own = run.top(convention=choices.convention)
        answers[f"correct_{run.info.strategy}"] = rouge_and_correct(own, beams.questions, choices)["correct"]
    options = {"convention": choices.convention, "distinct": choices.distinct}
    log_probs, means = beams.log_probs(**options), beams.mean_log_probs(**options)
    baselines = _baselines(log_probs, means, samples, choices)
    if judges:
        texts = beams.texts(**options)
        drawn = None if samples is None else samples.texts(convention=choices.convention, distinct=False)
        for name, measure in judges.items():
            compared = _semantic(measure, beams.questions, log_probs, means, texts, drawn)
            baselines = baselines.join(compared.add_suffix(f", {name}"))
    unavailable = tuple(baselines.columns[baselines.isna().all()])
    baselines = baselines.drop(columns=list(unavailable))
    exclusions = metrics.usable(baselines.set_axis(ids), answers["correct"])
    used = exclusions.mask
    return Judged(
        beams.info.model,
        beams.info.dataset,
        split or "all",
        answers[used].reset_index(drop=True),
        log_probs[used],
        baselines[used].reset_index(drop=True),
        exclusions,
        unavailable,
    )


def _baselines(log_probs: np.ndarray, means: np.ndarray, samples: Run | None, choices: Choices) -> pd.DataFrame:
    table = pd.DataFrame(
        {
            "NLL": scores.nll(log_probs),
            "ALL": scores.average_log_likelihood(means, log_probs),
            "PE": scores.predictive_entropy(log_probs),
        }
    )
    if samples is None:
        return table
    log_probs = samples.log_probs(convention=choices.convention, distinct=False)
    means = samples.mean_log_probs(convention=choices.convention, distinct=False)
    return table.assign(**{"PE-MC": scores.predictive_entropy_mc(log_probs), "NE": scores.normalized_entropy(means)})


def _semantic(
    measure: semantic.Judge | None,
    questions: pd.DataFrame,
    log_probs: np.ndarray,
    means: np.ndarray,
    texts: np.ndarray,
    drawn: np.ndarray | None,
) -> pd.DataFrame:
    """The methods that compare meanings: of beams, by `texts` and log-probabilities, and of samples, the texts `drawn`.

    SE is the entropy over meanings itself, of the probabilities found, made to sum to 1; SE-MC the estimate from
    samples, token-averaged, that the release of PRO applies to beams. SD and WD count each text once.
    """
    names = ("SE", "SE-MC", "SD", *(("Deg",) if drawn is not None else ()), "WD", "gap")
    there = ~np.isnan(log_probs)
    if measure is None or (pd.isna(texts) & there).any() or np.isnan(means[there]).any():
        return pd.DataFrame(np.nan, index=range(len(texts)), columns=list(names))
    judged = measure(texts, questions)
    meaning = semantic.clusters(judged)
    once = semantic.distinct(texts)
    table = {
        "SE": semantic.semantic_entropy(log_probs, meaning, variant="farquhar2024"),
        "SE-MC": semantic.semantic_entropy(means, meaning, variant="kuhn2023"),
        "SD": semantic.semantic_density(means, judged, keep=once),
        "WD": semantic.weighted_dissimilarity(judged, log_probs, keep=once),
        "gap": semantic.top_two_gap(log_probs, meaning),
    }
    if drawn is not None:
        table["Deg"] = semantic.degree(measure(drawn, questions))
    return pd.DataFrame(table)[list(names)]


def searched(exact: Run, beams: Run, *, others: Sequence[Run] = (), split: str | None = None) -> Searched:
    """Line up a search and beams; the answer judged is the most probable one that any of the runs found.

    A question that either of them, or NLL or ALL, cannot score is left out.
    """
    by_search = judge(exact, others=[beams, *others], split=split)
    by_beams = judge(beams.select(question_ids=list(by_search.answers["question_id"])), others=[exact, *others])
    ids = list(by_beams.answers["question_id"])
    run = exact.select(question_ids=ids)
    return Searched(by_search.only(ids), by_beams.log_probs, run.open_log_probs(), run.tree())


def split_records(run: Run, *, n_validation: int = 100, seed: int = 0) -> Run:
    """The run with every question in `validation` or `test`: as its records say, else drawn with `seed`."""
    splits = run.questions["split"]
    if splits.notna().all():
        return run
    if splits.notna().any():
        raise RunError(f"run {run.name} says the split of some questions only")
    if len(splits) < 2 * n_validation:
        raise RunError(f"run {run.name} has {len(splits)} questions, too few to draw {n_validation} for validation")
    drawn = np.random.default_rng(seed).choice(len(splits), size=n_validation, replace=False)
    names = np.where(np.isin(np.arange(len(splits)), drawn), "validation", "test")
    return replace(run, questions=run.questions.assign(split=names))


def rouge_and_correct(answers: pd.DataFrame, questions: pd.DataFrame, choices: Choices | None = None) -> pd.DataFrame:
    """ROUGE-L and correctness of answers: as labels or records brought them, else against the references.

    `answers` has the columns question_id (needed for labels), text and, if brought, rouge_l and correct; `questions`
    has the references, row by row. Columns: rouge_l, correct (a boolean, or None where it cannot be known).
    """
    choices = choices or Choices()
    known = (answers["text"].notna() & questions["references"].notna().to_numpy()).to_numpy(bool)
    texts, references = list(answers["text"][known]), list(questions["references"][known])
    if "rouge_l" in answers:
        rouge_l = answers["rouge_l"].to_numpy(float)
    else:
        rouge_l = np.full(len(answers), np.nan)
        rouge_l[known] = correctness.rouge_l(texts, references, best=choices.references)
    if choices.labels is not None:
        correct = _labels_of(answers, choices.labels)
    elif "correct" in answers:
        correct = answers["correct"].to_numpy(object)
    elif choices.correctness == "rouge_l":
        correct = np.where(np.isnan(rouge_l), None, rouge_l > ROUGE_THRESHOLD)
    else:
        correct = np.full(len(answers), None, dtype=object)
        match = {"exact_match": correctness.exact_match, "alias_match": correctness.alias_match}[choices.correctness]
        correct[known] = match(texts, references)
    return pd.DataFrame({"rouge_l": rouge_l, "correct": correct}, index=answers.index)


def _labels_of(answers: pd.DataFrame, labels: pd.DataFrame) -> np.ndarray:
    known = dict(zip(zip(labels["question_id"], labels["text"], strict=True), labels["correct"], strict=True))
    pairs = zip(answers["question_id"], answers["text"], strict=True)
    return np.array([known.get(pair) for pair in pairs], dtype=object)


def read_labels(path: str | Path) -> pd.DataFrame:
    """Labels from outside, a row per question and answer: a CSV, Parquet or JSONL file with `LABEL_COLUMNS`.

    `correct` is true or false (1 or 0). Raises `RunError`, naming file and row, for anything else, and for two
    labels of one answer that differ.
    """
    path = Path(path)
    readers = {".csv": pd.read_csv, ".parquet": pd.read_parquet, ".jsonl": lambda p: pd.read_json(p, lines=True)}
    if path.suffix not in readers:
        raise RunError(f"{path} is neither {', '.join(readers)}: labels of answers cannot be read from it")
    try:
        table = readers[path.suffix](path)
    except (OSError, ValueError) as error:  # pandas' and Arrow's own errors are among them
        raise RunError(f"{path} cannot be read: {error}") from error
    missing = [name for name in LABEL_COLUMNS if name not in table]
    if missing:
        raise RunError(f"{path} has no column {missing[0]}; labels need {', '.join(LABEL_COLUMNS)}")
    table = table[list(LABEL_COLUMNS)].astype({"question_id": str, "text": str})
    values = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}
    correct = table["correct"].map(lambda value: values.get(str(value).strip().lower()))
    if correct.isna().any():
        row = int(correct.isna().argmax())
        raise RunError(f"{path}, row {row + 1}: correct is {table['correct'].iloc[row]!r}, neither true nor false")
    table = table.assign(correct=correct.astype(bool)).drop_duplicates()
    twice = table.duplicated(["question_id", "text"])
    if twice.any():
        raise RunError(f"{path} calls answer {table['text'][twice].iloc[0]!r} both right and wrong")
    return table.reset_index(drop=True)


PAPER_DIR = ROOT / "data" / "paper"


def paper(name: str, settings: pd.DataFrame | None = None) -> pd.DataFrame:
    """A table of the paper's printed numbers, `data/paper/<name>.csv`.

    With `settings`, a table with columns dataset and model as our tables have them, only the rows of settings that
    are among them come back, under our names (`data/paper/settings.csv` says which of ours is which of the paper's);
    none if there is no such setting.
    """
    table = pd.read_csv(PAPER_DIR / f"{name}.csv", dtype={"k": "Int64"})
    if settings is None:
        return table
    names = pd.read_csv(PAPER_DIR / "settings.csv")
    for column in ("dataset", "model"):
        known = names[names["kind"] == column]
        ours = {str(value).lower().split("/")[-1]: value for value in settings[column]}
        shown = {row.name: ours.get(row.id.lower().split("/")[-1]) for row in known.itertuples(index=False)}
        table = table.assign(**{column: table[column].map(shown)})
    asked = settings[["dataset", "model"]].drop_duplicates()
    return table.dropna(subset=["dataset", "model"]).merge(asked, on=["dataset", "model"]).reset_index(drop=True)


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
            if self.records is None and dataset not in qa.NAMES and not Path(dataset).exists():
                raise ValueError(f"dataset={dataset!r} is neither {', '.join(qa.NAMES)}, nor a file or folder")

    @property
    def models(self) -> list[str]:
        """The models, always a list."""
        return self._list("model")

    @property
    def datasets(self) -> list[str]:
        """The datasets, always a list."""
        return self._list("dataset")

    def questions(self, dataset: str, *splits: str) -> qa.QuestionSet:
        """The questions of a set by name, of a file or of a folder, of the splits named.

        Files without a validation split lend `n_validation` of their questions to one.
        """
        drawn = {"limit": self.limit, "fraction": self.fraction, "seed": self.seed, "n_shots": self.n_shots}
        if dataset in qa.NAMES:
            return qa.load(dataset, split=splits or self.split, **drawn)
        return qa.load(path=dataset, split=splits or self.split, n_validation=self.n_validation or 100, **drawn)

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
        if dataset in qa.BUNDLED:
            # Of all splits: a wrong answer is often the right one to another question.
            return qa.load(dataset, split=None, n_shots=0).table
        return self.questions(dataset, "validation", self.split).table

    def judged(self, model: str, dataset: str, split: str, *, everything: bool = False) -> Judged:
        """The answers of one strategy to one split, the most probable one of each question judged.

        Of the validation split, `n_validation` questions drawn with the seed, unless `everything` is asked for.
        """
        judged = judge(self._both_splits(model, dataset, self.strategy), split=split, choices=self.choices)
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
    ) -> Judged:
        """Every method on one split: beams, samples and greedy answers, one answer of each question judged.

        Of the validation split, `n_validation` questions drawn with the seed, unless `everything` is asked for.
        `meanings=False` leaves out the methods that compare answers; `choices` stands for `correctness` and more.
        """
        beams, samples, others = self.runs_compared(model, dataset)
        judges = self.judges(model, dataset) if meanings else {}
        choices = choices or self.choices
        judged = judge(beams, samples=samples, others=others, split=split, judges=judges, choices=choices)
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
        file = dataset not in qa.NAMES and Path(dataset).exists()
        return generations.from_file(self.records, questions=qa.load(path=dataset, split=None).table if file else None)

    def _drawn(self, judged: Judged) -> Judged:
        if judged.split == "validation":
            return judged if self.n_validation is None else judged.drawn(self.n_validation, seed=self.seed)
        if self.reported and judged.one_class():
            raise metrics.OneClassError(f"{judged.one_class()}, so no score can be told from another on them")
        return judged

    def _list(self, name: str) -> list[str]:
        value = getattr(self, name)
        return [value] if isinstance(value, str) else list(value)

    def _stored(self, model: str, questions: qa.QuestionSet, strategy: str) -> Run | None:
        """A finished run that answers these questions as asked for; the model is not loaded to find out."""
        folder = self.generations_dir / questions.name / _folder_name(model) / strategy
        if not (folder / "run.json").is_file():
            return None
        run = generations.read(folder)
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

    def _generated(self, model: str, questions: qa.QuestionSet, strategy: str) -> Run:
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
