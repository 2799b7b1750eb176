"""One answer judged per question and every score beside it; knows runs, correctness and scores, draws no figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from pro_lib import correctness, metrics, scores
from pro_lib import protocols as counting
from pro_lib import runs as run_tables
from pro_lib.runs import Run
from pro_lib.shown import shown
from pro_lib.similarities import Similarity
from pro_lib.store import RunError

ROUGE_THRESHOLD = 0.3
CORRECTNESS = ("rouge_l", "exact_match", "alias_match")


@dataclass(frozen=True)
class Choices:
    """What counts as an answer and what as right. The defaults are this project's; docs/audit.md says what others do.

    Args:
        convention: `complete` (ending included) or `answer_tokens` (ending left out), as in `Run.log_probs`.
        distinct: whether repeated beams are left out; None as the protocol has it.
        correctness: `rouge_l` above 0.3, `exact_match` or `alias_match` (see `correctness`).
        labels: labels from outside, of people or of a judge model, columns question_id, text, correct; they replace
            every other correctness. An answer without a label is left out and counted.
    """

    convention: str = "complete"
    distinct: bool | None = None
    correctness: str = "rouge_l"
    labels: pd.DataFrame | None = None


@shown(lambda judged: judged.sentence())
@dataclass(frozen=True)
class Evaluation:
    """One model's answers to one split of a dataset, and what the methods say of them, row by row.

    `answers` has a row per question: question_id, text (the answer judged), rouge_l, correct.
    `log_probs` (n, N) are the answers PRO reads, those of an exact search down to `search_alpha` unless that is None.
    `baselines` has a column per method that needs no α, higher = more uncertain. `exclusions` says which questions were
    left out and why, `unavailable` which methods the run cannot feed. `protocol` says how answers were counted
    (`protocols`), `distinct` whether each counts once. `meanings` are the log-probabilities (n, C) that PRO over
    meanings reads, by its name, as `S-PRO, lexical`. `note` is what the run says of itself.
    """

    model: str
    dataset: str
    split: str
    answers: pd.DataFrame
    log_probs: np.ndarray
    baselines: pd.DataFrame
    exclusions: metrics.Exclusions
    unavailable: tuple[str, ...]
    search_alpha: float | None = None
    protocol: str = "workbench"
    distinct: bool = True
    meanings: Mapping[str, np.ndarray] = field(default_factory=dict)
    note: str = ""

    @property
    def correct(self) -> np.ndarray:
        """Whether the judged answer is right, `(n,)`."""
        return self.answers["correct"].to_numpy(bool)

    def to_df(self) -> pd.DataFrame:
        """The answers judged, and beside each what the methods without an α say of it."""
        return self.answers.join(self.baselines)

    def with_pro(self, alphas: Mapping[str, float]) -> pd.DataFrame:
        """PRO, of `meanings` where they have the name, at each named α, and every other method: a column each, (n,)."""
        read = {name: self.meanings.get(name, self.log_probs) for name in alphas}
        pros = {name: scores.pro(read[name], alpha=a, search_alpha=self.search_alpha) for name, a in alphas.items()}
        return pd.DataFrame(pros).join(self.baselines)

    def drawn(self, n_questions: int, *, seed: int = 0) -> Evaluation:
        """At most `n_questions` of the questions, drawn with `seed`, in their order."""
        n = len(self.correct)
        if n <= n_questions:
            return self
        return self._rows(np.sort(np.random.default_rng(seed).choice(n, size=n_questions, replace=False)))

    def only(self, question_ids: Sequence[str]) -> Evaluation:
        """Those of the questions that are named, in their order."""
        return self._rows(self.answers["question_id"].isin(set(question_ids)).to_numpy())

    def _rows(self, rows: np.ndarray) -> Evaluation:
        """Those of the questions that a mask or positions name."""
        rows = np.arange(len(self.answers))[rows]
        answers, baselines = (table.iloc[rows].reset_index(drop=True) for table in (self.answers, self.baselines))
        meanings = {name: found[rows] for name, found in self.meanings.items()}
        return replace(self, answers=answers, log_probs=self.log_probs[rows], baselines=baselines, meanings=meanings)

    def one_class(self) -> str:
        """The sentence that all answers are right, or all wrong; empty where both occur."""
        kinds = set(self.correct.tolist())
        if len(kinds) == 2:
            return ""
        which = f"all {len(self.correct)} judged answers are {'right' if kinds == {True} else 'wrong'}"
        return f"{self.dataset}, {self.model}, {self.split}: {which if kinds else 'there is no judged answer'}"

    def labels(self) -> dict[str, str | int]:
        """Columns that tell this setting's tables from others': dataset, model, protocol, split, n_questions."""
        names = "dataset", "model", "protocol", "split"
        return {name: getattr(self, name) for name in names} | {"n_questions": len(self.correct)}

    def sentence(self) -> str:
        """What was used and what was not, for people."""
        without = f" Not available: {', '.join(self.unavailable)}." if self.unavailable else ""
        accuracy = f"{self.correct.mean():.3f} of the judged answers are right."
        drawn = f" {len(self.correct)} were drawn of them." if len(self.correct) < self.exclusions.mask.sum() else ""
        above = scores.premise(self.log_probs).above_one.sum()
        mass = f" For {above} questions the answers' probabilities sum to more than 1: PRO bounds no entropy there."
        where = f"{self.dataset}, {self.model}, {self.protocol}, {self.split}"
        note = self.note and f" {self.note}"
        return f"{where}: {self.exclusions.sentence()}{drawn} {accuracy}{mass if above else ''}{without}{note}"


@dataclass(frozen=True)
class Splits:
    """One model on one dataset: all its validation questions, and those reported.

    α is chosen on `validation`: `n_validation` questions of the pool, drawn with `seed`, or all if that is None. It is
    one of `alphas`; None for those of `sweeps.alpha_grid`.
    """

    pool: Evaluation
    reported: Evaluation
    n_validation: int | None = 100
    seed: int = 0
    alphas: Sequence[float] | None = None

    @property
    def validation(self) -> Evaluation:
        """What α is chosen on."""
        return self.pool if self.n_validation is None else self.pool.drawn(self.n_validation, seed=self.seed)

    def labels(self) -> dict[str, str | int]:
        """Those of what is reported."""
        return self.reported.labels()

    def sentence(self) -> str:
        """What α is chosen on, and what is reported, for people."""
        return f"{self.validation.sentence()}\n{self.reported.sentence()}"


def evaluate(beams: Run, *, protocol: str = "workbench", **options: object) -> Evaluation:
    """One evaluation, under one protocol; `options` are those of `evaluations`."""
    return evaluations(beams, protocols=[protocol], **options)[0]


def evaluations(
    beams: Run,
    *,
    protocols: Sequence[str] = tuple(counting.PROTOCOLS),
    samples: Run | None = None,
    others: Sequence[Run] = (),
    split: str | None = None,
    similarities: Mapping[str, Similarity | None] | None = None,
    choices: Choices | None = None,
) -> list[Evaluation]:
    """Judge one answer per question and line up what the methods say of it, once for each protocol.

    The answer judged is the most probable one that any of the runs found, the same under every protocol. A question
    that a method cannot score, or that has no answer to judge, is left out for all methods and counted.

    Args:
        beams: the run that PRO, NLL, ALL, PE (Eq. 2), SE and SD read, and in protocol `paper` PE-MC and NE too.
        protocols: `workbench` (answers once each, averages over samples read samples) and `paper` (repeats kept, all
            but Deg read the beams, the paper's methods only).
        samples: what Deg, and in protocol `workbench` SC, PE-MC and NE, read, repeats kept; None leaves them out.
        others: further runs whose answers may be the most probable one.
        split: the split to judge; None for all questions of `beams`.
        similarities: which answers mean the same: SE, SD, Deg, SC, S-NLL and S-PRO once for each, as `SE, <key>`;
            None for one that this dataset cannot have.
        choices: None for this project's.

    Raises:
        RunError: a run lacks one of the questions, or no answer can be judged.
        ValueError: there is no such protocol.
    """
    choices = choices or Choices()
    rules = [counting.named(name, distinct=choices.distinct) for name in protocols]
    beams = beams.select(split=split) if split is not None else beams
    ids = list(beams.questions["question_id"])
    samples = samples and samples.select(question_ids=ids)
    runs = [beams, *([samples] if samples else []), *(run.select(question_ids=ids) for run in others)]
    tops = [run.top(convention=choices.convention) for run in runs]
    top = run_tables.most_probable(tops)
    answers = top[["question_id", "text"]].join(rouge_and_correct(top, beams.questions, choices))
    if choices.labels is not None:
        _check_labels(answers, choices.labels, beams.name)
    if answers["correct"].isna().all():
        raise RunError(f"run {beams.name}: no answer can be judged without references and texts, rouge_l or correct")
    setting = beams.info.model, beams.info.dataset, split or "all"
    counted_as = {"convention": choices.convention, "judged": answers["text"]}
    found, made = counting.Answers.of(beams, samples, similarities or {}, **counted_as), []
    elsewhere = beams.questions.filter(regex="^score_").rename(columns=lambda name: name.removeprefix("score_"))
    for protocol in rules:
        log_probs, table, meanings = found.under(protocol)
        table = table.join(elsewhere)
        unavailable = tuple(table.columns[table.isna().all()])
        table = table.drop(columns=list(unavailable))
        exclusions = metrics.usable(table.set_axis(ids), answers["correct"])
        counted = protocol.name, protocol.distinct, meanings, beams.info.provenance.get("note", "")
        whole = Evaluation(*setting, answers, log_probs, table, exclusions, unavailable, beams.search_alpha, *counted)
        made.append(whole._rows(exclusions.mask))
    return made


def rouge_and_correct(answers: pd.DataFrame, questions: pd.DataFrame, choices: Choices | None = None) -> pd.DataFrame:
    """ROUGE-L and correctness of answers: as labels or records brought them, else against the references.

    `answers` has the columns question_id (needed for labels), text and, if brought, rouge_l and correct; `questions`
    has the references, row by row. Columns: rouge_l, correct (a boolean, or None where it cannot be known).
    """
    choices = choices or Choices()
    known = answers["text"].notna().to_numpy() & questions["references"].notna().to_numpy()
    compared = list(answers["text"][known]), list(questions["references"][known])
    rouge_l = answers.get("rouge_l", pd.Series(np.nan, answers.index)).to_numpy(float, copy=True)
    if "rouge_l" not in answers:
        rouge_l[known] = correctness.rouge_l(*compared)
    correct = np.full(len(answers), None, dtype=object)
    if choices.labels is not None:
        *asked, said = (choices.labels[name] for name in ("question_id", "text", "correct"))
        labels = dict(zip(zip(*asked, strict=True), said, strict=True))
        correct[:] = [labels.get(pair) for pair in zip(answers["question_id"], answers["text"], strict=True)]
    elif "correct" in answers:
        correct = answers["correct"].to_numpy(object)
    elif choices.correctness == "rouge_l":
        correct = np.where(np.isnan(rouge_l), None, rouge_l > ROUGE_THRESHOLD)
    else:
        correct[known] = getattr(correctness, choices.correctness)(*compared)
    return pd.DataFrame({"rouge_l": rouge_l, "correct": correct}, index=answers.index)


def _check_labels(answers: pd.DataFrame, labels: pd.DataFrame, name: str) -> None:
    """That a question with labels has one for the answer judged; labels of other runs and splits may be among them."""
    texts = dict(zip(labels["question_id"], labels["text"], strict=True))
    asked = answers[answers["question_id"].isin(list(texts))]
    lost = asked[asked["correct"].isna()]
    if asked.empty:
        raise RunError(f"run {name}: none of the {len(labels)} labels is for one of its questions, as {min(texts)!r}")
    if len(lost):
        identity, text = lost[["question_id", "text"]].iloc[0]
        raise RunError(
            f"run {name}: the labels of {len(lost)} questions match none of the answers judged: "
            f"question {identity!r} is answered {text!r}, its label is for {texts[identity]!r}"
        )
