"""Files of answers and log-probabilities made elsewhere (ours, OpenAI's, vLLM's) as the two tables of a run."""

import json
import math
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pro_lib.storage import RunError

_NUMBERS = ("log_prob", "mean_log_prob", "end_log_prob", "rouge_l")
# Log-probabilities of sums in float32 may come out a little above 0.
_ROUNDING = 1e-4
# What OpenAI's endpoints and their likes write for a token whose log-probability they do not give.
_NOT_GIVEN = -9999.0
Tables = tuple[pd.DataFrame, pd.DataFrame]


def read_records(path: Path) -> Tables:
    """The answers and the questions of a records file.

    Raises:
        RunError: what is wrong, with the file and the line.
    """
    return _tables(_json_lines(path), path)


def layout(path: Path) -> str:
    """Whether a file holds `records` of ours, responses of an `openai`-compatible server, or outputs of `vllm`.

    Or it is the cache of an `endpoint`. The first entry decides. Raises `RunError` if it is none of the four.
    """
    where, first = next(iter(_json_entries(path)), (str(path), None))
    if isinstance(first, dict) and "endpoint" in first:
        return "endpoint"
    inside = first.get("response", first) if isinstance(first, dict) else {}
    inside = inside.get("body", inside) if isinstance(inside, dict) else {}
    keys = {"answers": "records", "choices": "openai", "outputs": "vllm"}
    for key, name in keys.items():
        if isinstance(inside, dict) and key in inside:
            return name
    raise RunError(f"{where}: neither answers (our records), nor choices (OpenAI), nor outputs (vLLM) are there")


def read_openai(path: Path, *, questions: pd.DataFrame | None = None) -> Tables:
    """The answers and the questions of saved chat-completions or text-completions responses with `logprobs`.

    The file is JSONL or a JSON list, a response (with n choices) per question: bare, within `{question_id?, question?,
    references?, split?, response}`, or as the batch API writes it (`custom_id`, `response.body`).

    `log_prob` is that of the tokens that spell the text. A server that also returns the token which ended the answer
    (vLLM does, OpenAI does not) gives `end_log_prob`, likewise the tokens of a stop text; where a token both ends the
    text and goes beyond it, its ending costs nothing more. Else `end_log_prob` is missing: what is known is the
    probability of beginning with the answer, at least that of giving it, so answers may add up to more than 1. A
    choice that was not finished by a stop is not finished. A choice whose probability the server keeps to itself (a
    token at -9999, or nothing but an ending that is not returned) is left out, and a warning counts them.

    Args:
        questions: the questions asked, as `question_sets.load(...).table`; they replace those of the file. A response belongs to
            the question whose id it carries (question_id, custom_id), else to the one in its place.

    Raises:
        RunError: what is wrong, with the file, the line and the choice; among it that `logprobs` were not asked for.
    """
    records = ((where, _openai_record(record, where, path)) for where, record in _json_entries(path))
    return _tables(records, path, questions)


def read_vllm(source: Path | Iterable[Any], *, questions: pd.DataFrame | None = None) -> Tables:
    """The answers and the questions of vLLM's `RequestOutput` objects, or of their JSON (a list, or JSONL).

    vLLM keeps the token that ended an answer in `token_ids` and `logprobs`, though not in `text`: its log-probability
    becomes `end_log_prob`, and `log_prob` is that of the tokens before. With a stop text, the tokens' own texts
    (`decoded_token`) tell where the answer ends; where they do not, and where only `cumulative_logprob` is given,
    `log_prob` is that of everything generated and `end_log_prob` is missing. Only one way to end is counted, the one
    that happened. JSON may bring question_id, question, references and split beside vLLM's fields.

    Args:
        source: the file, or the objects.
        questions: as for `read_openai`.

    Raises:
        RunError: what is wrong, with the file or the place among the objects, and the output.
    """
    if isinstance(source, (str, Path)):
        path, entries = Path(source), _json_entries(Path(source))
    elif isinstance(source, Iterable) and not isinstance(source, (bytes, dict)):
        path, entries = Path("vllm"), ((f"vLLM output {n}", item) for n, item in enumerate(source))
    else:
        raise RunError(f"source is {type(source).__name__}, neither a file nor a list of vLLM's outputs")
    records = ((where, _vllm_record(record, where, path)) for where, record in entries)
    return _tables(records, path, questions)


