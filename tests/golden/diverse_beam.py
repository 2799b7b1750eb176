"""Write diverse_beam.json: the answers of group beam search of transformers 4.56.2.

Newer releases have no group beam search. So run this script twice, from the top of the repository.

1. In the project's environment: `python tests/golden/diverse_beam.py prompts`. It writes prompts
   and their log-probabilities by the installed transformers.
2. In an environment with transformers==4.56.2 and torch==2.13.0:
   `python tests/golden/diverse_beam.py answers`. It stops if its own log-probabilities differ,
   since 4.56 can misread a configuration that 5.x saved.
"""

import hashlib
import json
import sys
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "data" / "models" / "facts-2m"
GOLDEN = Path(__file__).with_suffix(".json")
N_PROMPTS, N_ANSWERS, MAX_NEW_TOKENS, N_LOG_PROBS = 32, (1, 4, 10), 32, 5


def fingerprint() -> str:
    """Which weights the golden file was made with."""
    return hashlib.sha256((MODEL / "model.safetensors").read_bytes()).hexdigest()


@torch.inference_mode()
def log_probs(network, token_ids: list[int]) -> torch.Tensor:
    """Log-probabilities `(T, V)` of one plain forward pass."""
    return torch.log_softmax(network(input_ids=torch.tensor([token_ids])).logits[0].float(), dim=-1)


def write_prompts() -> None:
    """Prompts without and with ten shots, and the most probable first tokens after them."""
    from pro_lib.generation import models
    from pro_lib.questions import question_sets

    model = models.load_model(MODEL, device="cpu")
    prompts = []
    for n_shots in (0, 10):
        questions = question_sets.load_questions(
            "world-facts", split="validation", limit=N_PROMPTS, seed=1, n_shots=n_shots
        )
        for prompt in questions.prompts():
            ids = model.encode(prompt)
            top, top_ids = (
                part.tolist() for part in log_probs(model.network, ids)[-1].topk(N_LOG_PROBS)
            )
            prompts.append({"n_shots": n_shots, "ids": ids, "top_ids": top_ids, "top": top})
    stop_ids = model.endings.stop.nonzero().squeeze(1).tolist()
    content = {
        "weights": fingerprint(),
        "pad_id": model.tokenizer.pad_token_id,
        "stop_ids": stop_ids,
    }
    GOLDEN.write_text(json.dumps(content | {"prompts": prompts}) + "\n")


def write_answers() -> None:
    """Group beam search of one beam per group, and a plain forward pass over every answer."""
    assert transformers.__version__ == "4.56.2", (
        f"transformers is {transformers.__version__}, not 4.56.2"
    )
    golden = json.loads(GOLDEN.read_text())
    assert golden["weights"] == fingerprint(), "the prompts were made with other weights"
    network = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.float32).eval()
    assert (
        AutoTokenizer.from_pretrained(MODEL).pad_token_id
        == golden["pad_id"]
        not in golden["stop_ids"]
    )
    for prompt in golden["prompts"]:
        mine = log_probs(network, prompt["ids"])[-1][prompt["top_ids"]]
        torch.testing.assert_close(mine, torch.tensor(prompt["top"]), atol=1e-4, rtol=0)
    golden["versions"] = {"transformers": transformers.__version__, "torch": torch.__version__}
    for prompt in golden["prompts"]:
        prompt["answers"] = {n: group_beams(network, prompt["ids"], n, golden) for n in N_ANSWERS}
    GOLDEN.write_text(json.dumps(golden) + "\n")


def group_beams(network, ids: list[int], n_answers: int, golden: dict) -> list[dict]:
    """Return the answers to one prompt: token ids, and log-probabilities with the ending's."""
    stop = golden["stop_ids"]
    groups = {"num_beam_groups": n_answers, "diversity_penalty": 1.0} if n_answers > 1 else {}
    length = {
        "max_new_tokens": MAX_NEW_TOKENS,
        "eos_token_id": stop,
        "pad_token_id": golden["pad_id"],
    }
    groups |= {"num_beams": n_answers, "num_return_sequences": n_answers, "do_sample": False}
    prompt = torch.tensor([ids])
    sequences = network.generate(prompt, attention_mask=torch.ones_like(prompt), **length, **groups)
    answers = []
    for sequence in sequences[:, len(ids) :].tolist():
        ends = [place for place, token in enumerate(sequence) if token in stop]
        tokens = sequence[: ends[0]] if ends else sequence
        found = log_probs(network, ids + tokens)[len(ids) - 1 :]
        stored = [round(float(found[place, token]), 6) for place, token in enumerate(tokens)]
        end = round(float(found[-1, stop].logsumexp(0)), 6) if ends else 0.0
        answers.append({"ids": tokens, "log_probs": stored, "end": end, "finished": bool(ends)})
    return answers


if __name__ == "__main__":
    {"prompts": write_prompts, "answers": write_answers}[sys.argv[1]]()
