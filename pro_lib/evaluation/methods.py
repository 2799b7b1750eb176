"""The registry of uncertainty methods.

Every table, figure, legend, report and command takes the names and meanings of methods from
`METHODS`. `evaluation.inputs` computes what the methods read.
"""

from __future__ import annotations

import inspect
import runpy
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np

from pro_lib import scoring
from pro_lib.common.validation import SentenceError
from pro_lib.metrics.roc import FloatArray

# What a score may read: an argument of its function has one of these names. n questions have up to
# N answers that count, and up to S samples. Arrays have NaN where a question has fewer.
_ANSWER_INPUTS = {
    "log_probs": "log-probabilities of the answers, most probable first, (n, N)",
    "mean_log_probs": "the same per token, (n, N)",
    "search_alpha": "the α of an exact search, None for other answers",
    "sample_log_probs": "log-probabilities of the samples, (n, S)",
    "sample_mean_log_probs": "the same per token, (n, S)",
    "texts": "the texts of the answers, None for a missing one, (n, N)",
}
# These are computed once for each similarity.
SIMILARITY_INPUTS = {
    "similarity": "similarities of the answers, (n, N, N) or (n, N, N, 3)",
    "meaning": "the number of each answer's meaning, -1 for a missing answer, (n, N)",
    "weights": "log-probabilities of the answers, equal weights for texts alone, (n, N)",
    "density_log_probs": "log-probabilities per token of the answers with different texts, (n, N)",
    "meaning_log_probs": "log-probabilities of the meanings, (n, C)",
    "sample_similarity": "similarities of the samples, (n, S, S) or (n, S, S, 3)",
    "agreement": "share of the samples with the meaning of the judged answer, (n,)",
}
INPUTS = _ANSWER_INPUTS | SIMILARITY_INPUTS
# Names that a method must not have: those of rows in tables of methods, and of columns of the table
# of `pro score`.
RESERVED = (
    *("PRO, default", "PRO, oracle", "oracle", "pro", "nll", "n_kept", "mass", "kept"),
    *("question_id", "question", "text", "field", "correct", "mistrust", "reason", "likelier_cut"),
)
LEXICAL = ", lexical"  # ends the names of scores by the lexical similarity
FIGURES = ("auroc", "answered", "calibration")
_GROUP = "pro_lib.methods"  # of entry points


@dataclass(frozen=True)
class Method:
    """An uncertainty score.

    Attributes:
        name: its name in tables and figures, such as "SE".
        score: a function of some of `INPUTS`, which its arguments name, that returns scores (n,),
            higher = more uncertain. If it has an argument `alpha`, α is chosen on validation
            questions, and `alpha` may be an array (A,), for which it returns (n, A). None for
            scores that only records contain, as a column `score_<name>`.
        meaning: one sentence for figures and the report.
        source: the paper and the equation.
        figures: the kinds of figures in which it is drawn, some of `FIGURES`. Tables have every
            method.
        in_paper: whether the protocol `paper` has it.
        needs_several: whether it says nothing about a question with a single answer.
    """

    name: str
    score: Callable[..., FloatArray] | None
    meaning: str
    source: str = ""
    figures: tuple[str, ...] = FIGURES
    in_paper: bool = True
    needs_several: bool = False

    @classmethod
    def of(cls, function: Callable[..., FloatArray]) -> Method:
        """Return the method of a function, with its name and the first line of its docstring."""
        lines = inspect.getdoc(function) or function.__name__
        return cls(function.__name__, function, lines.splitlines()[0].rstrip("."))

    @cached_property
    def reads(self) -> frozenset[str]:
        """The inputs of the score."""
        return frozenset(self._arguments) - {"alpha"}

    @property
    def needs_alpha(self) -> bool:
        """Whether the score has an α."""
        return "alpha" in self._arguments

    @property
    def per_similarity(self) -> bool:
        """Whether there is a score for each similarity."""
        return not self.reads.isdisjoint(SIMILARITY_INPUTS)

    @cached_property
    def _arguments(self) -> tuple[str, ...]:
        return () if self.score is None else tuple(inspect.signature(self.score).parameters)


METHODS: dict[str, Method] = {}
BUILT_IN: set[str] = set()


