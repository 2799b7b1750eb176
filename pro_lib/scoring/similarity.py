"""Whether answers mean the same, by their words, by a table of names or by a model of entailment; knows no score."""

import io
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pro_lib import metrics
from pro_lib.common.catalog import fingerprint
from pro_lib.common.files import RunError, reading, regular, sha256, write_whole, writing
from pro_lib.common.validation import SentenceError, not_empty, refusing

Answers = Sequence[Sequence[str | None]]
Pair = tuple[str, str]
Similarity = Callable[[Answers, "pd.DataFrame | None"], NDArray[np.float64]]


def padded_texts(answers: Answers, questions: pd.DataFrame | None = None) -> list[list[str | None]]:
    """Return rows of one length, None where no text is. Raises `ValueError` for what is no text, with its row."""
    if questions is not None and len(questions) != len(answers):
        raise ValueError(f"answers has {len(answers)} rows, but questions {len(questions)}")
    rows = [[None if text is None or text != text else text for text in row] for row in answers]
    for number, row in enumerate(rows):
        if isinstance(answers[number], str) or not all(
            text is None or isinstance(text, str) for text in row
        ):
            raise ValueError(
                f"answers row {number} must hold texts, and None or NaN where one is missing"
            )
    width = max(map(len, rows), default=0)
    return [row + [None] * (width - len(row)) for row in rows]


def first_occurrences(answers: Answers) -> NDArray[np.bool_]:
    """Return (n, N): True at the first occurrence of each text of a question."""
    firsts = [
        [text is not None and text not in row[:n] for n, text in enumerate(row)]
        for row in padded_texts(answers)
    ]
    return pd.DataFrame(firsts).to_numpy(bool)


def pairwise_similarity(
    rows: Sequence[Sequence[Hashable]], compare: Callable[[NDArray, NDArray], Any]
) -> NDArray[np.float64]:
    """Return what `compare` gives for the pairs of a row, all of one length: (n, N, N) or more, NaN where one is None.

    It is asked once, for the first and the second of each distinct pair.
    """
    table = pd.DataFrame(rows, dtype=object)
    numbers, values = pd.factorize(table.to_numpy().ravel())  # -1 where one is None
    first = numbers.reshape(*table.shape, 1)
    second = first.transpose(0, 2, 1)
    there = (first >= 0) & (second >= 0)
    pairs, place = np.unique((first * len(values) + second)[there], return_inverse=True)
    i, j = np.divmod(pairs, max(len(values), 1))
    compared = np.asarray(compare(values[i], values[j]), dtype=np.float64)
    result = np.full((*there.shape, *compared.shape[1:]), np.nan)
    result[there] = compared[place]
    return result


def lexical(answers: Answers, questions: pd.DataFrame | None = None) -> NDArray[np.float64]:
    """Return ROUGE-L F1 of answers, (n, N, N): symmetric, 1 between equal texts, also where ROUGE sees nothing."""

    def compare(texts: NDArray, others: NDArray) -> NDArray[np.float64]:
        return np.where(
            texts == others, 1.0, metrics.rouge_l_between(texts.tolist(), others.tolist())
        )

    return pairwise_similarity(padded_texts(answers, questions), compare)


@dataclass(frozen=True)
class Alias:
    """1 where two answers name the same thing by a table of accepted names, else 0.

    `table` has a row per question of the dataset (all splits): `question_id`, `references` (the names of its answer)
    and, to compare wrong answers too, `relation`. Two answers match if they are equal word by word
    (`metrics.normalize`), or if both are among the question's references. So do two of which neither is, if both
    are references of one other question of the relation. An accepted answer never matches one that is not.
    """

    table: pd.DataFrame

    def __call__(self, answers: Answers, questions: pd.DataFrame | None) -> NDArray[np.float64]:
        """Return similarities 0 or 1, (n, N, N). Raises `ValueError` for a question that the table does not have."""
        rows = padded_texts(answers, questions)
        if questions is None or not {"question_id", "references"} <= set(self.table):
            raise ValueError(
                "alias needs questions with question_id, and a table with question_id and references"
            )
        ids, known = questions["question_id"], self.table["question_id"]
        if len(unknown := ids[~ids.isin(known)]):
            raise ValueError(
                f"the alias table has no question {unknown.iloc[0]!r} ({len(unknown)} are missing)"
            )
        relation = dict(zip(known, self.table.get("relation", known), strict=True))
        bearers = defaultdict(set)
        for identity, names in zip(known, self.table["references"], strict=True):
            for name in names:
                bearers[relation[identity], _name(name)].add(identity)

        def meaning(text: str, identity: Hashable) -> tuple[str, frozenset]:
            others = bearers.get((relation[identity], _name(text)), ())
            return _name(text), frozenset({identity} if identity in others else others)

        def compare(first: NDArray, second: NDArray) -> list[bool]:
            return [a[0] == b[0] or bool(a[1] & b[1]) for a, b in zip(first, second, strict=True)]

        meant = [
            [text if text is None else meaning(text, n) for text in row]
            for n, row in zip(ids, rows, strict=True)
        ]
        return pairwise_similarity(meant, compare)


@lru_cache(maxsize=200_000)
def _name(text: str) -> str:
    return metrics.normalize(metrics.normalized_words(text)) or metrics.normalized_words(text)


LABELS = ("entailment", "neutral", "contradiction")


