"""Compare the meanings of answers by their words, a table of names or a model of entailment."""

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
from pro_lib.common.validation import SentenceError, extra, not_empty, refusing
from pro_lib.metrics.roc import as_floats

Answers = Sequence[Sequence[str | None]]
Pair = tuple[str, str]
Similarity = Callable[[Answers, "pd.DataFrame | None"], NDArray[np.float64]]


def padded_texts(answers: Answers, questions: pd.DataFrame | None = None) -> list[list[str | None]]:
    """Return the texts of each question as rows of one length, None where there is no text.

    Args:
        answers: the texts of each question, in rows of any length, None or NaN for a missing one.
        questions: one row per question, to check the number of rows.

    Returns:
        The rows.

    Raises:
        ValueError: a row has a value that is not a text, or the number of questions differs.

    Example:
        >>> padded_texts([["Paris", "Lyon"], ["Rome"]])
        [['Paris', 'Lyon'], ['Rome', None]]
    """
    if questions is not None and len(questions) != len(answers):
        raise ValueError(f"answers has {len(answers)} rows, but questions {len(questions)}")
    rows: list[list[str | None]] = []
    for number, answer_row in enumerate(answers):
        # NaN differs from itself.
        row = [None if text is None or text != text else text for text in answer_row]
        has_texts = all(text is None or isinstance(text, str) for text in row)
        if isinstance(answer_row, str) or not has_texts:
            raise ValueError(
                f"answers row {number} must be a list of texts, with None or NaN for a missing "
                f"one; got {answer_row!r:.80}"
            )
        rows.append(row)
    width = max(map(len, rows), default=0)
    return [row + [None] * (width - len(row)) for row in rows]


def first_occurrences(answers: Answers) -> NDArray[np.bool_]:
    """Return for each answer whether no earlier answer to its question has the same text.

    Args:
        answers: the texts of each question, in rows of any length, None or NaN for a missing one.

    Returns:
        Truth values (n, N).

    Example:
        >>> first_occurrences([["Paris", "Lyon", "Paris"]]).tolist()
        [[True, True, False]]
    """
    is_first = []
    for row in padded_texts(answers):
        is_first.append([text is not None and text not in row[:n] for n, text in enumerate(row)])
    return np.asarray(pd.DataFrame(is_first), dtype=bool)


def pairwise_similarity(
    rows: Sequence[Sequence[Hashable]],
    compare: Callable[[NDArray[Any], NDArray[Any]], Any],
    *,
    symmetric: bool = False,
) -> NDArray[np.float64]:
    """Return the similarity of all pairs in each row.

    Args:
        rows: the values of each question, in rows of one length, None for a missing one.
        compare: returns the similarities of two arrays of values, one number or several for each
            pair. It is called once, with each different pair.
        symmetric: whether `compare` does not depend on the order of a pair. Then it is called with
            one order only.

    Returns:
        The similarities (n, N, N), or with more axes as `compare` returns them; NaN where a value
        is missing.

    Example:
        >>> pairwise_similarity([["a", "b"]], lambda x, y: x == y).tolist()
        [[[1.0, 0.0], [0.0, 1.0]]]
    """
    table = pd.DataFrame(rows, dtype=object)
    codes, values = pd.factorize(table.to_numpy().ravel())  # the code of None is -1
    first = codes.reshape(*table.shape, 1)
    second = first.transpose(0, 2, 1)
    are_present = (first >= 0) & (second >= 0)
    if symmetric:
        first, second = np.minimum(first, second), np.maximum(first, second)
    pair_codes = (first * len(values) + second)[are_present]
    pairs, place = np.unique(pair_codes, return_inverse=True)
    i, j = np.divmod(pairs, max(len(values), 1))
    compared = as_floats(compare(values[i], values[j]))
    result = np.full((*are_present.shape, *compared.shape[1:]), np.nan)
    result[are_present] = compared[place]
    return result


def lexical(answers: Answers, questions: pd.DataFrame | None = None) -> NDArray[np.float64]:
    """Return the ROUGE-L F1 of answers.

    Args:
        answers: the texts of each question, in rows of any length, None or NaN for a missing one.
        questions: one row per question, to check the number of rows.

    Returns:
        Similarities (n, N, N), symmetric; 1 between equal texts, also if these have no words.

    Example:
        >>> lexical([["in Paris", "Paris"]]).round(2).tolist()
        [[[1.0, 0.67], [0.67, 1.0]]]
    """

    def compare(texts: NDArray[Any], others: NDArray[Any]) -> NDArray[np.float64]:
        f1 = metrics.rouge_l_between(texts.tolist(), others.tolist())
        return np.where(texts == others, 1.0, f1)

    return pairwise_similarity(padded_texts(answers, questions), compare, symmetric=True)


# --- A table of names ---