def _tables(records: Iterable[tuple[str, dict]], path: Path, asked: pd.DataFrame | None = None) -> Tables:
    answers: list[dict] = []
    questions: list[dict] = []
    places: dict[str, str] = {}
    left_out: list[str] = []
    named: list[bool] = []
    for where, record in records:
        question = _question(record, where)
        identity = question["question_id"]
        if identity in places:
            raise RunError(f"{where}: question_id {identity!r} was already used on {places[identity]}")
        places[identity] = where.removeprefix(f"{path}, ")
        questions.append(question)
        left_out += record.get("left_out", [])
        named.append(record.get("named", True))
        for rank, answer in enumerate(record["answers"]):
            answers.append({"question_id": identity, "rank": rank, **_answer(answer, f"{where}, answer {rank}")})
    if not answers:
        unknown = f", {len(left_out)} answers whose probability was not returned" if left_out else ""
        raise RunError(f"{path} holds no answers ({len(questions)} questions{unknown})")
    if left_out:
        message = f"{len(left_out)} answers are left out, since their probability was not returned; the first is"
        warnings.warn(f"{message} {left_out[0]}", UserWarning, stacklevel=4)
    try:
        table, found = _answer_table(answers), pd.DataFrame(questions)
    except UnicodeEncodeError as error:  # files were looked through for this, objects were not
        raise RunError(f"{path}: a text holds half a character ({error.reason})") from error
    if asked is None:
        return table, found
    ids = _answering(asked, found, named, path)
    lacking = {name: None for name in found if name not in asked}
    return table.assign(question_id=table["question_id"].map(ids)), asked.assign(**lacking).reset_index(drop=True)


def _answering(questions: pd.DataFrame, found: pd.DataFrame, named: list[bool], path: Path) -> dict[str, str]:
    """The question that each of the ids found stands for."""
    if not {"question_id", "question"} <= set(questions) or questions["question_id"].duplicated().any():
        raise RunError("questions= must have columns question_id and question, and each id once")
    ids = list(questions["question_id"])
    if all(named):
        unknown = found["question_id"][~found["question_id"].isin(ids)]
        if len(unknown):
            raise RunError(f"{path}: question_id {unknown.iloc[0]!r} is not in questions=")
        return dict(zip(ids, ids, strict=True))
    if any(named):
        raise RunError(f"{path}: some responses carry a question_id and some do not")
    if len(found) != len(ids):
        raise RunError(f"{path} has {len(found)} responses, but questions= has {len(ids)} rows")
    return dict(zip(found["question_id"], ids, strict=True))


def _json_lines(path: Path) -> Iterator[tuple[str, dict]]:
    if not path.is_file():
        raise RunError(f"records file {path} does not exist")
    with open(path, "rb") as file:
        for number, raw in enumerate(file, start=1):
            if raw.strip():
                where = f"{path}, line {number}"
                yield where, _is(dict, _parsed(raw, where), where)


def _json_entries(path: Path) -> Iterator[tuple[str, dict]]:
    """The objects of a file that is JSONL or one JSON list, and where they are."""
    if not path.is_file():
        raise RunError(f"records file {path} does not exist")
    with open(path, "rb") as file:
        is_list = file.read(64).lstrip().startswith(b"[")
    if not is_list:
        yield from _json_lines(path)
        return
    for number, record in enumerate(_is(list, _parsed(path.read_bytes(), str(path)), str(path)), start=1):
        where = f"{path}, entry {number}"
        yield where, _is(dict, record, where)


def _parsed(raw: bytes, where: str) -> object:
    try:
        record = json.loads(raw.decode("utf-8"))
        if rb"\u" in raw:
            json.dumps(record, ensure_ascii=False).encode("utf-8")  # half a surrogate pair is JSON, but no text
    except UnicodeError as error:
        raise RunError(f"{where}: not UTF-8 text ({error.reason})") from error
    except (ValueError, RecursionError) as error:
        raise RunError(f"{where}: not JSON ({error})") from error
    return record


