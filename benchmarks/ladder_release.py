"""The worker process of the ladder, with the arms that need transformers only.

It does not import pro_lib, because arms A, B and C run in another environment with transformers
4.56.2. `ladder.py` starts the process. Jobs, requests and replies are JSON.
"""

import ctypes
import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM

N_CHECKED = 5
MARK = "reply:"
# Tokens in a page of continuous batching's cache; prompts share whole pages.
PAGE = 32


@dataclass(frozen=True)
class Settings:
    """The settings of all arms: stop tokens, padding token, prefix of all prompts, N, λ and T."""

    stop: tuple[int, ...]
    pad: int
    prefix: tuple[int, ...]
    n_answers: int
    diversity_penalty: float
    max_new_tokens: int


@dataclass
class Counts:
    """Counts of forward passes.

    `attended_positions` is the sum of the positions that each token attends to.
    """

    token_forwards: int = 0
    model_calls: int = 0
    attended_positions: int = 0

    def hook(self, network, arguments: tuple, named: dict) -> None:
        """Count a call from its inputs and its mask, as a forward pre-hook."""
        ids = named["input_ids"]
        mask = named.get("attention_mask")
        cache = named.get("past_key_values")
        rows, width = ids.shape
        past = cache.get_seq_length() if cache is not None else 0
        self.model_calls += 1
        self.token_forwards += ids.numel()
        if mask is None:
            self.attended_positions += rows * (width * past + width * (width + 1) // 2)
        elif mask.dim() == 4:
            self.attended_positions += int((mask if mask.dtype == torch.bool else mask == 0).sum())
        else:
            self.attended_positions += int((mask.cumsum(1) * mask)[:, -width:].sum())


# An arm turns prompts into the answers to each: token ids without the ending.
Prompts = Sequence[list[int]]
Arm = Callable[[torch.nn.Module, Prompts, Settings, int], list[list[list[int]]]]


def in_packs(
    network, prompts: Prompts, settings: Settings, batch_size: int, *, beams: bool = False
) -> list:
    """Run arm B or C (group beam search), or G (greedy), in batches padded on the left."""
    n = settings.n_answers
    options = {}
    if beams:
        options = {"num_beams": n, "num_return_sequences": n}
        options |= (
            {"num_beam_groups": n, "diversity_penalty": settings.diversity_penalty} if n > 1 else {}
        )
    batches = (prompts[start : start + batch_size] for start in range(0, len(prompts), batch_size))
    return [
        answers for batch in batches for answers in _generate(network, batch, settings, **options)
    ]


def beams_rescored(network, prompts: Prompts, settings: Settings, batch_size: int) -> list:
    """Run arm A: as B, and a forward pass for the log-probability of each answer."""
    answers_by_prompt = in_packs(network, prompts, settings, batch_size, beams=True)
    for prompt, answers in zip(prompts, answers_by_prompt, strict=True):
        for answer in answers:
            _score(network, prompt, answer)
    return answers_by_prompt


def continuous(
    network, prompts: Prompts, settings: Settings, batch_size: int, *, sample: bool = False
) -> list:
    """Run arm H (greedy continuous batching of the library), or J (N samples of each prompt).

    The time includes its start and end, as for a user. The size of the cache is set to that of all
    requests, because the default is nine tenths of the memory.
    """
    n = settings.n_answers if sample else 1
    pages = -(-(max(map(len, prompts)) + settings.max_new_tokens) // PAGE)
    cache_options = {
        "page_size": PAGE,
        "num_blocks": (pages + 1) * batch_size * n,
        "max_batch_tokens": 2048,
    }
    cache_options |= {"max_requests_per_batch": batch_size * n}
    config = transformers.ContinuousBatchingConfig(**cache_options, return_logprobs=True, seed=0)
    options_of_generate = {
        "eos_token_id": list(settings.stop),
        "pad_token_id": settings.pad,
        "num_return_sequences": n,
    }
    options_of_generate |= {"max_new_tokens": settings.max_new_tokens} | (
        {"do_sample": True, "top_k": 0} if sample else {}
    )
    configurations = {
        "generation_config": transformers.GenerationConfig(**options_of_generate),
        "continuous_batching_config": config,
    }
    answers_by_prompt = [[] for _ in prompts]
    for name, output in network.generate_batch(
        [list(prompt) for prompt in prompts], **configurations
    ).items():
        if output.error:
            raise RuntimeError(f"continuous batching: {output.error}")
        answers_by_prompt[int(re.match(r"req_(\d+)", name)[1])].append(
            until_stop(output.generated_tokens, settings.stop)
        )
    return answers_by_prompt


def _generate(network, prompts: Prompts, settings: Settings, **options) -> list[list[list[int]]]:
    width = max(map(len, prompts))
    ids = torch.tensor(
        [[settings.pad] * (width - len(prompt)) + list(prompt) for prompt in prompts]
    )
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    options_of_generate = {
        "do_sample": False,
        "max_new_tokens": settings.max_new_tokens,
        "pad_token_id": settings.pad,
        **options,
    }
    ids = ids.to(network.device)
    mask = mask.to(network.device)
    sequences = network.generate(
        ids, attention_mask=mask, eos_token_id=list(settings.stop), **options_of_generate
    )
    answers = [until_stop(tokens, settings.stop) for tokens in sequences[:, width:].tolist()]
    per_prompt = len(answers) // len(prompts)
    return [answers[start : start + per_prompt] for start in range(0, len(answers), per_prompt)]


def until_stop(tokens: list[int], stop: Sequence[int]) -> list[int]:
    """Return the tokens before the first one that ends an answer."""
    ends = (index for index, token in enumerate(tokens) if token in stop)
    return tokens[: next(ends, len(tokens))]


@torch.inference_mode()
def _score(network, prompt: list[int], answer: list[int]) -> float:
    """Return the log-probability of an answer in nats, by one plain forward pass."""
    ids = torch.tensor([prompt + answer], device=network.device)
    log_probs = torch.log_softmax(network(input_ids=ids, use_cache=False).logits[0].float(), dim=-1)
    return float(log_probs[len(prompt) - 1 : -1].gather(1, ids[0, len(prompt) :, None]).sum())


beams = partial(in_packs, beams=True)
ARMS: dict[str, Arm] = {"A": beams_rescored, "B": beams, "C": beams, "G": in_packs}
ARMS |= {"H": continuous, "J": partial(continuous, sample=True)}


def serve(arms: dict[str, Arm], job_path: str) -> None:
    """Load the model of a job, reply with log-probabilities, then answer requests on stdin."""
    transformers.logging.set_verbosity_error()
    job = json.loads(Path(job_path).read_text())
    torch.set_num_threads(job["threads"])
    form = {"dtype": getattr(torch, job["dtype"]), "attn_implementation": "sdpa"}
    network = AutoModelForCausalLM.from_pretrained(job["folder"], **form).to(job["device"]).eval()
    settings = Settings(**job["settings"])
    versions = {"torch": torch.__version__}
    versions["transformers"] = transformers.__version__
    _reply({"versions": versions, "log_probs": _first_log_probs(network, job["prompts"][0])})
    for line in sys.stdin:
        request = json.loads(line)
        arm = arms[request["arm"]]
        prompts = job["prompts"][: request["questions"]]
        batch_size = request["batch_size"]
        _reply(_measure(request["mode"], arm, network, prompts, settings, batch_size))


def _reply(content: dict) -> None:
    # Libraries may print to stdout; a reply is the line with the mark.
    print(MARK + json.dumps(content), flush=True)


@torch.inference_mode()
def _first_log_probs(network, prompt: list[int]) -> list[float]:
    """Return the log-probabilities of the first token ids after a prompt, to compare weights."""
    logits = network(input_ids=torch.tensor([prompt], device=network.device)).logits[0, -1]
    return torch.log_softmax(logits.float(), dim=-1)[:N_CHECKED].tolist()


def _measure(
    mode: str, arm: Arm, network, prompts: Prompts, settings: Settings, batch_size: int
) -> dict:
    """Run an arm once: `count` its forwards, `time` it, or read its peak `memory`."""
    if mode == "count":
        counts = Counts()
        with network.register_forward_pre_hook(counts.hook, with_kwargs=True):
            answers = arm(network, prompts, settings, batch_size)
        return {"answers": answers, **asdict(counts)}
    on_cuda = network.device.type == "cuda"
    if mode == "memory":
        idle = _idle_memory(arm, network, prompts, settings)
        arm(network, prompts, settings, batch_size)
        peak = (
            torch.cuda.max_memory_allocated(network.device) if on_cuda else _status_bytes("VmHWM")
        )
        return {"idle_bytes": idle, "peak_bytes": peak}
    wait = partial(torch.cuda.synchronize, network.device) if on_cuda else lambda: None
    wait()
    wall = time.perf_counter()
    cpu = time.process_time()
    arm(network, prompts, settings, batch_size)
    wait()
    return {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}


def _idle_memory(arm: Arm, network, prompts: Prompts, settings: Settings) -> int:
    """Return the bytes of the loaded model after one question, from which the peak counts."""
    arm(network, prompts[:1], settings, 1)
    for parameter in network.parameters():
        parameter.sum()
    if network.device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(network.device)
        return torch.cuda.memory_allocated(network.device)
    ctypes.CDLL(None).malloc_trim(0)
    # On Linux this resets the peak of the resident memory.
    Path("/proc/self/clear_refs").write_text("5")
    return _status_bytes("VmRSS")


def _status_bytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))


if __name__ == "__main__":
    serve(ARMS, sys.argv[1])