def register(method: Method | Callable[..., FloatArray]) -> Method:
    """Add a method, which every evaluation then computes.

    A method that was added before under the same name is replaced.

    Args:
        method: the method, or a function whose arguments are among `INPUTS` and `alpha`.

    Returns:
        The method.

    Raises:
        SentenceError: the name is that of a method of this package, or is not allowed, or the
            function has another argument.

    Example:
        >>> def margin(log_probs):
        ...     '''Minus the distance between the two most probable answers.'''
        ...     two = log_probs[:, :2]
        ...     return -np.nan_to_num(two[:, 0] - two[:, -1])
        >>> register(margin).meaning
        'Minus the distance between the two most probable answers'
        >>> del METHODS["margin"]
    """
    added = method if isinstance(method, Method) else Method.of(method)
    unknown = sorted(added.reads - set(INPUTS))
    if unknown:
        raise SentenceError(
            f"method {added.name!r} reads {unknown[0]!r}, which is unknown; the arguments of its "
            f"function may be alpha, {', '.join(INPUTS)}"
        )
    if not added.name.strip() or "," in added.name:
        raise SentenceError(f"method name {added.name!r} must be a text without a comma")
    if added.name in BUILT_IN or added.name in RESERVED:
        raise SentenceError(f"method {added.name!r} exists already; choose another name")
    METHODS[added.name] = added
    return added


@lru_cache(maxsize=1)
def load_entry_points() -> None:
    """Register the methods of installed packages, which name them as entry points."""
    for entry in entry_points(group=_GROUP):
        try:
            register(entry.load())
        except Exception as error:
            # Another package must not end every command.
            warnings.warn(f"method {entry.value} is left out: {error}", UserWarning, stacklevel=2)


def find_methods(names: Iterable[str]) -> list[str]:
    """Return the names of methods, after those given as `file.py:name` are registered.

    Args:
        names: names of methods, or `file.py:name` of a `Method` or a function in a Python file.

    Raises:
        SentenceError: a file cannot be read, or does not have the name.
    """
    load_entry_points()
    method_names = []
    for name in names:
        path, separator, attribute = name.rpartition(":")
        is_file = separator and path.endswith(".py")
        method_names.append(register(_from_file(path, attribute)).name if is_file else name)
    return method_names


def _from_file(path: str, attribute: str) -> Any:
    """Return a method or function of a Python file, which is run."""
    if not Path(path).is_file():
        raise SentenceError(f"methods={path}:{attribute}: there is no file {path}")
    try:
        method = runpy.run_path(path).get(attribute)
    except Exception as error:
        raise SentenceError(f"methods={path}:{attribute} cannot be run: {error}") from error
    if not callable(method) and not isinstance(method, Method):
        raise SentenceError(f"methods={path}:{attribute}: {path} has no function {attribute!r}")
    return method


def computed_methods(*, is_paper: bool = False) -> list[Method]:
    """Return the registered methods that have a function, in the order of the tables.

    Args:
        is_paper: whether to return only those of the protocol `paper`.
    """
    load_entry_points()
    methods = [method for method in METHODS.values() if method.score is not None]
    return [method for method in methods if method.in_paper or not is_paper]


def split_name(name: str) -> tuple[str, str]:
    """Return the method and the similarity in the name of a score, such as SE and lexical.

    The similarity is "" for a method without one, and for a score that records contain, which keeps
    its name, such as "SE, given".

    Example:
        >>> split_name("SE, lexical"), split_name("SE, given")
        (('SE', 'lexical'), ('SE, given', ''))
    """
    if name.endswith(", given"):
        return name, ""
    method, _, similarity = name.partition(", ")
    return method, similarity


def short_name(name: str) -> str:
    """Return the name of a score without the lexical similarity, if it has this one."""
    return name.removesuffix(LEXICAL)