def _is(kind: type | tuple[type, ...], value: Any, where: str) -> Any:
    if not isinstance(value, kind):
        names = {dict: "an object", list: "a list", str: "text"}
        raise RunError(f"{where}: not {names[kind]} but {type(value).__name__}")
    return value


def _openai_record(record: dict, where: str, path: Path) -> dict:
    """A line of ours for a response: bare, wrapped, or as the batch API writes it."""
    response = _is(dict, record.get("response", record), f"{where}: response")
    response = _is(dict, response.get("body", response), f"{where}: response.body")
    if response.get("choices") is None:
        reason = response.get("error") or record.get("error")
        raise RunError(f"{where}: choices are missing{f', instead there is an error: {reason}' if reason else ''}")
    choices = _listed(response["choices"], f"{where}: choices")
    answers = {
        f"{where}, choice {n}": _openai_answer(choice, f"{where}, choice {n}") for n, choice in enumerate(choices)
    }
    given = _first(record.get("question_id"), record.get("custom_id"))
    return {
        **{name: record.get(name) for name in ("question", "references", "split")},
        "question_id": _first(given, response.get("id"), _numbered(where, path)),
        "named": given is not None,
        "answers": [answer for answer in answers.values() if answer is not None],
        "left_out": [place for place, answer in answers.items() if answer is None],
    }


def _openai_answer(choice: object, where: str) -> dict | None:
    """An answer of ours for a choice; None where the server keeps its probability to itself."""
    finished = _finished(_is(dict, choice, where), where)
    if "message" in choice:
        text = _is(dict, choice["message"], f"{where}: message").get("content")
        tokens = _inner(choice.get("logprobs"), "content", where)
        tokens = [_is(dict, token, f"{where}, token {n}") for n, token in enumerate(tokens)]
        values = [token.get("logprob") for token in tokens]
        pieces = [_piece(token.get("token"), token.get("bytes")) for token in tokens]
    else:
        text, values = choice.get("text"), _inner(choice.get("logprobs"), "token_logprobs", where)
        pieces = [_piece(token) for token in _listed(choice["logprobs"].get("tokens") or [], f"{where}: tokens")]
    text, values = _is(str, text, f"{where}: the text"), _list(values, (int, float), f"{where}: logprobs")
    if any(value <= _NOT_GIVEN for value in values) or (finished and not values):
        return None
    spelling = _spelling(pieces, text) if len(pieces) == len(values) else None
    return {"text": text, "finished": finished, **_with_ending(values, spelling, finished)}


def _inner(logprobs: object, name: str, where: str) -> list:
    if logprobs is None or (isinstance(logprobs, dict) and logprobs.get(name) is None):
        raise RunError(
            f"{where}: logprobs are missing; the request must ask for them (chat: logprobs=true, text: logprobs=1)"
        )
    return _listed(_is(dict, logprobs, f"{where}: logprobs")[name], f"{where}: logprobs.{name}")


def _vllm_record(record: object, where: str, path: Path) -> dict:
    """A line of ours for a RequestOutput or its JSON."""
    outputs = _listed(_field(record, "outputs"), f"{where}: outputs")
    given = _field(record, "question_id")
    return {
        **{name: _field(record, name) for name in ("references", "split")},
        "question": _first(_field(record, "question"), _field(record, "prompt")),
        "question_id": _first(given, _field(record, "request_id"), _numbered(where, path)),
        "named": given is not None,
        "answers": [_vllm_answer(output, f"{where}, output {n}") for n, output in enumerate(outputs)],
    }


