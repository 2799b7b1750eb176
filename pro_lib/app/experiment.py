"""The parameters that notebooks share, each declared once, and the questions, runs and evaluations they ask for."""

from __future__ import annotations

import ast
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from pro_lib import evaluation, importing, metrics, runs, scoring
from pro_lib.common import catalog, files
from pro_lib.common.validation import (
    Chat,
    Dtype,
    Engine,
    Flag,
    NotNegative,
    Positive,
    PositiveInt,
    PositiveShare,
    Probabilities,
    Probability,
    SentenceError,
    Text,
    WholeNumber,
    checked,
    rule,
)
from pro_lib.evaluation.evaluate import Evaluation, Splits
from pro_lib.evaluation.methods import PROTOCOLS
from pro_lib.generation import decoding
from pro_lib.generation.decoding.strategies import STRATEGIES, StrategyName, own_settings
from pro_lib.metrics.correctness import CORRECTNESS, Choices
from pro_lib.questions import question_sets
from pro_lib.questions.file_readers import unzipped
from pro_lib.runs import storage
from pro_lib.runs.run import Convention, Run
from pro_lib.scoring.similarity import SIMILARITIES, Similarity

if TYPE_CHECKING:
    from pro_lib.generation.models import Model

# A comparison of methods needs beams for PRO, NLL, ALL, PE, SE and SD, and samples for PE-MC, NE and Deg.
BEAMS, SAMPLES, EXACT, GREEDY = "diverse_beam", "multinomial", "threshold", "greedy"
N_ANSWERS = 10  # answers per question where n_answers is None, as strategies have it
# Values that notebooks come with beside the defaults: their figures go to figures/ itself.
_COME_WITH: dict[str, tuple] = {
    "model": (["facts-2m", "facts-1m"],),
    "dataset": (["world-facts", "world-facts-reworded"],),
    "similarity": (["lexical", "alias"], "alias"),
}
_EXACT_COMES_WITH = {"search_alpha": (0.005,)}
# Parameters that decide how answers are generated and where they are kept: records have no use for them.
_OF_STRATEGIES = ("search_alpha", "temperature", "top_p", "diversity_penalty", "n_answers", "max_new_tokens", "stop")
_OF_PROMPTS = ("n_shots", "header", "template", "chat")
_OF_MODELS = ("model", "device", "dtype", "loading")
_OF_GENERATION = (*_OF_MODELS, *_OF_PROMPTS, *_OF_STRATEGIES, "strategy", "batch_size", "engine", "n_workers")
# Parameters that every notebook uses, whatever it is about.
_OF_EVERY_NOTEBOOK = (
    *_OF_GENERATION,
    "dataset",
    "split",
    "limit",
    "records",
    "generations_dir",
    "figures_dir",
    "columns",
)


