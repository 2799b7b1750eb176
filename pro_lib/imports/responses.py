"""Responses of OpenAI-compatible servers and outputs of vLLM as records; knows their layouts, and no model."""

import warnings
from collections.abc import Iterable
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import AliasChoices, AliasPath, BeforeValidator, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from pro_lib.checks import Format, Text, fitted, rule
from pro_lib.files import RunError
from pro_lib.imports.records import answering, tables
from pro_lib.parts import RunInfo
from pro_lib.readers import Source, called, json_lines
from pro_lib.runs import Run

# What servers write for a log-probability that they do not give; vLLM also for -inf and for places not filled.
NOT_GIVEN = -9999.0


def _as_list(values: Any) -> Any:
    """A list of what may be a tuple, an array, another sequence, or a list of an array's numbers."""
    if isinstance(values, (str, bytes, dict)) or not isinstance(values, Iterable):
        return values
    return [value.item() if isinstance(value, np.generic) else value for value in values]


Finite = rule((int, float), lambda value: abs(value) < float("inf"), "must be a finite number")
Reason = rule(str, lambda value: True, "must be text: it says whether the answer is complete")
Listed = BeforeValidator(_as_list)


class _Token(Format):
    logprob: Finite
    text: str | None = Field(None, validation_alias=AliasChoices("token", "decoded_token"))
    raw: list[Annotated[int, Field(ge=0, le=255)]] | None = Field(None, validation_alias="bytes")

    def spelled(self) -> bytes | None:
        """Its bytes, which may be part of a character; None where nothing tells."""
        if self.raw is not None or self.text is None:
            return self.raw and bytes(self.raw)
        return self.text.encode("utf-8", "replace")


class _Choice(Format):
    """A choice of a chat or text completion, or a CompletionOutput of vLLM."""

    finish_reason: Reason
    text: Text = Field(validation_alias=AliasChoices(AliasPath("message", "content"), "text"))
    stop_reason: Any = None
    token_ids: Annotated[list[int], Listed] | None = None
    cumulative_logprob: Finite | None = None
    logprobs: list[_Token] | None = Field(
        None, validate_default=True, validation_alias=AliasChoices(AliasPath("logprobs", "content"), "logprobs")
    )

    @field_validator("logprobs", mode="before")
    @classmethod
    def _tokens(cls, found: Any, others: ValidationInfo) -> Any:
        """The tokens, which chat completions list; texts and numbers lie side by side in text completions."""
        found, ids = _as_list(found), others.data.get("token_ids")
        if isinstance(found, dict):
            texts, found = found.get("tokens"), found.get("token_logprobs")
            if isinstance(found, list):
                known = isinstance(texts, list) and len(texts) == len(found)
                found = [{"logprob": value, "token": texts[n] if known else None} for n, value in enumerate(found)]
        if found is None and others.data.get("cumulative_logprob") is None:
            how = "logprobs=true (chat), logprobs=1 (text), SamplingParams(logprobs=0) (vLLM)"
            raise PydanticCustomError("rule", f"is missing; ask for it with {how}")
        if isinstance(found, list) and ids is not None:
            if len(found) != len(ids):
                raise PydanticCustomError("rule", f"must have an entry for each of {len(ids)} token_ids")
            found = [_chosen(step, token) for step, token in zip(found, ids, strict=True)]
        return found

    def answer(self) -> dict | None:
        """A record's answer; None where the server keeps its probability to itself."""
        answer = {"text": self.text, "token_ids": self.token_ids, "finished": self.finish_reason == "stop"}
        if self.logprobs is None:
            return answer | {"log_prob": self.cumulative_logprob, "end_log_prob": None if answer["finished"] else 0.0}
        values = [token.logprob for token in self.logprobs]
        if any(value <= NOT_GIVEN for value in values) or (answer["finished"] and not values):
            return None
        n_tokens, closed = self._spelling() if answer["finished"] else (len(values), False)
        cut = None if answer["finished"] else 0.0
        answer["end_log_prob"] = sum(values[n_tokens:]) if n_tokens < len(values) else cut
        # A token that is text and ending at once has paid for both.
        answer["closed"] = closed and n_tokens == len(values)
        ids = self.token_ids and self.token_ids[:n_tokens]
        return answer | {"token_log_probs": values[:n_tokens], "token_ids": ids}

    def _spelling(self) -> tuple[int, bool]:
        """How many tokens spell the text, and whether the last of them goes beyond it; all if that cannot be told."""
        spelling, stop = _spelled([token.spelled() for token in self.logprobs], self.text), self.stop_reason
        # Of a stop text the tokens' texts tell; else vLLM's last token ended the answer, unless the text contains it.
        if self.token_ids and not isinstance(stop, str) and (spelling is None or spelling[0] < len(self.token_ids)):
            ended = stop is None or (isinstance(stop, int) and stop == self.token_ids[-1])
            spelling = (len(self.token_ids) - 1, False) if ended else None
        return spelling or (len(self.logprobs), False)


