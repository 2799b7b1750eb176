"""The gain of PRO over NLL in simulated worlds (notebook 08).

A world has one model and many questions. Each question has possible meanings, from which the truth
is drawn; each meaning has spellings, which are the answers that the model gives. The model's
probabilities of the meanings are the softmax of normal logits, whose standard deviation is drawn
for each question from 0 to twice the sharpness.
"""

import textwrap
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.special import log_softmax

from pro_lib.evaluation.evaluation import with_columns_in_front
from pro_lib.evaluation.judgement import Verdicts
from pro_lib.metrics.roc import FloatArray
from pro_lib.plots.captions import corrected, join_caption, listed, significant_signs
from pro_lib.plots.figure import checked_table, labelled_figure
from pro_lib.plots.gains import FIXED_K_WORDS, GAIN, pro_minus_nll, with_scores
from pro_lib.plots.style import Figure, distinct_values, draw_curves

AnswersFound = Literal["most probable", "distinct samples", "samples"]


@dataclass(frozen=True)
class World:
    """The properties of a simulated world.

    The defaults are the base world.

    Attributes:
        sharpness: how unequal the probabilities of the meanings are; 0 makes them equal.
        n_meanings: number of possible meanings of the answer to each question.
        calibration: the truth is drawn with the model's probabilities to this power. The model is
            calibrated at 1, overconfident below 1 and underconfident above 1.
        n_spellings: spellings of each meaning, which share its probability at random.
        share_outside: probability that no meaning is the truth.
        answers_found: how the answers are found: the most probable ones, samples without
            repeats, or samples with repeats.
        n_answers: answers found per question.
    """

    sharpness: float = 4.0
    n_meanings: int = 30
    calibration: float = 1.0
    n_spellings: int = 1
    share_outside: float = 0.0
    answers_found: AnswersFound = "most probable"
    n_answers: int = 10


WORLD_ALPHAS = (0.1, 0.4)
BASE_WORLD = World()
_SPELLINGS = (1, 2, 3, 5)
SPELLINGS = "spellings of each meaning"
# The properties that are varied, in words, with their names and values in `World`.
# The base world has one of the values.
VARIED = {
    "sharpness of probabilities": ("sharpness", (1.0, 2.0, 4.0, 8.0)),
    "possible meanings of an answer": ("n_meanings", (3, 10, 30, 100)),
    "calibration (below 1: overconfident)": ("calibration", (0.5, 0.7, 1.0, 1.4, 2.0)),
    SPELLINGS: ("n_spellings", _SPELLINGS),
    "probability that no meaning is true": ("share_outside", (0.0, 0.2, 0.5)),
    "how answers are found": (
        "answers_found",
        ("most probable", "distinct samples", "samples"),
    ),
    "answers found per question": ("n_answers", (2, 5, 10, 20)),
}
# The spellings are varied again in worlds of a model that is not calibrated.
BOTH_VARIED = "spellings and calibration"
_OTHER_CALIBRATIONS = (0.5, 0.7, 1.4, 2.0)
_DRAWN = list(VARIED)[2:5] + list(VARIED)[6:]  # the answers of models are not samples
_SHOWN = (
    "AUROC of PRO minus that of NLL, with 95 % confidence intervals, if one property of simulated "
    "questions is varied; the base case, grey in all panels, has "
    f"{BASE_WORLD.n_meanings} meanings, calibration 1, one spelling of each meaning, probability 0 "
    f"that no meaning is true, and the {BASE_WORLD.n_answers} most probable answers."
)
_CALIBRATION = (
    "Calibration is the power to which the probabilities of the model are raised before the true "
    "answer is drawn (below 1: overconfidence)"
)
_BASE: dict[str, Any] = {"solid_capstyle": "butt", "label": "base case"}
_NOT_DRAWN = "K = 10"  # like K = 5


