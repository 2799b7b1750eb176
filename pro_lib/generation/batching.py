"""Answer questions in batches, which are halved if memory runs out."""

from __future__ import annotations

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
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from numpy.typing import ArrayLike
from tqdm.auto import tqdm

from pro_lib.common import catalog
from pro_lib.common.files import sha256
from pro_lib.common.thoughts import thought_mark
from pro_lib.generation.decoding.compatibility import positions
from pro_lib.generation.decoding.exact_search import FEWEST, N_QUESTIONS, measured_epsilon
from pro_lib.generation.decoding.packed_tree import ForwardCounts, Tree
from pro_lib.generation.decoding.steps import Outcome
from pro_lib.generation.decoding.strategies import Strategy, Threshold
from pro_lib.generation.models import Model, UnsupportedModelError
from pro_lib.questions import question_sets
from pro_lib.questions.question_sets import QuestionSet
from pro_lib.runs.certificate import Certificate
from pro_lib.runs.storage import Cost, part_table

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Measured errors of log-probabilities, by network, then by prompts, T and texts that end an answer.
_EPSILONS: WeakKeyDictionary[PreTrainedModel, dict] = WeakKeyDictionary()
# Messages about lacking memory in errors of other types: from the CPU's allocator, CUDA or MPS, and
# cuBLAS.
_NO_MEMORY = ("can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
# The fewest questions of a first batch whose answers show whether the prompts suit the model.
_FEWEST_TO_INSPECT = 20

# The answers to one question, and from a search its certificate.
Result = tuple[list[Outcome], Certificate | None]


@dataclass
class Job:
    """Answer questions with one model, strategy and kind of prompt.

    Args:
        model: the model.
        questions: the question set, with the shots of the prompts.
        strategy: the strategy.
        chat: whether prompts use the chat template, or the options of the template.
        batch_size: questions in one batch; 0 for the default of the device.

    Raises:
        ValueError: there are no questions.
        UnsupportedModelError: a prompt is too long for the model, or has a token without weights.
    """

    model: Model
    questions: QuestionSet
    strategy: Strategy
    chat: bool | Mapping = False
    batch_size: int = 0

    def __post_init__(self):
        self.model = self.model.with_stop(self.strategy.stop)
        self.counts = ForwardCounts()
        self._prefix = None
        # Each prompt is encoded twice: for its length, and for its answers.
        self._encode = lru_cache(2**14)(self.model.encode)
        self.batch_size = self.batch_size or self.model.prompts_at_once
        # The most questions at once that may fit into memory.
        self.fitting = sys.maxsize
        if not len(self.questions):
            raise ValueError("questions= is empty; give at least one question")
        if self.chat:
            self._check_template()
        prompts = self._prompts(self.questions.table)
        longest = max(map(len, prompts))
        self.fit = self.model.fit_for(longest + self.strategy.max_new_tokens)
        self._check_token_ids(prompts)

    def _check_template(self) -> None:
        """Raise `UnsupportedModelError` for a chat template whose prompts lack the question."""
        # The prompts of two questions are compared, because a template may trim or escape a text.
        first_prompt, second_prompt = self._example_prompts
        if first_prompt == second_prompt:
            raise UnsupportedModelError(
                f"the chat template of model {self.model.name} drops the question: two different "
                "questions have the same prompt; use chat=False, or correct the template"
            )

    @cached_property
    def _example_prompts(self) -> list[list[int]]:
        """The prompts of two questions, which differ from their first letter on."""
        return self._prompts(self.questions.with_questions(["Who?", "In what year?"]).table)

    def _check_token_ids(self, prompts: Sequence[Sequence[int]]) -> None:
        """Raise `UnsupportedModelError` for a token that has no weights in the network."""
        n_tokens = len(self.model.endings.stop)
        highest_id = max(max(prompt, default=0) for prompt in prompts)
        if highest_id >= n_tokens:
            token = self.model.tokenizer.convert_ids_to_tokens(highest_id)
            raise UnsupportedModelError(
                f"model {self.model.name} has {n_tokens} tokens, and a prompt contains {token!r}, "
                "which is not one of them"
            )

    def parameters(self) -> dict[str, Any]:
        """Return the settings that decide the answers, as JSON can store them."""
        chat = {}
        if self.chat:
            # A prompt shows all that the template and its options do.
            prompt = repr(self._example_prompts[0])
            chat = {"chat_prompt": sha256(prompt.encode())[:16]}
        return (
            self.strategy.parameters()
            | self.questions.parameters(chat=self.chat)
            | chat
            | self.model.parameters()
        )

    def provenance(self) -> dict[str, Any]:
        """Return the model's source, the device, the tree and the versions that make the answers.

        The commit is that of the checkout of pro_lib, or None if pro_lib is installed.
        """
        device = self.model.device
        is_cuda = device.type == "cuda"
        command = ["git", f"--git-dir={catalog.ROOT / '.git'}", "rev-parse", "HEAD"]
        status, commit = subprocess.getstatusoutput(shlex.join(command))
        libraries = ("torch", "transformers", "numpy", "pyarrow")
        return {
            "source": self.model.source,
            "device": torch.cuda.get_device_name(device) if is_cuda else str(device),
            "tree": f"plain, since the model {self.fit.plain}" if self.fit.plain else "packed",
            "commit": None if status else commit,
            "versions": {library: metadata.version(library) for library in libraries},
        }

    def part(self, questions: pd.DataFrame, bar: tqdm | None = None) -> tuple[pa.Table, Cost]:
        """Answer the questions of a part of a run.

        Args:
            questions: rows of the question table.
            bar: the progress bar.

        Returns:
            The table of the part (`runs.storage.part_table`), and its cost.

        Raises:
            MemoryError: a question does not fit into memory even alone.
        """
        device = self.model.device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        start_time = time.perf_counter()
        self.counts = ForwardCounts()
        self.halved = 0
        results = self._answer(questions, bar or tqdm(disable=True))
        cost = Cost(
            **vars(self.counts),
            seconds=time.perf_counter() - start_time,
            peak_memory_bytes=_peak_memory(device),
            halved_packs=self.halved,
        )
        rows = [self._rows(answers) for answers, _ in results]
        certificates = [certificate for _, certificate in results]
        return part_table(questions, rows, certificates), cost

    def _answer(self, questions: pd.DataFrame, bar: tqdm) -> list[Result]:
        """Return the results of some questions, and warn if those of the first batch look bad."""

        def redraw(*_: object) -> None:
            # The hook must return None; the result of `update` would replace the network's output.
            bar.update(0)

        is_first_part = self._prefix is None
        results: list[Result] = []
        # A batch may take minutes, so every forward pass redraws the bar.
        with self.model.network.register_forward_hook(redraw):
            for start in range(0, len(questions), self.batch_size):
                batch = questions.iloc[start : start + self.batch_size]
                results += self._answered_in_pieces(batch)
                if is_first_part and start == 0 and len(batch) >= _FEWEST_TO_INSPECT:
                    self._inspect([answers for answers, _ in results])
                bar.update(len(batch))
        return results

    def _inspect(self, answers_by_question: Sequence[list[Outcome]]) -> None:
        """Warn if more than a tenth of the likeliest answers are empty or cut by length."""
        likeliest = [_likeliest(answers) for answers in answers_by_question]
        length = self.strategy.max_new_tokens
        n_cut = sum(len(answer.token_ids) == length and not answer.finished for answer in likeliest)
        n_empty = sum(
            answer.finished and not self.model.decode(answer.token_ids) for answer in likeliest
        )
        for_empty = "a base model needs shots and no chat (n_shots=10, chat=False)"
        for_cut = f"raise max_new_tokens={length}, or ask with shots, whose answers are short"
        for count, trouble, remedy in (
            (n_empty, "are empty", for_empty),
            (n_cut, "do not end", for_cut),
        ):
            if 10 * count > len(likeliest):
                warnings.warn(
                    f"the most probable answers to {count} of the first {len(likeliest)} questions "
                    f"{trouble}; {remedy}",
                    stacklevel=2,
                )

    def _answered_in_pieces(self, batch: pd.DataFrame) -> list[Result]:
        """Return the results of a batch, in pieces of as many questions as fit into memory."""
        results: list[Result] = []
        while len(results) < len(batch):
            piece = batch.iloc[len(results) : len(results) + self.fitting]
            try:
                results += self._answered(piece)
                continue
            except (RuntimeError, MemoryError) as error:
                if not _is_lack_of_memory(error):
                    raise
                trouble = f"fit into the memory of {self.model.device}"
                if len(piece) == 1:
                    remedy = "take fewer shots, fewer answers or tokens, or a smaller dtype"
                    question_id = piece["question_id"].iloc[0]
                    raise MemoryError(
                        f"question {question_id!r} does not {trouble} even alone; {remedy}"
                    ) from error
            # Memory is freed here, because in the `except` clause the error keeps the frames alive
            # that use it.
            self.fitting = len(piece) // 2
            self.halved += 1
            words = f"{len(piece)} questions at once do not {trouble}; going on with {self.fitting}"
            warnings.warn(words, RuntimeWarning, stacklevel=2)
            gc.collect()
            torch.cuda.empty_cache()  # does nothing without CUDA
        return results

    def _answered(self, batch: pd.DataFrame) -> list[Result]:
        """Return the results of some questions, which are answered at once."""
        prompts = self._prompts(batch)
        question_ids = batch["question_id"].tolist()
        tree = self._tree(prompts)
        results = self.strategy.decode(
            tree, self.model.endings, question_ids=question_ids, epsilon=self._epsilon
        )
        for place, (answers, certificate) in enumerate(results):
            self._check_no_thought(question_ids[place], _likeliest(answers))
            if certificate is not None:
                n_tokens = len(prompts[place]) - tree.prefix_length
                results[place] = (answers, replace(certificate, prompt_tokens=n_tokens))
        return results

    def _check_no_thought(self, question_id: str, answer: Outcome) -> None:
        """Raise `UnsupportedModelError` if an answer begins with a thought."""
        text = str(self.model.tokenizer.decode(list(answer.token_ids)))
        mark = thought_mark(text)
        if mark is not None:
            raise UnsupportedModelError(
                f"question {question_id!r}: model {self.model.name} answers with a thought, "
                f"{mark!r}; ask without thinking, as chat={{'enable_thinking': False}}"
            )

    def _tree(self, prompts: list[list[int]]) -> Tree:
        """Return the tree of some prompts."""
        # The states of the shots are computed once. A tree uses as much of them as its own prompts
        # have in common.
        network = self.model.network
        if self._prefix is None:
            shots = self.questions.prefix()
            sequences = [self._encode(shots)] if shots else [[]]
            if shots and self.chat:
                sequences = self._example_prompts
            self._prefix = self.fit.prefix(network, sequences, self.counts)
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
        """The largest error of a search's log-probabilities, in nats."""
        # It is measured in half precision, and 0 otherwise. For a server it depends on the length
        # of the prefix.
        server_epsilon = getattr(self.model, "epsilon", None)
        if isinstance(server_epsilon, np.ndarray):
            return server_epsilon[: self.strategy.max_new_tokens + 1]
        is_search = isinstance(self.strategy, Threshold)
        if not is_search or self.model.network.dtype.itemsize > 2:
            return 0.0
        length = self.strategy.max_new_tokens
        prompts = self._prompts_to_measure()
        epsilons = _EPSILONS.setdefault(self.model.network, {})
        key = (*map(tuple, prompts), length, self.model.ends)
        if key not in epsilons:
            epsilons[key] = measured_epsilon(
                self._tree, prompts, self.model.endings, max_new_tokens=length
            )
        return epsilons[key]

    def _prompts_to_measure(self) -> list[list[int]]:
        """Return the prompts on which the error of log-probabilities is measured."""
        # They are those of the first questions. If there are too few, questions of the world facts
        # are used with the same shots or chat template, if their prompts fit into the model.
        n_questions = min(N_QUESTIONS, self.fitting)
        prompts = self._prompts(self.questions.table.iloc[:n_questions])
        if len(prompts) >= FEWEST:
            return prompts
        facts = question_sets.load_questions(
            "world-facts", split="validation", limit=N_QUESTIONS, n_shots=0
        )
        others = self._prompts(self.questions.with_questions(facts.table["question"]).table)
        n_positions = positions(self.model.network.config.get_text_config())
        longest = n_positions - self.strategy.max_new_tokens
        return [prompt for prompt in others if len(prompt) <= longest] or prompts

    def _rows(self, answers: list[Outcome]) -> list[dict]:
        """Return answers as rows of a part."""
        # They are in descending order of probability, but samples in the order of their draws.
        if self.strategy.ranked:
            answers = by_probability(answers)
        return [
            vars(answer)
            | {"text": self.model.decode(answer.token_ids), "log_prob": answer.log_prob}
            for answer in answers
        ]


def by_probability(answers: Sequence[Outcome]) -> list[Outcome]:
    """Return answers in descending order of probability.

    Those cut by length are last.
    """
    return sorted(answers, key=lambda answer: (not answer.finished, -answer.complete_log_prob))


def _likeliest(answers: Sequence[Outcome]) -> Outcome:
    """Return the answer with the highest log-probability, its ending included."""
    return max(answers, key=lambda answer: answer.complete_log_prob)


def _is_lack_of_memory(error: Exception) -> bool:
    """Return whether an error says that there is not enough memory."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return any(words in str(error) for words in _NO_MEMORY)


def _peak_memory(device: torch.device) -> int:
    """Return the peak memory of a CUDA device, or else of the process, in bytes."""
    # It is 0 on systems that do not record it.
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows does not have this module
        return 0
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux kibibytes
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