@dataclass(frozen=True)
class Alias:
    """A similarity that is 1 if two answers name the same thing by a table of names, else 0.

    Two answers match if they are equal word by word (`metrics.normalize`), or if both are among the
    references of the question. If neither is, they match if both are references of the same other
    question of the relation. An accepted answer never matches one that is not accepted.

    Attributes:
        table: one row per question of the dataset (all splits): `question_id`, `references` (the
            names of its answer) and, to compare wrong answers too, `relation`.
    """

    table: pd.DataFrame

    def __call__(self, answers: Answers, questions: pd.DataFrame | None) -> NDArray[np.float64]:
        """Return similarities 0 or 1 (n, N, N).

        Args:
            answers: the texts of each question, in rows of any length.
            questions: one row per question, with question_id.

        Raises:
            ValueError: the table does not have one of the questions, or columns are missing.
        """
        rows = padded_texts(answers, questions)
        if questions is None or not {"question_id", "references"} <= set(self.table):
            raise ValueError(
                "similarity 'alias' needs questions= with question_id, and a table with "
                "question_id and references"
            )
        ids = questions["question_id"]
        unknown_ids = ids[~ids.isin(self.table["question_id"])]
        if len(unknown_ids):
            raise ValueError(
                f"the alias table has no question {unknown_ids.iloc[0]!r} "
                f"({len(unknown_ids)} are missing)"
            )
        names = _NameTable(self.table)
        meanings = []
        for question_id, row in zip(ids, rows, strict=True):
            meanings.append(
                [None if text is None else names.meaning(text, question_id) for text in row]
            )
        return pairwise_similarity(meanings, _mean_the_same)


# The words of an answer, and the questions whose answer it names.
_Meaning = tuple[str, frozenset[Hashable]]


class _NameTable:
    """The questions whose answers have a name, by relation and name."""

    def __init__(self, table: pd.DataFrame) -> None:
        ids = table["question_id"]
        self._relations = dict(zip(ids, table.get("relation", ids), strict=True))
        self._ids_by_name = defaultdict(set)
        for question_id, references in zip(ids, table["references"], strict=True):
            for reference in references:
                key = (self._relations[question_id], _name(reference))
                self._ids_by_name[key].add(question_id)

    def meaning(self, text: str, question_id: Hashable) -> _Meaning:
        """Return the words of an answer to a question, and the questions whose answer it names."""
        name = _name(text)
        ids = self._ids_by_name.get((self._relations[question_id], name), set())
        if question_id in ids:
            ids = {question_id}
        return name, frozenset(ids)


def _mean_the_same(first: NDArray[Any], second: NDArray[Any]) -> list[bool]:
    """Return whether pairs of meanings have the same words or name the same thing."""
    return [
        name == other_name or bool(ids & other_ids)
        for (name, ids), (other_name, other_ids) in zip(first, second, strict=True)
    ]


@lru_cache(maxsize=200_000)
def _name(text: str) -> str:
    """Return the words of a name without articles, or all its words if there are no others."""
    return metrics.normalize(metrics.normalized_words(text)) or metrics.normalized_words(text)


# --- A model of entailment ---

LABELS = ("entailment", "neutral", "contradiction")


