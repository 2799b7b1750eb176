"""Exact search over llama.cpp's own server, beside the search in this process on the same quantised weights.

    python benchmarks/served.py model.gguf --questions 100 --alpha 0.02

`pip install xllamacpp` brings the server. By default it is started as docs/doors.md says; with `--as-it-comes` it keeps
its caches in half precision and puts many tokens through at once. Kernels of the two round differently: by how much is
printed. False is an answer that a decided question lacks, though the server itself, asked for it, says it reaches α.
"""

import time
from pathlib import Path

import numpy as np
import pandas as pd
import xllamacpp
from measuring import parse_arguments

from pro_lib.generation import models, server
from pro_lib.generation.generate import generate
from pro_lib.questions import question_sets
from pro_lib.runs.run import Run


def serving(path: Path, *, as_it_comes: bool) -> xllamacpp.Server:
    """Start the server, with one slot."""
    given = xllamacpp.CommonParams()
    given.model.path, given.hostnames, given.port, given.verbosity = str(path), ["127.0.0.1"], 0, -1
    given.n_parallel, given.n_ctx, given.n_gpu_layers, given.warmup = 1, 1024, 0, False
    if not as_it_comes:
        given.cache_type_k = given.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        given.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        given.n_ubatch, given.n_batch = 1, 8
    return xllamacpp.Server(given)


def answers(run: Run) -> pd.Series:
    """Log-probabilities of complete answers by question and token ids."""
    table = run.ranked_answers()
    keys = zip(table["question_id"], map(tuple, table["token_ids"]), strict=True)
    return pd.Series(table["value"].to_numpy(), list(keys))


def scored(model: models.Model, prompt: list[int], token_ids: tuple[int, ...]) -> float:
    """Log-probability of a complete answer by the server, from whole lists at every place."""
    token_ids, total, stops = (
        [int(token) for token in token_ids],
        0.0,
        model.endings.stop.nonzero().squeeze(1).tolist(),
    )
    with model.server.asking() as send:
        for place in range(len(token_ids) + 1):
            listed = model.server.listed(
                send, [*prompt, *token_ids[:place]], len(model.endings.stop)
            )
            ending = place == len(token_ids)
            total += (
                np.log(sum(np.exp(listed[stop]) for stop in stops))
                if ending
                else listed[token_ids[place]]
            )
    return total


def main() -> None:
    """Print shares, false certificates, requests and seconds."""
    options = {
        "--questions": 100,
        "--alpha": 0.02,
        "--top": 1000,
        "--epsilon": 0.001,
        "--as-it-comes": False,
    }
    given = parse_arguments(__doc__, {"gguf": Path} | options)
    here, running = (
        models.load_model(given.gguf, device="cpu"),
        serving(given.gguf, as_it_comes=given.as_it_comes),
    )
    options = {"tokenizer": here.tokenizer, "top": given.top, "epsilon": given.epsilon}
    there = server.connect_server(
        f"{running.listening_address}/v1", model=given.gguf.stem, **options
    )
    assert (there.endings.stop == here.endings.stop[: len(there.endings.stop)]).all()
    search = {"strategy": "threshold", "search_alpha": given.alpha, "progress": False}
    questions = question_sets.load_questions("world-facts", limit=given.questions)
    truth, started = answers(generate(here, questions, **search)), time.perf_counter()
    run = generate(there, questions, **search)
    seconds, ours = time.perf_counter() - started, answers(run)
    status, apart = run.questions.set_index("question_id")["status"], (truth - ours).dropna().abs()
    median, most = (
        f"{apart.median():.3f} nats apart in the median of",
        f"answers, {apart.max():.3f} at most",
    )
    print(f"kernels are {median} {len(apart)} {most}")
    decided, false = status[status != "undecided"], 0
    prompts = dict(zip(status.index, questions.prompts(), strict=True))
    for (name, ids), value in truth[truth >= np.log(given.alpha) - 1].items():
        if (
            name in decided and (name, ids) not in ours
        ):  # what the server itself says of an answer that it did not give
            there_too = scored(there, there.encode(prompts[name]), ids)
            false += there_too >= np.log(given.alpha)
            print(
                f"{name}: {value:.3f} here, {there_too:.3f} there, log α {np.log(given.alpha):.3f}"
            )
    for (name, ids), value in ours.items():
        if name in decided and value >= np.log(given.alpha):
            false += (
                abs(scored(there, there.encode(prompts[name]), ids) - value) > given.epsilon * 32
            )
    n = len(status)
    print(
        f"{len(decided)} of {n} decided at α = {given.alpha:g} ({status.value_counts().to_dict()}), {false} false"
    )
    print(
        run.questions.loc[run.questions["status"] == "undecided", "why"].value_counts().to_string()
    )
    print(f"{run.info.cost.model_calls / n:.1f} requests and {seconds / n:.2f} seconds a question")


if __name__ == "__main__":
    main()
