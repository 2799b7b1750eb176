"""Answers and their log-probabilities: the two tables of a run, however they came about.

It knows tables of answers and questions; it does not know models, decoding, scores or correctness.
"""

import unicodedata
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from pro_lib import records
from pro_lib.run_files import LEDGER_SCHEMA, Cost, RunError, RunInfo, read_tables

CONVENTIONS = ("complete", "answer_tokens")
_ROUNDING = 1e-9


class SearchedLogProbs(np.ndarray):
    """Log-probabilities `(n, N)` of a search: every answer with p ≥ `search_alpha` is there, no matter how few.

    Rows and columns taken out of it remember `search_alpha`; scores refuse an α below it.
    """

    search_alpha: float | None = None

    def __array_finalize__(self, source: object) -> None:
        self.search_alpha = getattr(source, "search_alpha", None)


@dataclass(frozen=True)
class Run:
    """The two tables of a run.

    `answers` has a row per answer: question_id, rank, text, token_ids, token_log_probs, log_prob (sum over the
    answer's tokens), end_log_prob (of ending there), finished; records may bring mean_log_prob, rouge_l, correct.
    `rank` counts from 0, downwards in probability, for samples in the order they were drawn.
    `questions` has a row per question: question_id, question, references, split, what the dataset adds, and after
    an exact search its ledger (columns as in `strategies.Ledger`).
    """

    answers: pd.DataFrame
    questions: pd.DataFrame
    info: RunInfo

    def select(self, *, split: str | None = None, question_ids: Sequence[str] | None = None) -> "Run":
        """The run of some questions only: those of a split, or those named, in the order named."""
        questions = self.questions
        if split is not None:
            questions = questions[questions["split"] == split]
            if questions.empty:
                known = ", ".join(map(repr, self.questions["split"].dropna().unique())) or "none"
                raise RunError(f"run {self.name} has no question of split {split!r} (it has {known})")
        if question_ids is not None:
            index = pd.Index(questions["question_id"]).get_indexer(pd.Index(question_ids))
            if (index < 0).any():
                missing = list(question_ids)[int(np.argmax(index < 0))]
                raise RunError(f"run {self.name} has no question {missing!r}")
            if len(set(index)) < len(index):
                raise RunError(f"run {self.name} is asked for a question more than once")
            questions = questions.iloc[index]
        answers = self.answers[self.answers["question_id"].isin(set(questions["question_id"]))]
        return replace(self, answers=answers.reset_index(drop=True), questions=questions.reset_index(drop=True))

    def asked_as(self, questions: pd.DataFrame) -> "Run":
        """The run of these questions in this order, with the references and splits that they come with now."""
        selected = self.select(question_ids=list(questions["question_id"]))
        ledger = selected.questions[[name for name in LEDGER_SCHEMA.names if name in selected.questions]]
        return replace(selected, questions=questions.reset_index(drop=True).join(ledger))

    @property
    def name(self) -> str:
        """`dataset/model/strategy`."""
        return f"{self.info.dataset}/{self.info.model}/{self.info.strategy}"

    @property
    def search_alpha(self) -> float | None:
        """The α down to which every answer was looked for; None unless the run is such a search."""
        return self.info.parameters.get("search_alpha") if self.info.strategy == "threshold" else None

    def log_probs(
        self, *, convention: str = "complete", distinct: bool = True, merge_by: str | None = None
    ) -> np.ndarray:
        """Log-probabilities `(n, N)` in nats, sorted downwards, NaN where a question has fewer answers.

        Of an exact search they are the answers with p ≥ α, and the greedy one alone where none reaches α; scores
        refuse such an array at a lower α.

        Args:
            convention: `complete` (ending included) or `answer_tokens` (ending left out).
            distinct: one entry per answer: per token sequence, per text where ids are missing, per
                log-probability where both are; False keeps repeats. Answers cut by length never count.
            merge_by: `text` adds up the probabilities of answers with the same text (see `normalized`), which
                changes the outcomes: no bound on the entropy of token sequences holds for the result.
        """
        if merge_by not in (None, "text"):
            raise ValueError(f"merge_by={merge_by!r} is unknown; choose None or 'text'")
        ordered = self._ordered(convention, distinct)
        values = self._matrix(_merged(ordered, self.name) if merge_by else ordered, "value")
        if self.search_alpha is not None:
            values = values.view(SearchedLogProbs)
            values.search_alpha = self.search_alpha
        return values

    def open_log_probs(self) -> np.ndarray:
        """Log-probabilities `(n, M)` of answers still open at the length cut, in nats; NaN where there are fewer."""
        table = self.answers[~self.answers["finished"].to_numpy(bool)]
        row = pd.Index(self.questions["question_id"]).get_indexer(table["question_id"])
        return self._matrix(table.assign(row=row), "log_prob")

    def outcome_log_probs(self) -> np.ndarray:
        """Log-probabilities `(n, N)` of all outcomes as they came, repeats and those cut by length included."""
        row = pd.Index(self.questions["question_id"]).get_indexer(self.answers["question_id"])
        value = self.answers["log_prob"] + self.answers["end_log_prob"].fillna(0.0)
        return self._matrix(self.answers.assign(row=row, value=value), "value")

    def tree(self) -> tuple[np.ndarray, np.ndarray]:
        """Of an exact search: log p(v) and H(next | v) of every expanded prefix, `(n, M)` each, NaN where fewer."""
        if "tree_log_probs" not in self.questions:
            raise RunError(f"run {self.name} holds no search tree; generate it with strategy='threshold'")
        lists = [self.questions[name] for name in ("tree_log_probs", "tree_entropies")]
        width = int(lists[0].str.len().max())
        log_probs, entropies = np.full((2, len(self.questions), width), np.nan)
        for row, (ones, others) in enumerate(zip(*lists, strict=True)):
            log_probs[row, : len(ones)], entropies[row, : len(others)] = ones, others
        return log_probs, entropies

    def mean_log_probs(self, *, convention: str = "complete", distinct: bool = True) -> np.ndarray:
        """Log-probabilities per token `(n, N)`, in the places of `log_probs`; the ending counts as a token."""
        return self._matrix(self._ordered(convention, distinct), "mean")

    def texts(self, *, convention: str = "complete", distinct: bool = True) -> np.ndarray:
        """Texts of the answers `(n, N)`, in the places of `log_probs`; None where there is none."""
        ordered = self._ordered(convention, distinct)
        return self._matrix(ordered.assign(text=ordered["text"].where(ordered["text"].notna(), None)), "text", None)

    def ranked(self, *, convention: str = "complete", distinct: bool = True) -> pd.DataFrame:
        """Finished answers, question by question and downwards in `value`, their log-probability.

        Columns: those of `answers`, `row` (of `questions`), `value`, and `mean`, the value per token.
        """
        return self._ordered(convention, distinct).reset_index(drop=True)

    def top(self, *, convention: str = "complete") -> pd.DataFrame:
        """The most probable finished answer of each question, a row per row of `questions`.

        Columns: question_id, text, value (its log-probability under `convention`) and, where records brought
        them, rouge_l and correct. A question without a finished answer has a row of missing values.
        """
        first = self._ordered(convention, distinct=True).drop_duplicates("row")
        columns = ["question_id", "text", "value", *(c for c in ("rouge_l", "correct") if c in self.answers)]
        return (
            first.set_index("row")[columns]
            .reindex(range(len(self.questions)))
            .assign(question_id=self.questions["question_id"].to_numpy())
        )

    def _matrix(self, ordered: pd.DataFrame, column: str, missing: float | None = np.nan) -> np.ndarray:
        place = ordered.groupby("row", sort=False).cumcount()
        width = int(place.max()) + 1 if len(ordered) else 1
        matrix = np.full((len(self.questions), width), missing)
        matrix[ordered["row"], place] = ordered[column]
        return matrix

    def _ordered(self, convention: str, distinct: bool) -> pd.DataFrame:
        """Finished answers with `row`, `value` and `mean`, by row and downwards in value."""
        if convention not in CONVENTIONS:
            raise ValueError(f"convention={convention!r} is unknown; choose {' or '.join(CONVENTIONS)}")
        table = self.answers[self.answers["finished"].to_numpy(bool)]
        ending = table["end_log_prob"].to_numpy(float)
        if convention == "answer_tokens" and np.isnan(ending).any():
            raise RunError(f"run {self.name} does not say what its endings cost; use convention='complete'")
        ending = np.nan_to_num(ending) if convention == "complete" else np.zeros(len(table))
        value = table["log_prob"].to_numpy(float) + ending
        row = pd.Index(self.questions["question_id"]).get_indexer(table["question_id"])
        table = table.assign(row=row, value=value, mean=self._means(table, value, ending, convention))
        table = table.sort_values(["row", "value"], ascending=[True, False], kind="stable")
        if "search_alpha" in self.questions:
            # The greedy answer counts below α only where it stands for all: others below α were not looked for.
            log_alpha = np.log(self.questions["search_alpha"].to_numpy(float))[table["row"]]
            reaches = table["log_prob"] + table["end_log_prob"] >= log_alpha - _ROUNDING
            table = table[reaches | ~reaches.groupby(table["row"]).transform("any")]
        return table[~pd.DataFrame({"row": table["row"], "key": identities(table)}).duplicated()] if distinct else table

    @staticmethod
    def _means(table: pd.DataFrame, value: np.ndarray, ending: np.ndarray, convention: str) -> np.ndarray:
        # A closing token carries its own ending (end_log_prob exactly 0), so there is no further event to count.
        events = table["token_log_probs"].str.len().to_numpy(float) + (ending != 0)
        if "mean_log_prob" not in table:
            return value / np.maximum(events, 1)
        given = table["mean_log_prob"].to_numpy(float)
        return np.where(np.isnan(given), value / np.maximum(events, 1), given)


