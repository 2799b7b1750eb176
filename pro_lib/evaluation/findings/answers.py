"""The findings about questions and generated answers (notebooks 00 and 01)."""

from __future__ import annotations

import pandas as pd

from pro_lib.evaluation.findings.statements import percent_span, span


def examples(repeats: pd.DataFrame, exposure: pd.DataFrame, alpha: float) -> str:
    """Return the findings of notebook 00.

    Args:
        repeats: the table of `tables.repeats`.
        exposure: the table of `tables.exposure`, which may be empty.
        alpha: the α of both tables.
    """
    rows = repeats.set_index("repeats")
    shares = rows["n_above_one"] / rows["n_questions"]
    several = f"{100 * rows.loc['left out', 'share_several']:.2f} %"
    sentences = [
        f"At α = {alpha:g}, PRO keeps more than one distinct answer for {several} of the "
        f"questions; for the others, PRO equals NLL. If repeats are counted, the probabilities of "
        f"the answers sum to more than 1 for {100 * shares['counted']:.1f} % of the questions, and "
        f"to {rows.loc['counted', 'largest_mass']:.2f} at most; without repeats, for "
        f"{100 * shares['left out']:.1f} %."
    ]
    if not exposure.empty:
        sentences.append(_exposure_sentence(exposure))
    return "\n\n".join(sentences)


def _exposure_sentence(exposure: pd.DataFrame) -> str:
    """Return the means for facts with the fewest and the most documents, none of them false."""
    consistent = exposure[exposure["conflict"] == exposure["conflict"].min()]
    accuracy = consistent[consistent["measure"] == "accuracy"].sort_values("exposure")
    scores = consistent[consistent["measure"] == "PRO"].sort_values("exposure")
    parts = []
    for place in (0, -1):
        row = accuracy.iloc[place]
        ends = f"{100 * row['mean_low']:.1f} to {100 * row['mean_high']:.1f} %"
        parts.append(
            f"{row['exposure']} training documents, {100 * row['mean']:.1f} % of the answers are "
            f"correct (95 % confidence interval {ends}) and the mean of PRO is "
            f"{scores['mean'].iloc[place]:.2f} nats"
        )
    return f"For facts with {parts[0]}. With {parts[1]}."


def generated_answers(table: pd.DataFrame, alpha: float) -> str:
    """Return the findings of notebook 01 from the table of `tables.generated_answers`.

    Args:
        table: the table.
        alpha: the α at which its column k counts the answers that PRO keeps.
    """
    is_above = table["mass_with_repeats"] > 1 + 1e-6
    table = table.assign(is_above=is_above, has_several=table["k"] > 1)
    columns = ["n_answers", "n_distinct", "mass", "is_above", "has_several"]
    means = table.groupby(["dataset", "model"])[columns].mean()
    where = "" if len(means) == 1 else f" in the {len(means)} settings"
    return (
        f"A question has {span(means['n_answers'], '{:.1f}')} answers on average{where}, of which "
        f"{span(means['n_distinct'], '{:.1f}')} are distinct. The probabilities of the distinct "
        f"answers sum to {span(means['mass'], '{:.2f}')} on average. If repeats are counted, the "
        f"sum is above 1 for {percent_span(means['is_above'])} of the questions. At "
        f"α = {alpha:g}, PRO keeps more than one answer for "
        f"{percent_span(means['has_several'])} of the questions; for the others, PRO equals NLL."
    )