def listed(names: str | Sequence[str]) -> list[str]:
    """Return one name or several always as a list."""
    return [names] if isinstance(names, str) else list(names)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _filled(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError("rule", "must not be empty or white space")
    return text


_NAMES = rule(
    (str, list, tuple),
    lambda names: len(names) > 0 and all(map(_is_name, listed(names))),
    "must be a name or a list of names, none of them empty",
)
Names = Annotated[str | Sequence[str], _NAMES]
_Name = Annotated[Text, AfterValidator(_filled)]
_FOLDER = rule(
    (str, Path, type(None)),
    lambda folder: folder is None or _is_name(str(folder)),
    "must be a path, or None; it must not be empty",
)
_Folder = Annotated[Any, _FOLDER]


@dataclass(frozen=True)
class NotebookUse:
    """What a notebook reads of the settings, and which of them its user has changed.

    `uses` names the parameters that the notebook reads beside those of its questions, runs and figures; None where it
    does not say. `changed` names the parameters with other values than the notebook comes with.
    """

    uses: tuple[str, ...] | None
    changed: tuple[str, ...]


@checked
class Settings:
    """The parameters of a notebook, and what they ask for; a `ValueError` names a parameter that cannot be."""

    model: Names = "facts-2m"  # one or several: bundled or paper's name, hub id, folder
    dataset: Names = "world-facts"  # one or several: bundled, trivia_qa, sciq, nq, or a file
    split: _Name = "test"  # the split reported on
    strategy: StrategyName = "diverse_beam"  # how answers are found: greedy, multinomial, diverse_beam, threshold
    other_strategies: tuple[StrategyName, ...] = ()  # strategies that are run beside `strategy`
    protocol: Names = "paper"  # how answers are counted in figures: paper, workbench, or both
    distinct: Flag | None = None  # whether repeated answers count once; None as the protocol has it
    convention: Convention = "complete"  # complete (ending included) or answer_tokens (left out)
    alphas: Probabilities | None = None  # α is chosen from these; None for 0, 0.05, …, 1
    alpha: Probability = 0.4  # the default α: PRO keeps answers whose probability is at least α
    target: Probabilities | None = None  # accuracies of the answers given; None as the accuracy of all suggests
    confidence: Probability = 0.95  # that a promise holds
    search_alpha: PositiveShare = 0.02  # α of strategy threshold, the exact search: how far down it looks
    n_answers: PositiveInt | None = None  # N, answers per question; None for 10, of records for all
    temperature: Positive = 1.0  # of samples: below 1 likely tokens are drawn more often, above 1 less
    top_p: PositiveShare = 1.0  # samples are drawn from the likeliest tokens that hold this share; 1 for all
    diversity_penalty: NotNegative = 1.0  # λ, what a token costs a beam after another beam has taken it
    max_new_tokens: PositiveInt | None = None  # T, at which an answer is cut; None for 32, in a chat for 64
    stop: tuple[_Name, ...] = ()  # texts that end an answer beside its end of text and newline, each one token
    limit: PositiveInt | None = None  # at most this many questions of each split; None for all
    n_shots: WholeNumber | None = None  # shots in the prompt; None for 10, of small files fewer
    header: Text = ""  # text before the shots
    template: question_sets.Template = question_sets.TEMPLATE  # how a question is put; {question} stands for it
    n_validation: PositiveInt | None = 100  # α is chosen on this many validation questions; None for all
    seed: WholeNumber = 0  # of samples, of drawn questions, of redraws
    batch_size: PositiveInt | None = None  # questions in one pack; None chooses
    device: _Name = "auto"  # auto, cpu, cuda, cuda:1, mps
    dtype: Dtype = "auto"  # auto, float32, bfloat16, float16
    loading: dict | None = None  # further options of models.load, as {"device_map": "auto"}
    chat: Chat | None = None  # put prompts in the chat template of the model; None does without shots
    engine: Engine = "local"  # local, or ray: workers on a Ray cluster, one a GPU
    n_workers: PositiveInt | None = None  # workers of ray; None for as many as there are GPUs
    similarity: Names = "lexical"  # what means the same: lexical, alias, nli, or an NLI model
    correctness: _Name = "rouge_l"  # what is right: rouge_l, exact_match, alias_match, or a file of labels
    records: Names | None = None  # files of log-probabilities made elsewhere; None asks the model
    generations_dir: _Folder = None  # where runs are kept; None for data/generations of the repository
    figures_dir: _Folder = None  # where figures go; None for figures of the repository
    columns: Literal[1, 2] = 2  # columns of a paper that a figure spans, 1 or 2
    reported: Flag = False  # the split is reported on, so that it may not be validation, where α is chosen
    notebook: NotebookUse | None = None  # what a notebook reads and its user has changed; None outside of notebooks

    def __post_init__(self) -> None:
        # Notebooks run in folders of their own, so a default must not depend on where that is.
        for name, folder in _default_folders().items():
            given = getattr(self, name)
            object.__setattr__(self, name, folder if given is None else Path(given))
        if self.reported and self.split == "validation":
            raise ValueError("split='validation' is where alpha is chosen; report on another split")
        self._check_name("protocol", PROTOCOLS, "a list of them")
        self._check_name("similarity", SIMILARITIES, "an NLI model's folder or hub id", os.path.dirname)
        self._check_name("correctness", CORRECTNESS, "a file of labels", os.path.isfile)
        self._check_distinct("protocol", str)
        self._check_distinct("similarity", lambda name: Path(name).name)
        self._check_distinct("target", str)
        self._check_options()
        if self.records is not None:
            self._check_distinct("records", str)
            if importing.recorded(listed(self.records)) and self.strategy == EXACT:
                raise ValueError(f"records={self.records!r} hold no search: exact search needs a model")
        else:
            self._check_generation()
        self._check_effects()

    def _check_generation(self) -> None:
        """Check what only matters where a model is asked."""
        self._check_name("split", question_sets.SPLITS, "anything else")
        if self.strategy == EXACT and self.alpha < self.search_alpha:
            raise ValueError(f"alpha={self.alpha!r} is below search_alpha={self.search_alpha!r}: not searched so far")
        for model in listed(self.model):
            catalog.check_model(model)
        self._check_name("dataset", question_sets.NAMES, "a file or folder", os.path.exists)
        self._check_distinct("model", catalog.model_folder_name)
        self._check_distinct("dataset", lambda name: name if name in question_sets.NAMES else unzipped(name).stem)

    def _check_name(self, name: str, known: Collection[str], other: str, is_other: Callable = lambda _: False) -> None:
        for value in listed(getattr(self, name)):
            if value not in known and not is_other(value):
                raise ValueError(f"{name}={value!r} is neither {', '.join(known)}, nor {other}")

    def _check_distinct(self, name: str, label: Callable[[Any], str]) -> None:
        """Check that no two values of a list have one label: their rows would be the same, or look the same."""
        values = listed(getattr(self, name) or ())
        for number, value in enumerate(values):
            for other in values[:number]:
                if value == other:
                    raise ValueError(f"{name}={value!r} is given twice; give it once")
                if label(value) == label(other):
                    raise ValueError(f"{name}={value!r} has the same name as {other!r}; give one of them at a time")

    def _check_options(self) -> None:
        """Check the names of the options of `chat` and `loading`."""
        for name in ("chat", "loading"):
            options = getattr(self, name)
            if isinstance(options, Mapping) and not all(map(_is_name, options)):
                raise ValueError(f"{name}={options!r} must have names of options as its keys, none of them empty")
        own = {"name": "model", "model": "model", "device": "device", "dtype": "dtype", "torch_dtype": "dtype"}
        for option in self.loading or ():
            if option in own:
                parameter = own[option]
                raise ValueError(f"loading={self.loading!r} must not have {option!r}: use the parameter {parameter}")

    def _check_effects(self) -> None:
        """Check that something uses every parameter that is not as by default (in a notebook, as it comes)."""
        if self.notebook is not None:
            changed = self.notebook.changed
        else:
            defaults = _defaults()
            changed = tuple(name for name in defaults if not _same(getattr(self, name), defaults[name]))
        for name in changed:
            reason = self._why_unused(name)
            if reason:
                value = getattr(self, name)
                shown = str(value) if isinstance(value, Path) else value
                raise ValueError(f"{name}={shown!r} {reason}")

    def _why_unused(self, name: str) -> str | None:
        """Return why nothing uses a parameter; None where something does, or may outside of a notebook."""
        uses = None if self.notebook is None else self.notebook.uses
        if uses is not None and name in uses:
            return None
        if self.records is not None:
            reason = self._why_unused_with_records(name)
        else:
            reason = self._why_unused_by_strategies(name)
        if reason is None and name == "n_workers" and self.engine == "local":
            reason = "has no effect: only engine='ray' has workers"
        if reason is None and uses is not None:
            reason = self._why_unused_by_notebook(name, uses)
        return reason

    def _why_unused_with_records(self, name: str) -> str | None:
        if name == "dataset":
            names = listed(self.dataset)
            if len(names) > 1:
                return "cannot be used beside records: give one file of questions"
            if not os.path.isfile(names[0]):
                return "is not a file; beside records, dataset must be a file of their questions"
            return None
        of_nli = name in ("device", "generations_dir") and not {"lexical", "alias"}.issuperset(listed(self.similarity))
        if name == "n_answers" or of_nli or name not in (*_OF_GENERATION, "generations_dir"):
            return None
        return f"has no effect: the answers come from records={self.records!r}; remove it"

    def _why_unused_by_strategies(self, name: str) -> str | None:
        if name not in _OF_STRATEGIES or (name == "n_answers" and self.n_answers == N_ANSWERS):
            return None
        strategies = dict.fromkeys((self.strategy, *self.other_strategies))
        users = [kind for kind, strategy in STRATEGIES.items() if name in [field.name for field in fields(strategy)]]
        if strategies.keys() & set(users):
            return None
        run = f"strategies {', '.join(strategies)} do" if len(strategies) > 1 else f"strategy {self.strategy} does"
        return f"has no effect: {run} not use it; it is a parameter of {' and '.join(users)}"

    def _why_unused_by_notebook(self, name: str, uses: Sequence[str]) -> str | None:
        if name in _OF_EVERY_NOTEBOOK:
            return None
        if name == "seed":
            draws_validation = "n_validation" in uses and self.n_validation is not None
            samples = self.records is None and SAMPLES in (self.strategy, *self.other_strategies)
            if self.limit is not None or samples or draws_validation or self._splits_records():
                return None
            return "has no effect: nothing is drawn at random, neither questions (limit) nor samples"
        if name == "n_validation":
            if self._splits_records() or self._lends_validation():
                return None
            return "has no effect: this notebook does not choose alpha, and the questions have a validation split"
        return f"is not used by this notebook; beside its models, questions and answers it uses {', '.join(uses)}"

    def _splits_records(self) -> bool:
        """Return whether some records do not say their splits, so that validation questions are drawn."""
        if self.records is None:
            return False
        with warnings.catch_warnings(action="ignore"):  # they are raised when the records are read for good
            tables = [self._all_records(*pair).questions for pair in self.pairs()]
        return any(table["split"].isna().any() for table in tables)

    def _lends_validation(self) -> bool:
        """Return whether some question file has no validation split, so that test questions become one."""
        names = [] if self.records is not None else listed(self.dataset)
        with warnings.catch_warnings(action="ignore"):
            sets = [question_sets.load(path=name, split=None, n_shots=0) for name in names if os.path.isfile(name)]
        return any("validation" not in set(questions.table["split"]) for questions in sets)

    @classmethod
    def of(cls, names: Mapping[str, Any], *, uses: Sequence[str] | None = None, **constants: Any) -> Settings:
        """Return what a notebook's parameters cell declares, what papermill has injected, and the `constants`.

        Figures of other parameters than the notebook comes with go to a folder
        of their own in `figures/other/`, unless `figures_dir` is given.

        Args:
            names: the notebook's `globals()`.
            uses: the parameters that the notebook reads, beside those of its questions, runs and figures. Another one
                that is given is an error; None accepts all.
            constants: values that the notebook fixes, such as the strategies that it runs beside `strategy`.

        Raises `SentenceError` for a value that is wrong, and for one that is not the notebook's own and has no effect.
        """
        declared, injected = _parameters(names.get("In", ()))
        values = {name: names[name] for name in [*declared, *injected]}
        for name, constant in {**constants, "notebook": None}.items():
            if name in values and not _same(values[name], constant):
                raise SentenceError(
                    f"{name}={values[name]!r} has no effect: this notebook fixes {name}={constant!r}; remove it"
                )
        fixes_exact = EXACT in (constants.get("strategy"), *constants.get("other_strategies", ()))
        come_with = _COME_WITH | (_EXACT_COMES_WITH if fixes_exact else {})
        usual: dict[str, tuple] = {}
        for name, default in _defaults().items():
            if name in injected:
                usual[name] = (declared.get(name, default),)  # papermill leaves the cell as the notebook comes
            elif uses is None or name in (*uses, *_OF_EVERY_NOTEBOOK):
                usual[name] = (default, *come_with.get(name, ()))
            else:
                usual[name] = (default,)
        changes = {
            name: value for name, value in values.items() if not any(_same(value, one) for one in usual.get(name, ()))
        }
        use = NotebookUse(None if uses is None else tuple(uses), tuple(changes))
        settings = cls(**values | constants, notebook=use)
        folders = {name: value for name, value in changes.items() if not name.endswith("_dir")}
        if folders and values.get("figures_dir") is None:
            settings = replace(settings, figures_dir=settings.figures_dir / "other" / files.folder_name(**folders))
            print(f"Figures go to {settings.figures_dir}")
        _ = settings.choices  # a file of labels is read
        return settings

    @property
    def choices(self) -> Choices:
        """What makes an answer right, as `correctness` says."""
        is_named = self.correctness in CORRECTNESS
        right = {"correctness": self.correctness} if is_named else {"labels": importing.read_labels(self.correctness)}
        return Choices(**right, **self._values("convention", "distinct"))

    def pairs(self) -> list[tuple[str, str]]:
        """Return every (model, dataset), model by model, so that each is loaded once; of records their names."""
        if self.records is not None:
            return list(importing.recorded(listed(self.records)))
        return [(model, dataset) for model in listed(self.model) for dataset in listed(self.dataset)]

    def pair(self) -> tuple[str, str]:
        """Return the only (model, dataset); `ValueError` where several are given, or several files of records."""
        pairs = self.pairs()
        if len(pairs) > 1:
            names = ("model", "dataset") if self.records is None else ("records",)
            [name, *_] = [name for name in names if len(listed(getattr(self, name))) > 1]
            value = getattr(self, name)
            raise SentenceError(f"{name}={value!r}: this notebook is of one {name} at a time; give one")
        return pairs[0]

    def questions(self, dataset: str, *splits: str) -> question_sets.QuestionSet:
        """Return the questions of the splits named; a file without validation lends `n_validation` of its own."""
        named = dataset in question_sets.NAMES
        where = {"name": dataset} if named else {"path": dataset, "n_validation": self.n_validation or 100}
        prompt = self._values("limit", "seed", "n_shots", "header", "template")
        return question_sets.load(**where, split=splits or self.split, **prompt)

    def run(self, model: str, dataset: str, *splits: str, strategy: str | None = None) -> Run:
        """Return the stored run of these questions, generated where it is missing; or the records of these splits.

        Without `splits` they are those of `split`. Of records, `all` is every question; those that do not say their
        splits are split at random into validation and test. `limit` holds for each split, as of question sets.
        `n_answers` are the first answers of each question in its record, which are the most probable ones where the
        record lists them by probability.
        """
        if self.records is not None:
            return self._recorded(model, dataset, splits or (self.split,))
        questions, name = self.questions(dataset, *splits), strategy or self.strategy
        if stored := self._stored(model, questions, name):
            return stored
        from pro_lib import generation

        work = own_settings(name, vars(self)) | self._values("batch_size", "chat", "engine", "n_workers")
        return generation.generate(self.loaded(model), questions, strategy=name, out=self.generations_dir, **work)

    def both_splits(self, model: str, dataset: str, strategy: str | None = None) -> Run:
        """Return one run of the validation questions and of those reported, so that each is generated once."""
        if self.records is not None:
            return self._recorded(model, dataset, ("validation", self.split))
        return self.run(model, dataset, *dict.fromkeys(("validation", self.split)), strategy=strategy)

    def evaluations(self, model: str, dataset: str, *splits: str | None, methods: str = "own") -> list[Evaluation]:
        """Return each split's evaluations, one a protocol; `all` methods judge the likeliest answer of every run."""
        options: dict[str, Any] = {"protocols": list(PROTOCOLS), "choices": self.choices}
        answers = self.both_splits(model, dataset, self.strategy)
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
        from pro_lib import plots

        inputs = [*listed(self.dataset), *listed(self.records or ()), self.correctness]
        return plots.save(figure, table, name, figures_dir=self.figures_dir, title=title, inputs=inputs)

    def loaded(self, model: str) -> Model:
        """Return the model, loaded as the parameters say, or as it is held."""
        from pro_lib.generation import models

        try:
            return models.held(model, **self._values("device", "dtype"), **(self.loading or {}))
        except FileNotFoundError as error:
            if self.loading and isinstance(error.__cause__, TypeError):
                refused = f"loading={self.loading!r} has an option that transformers does not take for this model"
                raise SentenceError(f"{refused} ({error.__cause__})") from error
            raise

    def _values(self, *names: str) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names}

    def _stored(self, model: str, questions: question_sets.QuestionSet, strategy: str) -> Run | None:
        """Return a stored run that answers these questions as asked for; the model is not loaded to find out."""
        chat: Any = False if self.chat is None and questions.shots else self.chat
        how = decoding.strategy(strategy, chat=chat, **own_settings(strategy, vars(self)))
        folder = self.generations_dir / questions.name / catalog.model_folder_name(model)
        folder /= files.folder_name(how.name, **how.changes(), **questions.changes(chat=chat))
        if chat is None or self.loading or not storage.has_answers(folder):
            return None  # without shots, or loaded in another way, the model decides
        parameters = storage.read_info(folder).parameters
        source = Path(catalog.locate(model))
        wanted = {**parameters, "chat": None} | how.parameters() | questions.parameters(chat=chat)
        if self.dtype != "auto":
            wanted["dtype"] = self.dtype
        if source.exists():
            wanted["fingerprint"] = catalog.fingerprint(source)
        if storage.difference(parameters, wanted) is not None:
            return None
        try:
            return runs.read(folder, questions=questions.table)
        except storage.UnansweredError:
            return None  # the others are asked

    def _recorded(self, model: str, dataset: str, splits: Sequence[str]) -> Run:
        """Return the records of these splits, at most `limit` questions of each and `n_answers` answers of a question.

        Records without validation questions are taken as they are. Raises `RunError` where they lack another split.
        """
        run = self._all_records(model, dataset)
        if self.n_answers is not None:
            run = replace(run, answers=run.answers[run.answers["rank"] < self.n_answers].reset_index(drop=True))
        if tuple(splits) == ("all",) and self.limit is None:
            return run  # it does not matter to which split a question belongs
        run = importing.split_records(run, n_validation=self.n_validation, seed=self.seed)
        split = run.questions["split"]
        existing = list(dict.fromkeys(split))
        missing = [name for name in splits if name not in (*existing, "all", "validation")]
        if missing or not {"all", *existing}.intersection(splits):
            name = [*missing, *splits][0]
            raise files.RunError(f"split={name!r} is not in run {run.name}; it has {', '.join(existing)}")
        wanted = existing if "all" in splits else [name for name in existing if name in splits]
        if self.limit is None and len(wanted) == len(existing):
            return run
        chosen: list[int] = []
        for name in wanted:
            rows = np.flatnonzero(split == name)
            size = min(self.limit or len(rows), len(rows))
            chosen.extend(np.random.default_rng(self.seed).choice(rows, size=size, replace=False))
        return run.select(question_ids=list(run.questions["question_id"].iloc[sorted(chosen)]))

    def _all_records(self, model: str, dataset: str) -> Run:
        """Return the records; a question file given as `dataset` says what was asked where they do not."""
        file, questions = listed(self.dataset)[0], None
        if file not in question_sets.NAMES and os.path.exists(file):
            questions = question_sets.load(path=file, split=None, n_shots=0)
            if "validation" not in set(questions.table["split"]):
                questions = replace(questions, table=questions.table.assign(split=None))  # so that one is drawn
        return importing.from_file(importing.recorded(listed(self.records or ()))[model, dataset], questions=questions)

    def _similarity(self, name: str, model: str, dataset: str) -> Similarity | None:
        if name == "lexical":
            return scoring.lexical
        if name == "alias":
            if self.records is not None:
                table = self._all_records(model, dataset).questions
            elif dataset in question_sets.BUNDLED:  # of all splits: a wrong answer is often the right one to another
                table = question_sets.load(dataset, split=None, n_shots=0).table
            else:
                table = self.questions(dataset, "validation", self.split).table
            return scoring.Alias(table) if table["references"].notna().all() else None
        chosen: dict[str, Any] = {} if name == "nli" else {"model": name}
        cache = self.generations_dir / Path(dataset).stem / catalog.model_folder_name(model)
        return scoring.Nli(**chosen, device=None if self.device == "auto" else self.device, cache=cache)


