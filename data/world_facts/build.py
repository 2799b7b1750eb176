"""Build facts.jsonl and relations.json from the hand-written files in relations/.

Run `python data/world_facts/build.py` from any folder. The same relations give the same bytes.
"""

import csv
import json
import random
import sys
import tomllib
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rouge_score.rouge_scorer import RougeScorer

HERE = Path(__file__).resolve().parent
SEED = 20261121
EXPOSURES = (0, 1, 2, 4, 8, 16, 32)
CONTESTED_FROM = 4  # the least exposure at which a share of 0.25 is a whole number of documents
CONFLICT_CYCLE = (0.0, 0.5, 0.0, 0.25, 0.0)  # dealt in turn to the facts of one exposure
SHOTS_PER_RELATION = 2
N_VALIDATION = 300
N_SEEN = 4
N_WITHHELD = 2
MAX_JUDGED_RIGHT = 0.03  # share of wrong answers of the same relation that the judge may call right
ROUGE_THRESHOLD = 0.3

_SCORER = RougeScorer(["rougeL"], use_stemmer=False)


@dataclass
class Fact:
    """One line of facts.jsonl."""

    fact_id: str
    relation: str
    subject: str
    answer: str
    aliases: list[str]
    exposure: int = 0
    conflict: float = 0.0
    wrong_answer: str | None = None
    split: str = ""
    question: str = ""
    question_reworded: str = ""
    references: list[str] = field(init=False, repr=False)

    def __post_init__(self):
        self.references = [self.answer, *self.aliases]


def read_relation(path: Path) -> tuple[dict, list[Fact]]:
    """Read `<relation>.toml` and its `.csv`.

    Raises:
        ValueError: if a file is malformed; names the file, and the row if there is one.
    """
    spec = tomllib.loads(path.read_text(encoding="utf-8"))
    for key in ("description", "source"):
        if not isinstance(spec.get(key), str) or not spec[key].strip():
            raise ValueError(f"{path.name}: '{key}' must be a sentence.")
    phrasings = spec.get("phrasings", [])
    if len(set(phrasings)) != N_SEEN + N_WITHHELD:
        raise ValueError(f"{path.name}: {N_SEEN + N_WITHHELD} different phrasings are needed.")
    for phrasing in phrasings:
        if phrasing.count("{subject}") != 1 or not phrasing.endswith("?") or "\n" in phrasing:
            raise ValueError(
                f"{path.name}: a phrasing holds {{subject}} once and ends in '?': {phrasing!r}."
            )
    relation = {
        "description": spec["description"],
        "source": spec["source"],
        "seen": phrasings[:N_SEEN],
        "withheld": phrasings[N_SEEN:],
    }
    return relation, read_facts(path.with_suffix(".csv"))


def read_facts(path: Path) -> list[Fact]:
    """Read the facts of one relation from its CSV file, in the order of its rows."""
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != ["subject", "answer", "aliases"]:
            raise ValueError(f"{path.name}: the header must be 'subject,answer,aliases'.")
        facts = [read_row(row, f"{path.name}, row {reader.line_num}", path.stem) for row in reader]
    seen: dict[str, str] = {}
    for fact in facts:
        if fact.fact_id in seen:
            raise ValueError(
                f"{path.name}: {fact.subject!r} and {seen[fact.fact_id]!r} have one fact_id."
            )
        seen[fact.fact_id] = fact.subject
    return facts


def read_row(row: dict, place: str, relation: str) -> Fact:
    """Turn one CSV row into a fact."""
    if None in row or None in row.values():
        raise ValueError(f"{place}: three fields are needed; quote a field that holds a comma.")
    aliases = [alias for alias in row["aliases"].split("|") if alias]
    for text in (row["subject"], row["answer"], *aliases):
        if not text or text != " ".join(text.split()):
            raise ValueError(f"{place}: empty, or with stray white space: {text!r}.")
    if len({text.casefold() for text in (row["answer"], *aliases)}) != 1 + len(aliases):
        raise ValueError(f"{place}: an alias repeats the answer or another alias.")
    if rouge_l(row["answer"], [row["answer"]]) != 1.0:
        raise ValueError(
            f"{place}: ROUGE-L sees no letter or digit in the answer {row['answer']!r}."
        )
    return Fact(
        f"{relation}/{slug(row['subject'])}", relation, row["subject"], row["answer"], aliases
    )


def slug(text: str) -> str:
    """Return the text in lower case, with one underscore for each run of other characters.

    A plus sign becomes a word, so that C++ and C differ.
    """
    text = text.casefold().replace("+", " plus ")
    return "_".join("".join(c if c.isalnum() else " " for c in text).split())


def rouge_l(text: str, references: list[str]) -> float:
    """Return the highest ROUGE-L F1 of `text` with one of the `references`."""
    return max(_SCORER.score(reference, text)["rougeL"].fmeasure for reference in references)


def judged_right(facts: list[Fact]) -> float:
    """Return how probably the judge calls a wrong answer of the same relation correct.

    Every fact has equal weight. Its wrong answers are the other answers of its relation.
    """
    by_relation = defaultdict(list)
    for fact in facts:
        by_relation[fact.relation].append(fact)
    shares = []
    for group in by_relation.values():
        answers = [fact.answer for fact in group]
        for fact in group:
            scores = {
                wrong: rouge_l(wrong, fact.references) for wrong in set(answers) - {fact.answer}
            }
            wrong_answers = [answer for answer in answers if answer != fact.answer]
            hits = sum(scores[answer] > ROUGE_THRESHOLD for answer in wrong_answers)
            shares.append(hits / len(wrong_answers) if wrong_answers else 0.0)
    return sum(shares) / len(shares)


