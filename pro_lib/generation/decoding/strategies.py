"""The strategies: each carries its settings, says what decides a run, and decodes; needs torch only to decode."""

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
    """What decides the answers to a question, beside the model and the prompt.

    `max_new_tokens` is T, at which an answer is cut, its ending included; `stop` are further texts that end an answer,
    which the model's endings must already contain.
    """

    name: ClassVar[str]
    ranked: ClassVar[bool] = (
        True  # answers are stored downwards in probability, not in the order of their draws
    )
    _: KW_ONLY
    max_new_tokens: PositiveInt = 32
    stop: Texts = ()

    def parameters(self) -> dict[str, Any]:
        """Return what decides a run, as JSON knows it."""
        return {"strategy": self.name, **asdict(self), "stop": list(self.stop)}

    def changes(self) -> dict[str, Any]:
        """Return the settings that are not as they are by default; they go into the name of a run folder."""
        default = asdict(type(self)())
        return {
            name: value
            for name, value in asdict(self).items()
            if value is not None and value != default[name]
        }

    def _answers(self, tree: "Tree", endings: "Endings", question_ids: Sequence[str]) -> list:
        raise NotImplementedError

    def decode(
        self,
        tree: "Tree",
        endings: "Endings",
        *,
        question_ids: Sequence[str],
        epsilon: ArrayLike = 0.0,
    ) -> list[tuple[list["Outcome"], Certificate | None]]:
        """Return the answers to each question of the tree, and from a search what is certain of them.

        `question_ids` seed the samples; by `epsilon` nats, `(n,)`, log-probabilities may be off, as in
        `exact_search.search`.
        """
        if getattr(tree, "is_partial", False):
            raise ValueError(
                f"strategy={self.name!r} reads all probabilities; a server lists some: use 'threshold'"
            )
        return [(answers, None) for answers in self._answers(tree, endings, question_ids)]


@checked
class Greedy(Strategy):
    """The most probable next token, again and again: one answer."""

    name: ClassVar[str] = "greedy"

    def _answers(self, tree: "Tree", endings: "Endings", question_ids: Sequence[str]) -> list:
        from pro_lib.generation.decoding.beams import greedy

        return greedy(tree, endings, max_new_tokens=self.max_new_tokens)


@checked
class Multinomial(Strategy):
    """N samples, each decided by seed, question id and number; `temperature` and `top_p` shape the draw alone."""

    name: ClassVar[str] = "multinomial"
    ranked: ClassVar[bool] = False
    n_answers: PositiveInt = 10
    seed: WholeNumber = 0
    temperature: Positive = 1.0
    top_p: PositiveShare = 1.0

    def _answers(self, tree: "Tree", endings: "Endings", question_ids: Sequence[str]) -> list:
        from pro_lib.generation.decoding.sampling import multinomial, uniforms

        numbers = uniforms(self.seed, question_ids, self.n_answers, self.max_new_tokens)
        return multinomial(
            tree, endings, uniforms=numbers, temperature=self.temperature, top_p=self.top_p
        )


@checked
class DiverseBeam(Strategy):
    """N groups of one beam each (Vijayakumar et al. 2018), with the Hamming penalty λ."""

    name: ClassVar[str] = "diverse_beam"
    n_answers: PositiveInt = 10
    diversity_penalty: NotNegative = 1.0

    def _answers(self, tree: "Tree", endings: "Endings", question_ids: Sequence[str]) -> list:
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
    """Exact search: all answers with p ≥ `search_alpha` (else 0.02), or the `top_n`; `budget` are token-forwards."""

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
            object.__setattr__(self, "search_alpha", 0.02)

    def decode(self, tree, endings, *, question_ids, epsilon=0.0):
        """Search, as `Strategy.decode`."""
        from pro_lib.generation.decoding.exact_search import search

        settings = {
            "search_alpha": self.search_alpha,
            "top_n": self.top_n,
            "budget": self.budget,
            "epsilon": epsilon,
        }
        return search(tree, endings, max_new_tokens=self.max_new_tokens, **settings)


# The registry of strategies: `generate`, `ask`, notebooks and `pro` know a strategy by its name here.
STRATEGIES: dict[str, type[Strategy]] = {
    kind.name: kind for kind in (Greedy, Multinomial, DiverseBeam, Threshold)
}


def strategy(name: str, *, chat: bool | Mapping = False, **settings: Any) -> Strategy:
    """Return the strategy of that name, T by default 64 in a chat, where answers are sentences, else 32.

    Raises `ValueError` if it is unknown, or has not one of these settings.
    """
    names = _setting_names(name)
    if others := sorted(settings.keys() - set(names)):
        raise ValueError(
            f"{others[0]} is no setting of strategy {name}; these are: {', '.join(names)}"
        )
    if settings.get("max_new_tokens") is None:
        settings["max_new_tokens"] = 64 if chat else 32
    return STRATEGIES[name](**settings)


def own_settings(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of some settings that a strategy has, but for None, its default; `ValueError` if it is unknown."""
    names = _setting_names(name)
    return {
        setting: value
        for setting, value in settings.items()
        if setting in names and value is not None
    }


def _setting_names(name: str) -> list[str]:
    if name not in STRATEGIES:
        raise ValueError(f"strategy={name!r} is unknown; choose {', '.join(STRATEGIES)}")
    return [field.name for field in fields(STRATEGIES[name])]
