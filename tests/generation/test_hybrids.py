"""Real architectures on the plain tree, compared with brute force over whole texts."""

import itertools
from dataclasses import replace
from functools import cache

import families
import pandas as pd
import pytest
import torch
from test_families import TABLE
from test_strategies import naive_diverse_beam, walked
from test_threshold import World, check_search, check_top_n
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from pro_lib.generation import batching, models
from pro_lib.generation.decoding.next_tokens import Endings
from pro_lib.generation.decoding.packed_tree import ForwardCounts
from pro_lib.generation.decoding.sampling import uniforms
from pro_lib.generation.decoding.strategies import strategy
from pro_lib.questions.question_sets import QuestionSet

pytestmark = pytest.mark.filterwarnings("ignore:.*asked on the plain tree:UserWarning")

# Three tokens that stop an answer, one that closes it.
WORDS = [
    "<pad>",
    "<s>",
    "</s>",
    "\n",
    "\n\n",
    "f\n",
    "Question",
    "Answer",
    ":",
    "a",
    "b",
    "c",
    "d",
    "e",
]
LENGTH = 3
SHOTS = (("a b", "c"), ("d a", "e e"), ("c", "b"))
QUESTIONS = ("a b", "c", "d d", "a b c d e")
# Less than any prompt has.
WINDOW = 12
# Two layers of Mamba: rounding of float32 grows with each, beyond what the oracles allow.
SHALLOW = {"num_hidden_layers": 2}
OWN = {
    "falcon_mamba": SHALLOW,
    "mamba": SHALLOW,
    "llama4_text": {"floor_scale": 4, "attn_scale": 1.0},
}
OWN |= {"step3p7": {"text_config": {"sliding_window": WINDOW}}}
KINDS = ("lfm2", "bloom", "gpt_oss")
KNOWN = (
    "qwen3_5_text",
    "qwen3_next",
    "granitemoehybrid",
    "jamba",
    "nemotron_h",
    "falcon_h1",
    "mamba2",
)
KNOWN = (*KNOWN, "gpt_neo", "llama4_text")
PLAIN = TABLE.index[TABLE["tree"].str.contains("plain")]


class Passes:
    """A world for the oracles of `test_threshold`, by forward passes over all prefixes."""

    length = LENGTH
    n_questions = len(QUESTIONS)
    outcomes = World.outcomes
    rounding = 1e-6  # nats, of a network's float32

    @torch.inference_mode()
    def __init__(self, model, prompts):
        self.endings = model.endings
        self.after = [{} for _ in prompts]
        going_on = (~model.endings.stop & ~model.endings.closing).nonzero().squeeze(1).tolist()
        for prompt, after in zip(prompts, self.after, strict=True):
            for depth in range(LENGTH):
                paths = list(itertools.product(going_on, repeat=depth))
                texts = torch.tensor([[*prompt, *path] for path in paths])
                logits = model.network(input_ids=texts, use_cache=False).logits[:, -1].float()
                after |= dict(zip(paths, logits.log_softmax(-1), strict=True))

    def log_probs(self, question, prefix):
        return self.after[question][tuple(prefix)]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Return a function that makes a model of fourteen tokens, its questions and its outcomes."""

    @cache
    def made(family):
        words = Tokenizer(
            WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<pad>")
        )
        words.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=words, pad_token="<pad>", eos_token="</s>"
        )
        folder = tmp_path_factory.mktemp("models") / family
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(families, "WINDOW", WINDOW)
            families.make(family, folder, tokenizer, **OWN.get(family, {}))
        table = {
            "question_id": list(QUESTIONS),
            "question": list(QUESTIONS),
            "references": [["x"]] * len(QUESTIONS),
        }
        questions = QuestionSet("toy", pd.DataFrame({**table, "split": "test"}), shots=SHOTS)
        model = models.load_model(folder, device="cpu", dtype="float32")
        # Kosmos 2.5 counts positions without the padding in a whole text, but with it when it
        # continues from a cache. So the padding ends an answer here.
        stop = model.endings.stop | (torch.arange(len(WORDS)) == tokenizer.pad_token_id)
        model = replace(model, endings=Endings(stop, model.endings.closing))
        prompts = [model.encode(prompt) for prompt in questions.prompts()]
        assert min(map(len, prompts)) > 2 * WINDOW
        assert 0 not in prompts[0]
        return model, questions, prompts, Passes(model, prompts)

    return made


MARKED = [(KNOWN, pytest.mark.slow), (sorted(set(PLAIN) - {*KINDS, *KNOWN}), pytest.mark.trial)]
FAMILIES = [*KINDS, *(pytest.param(name, marks=mark) for names, mark in MARKED for name in names)]


@pytest.mark.parametrize("family", FAMILIES)
def test_searches_samples_and_beams_on_the_plain_tree_are_those_of_brute_force(world, family):
    model, questions, prompts, passes = world(family)

    def found(name, model=model, **settings):
        job = batching.Job(model, questions, strategy(name, max_new_tokens=LENGTH, **settings))
        job.counts = ForwardCounts()
        assert job.fit.plain
        return job._answered(questions.table)

    for alpha in (0.05, 0.01):
        results = found("threshold", search_alpha=alpha)
        check_search(passes, alpha, results)
    assert sum(len(answers) for answers, _ in results) > 10
    check_top_n(passes, 4, found("threshold", top_n=4))
    for place, (answers, _) in enumerate(found("multinomial", n_answers=5, seed=1)):
        draws = uniforms(1, [QUESTIONS[place]], 5, LENGTH)[0].tolist()
        samples = [(list(answer.token_ids), answer.finished) for answer in answers]
        assert samples == [walked(passes, place, numbers) for numbers in draws]
    # The oracle of beams does not support closing tokens.
    model = replace(
        model, endings=Endings(model.endings.stop, torch.zeros_like(model.endings.closing))
    )
    for prompt, (answers, _) in zip(
        prompts, found("diverse_beam", model, n_answers=4), strict=True
    ):
        paths = zip(*naive_diverse_beam(model, prompt, 4, 1.0, LENGTH), strict=True)
        beams = [(list(answer.token_ids), answer.finished) for answer in answers]
        assert beams == list(paths)
