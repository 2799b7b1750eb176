"""Builds facts_long.jsonl and long.json: the world facts asked for in sentences; knows no model, no text but theirs.

Run `python data/world_facts/build_long.py` after `build.py`; the same facts and long.toml give the same bytes.
"""

import json
import random
import sys
import tomllib
from collections import defaultdict
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import build
import numpy as np
from rapidfuzz import process
from rapidfuzz.distance import LCSseq
from rouge_score.tokenize import tokenize

HERE = Path(__file__).resolve().parent
N_VALIDATION = 15  # of the questions with several answers, about the share that facts.jsonl has
WORDS = (3, 4)  # of a sentence, beside the answer


@dataclass
class Asked:
    """One line of facts_long.jsonl."""

    fact_id: str
    relation: str
    subject: str
    answer: str
    aliases: list[str]
    n_true: int
    exposure: int
    conflict: float
    wrong_answer: str | None
    split: str
    question: str
    sentence: str

    @property
    def references(self) -> list[str]:
        """All that is accepted."""
        return [self.answer, *self.aliases]


def read_spec(path: Path, relations: dict) -> dict[str, dict]:
    """Phrasings and answers of every relation, those of a reverse under its own name; ValueError names the relation."""
    spec = {}
    for relation, told in tomllib.loads(path.read_text(encoding="utf-8")).items():
        if relation not in relations:
            raise ValueError(f"{path.name}: {relation!r} is no relation.")
        if "answers" in told:
            spec[relation] = {"questions": relations[relation]["seen"], "answers": told["answers"]}
        if "reverse" in told:
            spec[f"{relation}_reverse"] = told["reverse"]
    for relation, told in spec.items():
        for answer in told["answers"]:
            if answer.count("{answer}") != 1 or len(tokenize(answer.replace("{answer}", ""), None)) not in WORDS:
                raise ValueError(f"{path.name}, {relation}: three or four words beside {{answer}}: {answer!r}.")
        for question in told["questions"]:
            if question.count("{subject}") != 1 or not question.endswith("?"):
                raise ValueError(f"{path.name}, {relation}: {{subject}} once and '?' at the end: {question!r}.")
    return spec


def reversed_facts(facts: list[dict], spec: dict) -> list[build.Fact]:
    """For every answer that several subjects of a reversed relation have, the question for one of them."""
    subjects = defaultdict(list)
    for fact in facts:
        if f"{fact['relation']}_reverse" in spec:
            subjects[f"{fact['relation']}_reverse", fact["answer"]].append(fact["subject"])
    several = [(*key, found) for key, found in subjects.items() if len(found) > 1]
    made = [build.Fact(f"{r}/{build.slug(s)}", r, s, first, rest) for r, s, (first, *rest) in several]
    build.assign_exposure(made)
    build.assign_conflict(made)
    build.assign_split(made, n_validation=N_VALIDATION)
    for fact in made:
        rng = random.Random(f"{build.SEED} question {fact.fact_id}")
        fact.question = rng.choice(spec[fact.relation]["questions"]).format(subject=fact.subject)
    return made


def build_long(folder: Path = HERE) -> tuple[list[Asked], dict[str, dict]]:
    """The questions, with exposure, conflict and split as facts.jsonl has them where it has them, and the spec."""
    facts = [json.loads(line) for line in (folder / "facts.jsonl").read_text(encoding="utf-8").splitlines()]
    spec = read_spec(folder / "long.toml", json.loads((folder / "relations.json").read_text(encoding="utf-8")))
    rows = [fact for fact in facts if fact["relation"] in spec] + [asdict(fact) for fact in reversed_facts(facts, spec)]
    asked = []
    for row in rows:
        rng = random.Random(f"{build.SEED} sentence {row['fact_id']}")
        row["n_true"] = 1 + len(row["aliases"]) if row["relation"].endswith("_reverse") else 1
        row["sentence"] = rng.choice(spec[row["relation"]]["answers"]).format(answer=row["answer"])
        asked.append(Asked(**{field.name: row[field.name] for field in fields(Asked)}))
    if len({one.question.casefold() for one in asked}) != len(asked):
        raise ValueError("long.toml: a question is asked twice.")
    return asked, spec


def judged(facts: list[Asked], answers: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Of each fact of one relation, the shares called right of its wrong and of its true sentences.

    Every fact meets every sentence that the relation can say: each spelling of each answer, each way of putting it.
    """
    said = {spelling.casefold(): spelling for fact in facts for spelling in fact.references}
    texts = [(key, tokenize(form.format(answer=text), None)) for key, text in said.items() for form in answers]
    accepted = [(number, tokenize(text, None)) for number, fact in enumerate(facts) for text in fact.references]
    owners, references = zip(*accepted, strict=True)
    common = process.cdist([text for _, text in texts], references, scorer=LCSseq.similarity, dtype=np.int32)
    f1 = 2 * common / np.add.outer([len(text) for _, text in texts], [len(reference) for reference in references])
    right = np.maximum.reduceat(f1, np.searchsorted(owners, range(len(facts))), axis=1) > build.ROUGE_THRESHOLD
    named = defaultdict(set)  # of all who share an answer: what is another spelling of it is not wrong
    for fact in facts:
        named[fact.answer] |= {text.casefold() for text in fact.references}
    true = np.array([[key in {text.casefold() for text in fact.references} for fact in facts] for key, _ in texts])
    wrong = np.array([[key not in named[fact.answer] for fact in facts] for key, _ in texts])
    return (right & wrong).sum(axis=0) / np.maximum(wrong.sum(axis=0), 1), (right & true).sum(axis=0) / true.sum(axis=0)


def judge(facts: list[Asked], spec: dict) -> dict[str, tuple[float, float, int]]:
    """By relation, and in all: the mean of both shares, each fact counting once, and the number of facts."""
    by_relation = defaultdict(list)
    for fact in facts:
        by_relation[fact.relation].append(fact)
    shares = {relation: judged(group, spec[relation]["answers"]) for relation, group in by_relation.items()}
    shares["all"] = tuple(np.concatenate(parts) for parts in zip(*shares.values(), strict=True))
    return {relation: (both[0].mean(), both[1].mean(), len(both[0])) for relation, both in shares.items()}


def write(facts: list[Asked], spec: dict[str, dict], folder: Path = HERE) -> None:
    """Write facts_long.jsonl and long.json into `folder`."""
    lines = [json.dumps(asdict(fact), ensure_ascii=False) + "\n" for fact in facts]
    (folder / "facts_long.jsonl").write_bytes("".join(lines).encode())
    (folder / "long.json").write_bytes((json.dumps(spec, ensure_ascii=False, indent=1) + "\n").encode())


def main() -> None:
    """Build, check the judge, write, and say what was made."""
    try:
        facts, spec = build_long()
    except ValueError as error:
        sys.exit(str(error))
    shares = judge(facts, spec)
    for relation, (false, true, n) in shares.items():
        print(f"{relation:30} {n:5} facts; called right: {false:.2%} of wrong sentences, {true:.2%} of true ones")
    if any(false > build.MAX_JUDGED_RIGHT or true < 1 for false, true, _ in shares.values()):
        sys.exit(f"At most {build.MAX_JUDGED_RIGHT:.0%} and all are wanted of each relation. Nothing was written.")
    write(facts, spec)


if __name__ == "__main__":
    main()