def _chosen(step: Any, token: int) -> Any:
    """Of a step of vLLM the entry of the token that was chosen; JSON turns its id, the key, into text."""
    listed = isinstance(step, dict) and "logprob" not in step
    return step.get(token, step.get(str(token), {})) if listed else step


def _spelled(pieces: list[bytes | None], text: str) -> tuple[int, bool] | None:
    """How many pieces spell the text, and whether the last of them goes beyond it; None if they spell another text.

    If the texts as they are do not agree, white space is overlooked: decoding single tokens may lose or add it.
    """
    if any(piece is None for piece in pieces):
        return None
    for clean in (bytes, lambda raw: b"".join(raw.split())):
        wanted, spelled, n_tokens = clean(text.encode()), b"", 0
        while len(spelled) < len(wanted) and n_tokens < len(pieces):
            spelled += clean(pieces[n_tokens])
            n_tokens += 1
        if spelled.startswith(wanted):
            return n_tokens, len(spelled) > len(wanted)
    return None


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
    """A run from saved responses of an OpenAI-compatible server, chat or text completions, with `logprobs` and any n.

    The file is JSONL or a JSON list, a response (with n choices) per question: bare, within `{question_id?, question?,
    references?, split?, response}`, or as the batch API writes it (`custom_id`, `response.body`). In memory, `path` is
    a list of these, as dicts or as a client's objects.

    `log_prob` (nats) is that of the tokens that spell the text, `end_log_prob` of those beyond it. Where they are not
    returned it is unknown: answers may add up to more than 1, and no bound holds (docs/own_data.md). A choice that no
    stop finished is not finished; one whose probability the server keeps to itself is left out, and a warning counts.

    Args:
        questions: the questions asked, as `questions.load(...).table`; they replace those of the file. A response
            belongs to the question whose id it carries (question_id, custom_id), else to the one in its place.

    Raises:
        RunError: what is wrong, with the file, the line and the choice; among it that `logprobs` were not asked for.
    """
    return _run(path, "openai", questions)


def from_vllm(source: Source, *, questions: pd.DataFrame | None = None) -> Run:
    """A run from what `LLM.generate` of vLLM returned: `RequestOutput` objects, or a file of their JSON.

    The token that ended an answer gives `end_log_prob` (nats), those before it `log_prob`; where nothing tells which it
    is, `log_prob` is that of everything generated. Only one way to end is counted, the one that happened. JSON may
    bring question_id, question, references and split beside vLLM's fields.

    Args:
        source: the file, or the objects.
        questions: as for `from_openai`.

    Raises:
        RunError: what is wrong, with the file or the place among the objects, and the output.
    """
    return _run(source, "vllm", questions)


def _run(source: Source, model: str, asked: pd.DataFrame | None) -> Run:
    path, records, named, left_out = called(source, model), [], [], []
    for where, entry in json_lines(source):
        if isinstance(entry, dict) and entry.get("error"):
            raise RunError(f"{where}: an error instead of a response: {entry['error']}")
        read = fitted(_Response, entry, where, RunError)
        answers = [choice.answer() for choice in read.choices]
        left_out += [f"{where}, choice {n}" for n, answer in enumerate(answers) if answer is None]
        named.append(read.question_id is not None)
        ids = (read.question_id, read.served_id, f"{path.stem}-{where.rsplit(' ', 1)[1]}")
        record = {name: getattr(read, name) for name in ("question", "references", "split")}
        record |= {"question_id": next(identity for identity in ids if identity is not None)}
        records.append((where, record | {"answers": [answer for answer in answers if answer is not None]}))
    answers, questions = tables(records, path)
    if left_out:
        message = f"{len(left_out)} answers are left out, since their probability was not returned; the first is"
        warnings.warn(f"{message} {left_out[0]}", UserWarning, stacklevel=3)
    if asked is not None:
        answers, questions = answering(asked, answers, questions, sum(named), path)
    return Run(answers, questions, RunInfo(path.stem, model, model))
