"""Packs of questions answered by one model, one prompt and one strategy, halved where memory runs out.

It knows tokens, devices and what computing costs; it does not know files, workers or scores.
"""

import gc
import operator
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, cached_property, partial, reduce
from importlib import metadata

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from numpy.typing import ArrayLike
from tqdm.auto import tqdm

from pro_lib import bundled, engine, models, tokens
from pro_lib.engine import Answer, Certificate, Counts, Strategy
from pro_lib.files import RunError, sha256
from pro_lib.models import Model, UnsupportedModelError
from pro_lib.questions import QuestionSet
from pro_lib.store import Cost, complete_log_prob, part_table

# A first pack of so many questions shows whether the model was asked well.
FEWEST_TO_JUDGE = 20
# What is said when there is no memory, beside the exceptions made for it: by the CPU's allocator, CUDA, MPS and cuBLAS.
_NO_MEMORY = ("can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")


class Job:
    """How questions are answered: the questions of a part in, their table and its cost out.

    Raises:
        ValueError: no questions, the model cannot see the longest prompt whole, or it answers with a thought, or a
            prompt has a token for which there are no weights.
    """

    def __init__(self, model: Model, questions: QuestionSet, strategy: Strategy, *, chat: bool | Mapping = False):
        self.model, self.questions, self.strategy, self.chat = model.with_stop(strategy.stop), questions, strategy, chat
        # The most questions that have been found to fit into memory at once.
        self.fitting = sys.maxsize
        self._prefix: engine.Prefix | None = None
        if not len(questions):
            raise ValueError("there are no questions to answer")
        prompts, size = self._prompts(questions.table), len(model.endings.stop)
        self.fit = model.fit_for(max(map(len, prompts)) + strategy.max_new_tokens)
        if (last := max(max(prompt, default=0) for prompt in prompts)) >= size:
            said = f"has {size} tokens; {model.tokenizer.convert_ids_to_tokens(last)!r}, in a prompt, is none of them"
            raise UnsupportedModelError(f"model {model.name} {said}")

    def parameters(self) -> dict[str, object]:
        """What decides the answers, as JSON can hold it."""
        chat = {}
        if self.chat:  # what the template makes of them is no parameter of ours
            [prompt] = self._prompts(self.questions.with_questions(["Who?"]).table)
            chat = {"chat_prompt": sha256(repr(prompt).encode())[:16]}
        return self.strategy.parameters() | self.questions.parameters(chat=self.chat) | chat | self.model.parameters()

    def provenance(self) -> dict[str, object]:
        """Where and with what the answers are made; the commit is that of the checkout pro_lib lies in, if any."""
        device = self.model.device
        named = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
        tree = f"plain, since the model {self.fit.plain}" if self.fit.plain else "packed"
        return {"source": self.model.source, "device": named, "tree": tree, **_software()}

    def recipe(self, per_pack: int) -> partial:
        """What makes the same job in another process, given the number of its GPUs; it loads the model anew."""
        model, endings = self.model, engine.Endings(self.model.endings.stop.cpu(), self.model.endings.closing.cpu())
        shipped = type(model.network).__module__.startswith("transformers_modules.")
        load = {"dtype": model.dtype, "quantization": model.quantization, "trust_remote_code": shipped}
        load |= {"name": model.source, "device": model.device.type}
        like = replace(model, network=None, tokenizer=None, endings=endings)
        return partial(_made, like, load, (self.questions, self.strategy), self.chat, per_pack, torch.get_num_threads())

    def part(self, questions: pd.DataFrame, per_pack: int, bar: tqdm | None = None) -> tuple[pa.Table, Cost]:
        """Answer the questions of a part, `per_pack` at once; its table (see `store.part_table`) and its cost.

        Raises `MemoryError` where a question does not fit into memory even alone.
        """
        started, bar, found = time.perf_counter(), bar or tqdm(disable=True), []
        is_first = self._prefix is None
        self.counts, self.halved = Counts(), 0
        with self._moving(bar):
            for start in range(0, len(questions), per_pack):
                pack = questions.iloc[start : start + per_pack]
                found += self._answered_in_pieces(pack)
                if is_first and start == 0 and len(pack) >= FEWEST_TO_JUDGE:
                    self._look_at([answers for answers, _ in found])
                bar.update(len(pack))
        seconds = time.perf_counter() - started
        answers, certificates = zip(*found, strict=True)
        peak = _peak_memory(self.model.device)
        cost = Cost(**vars(self.counts), seconds=seconds, peak_memory_bytes=peak, halved_packs=self.halved)
        return part_table(questions, [self._rows(each) for each in answers], certificates), cost

    @contextmanager
    def _moving(self, bar: tqdm) -> Iterator[None]:
        """Let the bar tell of each pass of the network, twice a second at most: a pack may take minutes."""
        started = last = time.perf_counter()

        def tell(*_: object) -> None:
            nonlocal last
            if (now := time.perf_counter()) - last > 0.5:
                last = now
                bar.set_postfix_str(f"{self.counts.token_forwards / (now - started):,.0f} tokens/s")

        hook = self.model.network.register_forward_hook(tell)
        try:
            yield
        finally:
            hook.remove()

    def _look_at(self, pack: Sequence[list[Answer]]) -> None:
        """Warn where more than one in ten of a pack's likeliest answers says nothing, or is cut; say what may help."""
        likely = [answers[int(np.argmax(_log_probs(answers)))] for answers in pack]
        n_cut = sum(len(answer.token_ids) == self.strategy.max_new_tokens and not answer.finished for answer in likely)
        n_empty = sum(answer.finished and not self.model.decode(answer.token_ids) for answer in likely)
        has_shots, length = bool(self.questions.shots), self.strategy.max_new_tokens
        if 10 * n_empty > len(likely):
            way = "a base model needs shots and no chat (n_shots=10, chat=False)" if self.chat else "ask with shots"
            way = "look at the shots and the template" if has_shots and not self.chat else way
            warnings.warn(f"{n_empty} of the first {len(likely)} likeliest answers are empty; {way}", stacklevel=2)
        if 10 * n_cut > len(likely):
            way = f"raise max_new_tokens={length}" + ("" if has_shots else ", or ask with shots, which are short")
            warnings.warn(f"{n_cut} of the first {len(likely)} likeliest answers do not end; {way}", stacklevel=2)

    def _answered_in_pieces(self, pack: pd.DataFrame) -> list[tuple[list[Answer], Certificate | None]]:
        """What `_answered` finds, for as many questions at once as fit into memory."""
        found: list[tuple[list[Answer], Certificate | None]] = []
        while len(found) < len(pack):
            piece = pack.iloc[len(found) : len(found) + self.fitting]
            try:
                found += self._answered(piece)
                continue
            except (RuntimeError, MemoryError) as error:
                shortage = memory_shortage(error)
                if not shortage:
                    raise
            # Here, and not above: the error keeps hold of the frames that hold the memory.
            self._halve(piece["question_id"].tolist(), shortage)
        return found

    def _halve(self, question_ids: Sequence[str], shortage: str) -> None:
        size, device = len(question_ids), self.model.device
        if size == 1:
            raise MemoryError(
                f"question {question_ids[0]!r} does not fit into the memory of {device} even alone ({shortage}); "
                "take fewer shots, fewer answers or tokens, or a smaller dtype"
            )
        self.fitting, self.halved = size // 2, self.halved + 1
        gc.collect()
        torch.cuda.empty_cache()  # nothing where there is no CUDA
        message = f"{size} questions at once do not fit into the memory of {device}; going on with {self.fitting}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)

    def _answered(self, pack: pd.DataFrame) -> list[tuple[list[Answer], Certificate | None]]:
        """The answers to the questions of a pack, with their certificates if they were searched for."""
        prompts, ids = self._prompts(pack), pack["question_id"].tolist()
        tree = self._tree(prompts)
        found = self.strategy.decode(tree, self.model.endings, question_ids=ids, epsilon=self._epsilon)
        for question_id, (answers, _) in zip(ids, found, strict=True):
            self._refuse_thought(question_id, answers)
        own = (len(prompt) - tree.prefix_length for prompt in prompts)
        return [(ours, sure and replace(sure, prompt_tokens=n)) for (ours, sure), n in zip(found, own, strict=True)]

    def _refuse_thought(self, question_id: str, answers: list[Answer]) -> None:
        likely = answers[int(np.argmax(_log_probs(answers)))]
        if mark := tokens.thought(self.model.tokenizer.decode(list(likely.token_ids))):
            raise UnsupportedModelError(
                f"question {question_id!r}: model {self.model.name} answers with a thought, {mark!r}; ask without "
                "thinking, by an option of its chat template, as chat={'enable_thinking': False}"
            )

    def _tree(self, prompts: list[list[int]]) -> engine.Tree:
        network = self.model.network
        if self.fit.plain:
            return engine.PlainTree(network, prompts, self.counts, cached=self.fit.cached)
        if self._prefix is None:
            self._prefix = engine.encode_prefix(network, self._shared(), counts=self.counts)
        return engine.PackedTree(network, prompts, self._prefix.shared_with(prompts), self.counts)

    def _shared(self) -> list[int]:
        """What all prompts begin with, or nearly: a tree takes as much of it as its own prompts share."""
        shots = self.questions.prefix()
        if shots and self.chat:
            prompts = self._prompts(self.questions.with_questions(["Who?", "When?"]).table)
            return prompts[0][: engine.common_prefix_length(prompts)]
        return self.model.encode(shots) if shots else []

    def _prompts(self, table: pd.DataFrame) -> list[list[int]]:
        """Token ids of the prompts of some questions."""
        questions = replace(self.questions, table=table)
        if self.chat:
            options = {} if self.chat is True else self.chat
            return [self.model.encode_chat(messages, options) for messages in questions.chats()]
        return [self.model.encode(prompt) for prompt in questions.prompts()]

    @cached_property
    def _epsilon(self) -> ArrayLike:
        """By how many nats a search's log-probabilities may be off: in half precision measured, else 0."""
        if not isinstance(self.strategy, engine.Threshold) or self.model.network.dtype.itemsize > 2:
            return 0.0
        prompts = self._prompts(self.questions.table.iloc[: min(engine.N_QUESTIONS, self.fitting)])
        length = self.strategy.max_new_tokens
        return engine.measured_epsilon(self._tree, prompts, self.model.endings, max_new_tokens=length)

    def _rows(self, answers: list[Answer]) -> list[dict]:
        """The answers as they are stored: downwards in probability, samples in the order they were drawn."""
        if self.strategy.ranked:
            order = np.lexsort((-_log_probs(answers), [not answer.finished for answer in answers]))
            answers = [answers[place] for place in order]
        said = [self.model.decode(answer.token_ids) for answer in answers]
        return [vars(each) | {"text": text, "log_prob": _sum(each)} for each, text in zip(answers, said, strict=True)]


