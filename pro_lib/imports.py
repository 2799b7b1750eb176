"""Log-probabilities made elsewhere, in any layout: our records, OpenAI-compatible responses, vLLM's outputs."""

import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import AliasChoices, AliasPath, BeforeValidator, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from pro_lib.checks import Format, Text, fitted, rule
from pro_lib.files import RunError
from pro_lib.readers import Source, called, json_lines
from pro_lib.records import answering, from_records, named, read_labels, split_records, tables
from pro_lib.runs import Run
from pro_lib.store import RunInfo

__all__ = ["from_file", "from_openai", "from_records", "from_vllm", "read_labels", "recorded", "split_records"]

# What servers write for a log-probability that they do not give; vLLM also for -inf and for places not filled.
NOT_GIVEN = -9999.0
Finite = rule((int, float), lambda value: abs(value) < float("inf"), "must be a finite number")
Reason = rule(str, lambda value: True, "must be text: it says whether the answer is complete")


def _as_list(values: Any) -> Any:
    """Return a list of what may be a tuple, an array, another sequence, or a list of an array's numbers."""
    if isinstance(values, (str, bytes, dict)) or not isinstance(values, Iterable):
        return values
    return [value.item() if isinstance(value, np.generic) else value for value in values]


Listed = BeforeValidator(_as_list)


class _Token(Format):
    logprob: Finite


class _Choice(Format):
    """A choice of a chat or text completion, or a CompletionOutput of vLLM."""

    finish_reason: Reason
    text: Text = Field(validation_alias=AliasChoices(AliasPath("message", "content"), "text"))
    token_ids: Annotated[list[int], Listed] | None = None
    cumulative_logprob: Finite | None = None
    logprobs: list[_Token] | None = Field(
        None, validate_default=True, validation_alias=AliasChoices(AliasPath("logprobs", "content"), "logprobs")
    )

    @field_validator("logprobs", mode="before")
    @classmethod
    def _tokens(cls, value: Any, others: ValidationInfo) -> Any:
        """Return the tokens, which chat completions list; text completions have a list of numbers."""
        tokens, ids = _as_list(value), others.data.get("token_ids")
        if isinstance(tokens, dict):
            numbers = tokens.get("token_logprobs")
            tokens = [{"logprob": number} for number in numbers] if isinstance(numbers, list) else numbers
        if tokens is None and others.data.get("cumulative_logprob") is None:
            how = "logprobs=true (chat), logprobs=1 (text), SamplingParams(logprobs=0) (vLLM)"
            raise PydanticCustomError("rule", f"is missing; ask for it with {how}")
        if isinstance(tokens, list) and ids is not None:
            if len(tokens) != len(ids):
                raise PydanticCustomError("rule", f"must have an entry for each of {len(ids)} token_ids")
            tokens = [_chosen(step, token) for step, token in zip(tokens, ids, strict=True)]
        return tokens

    def answer(self) -> dict | None:
        """Return a record's answer; None where the server keeps its probability to itself."""
        finished = self.finish_reason == "stop"
        answer = {"text": self.text, "finished": finished, "end_log_prob": None if finished else 0.0}
        if self.logprobs is None:
            return answer | {"log_prob": self.cumulative_logprob}
        values = [token.logprob for token in self.logprobs]
        is_unknown = any(value <= NOT_GIVEN for value in values) or (finished and not values)
        return None if is_unknown else answer | {"token_log_probs": values}


def _chosen(step: Any, token: int) -> Any:
    """Return of a step of vLLM the entry of the token that was chosen; JSON turns its id, the key, into text."""
    listed = isinstance(step, dict) and "logprob" not in step
    return step.get(token, step.get(str(token), {})) if listed else step


def _within(name: str) -> tuple[str, AliasPath, AliasPath]:
    return name, AliasPath("response", name), AliasPath("response", "body", name)


class _Response(Format):
    """A line: a response that is bare, within `response`, or as the batch API writes it, or a RequestOutput of vLLM.

    What it says of its question is looked at by the check of records.
    """

    question_id: Any = Field(None, validation_alias=AliasChoices("question_id", "custom_id"))
    served_id: Any = Field(None, validation_alias=AliasChoices("request_id", *_within("id")))
    question: Any = Field(None, validation_alias=AliasChoices("question", "prompt"))
    references: Any = None
    split: Any = None
    choices: Annotated[list[_Choice], Listed] = Field(validation_alias=AliasChoices(*_within("choices"), "outputs"))


