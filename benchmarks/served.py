"""The same questions searched over a server and in this process; knows a server's address, and not which one it is."""

import argparse
import asyncio
import time

import numpy as np
import pandas as pd
import torch

from pro_lib import endpoint, generate, models, questions
from pro_lib.base.bundled import bundled_models
from pro_lib.endpoint.asking import Asking
from pro_lib.endpoint.client import Client
from pro_lib.endpoint.vocabulary import Vocabulary
from pro_lib.models import Model
from pro_lib.runs import Run


def agreement(url: str, model: Model, prompts: list[str]) -> dict[str, float]:
    """How far a server is from transformers: how many prompts have other tokens, or another greedy token after them.

    And the largest difference of a log-probability in nats, of all tokens and of those above 0.001.
    """
    others = {"tokens": 0, "greedy": 0, "largest": 0.0, "largest_likely": 0.0}
    size, all_ids = len(model.tokenizer), [model.encode(prompt) for prompt in prompts]
    asking = Asking(f"{url}/v1", model.name, top=size, tokenizer=model.tokenizer, api_key_env=None)

    async def asked() -> list[object]:
        client = Client(asking)
        async with client.http as http:
            for prompt, ids in zip(prompts, all_ids, strict=True):
                # As llama.cpp and as vLLM want it; neither minds the other's names.
                text = {"content": prompt, "add_special": True, "model": model.name, "prompt": prompt}
                read = await http.post(f"{url}/tokenize", json=text, timeout=60)
                others["tokens"] += read.json()["tokens"] != ids
            return [await client.complete(ids) for ids in all_ids]

    words = Vocabulary(asking)
    for ids, response in zip(all_ids, asyncio.run(asked()), strict=True):
        theirs = np.full(size, np.nan)
        for token in words.read(response, url).tokens:
            theirs[token.id] = token.log_prob
        with torch.inference_mode():
            ours = model.network(torch.tensor([ids])).logits[0, -1].double().log_softmax(-1).numpy()
        others["greedy"] += int(theirs.argmax() != ours.argmax())
        off = np.abs(theirs - ours)
        others["largest"] = max(others["largest"], float(off.max()))
        others["largest_likely"] = max(others["largest_likely"], float(off[ours > np.log(1e-3)].max()))
    return others


def found(run: Run, question_id: str, alpha: float) -> dict[tuple[int, ...], np.ndarray]:
    """The answers that a run says to have at least α: their tokens, and log-probabilities of these and of ending."""
    rows = run.answers[(run.answers["question_id"] == question_id) & run.answers["finished"]].fillna(
        {"end_log_prob": 0}
    )
    likely = rows[rows["log_prob"] + rows["end_log_prob"] >= np.log(alpha)]
    return {tuple(row.token_ids): np.append(row.token_log_probs, row.end_log_prob) for row in likely.itertuples()}


def compared(here: Run, there: Run, alpha: float) -> dict[str, float]:
    """How many are decided over the server, here, and otherwise than here.

    And the largest difference of a token of an answer, and of an answer, in nats.
    """
    decided = both = otherwise = 0
    of_token = of_answer = 0.0
    for (_, mine), (_, theirs) in zip(here.questions.iterrows(), there.questions.iterrows(), strict=True):
        both += mine["status"] != "undecided"
        if theirs["status"] == "undecided":
            continue
        decided += 1
        ours, others = (found(run, mine["question_id"], alpha) for run in (here, there))
        otherwise += mine["status"] != theirs["status"] or ours.keys() != others.keys()
        for ids in ours.keys() & others.keys():
            of_token = max([of_token, *np.abs(ours[ids] - others[ids])[:-1]])
            of_answer = max(of_answer, abs(ours[ids].sum() - others[ids].sum()))
    counted = {"decided": decided, "decided_here": both, "otherwise": otherwise}
    return counted | {"of_token": of_token, "of_answer": of_answer}


def searches(
    url: str, model: Model, asked: questions.QuestionSet, alpha: float, **options: object
) -> dict[str, object]:
    """The same questions here and over the server, and what came out."""
    here = generate.generate(model, asked, strategy="threshold", search_alpha=alpha, progress=False)
    options = {"tokenizer": model.tokenizer, "api_key_env": None, "progress": False} | options
    started = time.perf_counter()
    there = endpoint.from_endpoint(f"{url}/v1", asked, model=model.name, search_alpha=alpha, **options)
    seconds = time.perf_counter() - started
    cost = {
        "requests": there.info.cost.model_calls,
        "seconds": round(seconds, 1),
        "seconds_here": here.info.cost.seconds,
    }
    return (
        {"alpha": alpha} | compared(here, there, alpha) | cost | {"noise": there.info.provenance["noise"]["measured"]}
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `report`."""
    parser.add_argument("--model", default="facts-2m", choices=bundled_models())
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--alphas", type=float, nargs="+", default=[0.2, 0.1, 0.05])
    parser.add_argument("--tops", type=int, nargs="+", default=[20])
    parser.add_argument("--epsilon", type=float, default=0.005)


def report(url: str, given: argparse.Namespace) -> None:
    """Print how far a server that has the model is from transformers, and what searches over it find."""
    model = models.load(given.model, device="cpu")
    asked = questions.load("world-facts", split="test", limit=given.questions, seed=0)
    print(agreement(url, model, asked.prompts()[:20]), flush=True)
    for top in given.tops:
        options = {"top": top, "epsilon": given.epsilon}
        rows = [searches(url, model, asked, alpha, **options) for alpha in given.alphas]
        print(f"top={top}", pd.DataFrame(rows).to_string(index=False), sep="\n", flush=True)