def select_methods(names: Sequence[str], methods: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the requested methods in their usual order, or all.

    Args:
        names: the names of the scores, such as "SE, lexical".
        methods: the short names of the requested methods, such as "SE".

    Raises:
        SentenceError: if one of them is not among the names.
    """
    if methods is None:
        return tuple(names)
    known = list(map(short_name, names))
    unknown = [name for name in methods if name not in known]
    if unknown:
        alike = [name for name in known if name.lower() == unknown[0].lower()]
        question = f" Did you mean {alike[0]}?" if alike else ""
        raise SentenceError(
            f"Method {unknown[0]!r} cannot be computed from these answers.{question} "
            f"Choose from {', '.join(known)}."
        )
    return tuple(name for name in names if short_name(name) in methods)


def is_drawn(name: str, kind: str) -> bool:
    """Return whether a score is drawn in figures of a kind (`Method.figures`).

    A score that only records have is drawn in figures of AUROC, unless it is called "…, given".
    """
    method = METHODS.get(split_name(name)[0])
    if method is not None:
        return kind in method.figures
    return kind == "auroc" and not name.endswith(", given")


def score_of(method: Method, inputs: Mapping[str, Any], **settings: Any) -> FloatArray:
    """Return the score of a method, from inputs by name.

    Raises:
        SentenceError: the result is not an array with a value per question.
    """
    assert method.score is not None
    used = {name: inputs[name] for name in method.reads if name in inputs}
    values = np.asarray(method.score(**used, **settings))
    n_questions = len(inputs["log_probs"])
    if values.shape[:1] != (n_questions,) or values.dtype.kind not in "fiub":
        raise SentenceError(
            f"method {method.name!r} returned an array of shape {values.shape} and type "
            f"{values.dtype}, not a number for each of {n_questions} questions"
        )
    return values.astype(np.float64)


for _method in (
    Method(
        "PRO",
        scoring.pro,
        "lower bound of the entropy if each answer counts once, −log p_K − Σ p log(p / p_K) over "
        "the K answers with p ≥ α, or NLL if there are none",
        "Nguyen, Gupta and Le 2026, Eq. 6",
    ),
    Method("NLL", scoring.nll, "negative log-likelihood, −log p of the most probable answer"),
    Method(
        "ALL",
        scoring.average_log_likelihood,
        "average log-likelihood, NLL per token",
        figures=("auroc", "answered"),
    ),
    Method(
        "PE",
        scoring.predictive_entropy,
        "predictive entropy, −Σ p log p of the answers found, small if all have a small p",
        "Malinin and Gales 2021",
        needs_several=True,
    ),
    Method(
        "PE-MC",
        lambda sample_log_probs: scoring.predictive_entropy_mc(sample_log_probs),
        "mean of −log p",
        "Malinin and Gales 2021",
        figures=(),
    ),
    Method(
        "NE",
        lambda sample_mean_log_probs: scoring.normalized_entropy(sample_mean_log_probs),
        "normalized entropy, mean of −log p per token",
        "Malinin and Gales 2021",
        figures=("auroc",),
    ),
    Method(
        "SE",
        lambda weights, meaning: scoring.semantic_entropy(weights, meaning),
        "semantic entropy, the entropy over meanings",
        "Farquhar et al. 2024",
        figures=("auroc", "answered"),
    ),
    Method(
        "SD",
        lambda density_log_probs, similarity: scoring.semantic_density(
            density_log_probs, similarity
        ),
        "semantic density, how improbable similar answers are",
        "Qiu and Miikkulainen 2024",
        figures=("auroc", "answered"),
    ),
    Method(
        "Deg",
        lambda sample_similarity: scoring.degree(sample_similarity),
        "degree, difference in meaning between samples",
        "Lin et al. 2023",
        figures=("auroc", "answered"),
    ),
    Method(
        "S-NLL",
        lambda meaning_log_probs: scoring.nll(meaning_log_probs),
        "NLL of the most probable meaning",
        in_paper=False,
        figures=(),
    ),
    Method(
        "SC",
        lambda agreement: 1 - agreement,
        "share of samples that disagree with the answer",
        in_paper=False,
        figures=(),
    ),
    Method(
        "S-PRO",
        lambda meaning_log_probs, search_alpha, alpha: scoring.pro(
            meaning_log_probs, alpha=alpha, search_alpha=search_alpha
        ),
        "PRO of meanings",
        in_paper=False,
        figures=(),
    ),
    Method(
        "P(True)",
        None,
        "how improbable the model finds it that its answer is true",
        "Kadavath et al. 2022",
        figures=("auroc",),
    ),
    Method(
        "EigV",
        None,
        "number of meanings of the samples (sum of eigenvalues)",
        "Lin et al. 2023",
        figures=(),
    ),
    Method(
        "Ecc",
        None,
        "distance of the samples from their centre (eccentricity)",
        "Lin et al. 2023",
        figures=(),
    ),
    Method("Stated", None, "1 minus the confidence that the model states", figures=()),
):
    register(_method)
BUILT_IN.update(METHODS)
