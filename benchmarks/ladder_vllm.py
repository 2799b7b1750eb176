"""One process of the ladder in an environment that has vLLM, and nothing of this project: greedy answers and samples.

Its prefix cache is emptied when an arm begins, so that prompts are computed within the time, and what they share once.
Started by `ladder.py`; jobs, requests and replies are those of `ladder_release.py`.
"""

import math
import os
import sys

# The engine in this process: its processor time counts, and it ends with the worker.
os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "2"}

import ladder_release
import torch
import vllm
from ladder_release import Prompts, Settings


def greedy(engine: vllm.LLM, prompts: Prompts, settings: Settings, batch_size: int) -> list:
    """Arm K: one answer a prompt, with its tokens' log-probabilities."""
    return _answers(engine, prompts, settings, batch_size, temperature=0.0)


def samples(engine: vllm.LLM, prompts: Prompts, settings: Settings, batch_size: int) -> list:
    """Arm L: N samples of each prompt, with log-probabilities."""
    return _answers(engine, prompts, settings, batch_size, n=settings.n_answers, temperature=1.0)


def _answers(engine: vllm.LLM, prompts: Prompts, settings: Settings, batch_size: int, **how: object) -> list:
    asked = vllm.SamplingParams(
        **how, max_tokens=settings.max_new_tokens, stop_token_ids=list(settings.stop), logprobs=0, detokenize=False
    )
    engine.reset_prefix_cache()
    found = []
    for start in range(0, len(prompts), batch_size):
        pack = [{"prompt_token_ids": list(prompt)} for prompt in prompts[start : start + batch_size]]
        for output in engine.generate(pack, asked, use_tqdm=False):
            found.append([ladder_release.until_stop(list(each.token_ids), settings.stop) for each in output.outputs])
    return found


def loaded(job: dict) -> tuple[vllm.LLM, list[float]]:
    """The job's model in an engine, and how it sees the first prompt."""
    torch.set_num_threads(job["threads"])
    longest = max(map(len, job["prompts"])) + job["settings"]["max_new_tokens"]
    # A GPU is shared with other workers, so it may not take nine tenths of it; on a processor nothing is compiled.
    room = {"enforce_eager": True} if job["device"] == "cpu" else {"kv_cache_memory_bytes": 2**33}
    engine = vllm.LLM(
        job["folder"], dtype=job["dtype"], max_model_len=longest + 1, max_logprobs=-1, skip_tokenizer_init=True,
        enable_prefix_caching=True, seed=0, **room,
    )  # fmt: skip
    asked = vllm.SamplingParams(temperature=0.0, max_tokens=1, logprobs=-1, detokenize=False)
    [output] = engine.generate([{"prompt_token_ids": job["prompts"][0]}], asked, use_tqdm=False)
    told = output.outputs[0].logprobs[0]
    return engine, [told[token].logprob if token in told else math.nan for token in range(ladder_release.N_CHECKED)]


if __name__ == "__main__":
    arms = {"K": greedy, "L": samples}
    ladder_release.serve(arms, sys.argv[1], load=loaded, vllm=vllm.__version__)