@dataclass
class Nli:
    """A sequence-classification model that tells entailment, neutral and contradiction apart.

    `model` is a hub id or a folder; its labels are read from its own `id2label`. Given questions, a text is read as
    "<question> <answer>", as by Kuhn et al. and Qiu & Miikkulainen. Equal texts entail each other with probability 1,
    as by Lin et al. Each distinct ordered pair is computed once; a folder `cache` keeps them in
    `nli-<fingerprint of the model>-<digest>.parquet`, and where none is missing no weights are loaded. Raises
    `ValueError` for other labels and for a pair longer than the model can see.
    """

    model: str | Path = "microsoft/deberta-large-mnli"
    device: str | None = None
    batch_size: int = 64
    cache: str | Path | None = None
    _cached: dict[Pair, list[float]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        not_empty(self.model, "model")
        not_empty(self.cache, "cache")

    def __call__(
        self, answers: Answers, questions: pd.DataFrame | None = None
    ) -> NDArray[np.float64]:
        """Return probabilities in the order of `LABELS`, (n, N, N, 3), [q, i, j] with premise i and hypothesis j."""
        rows = padded_texts(answers, questions)
        if questions is not None:
            pairs = zip(questions["question"], rows, strict=True)
            rows = [
                [None if text is None else f"{question} {text}" for text in row]
                for question, row in pairs
            ]
        return pairwise_similarity(rows, self._probabilities)

    def _probabilities(self, premises: NDArray, hypotheses: NDArray) -> NDArray[np.float64]:
        from transformers import AutoConfig

        config = self._pretrained(AutoConfig)
        # Which outputs are entailment, neutral and contradiction, whatever their case and order.
        ids = {str(label).strip().lower(): int(number) for number, label in config.id2label.items()}
        if sorted(ids) != sorted(LABELS):
            raise ValueError(f"{self.model} has the labels {list(ids)}, not {', '.join(LABELS)}")
        pairs = list(zip(premises, hypotheses, strict=True))
        different = {
            (premise, hypothesis) for premise, hypothesis in pairs if premise != hypothesis
        }
        folder, hub = Path(self.model), f"{self.model} {getattr(config, '_commit_hash', None)}"
        name = f"nli-{fingerprint(folder) if folder.is_dir() else sha256(hub.encode())[:16]}"
        if self.cache is not None and different - self._cached.keys():
            for path in sorted(Path(self.cache).glob(f"{name}-*.parquet")):
                self._cached |= _read(path)
        if missing := different - self._cached.keys():
            order = [ids[label] for label in LABELS]
            self._cached |= self._computed(
                sorted(missing, key=lambda pair: (len("".join(pair)), pair)), order
            )
            if self.cache is not None:
                _store(self._cached, Path(self.cache), name)
        return np.array([self._cached.get(pair, (1.0, 0.0, 0.0)) for pair in pairs]).reshape(-1, 3)

    def _computed(self, pairs: list[Pair], order: list[int]) -> Iterator[tuple[Pair, list[float]]]:
        import torch

        network, tokenizer = self._network
        # RoBERTa keeps the first two of its positions to itself.
        longest = min(
            tokenizer.model_max_length,
            getattr(network.config, "max_position_embeddings", 10**9) - 2,
        )
        for start in range(0, len(pairs), self.batch_size):
            batch = pairs[start : start + self.batch_size]
            inputs = tokenizer(
                *map(list, zip(*batch, strict=True)), padding=True, return_tensors="pt"
            )
            if (length := inputs["input_ids"].shape[1]) > longest:
                raise ValueError(
                    f"a pair of answers has {length} tokens, but {self.model} sees {longest}"
                )
            with torch.inference_mode():
                logits = network(**inputs.to(network.device)).logits
            yield from zip(batch, logits.cpu().double().softmax(-1)[:, order].tolist(), strict=True)

    @cached_property
    def _network(self) -> tuple[Any, Any]:
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        network, report = self._pretrained(
            AutoModelForSequenceClassification, output_loading_info=True
        )
        if lacking := sorted(report["missing_keys"]):  # they would be made up at random
            raise SentenceError(
                f"NLI model {str(self.model)!r} lacks weights: {', '.join(lacking)}"
            )
        return network.eval().to(device), self._pretrained(AutoTokenizer)

    def _pretrained(self, kind: Any, **options: bool) -> Any:
        with refusing(
            SentenceError,
            f"NLI model {str(self.model)!r} could not be loaded; alias and lexical need none",
        ):
            return kind.from_pretrained(self.model, trust_remote_code=False, **options)


def _store(probabilities: dict[Pair, list[float]], folder: Path, name: str) -> None:
    """Write all pairs into one file, a digest of its bytes in its name, in the place of those before."""
    rows = [(*pair, *values) for pair, values in probabilities.items()]
    data = pd.DataFrame(rows, columns=["premise", "hypothesis", *LABELS]).to_parquet(index=False)
    path = folder / f"{name}-{sha256(data)[:16]}.parquet"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        before = set(folder.glob(f"{name}-*.parquet")) - {path}
        write_whole(data, path)
        for file in before:
            file.unlink(missing_ok=True)


def _read(path: Path) -> dict[Pair, list[float]]:
    remedy = "delete it to have its pairs compared again"
    with reading(path, hint=remedy):
        data = regular(path).read_bytes()
        if not path.stem.endswith(f"-{sha256(data)[:16]}"):
            raise RunError(f"{path} was cut short or altered; {remedy}")
        stored = pd.read_parquet(io.BytesIO(data))
    return {
        (premise, hypothesis): values
        for premise, hypothesis, *values in stored.itertuples(index=False)
    }


# The registry of similarities. Notebooks call one by its name here: a function of texts and questions, or one that
# needs more than those, as `Alias` and `Nli` do.
SIMILARITIES: dict[str, Any] = {"lexical": lexical, "alias": Alias, "nli": Nli}