def _vllm_answer(output: object, where: str) -> dict:
    """An answer of ours for a CompletionOutput."""
    finished, text = _finished(output, where), _is(str, _field(output, "text"), f"{where}: the text")
    ids = _list(_listed(_field(output, "token_ids"), f"{where}: token_ids"), int, f"{where}: token_ids")
    if _field(output, "logprobs") is None:
        total = _field(output, "cumulative_logprob")
        if total is None:
            raise RunError(f"{where}: logprobs are missing; vLLM gives them with SamplingParams(logprobs=0)")
        ending = None if finished else 0.0
        return {"text": text, "token_ids": ids, "log_prob": total, "end_log_prob": ending, "finished": finished}
    steps = _listed(_field(output, "logprobs"), f"{where}: logprobs")
    if len(steps) != len(ids):
        raise RunError(f"{where}: {len(steps)} logprobs for {len(ids)} token_ids")
    chosen = [
        _of_token(step, token, f"{where}, token {n}") for n, (step, token) in enumerate(zip(steps, ids, strict=True))
    ]
    values = _list([_first(_field(entry, "logprob"), entry) for entry in chosen], (int, float), f"{where}: logprobs")
    spelling = _spelling([_piece(_field(entry, "decoded_token")) for entry in chosen], text)
    stop = _field(output, "stop_reason")
    # Of a stop text the texts of the tokens tell; else the last token ended the answer, unless the text contains it.
    if not isinstance(stop, str) and (spelling is None or spelling[0] < len(ids)):
        ended = bool(ids) and (stop is None or (isinstance(stop, int) and stop == ids[-1]))
        spelling = (len(ids) - 1, False) if ended else None
    answer = _with_ending(values, spelling, finished)
    return {"text": text, "token_ids": ids[: len(answer["token_log_probs"])], "finished": finished, **answer}


def _of_token(step: object, token: int, where: str) -> object:
    """The entry of the token that was chosen; JSON turns its id, the key, into text."""
    entries = _is(dict, step, f"{where}: logprobs")
    if token not in entries and str(token) not in entries:
        raise RunError(f"{where}: logprobs lack the token chosen, {token}")
    return entries.get(token, entries.get(str(token)))


def _finished(choice: object, where: str) -> bool:
    reason = _field(choice, "finish_reason")
    if not isinstance(reason, str):
        raise RunError(f"{where}: finish_reason is missing, so it is not known whether the answer is complete")
    return reason == "stop"


def _spelling(pieces: list[bytes | None], text: str) -> tuple[int, bool] | None:
    """How many tokens spell the text, and whether the last of them goes beyond it; None if they spell another text.

    If the texts as they are do not agree, white space is overlooked: decoding single tokens may lose or add it.
    """
    if any(piece is None for piece in pieces):
        return None
    for clean in (bytes, lambda raw: b"".join(raw.split())):
        wanted, spelled, n_tokens = clean(text.encode("utf-8", "replace")), b"", 0
        while len(spelled) < len(wanted) and n_tokens < len(pieces):
            spelled += clean(pieces[n_tokens])
            n_tokens += 1
        if spelled.startswith(wanted):
            return n_tokens, len(spelled) > len(wanted)
    return None


def _with_ending(values: list[float], spelling: tuple[int, bool] | None, finished: bool) -> dict:
    """The tokens of an answer apart from those that end it, as far as that is known."""
    if not finished:
        return {"token_log_probs": values, "end_log_prob": 0.0}
    n_tokens, beyond = spelling or (len(values), False)
    if n_tokens == len(values):
        # A token that is text and ending at once has paid for both.
        return {"token_log_probs": values, "end_log_prob": 0.0 if beyond else None}
    return {"token_log_probs": values[:n_tokens], "end_log_prob": sum(values[n_tokens:])}


def _piece(token: object, raw: object = None) -> bytes | None:
    """The bytes of a token, which may be part of a character; None where nothing tells."""
    if isinstance(raw, list) and all(type(byte) is int and 0 <= byte < 256 for byte in raw):
        return bytes(raw)
    return token.encode("utf-8", "replace") if isinstance(token, str) else None


def _field(record: object, name: str) -> Any:
    return record.get(name) if isinstance(record, dict) else getattr(record, name, None)


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _numbered(where: str, path: Path) -> str:
    return f"{path.stem}-{where.rsplit(' ', 1)[1]}"


