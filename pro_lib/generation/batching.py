"""Batches of questions answered by one model, prompt and strategy, halved where memory runs out; knows no file."""

import gc
import shlex
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from importlib import metadata
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from numpy.typing import ArrayLike
from tqdm.auto import tqdm
from transformers import PreTrainedModel

from pro_lib.common import catalog
from pro_lib.common.files import sha256
from pro_lib.common.thoughts import thought_mark
from pro_lib.generation import decoding
from pro_lib.generation.decoding import ForwardCounts, Outcome, Strategy
from pro_lib.generation.decoding.compatibility import positions
from pro_lib.generation.models import Model, UnsupportedModelError
from pro_lib.questions import question_sets
from pro_lib.questions.question_sets import QuestionSet
from pro_lib.runs.certificate import Certificate
from pro_lib.runs.storage import Cost, part_table

# Measured on two cores with the bundled model: smaller batches pay more per call, larger ones attend to more in vain.
DEFAULT_BATCH_SIZE = 32
_CUDA_BATCH_SIZE = (
    128  # there a step of few rows takes as long as its launches: a model, docs/speed.md
)
# Measured once, by prompts, T and ends
_EPSILONS: WeakKeyDictionary[PreTrainedModel, dict] = WeakKeyDictionary()
# What is said when there is no memory, beside the exceptions made for it: by the CPU's allocator, CUDA, MPS and cuBLAS.
_NO_MEMORY = ("can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")


