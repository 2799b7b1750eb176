"""From a model and questions to a run: packs, parts, random streams, workers and what it all cost.

It knows models, strategies, run folders and how Ray is called; it does not know scores or correctness.
"""

import gc
import hashlib
import json
import logging
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib import metadata
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from tqdm.auto import tqdm

from pro_lib import models, storage
from pro_lib import runs as run_tables
from pro_lib.decoding import strategies
from pro_lib.decoding.certificate import Ledger
from pro_lib.decoding.strategies import Answer, Endings
from pro_lib.decoding.tree import Counts, PackedTree, Prefix, common_prefix_length, encode_prefix
from pro_lib.models import Model
from pro_lib.questions import QuestionSet
from pro_lib.runs import Run
from pro_lib.storage import (
    ANSWER_SCHEMA,
    ENGINES,
    LEDGER_SCHEMA,
    STRATEGIES,
    Cost,
    RunError,
    RunFolder,
    RunInfo,
    to_pandas,
)

# Measured on two cores with the bundled model: smaller packs pay more per call, larger ones attend to more in vain.
QUESTIONS_PER_PACK = 32
QUESTIONS_PER_PART = 256
SEARCH_ALPHA = 0.02
# A run stops when so many workers have died over one part: the fault is then the part's, not a machine's.
_TRIES_PER_PART = 3
# What is said when there is no memory, beside the exceptions made for it: by the CPU's allocator, CUDA, MPS and cuBLAS.
_NO_MEMORY = ("can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
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
    chat: bool = False

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
        chat = {"chat": True} if self.chat else {}
        return {**{name: getattr(self, name) for name in names}, "stop": list(self.stop), **chat}


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
    chat: bool = False,
    progress: bool = True,
    engine: str = "local",
    n_workers: int | None = None,
    gpus_per_worker: int = 1,
) -> Run:
    """Answer the questions with the model and return the run of them, in their order.

    With `out`, the run is kept in `out/<dataset>/<model>/<strategy>/`: questions it already holds are not asked
    again, new ones are added, and a run that was stopped is continued to the same tables as an unbroken one.

    Args:
        strategy: `greedy` (one answer), `multinomial` (samples), `diverse_beam` (groups of one beam each) or
            `threshold` (exact search: every answer with p ≥ search_alpha, and the greedy one).
        n_answers: N, the number of samples or beams; a search finds as many as there are.
        batch_size: questions in one pack; None for 32. A pack that does not fit into memory is halved, and a warning
            says so; the answers then agree to 1e-5 with those of a run with more memory.
        max_new_tokens: T, the length at which an answer is cut, its ending included.
        seed: of the samples; a draw depends on it, the question's id and the sample's number only.
        temperature: τ of the samples; the log-probabilities kept are always the unmodified model's.
        top_p: nucleus of the samples.
        diversity_penalty: λ of the beams.
        search_alpha: α of the search; None for 0.02.
        top_n: search for this many most probable answers instead.
        budget: token-forwards that the search may spend on a question; None for no limit.
        stop: further texts, each one token, that end an answer.
        chat: put prompts as conversations in the model's own chat template, the shots as earlier turns.
        progress: whether to show a bar with tokens per second.
        engine: `local`, in this process, or `ray`: by workers on a Ray cluster (docs/cluster.md), which load the model
            anew and write into the same run folder; the tables are those of the local engine.
        n_workers: workers of `ray`; None for as many as the cluster's GPUs serve, 1 if it has none.
        gpus_per_worker: GPUs of a worker of `ray`, over which its model is spread, where the cluster has any.

    Raises:
        ValueError: a setting out of its range, or a model that cannot see the longest prompt whole.
        MemoryError: a question does not fit into memory even alone.
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
        chat,
    )
    for name, value in (("batch_size", batch_size), ("n_workers", n_workers), ("gpus_per_worker", gpus_per_worker)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ValueError(f"{name}={value!r} must be a positive whole number or None")
    if engine not in ENGINES:
        raise ValueError(f"engine={engine!r} is unknown; choose {', '.join(ENGINES)}")
    if engine == "ray" and out is None:
        raise ValueError("engine='ray' needs out=, a folder that all workers can write to")
    per_pack = batch_size or QUESTIONS_PER_PACK
    job = _Job(model.with_stop(stop) if stop else model, questions, decoding)
    info = RunInfo(questions.name, model.name, strategy, job.parameters())
    if out is None:
        return job.run_in_memory(info, per_pack, progress)
    with RunFolder(Path(out) / questions.name / model.name / strategy, info) as folder:
        folder.plan(questions.table, per_pack=per_pack, per_part=per_pack * -(-QUESTIONS_PER_PART // per_pack))
        missing = folder.missing_parts()
        provenance = {**_provenance(model), "questions": dict(questions.source)}
        with _bar(sum(len(table) for _, table, _ in missing), questions.name, model.name, strategy, progress) as bar:
            if engine == "ray" and missing:
                provenance |= _run_on_ray(job, folder.path, missing, n_workers, gpus_per_worker, bar)
            else:
                for name, table, pack in missing:
                    folder.write_part(name, *job.part(table, pack, bar))
        if missing or not folder.info.provenance:
            folder.finish(provenance)
    return run_tables.read(folder.path).asked_as(questions.table)


@dataclass(frozen=True)
class Estimate:
    """What a run would take here, from two of its questions; an estimate.

    `seconds` are the least and the most: a pack of questions takes as long as two of them, or as many times longer as
    it is larger. `token_forwards` and `prompt_tokens` are of all questions. `memory_bytes` are the weights and, of a
    whole pack, keys and values of every token that was put through the model; activations come on top.
    """

    n_questions: int
    seconds: tuple[float, float]
    prompt_tokens: int
    token_forwards: int
    memory_bytes: int

    def sentence(self) -> str:
        """The estimate, for people."""
        least, most = (_duration(seconds) for seconds in self.seconds)
        return (
            f"{self.n_questions:,} questions: {least} to {most}, about {self.token_forwards:,} token-forwards and "
            f"{self.memory_bytes / 2**30:.1f} GiB for weights and cache (estimated from two questions)"
        )


def estimate(model: Model, questions: QuestionSet, *, batch_size: int | None = None, **options: object) -> Estimate:
    """Estimate time and memory of `generate` with the same arguments, by answering two of the questions here.

    One question before them warms up. Raises as `generate` does, and `ValueError` without questions.
    """
    n = len(questions)
    if not n:
        raise ValueError("there are no questions to estimate the cost of")
    probes = questions.table.iloc[sorted({0, n // 2})]
    generate(model, replace(questions, table=probes.iloc[:1]), progress=False, **options)
    cost = generate(model, replace(questions, table=probes), progress=False, **options).info.cost
    shots = questions.prefix()
    n_shared = min(len(model.encode(shots)), cost.prompt_tokens) if shots else 0
    n_own = (cost.prompt_tokens - n_shared) / len(probes)
    n_grown = cost.token_forwards / len(probes)
    per_pack = min(batch_size or QUESTIONS_PER_PACK, n)
    weights = sum(parameter.numel() * parameter.element_size() for parameter in model.network.parameters())
    ids = model.encode(questions.prompts()[0])
    kept = encode_prefix(model.network, ids).nbytes / len(ids)
    return Estimate(
        n,
        (cost.seconds * -(-n // per_pack), cost.seconds * n / len(probes)),
        round(n_shared + n_own * n),
        round(n_grown * n),
        round(weights + kept * (n_shared + per_pack * (n_own + n_grown))),
    )


class _Job:
    """One model, one prompt, one strategy: parts of questions in, tables and their cost out."""

    def __init__(self, model: Model, questions: QuestionSet, decoding: Decoding):
        self.model, self.questions, self.decoding = model, questions, decoding
        self.counts = Counts()
        # The most questions that have been found to fit into memory at once, and how often a pack was halved for that.
        self.fitting, self.halved = sys.maxsize, 0
        longest = max(map(len, self._prompts(questions.table)))
        model.check_length(longest + decoding.max_new_tokens)
        self._prefix: Prefix | None = None

    def parameters(self) -> dict[str, object]:
        """What a run folder compares before it is continued."""
        prompt = {"header": self.questions.header, "template": self.questions.template}
        shots = [list(shot) for shot in self.questions.shots]
        model = {"model": self.model.name, "fingerprint": self.model.fingerprint, "dtype": self.model.dtype}
        model |= {"quantization": self.model.quantization} if self.model.quantization else {}
        return {**self.decoding.relevant(), **prompt, "shots": shots, **model}

    def run_in_memory(self, info: RunInfo, per_pack: int, progress: bool) -> Run:
        with _bar(len(self.questions), info.dataset, info.model, info.strategy, progress) as bar:
            questions, answers, cost = self.part(self.questions.table, per_pack, bar)
        plans = [(len(self.questions), per_pack, len(self.questions))]
        provenance = _provenance(self.model) | {"halved_packs": cost.halved_packs}
        info = replace(info, provenance=provenance, plans=plans, cost=cost)
        return Run(to_pandas(answers), to_pandas(questions), info)

    def part(self, table: pd.DataFrame, per_pack: int, bar: tqdm) -> tuple[pa.Table, pa.Table, Cost]:
        """Answer the questions of one part; the questions' table, the answers' table, the cost."""
        started, before, halved = time.perf_counter(), Counts(**vars(self.counts)), self.halved
        rows: list[dict] = []
        ledgers: list[dict] = []
        for start in range(0, len(table), per_pack):
            pack = table.iloc[start : start + per_pack]
            found, prompt_tokens = self._answer_in_pieces(pack)
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
            self.halved - halved,
        )
        questions = pa.Table.from_pandas(table, preserve_index=False)
        if ledgers:
            columns = pa.Table.from_pylist(ledgers, schema=LEDGER_SCHEMA)
            for name in LEDGER_SCHEMA.names:
                questions = questions.append_column(LEDGER_SCHEMA.field(name), columns[name])
        return questions, pa.Table.from_pylist(rows, schema=ANSWER_SCHEMA), cost

    def _answer_in_pieces(self, pack: pd.DataFrame) -> tuple[list[tuple[list[Answer], Ledger | None]], list[int]]:
        """What `_answer` finds, for as many questions at once as fit into memory."""
        found, n_tokens = [], []
        while len(found) < len(pack):
            piece, reason = pack.iloc[len(found) : len(found) + self.fitting], ""
            try:
                more = self._answer(piece)
            except (RuntimeError, MemoryError) as error:
                reason = _memory_shortage(error)
                if not reason:
                    raise
            if reason:  # here, and not above: the error keeps hold of the frames that hold the memory
                self._halve(piece["question_id"].tolist(), reason)
            else:
                found, n_tokens = found + more[0], n_tokens + more[1]
        return found, n_tokens

    def _halve(self, question_ids: list[str], reason: str) -> None:
        size, device = len(question_ids), self.model.device
        if size == 1:
            raise MemoryError(
                f"question {question_ids[0]!r} does not fit into the memory of {device} even alone ({reason}); "
                "take fewer shots, fewer answers or tokens, or a smaller dtype"
            )
        self.fitting, self.halved = size // 2, self.halved + 1
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
        message = f"{size} questions at once do not fit into the memory of {device}; going on with {self.fitting}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)

    def _answer(self, pack: pd.DataFrame) -> tuple[list[tuple[list[Answer], Ledger | None]], list[int]]:
        """Answers to the questions of a pack, with their ledgers if they were searched for; their prompts' tokens."""
        prompts = self._prompts(pack)
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
            self._prefix = encode_prefix(self.model.network, self._shared_ids(), counts=self.counts)
        return PackedTree(self.model.network, prompts, self._prefix.shared_with(prompts), counts or self.counts)

    def _prompts(self, table: pd.DataFrame) -> list[list[int]]:
        """Token ids of the prompts of some questions."""
        questions = replace(self.questions, table=table)
        if self.decoding.chat:
            return [self.model.encode_chat(messages) for messages in questions.chats()]
        return [self.model.encode(prompt) for prompt in questions.prompts()]

    def _shared_ids(self) -> list[int]:
        """What all prompts begin with, or nearly: a tree takes as much of it as its own prompts share."""
        if self.decoding.chat:
            any_two = self.questions.with_questions(["Who?", "When?"]).table
            prompts = self._prompts(any_two)
            return prompts[0][: common_prefix_length(prompts)] if self.questions.prefix() else []
        shots = self.questions.prefix()
        return self.model.encode(shots) if shots else []

    @cached_property
    def epsilon(self) -> float:
        """How far a prefix's log-probability moves with the shape of the pack, in nats; 0 in full precision.

        Measured in half precision, where it matters: the greedy paths of the first questions, together and alone.
        """
        if self.model.network.dtype not in (torch.bfloat16, torch.float16):
            return 0.0
        table = self.questions.table.iloc[: min(_EPSILON_QUESTIONS, self.fitting)]
        prompts = self._prompts(table)
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