def from_openai(path: Source, *, questions: pd.DataFrame | None = None) -> Run:
    """Return a run of saved responses of an OpenAI-compatible server, chat or text completions, with `logprobs`.

    The file is JSONL or a JSON list, a response (with n choices) per question: bare, within `{question_id?, question?,
    references?, split?, response}`, or as the batch API writes it (`custom_id`, `response.body`). In memory, `path` is
    a list of these, as dicts or as a client's objects.

    `log_prob` (nats) is that of all tokens returned, the one that ended the answer among them where the server returns
    it. Where it does not, answers may add up to more than 1, and no bound holds (docs/own_data.md). A choice that no
    stop finished is not finished; one whose probability the server keeps to itself is left out, and a warning counts.

    `questions`, as `questions.load(...).table`, replace those of the file. A response belongs to the question whose id
    it carries (question_id, custom_id), else to the one in its place. Raises `RunError` with file, line and choice.
    """
    return _responses(path, "openai", questions)


def from_vllm(source: Source, *, questions: pd.DataFrame | None = None) -> Run:
    """Return a run of what vLLM's `LLM.generate` returned: `RequestOutput` objects, or a file of their JSON.

    `log_prob` (nats) is that of everything generated, so that only one way to end is counted, the one that happened.
    JSON may bring question_id, question, references and split. The rest is as for `from_openai`.
    """
    return _responses(source, "vllm", questions)


# What a file's first object has tells its layout.
_LAYOUTS = {"answers": from_records, "outputs": from_vllm, "choices": from_openai, "response": from_openai}


def from_file(path: str | Path, *, questions: pd.DataFrame | None = None) -> Run:
    """Return a run of a file in any layout: our records, OpenAI's responses or vLLM's outputs.

    `questions` as for `from_openai`. Raises `RunError` as the readers do, and for another layout.
    """
    where, first = next(json_lines(path), (str(path), {}))
    read = next((reader for key, reader in _LAYOUTS.items() if key in first), None)
    if read is None:
        raise RunError(f"{where}: neither answers (our records), nor choices (OpenAI), nor outputs (vLLM) are there")
    return read(path, questions=questions)


def recorded(records: Sequence[str]) -> dict[tuple[str, str], str]:
    """Return files of records by model and dataset; ValueError if one is missing or two have one name."""
    files: dict[tuple[str, str], str] = {}
    for file in records:
        if not os.path.isfile(file):
            raise ValueError(f"records={file!r} is not a file")
        name = named(file)
        if files.setdefault(name, file) != file:
            raise ValueError(f"records={file!r} has the name of {files[name]!r}: one of them at a time")
    return files


def _responses(source: Source, model: str, asked: pd.DataFrame | None) -> Run:
    path, records, ids, left_out = called(source, model), [], [], []
    for where, entry in json_lines(source):
        if isinstance(entry, dict) and entry.get("error"):
            raise RunError(f"{where}: an error instead of a response: {entry['error']}")
        response = fitted(_Response, entry, where, RunError)
        answers = [choice.answer() for choice in response.choices]
        left_out += [f"{where}, choice {n}" for n, answer in enumerate(answers) if answer is None]
        ids.append(response.question_id)
        names = (response.question_id, response.served_id, f"{path.stem}-{where.rsplit(' ', 1)[1]}")
        record = {name: getattr(response, name) for name in ("question", "references", "split")}
        record |= {"question_id": next(name for name in names if name is not None)}
        records.append((where, record | {"answers": [answer for answer in answers if answer is not None]}))
    answers, questions = tables(records, path)
    if left_out:
        message = f"{len(left_out)} answers are left out, since their probability was not returned; the first is"
        warnings.warn(f"{message} {left_out[0]}", UserWarning, stacklevel=3)
    if asked is not None:
        n_named = sum(name is not None for name in ids)
        answers, questions = answering(asked, answers, questions, n_named, path)
    return Run(answers, questions, RunInfo(path.stem, model, model))
