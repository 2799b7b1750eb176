"""Compare exact search over the server of llama.cpp with the search in this process.

    python benchmarks/served.py model.gguf --questions 100 --alpha 0.02

Both searches use the same quantized weights. `pip install xllamacpp` installs the server. It is
started as docs/how_to/use_a_server.md describes; with `--as-it-comes` it keeps its caches in half
precision and runs many tokens at once. The kernels of the two round differently, and the script
prints the size of these differences. A certificate is false if a decided question lacks an answer
whose probability reaches α according to the server itself.
"""

import time
from pathlib import Path

import numpy as np
import pandas as pd
import xllamacpp
from measuring import parse_arguments

from pro_lib.generation import models, server
from pro_lib.generation.run_generation import generate
from pro_lib.questions import question_sets
from pro_lib.runs.run import Run


def start_server(path: Path, *, as_it_comes: bool) -> xllamacpp.Server:
    """Start the server, with one slot."""
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.verbosity = -1
    parameters.n_parallel = 1
    parameters.n_ctx = 1024
    parameters.n_gpu_layers = 0
    parameters.warmup = False
    if not as_it_comes:
        parameters.cache_type_k = xllamacpp.ggml_type.GGML_TYPE_F32
        parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        no_flash_attention = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        parameters.flash_attn_type = no_flash_attention
        parameters.n_ubatch = 1
        parameters.n_batch = 8
    return xllamacpp.Server(parameters)


def answer_log_probs(run: Run) -> pd.Series:
    """Return the log-probabilities of complete answers by question id and token ids."""
    table = run.ranked_answers()
    keys = zip(table["question_id"], map(tuple, table["token_ids"]), strict=True)
    return pd.Series(table["value"].to_numpy(), list(keys))


def server_log_prob(model: models.Model, prompt: list[int], token_ids: tuple[int, ...]) -> float:
    """Return the log-probability of a complete answer, from full lists of the server."""
    answer = [int(token) for token in token_ids]
    n_tokens = len(model.endings.stop)
    stops = model.endings.stop.nonzero().squeeze(1).tolist()
    total = 0.0
    with model.server.connect() as connection:
        for length, token in enumerate(answer):
            log_probs = model.server.request_list(connection, [*prompt, *answer[:length]], n_tokens)
            total += log_probs[token]
        log_probs = model.server.request_list(connection, [*prompt, *answer], n_tokens)
    return total + np.log(sum(np.exp(log_probs[stop]) for stop in stops))


def count_false(
    model: models.Model,
    prompts: dict[str, str],
    expected: pd.Series,
    log_probs: pd.Series,
    *,
    alpha: float,
    epsilon: float,
) -> int:
    """Return the number of false certificates, and print each candidate for a missing answer.

    Args:
        model: the model of the server.
        prompts: the prompts of decided questions by their ids.
        expected: the log-probabilities of answers in this process, as `answer_log_probs`.
        log_probs: the same by the search over the server.
        alpha: the α of the search.
        epsilon: the rounding that the search allows for each token.
    """
    n_false = 0
    for (name, token_ids), value in expected[expected >= np.log(alpha) - 1].items():
        if name in prompts and (name, token_ids) not in log_probs:
            by_server = server_log_prob(model, model.encode(prompts[name]), token_ids)
            n_false += by_server >= np.log(alpha)
            print(f"{name}: {value:.3f} here, {by_server:.3f} there, log α {np.log(alpha):.3f}")
    for (name, token_ids), value in log_probs.items():
        if name in prompts and value >= np.log(alpha):
            by_server = server_log_prob(model, model.encode(prompts[name]), token_ids)
            n_false += abs(by_server - value) > epsilon * 32
    return n_false


def main() -> None:
    """Print shares, false certificates, requests and seconds."""
    options = {"gguf": Path, "--questions": 100, "--alpha": 0.02, "--top": 1000}
    options |= {"--epsilon": 0.001, "--as-it-comes": False}
    arguments = parse_arguments(__doc__, options)
    alpha = arguments.alpha
    local_model = models.load_model(arguments.gguf, device="cpu")
    process = start_server(arguments.gguf, as_it_comes=arguments.as_it_comes)
    server_model = server.connect_server(
        f"{process.listening_address}/v1",
        model=arguments.gguf.stem,
        tokenizer=local_model.tokenizer,
        top=arguments.top,
        epsilon=arguments.epsilon,
    )
    stop = server_model.endings.stop
    assert (stop == local_model.endings.stop[: len(stop)]).all()
    search = {"strategy": "threshold", "search_alpha": alpha, "progress": False}
    questions = question_sets.load_questions("world-facts", limit=arguments.questions)
    expected = answer_log_probs(generate(local_model, questions, **search))
    start = time.perf_counter()
    run = generate(server_model, questions, **search)
    seconds = time.perf_counter() - start
    log_probs = answer_log_probs(run)
    status = run.questions.set_index("question_id")["status"]
    errors = (expected - log_probs).dropna().abs()
    print(
        f"log-probabilities of {len(errors)} answers differ by {errors.median():.3f} nats in the "
        f"median, {errors.max():.3f} at most"
    )
    prompts = dict(zip(status.index, questions.prompts(), strict=True))
    decided = {name: prompts[name] for name in status.index[status != "undecided"]}
    n_false = count_false(
        server_model, decided, expected, log_probs, alpha=alpha, epsilon=arguments.epsilon
    )
    n = len(status)
    counts = status.value_counts().to_dict()
    print(f"{len(decided)} of {n} decided at α = {alpha:g} ({counts}), {n_false} false")
    undecided = run.questions[run.questions["status"] == "undecided"]
    print(undecided["why"].value_counts().to_string())
    print(f"{run.info.cost.model_calls / n:.1f} requests and {seconds / n:.2f} seconds a question")


if __name__ == "__main__":
    main()
