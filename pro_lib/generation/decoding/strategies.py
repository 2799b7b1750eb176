"""Decoding strategies: each holds its settings, names what decides a run, and decodes.

Torch is loaded only to decode.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, asdict, fields
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import ArrayLike

from pro_lib.common.validation import (
    NotNegative,
    Positive,
    PositiveInt,
    PositiveShare,
    Texts,
    WholeNumber,
    checked,
)
from pro_lib.runs.certificate import Certificate

if TYPE_CHECKING:
    from pro_lib.generation.decoding.next_tokens import Endings
    from pro_lib.generation.decoding.packed_tree import Tree
    from pro_lib.generation.decoding.steps import Outcome


@checked
class Strategy:
    """The settings that decide the answers to a question, in addition to the model and the prompt.

    Attributes:
        name: name of the strategy in `STRATEGIES`.
        ranked: whether answers are stored in descending order of probability. If not, they keep
            the order in which they were drawn.
        max_new_tokens: the number of tokens T at which an answer is cut, its ending included.
        stop: further texts that end an answer. The endings of the model must already contain them.

    Example:
        >>> Greedy(max_new_tokens=8).parameters()
        {'strategy': 'greedy', 'max_new_tokens': 8, 'stop': []}
    """

    name: ClassVar[str]
    ranked: ClassVar[bool] = True
    _: KW_ONLY
    max_new_tokens: PositiveInt = 32
    stop: Texts = ()

    def parameters(self) -> dict[str, Any]:
        """Return the settings that decide a run, as values for JSON."""
        return {"strategy": self.name, **asdict(self), "stop": list(self.stop)}

    def changes(self) -> dict[str, Any]:
        """Return the settings that differ from the defaults, for the name of a run folder."""
        defaults = asdict(type(self)())
        return {
            name: value
            for name, value in asdict(self).items()
            if value is not None and value != defaults[name]
        }

    def decode(
        self,
        tree: "Tree",
        endings: "Endings",
        *,
        question_ids: Sequence[str],
        epsilon: ArrayLike = 0.0,
    ) -> list[tuple[list["Outcome"], Certificate | None]]:
        """Decode the answers to each question of a tree.

        Args:
            tree: the prompts of the questions.
            endings: the tokens that end an answer.
            question_ids: ids of the questions, which seed samples.
            epsilon: error of log-probabilities in nats, for an exact search: a number, or one per
                prefix length, (T + 1,); see `exact_search.search`.

        Returns:
            For each question its answers, and the certificate of an exact search or None.

        Raises:
            ValueError: the model is behind a server and the strategy needs all probabilities.
        """
        if getattr(tree, "is_partial", False):
            raise ValueError(
                f"strategy={self.name!r} needs all probabilities, but a server lists only some; "
                "use strategy='threshold'"
            )
        return [(answers, None) for answers in self._decode(tree, endings, question_ids)]

    def _decode(
        self, tree: "Tree", endings: "Endings", question_ids: Sequence[str]
    ) -> list[list["Outcome"]]:
        """Return the answers to each question."""
        raise NotImplementedError


@checked
class Greedy(Strategy):
    """Greedy decoding: one answer, of the most probable token at each step.

    Example:
        >>> Greedy().max_new_tokens
        32
    """

    name: ClassVar[str] = "greedy"

    def _decode(
        self, tree: "Tree", endings: "Endings", question_ids: Sequence[str]
    ) -> list[list["Outcome"]]:
        from pro_lib.generation.decoding.beams import greedy

        return greedy(tree, endings, max_new_tokens=self.max_new_tokens)


@checked
class Multinomial(Strategy):
    """N samples, each decided by the seed, the question id and the sample number.

    The log-probabilities of samples are those of the unmodified model.

    Attributes:
        n_answers: the number of samples N.
        seed: the seed.
        temperature: divides the logits before a draw.
        top_p: mass of the nucleus from which a token is drawn (Holtzman et al. 2020).

    Example:
        >>> Multinomial(n_answers=20, seed=1).changes()
        {'n_answers': 20, 'seed': 1}
    """

    name: ClassVar[str] = "multinomial"
    ranked: ClassVar[bool] = False
    n_answers: PositiveInt = 10
    seed: WholeNumber = 0
    temperature: Positive = 1.0
    top_p: PositiveShare = 1.0

    def _decode(
        self, tree: "Tree", endings: "Endings", question_ids: Sequence[str]
    ) -> list[list["Outcome"]]:
        from pro_lib.generation.decoding.sampling import multinomial, uniforms

        numbers = uniforms(self.seed, question_ids, self.n_answers, self.max_new_tokens)
        return multinomial(
            tree, endings, uniforms=numbers, temperature=self.temperature, top_p=self.top_p
        )


@checked
class DiverseBeam(Strategy):
    """Diverse beam search with N groups of one beam each (Vijayakumar et al. 2018).

    Attributes:
        n_answers: the number of groups N.
        diversity_penalty: the Hamming penalty λ in nats.

    Example:
        >>> DiverseBeam(n_answers=5).changes()
        {'n_answers': 5}
    """

    name: ClassVar[str] = "diverse_beam"
    n_answers: PositiveInt = 10
    diversity_penalty: NotNegative = 1.0

    def _decode(
        self, tree: "Tree", endings: "Endings", question_ids: Sequence[str]
    ) -> list[list["Outcome"]]:
        from pro_lib.generation.decoding.beams import diverse_beam

        return diverse_beam(
            tree,
            endings,
            self.n_answers,
            self.diversity_penalty,
            max_new_tokens=self.max_new_tokens,
        )


@checked
class Threshold(Strategy):
    """Exact search for all answers with p ≥ α, or for the N most probable answers.

    Attributes:
        search_alpha: α; 0.02 if `top_n` is not set either.
        top_n: N.
        budget: the greatest number of token-forwards for a question; None for no limit.

    Example:
        >>> Threshold().search_alpha
        0.02
        >>> Threshold(top_n=3).changes()
        {'top_n': 3}
    """

    name: ClassVar[str] = "threshold"
    search_alpha: PositiveShare | None = None
    top_n: PositiveInt | None = None
    budget: WholeNumber | None = None

    def __post_init__(self) -> None:
        if self.search_alpha is not None and self.top_n is not None:
            raise ValueError(
                "search_alpha and top_n are two ways to end a search; give one of them"
            )
        if self.search_alpha is None and self.top_n is None:
            object.__setattr__(self, "search_alpha", 0.02)  # the dataclass is frozen

    def decode(
        self,
        tree: "Tree",
        endings: "Endings",
        *,
        question_ids: Sequence[str],
        epsilon: ArrayLike = 0.0,
    ) -> list[tuple[list["Outcome"], Certificate | None]]:
        """Search the answers to each question of a tree.

        The arguments and their shapes are those of `Strategy.decode`.
        """
        from pro_lib.generation.decoding.exact_search import search

        results = search(
            tree,
            endings,
            max_new_tokens=self.max_new_tokens,
            search_alpha=self.search_alpha,
            top_n=self.top_n,
            budget=self.budget,
            epsilon=epsilon,
        )
        return list(results)


# The registry: `generate`, `ask`, notebooks and `pro` look up a strategy by its name here.
STRATEGIES: dict[str, type[Strategy]] = {
    kind.name: kind for kind in (Greedy, Multinomial, DiverseBeam, Threshold)
}


def strategy(name: str, *, chat: bool | Mapping = False, **settings: Any) -> Strategy:
    """Return the strategy of a name with its settings.

    Args:
        name: a name in `STRATEGIES`.
        chat: whether prompts are chats, or options of the chat template. It decides the default of
            `max_new_tokens`: 64 in a chat, where answers are sentences, else 32.
        settings: fields of the strategy.

    Raises:
        ValueError: the strategy is unknown, or does not have one of the settings.

    Example:
        >>> strategy("diverse_beam", n_answers=5).changes()
        {'n_answers': 5}
    """
    setting_names = _setting_names(name)
    unknown = sorted(settings.keys() - set(setting_names))
    if unknown:
        choices = ", ".join(setting_names)
        raise ValueError(
            f"strategy {name!r} does not have the setting {unknown[0]!r}; choose {choices}"
        )
    if settings.get("max_new_tokens") is None:
        settings["max_new_tokens"] = 64 if chat else 32
    return STRATEGIES[name](**settings)


def own_settings(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Select the settings that a strategy has.

    A setting that is None is left at its default.

    Args:
        name: a name in `STRATEGIES`.
        settings: settings of any strategies by their names.

    Raises:
        ValueError: the strategy is unknown.
    """
    setting_names = _setting_names(name)
    return {
        setting: value
        for setting, value in settings.items()
        if setting in setting_names and value is not None
    }


def _setting_names(name: str) -> list[str]:
    """Return the names of the settings of a strategy."""
    if name not in STRATEGIES:
        raise ValueError(f"strategy={name!r} is unknown; choose {', '.join(STRATEGIES)}")
    return [field.name for field in fields(STRATEGIES[name])]
