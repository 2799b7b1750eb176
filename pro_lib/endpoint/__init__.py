"""Exact search over a server that returns the most probable next tokens; knows HTTP and certificates, no weights."""

import unicodedata
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from pro_lib.endpoint import search
from pro_lib.imports import records
from pro_lib.runs import Run
from pro_lib.storage import LEDGER_SCHEMA, Cost, RunError, RunInfo, read_tables


def from_endpoint(
    base_url: str,
    questions: Any,
    *,
    model: str,
    search_alpha: float = 0.05,
    top: int = 20,
    stop: Sequence[str] = search.END_OF_TEXT,
    n_stop_tokens: int | None = None,
    tokenizer: Any = None,
    max_new_tokens: int = 32,
    budget: int | None = None,
    epsilon: float = 0.0,
    tolerance: float = 1e-3,
    cache: str | Path | None = None,
    concurrency: int = 8,
    retries: int = 6,
    timeout: float = 60.0,
    api_key_env: str | None = "OPENAI_API_KEY",
    progress: bool = True,
) -> Run:
    """Exact search over a text-completions server, `POST {base_url}/completions` with `logprobs`: a run of `threshold`.

    The run has the tables and the ledger of a local search; `docs/endpoint.md` says what is certified. A found answer
    has all the probability that stop tokens not listed may add, so PRO ≤ `alpha_floor` ≤ `tree_bound` ≤ H(Y) stays
    true; without it, ending there costs `end_log_prob_lower`. `epsilon` in the ledger has the largest such difference
    in it, `upper_bound` is missing, and `budget_cut_mass` holds also what may reach α and cannot be seen. Without
    `tokenizer`, Y is the sequence of *texts* that come out when each prompt is read anew, and `token_ids` are negative
    numbers that only tell answers apart (`token_texts` has the texts).

    Args:
        base_url: as in `http://localhost:8000/v1`.
        questions: a `question_sets.QuestionSet`.
        model: the server's name for the model.
        search_alpha: α of the search; at 1/top or above nothing that continues an answer can be missed.
        top: how many log-probabilities are asked for at every place.
        stop: texts of the tokens that end an answer; a text that begins with a newline, white space aside, always does.
        n_stop_tokens: how many tokens of the model's vocabulary end an answer, if you know: those that are not listed
            are then bounded one by one.
        tokenizer: the model's own (as transformers has it): prompts are sent as token ids, and ids read back.
        max_new_tokens: T, the length at which an answer is cut, its ending included.
        budget: requests that may be spent on a question; None for no limit.
        epsilon: by how many nats the server's log-probabilities may be off; what lies so close to α is undecided.
        tolerance: by how much the probability of an answer may be uncertain; above it the question is undecided.
        cache: JSON lines, where every finished question is kept: the same command goes on from there.
        concurrency: questions searched at once.
        retries: further tries after 429, 5xx, time-outs, lost connections and damaged responses, more and more apart.
        timeout: seconds of silence after which a request is given up.
        api_key_env: the environment variable that holds the API key; None if none is to be sent.
        progress: whether to show a bar.

    Raises:
        ValueError: a setting out of its range.
        RunError: the server refuses or fails, or the cache belongs to another run or is damaged.
    """
    whole = {"top": top, "concurrency": concurrency, "retries": retries + 1, "n_stop_tokens": n_stop_tokens or 1}
    for name, value in whole.items():
        if type(value) is not int or value < 1:
            raise ValueError(f"{name}={locals()[name]!r} must be a whole number, 1 or more (retries: 0)")
    if not timeout > 0:
        raise ValueError(f"timeout={timeout!r} must be above 0")
    asking = search.Asking(search_alpha, max_new_tokens, budget, epsilon, tolerance)
    endpoint = search.Endpoint(base_url, model, top, retries, timeout, api_key_env)
    vocabulary = search.Vocabulary(stop, n_stop_tokens, tokenizer)
    with tqdm(total=len(questions.table), desc=f"{questions.name}/{model}", disable=not progress) as bar:
        searched = search.ask_endpoint(
            endpoint,
            vocabulary,
            asking,
            questions.table,
            questions.prompts(),
            cache=None if cache is None else Path(cache),
            concurrency=concurrency,
            done=bar.update,
        )
    parameters = search.parameters(endpoint, vocabulary, asking)
    return _searched_run(searched, questions.table, questions.name, parameters, {"base_url": base_url})


def _searched_run(
    searched: list[dict], questions: pd.DataFrame | None, dataset: str, parameters: dict, provenance: dict
) -> Run:
    """The run of records of an endpoint; its seconds are added up over questions, several of which ran at once."""
    answers, table = search.endpoint_tables(searched, questions)
    n_requests = int(table["expanded_prefixes"].sum())
    cost = Cost(
        prompt_tokens=sum(record["all_prompt_tokens"] for record in searched),
        token_forwards=n_requests - len(searched),
        model_calls=n_requests,
        seconds=sum(record["seconds"] for record in searched),
    )
    plans = [(len(searched), 1, max(1, len(searched)))]
    info = RunInfo(dataset, parameters["model"], "threshold", parameters, provenance, plans, cost=cost)
    return Run(answers, table, info)


def read(path: str | Path, *, questions: pd.DataFrame | None = None) -> Run:
    """The run in the cache of `from_endpoint`, as far as it got; nothing is asked. `questions` as in `imports`."""
    parameters, searched = search.read_endpoint(Path(path))
    order = {} if questions is None else {name: place for place, name in enumerate(questions["question_id"])}
    searched.sort(key=lambda record: order.get(record["question_id"], len(order)))
    run = _searched_run(searched, None, Path(path).stem, parameters, {})
    return run if questions is None else run.asked_as(questions)