@cache
def _software() -> dict[str, object]:
    """The commit, if any, and the versions of libraries: those of this process, which go on when the files change."""
    commit = None
    with suppress(OSError):  # without git there is none; a repository around an installed package is another's
        command = ["git", f"--git-dir={bundled.ROOT / '.git'}", "rev-parse", "HEAD"]
        commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or None
    versions = {name: metadata.version(name) for name in ("torch", "transformers", "numpy", "pyarrow")}
    return {"commit": commit, "versions": versions}


def _sum(answer: Answer) -> float:
    # Added up in order, as a search does: an answer exactly at α must stay there.
    return reduce(operator.add, answer.token_log_probs, 0.0)


def _log_probs(answers: Sequence[Answer]) -> np.ndarray:
    return complete_log_prob([_sum(answer) for answer in answers], [answer.end_log_prob for answer in answers])


def _made(
    like: Model, load: Mapping, asked: tuple, chat: bool | Mapping, per_pack: int, threads: int, gpus: int
) -> "tuple[Job, int]":
    """The job of a worker that has so many GPUs, whose model must be the one that it is to be like."""
    torch.set_num_threads(threads)
    placed = {"device": "cuda", "device_map": "auto" if gpus > 1 else None} if gpus else {}
    try:
        model = models.load(**load | placed)
    except torch.OutOfMemoryError as error:
        raise MemoryError(
            f"model {like.source} does not fit into a worker's memory ({memory_shortage(error)}); raise "
            "gpus_per_worker, or load it in 8 or 4 bits"
        ) from error
    if model.fingerprint != like.fingerprint:
        raise RunError(f"model {like.source} on {os.uname().nodename} is not the one asked for: its files differ")
    endings = engine.Endings(like.endings.stop.to(model.device), like.endings.closing.to(model.device))
    return Job(replace(model, name=like.name, endings=endings), *asked, chat=chat), per_pack


def memory_shortage(error: Exception) -> str:
    """The first line of an error that says there is no memory; empty for any other error."""
    first_line = str(error).strip().partition("\n")[0] or type(error).__name__
    known = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return first_line if known or any(sign in str(error) for sign in _NO_MEMORY) else ""


def _peak_memory(device: torch.device) -> int:
    """Peak of the memory allocated on a CUDA device, else of the whole process, in bytes."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, Linux kibibytes