def _default_folders() -> dict[str, Path]:
    return {"generations_dir": catalog.HOME / "data" / "generations", "figures_dir": catalog.HOME / "figures"}


def _defaults() -> dict[str, Any]:
    """Return the default of every parameter, and of what notebooks fix nothing."""
    declared = {field.name: field.default for field in fields(Settings)}
    fixed = ("other_strategies", "reported", "notebook")
    return {name: default for name, default in (declared | _default_folders()).items() if name not in fixed}


def _same(value: object, other: object) -> bool:
    """Return whether two values of a parameter mean the same, as a name and a list of it do."""
    return _plain(value) == _plain(other)


def _plain(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return value[0] if len(value) == 1 and isinstance(value[0], str) else list(value)
    return None if value == {} else value


def _parameters(cells: Iterable[str]) -> tuple[dict[str, Any], list[str]]:
    """Return what the latest cell of nothing but typed names declares, and the names that papermill injected after it.

    What is declared comes with its value as the cell has it; one that is no literal is unlike any other.
    """
    declared: dict[str, Any] = {}
    injected: list[str] = []
    for cell in cells:
        with suppress(SyntaxError):
            statements: list[Any] = ast.parse(cell).body
            if cell.startswith("# Parameters\n"):
                injected = [statement.targets[0].id for statement in statements]
            elif statements and all(isinstance(statement, ast.AnnAssign) for statement in statements):
                declared = {statement.target.id: _literal(statement.value) for statement in statements}
                injected = []
    return declared, injected


def _literal(expression: Any) -> object:
    try:
        return ast.literal_eval(expression)
    except (ValueError, TypeError):
        return object()
