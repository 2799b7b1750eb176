"""The accuracy, AUROC and guarantee of each field of structured answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from pro_lib.evaluation.guarantees import guarantee

if TYPE_CHECKING:
    from pro_lib.app.scored_answers import Mistrust, ScoredAnswers


def field_statistics(
    scored: ScoredAnswers, mistrust: Mistrust, target: float | None
) -> pd.DataFrame:
    """Return the statistics of each field.

    Args:
        scored: the scored answers.
        mistrust: the answers to mistrust; its method has the scores.
        target: an accuracy to guarantee, or None.

    Returns:
        A row per field with field, n_judged, accuracy, auroc with its 95 % interval, and
        n_mistrusted. With a target there are also the threshold of a guarantee for the field alone
        (None without one) and n_trusted, the number of judged answers below it.
    """
    names = scored.rows["field"]
    reported_ids = scored.reported.answers["question_id"]
    tables = []
    for name in names.unique():
        is_field = names == name
        is_own = reported_ids.isin(scored.rows["question_id"][is_field]).to_numpy()
        part = scored.reported.rows(is_own)
        scores = scored.reported_scores.loc[is_own, mistrust.method].to_numpy()
        row = {"field": name, "n_judged": len(scores), "accuracy": part.accuracy}
        row |= part.judgement.auroc(scores[:, None]).columns("auroc")
        row["n_mistrusted"] = mistrust.is_mistrusted[is_field].sum()
        if target is not None:
            texts = part.answers.get("text_number")
            shown = guarantee(scores, part.correct, target=target, texts=texts)
            row |= {"threshold": shown.threshold, "n_trusted": shown.n_answered}
        tables.append(pd.DataFrame(row))
    return pd.concat(tables, ignore_index=True)
