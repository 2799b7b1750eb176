"""Whether answers mean the same by a model of entailment; knows texts and that model, and keeps what it said."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from pro_lib.base.bundled import fingerprint
from pro_lib.base.checks import SentenceError
from pro_lib.semantic.pairs import Answers, of_pairs, texts_of
from pro_lib.storage import read_sealed, sha256, write_sealed, writing

LABELS = ("entailment", "neutral", "contradiction")
Pair = tuple[str, str]


@dataclass
class Nli:
    """A sequence-classification model that tells entailment, neutral and contradiction apart.

    `model` is a hub id or a folder; its labels are read from its own `id2label`. Given questions, a text is read as
    "<question> <answer>", as by Kuhn et al. and Qiu & Miikkulainen. Equal texts entail each other with probability 1,
    as by Lin et al. Each distinct ordered pair is computed once, and once for all if `cache` is a folder: there they
    are kept in `nli-<fingerprint of the model>.parquet`, and no weights are loaded where nothing is missing. Raises
    `ValueError` for other labels and for a pair longer than the model can see.
    """

    model: str | Path = "microsoft/deberta-large-mnli"
    device: str | None = None
    batch_size: int = 64
    cache: str | Path | None = None
    _known: dict[Pair, list[float]] = field(default_factory=dict, repr=False)

    def __call__(self, answers: Answers, questions: pd.DataFrame | None = None) -> NDArray[np.float64]:
        """Probabilities in the order of `LABELS`, (n, N, N, 3), [q, i, j] with premise i and hypothesis j."""
        rows = texts_of(answers, questions)
        if questions is not None:
            asked = zip(questions["question"], rows, strict=True)
            rows = [[None if text is None else f"{question} {text}" for text in row] for question, row in asked]
        return of_pairs(rows, self._probabilities)

    def _probabilities(self, pairs: list[Pair]) -> NDArray[np.float64]:
        from transformers import AutoConfig

        config = self._fetched(AutoConfig)
        order = label_order(config.id2label, str(self.model))
        different = {pair for pair in pairs if pair[0] != pair[1]}
        path = Path(self.cache) / f"nli-{self._fingerprint(config)}.parquet" if self.cache is not None else None
        if path and path.is_file() and different - self._known.keys():
            self._known |= _read(path)
        if missing := different - self._known.keys():
            self._known |= self._computed(sorted(missing, key=lambda pair: (len("".join(pair)), pair)), order)
            if path:
                _store(self._known, path)
        return np.array([self._known.get(pair, (1.0, 0.0, 0.0)) for pair in pairs]).reshape(-1, 3)

    def _computed(self, pairs: list[Pair], order: list[int]) -> Iterator[tuple[Pair, list[float]]]:
        import torch

        network, tokenizer = self._loaded
        # RoBERTa keeps the first two of its positions to itself.
        longest = min(tokenizer.model_max_length, getattr(network.config, "max_position_embeddings", 10**9) - 2)
        for start in range(0, len(pairs), self.batch_size):
            batch = pairs[start : start + self.batch_size]
            inputs = tokenizer(*map(list, zip(*batch, strict=True)), padding=True, return_tensors="pt")
            if (length := inputs["input_ids"].shape[1]) > longest:
                raise ValueError(f"a pair of answers has {length} tokens, but {self.model} sees {longest}")
            with torch.inference_mode():
                logits = network(**inputs.to(network.device)).logits
            yield from zip(batch, logits.double().softmax(-1)[:, order].tolist(), strict=True)

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        network, found = self._fetched(AutoModelForSequenceClassification, output_loading_info=True)
        if lacking := sorted(found["missing_keys"]):  # they would be made up at random
            raise SentenceError(f"NLI model {str(self.model)!r} lacks weights: {', '.join(lacking)}")
        return network.eval().to(device), self._fetched(AutoTokenizer)

    def _fetched(self, kind: type, **options: bool) -> Any:
        try:
            return kind.from_pretrained(self.model, trust_remote_code=False, **options)
        except Exception as error:  # whatever transformers and its parsers make of damaged files
            said = str(error).strip().partition("\n")[0] or type(error).__name__
            raise SentenceError(
                f"NLI model {str(self.model)!r} could not be loaded: {said} (alias and lexical need no model)"
            ) from error

    def _fingerprint(self, config: Any) -> str:
        if Path(self.model).is_dir():
            return fingerprint(Path(self.model))
        return sha256(f"{self.model} {getattr(config, '_commit_hash', None)}".encode())[:16]


def label_order(id2label: dict[int, str], model: str) -> list[int]:
    """Which outputs of a model are entailment, neutral and contradiction, whatever their case and order.

    Raises `ValueError` unless its labels are these three.
    """
    ids = {str(label).strip().lower(): int(number) for number, label in id2label.items()}
    if sorted(ids) != sorted(LABELS):
        raise ValueError(f"{model} has the labels {list(id2label.values())}, not entailment, neutral, contradiction")
    return [ids[label] for label in LABELS]


def _store(known: dict[Pair, list[float]], path: Path) -> None:
    table = pd.DataFrame(list(known), columns=["premise", "hypothesis"])
    table[list(LABELS)] = np.array(list(known.values()))
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_sealed(pa.Table.from_pandas(table, preserve_index=False), path, {})


def _read(path: Path) -> dict[Pair, list[float]]:
    stored = read_sealed(path, remedy="delete it to have its pairs compared again")[0].to_pandas()
    return {(premise, hypothesis): values for premise, hypothesis, *values in stored.itertuples(index=False)}