class _RayWorker:
    """An actor: loads the model once, then answers part after part and writes each into the run folder.

    What goes wrong is returned and not raised, so that Ray neither tries again nor wraps it.
    """

    def __init__(
        self,
        job: Mapping[str, object],
        load: Mapping[str, object],
        threads: int,
        path: Path,
        parts: Sequence[tuple[str, pd.DataFrame, int]],
    ):
        self.asked, self.load, self.threads, self.path, self.parts = job, load, threads, path, parts
        self.job: _Job | None = None

    def __call__(self, batch: Mapping[str, np.ndarray]) -> dict[str, list]:
        [part] = batch["part"].tolist()
        said = {"part": part, "halved": 0, "fitting": 0, "provenance": "{}", "memory": False, "error": ""}
        try:
            said |= self._write(*self.parts[part])
        except (ValueError, FileNotFoundError, MemoryError) as error:
            said |= {"memory": isinstance(error, MemoryError), "error": str(error)}
        return {name: [value] for name, value in said.items()}

    def _write(self, name: str, table: pd.DataFrame, per_pack: int) -> dict[str, object]:
        if storage.has_part(self.path, name):  # by a worker that died before it could say so
            return {}
        if storage.begin_part(self.path, name) > _TRIES_PER_PART:
            first, last = table["question_id"].iloc[[0, -1]]
            raise RunError(
                f"{name} (questions {first!r} to {last!r}) has ended {_TRIES_PER_PART} workers that were killed "
                "or crashed; Ray's logs say more, and the same command tries again"
            )
        job = self._load()
        with _bar(0, "", "", "", False) as bar:
            questions, answers, cost = job.part(table, per_pack, bar)
        storage.write_part(self.path, name, questions, answers, cost)
        return {
            "halved": cost.halved_packs,
            "fitting": min(job.fitting, per_pack),
            "provenance": json.dumps(_provenance(job.model)),
        }

    def _load(self) -> "_Job":
        if self.job is None:
            torch.set_num_threads(self.threads)
            try:
                model = models.load(**self.load)
            except torch.OutOfMemoryError as error:
                reason = _memory_shortage(error)
                raise MemoryError(
                    f"model {self.load['name']} does not fit into a worker's memory ({reason}); raise gpus_per_worker, "
                    "or load it in 8 or 4 bits"
                ) from error
            if model.fingerprint != self.asked["fingerprint"]:
                raise RunError(
                    f"model {self.load['name']} on {os.uname().nodename} is not the one asked for: its files differ"
                )
            stop, closing = (table.to(model.device) for table in self.asked["endings"])
            model = replace(model, name=self.asked["name"], endings=Endings(stop, closing))
            self.job = _Job(model, self.asked["questions"], self.asked["decoding"])
        return self.job


