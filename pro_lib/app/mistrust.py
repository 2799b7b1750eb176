"""The answers to mistrust, by a guarantee or as the most uncertain quarter, and by field."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pro_lib.evaluation.guarantees import guarantee

if TYPE_CHECKING:
    from pro_lib.app.scored_answers import ScoredAnswers

_MISTRUSTED_SHARE = 0.25
_FEWEST_UNLABELLED = 100


@dataclass(frozen=True)
class Mistrust:
    """The rule that says which answers to mistrust.

    With a target accuracy, an answer is mistrusted if its score is not below the threshold of a
    guarantee. Otherwise it is mistrusted if its score is in the most uncertain quarter, and if the
    score separates wrong from right answers at all.

    Attributes:
        method: the method whose score decides.
        is_mistrusted: (n,); False for an answer without a score.
        sentence: the rule in words.
        by_field: the table of `field_statistics`, if the judged answers are fields.
    """

    method: str
    is_mistrusted: NDArray[np.bool_]
    sentence: str
    by_field: pd.DataFrame | None = None


def find_mistrust(scored: ScoredAnswers, method: str, *, target: float | None = None) -> Mistrust:
    """Say which answers to mistrust.

    With a target, the answers below the threshold of `guarantees.guarantee` are trusted, if the
    reported questions show that at least this share of them is right. Otherwise the most uncertain
    quarter of the answers is mistrusted, if the interval of AUROC lies above 0.5.

    Args:
        scored: the scored answers.
        method: the method whose scores decide.
        target: the accuracy to guarantee; None to mistrust the most uncertain quarter.
    """
    mistrust = _overall_mistrust(scored, method, target)
    has_judged_fields = "field" in scored.questions and scored.n_judged > 0
    if not has_judged_fields or method not in scored.reported_scores:
        return mistrust
    return replace(mistrust, by_field=field_statistics(scored, mistrust, target))


def _overall_mistrust(scored: ScoredAnswers, method: str, target: float | None) -> Mistrust:
    """Return the mistrust without statistics by field."""
    if target is None:
        return _mistrust_quarter(scored, method, "")
    if not scored.n_judged:
        why = "No accuracy can be guaranteed without judged answers."
        return _mistrust_quarter(scored, method, why)
    if method not in scored.reported_scores:
        why = f"No accuracy can be guaranteed, because too many questions have no {method}."
        return _mistrust_quarter(scored, method, why)
    scores = scored.scores_of(method)
    has_score = ~np.isnan(scores)
    unlabelled = scores[scored.judged.whole.answers["correct"].isna() & has_score]
    guaranteed = guarantee(
        scored.reported_scores[method],
        scored.reported.judgement.verdicts,
        target=target,
        unlabelled=unlabelled if len(unlabelled) >= _FEWEST_UNLABELLED else None,
        texts=scored.reported.answers.get("text_number"),
    )
    sentence = guaranteed.sentence(questions="judged questions")
    if guaranteed.threshold is None:
        return _mistrust_quarter(scored, method, sentence)
    sentence = f"By {method}: {sentence}"
    clusters = scored.reported.answers.get("cluster")
    if clusters is not None and clusters.nunique() < guaranteed.n_validation:
        sentence += " This takes questions as independent, but they come in clusters."
    return Mistrust(method, ~guaranteed.answers(scores) & has_score, sentence)


def _mistrust_quarter(scored: ScoredAnswers, method: str, why: str) -> Mistrust:
    scores = scored.scores_of(method)
    is_high = np.zeros(len(scores), bool)
    auroc = scored.separation(method)
    sentences = [why] if why else []
    if np.isnan(auroc.low):
        sentences.append(f"No answer is marked, because AUROC of {method} is unknown.")
    elif auroc.low <= 0.5:
        sentences.append(
            f"No answer is marked, because it is not shown that {method} separates wrong from "
            "right answers."
        )
    else:
        limit = float(np.nanquantile(scores, 1 - _MISTRUSTED_SHARE, method="lower"))
        is_high = scores > limit
        which = f"most uncertain quarter: {method} above {limit:z.4g}"
        if not is_high.any():
            is_high = scores == limit
            which = f"answers with the highest {method}, {limit:z.4g}: more than a quarter have it"
        sentences.append(f"Mistrust the {which}.")
    n_missing = int(np.isnan(scores).sum())
    if n_missing:
        sentences.append(f"{n_missing:,} questions have no score.")
    return Mistrust(method, is_high, " ".join(sentences))


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
    names = scored.questions["field"]
    reported_ids = scored.reported.answers["question_id"]
    tables = []
    for name in names.unique():
        is_field = names == name
        is_own = reported_ids.isin(scored.questions["question_id"][is_field]).to_numpy()
        part = scored.reported.select(is_own)
        scores = scored.reported_scores.loc[is_own, mistrust.method].to_numpy()
        row = {"field": name, "n_judged": part.judgement.n_verdicts, "accuracy": part.accuracy}
        row |= part.judgement.auroc(scores[:, None]).columns("auroc")
        row["n_mistrusted"] = mistrust.is_mistrusted[is_field].sum()
        if target is not None:
            texts = part.answers.get("text_number")
            guaranteed = guarantee(scores, part.correct, target=target, texts=texts)
            row |= {"threshold": guaranteed.threshold, "n_trusted": guaranteed.n_answered}
        tables.append(pd.DataFrame(row))
    return pd.concat(tables, ignore_index=True)