def table(*, n_questions: int = 20_000, seed: int = 0) -> pd.DataFrame:
    """Return how much PRO gains over NLL in simulated worlds, which differ from a base world.

    The base world is a row of every group in which one property is varied. It is one world: column
    `world` has the same number there.

    Columns:
    - n_questions and n_correct.
    - varied: which property is varied, in words; level: its value as text. `spellings and
      calibration` varies the spellings in worlds of a model that is not calibrated.
    - world: number of the world; is_base: whether it is the base world.
    - sharpness, n_meanings, calibration, n_spellings, share_outside, answers_found, n_answers: the
      properties of the world (`worlds.World`).
    - accuracy: the share of correct answers.
    - the columns of `pro_minus_nll`.
    """
    gains: dict[World, pd.DataFrame] = {}
    parts = []
    for varied, level, world in _groups():
        if world not in gains:
            rng = np.random.default_rng([seed, len(gains)])
            log_probs, correct = simulate(world, n_questions, rng)
            labels = {
                "n_questions": n_questions,
                "n_correct": int(correct.sum()),
                "world": len(gains),
                "is_base": world == BASE_WORLD,
                **asdict(world),
                "accuracy": correct.mean(),
            }
            gain = pro_minus_nll(log_probs, Verdicts(correct), alphas=WORLD_ALPHAS)
            gains[world] = with_columns_in_front(gain, labels)
        part = gains[world].copy()
        part.insert(2, "varied", varied)
        part.insert(3, "level", level)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def draw(table: pd.DataFrame, *, figure_columns: int = 2) -> Figure:
    """Draw the gain of PRO over NLL against one property: a line for each α or K.

    Args:
        table: needs the columns varied, level, k_choice, k, alpha and auroc_minus_nll with its
            interval. The sharpness, the number of meanings and how answers are found are not drawn.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
    """
    table = checked_table(table, ["varied", "level", "k_choice", "k", "alpha", *GAIN], "worlds")
    drawn = table[table["varied"].isin(_DRAWN)]
    title = "PRO minus NLL by properties of simulated questions"
    return draw_gains(
        drawn.assign(panel=drawn["varied"], is_base=drawn.get("is_base", False)),
        title=title,
        untitled=["panel"],
        figure_columns=figure_columns,
        per_line=2,
    )


def draw_gains(table: pd.DataFrame, **options: Any) -> Figure:
    """Draw a panel for each value of the column panel, a line for each α or K."""
    table = drawn_scores(table)
    scores = distinct_values(table, "score")
    with labelled_figure(
        table.drop(columns=["n_questions", "dataset", "model"], errors="ignore"),
        "panel",
        y="AUROC of PRO minus that of NLL",
        height=1.3,
        **options,
    ) as (figure, panels):
        for ax, rows in panels:
            levels = distinct_values(rows, "level")
            placed = rows.assign(place=rows["level"].map(levels.index))
            style: dict[str, Any] = {"bars": True, "shift": 0.03, "lw": 0.8, "ms": 2.8}
            draw_curves(ax, placed, "score", scores, "place", "auroc_minus_nll", **style)
            ax.axhline(0, color="black", lw=0.6)
            ax.set_xticks(range(len(levels)), levels)
            ax.set_xlim(-0.4, len(levels) - 0.6)
            if "x" not in options:
                for place in placed.loc[placed["is_base"], "place"].unique():
                    ax.axvline(place, color="#dddddd", lw=7, zorder=0, **_BASE)
                width = 20 * options["figure_columns"]
                ax.set_xlabel(textwrap.fill(rows["panel"].iloc[0], width))
    return figure