@dataclass
class Job:
    """How questions are answered, `batch_size` at once; `ValueError` if none, or too long for the model."""

    model: Model
    questions: QuestionSet
    strategy: Strategy
    chat: bool | Mapping = False
    batch_size: int = 0  # for 0, as many as the device does best with

    def __post_init__(self):
        self.model, self.counts, self._prefix = (
            self.model.with_stop(self.strategy.stop),
            ForwardCounts(),
            None,
        )
        # Each prompt is wanted twice: its length, and itself
        self._encode = lru_cache(2**14)(self.model.encode)
        self.batch_size = self.batch_size or self._usual_batch_size()
        # The most questions that have been seen to fit into memory at once
        self.fitting = sys.maxsize
        if not len(self.questions):
            raise ValueError("there are no questions to answer")
        prompts, size = self._prompts(self.questions.table), len(self.model.endings.stop)
        self.fit = self.model.fit_for(max(map(len, prompts)) + self.strategy.max_new_tokens)
        if (last := max(max(prompt, default=0) for prompt in prompts)) >= size:
            words = f"{self.model.tokenizer.convert_ids_to_tokens(last)!r}, in a prompt, is none of them"
            raise UnsupportedModelError(f"model {self.model.name} has {size} tokens; {words}")

    def _usual_batch_size(self) -> int:
        """Return how many questions are answered at once unless the caller says it."""
        if self.model.is_remote:
            return self.model.concurrency
        return _CUDA_BATCH_SIZE if self.model.device.type == "cuda" else DEFAULT_BATCH_SIZE

    def parameters(self) -> dict[str, Any]:
        """Return what decides the answers, as JSON can hold it."""
        chat = {}
        if self.chat:  # what the template makes of them is no parameter of ours
            [prompt] = self._prompts(self.questions.with_questions(["Who?"]).table)
            chat = {"chat_prompt": sha256(repr(prompt).encode())[:16]}
        return (
            self.strategy.parameters()
            | self.questions.parameters(chat=self.chat)
            | chat
            | self.model.parameters()
        )

    def provenance(self) -> dict[str, Any]:
        """Return where and with what the answers are made; the commit is that of pro_lib's checkout, if any."""
        device = self.model.device
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
        tree = f"plain, since the model {self.fit.plain}" if self.fit.plain else "packed"
        command = ["git", f"--git-dir={catalog.ROOT / '.git'}", "rev-parse", "HEAD"]
        status, commit = subprocess.getstatusoutput(shlex.join(command))
        versions = {
            library: metadata.version(library)
            for library in ("torch", "transformers", "numpy", "pyarrow")
        }
        where = {"source": self.model.source, "device": name, "tree": tree}
        return where | {"commit": None if status else commit, "versions": versions}

    def part(self, questions: pd.DataFrame, bar: tqdm | None = None) -> tuple[pa.Table, Cost]:
        """Return the table (`runs.storage.part_table`) and cost of a part.

        `MemoryError` if one question alone is too much.
        """
        if self.model.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.model.device)
        started, bar = time.perf_counter(), bar or tqdm(disable=True)
        results: list[tuple[list[Outcome], Certificate | None]] = []
        is_first, self.counts, self.halved = self._prefix is None, ForwardCounts(), 0

        def draw(
            *_: object,
        ) -> None:  # a hook that returned what `update` does would change the network's output
            bar.update(0)

        # A batch may take minutes, so each pass of the network draws the bar.
        with self.model.network.register_forward_hook(draw):
            for start in range(0, len(questions), self.batch_size):
                batch = questions.iloc[start : start + self.batch_size]
                results += self._answered_in_pieces(batch)
                if (
                    is_first and start == 0 and len(batch) >= 20
                ):  # enough to see whether the model was asked well
                    self._look_at([answers for answers, _ in results])
                bar.update(len(batch))
        seconds = time.perf_counter() - started
        answers, certificates = zip(*results, strict=True)
        peak = _peak_memory(self.model.device)
        cost = Cost(
            **vars(self.counts), seconds=seconds, peak_memory_bytes=peak, halved_packs=self.halved
        )
        return part_table(
            questions, [self._rows(outcomes) for outcomes in answers], certificates
        ), cost

    def _look_at(self, batch: Sequence[list[Outcome]]) -> None:
        """Warn where more than one in ten of a batch's likeliest answers says nothing, or is cut; say what may help."""
        likely = [max(answers, key=lambda answer: answer.complete_log_prob) for answers in batch]
        length = self.strategy.max_new_tokens
        n_cut = sum(len(answer.token_ids) == length and not answer.finished for answer in likely)
        n_empty = sum(
            answer.finished and not self.model.decode(answer.token_ids) for answer in likely
        )
        way = "a base model needs shots and no chat (n_shots=10, chat=False)"
        longer = f"raise max_new_tokens={length}, or ask with shots, whose answers are short"
        for n, what, help_ in ((n_empty, "are empty", way), (n_cut, "do not end", longer)):
            if 10 * n > len(likely):
                warnings.warn(
                    f"{n} of the first {len(likely)} likeliest answers {what}; {help_}",
                    stacklevel=2,
                )

    def _answered_in_pieces(
        self, batch: pd.DataFrame
    ) -> list[tuple[list[Outcome], Certificate | None]]:
        """Return what `_answered` does, for as many questions at once as fit into memory."""
        results: list[tuple[list[Outcome], Certificate | None]] = []
        while len(results) < len(batch):
            piece = batch.iloc[len(results) : len(results) + self.fitting]
            try:
                results += self._answered(piece)
                continue
            except (RuntimeError, MemoryError) as error:
                is_known = isinstance(error, MemoryError | torch.OutOfMemoryError)
                if not is_known and not any(words in str(error) for words in _NO_MEMORY):
                    raise
                trouble = f"fit into the memory of {self.model.device}"
                if len(piece) == 1:
                    remedy = "take fewer shots, fewer answers or tokens, or a smaller dtype"
                    name = piece["question_id"].iloc[0]
                    raise MemoryError(
                        f"question {name!r} does not {trouble} even alone; {remedy}"
                    ) from error
            # Here, and not above: the error keeps hold of the frames that hold the memory.
            self.fitting, self.halved = len(piece) // 2, self.halved + 1
            words = f"{len(piece)} questions at once do not {trouble}; going on with {self.fitting}"
            warnings.warn(words, RuntimeWarning, stacklevel=2)
            gc.collect()
            torch.cuda.empty_cache()  # nothing where there is no CUDA
        return results

    def _answered(self, batch: pd.DataFrame) -> list[tuple[list[Outcome], Certificate | None]]:
        """Return the answers to the questions of a batch, with their certificates if they were searched for."""
        prompts, ids = self._prompts(batch), batch["question_id"].tolist()
        tree = self._tree(prompts)
        results = self.strategy.decode(
            tree, self.model.endings, question_ids=ids, epsilon=self._epsilon
        )
        for question_id, (answers, _) in zip(ids, results, strict=True):
            likeliest = max(answers, key=lambda answer: answer.complete_log_prob)
            if mark := thought_mark(str(self.model.tokenizer.decode(list(likeliest.token_ids)))):
                words = f"question {question_id!r}: model {self.model.name} answers with a thought, {mark!r}"
                raise UnsupportedModelError(
                    f"{words}; ask without thinking, as chat={{'enable_thinking': False}}"
                )
        certified = zip(
            results, [len(prompt) - tree.prefix_length for prompt in prompts], strict=True
        )
        return [
            (answers, search and replace(search, prompt_tokens=length))
            for (answers, search), length in certified
        ]

    def _tree(self, prompts: list[list[int]]) -> decoding.Tree:
        network, shots = self.model.network, self.questions.prefix()
        if self._prefix is None:  # of it a tree takes as much as its own prompts share
            shared: list[int] = []
            if shots and self.chat and not self.fit.plain:
                others = self._prompts(self.questions.with_questions(["Who?", "When?"]).table)
                shared = others[0][: decoding.common_prefix_length(others)]
            elif shots and not self.fit.plain:
                shared = self.model.encode(shots)
            self._prefix = decoding.encode_prefix(network, shared, counts=self.counts)
        return self.fit.tree(network, prompts, prefix=self._prefix, counts=self.counts)

    def _prompts(self, table: pd.DataFrame) -> list[list[int]]:
        """Return the token ids of the prompts of some questions."""
        questions = replace(self.questions, table=table)
        if self.chat:
            options = {} if self.chat is True else self.chat
            return [self.model.encode_chat(messages, options) for messages in questions.chats()]
        return [self._encode(prompt) for prompt in questions.prompts()]

    @cached_property
    def _epsilon(self) -> ArrayLike:
        """Return by how many nats a search's log-probabilities may be off: in half precision measured, else 0."""
        if isinstance(stated := getattr(self.model, "epsilon", None), np.ndarray):
            return stated[: self.strategy.max_new_tokens + 1]
        if (
            not isinstance(self.strategy, decoding.Threshold)
            or self.model.network.dtype.itemsize > 2
        ):
            return 0.0
        length = self.strategy.max_new_tokens
        prompts = self._prompts(
            self.questions.table.iloc[: min(decoding.N_QUESTIONS, self.fitting)]
        )
        if (
            len(prompts) < decoding.FEWEST
        ):  # too few to see it by: it is measured on others, asked in the same way
            facts = question_sets.load_questions(
                "world-facts", split="validation", limit=decoding.N_QUESTIONS, n_shots=0
            )
            others = self._prompts(self.questions.with_questions(facts.table["question"]).table)
            room = positions(self.model.network.config.get_text_config()) - length
            prompts = [prompt for prompt in others if len(prompt) <= room] or prompts
        known = _EPSILONS.setdefault(self.model.network, {})
        key = (*map(tuple, prompts), length, self.model.ends)
        if key not in known:
            known[key] = decoding.measured_epsilon(
                self._tree, prompts, self.model.endings, max_new_tokens=length
            )
        return known[key]

    def _rows(self, answers: list[Outcome]) -> list[dict]:
        """Return answers as they are stored: downwards in probability, samples in the order they were drawn."""
        answers = by_probability(answers) if self.strategy.ranked else answers
        texts = [self.model.decode(answer.token_ids) for answer in answers]
        return [
            vars(row) | {"text": text, "log_prob": row.log_prob}
            for row, text in zip(answers, texts, strict=True)
        ]


def by_probability(answers: Sequence[Outcome]) -> list[Outcome]:
    """Return answers downwards in probability, those cut by length last."""
    return sorted(answers, key=lambda answer: (not answer.finished, -answer.complete_log_prob))


def _peak_memory(device: torch.device) -> int:
    """Return the peak memory in bytes, of a CUDA device or else the whole process; 0 where none counts it."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows has none
        return 0
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux kibibytes
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
