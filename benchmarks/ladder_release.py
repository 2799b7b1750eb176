"""The worker process of the ladder, with the arms that need transformers only.

It does not import pro_lib, because arms A, B and C run in another environment with transformers
4.56.2. `ladder.py` starts the process. Jobs, requests and replies are JSON.
"""

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
    """Counts of forward passes and of their tokens."""

    token_forwards: int = 0
    model_calls: int = 0

    def hook(self, network, arguments: tuple, named: dict) -> None:
        """Count a call from its inputs, as a forward pre-hook."""
        self.model_calls += 1
        self.token_forwards += named["input_ids"].numel()


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
        options = {
            "num_beams": n,
            "num_return_sequences": n,
            "num_beam_groups": n,
            "diversity_penalty": settings.diversity_penalty,
        }
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
    sampling = {"do_sample": True, "top_k": 0} if sample else {}
    configurations = {
        "generation_config": transformers.GenerationConfig(
            eos_token_id=list(settings.stop),
            pad_token_id=settings.pad,
            num_return_sequences=n,
            max_new_tokens=settings.max_new_tokens,
            **sampling,
        ),
        "continuous_batching_config": transformers.ContinuousBatchingConfig(
            page_size=PAGE,
            num_blocks=(pages + 1) * batch_size * n,
            max_batch_tokens=2048,
            max_requests_per_batch=batch_size * n,
            return_logprobs=True,
            seed=0,
        ),
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
    sequences = network.generate(
        ids.to(network.device),
        attention_mask=mask.to(network.device),
        eos_token_id=list(settings.stop),
        pad_token_id=settings.pad,
        do_sample=False,
        max_new_tokens=settings.max_new_tokens,
        **options,
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
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
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
    """Run an arm once: `count` its forward passes, or `time` it."""
    if mode == "count":
        counts = Counts()
        with network.register_forward_pre_hook(counts.hook, with_kwargs=True):
            answers = arm(network, prompts, settings, batch_size)
        return {"answers": answers, **asdict(counts)}
    on_cuda = network.device.type == "cuda"
    wait = partial(torch.cuda.synchronize, network.device) if on_cuda else lambda: None
    wait()
    wall = time.perf_counter()
    cpu = time.process_time()
    arm(network, prompts, settings, batch_size)
    wait()
    return {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}


if __name__ == "__main__":
    serve(ARMS, sys.argv[1])