def assign_exposure(facts: list[Fact]) -> None:
    """Choose the shots of one relation and distribute the exposures evenly over the rest."""
    rng = random.Random(f"{SEED} exposure {facts[0].relation}")
    order = rng.sample(facts, len(facts))
    for fact in order[:SHOTS_PER_RELATION]:
        fact.split = "train_shots"
        fact.exposure = max(EXPOSURES)
    levels = rng.sample(EXPOSURES, len(EXPOSURES))
    for i, fact in enumerate(order[SHOTS_PER_RELATION:]):
        fact.exposure = levels[i % len(levels)]


def assign_conflict(facts: list[Fact]) -> None:
    """Give conflicts and wrong answers to the facts that are not shots, by exposure."""
    for exposure in (e for e in EXPOSURES if e >= CONTESTED_FROM):
        rng = random.Random(f"{SEED} conflict {exposure}")
        group = [fact for fact in facts if fact.exposure == exposure and not fact.split]
        for i, fact in enumerate(rng.sample(group, len(group))):
            fact.conflict = CONFLICT_CYCLE[i % len(CONFLICT_CYCLE)]
            if fact.conflict:
                fact.wrong_answer = pick_wrong_answer(fact, facts)


def pick_wrong_answer(fact: Fact, facts: list[Fact]) -> str:
    """Draw an answer of the same relation that the judge calls wrong."""
    rivals = {f.answer for f in facts if f.relation == fact.relation and f.answer != fact.answer}
    wrong = sorted(a for a in rivals if rouge_l(a, fact.references) <= ROUGE_THRESHOLD)
    if not wrong:
        raise ValueError(f"{fact.relation}.csv: no other answer is wrong for {fact.subject!r}.")
    return random.Random(f"{SEED} wrong {fact.fact_id}").choice(wrong)


def assign_split(facts: list[Fact], *, n_validation: int = N_VALIDATION) -> None:
    """Divide every stratum (exposure, conflict) into validation and test in equal proportion."""
    strata = defaultdict(list)
    for fact in facts:
        if not fact.split:
            strata[fact.exposure, fact.conflict].append(fact)
    share = n_validation / sum(map(len, strata.values()))
    for key in sorted(strata):
        order = random.Random(f"{SEED} split {key}").sample(strata[key], len(strata[key]))
        n_first = round(share * len(order))
        for i, fact in enumerate(order):
            fact.split = "validation" if i < n_first else "test"


def assign_questions(facts: list[Fact], relations: dict[str, dict]) -> None:
    """Choose the seen and the withheld question of each fact.

    Raises:
        ValueError: if two facts have a question in common.
    """
    first_fact: dict[str, str] = {}
    for fact in facts:
        for phrasing in relations[fact.relation]["seen"] + relations[fact.relation]["withheld"]:
            question = phrasing.format(subject=fact.subject)
            other_id = first_fact.setdefault(question.casefold(), fact.fact_id)
            if other_id != fact.fact_id:
                raise ValueError(f"{fact.fact_id} and {other_id} both ask {question!r}.")
        rng = random.Random(f"{SEED} question {fact.fact_id}")
        fact.question = rng.choice(relations[fact.relation]["seen"]).format(subject=fact.subject)
        fact.question_reworded = rng.choice(relations[fact.relation]["withheld"]).format(
            subject=fact.subject
        )


def build(folder: Path = HERE / "relations") -> tuple[list[Fact], dict[str, dict]]:
    """Read all relations in `folder`.

    Returns:
        The facts, with their splits and questions, and the relations by name.
    """
    relations = {}
    facts = []
    paths = sorted(folder.glob("*.toml"))
    lonely = {path.stem for path in folder.glob("*.csv")} ^ {path.stem for path in paths}
    if lonely:
        raise ValueError(
            f"{folder}: a .csv without .toml or the reverse: {', '.join(sorted(lonely))}."
        )
    for path in paths:
        relations[path.stem], group = read_relation(path)
        assign_exposure(group)
        facts += group
    assign_conflict(facts)
    assign_split(facts)
    assign_questions(facts, relations)
    return facts, relations


def write(facts: list[Fact], relations: dict[str, dict], folder: Path = HERE) -> None:
    """Write facts.jsonl and relations.json into `folder`."""
    rows = [
        {key: value for key, value in asdict(fact).items() if key != "references"} for fact in facts
    ]
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    (folder / "facts.jsonl").write_bytes("".join(lines).encode())
    text = json.dumps(relations, ensure_ascii=False, indent=1) + "\n"
    (folder / "relations.json").write_bytes(text.encode())


def main() -> None:
    """Build and write the facts, and print their number and the errors of the judge."""
    try:
        facts, relations = build()
    except ValueError as error:
        sys.exit(str(error))
    share = judged_right(facts)
    splits = {
        split: sum(fact.split == split for fact in facts)
        for split in ("train_shots", "validation", "test")
    }
    print(f"{len(facts)} facts, {len(relations)} relations; {splits}")
    print(f"the judge calls {share:.2%} of wrong answers right (at most {MAX_JUDGED_RIGHT:.0%})")
    if share > MAX_JUDGED_RIGHT:
        sys.exit("Too many: some answers of one relation share words. Nothing was written.")
    write(facts, relations)


if __name__ == "__main__":
    main()
