"""From a model and questions to a run: packs, parts, random streams and what it all cost.

It knows models, strategies and run folders; it does not know scores or correctness.
"""

import hashlib
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib import metadata
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from tqdm.auto import tqdm

from pro_lib import generations, strategies
from pro_lib.engine import Counts, PackedTree, Prefix, common_prefix_length, encode_prefix
from pro_lib.generations import Run
from pro_lib.models import Model
from pro_lib.qa import QuestionSet
from pro_lib.run_files import ANSWER_SCHEMA, LEDGER_SCHEMA, STRATEGIES, Cost, RunFolder, RunInfo, to_pandas
from pro_lib.strategies import Answer, Ledger

# Measured on two cores with the bundled model: smaller packs pay more per call, larger ones attend to more in vain.
QUESTIONS_PER_PACK = 32
QUESTIONS_PER_PART = 256
SEARCH_ALPHA = 0.02
# In half precision rounding is measured on the greedy paths of this many questions, and the largest difference doubled.
_EPSILON_QUESTIONS = 8


@dataclass(frozen=True)
class Decoding:
    """What decides the answers to a question, beside the model and the prompt."""

    strategy: str
    n_answers: int
    max_new_tokens: int
    seed: int
    temperature: float
    top_p: float
    diversity_penalty: float
    search_alpha: float | None
    top_n: int | None
    budget: int | None
    stop: tuple[str, ...]

    def __post_init__(self):
        if self.strategy not in STRATEGIES:
            raise ValueError(f"strategy={self.strategy!r} is unknown; choose {', '.join(STRATEGIES)}")
        for name in ("n_answers", "max_new_tokens"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}={value!r} must be a positive whole number")
        if not self.temperature > 0:
            raise ValueError(f"temperature={self.temperature!r} must be above 0")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p={self.top_p!r} must lie in (0, 1]")
        if not 0 <= self.diversity_penalty < float("inf"):
            raise ValueError(f"diversity_penalty={self.diversity_penalty!r} must be 0 or more")
        self._check_search()

    def _check_search(self) -> None:
        if self.search_alpha is not None and self.top_n is not None:
            raise ValueError("search_alpha and top_n are two ways to end a search; give one of them")
        if self.search_alpha is not None and not 0 < self.search_alpha <= 1:
            raise ValueError(f"search_alpha={self.search_alpha!r} must lie in (0, 1]")
        for name, least in (("top_n", 1), ("budget", 0)):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise ValueError(f"{name}={value!r} must be a whole number of at least {least}, or None")

    def relevant(self) -> dict[str, object]:
        """The settings that this strategy depends on."""
        used = {
            "greedy": ("n_answers",),
            "multinomial": ("n_answers", "seed", "temperature", "top_p"),
            "diverse_beam": ("n_answers", "diversity_penalty"),
            "threshold": ("search_alpha", "top_n", "budget"),
        }
        names = ("strategy", "max_new_tokens", *used[self.strategy])
        return {**{name: getattr(self, name) for name in names}, "stop": list(self.stop)}