def _listed(values: Any, where: str) -> list:
    """A list of what may be a tuple, an array, another sequence, or a list of an array's numbers."""
    if isinstance(values, (str, bytes, dict)) or not isinstance(values, Iterable):
        raise RunError(f"{where}: {'missing' if values is None else f'not a list but {type(values).__name__}'}")
    values = _is(list, values.tolist() if hasattr(values, "tolist") else list(values), where)
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def _question(record: dict, where: str) -> dict:
    for name in ("question_id", "answers"):
        if record.get(name) is None:
            raise RunError(f"{where}: {name} is missing")
    if isinstance(record["question_id"], (list, dict, bool, float)):
        raise RunError(f"{where}: question_id must be a string or an integer")
    if not isinstance(record["answers"], list):
        raise RunError(f"{where}: answers must be a list")
    references = record.get("references")
    if isinstance(references, str):
        references = [references]
    if references is not None and not (
        isinstance(references, list) and references and all(isinstance(text, str) for text in references)
    ):
        raise RunError(f"{where}: references must be a non-empty list of texts, or left out")
    for name in ("question", "split"):
        if not isinstance(record.get(name), (str, type(None))):
            raise RunError(f"{where}: {name} must be text")
    return {
        "question_id": str(record["question_id"]),
        "question": record.get("question"),
        "references": references,
        "split": record.get("split"),
    }


def _answer(answer: object, where: str) -> dict:
    if not isinstance(answer, dict):
        raise RunError(f"{where}: not an object but {type(answer).__name__}")
    numbers = {name: _number(answer.get(name), f"{where}: {name}") for name in _NUMBERS}
    token_log_probs = _list(answer.get("token_log_probs"), (int, float), f"{where}: token_log_probs")
    token_ids = _list(answer.get("token_ids"), int, f"{where}: token_ids")
    if math.isnan(numbers["log_prob"]):
        # No tokens and no ending would make an answer of probability 1.
        if token_log_probs is None or (not token_log_probs and math.isnan(numbers["end_log_prob"])):
            raise RunError(f"{where}: neither log_prob nor token_log_probs is given")
        numbers["log_prob"] = _number(sum(token_log_probs), f"{where}: the sum of token_log_probs")
    bounded = {name: numbers[name] for name in ("log_prob", "mean_log_prob", "end_log_prob")}
    for name, value in {"token_log_probs": max(token_log_probs or [0.0]), **bounded}.items():
        if value > _ROUNDING:
            raise RunError(f"{where}: {name} is {value:g}, but a log-probability is at most 0")
    if numbers["rouge_l"] < 0 or numbers["rouge_l"] > 1:
        raise RunError(f"{where}: rouge_l is {numbers['rouge_l']:g}, but must lie in [0, 1]")
    text, correct, finished = answer.get("text"), answer.get("correct"), answer.get("finished", True)
    if not isinstance(text, (str, type(None))):
        raise RunError(f"{where}: text must be text")
    if not isinstance(correct, (bool, type(None))) or not isinstance(finished, bool):
        raise RunError(f"{where}: correct and finished must be true or false")
    # Rounding above 0 is trimmed, so that no probability exceeds 1.
    trimmed = {name: min(value, 0.0) if name != "rouge_l" else value for name, value in numbers.items()}
    return {
        "text": text,
        "token_ids": token_ids,
        "token_log_probs": token_log_probs,
        "finished": finished,
        "correct": correct,
        **trimmed,
    }


def _number(value: object, where: str) -> float:
    """A finite number, or NaN where none is given."""
    if value is None:
        return math.nan
    if not _is_finite(value, (int, float)):
        raise RunError(f"{where} is {value!r}, not a finite number")
    return float(value)


def _list(values: object, kind: type | tuple[type, ...], where: str) -> list | None:
    if values is None:
        return None
    if not isinstance(values, list):
        raise RunError(f"{where} must be a list")
    for value in values:
        if not _is_finite(value, kind):
            raise RunError(f"{where} holds {value!r}, not a finite number")
    return values


def _is_finite(value: object, kind: type | tuple[type, ...]) -> bool:
    # math.isfinite overflows on the large integers that JSON allows.
    return isinstance(value, kind) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _answer_table(answers: list[dict]) -> pd.DataFrame:
    """All answers as a table; columns that no answer has are left out, except those every run has."""
    table = pd.DataFrame(answers)
    for name in ("mean_log_prob", "rouge_l", "correct"):
        if table[name].isna().all():
            table = table.drop(columns=name)
    order = [
        "question_id",
        "rank",
        "text",
        "token_ids",
        "token_log_probs",
        "log_prob",
        "end_log_prob",
        "finished",
    ]
    return table[[*order, *(name for name in table if name not in order)]]
