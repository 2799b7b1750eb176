"""The parameters that notebooks and the command line share: names, types, defaults, help texts."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from pro_lib import importing
from pro_lib.common import catalog
from pro_lib.common.validation import (
    Chat,
    Dtype,
    Engine,
    Flag,
    Name,
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
from pro_lib.evaluation.inputs import PROTOCOLS
from pro_lib.evaluation.methods import METHODS, find_methods
from pro_lib.evaluation.p_true import P_TRUE
from pro_lib.generation.decoding.strategies import STRATEGIES
from pro_lib.questions import question_sets
from pro_lib.questions.file_readers import unzipped
from pro_lib.questions.question_formats import COLUMN_NAMES
from pro_lib.questions.question_sets import TEMPLATE, Template
from pro_lib.runs.run import Convention
from pro_lib.scoring.similarity import SIMILARITIES

# A comparison of methods needs beams for PRO, NLL, ALL, PE, SE and SD, and samples for PE-MC, NE
# and Deg.
SAMPLES = "multinomial"
EXACT = "threshold"
GREEDY = "greedy"

_IN_MEMORY = "loaded_models"  # not a parameter of users
# Options of `load_model` that are parameters of their own, by the names of these.
_LOADING_PARAMETERS = {
    "name": "model",
    "model": "model",
    "torch_dtype": "dtype",
    "dtype": "dtype",
    "device": "device",
}


def as_list(names: str | Sequence[str] | None) -> list[str]:
    """Return one name, or several, or none, as a list."""
    return [names] if isinstance(names, str) else list(names or ())


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _are_names(names: object) -> bool:
    if isinstance(names, list | tuple):
        return len(names) > 0 and all(map(_is_name, names))
    return _is_name(names)


Names = Annotated[
    str | Sequence[str],
    rule(object, _are_names, "must be a name or a list of names, none of them empty"),
]


Columns = Annotated[
    Any,
    rule(
        dict,
        lambda columns: (
            set(columns) <= set(COLUMN_NAMES) and all(map(_are_names, columns.values()))
        ),
        "must be a dict of names of columns, such as {'question': 'Frage'}; its keys may be "
        f"{', '.join(COLUMN_NAMES)}",
    ),
]
_FOLDER = rule(
    (str, Path, type(None)),
    lambda folder: folder is None or _is_name(str(folder)),
    "must be a path, or None; it must not be empty",
)
_Folder = Annotated[Any, _FOLDER]
Rule = Annotated[
    Any, rule(object, lambda given: callable(given) or _is_name(given), "must be a name")
]


def parameter(
    default: Any, help_text: str, *, of_model: bool = False, changes_numbers: bool = True
) -> Any:
    """Declare a parameter: its default, and the help text that notebooks, CLI and docs show.

    Args:
        default: the default.
        help_text: the help text.
        of_model: whether it decides how a model answers, which contradicts answers from records.
        changes_numbers: whether it may change a number of a figure.
    """
    facts = {"help": help_text, "of_model": of_model, "changes_numbers": changes_numbers}
    return field(default=default, metadata=facts)


@checked
class Parameters:
    """The parameters of an experiment, checked.

    A `SentenceError` names a parameter that is wrong.

    Each field declares the name, type, default and help text of a parameter. The parameters cells
    of notebooks, `pro run --help` and `docs/reference/parameters.md` show the same texts, which
    tests compare.
    """

    # Models, datasets and strategies
    model: Names = parameter(
        "facts-2m",
        "one or several: bundled name, the paper's name, hub id or folder",
        of_model=True,
    )
    dataset: Names = parameter(
        "world-facts", "one or several: bundled, trivia_qa, sciq, nq or file"
    )
    split: Name = parameter("test", "the split whose results are reported")
    strategy: Name = parameter(
        "diverse_beam", "greedy, multinomial, diverse_beam or threshold", of_model=True
    )

    # Scores and guarantees
    protocol: Names = parameter(
        "paper", "how answers are counted in figures: paper, workbench, or both"
    )
    distinct: Flag | None = parameter(
        None, "whether repeated answers count once; None for the protocol's rule"
    )
    convention: Convention = parameter(
        "complete", "complete (ending included) or answer_tokens (left out)"
    )
    alphas: Probabilities | None = parameter(None, "α is chosen from these; None for 0, 0.05, …, 1")
    alpha: Probability = parameter(
        0.4, "the default α: PRO keeps answers whose probability is at least α"
    )
    target: Probabilities | None = parameter(
        None, "accuracies to guarantee; None derives them from the data"
    )
    confidence: Probability = parameter(0.95, "probability that a guarantee holds")

    # Decoding
    search_alpha: PositiveShare = parameter(
        0.02, "for strategy threshold: find every answer with p ≥ search_alpha", of_model=True
    )
    n_answers: PositiveInt | None = parameter(
        None, "N, answers per question; None for 10, or for all of records"
    )
    temperature: Positive = parameter(
        1.0, "for samples: below 1, likely tokens are drawn more often", of_model=True
    )
    top_p: PositiveShare = parameter(
        1.0, "for samples: use the likeliest tokens with this mass; 1 for all", of_model=True
    )
    diversity_penalty: NotNegative = parameter(
        1.0, "λ, the penalty for a token that another beam has taken", of_model=True
    )
    max_new_tokens: PositiveInt | None = parameter(
        None, "T, the most tokens of an answer; None for 32, or 64 in a chat", of_model=True
    )
    stop: tuple[Name, ...] = parameter(
        (), "further texts that end an answer, each of one token", of_model=True
    )

    # Questions and prompts
    columns: Columns | None = parameter(
        None, "names of a question file's columns: {'question': 'Frage'}"
    )
    strict: Flag = parameter(False, "stop at unusable rows of a file instead of leaving them out")
    limit: PositiveInt | None = parameter(
        None, "at most this many questions of each split; None for all"
    )
    n_shots: WholeNumber | None = parameter(
        None, "examples in the prompt; None for 10, or fewer for small files", of_model=True
    )
    header: Text = parameter("", "text before the examples", of_model=True)
    template: Template = parameter(
        TEMPLATE, "text of a question in the prompt; {question} is replaced", of_model=True
    )
    n_validation: PositiveInt | None = parameter(
        100, "validation questions for choosing α; None for all"
    )
    seed: WholeNumber = parameter(0, "for samples, drawn questions and redraws")

    # Loading and running the model
    batch_size: PositiveInt | None = parameter(
        None, "questions in one batch; None chooses", of_model=True, changes_numbers=False
    )
    device: Name = parameter("auto", "auto, cpu, cuda, cuda:1, mps", changes_numbers=False)
    dtype: Dtype = parameter("auto", "auto, float32, bfloat16, float16", of_model=True)
    loading: dict | None = parameter(
        None, "further options of load_model, such as {'device_map': 'auto'}", of_model=True
    )
    chat: Chat | None = parameter(
        None, "use the model's chat template; None uses it without examples", of_model=True
    )
    engine: Engine = parameter(
        "local",
        "local, or ray: workers on a Ray cluster, one per GPU",
        of_model=True,
        changes_numbers=False,
    )
    n_workers: PositiveInt | None = parameter(
        None,
        "number of ray workers; None for the number of GPUs",
        of_model=True,
        changes_numbers=False,
    )

    # Meaning and correctness of answers
    similarity: Names = parameter("lexical", "comparison of meanings: lexical, alias, nli or model")
    methods: Names | None = parameter(
        None, "further methods: P(True), which asks the model, and file.py:name; None for none"
    )
    correctness: Rule = parameter(
        "rouge_l", "rouge_l, exact_match, alias_match, label file, log:NAME or function"
    )

    # Files and figures
    records: Names | None = parameter(
        None, "files of log-probabilities made elsewhere; None asks the model"
    )
    generations_dir: _Folder = parameter(
        None, "folder of runs; None for data/generations", changes_numbers=False
    )
    figures_dir: _Folder = parameter(
        None, "folder of figures; None for figures of the repository", changes_numbers=False
    )
    figure_columns: Literal[1, 2] = parameter(2, "width of a figure in columns of a paper, 1 or 2")
    alpha_scale: Literal["log", "linear"] = parameter(
        "log", "scale of α in figures: log, or linear as in the paper"
    )

    loaded_models: dict = field(default_factory=dict)  # models in memory, by the names in `model`

    def __post_init__(self) -> None:
        # A notebook runs in another folder, so the default must not depend on the working folder.
        for name, folder in _default_folders().items():
            value = getattr(self, name)
            object.__setattr__(self, name, folder if value is None else Path(value))
        self._check_known("strategy", STRATEGIES)
        self._check_known("protocol", PROTOCOLS, "a list of them")
        nli = "an NLI model's folder or hub id"
        self._check_known("similarity", SIMILARITIES, nli, os.path.dirname)
        self._check_methods()
        self._check_distinct("protocol", str)
        self._check_distinct("similarity", lambda name: Path(name).name)
        self._check_distinct("target", str)
        self._check_options()
        if self.n_workers is not None and self.engine == "local":
            raise ValueError(f"n_workers={self.n_workers} needs engine='ray'; only ray has workers")
        files = [name for name in as_list(self.dataset) if os.path.isfile(name)]
        if self.columns and not files:
            raise ValueError(f"columns={self.columns!r} needs a question file as dataset")
        if self.records is not None:
            self._check_record_files()
        else:
            self._check_generation()

    def check_contradictions(self, changed: Collection[str]) -> None:
        """Raise an error if answers come from records, and a changed parameter contradicts that.

        Args:
            changed: the parameters whose values are not the defaults.
        """
        if self.records is None:
            return
        datasets = as_list(self.dataset)
        if "dataset" in changed and (len(datasets) > 1 or not os.path.isfile(datasets[0])):
            problem = "contradicts records; beside them, dataset is one file of their questions"
            raise SentenceError(f"dataset={self.dataset!r} {problem}")
        for name in changed:
            if _FACTS[name]["of_model"]:
                value = getattr(self, name)
                reason = f"the answers come from records={self.records!r}"
                raise SentenceError(f"{name}={value!r} contradicts records: {reason}; remove it")

    def record_files(self) -> dict[tuple[str, str], str]:
        """Return the files of records by model and dataset."""
        return importing.record_files(as_list(self.records))

    def _check_methods(self) -> None:
        """Check the methods that are not part of every comparison."""
        names = as_list(self.methods)
        unknown = [name for name in find_methods(names) if name != P_TRUE and name not in METHODS]
        if unknown:
            raise ValueError(
                f"methods={unknown[0]!r} is unknown; choose {P_TRUE}, or give a method of your own "
                "as file.py:name"
            )
        if P_TRUE in names and self.records is not None:
            raise ValueError(
                f"methods={self.methods!r} needs the model, but the answers come from records; "
                "remove it"
            )

    def _check_record_files(self) -> None:
        """Check the parameters of answers that come from records."""
        self._check_distinct("records", str)
        if self.record_files() and self.strategy == EXACT:
            problem = f"has no exact search, so strategy={EXACT!r} needs a model"
            raise ValueError(f"records={self.records!r} {problem}; give model= instead")

    def _check_generation(self) -> None:
        """Check the parameters of answers that a model generates."""
        if self.split == "all":
            raise ValueError("split='all' needs records; without them, report on one split")
        self._check_known("split", question_sets.SPLITS, "all with records")
        if self.strategy == EXACT and self.alpha < self.search_alpha:
            bound = f"search_alpha={self.search_alpha!r}"
            raise ValueError(
                f"alpha={self.alpha!r} is below {bound}, so answers between them are not searched; "
                "lower search_alpha or raise alpha"
            )
        for model in as_list(self.model):
            if model not in self.loaded_models:
                catalog.check_model(model)
        self._check_known("dataset", question_sets.NAMES, "a file or folder", os.path.exists)
        self._check_distinct("model", catalog.model_folder_name)
        self._check_distinct("dataset", dataset_label)

    def _check_known(
        self,
        name: str,
        choices: Collection[str],
        other: str = "",
        is_other: Callable = lambda _: False,
    ) -> None:
        """Check that every value of a parameter is known or is of the other kind."""
        for value in as_list(getattr(self, name)):
            if value not in choices and not is_other(value):
                or_other = f", or give {other}" if other else ""
                known = ", ".join(choices)
                raise ValueError(f"{name}={value!r} is unknown; choose {known}{or_other}")

    def _check_distinct(self, name: str, label: Callable[[Any], str]) -> None:
        """Check that no two values have the same label, because their rows would look the same."""
        values = as_list(getattr(self, name))
        for number, value in enumerate(values):
            for other in values[:number]:
                if value == other:
                    raise ValueError(f"{name}={value!r} is given twice; give it once")
                if label(value) == label(other):
                    clash = f"{name}={value!r} has the same name in tables as {other!r}"
                    raise ValueError(f"{clash}; give one of them at a time")

    def _check_options(self) -> None:
        """Check the option names in `chat` and `loading`."""
        for name in ("chat", "loading"):
            options = getattr(self, name)
            if isinstance(options, Mapping) and not all(map(_is_name, options)):
                expected = "must have names of options as its keys, none of them empty"
                raise ValueError(f"{name}={options!r} {expected}")
        for option in self.loading or ():
            if option in _LOADING_PARAMETERS:
                remedy = f"use the parameter {_LOADING_PARAMETERS[option]}"
                raise ValueError(f"loading={self.loading!r} must not have {option!r}: {remedy}")


_FACTS = {item.name: item.metadata for item in fields(Parameters) if item.metadata}


def default_values() -> dict[str, Any]:
    """Return the default of every parameter that a user may give."""
    defaults = {item.name: item.default for item in fields(Parameters) if item.name != _IN_MEMORY}
    return defaults | _default_folders()


def help_texts() -> dict[str, str]:
    """Return the help text of every parameter that a user may give."""
    return {name: facts["help"] for name, facts in _FACTS.items()}


def changes_numbers(name: str) -> bool:
    """Return whether a parameter may change a number of a figure."""
    return bool(_FACTS[name]["changes_numbers"])


def check_names(names: Iterable[str]) -> None:
    """Raise `SentenceError` for the first name that is not one of a parameter."""
    known = list(help_texts())
    for name in names:
        if name not in known:
            [nearest] = difflib.get_close_matches(name, known, n=1, cutoff=0)
            raise SentenceError(f"{name} is not a parameter; the nearest is {nearest}")


def changed_values(values: Mapping[str, Any], original: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain values of the parameters that are not the original ones, by name."""
    changed = {}
    for name in values:
        value = plain_value(values[name])
        if name in original and value != plain_value(original[name]):
            changed[name] = value
    return changed


def plain_value(value: object) -> object:
    """Return a value in the form in which values are compared: a list of one name is that name."""
    if callable(value):
        return getattr(value, "__name__", "function")
    if isinstance(value, (list, tuple)):
        is_one_name = len(value) == 1 and isinstance(value[0], str)
        return value[0] if is_one_name else list(value)
    return None if value == {} else value


def dataset_label(name: str) -> str:
    """Return the name of a dataset in tables and folders: its own, or that of its file."""
    return name if name in question_sets.NAMES else unzipped(name).stem


def _default_folders() -> dict[str, Path]:
    return {
        "generations_dir": catalog.HOME / "data" / "generations",
        "figures_dir": catalog.HOME / "figures",
    }