@dataclass
class Nli:
    """A similarity by a sequence-classification model of entailment.

    If questions are given, the model reads "<question> <answer>", as in Kuhn et al. and Qiu &
    Miikkulainen. Equal texts entail each other with probability 1, as in Lin et al. Each different
    ordered pair is computed once. If the cache has all pairs, no weights are loaded.

    Attributes:
        model: a hub id or a folder; its labels are those of its `id2label`.
        device: the device of the model; None for a GPU if there is one.
        batch_size: the number of pairs in a batch.
        cache: a folder for the probabilities, in the file
            `nli-<fingerprint of the model>-<digest>.parquet`.

    Raises:
        ValueError: the model has other labels, or a pair is longer than its context.
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
        """Return probabilities in the order of `LABELS` (n, N, N, 3).

        At [q, i, j], the premise is answer i of question q and the hypothesis is answer j.
        """
        rows = padded_texts(answers, questions)
        if questions is None:
            return pairwise_similarity(rows, self._probabilities)
        texts = []
        for question, row in zip(questions["question"], rows, strict=True):
            texts.append([None if text is None else f"{question} {text}" for text in row])
        return pairwise_similarity(texts, self._probabilities)

    def _probabilities(
        self, premises: NDArray[Any], hypotheses: NDArray[Any]
    ) -> NDArray[np.float64]:
        """Return the probabilities of pairs in the order of `LABELS` (n, 3)."""
        with extra("models", "the similarity nli"):
            from transformers import AutoConfig
        config = self._pretrained(AutoConfig)
        # The outputs of the labels, whatever their case and order.
        outputs = {str(label).strip().lower(): int(n) for n, label in config.id2label.items()}
        if sorted(outputs) != sorted(LABELS):
            labels = list(outputs)
            raise ValueError(f"{self.model} has the labels {labels}, not {', '.join(LABELS)}")
        pairs = list(zip(premises, hypotheses, strict=True))
        different_pairs = {pair for pair in pairs if pair[0] != pair[1]}
        cache_name = self._cache_name(config)
        if self.cache is not None and different_pairs - self._cached.keys():
            for path in sorted(Path(self.cache).glob(f"{cache_name}-*.parquet")):
                self._cached |= _read(path)
        missing_pairs = different_pairs - self._cached.keys()
        if missing_pairs:
            by_length = sorted(missing_pairs, key=lambda pair: (len("".join(pair)), pair))
            self._cached |= self._computed(by_length, [outputs[label] for label in LABELS])
            if self.cache is not None:
                _store(self._cached, Path(self.cache), cache_name)
        equal_texts = (1.0, 0.0, 0.0)
        return np.array([self._cached.get(pair, equal_texts) for pair in pairs]).reshape(-1, 3)

    def _cache_name(self, config: Any) -> str:
        """Return the beginning of the names of the model's files in the cache."""
        folder = Path(self.model)
        if folder.is_dir():
            return f"nli-{fingerprint(folder)}"
        revision = f"{self.model} {getattr(config, '_commit_hash', None)}"
        return f"nli-{sha256(revision.encode())[:16]}"

    def _computed(
        self, pairs: list[Pair], outputs: list[int]
    ) -> Iterator[tuple[Pair, list[float]]]:
        """Yield pairs with their probabilities, which are those of the given outputs."""
        import torch

        network, tokenizer = self._network
        # RoBERTa reserves the first two of its positions.
        n_positions = getattr(network.config, "max_position_embeddings", 10**9) - 2
        longest = min(tokenizer.model_max_length, n_positions)
        for start in range(0, len(pairs), self.batch_size):
            batch = pairs[start : start + self.batch_size]
            premises = [premise for premise, _ in batch]
            hypotheses = [hypothesis for _, hypothesis in batch]
            inputs = tokenizer(premises, hypotheses, padding=True, return_tensors="pt")
            length = inputs["input_ids"].shape[1]
            if length > longest:
                raise ValueError(
                    f"a pair of answers has {length} tokens, but {self.model} sees {longest}"
                )
            with torch.inference_mode():
                logits = network(**inputs.to(network.device)).logits
            probabilities = logits.cpu().double().softmax(-1)[:, outputs]
            yield from zip(batch, probabilities.tolist(), strict=True)

    @cached_property
    def _network(self) -> tuple[Any, Any]:
        """The model on its device, and its tokenizer."""
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        network, report = self._pretrained(
            AutoModelForSequenceClassification, output_loading_info=True
        )
        missing_weights = sorted(report["missing_keys"])  # these have random values
        if missing_weights:
            names = ", ".join(missing_weights)
            raise SentenceError(f"NLI model {str(self.model)!r} lacks weights: {names}")
        return network.eval().to(device), self._pretrained(AutoTokenizer)

    def _pretrained(self, kind: Any, **options: bool) -> Any:
        """Return the configuration, the model or the tokenizer."""
        trouble = f"NLI model {str(self.model)!r} could not be loaded"
        with refusing(SentenceError, f"{trouble}; alias and lexical need none"):
            return kind.from_pretrained(self.model, trust_remote_code=False, **options)


def _store(probabilities: dict[Pair, list[float]], folder: Path, name: str) -> None:
    """Write all pairs into one file, with a digest in its name, and remove the earlier files."""
    rows = [(*pair, *values) for pair, values in probabilities.items()]
    table = pd.DataFrame(rows, columns=["premise", "hypothesis", *LABELS])
    data = table.to_parquet(index=False)
    path = folder / f"{name}-{sha256(data)[:16]}.parquet"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        earlier_files = set(folder.glob(f"{name}-*.parquet")) - {path}
        write_whole(data, path)
        for file in earlier_files:
            file.unlink(missing_ok=True)


def _read(path: Path) -> dict[Pair, list[float]]:
    """Return the probabilities in a file of the cache, by pair."""
    remedy = "delete it to have its pairs compared again"
    with reading(path, hint=remedy):
        data = regular(path).read_bytes()
        if not path.stem.endswith(f"-{sha256(data)[:16]}"):
            raise RunError(f"{path} was cut short or altered; {remedy}")
        table = pd.read_parquet(io.BytesIO(data))
    probabilities = {}
    for premise, hypothesis, *values in table.itertuples(index=False):
        probabilities[premise, hypothesis] = values
    return probabilities


# The similarities by the names that notebooks use: functions of answers and questions, or classes
# of such functions that have settings.
SIMILARITIES: dict[str, Any] = {"lexical": lexical, "alias": Alias, "nli": Nli}
