"""Endings, prompts, texts and probabilities for several kinds of tokenizers, each trained here."""

import json

import pandas as pd
import pytest
import torch
from test_strategies import check_plain_passes
from tiny_models import widen
from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers, processors, trainers
from tokenizers.models import BPE
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GemmaTokenizer,
    LlamaTokenizer,
    PreTrainedTokenizerFast,
)

from pro_lib import generate, load_model
from pro_lib.generation import tokens
from pro_lib.questions import question_sets

TEXT = """Question: What is the capital of France?\nAnswer: Paris.\n
Question: Who wrote “Les Misérables”, and when?\nAnswer: Victor Hugo (1862).\n\n
Question: 日本の首都はどこですか？\nAnswer: 東京 – Tokyo 🗼 \n
  def f(x): \n\treturn x;\n
\nQuestion: Wie heißt der größte See?\nAnswer: Oberer See.\nA lake.\nA town. \n"""
QUESTIONS = [
    "Who wrote Emma?",
    "Was heißt “größer” – auf Deutsch? 🗼",
    "Say:  def f(x):",
    "首都 is what?\tSay it",
]
# As of GPT-4 and Llama 3: what comes before newlines is one piece with them.
TIKTOKEN = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def trained(pre_tokenizer, *, alphabet=()):
    """Vocabulary and merges of BPE."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=376, initial_alphabet=list(alphabet), show_progress=False
    )
    tokenizer.train_from_iterator([TEXT] * 3, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def pieces(*first, newlines=()):
    """The vocabulary of SentencePiece (special tokens, bytes, few pieces) and its merges."""
    pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split("\n", "removed"), pre_tokenizers.Metaspace()]
    )
    vocabulary, merges = trained(pre_tokenizer)
    known = [
        name for name in sorted(vocabulary, key=vocabulary.get) if not set(name) & set("東京🗼é–")
    ]
    names = [*first, *(f"<0x{byte:02X}>" for byte in range(256)), *newlines, *known]
    merges = [merge for merge in merges if {*merge, "".join(merge)} <= set(known)]
    return {name: number for number, name in enumerate(names)}, merges


def sentence_piece():
    """A tokenizer as of Llama 2: `▁` for spaces, one before the text, bytes for newlines, a BOS."""
    vocabulary, merges = pieces("<unk>", "<s>", "</s>")
    return LlamaTokenizer(vocab=vocabulary, merges=merges, legacy=False, add_bos_token=True)


def gemma():
    """As of Gemma: spaces as `▁`, none before the text; runs of newlines are pieces; a BOS."""
    vocabulary, merges = pieces(
        "<pad>", "<eos>", "<bos>", "<unk>", "<mask>", newlines=("\n", "\n\n", "\n\n\n")
    )
    merges += [("\n", "\n"), ("\n\n", "\n")]
    return GemmaTokenizer(vocab=vocabulary, merges=merges, add_bos_token=True)


def byte_level(*, split=None, special=("<|endoftext|>",), bos=None):
    """Byte-level BPE, as of GPT-2 or tiktoken, with special tokens in the middle of the ids."""
    pieces = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None)]
    if split:
        pieces.insert(0, pre_tokenizers.Split(Regex(split), "isolated"))
    pre_tokenizer = pre_tokenizers.Sequence(pieces)
    vocabulary, merges = trained(pre_tokenizer, alphabet=pre_tokenizers.ByteLevel.alphabet())
    names = sorted(vocabulary, key=vocabulary.get)
    names[100:100] = special
    tokenizer = Tokenizer(
        BPE(vocab={name: number for number, name in enumerate(names)}, merges=merges)
    )
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(name, special=True, normalized=False) for name in special]
    )
    if bos:
        first = [(bos, names.index(bos))]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=first
        )
    named = {"eos_token": special[0]} | ({"bos_token": bos} if bos else {})
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named)


SPECIAL = {"special": ("<|eot|>", "<|begin|>", "<|im_end|>"), "bos": "<|begin|>"}
KINDS = {
    "SentencePiece": sentence_piece,
    "Gemma": gemma,
    "byte-level": byte_level,
    "tiktoken": lambda: byte_level(split=TIKTOKEN),
    "tiktoken, BOS": lambda: byte_level(split=TIKTOKEN, **SPECIAL),
    "padded": byte_level,
}
WITH_BOS = {"SentencePiece", "Gemma", "tiktoken, BOS"}
PADDED = 29


@pytest.fixture(scope="module", params=KINDS)
def kind(request, tmp_path_factory):
    """Name and loaded model; its end of text is known to the tokenizer alone."""
    folder = tmp_path_factory.mktemp("kind")
    tokenizer = KINDS[request.param]()
    tokenizer.save_pretrained(folder)
    size = len(tokenizer) + PADDED * (request.param == "padded")
    shape = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    torch.manual_seed(0)
    ids = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    config = AutoConfig.for_model(
        "llama", vocab_size=size, max_position_embeddings=4096, **shape, **ids
    )
    network = AutoModelForCausalLM.from_config(config)
    widen(network)
    network.save_pretrained(folder)
    return request.param, load_model(folder, device="cpu")


@pytest.mark.parametrize("stop", [(), (".",)])
def test_tokens_end_an_answer_according_to_their_texts(kind, stop):
    name, model = kind
    tokenizer = model.tokenizer
    endings = model.with_stop(stop).endings
    stops = set()
    closings = set()
    for token_id, text in enumerate(map(tokenizer.decode, range(len(tokenizer)))):
        before = min((text.partition(end)[0] for end in ("\n", *stop)), key=len)
        if before != text:
            (closings if before.strip() else stops).add(token_id)
    stops.add(tokenizer.eos_token_id)
    assert endings.stop_ids.tolist() == sorted(stops)
    assert endings.closing_ids.tolist() == sorted(closings - stops)
    assert len(endings.stop) == len(tokenizer) + PADDED * (name == "padded")
    assert (len(stops) > 2) == (name != "SentencePiece" or bool(stop))
    assert bool(closings) == (name.startswith("tiktoken") or bool(stop))


def test_more_texts_and_tokens_may_end_an_answer(kind):
    _, model = kind
    tokenizer = model.tokenizer
    stopping = model.with_stop(["."])
    ids = tokenizer(" Paris.", add_special_tokens=False)["input_ids"]
    assert stopping.decode(ids) == "Paris"
    assert model.decode(ids) == "Paris."
    letter = tokenizer.convert_tokens_to_ids("a")
    more = AutoConfig.for_model(
        "llama", eos_token_id=[letter]
    )  # a configuration may name more ends of text
    named = tokens.classify_tokens(tokenizer, tokens.NEWLINE, more, size=len(tokenizer))
    assert (bool(model.endings.stop[letter]), bool(named.stop[letter])) == (False, True)


def test_prompts_are_read_back_and_begin_as_the_tokenizer_has_it(kind):
    name, model = kind
    for question in QUESTIONS:
        ids = model.encode(question)
        assert model.tokenizer.decode(ids, skip_special_tokens=True) == question
        assert (ids[0] == model.tokenizer.bos_token_id) == (name in WITH_BOS)
        assert ids[-1] != model.tokenizer.eos_token_id


@pytest.fixture(scope="module")
def runs(kind):
    """Samples, and an exact search, of four questions."""
    question_set = question_sets.as_set(QUESTIONS)
    ways = (
        {"strategy": "multinomial", "n_answers": 30},
        {"strategy": "threshold", "search_alpha": 1e-3},
    )
    return question_set, [generate(kind[1], question_set, max_new_tokens=8, **way) for way in ways]


def test_an_answers_text_is_what_it_adds_to_the_prompt(kind, runs):
    """Up to its newline: not a space is lost, nor a character of several tokens."""
    _, model = kind
    question_set, both = runs
    n_cut = 0
    prompts = dict(
        zip(
            question_set.table["question_id"],
            map(model.encode, question_set.prompts()),
            strict=True,
        )
    )
    for answer in pd.concat([run.answers for run in both]).itertuples():
        ids = prompts[answer.question_id]
        prompt = model.tokenizer.decode(ids, skip_special_tokens=True)
        whole = model.tokenizer.decode([*ids, *answer.token_ids], skip_special_tokens=True)
        assert whole.startswith(prompt)
        added = whole.removeprefix(prompt)
        assert answer.text == added.lstrip().partition("\n")[0].strip()
        n_cut += len(added) > len(answer.text)
    assert n_cut


def test_probabilities_are_those_of_plain_forward_passes(kind, runs):
    question_set, both = runs
    for run in both:
        check_plain_passes(
            kind[1], question_set, run.answers.groupby("question_id").head(8), atol=1e-4
        )


class Raw:
    """A tokenizer that writes raw pieces if special tokens are kept, as mistral-common's does."""

    def decode(self, ids, *, skip_special_tokens, clean_up_tokenization_spaces):
        return (["", "a", "\n"] if skip_special_tokens else ["</s>", "▁a", "<0x0A>"])[ids[0]]


def test_raw_pieces_are_not_texts_of_tokens():
    assert tokens.token_texts(Raw(), 3) == ("</s>", "a", "\n")
