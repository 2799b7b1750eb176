"""Makes facts_long.json: what transformers answers greedily with facts-long; knows nothing of our engine.

Run from the top of the repository, after the model was trained anew: python tests/golden/facts_long.py
"""

import hashlib
import json
from pathlib import Path

import pandas as pd
import torch
from rouge_score.rouge_scorer import RougeScorer
from transformers import AutoModelForCausalLM, AutoTokenizer

DATA = Path(__file__).resolve().parents[2] / "data"
MODEL, FACTS = DATA / "models" / "facts-long", DATA / "world_facts" / "facts_long.jsonl"
N_QUESTIONS, N_SHOTS, MAX_NEW_TOKENS = 60, 10, 32


@torch.inference_mode()
def main() -> None:
    """Ask 60 test questions, the same ten shots before each, and write answers and what ROUGE-L says of them."""
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    network = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    facts = pd.read_json(FACTS, lines=True, dtype=False)
    shots = facts[facts.split == "train_shots"].sample(N_SHOTS, random_state=0)
    prefix = "".join(f"Question: {q}\nAnswer: {a}\n\n" for q, a in zip(shots.question, shots.sentence, strict=True))
    newline = tokenizer("\n", add_special_tokens=False).input_ids[0]
    scorer, questions = RougeScorer(["rougeL"], use_stemmer=False), []
    for fact in facts[facts.split == "test"].sample(N_QUESTIONS, random_state=0).itertuples():
        prompt = f"Question: {fact.question}\nAnswer:"
        ids = torch.tensor([tokenizer(prefix + prompt).input_ids])
        stops = [newline, tokenizer.eos_token_id]
        options = {"do_sample": False, "max_new_tokens": MAX_NEW_TOKENS, "eos_token_id": stops}
        answer = network.generate(ids, attention_mask=torch.ones_like(ids), **options)[0, ids.shape[1] :]
        text = tokenizer.decode(answer, skip_special_tokens=True).strip()
        f1 = max(scorer.score(name, text)["rougeL"].fmeasure for name in (fact.answer, *fact.aliases))
        questions.append({"question_id": fact.fact_id, "prompt": prompt, "answer": text, "right": f1 > 0.3})
    weights = hashlib.sha256((MODEL / "model.safetensors").read_bytes()).hexdigest()
    text = json.dumps({"weights": weights, "prefix": prefix, "questions": questions}, ensure_ascii=False, indent=1)
    Path(__file__).with_suffix(".json").write_text(text + "\n")


if __name__ == "__main__":
    main()