def normalized(text: str) -> str:
    """A text as far as it matters for being the same answer: letters and digits, without case or punctuation."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    kept = "".join(c if unicodedata.category(c)[0] in "LNMS" else " " for c in folded)
    return " ".join(kept.split()) or folded.strip()


def _merged(ordered: pd.DataFrame, name: str) -> pd.DataFrame:
    """One row per question and text, with the probabilities added up, downwards."""
    if ordered["text"].isna().any():
        raise RunError(f"run {name} does not say the texts of its answers, which merge_by='text' needs")
    total = (
        ordered.assign(text=ordered["text"].map(normalized))
        .groupby(["row", "text"])["value"]
        .agg(lambda values: np.logaddexp.reduce(values.to_numpy()))
    )
    return total.reset_index().sort_values(["row", "value"], ascending=[True, False], kind="stable")


def identities(table: pd.DataFrame) -> list[object]:
    """What makes two answers of one question the same."""
    # What is missing is None or NaN, as pandas has it.
    return [
        tuple(ids) if isinstance(ids, (list, np.ndarray)) else text if isinstance(text, str) else value
        for ids, text, value in zip(table["token_ids"], table["text"], table["value"], strict=True)
    ]


def most_probable(runs: Iterable[Run], *, convention: str = "complete") -> pd.DataFrame:
    """The most probable answer that any of the runs found to each question of the first; columns of `Run.top`."""
    runs = list(runs)
    tops = [run.select(question_ids=runs[0].questions["question_id"]).top(convention=convention) for run in runs]
    values = np.column_stack([top["value"].to_numpy(float) for top in tops])
    best = np.where(np.isnan(values), -np.inf, values).argmax(axis=1)
    stacked = pd.concat(tops, keys=range(len(tops)))
    return stacked.loc[list(zip(best, range(len(best)), strict=True))].reset_index(drop=True)


def read(path: str | Path) -> Run:
    """Read a run folder, `<dataset>/<model>/<strategy>`; an unfinished run is read as far as it got, and said.

    Raises:
        RunError: the folder is no run, was written by a newer format, or a part is damaged.
    """
    run = Run(*read_tables(Path(path)))
    planned = sum(plan[0] for plan in run.info.plans)
    if len(run.questions) < planned:
        message = f"run folder {path} holds {len(run.questions):,} of the {planned:,} questions planned"
        warnings.warn(f"{message}; run the generation again to continue it", UserWarning, stacklevel=2)
    return run


def from_records(path: str | Path) -> Run:
    """A run from log-probabilities made elsewhere: a JSONL file with a line per question.

    A line is `{question_id, question?, references?, split?, answers: [...]}`; an answer is `{log_prob?,
    mean_log_prob?, token_log_probs?, end_log_prob?, text?, token_ids?, rouge_l?, correct?}` with at least one of
    log_prob and token_log_probs. `log_prob` is taken to be that of the complete answer where no end_log_prob is
    given. Nothing needs a model or a network.

    Raises:
        RunError: the file is empty or not UTF-8, or a line is malformed; the sentence names file and line.
    """
    answers, questions = records.read_records(Path(path))
    return Run(answers, questions, RunInfo(dataset=Path(path).stem, model="records", strategy="records"))


def from_file(path: str | Path, *, questions: pd.DataFrame | None = None) -> Run:
    """A run from a file of log-probabilities in any layout: our records, OpenAI's responses or vLLM's outputs.

    The cache of `from_endpoint` is read as well, as far as it got, and nothing is asked.
    `questions` as for `from_openai`; records of ours bring their own. Raises `RunError` as the three readers do.
    """
    known = records.layout(Path(path))
    if known == "records":
        return from_records(path)
    if known == "endpoint":
        parameters, searched = records.read_endpoint(Path(path))
        order = {} if questions is None else {name: place for place, name in enumerate(questions["question_id"])}
        searched.sort(key=lambda record: order.get(record["question_id"], len(order)))
        run = _searched_run(searched, None, Path(path).stem, parameters, {})
        return run if questions is None else run.asked_as(questions)
    return {"openai": from_openai, "vllm": from_vllm}[known](path, questions=questions)


def from_openai(path: str | Path, *, questions: pd.DataFrame | None = None) -> Run:
    """A run from saved responses of an OpenAI-compatible server, a JSONL file or a JSON list with a response per line.

    Both endpoints, chat and text completions, with `logprobs` and any n; `records.read_openai` says which layouts are
    known and what becomes of the ending, which OpenAI itself does not return: then `complete` log-probabilities are
    those of beginning with the answer, and no bound holds for them.

    Args:
        questions: the questions asked, with references and splits, as `qa.load(...).table`; without them, what the
            file says of them. A response that carries no question_id or custom_id answers the question in its place.

    Raises:
        RunError: a response is malformed or has no log-probabilities; the sentence names file, line and choice.
    """
    info = RunInfo(dataset=Path(path).stem, model="openai", strategy="openai")
    return Run(*records.read_openai(Path(path), questions=questions), info)


def from_vllm(source: str | Path | Iterable[object], *, questions: pd.DataFrame | None = None) -> Run:
    """A run from what `LLM.generate` of vLLM returned: the objects themselves, or a file of their JSON.

    `records.read_vllm` says how the token that ended an answer is told from the answer's own.

    Args:
        questions: as for `from_openai`.

    Raises:
        RunError: an output is malformed or has no log-probabilities; the sentence names its place.
    """
    name = Path(source).stem if isinstance(source, (str, Path)) else "vllm"
    return Run(*records.read_vllm(source, questions=questions), RunInfo(dataset=name, model="vllm", strategy="vllm"))


def from_endpoint(
    base_url: str,
    questions: Any,
    *,
    model: str,
    search_alpha: float = 0.05,
    top: int = 20,
    stop: Sequence[str] = records.END_OF_TEXT,
    n_stop_tokens: int | None = None,
    tokenizer: Any = None,
    max_new_tokens: int = 32,
    budget: int | None = None,
    epsilon: float = 0.0,
    tolerance: float = 1e-3,
    cache: str | Path | None = None,
    concurrency: int = 8,
    retries: int = 6,
    timeout: float = 60.0,
    api_key_env: str | None = "OPENAI_API_KEY",
    progress: bool = True,
) -> Run:
    """Exact search over a text-completions server, `POST {base_url}/completions` with `logprobs`: a run of `threshold`.

    The run has the tables and the ledger of a local search; `docs/endpoint.md` says what is certified. A found answer
    has all the probability that stop tokens not listed may add, so PRO ≤ `alpha_floor` ≤ `tree_bound` ≤ H(Y) stays
    true; without it, ending there costs `end_log_prob_lower`. `epsilon` in the ledger has the largest such difference
    in it, `upper_bound` is missing, and `budget_cut_mass` holds also what may reach α and cannot be seen. Without
    `tokenizer`, Y is the sequence of *texts* that come out when each prompt is read anew, and `token_ids` are negative
    numbers that only tell answers apart (`token_texts` has the texts).

    Args:
        base_url: as in `http://localhost:8000/v1`.
        questions: a `qa.QuestionSet`.
        model: the server's name for the model.
        search_alpha: α of the search; at 1/top or above nothing that continues an answer can be missed.
        top: how many log-probabilities are asked for at every place.
        stop: texts of the tokens that end an answer; a text that begins with a newline, white space aside, always does.
        n_stop_tokens: how many tokens of the model's vocabulary end an answer, if you know: those that are not listed
            are then bounded one by one.
        tokenizer: the model's own (as transformers has it): prompts are sent as token ids, and ids read back.
        max_new_tokens: T, the length at which an answer is cut, its ending included.
        budget: requests that may be spent on a question; None for no limit.
        epsilon: by how many nats the server's log-probabilities may be off; what lies so close to α is undecided.
        tolerance: by how much the probability of an answer may be uncertain; above it the question is undecided.
        cache: JSON lines, where every finished question is kept: the same command goes on from there.
        concurrency: questions searched at once.
        retries: further tries after 429, 5xx, time-outs, lost connections and damaged responses, more and more apart.
        timeout: seconds of silence after which a request is given up.
        api_key_env: the environment variable that holds the API key; None if none is to be sent.
        progress: whether to show a bar.

    Raises:
        ValueError: a setting out of its range.
        RunError: the server refuses or fails, or the cache belongs to another run or is damaged.
    """
    whole = {"top": top, "concurrency": concurrency, "retries": retries + 1, "n_stop_tokens": n_stop_tokens or 1}
    for name, value in whole.items():
        if type(value) is not int or value < 1:
            raise ValueError(f"{name}={locals()[name]!r} must be a whole number, 1 or more (retries: 0)")
    if not timeout > 0:
        raise ValueError(f"timeout={timeout!r} must be above 0")
    asking = records.Asking(search_alpha, max_new_tokens, budget, epsilon, tolerance)
    endpoint = records.Endpoint(base_url, model, top, retries, timeout, api_key_env)
    vocabulary = records.Vocabulary(stop, n_stop_tokens, tokenizer)
    with tqdm(total=len(questions.table), desc=f"{questions.name}/{model}", disable=not progress) as bar:
        searched = records.ask_endpoint(
            endpoint,
            vocabulary,
            asking,
            questions.table,
            questions.prompts(),
            cache=None if cache is None else Path(cache),
            concurrency=concurrency,
            done=bar.update,
        )
    parameters = records.parameters(endpoint, vocabulary, asking)
    return _searched_run(searched, questions.table, questions.name, parameters, {"base_url": base_url})


def _searched_run(
    searched: list[dict], questions: pd.DataFrame | None, dataset: str, parameters: dict, provenance: dict
) -> Run:
    """The run of records of an endpoint; its seconds are added up over questions, several of which ran at once."""
    answers, table = records.endpoint_tables(searched, questions)
    n_requests = int(table["expanded_prefixes"].sum())
    cost = Cost(
        prompt_tokens=sum(record["all_prompt_tokens"] for record in searched),
        token_forwards=n_requests - len(searched),
        model_calls=n_requests,
        seconds=sum(record["seconds"] for record in searched),
    )
    plans = [(len(searched), 1, max(1, len(searched)))]
    info = RunInfo(dataset, parameters["model"], "threshold", parameters, provenance, plans, cost=cost)
    return Run(answers, table, info)