def drawn_scores(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that figures of worlds draw, with the column score."""
    table = with_scores(table)
    return table[table["score"] != _NOT_DRAWN]


def caption(table: pd.DataFrame) -> str:
    """Say with which properties PRO with a fixed K is better than NLL."""
    drawn = table[table["varied"].isin(_DRAWN)]
    return caption_of_gains(_SHOWN, drawn.drop_duplicates(["world", "k_choice", "k", "alpha"]))


def caption_of_gains(shown: str, table: pd.DataFrame, *findings: str) -> str:
    """Return the caption of a figure of gains from a table that has each world once."""
    gains = table.pivot_table("auroc_minus_nll", "world", "k")
    difference = (gains[10] - gains[5]).abs().max()
    shown = (
        f"{shown} {_CALIBRATION}; {FIXED_K_WORDS}; K = 10 differs from K = 5 by at most "
        f"{difference:.3f} and is not drawn. {corrected('all points', has_symbols=False)}"
    )
    rows = drawn_scores(table)
    signs = significant_signs(rows)
    is_fixed = rows["k_choice"] == "fixed"
    has_several = rows["n_spellings"] > 1
    is_over = rows["calibration"] < 1
    parts = []
    for words, chosen in (
        ("several spellings and overconfidence", has_several & is_over),
        ("several spellings alone", has_several & ~is_over),
        ("overconfidence alone", ~has_several & is_over),
        ("neither", ~has_several & ~is_over),
    ):
        some = signs[chosen & is_fixed]
        if len(some):
            counts = f"{(some > 0).sum()} of {len(some)} points with {words}"
            parts.append(f"{counts} (worse at {(some < 0).sum()})")
    by_alpha = rows[~is_fixed & (rows["alpha"] == rows["alpha"].max())]
    clauses = [
        f"A fixed K makes PRO significantly better than NLL at {listed(parts)}",
        f"with α = {by_alpha['alpha'].max():g}, PRO is within "
        f"{by_alpha['auroc_minus_nll'].abs().max():.3f} of NLL",
        *findings,
    ]
    return join_caption(shown, rows, f"{'; '.join(clauses)}.")


def _groups() -> list[tuple[str, str, World]]:
    """Return the property that is varied, its value as text, and the world, for each row."""
    groups = []
    for words, (name, levels) in VARIED.items():
        for level in levels:
            text = level if isinstance(level, str) else f"{level:g}"
            changed: dict[str, Any] = {name: level}
            groups.append((words, text, replace(BASE_WORLD, **changed)))
    for calibration in _OTHER_CALIBRATIONS:
        for n_spellings in _SPELLINGS:
            world = replace(BASE_WORLD, calibration=calibration, n_spellings=n_spellings)
            groups.append((BOTH_VARIED, str(n_spellings), world))
    return groups


def simulate(
    world: World,
    n_questions: int,
    rng: np.random.Generator,
) -> tuple[FloatArray, np.ndarray]:
    """Return the answers to some questions of a world, and which questions are answered right.

    Returns:
        Log-probabilities of the answers found, (n_questions, n_answers), NaN where there are fewer;
        whether the most probable of them has the meaning that is true, (n_questions,).
    """
    deviations = rng.uniform(0, 2 * world.sharpness, (n_questions, 1))
    logits = deviations * rng.standard_normal((n_questions, world.n_meanings))
    truth = _draw_positions(world.calibration * logits, 1, rng)[:, 0]
    truth[rng.random(n_questions) < world.share_outside] = -1
    shares = rng.dirichlet(np.ones(world.n_spellings), logits.shape)
    spellings = log_softmax(logits, axis=1)[:, :, None] + np.log(shares)
    answers = spellings.reshape(n_questions, -1)
    if world.answers_found == "most probable":
        last = min(world.n_answers, answers.shape[1]) - 1
        positions = np.argpartition(-answers, last, axis=1)[:, : world.n_answers]
    else:
        positions = _draw_positions(answers, world.n_answers, rng)
    log_probs = np.take_along_axis(answers, positions, axis=1)
    most_probable = positions[np.arange(n_questions), log_probs.argmax(axis=1)]
    correct = most_probable // world.n_spellings == truth
    if world.answers_found == "distinct samples":
        is_same = positions[:, :, None] == positions[:, None, :]
        is_repeated = np.triu(is_same, 1).any(axis=1)
        log_probs[is_repeated] = np.nan
    return log_probs, correct


def _draw_positions(logits: FloatArray, n_draws: int, rng: np.random.Generator) -> np.ndarray:
    """Return positions, (n, n_draws), drawn with the probabilities of these logits, (n, M)."""
    # A number above all of these upper limits belongs to the last position.
    upper_limits = np.exp(log_softmax(logits, axis=1)).cumsum(axis=1)[:, :-1]
    numbers = rng.random((len(logits), n_draws, 1))
    return np.asarray((numbers > upper_limits[:, None, :]).sum(axis=2))