def _run_on_ray(
    job: _Job,
    path: Path,
    parts: Sequence[tuple[str, pd.DataFrame, int]],
    n_workers: int | None,
    gpus_per_worker: int,
    bar: tqdm,
) -> Mapping[str, object]:
    """Have the parts made by actors of Ray Data; where they were made."""
    try:
        import ray.data
    except ImportError as error:
        raise ValueError("engine='ray' needs Ray: pip install 'pro-workbench[ray]'") from error
    model, threads, provenance = job.model, torch.get_num_threads(), {}
    halved, fitting = 0, sys.maxsize
    with _ray_cluster(ray, (n_workers or 1) * threads):
        gpus = int(ray.cluster_resources().get("GPU", 0))
        if 0 < gpus < gpus_per_worker:
            raise ValueError(f"gpus_per_worker={gpus_per_worker}, but the Ray cluster has {gpus} in all")
        gpus, n_workers = min(gpus, gpus_per_worker), n_workers or max(1, gpus // gpus_per_worker)
        asked = {"name": model.name, "fingerprint": model.fingerprint, "questions": job.questions}
        asked |= {"decoding": job.decoding, "endings": (model.endings.stop.cpu(), model.endings.closing.cpu())}
        made = ray.data.from_items(
            [{"part": part} for part in range(len(parts))], override_num_blocks=len(parts)
        ).map_batches(
            _RayWorker,
            batch_size=1,
            # One part at a time: those that wait behind a slow one would otherwise hold up the end.
            compute=ray.data.ActorPoolStrategy(size=min(n_workers, len(parts)), max_tasks_in_flight_per_actor=1),
            fn_constructor_args=(asked, _load_options(model, gpus), threads, path.resolve(), list(parts)),
            num_gpus=gpus,
            num_cpus=1 if gpus else threads,
        )
        made.context.enable_progress_bars = False
        rows = iter(made.iter_rows())
        try:
            for said in rows:
                if said["error"]:
                    raise (MemoryError if said["memory"] else RunError)(said["error"])
                provenance |= json.loads(said["provenance"])
                halved, fitting = halved + said["halved"], min(fitting, said["fitting"] or fitting)
                bar.update(len(parts[said["part"]][1]))
        finally:
            del rows  # or the error would keep hold of it, and with it of the workers
    if halved:
        message = (
            f"{halved} packs did not fit into the memory of their worker; going down to {fitting} questions at once"
        )
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    return {**_provenance(model), **provenance, "engine": "ray", "n_workers": n_workers}


@contextmanager
def _ray_cluster(ray: object, num_cpus: int) -> Iterator[None]:
    """The Ray cluster that this process is connected to, else that of RAY_ADDRESS, else one for the time being.

    A cluster is not looked for: what Ray remembers may be gone, and then it waits for many minutes, or another's.
    """
    quiet, level = logging.getLogger("ray.data"), logging.getLogger("ray.data").level
    is_new = not ray.is_initialized()
    if is_new:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        options = {"logging_level": logging.ERROR, "log_to_driver": False}
        address = os.environ.get("RAY_ADDRESS")
        if not address:  # nobody else is to reach it, and it reaches nobody
            options |= {"num_cpus": num_cpus, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        try:
            ray.init(address or "local", **options)
        except ConnectionError as error:
            raise ValueError(f"RAY_ADDRESS={address}, but no Ray cluster answers there: {error}") from error
    quiet.setLevel(logging.ERROR)
    try:
        yield
    finally:
        quiet.setLevel(level)
        if is_new:
            ray.shutdown()


def _load_options(model: Model, gpus: int) -> dict[str, object]:
    """How a worker with so many GPUs loads the model that was loaded here."""
    return {
        # A hub id stays one; a folder must be found from wherever a worker runs.
        "name": str(Path(model.source).resolve()) if Path(model.source).is_dir() else model.source,
        "dtype": model.dtype,
        "device": "cuda" if gpus else model.device.type,
        "device_map": "auto" if gpus > 1 else None,
        "quantization": model.quantization,
        "trust_remote_code": type(model.network).__module__.startswith("transformers_modules."),
    }


def _memory_shortage(error: Exception) -> str:
    """The first line of an error that says there is no memory; empty for any other error."""
    first_line = str(error).strip().partition("\n")[0] or type(error).__name__
    known = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return first_line if known or any(sign in str(error) for sign in _NO_MEMORY) else ""


def _duration(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"


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