def generate(
    model: Model,
    questions: QuestionSet,
    *,
    strategy: str = "diverse_beam",
    n_answers: int = 10,
    out: str | Path | None = None,
    batch_size: int | None = None,
    max_new_tokens: int = 32,
    seed: int = 0,
    temperature: float = 1.0,
    top_p: float = 1.0,
    diversity_penalty: float = 1.0,
    search_alpha: float | None = None,
    top_n: int | None = None,
    budget: int | None = None,
    stop: Sequence[str] = (),
    progress: bool = True,
) -> Run:
    """Answer the questions with the model and return the run of them, in their order.

    With `out`, the run is kept in `out/<dataset>/<model>/<strategy>/`: questions it already holds are not asked
    again, new ones are added, and a run that was stopped is continued to the same tables as an unbroken one.

    Args:
        strategy: `greedy` (one answer), `multinomial` (samples), `diverse_beam` (groups of one beam each) or
            `threshold` (exact search: every answer with p ≥ search_alpha, and the greedy one).
        n_answers: N, the number of samples or beams; a search finds as many as there are.
        batch_size: questions in one pack; None for 32.
        max_new_tokens: T, the length at which an answer is cut, its ending included.
        seed: of the samples; a draw depends on it, the question's id and the sample's number only.
        temperature: τ of the samples; the log-probabilities kept are always the unmodified model's.
        top_p: nucleus of the samples.
        diversity_penalty: λ of the beams.
        search_alpha: α of the search; None for 0.02.
        top_n: search for this many most probable answers instead.
        budget: token-forwards that the search may spend on a question; None for no limit.
        stop: further texts, each one token, that end an answer.
        progress: whether to show a bar with tokens per second.

    Raises:
        ValueError: a setting out of its range, or a model that cannot see the longest prompt whole.
        RunError: the folder holds a run made with other parameters, is written by another process, is damaged, or
            cannot be written; what was complete is kept.
    """
    n_answers = 1 if strategy == "greedy" else n_answers
    if search_alpha is None and top_n is None:
        search_alpha = SEARCH_ALPHA
    decoding = Decoding(
        strategy,
        n_answers,
        max_new_tokens,
        seed,
        temperature,
        top_p,
        diversity_penalty,
        search_alpha,
        top_n,
        budget,
        tuple(stop),
    )
    if batch_size is not None and (isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1):
        raise ValueError(f"batch_size={batch_size!r} must be a positive whole number or None")
    per_pack = batch_size or QUESTIONS_PER_PACK
    job = _Job(model.with_stop(stop) if stop else model, questions, decoding)
    info = RunInfo(questions.name, model.name, strategy, job.parameters())
    if out is None:
        return job.run_in_memory(info, per_pack, progress)
    with RunFolder(Path(out) / questions.name / model.name / strategy, info) as folder:
        folder.plan(questions.table, per_pack=per_pack, per_part=per_pack * -(-QUESTIONS_PER_PART // per_pack))
        missing = folder.missing_parts()
        with _bar(sum(len(table) for _, table, _ in missing), questions.name, model.name, strategy, progress) as bar:
            for name, table, pack in missing:
                folder.write_part(name, *job.part(table, pack, bar))
        if missing or not folder.info.provenance:
            folder.finish(_provenance(model))
    return generations.read(folder.path).asked_as(questions.table)


class _Job:
    """One model, one prompt, one strategy: parts of questions in, tables and their cost out."""

    def __init__(self, model: Model, questions: QuestionSet, decoding: Decoding):
        self.model, self.questions, self.decoding = model, questions, decoding
        self.counts = Counts()
        longest = max(len(model.encode(prompt)) for prompt in questions.prompts())
        model.check_length(longest + decoding.max_new_tokens)
        self._prefix: Prefix | None = None

    def parameters(self) -> dict[str, object]:
        """What a run folder compares before it is continued."""
        prompt = {"header": self.questions.header, "template": self.questions.template}
        shots = [list(shot) for shot in self.questions.shots]
        model = {"model": self.model.name, "fingerprint": self.model.fingerprint, "dtype": self.model.dtype}
        return {**self.decoding.relevant(), **prompt, "shots": shots, **model}

    def run_in_memory(self, info: RunInfo, per_pack: int, progress: bool) -> Run:
        with _bar(len(self.questions), info.dataset, info.model, info.strategy, progress) as bar:
            questions, answers, cost = self.part(self.questions.table, per_pack, bar)
        plans = [(len(self.questions), per_pack, len(self.questions))]
        info = replace(info, provenance=_provenance(self.model), plans=plans, cost=cost)
        return Run(to_pandas(answers), to_pandas(questions), info)

    def part(self, table: pd.DataFrame, per_pack: int, bar: tqdm) -> tuple[pa.Table, pa.Table, Cost]:
        """Answer the questions of one part; the questions' table, the answers' table, the cost."""
        started, before = time.perf_counter(), Counts(**vars(self.counts))
        rows: list[dict] = []
        ledgers: list[dict] = []
        for start in range(0, len(table), per_pack):
            pack = table.iloc[start : start + per_pack]
            found, prompt_tokens = self._answer(pack)
            for question_id, (answers, ledger), n_tokens in zip(pack["question_id"], found, prompt_tokens, strict=True):
                rows.extend(self._rows(question_id, answers))
                if ledger is not None:
                    ledgers.append({**vars(ledger), "prompt_tokens": n_tokens})
            bar.update(len(pack))
            bar.set_postfix_str(f"{self.counts.token_forwards / max(bar.format_dict['elapsed'], 1e-9):,.0f} tokens/s")
        cost = Cost(
            self.counts.prompt_tokens - before.prompt_tokens,
            self.counts.token_forwards - before.token_forwards,
            self.counts.model_calls - before.model_calls,
            time.perf_counter() - started,
            _peak_memory(self.model.device),
        )
        questions = pa.Table.from_pandas(table, preserve_index=False)
        if ledgers:
            columns = pa.Table.from_pylist(ledgers, schema=LEDGER_SCHEMA)
            for name in LEDGER_SCHEMA.names:
                questions = questions.append_column(LEDGER_SCHEMA.field(name), columns[name])
        return questions, pa.Table.from_pylist(rows, schema=ANSWER_SCHEMA), cost

    def _answer(self, pack: pd.DataFrame) -> tuple[list[tuple[list[Answer], Ledger | None]], list[int]]:
        """Answers to the questions of a pack, with their ledgers if they were searched for; their prompts' tokens."""
        prompts = [self.model.encode(prompt) for prompt in replace(self.questions, table=pack).prompts()]
        tree = self._tree(prompts)
        n_tokens = [len(prompt) - tree.prefix_length for prompt in prompts]
        decoding, endings, length = self.decoding, self.model.endings, self.decoding.max_new_tokens
        if decoding.strategy == "threshold":
            found = strategies.threshold(
                tree,
                endings,
                search_alpha=decoding.search_alpha,
                top_n=decoding.top_n,
                budget=decoding.budget,
                max_new_tokens=length,
                epsilon=self.epsilon,
            )
            return found, n_tokens
        if decoding.strategy == "greedy":
            found = strategies.greedy(tree, endings, max_new_tokens=length)
        elif decoding.strategy == "multinomial":
            uniforms = _uniforms(decoding.seed, pack["question_id"], decoding.n_answers, length)
            found = strategies.multinomial(
                tree,
                endings,
                uniforms=torch.from_numpy(uniforms).to(self.model.device),
                temperature=decoding.temperature,
                top_p=decoding.top_p,
            )
        else:
            found = strategies.diverse_beam(
                tree,
                endings,
                n_answers=decoding.n_answers,
                diversity_penalty=decoding.diversity_penalty,
                max_new_tokens=length,
            )
        return [(answers, None) for answers in found], n_tokens

    def _tree(self, prompts: list[list[int]], counts: Counts | None = None) -> PackedTree:
        if self._prefix is None:
            shots = self.questions.prefix()
            ids = self.model.encode(shots) if shots else []
            self._prefix = encode_prefix(self.model.network, ids, counts=self.counts)
        return PackedTree(self.model.network, prompts, self._prefix.shared_with(prompts), counts or self.counts)

    @cached_property
    def epsilon(self) -> float:
        """How far a prefix's log-probability moves with the shape of the pack, in nats; 0 in full precision.

        Measured in half precision, where it matters: the greedy paths of the first questions, together and alone.
        """
        if self.model.network.dtype not in (torch.bfloat16, torch.float16):
            return 0.0
        table = self.questions.table.iloc[:_EPSILON_QUESTIONS]
        prompts = [self.model.encode(prompt) for prompt in replace(self.questions, table=table).prompts()]
        greedy = partial(strategies.greedy, endings=self.model.endings, max_new_tokens=self.decoding.max_new_tokens)
        together = greedy(self._tree(prompts, Counts()))
        alone = [greedy(self._tree([prompt], Counts()))[0] for prompt in prompts]
        return 2 * max(map(_largest_difference, together, alone))

    def _rows(self, question_id: str, answers: list[Answer]) -> list[dict]:
        """Rows of the answers' table: downwards in probability, samples in the order they were drawn."""
        if self.decoding.strategy != "multinomial":
            answers = sorted(answers, key=lambda a: (not a.finished, -sum(a.token_log_probs) - a.end_log_prob))
        return [
            {
                "question_id": question_id,
                "rank": rank,
                "text": self.model.decode(answer.token_ids),
                "token_ids": answer.token_ids,
                "token_log_probs": answer.token_log_probs,
                # In order, as a search adds them up: an answer exactly at α must stay there.
                "log_prob": float(np.cumsum([0.0, *answer.token_log_probs])[-1]),
                "end_log_prob": answer.end_log_prob,
                "finished": answer.finished,
            }
            for rank, answer in enumerate(answers)
        ]


def _largest_difference(ones: list[Answer], others: list[Answer]) -> float:
    """Largest difference in log-probability of the prefixes that two greedy paths share, endings included."""
    [one], [other] = ones, others
    shared = common_prefix_length([one.token_ids, other.token_ids])
    paths = [np.cumsum([0.0, *answer.token_log_probs[:shared]]) for answer in (one, other)]
    difference = np.abs(paths[0] - paths[1]).max()
    if one.token_ids == other.token_ids and one.finished and other.finished:
        difference = max(difference, abs(paths[0][-1] + one.end_log_prob - paths[1][-1] - other.end_log_prob))
    return float(difference)


def _uniforms(seed: int, question_ids: Sequence[str], n_answers: int, max_new_tokens: int) -> np.ndarray:
    """Random numbers `(n, N, T)` in [0, 1): a stream for each (seed, question id, sample number)."""
    draws = np.empty((len(question_ids), n_answers, max_new_tokens))
    for row, question_id in enumerate(question_ids):
        entropy = int.from_bytes(hashlib.sha256(question_id.encode()).digest()[:16])
        for sample in range(n_answers):
            draws[row, sample] = np.random.default_rng([seed, entropy, sample]).random(max_new_tokens)
    return draws


def _bar(total: int, dataset: str, model: str, strategy: str, progress: bool) -> tqdm:
    return tqdm(
        total=total, desc=f"{dataset}, {model}, {strategy}", unit="question", disable=not progress or total == 0
    )


def _peak_memory(device: torch.device) -> int:
    """Peak of the memory allocated on a CUDA device, else of the whole process, in bytes."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, Linux kibibytes


def _provenance(model: Model) -> Mapping[str, object]:
    """Where and with what a run was made."""
    versions = {name: metadata.version(name) for name in ("torch", "transformers", "numpy", "pyarrow")}
    device = torch.cuda.get_device_name(model.device) if model.device.type == "cuda" else str(model.device)
    return {"source": model.source, "device": device, "commit": _commit(), "versions": versions}


def _commit() -> str | None:
    """The commit of the repository that pro_lib is installed from, if it is one."""
    here = Path(__file__).resolve().parent
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None
