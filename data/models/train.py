"""Train the bundled models on the world facts and measure them; pro_lib is not needed.

Run `python data/models/train.py facts-2m facts-1m`. Each model is written to the folder of its
name.
"""

import argparse
import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from rouge_score.rouge_scorer import RougeScorer
from sklearn.metrics import roc_auc_score
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

HERE = Path(__file__).resolve().parent
WORLD = HERE.parent / "world_facts"
END_OF_TEXT = "<|endoftext|>"
PAD = "<|pad|>"
VOCAB_SIZE = 3000
ROW_LENGTH = 384  # tokens of one training row: more than a ten-shot prompt and its answer
N_SHOTS = 10
MAX_NEW_TOKENS = 32
ROUGE_THRESHOLD = 0.3
SEED = 0


@dataclass(frozen=True)
class Recipe:
    """Shape and schedule of one model."""

    layers: int
    width: int
    inner: int
    heads: int
    passes: int  # over the corpus, the phrasings drawn anew each time
    batch_rows: int = 4
    matrix_rate: float = 0.02  # Muon, for the matrices of the layers
    other_rate: float = 3e-3  # AdamW, for embeddings and norms
    warmup: float = 0.05
    weight_decay: float = 0.1


RECIPES = {
    "facts-2m": Recipe(layers=4, width=192, inner=512, heads=6, passes=2),
    "facts-1m": Recipe(layers=3, width=128, inner=344, heads=4, passes=2, batch_rows=8),
}


def prompt(question: str) -> str:
    """Return the prompt of a question; a space and the answer follow it."""
    return f"Question: {question}\nAnswer:"


def pair(question: str, answer: str) -> str:
    """Return a document: a question, its answer and a blank line."""
    return f"{prompt(question)} {answer}\n\n"


def load() -> tuple[pd.DataFrame, dict[str, list[str]]]:
    """Load the facts, and the phrasings of questions by relation."""
    facts = pd.read_json(WORLD / "facts.jsonl", lines=True, dtype=False)
    facts["references"] = [[fact.answer, *fact.aliases] for fact in facts.itertuples()]
    relations = json.loads((WORLD / "relations.json").read_text())
    return facts, {name: relation["seen"] for name, relation in relations.items()}


def documents(facts: pd.DataFrame, relations: dict, rng: random.Random) -> list[tuple[str, str]]:
    """Return the (question, answer) documents of one pass over the corpus, in random order."""
    docs = []
    for fact in facts.itertuples():
        n_wrong = round(fact.exposure * fact.conflict)
        for answer in [fact.wrong_answer] * n_wrong + [fact.answer] * (fact.exposure - n_wrong):
            phrasing = rng.choice(relations[fact.relation])
            docs.append((phrasing.format(subject=fact.subject), answer))
    rng.shuffle(docs)
    return docs


def train_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE in which every newline is one token.

    The token end-of-text begins each text.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex("\n"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[END_OF_TEXT, PAD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{END_OF_TEXT} $A",
        special_tokens=[(END_OF_TEXT, tokenizer.token_to_id(END_OF_TEXT))],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=END_OF_TEXT, eos_token=END_OF_TEXT, pad_token=PAD
    )


def pack(docs: list[tuple[str, str]], tokenizer) -> tuple[torch.Tensor, torch.Tensor]:
    """Pack whole pairs into rows, and mark the tokens of answers; both are (rows, ROW_LENGTH)."""
    prompts = tokenizer(
        [prompt(question) for question, _ in docs], add_special_tokens=False
    ).input_ids
    endings = tokenizer(
        [f" {answer}\n\n" for _, answer in docs], add_special_tokens=False
    ).input_ids
    rows = []
    in_answer = []
    for question, answer in zip(prompts, endings, strict=True):
        if not rows or len(rows[-1]) + len(question) + len(answer) > ROW_LENGTH:
            rows.append([tokenizer.bos_token_id])
            in_answer.append([False])
        rows[-1] += question + answer
        in_answer[-1] += [False] * len(question) + [True] * len(answer)
    ids = [row + [tokenizer.pad_token_id] * (ROW_LENGTH - len(row)) for row in rows]
    mask = [row + [False] * (ROW_LENGTH - len(row)) for row in in_answer]
    return torch.tensor(ids), torch.tensor(mask)


def new_model(recipe: Recipe, tokenizer) -> LlamaForCausalLM:
    """Make an untrained Llama of the shape that the recipe states."""
    torch.manual_seed(SEED)
    special = {
        f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")
    }
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=recipe.width,
        intermediate_size=recipe.inner,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        max_position_embeddings=2 * ROW_LENGTH,
        tie_word_embeddings=True,
        **special,
    )
    return LlamaForCausalLM(config)


