"""Exact search over a server that returns the most probable next tokens; knows HTTP and certificates, no weights."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

from pro_lib.base.extras import extra
from pro_lib.endpoint.asking import END_OF_TEXT, Asking
from pro_lib.endpoint.cache import Searched, opened, read_cache
from pro_lib.endpoint.noise import Noise, noise_of
from pro_lib.endpoint.search import Search
from pro_lib.endpoint.vocabulary import Listed, Next, Token, Vocabulary
from pro_lib.imports.question_files import COLUMNS
from pro_lib.runs import Run
from pro_lib.storage import Cost, RunError, RunInfo, part_table, sha256, tables

__all__ = ["END_OF_TEXT", "Asking", "from_endpoint", "read"]
# Before the search, the first places of the first questions are asked again: one request at a time, and all at once.
QUESTIONS, PLACES, ALONE, TOGETHER = 4, 4, 3, 3


def from_endpoint(
    base_url: str,
    questions: Any,
    *,
    model: str,
    cache: str | Path | None = None,
    progress: bool = True,
    **settings: Any,
) -> Run:
    """Exact search over a text-completions server, `POST {base_url}/completions` with `logprobs`: a run of `threshold`.

    The run has the tables and certificates of a local search; `docs/endpoint.md` says what is certified. A found answer
    has all the probability that stop tokens not listed may add, so PRO ≤ `alpha_floor` ≤ `tree_bound` ≤ H(Y) stays
    true; without it, ending there costs `end_log_prob_lower`. `epsilon` in the certificate has the largest such
    difference in it, `upper_bound` is missing, and `budget_cut_mass` holds also what may reach α and cannot be seen.
    Without `tokenizer`, Y is the sequence of *texts* that come out when each prompt is read anew, and `token_ids` are
    negative numbers that only tell answers apart (`token_texts` has the texts).

    Args:
        base_url: as in `http://localhost:8000/v1`.
        questions: a `questions.QuestionSet`.
        model: the server's name for the model.
        cache: JSON lines, where every finished question is kept: the same command goes on from there.
        progress: whether to show a bar.
        settings: those of `Asking`.

    Raises:
        ValueError: a setting out of its range, or an unknown one.
        RunError: the server refuses or fails, or the cache belongs to another run or is damaged.
    """
    with extra("endpoint", "asking a server"):
        from anyio.from_thread import start_blocking_portal

        from pro_lib.endpoint.client import Client
    asking = Asking(base_url, model, **settings)
    vocabulary = Vocabulary(asking)
    parameters = asking.parameters() | {"n_stop_tokens": vocabulary.n_stop}
    rows = list(zip(questions.table.to_dict("records"), questions.prompts(), strict=True))
    with opened(cache, parameters) as known:
        for row, prompt in rows:
            if row["question_id"] in known and known[row["question_id"]].prompt != sha256(prompt.encode()):
                raise RunError(f"cache {cache} holds question {row['question_id']!r} with another prompt")
        missing = [(row, prompt) for row, prompt in rows if row["question_id"] not in known]
        bar = tqdm(total=len(missing), desc=f"{questions.name}/{model}", disable=None if progress else True)
        # In a thread of its own: in a notebook, a loop of events already runs in this one.
        with bar, start_blocking_portal() as portal:
            asked = Client(asking), vocabulary, missing
            noise = portal.call(_search, *asked, lambda one: (known.add(one), bar.update()))
    searched = [known[row["question_id"]] for row, _ in rows]
    measured = {"base_url": base_url} | ({"noise": vars(noise)} if noise else {})
    if vocabulary.tokenizer is not None:
        bounded = "bounded where they are not listed: the server does not tell those named by logprob_token_ids"
        measured["stop_tokens"] = "named where they are not listed" if vocabulary.names else bounded
    return _run(searched, questions.table, questions.name, parameters, measured)


def read(path: str | Path, *, questions: pd.DataFrame | None = None) -> Run:
    """The run in the cache of `from_endpoint`, as far as it got; nothing is asked. `questions` as in `imports`."""
    parameters, known = read_cache(path)
    order = {} if questions is None else {name: place for place, name in enumerate(questions["question_id"])}
    searched = sorted(known.values(), key=lambda each: order.get(each.question_id, len(order)))
    asked = pd.DataFrame([[getattr(each, name) for name in COLUMNS] for each in searched], columns=COLUMNS)
    run = _run(searched, asked, Path(path).stem, parameters, {})
    return run if questions is None else run.asked_as(questions)


async def _search(
    client: Any, vocabulary: Vocabulary, rows: Sequence[tuple[dict, str]], done: Callable[[Searched], object]
) -> Noise | None:
    """Measure the noise, then search the questions, several at once; if one fails, the others are given up."""
    asking, places = client.asking, asyncio.Semaphore(client.asking.concurrency)

    async def listed(row: dict, prompt: str, tokens: Sequence[Token]) -> Listed:
        sent, where = vocabulary.prompt(prompt, tokens), f"{asking.base_url}, question {row['question_id']!r}"
        for n_requests in range(1, asking.retries + 2):
            told = vocabulary.read(await client.complete(sent), where)._replace(n_requests=n_requests)
            if not told.is_cut:
                break
        return told.filled()

    async def named(told: Listed, prompt: list[int]) -> Listed:
        for ids in vocabulary.unlisted(told):
            more = vocabulary.named(told, ids, await client.complete(prompt, ids))
            vocabulary.names = more is not None
            told = more or told._replace(n_requests=told.n_requests + 1)
            if not vocabulary.names:
                break
        return told

    async def search(row: dict, prompt: str) -> None:
        async def ask(tokens: Sequence[Token], prob: float) -> Next:
            told = await listed(row, prompt, tokens)
            step = vocabulary.after(told, noise)
            if vocabulary.names and prob * step.hidden_ending > asking.tolerance:
                step = vocabulary.after(await named(told, vocabulary.prompt(prompt, tokens)), noise)
            return step

        async with places:
            answers, certificate, cost = await Search(asking, vocabulary, noise).run(ask)
        found = {"prompt": sha256(prompt.encode()), "answers": answers, "certificate": certificate, "cost": cost}
        done(Searched(**{name: row.get(name) for name in COLUMNS}, **found))

    try:
        async with client.http, asyncio.TaskGroup() as group:
            noise = await _measured(listed, rows, asking.epsilon) if rows else None
            for row, prompt in rows:
                group.create_task(search(row, prompt))
        return noise
    except ExceptionGroup as failed:
        error: Exception = failed
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    raise client.told(error)


async def _measured(listed: Callable[..., Awaitable[Listed]], rows: Sequence[tuple[dict, str]], stated: float) -> Noise:
    """The noise of the server at the first places of some questions, each asked alone and with all the others."""
    places, heard = [], []
    for row, prompt in rows[:QUESTIONS]:
        tokens: tuple[Token, ...] = ()
        for _ in range(PLACES):
            places.append((row, prompt, tokens))
            heard.append(await listed(*places[-1]))
            tokens += heard[-1].tokens[:1]
            if not heard[-1].tokens or tokens[-1].kind != "open":
                break
    heard += [await listed(*place) for _ in range(ALONE - 1) for place in places]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(listed(*place)) for _ in range(TOGETHER) for place in places]
    told = [{token[:2]: token.log_prob for token in each.tokens} for each in (*heard, *(t.result() for t in tasks))]
    if not any(told):
        raise RunError("logprobs are missing; the server must return those of the most probable tokens")
    return noise_of([told[n :: len(places)] for n in range(len(places))], stated=stated)


def _run(searched: list[Searched], questions: pd.DataFrame, dataset: str, parameters: dict, provenance: dict) -> Run:
    """The run of questions searched; its seconds are added up over questions, several of which ran at once."""
    found = [[vars(answer) for answer in each.answers] for each in searched]
    answers, table = tables([part_table(questions, found, [each.certificate for each in searched])])
    for name in ("end_log_prob_lower", "token_texts"):
        answers[name] = [answer[name] for one in found for answer in one]
    cost = sum((each.cost for each in searched), Cost())
    return Run(answers, table, RunInfo(dataset, parameters["model"], "threshold", parameters, provenance, cost=cost))
