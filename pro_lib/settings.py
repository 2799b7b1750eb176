"""The parameters that notebooks share, each declared once, and the questions, runs and evaluations they ask for."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pandas as pd

from pro_lib import bundled, checks, engine, evaluation, files, imports, metrics, runs, similarities, store
from pro_lib import questions as question_sets
from pro_lib.correctness import CORRECTNESS
from pro_lib.engine.strategies import StrategyName, own_settings
from pro_lib.evaluation import Choices, Evaluation, Splits
from pro_lib.protocols import PROTOCOLS
from pro_lib.runs import Convention, Run
from pro_lib.similarities import SIMILARITIES, Similarity

if TYPE_CHECKING:
    from pro_lib.models import Model

# A comparison of methods needs beams for PRO, NLL, ALL, PE, SE and SD, and samples for PE-MC, NE and Deg.
BEAMS, SAMPLES, EXACT, GREEDY = "diverse_beam", "multinomial", "threshold", "greedy"
# What notebooks come with, beside the defaults: their figures go to figures/ itself.
_COME_WITH = {"model": (["facts-2m", "facts-1m"], ["facts-2m"]), "protocol": (["paper"],), "search_alpha": (0.005,)}
_COME_WITH |= {"dataset": (["world-facts", "world-facts-reworded"], ["world-facts"])}
_COME_WITH |= {"similarity": (["lexical", "alias"], ["alias"])}


def listed(names: str | Sequence[str]) -> list[str]:
    """Return one name or several always as a list."""
    return [names] if isinstance(names, str) else list(names)


_NAMES = checks.rule(
    (str, list, tuple),
    lambda names: len(names) > 0 and all(isinstance(name, str) and name for name in listed(names)),
    "must be a name or a list of names",
)
Names = Annotated[str | Sequence[str], _NAMES]
_Folder = Annotated[Any, checks.rule((str, Path, type(None)), lambda _: True, "must be a path")]


@checks.checked
class Settings:
    """The parameters of a notebook, and what they ask for; a `ValueError` names a parameter that cannot be."""

    model: Names = "facts-2m"  # one or several: bundled or paper's name, hub id, folder
    dataset: Names = "world-facts"  # one or several: bundled, trivia_qa, sciq, nq, or a file
    split: str = "test"  # the split reported on
    strategy: StrategyName = "diverse_beam"  # how answers are found: greedy, multinomial, diverse_beam, threshold
    protocol: Names = "paper"  # how answers are counted in figures: paper, workbench, or both
    distinct: checks.Flag | None = None  # whether repeated answers count once; None as the protocol has it
    convention: Convention = "complete"  # complete (ending included) or answer_tokens (left out)
    alphas: checks.Probabilities | None = None  # α is chosen from these; None for 0, 0.05, …, 1
    alpha: checks.Probability = 0.4  # the default α: PRO keeps answers whose probability is at least α
    target: checks.Probabilities | None = None  # accuracies of the answers given; None as the accuracy of all suggests
    confidence: checks.Probability = 0.95  # that a promise holds
    search_alpha: checks.PositiveShare = 0.02  # α of strategy threshold, the exact search: how far down it looks
    n_answers: checks.PositiveInt = 10  # N, answers per question
    temperature: checks.Positive = 1.0  # of samples: below 1 likely tokens are drawn more often, above 1 less
    top_p: checks.PositiveShare = 1.0  # samples are drawn from the likeliest tokens that hold this share; 1 for all
    diversity_penalty: checks.NotNegative = 1.0  # λ, what a token costs a beam after another beam has taken it
    max_new_tokens: checks.PositiveInt | None = None  # T, at which an answer is cut; None for 32, in a chat for 64
    stop: checks.Texts = ()  # texts that end an answer beside its end of text and newline, each one token
    limit: checks.PositiveInt | None = None  # at most this many questions of each split; None for all
    n_shots: checks.WholeNumber | None = None  # shots in the prompt; None for 10, of small files fewer
    header: str = ""  # text before the shots
    template: str = question_sets.TEMPLATE  # how a question is put; {question} stands for it
    n_validation: checks.PositiveInt | None = 100  # α is chosen on this many validation questions; None for all
    seed: checks.WholeNumber = 0  # of samples, of drawn questions, of redraws
    batch_size: checks.PositiveInt | None = None  # questions in one pack; None chooses
    device: checks.Name = "auto"  # auto, cpu, cuda, cuda:1, mps
    dtype: checks.Dtype = "auto"  # auto, float32, bfloat16, float16
    loading: dict | None = None  # further options of models.load, as {"device_map": "auto"}
    chat: checks.Chat | None = None  # put prompts in the chat template of the model; None does without shots
    engine: checks.Engine = "local"  # local, or ray: workers on a Ray cluster, one a GPU
    n_workers: checks.PositiveInt | None = None  # workers of ray; None for as many as there are GPUs
    similarity: Names = "lexical"  # what means the same: lexical, alias, nli, or an NLI model
    correctness: str = "rouge_l"  # what is right: rouge_l, exact_match, alias_match, or a file of labels
    records: Names | None = None  # files of log-probabilities made elsewhere; None asks the model
    generations_dir: _Folder = None  # where runs are kept; None for data/generations of the repository
    figures_dir: _Folder = None  # where figures go; None for figures of the repository
    columns: Literal[1, 2] = 2  # columns of a paper that a figure spans, 1 or 2
    reported: checks.Flag = False  # the split is reported on, so that it may not be validation, where α is chosen

    def __post_init__(self) -> None:
        # Notebooks run in folders of their own, so a default must not depend on where that is.
        for name, folder in (("generations_dir", "data/generations"), ("figures_dir", "figures")):
            object.__setattr__(self, name, Path(getattr(self, name) or bundled.HOME / folder))
        if self.reported and self.split == "validation":
            raise ValueError("split='validation' is where alpha is chosen; report on another split")
        self._check_name("protocol", PROTOCOLS, "a list of them")
        self._check_name("similarity", SIMILARITIES, "an NLI model's folder or hub id", os.path.dirname)
        self._check_name("correctness", CORRECTNESS, "a file of labels", os.path.isfile)
        if self.records is not None:
            if imports.recorded(listed(self.records)) and self.strategy == EXACT:
                raise ValueError(f"records={self.records!r} hold no search: exact search needs a model")
            return
        self._check_name("split", question_sets.SPLITS, "anything else")
        if self.strategy == EXACT and self.alpha < self.search_alpha:
            raise ValueError(f"alpha={self.alpha!r} is below search_alpha={self.search_alpha!r}: not searched so far")
        for model in listed(self.model):
            bundled.check_model(model)
        self._check_name("dataset", question_sets.NAMES, "a file or folder", os.path.exists)

    def _check_name(self, name: str, known: Collection[str], other: str, is_other: Callable = lambda _: False) -> None:
        for value in listed(getattr(self, name)):
            if value not in known and not is_other(value):
                raise ValueError(f"{name}={value!r} is neither {', '.join(known)}, nor {other}")

    @classmethod
    def of(cls, names: Mapping[str, Any], **constants: Any) -> Settings:
        """Return what a notebook's parameters cell declares, what papermill has injected, and the `constants`.

        `names` are the notebook's `globals()`. Figures of other parameters than the notebooks come with go to a folder
        of their own in `figures/other/`, unless `figures_dir` is given.
        """
        values = {name: names[name] for name in _parameter_names(names.get("In", ()))}
        settings = cls(**values | constants)
        usual = {field.name: (field.default, [], {}, *_COME_WITH.get(field.name, ())) for field in fields(cls)}
        changes = {name: value for name, value in values.items() if value not in usual[name] and name[-4:] != "_dir"}
        if changes and values.get("figures_dir") is None:
            settings = replace(settings, figures_dir=settings.figures_dir / "other" / files.folder_name(**changes))
            print(f"Figures go to {settings.figures_dir}")
        _ = settings.choices  # a file of labels is read
        return settings

    @property
    def choices(self) -> Choices:
        """What makes an answer right, as `correctness` says."""
        is_named = self.correctness in CORRECTNESS
        right = {"correctness": self.correctness} if is_named else {"labels": imports.read_labels(self.correctness)}
        return Choices(**right, **self._values("convention", "distinct"))

    def pairs(self) -> list[tuple[str, str]]:
        """Return every (model, dataset), model by model, so that each is loaded once; of records their names."""
        if self.records is not None:
            return list(imports.recorded(listed(self.records)))
        return [(model, dataset) for model in listed(self.model) for dataset in listed(self.dataset)]

    def questions(self, dataset: str, *splits: str) -> question_sets.QuestionSet:
        """Return the questions of the splits named; a file without validation lends `n_validation` of its own."""
        named = dataset in question_sets.NAMES
        where = {"name": dataset} if named else {"path": dataset, "n_validation": self.n_validation or 100}
        prompt = self._values("limit", "seed", "n_shots", "header", "template")
        return question_sets.load(**where, split=splits or self.split, **prompt)

    def run(self, model: str, dataset: str, *splits: str, strategy: str | None = None) -> Run:
        """Return the stored run of these questions, generated where it is missing; or the records, if given."""
        if self.records is not None:
            return self._recorded(model, dataset)
        questions, name = self.questions(dataset, *splits), strategy or self.strategy
        if stored := self._stored(model, questions, name):
            return stored
        from pro_lib import generate

        work = own_settings(name, vars(self)) | self._values("batch_size", "chat", "engine", "n_workers")
        return generate.generate(self.loaded(model), questions, strategy=name, out=self.generations_dir, **work)

    def both_splits(self, model: str, dataset: str, strategy: str | None = None) -> Run:
        """Return one run of the validation questions and of those reported, so that each is generated once."""
        if self.records is not None:
            return imports.split_records(self._recorded(model, dataset), n_validation=self.n_validation, seed=self.seed)
        return self.run(model, dataset, *dict.fromkeys(("validation", self.split)), strategy=strategy)

    def evaluations(self, model: str, dataset: str, *splits: str | None, methods: str = "own") -> list[Evaluation]:
        """Return each split's evaluations, one a protocol; `all` methods judge the likeliest answer of every run."""
        options: dict[str, Any] = {"protocols": list(PROTOCOLS), "choices": self.choices}
        answers = self.both_splits(model, dataset, BEAMS if methods == "all" else self.strategy)
        if methods == "all":
            options["similarities"] = self.similarities(model, dataset)
            options["samples"] = answers if self.records else self.both_splits(model, dataset, SAMPLES)
            options["others"] = [] if self.records else [self.both_splits(model, dataset, GREEDY)]
        named = (None if split == "all" else split for split in splits)
        judged = [one for split in named for one in evaluation.evaluations(answers, split=split, **options)]
        for one in judged:
            if self.reported and one.split != "validation" and one.one_class():
                raise metrics.OneClassError(f"{one.one_class()}, so no score can be told from another on them")
        return judged

    def splits(self, methods: str = "own") -> list[Splits]:
        """Return, for every pair and protocol, the validation questions and those reported; see `evaluations`."""
        options, splits = self._values("n_validation", "seed", "alphas"), []
        for pair in self.pairs():
            judged = self.evaluations(*pair, "validation", self.split, methods=methods)
            pools, reported = judged[: len(PROTOCOLS)], judged[len(PROTOCOLS) :]
            splits += [Splits(*both, **options) for both in zip(pools, reported, strict=True)]
        return splits

    def similarities(self, model: str, dataset: str) -> dict[str, Similarity | None]:
        """Return what decides whether answers mean the same, by name; None for `alias` without references."""
        return {Path(name).name: self._similarity(name, model, dataset) for name in listed(self.similarity)}

    def drawn(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of a table whose protocol is among `protocol`: those that a figure shows."""
        return table[table["protocol"].str.split(", ").str[0].isin(listed(self.protocol))]

    def store(self, table: pd.DataFrame, name: str, figure: Any = None, *, title: str = "") -> object:
        """Write a table, if it has rows, and the figure drawn from it to `figures_dir`; return what is to be shown."""
        if table.empty:
            return f"{name}: nothing to show, since records hold no search"
        from pro_lib import figures

        inputs = [*listed(self.dataset), *listed(self.records or ()), self.correctness]
        return figures.save(figure, table, name, figures_dir=self.figures_dir, title=title, inputs=inputs)

    def loaded(self, model: str) -> Model:
        """Return the model, loaded as the parameters say, or as it is held."""
        from pro_lib import models

        return models.held(model, **self._values("device", "dtype"), **(self.loading or {}))

    def _values(self, *names: str) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names}

    def _stored(self, model: str, questions: question_sets.QuestionSet, strategy: str) -> Run | None:
        """Return a stored run that answers these questions as asked for; the model is not loaded to find out."""
        chat: Any = False if self.chat is None and questions.shots else self.chat
        how = engine.strategy(strategy, chat=chat, **own_settings(strategy, vars(self)))
        folder = self.generations_dir / questions.name / bundled.model_folder_name(model)
        folder /= files.folder_name(how.name, **how.changes(), **questions.changes(chat=chat))
        if chat is None or not store.parts(folder):
            return None  # without shots the model decides
        run = runs.read(folder)
        source, dtype = Path(bundled.locate(model)), {} if self.dtype == "auto" else {"dtype": self.dtype}
        wanted = {**run.info.parameters, "chat": None} | how.parameters() | questions.parameters(chat=chat) | dtype
        wanted |= {"fingerprint": bundled.fingerprint(source)} if source.exists() else {}
        same = store.difference(run.info.parameters, wanted) is None
        whole = questions.table["question_id"].isin(run.questions["question_id"]).all()
        return run.asked_as(questions.table) if same and whole else None

    def _recorded(self, model: str, dataset: str) -> Run:
        """Return the records; a question file given as `dataset` says what was asked where they do not."""
        file, questions = listed(self.dataset)[0], None
        if file not in question_sets.NAMES and os.path.exists(file):
            questions = question_sets.load(path=file, split=None, n_shots=0).table
            if "validation" not in set(questions["split"]):
                questions = questions.assign(split=None)  # so that one is drawn
        return imports.from_file(imports.recorded(listed(self.records or ()))[model, dataset], questions=questions)

    def _similarity(self, name: str, model: str, dataset: str) -> Similarity | None:
        if name == "lexical":
            return similarities.lexical
        if name == "alias":
            if self.records is not None:
                table = self._recorded(model, dataset).questions
            elif dataset in question_sets.BUNDLED:  # of all splits: a wrong answer is often the right one to another
                table = question_sets.load(dataset, split=None, n_shots=0).table
            else:
                table = self.questions(dataset, "validation", self.split).table
            return similarities.Alias(table) if table["references"].notna().all() else None
        chosen: dict[str, Any] = {} if name == "nli" else {"model": name}
        cache = self.generations_dir / Path(dataset).stem / bundled.model_folder_name(model)
        return similarities.Nli(**chosen, device=None if self.device == "auto" else self.device, cache=cache)


def _parameter_names(cells: Iterable[str]) -> list[str]:
    """Return what the latest cell of nothing but typed names declares, and what papermill injected after it."""
    declared, injected = [], []
    for cell in cells:
        with suppress(SyntaxError):
            statements: list[Any] = ast.parse(cell).body
            if cell.startswith("# Parameters\n"):
                injected = [statement.targets[0].id for statement in statements]
            elif statements and all(isinstance(statement, ast.AnnAssign) for statement in statements):
                declared, injected = [statement.target.id for statement in statements], []
    return [*declared, *injected]