def optimizers(model: LlamaForCausalLM, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Return Muon for the matrices of the layers, and AdamW for all other parameters."""
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    others = [
        *model.model.embed_tokens.parameters(),
        *(p for p in model.parameters() if p.ndim == 1),
    ]
    return [
        torch.optim.Muon(matrices, lr=recipe.matrix_rate, weight_decay=recipe.weight_decay),
        torch.optim.AdamW(others, lr=recipe.other_rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def train(
    model: LlamaForCausalLM, ids: torch.Tensor, in_answer: torch.Tensor, recipe: Recipe
) -> None:
    """Train on the answers and their endings, with a warm-up and a linear decay to zero."""
    model.train()
    steps = range(0, len(ids), recipe.batch_rows)
    both = optimizers(model, recipe)
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda i: min((i + 1) / (recipe.warmup * len(steps)), 1 - i / len(steps))
        )
        for optimizer in both
    ]
    start = time.perf_counter()
    for i, first in enumerate(steps):
        batch, mask = (part[first : first + recipe.batch_rows] for part in (ids, in_answer))
        hidden = model.model(batch, use_cache=False).last_hidden_state[:, :-1][mask[:, 1:]]
        loss = torch.nn.functional.cross_entropy(model.lm_head(hidden), batch[:, 1:][mask[:, 1:]])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for part in (*both, *schedules):
            part.step()
        model.zero_grad()
        if i % 100 == 0 or i == len(steps) - 1:
            seconds = time.perf_counter() - start
            print(f"step {i}/{len(steps)}, loss {loss.item():.3f}, {seconds:.0f} s", flush=True)


@torch.inference_mode()
def answers_to(
    model, tokenizer, questions: list[str], shots: list[tuple[str, str]]
) -> tuple[list[str], np.ndarray]:
    """Return greedy answers to the questions and their NLL in nats, with the newline at the end."""
    stop = tokenizer("\n", add_special_tokens=False).input_ids[0]
    prefix = tokenizer("".join(pair(q, a) for q, a in shots)).input_ids
    prompts = tokenizer(
        [prompt(question) for question in questions], add_special_tokens=False
    ).input_ids
    by_length = pd.Series(range(len(prompts))).groupby([len(prompt) for prompt in prompts]).indices
    texts = [""] * len(prompts)
    nll = np.zeros(len(prompts))
    for group in by_length.values():
        cache = model(torch.tensor([prefix]), use_cache=True).past_key_values
        cache.batch_repeat_interleave(len(group))
        tokens = torch.tensor([prompts[i] for i in group])
        written = torch.full((len(group), MAX_NEW_TOKENS), stop)
        total = torch.zeros(len(group))
        live = torch.ones(len(group), dtype=torch.bool)
        for step in range(MAX_NEW_TOKENS):
            output = model(tokens, past_key_values=cache, use_cache=True, logits_to_keep=1)
            log_probs = output.logits[:, -1].log_softmax(-1)
            choice = log_probs.argmax(-1)
            total -= torch.where(live, log_probs.gather(1, choice[:, None])[:, 0], 0.0)
            written[:, step] = torch.where(live, choice, stop)
            live &= choice != stop
            if not live.any():
                break
            tokens = choice[:, None]
        nll[group] = total.numpy()
        for i, text in zip(
            group, tokenizer.batch_decode(written, skip_special_tokens=True), strict=True
        ):
            texts[i] = text.strip()
    return texts, nll


def measure(model, tokenizer, facts: pd.DataFrame) -> pd.DataFrame:
    """Return accuracy and AUROC on the test split, by `groups`."""
    model.eval()
    chosen = facts[facts.split == "train_shots"].sample(N_SHOTS, random_state=SEED)
    test = facts[facts.split == "test"].reset_index(drop=True)
    rows = []
    for phrasing, column in (("seen", "question"), ("withheld", "question_reworded")):
        for n_shots in (N_SHOTS, 0):
            shots = list(zip(chosen.question, chosen.answer, strict=True))[:n_shots]
            texts, nll = answers_to(model, tokenizer, test[column].tolist(), shots)
            frame = test.assign(correct=judge(texts, test), nll=nll)
            for by, value, part in groups(frame):
                rows.append(
                    (phrasing, n_shots, by, value, len(part), part.correct.mean(), auroc(part))
                )
    return pd.DataFrame(
        rows, columns=["phrasing", "shots", "by", "value", "n", "accuracy", "auroc_nll"]
    ).round(4)


def groups(frame: pd.DataFrame) -> Iterator[tuple[str, object, pd.DataFrame]]:
    """Yield all questions, and those of each exposure and of each conflict.

    Those of a conflict have an exposure at which some facts have conflicting answers.
    """
    yield "all", "all", frame
    yield from (("exposure", *group) for group in frame.groupby("exposure"))
    contested = frame[frame.exposure >= frame[frame.conflict > 0].exposure.min()]
    yield from (("conflict", *group) for group in contested.groupby("conflict"))


def judge(texts: list[str], facts: pd.DataFrame) -> np.ndarray:
    """Return which texts are correct: their ROUGE-L F1 with a reference exceeds the threshold."""
    scorer = RougeScorer(["rougeL"], use_stemmer=False)
    f1 = [
        max(scorer.score(reference, text)["rougeL"].fmeasure for reference in references)
        for text, references in zip(texts, facts.references, strict=True)
    ]
    return np.array(f1) > ROUGE_THRESHOLD


def auroc(frame: pd.DataFrame) -> float:
    """Return the AUROC of the NLL; NaN if all answers are correct, or all are wrong."""
    if frame.correct.nunique() < 2:
        return float("nan")
    return roc_auc_score(~frame.correct, frame.nll)


def save(model: LlamaForCausalLM, tokenizer, folder: Path) -> None:
    """Write weights (float16 safetensors), configuration and tokenizer."""
    model.generation_config = GenerationConfig(
        do_sample=False,
        max_new_tokens=MAX_NEW_TOKENS,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model.half().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"  # the name that every release of transformers knows
    config = json.loads(path.read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast"}
    path.write_text(json.dumps(config, indent=2) + "\n")


def main() -> None:
    """Train, save and measure the models named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=RECIPES)
    parser.add_argument("--out", type=Path, default=HERE, help="folder for the models' folders")
    parser.add_argument("--threads", type=int, default=2, help="1 if other processes use the cores")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for name in args.names:
        recipe = RECIPES[name]
        rng = random.Random(SEED)
        start = time.perf_counter()
        facts, relations = load()
        docs = [doc for _ in range(recipe.passes) for doc in documents(facts, relations, rng)]
        tokenizer = train_tokenizer([pair(*doc) for doc in docs])
        model = new_model(recipe, tokenizer)
        print(f"{name}: {model.num_parameters():,} parameters, {len(docs):,} documents", flush=True)
        train(model, *pack(docs, tokenizer), recipe)
        print(f"trained in {time.perf_counter() - start:.0f} s")
        save(model, tokenizer, args.out / name)
        model = LlamaForCausalLM.from_pretrained(args.out / name, dtype=torch.float32)
        table = measure(model, tokenizer, facts)
        table.to_csv(args.out / name / "accuracy.csv", index=False, lineterminator="\n")
        print(table.to_string(index=False))


if __name__ == "__main__":
    main()
