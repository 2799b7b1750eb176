"""How often fresh samples agree, certified by searches and estimated from samples; knows runs, draws nothing."""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from pro_lib import protocols, semantic
from pro_lib.runs import Run


def agreement_table(
    searches: Sequence[Run], samples: Sequence[Run], similarities: Sequence[protocols.Similarities]
) -> pd.DataFrame:
    """What searches are certain of and what samples estimate: a row per search, similarity and kind of agreement.

    `samples` are a run per setting, `similarities` those of each. The agreement is that `of` a sample with the *answer*
    (the search's most probable; estimated as 1 - SC) or of *two* samples (1 - Deg without the pairs of a sample with
    itself: unbiased). Columns: dataset, model, similarity, of, alpha, n_questions; means of low, high, width (of the
    interval) and estimate; outside, the share of the estimates beyond its ends, and distance, how far in the mean of
    all; token-forwards a question without prompts, search_forwards and sample_forwards.
    """
    beside = {_setting(drawn): (drawn, asked) for drawn, asked in zip(samples, similarities, strict=True)}
    return pd.DataFrame([row for run in searches for row in _rows(run, *beside[_setting(run)])])


def _setting(run: Run) -> tuple[str, str]:
    return run.info.dataset, run.info.model


def _rows(run: Run, drawn: Run, similarities: protocols.Similarities) -> Iterator[dict[str, object]]:
    labels = dict(zip(("dataset", "model"), _setting(run), strict=True))
    drawn, cost = drawn.select(question_ids=list(run.questions["question_id"])), drawn.info.cost.token_forwards
    found = protocols.Answers.of(run, drawn, similarities, judged=run.top()["text"])
    n, ended = ((~np.isnan(of)).sum(axis=1) for of in (drawn.outcome_log_probs(), found.samples.log_probs))
    for name, said in found.sampled.items():
        agreeing = (1 - np.nan_to_num(said["Deg"])) * ended**2 - ended  # pairs of different samples, in order
        certain = semantic.agreement(found.beams.log_probs, found.same[name])
        of_two = semantic.agreement_of_two(found.beams.log_probs, found.compared[name])
        estimated = 1 - said["SC"], agreeing / np.maximum(n * (n - 1), 1)
        for of, (low, high), estimate in zip(("answer", "two"), (certain, of_two), estimated, strict=True):
            beyond = np.maximum(low - estimate, estimate - high)
            means = {"low": low, "high": high, "width": high - low, "estimate": estimate}
            means |= {"outside": beyond > 1e-6, "distance": np.maximum(beyond, 0)}
            means |= {
                "search_forwards": run.questions["token_forwards"],
                "sample_forwards": cost / drawn.info.n_planned,
            }
            row = labels | {"similarity": name, "of": of, "alpha": run.search_alpha, "n_questions": len(low)}
            yield row | {column: np.mean(values) for column, values in means.items()}
