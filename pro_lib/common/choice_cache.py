"""The file in which the answers of a `ChoiceModel` are kept, so that nothing is asked twice."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from pro_lib.common.choice_model import ChoiceModel
from pro_lib.common.files import sha256
from pro_lib.common.line_file import append_lines, read_lines
from pro_lib.common.validation import SentenceError

_AT_ONCE = 32  # prompts whose log-probabilities are stored together


class Replies(NamedTuple):
    """The replies of a model to n prompts about C choices.

    Attributes:
        log_probs: (n, C) log-probabilities in nats.
        is_listed: (n, C) whether the model has listed the value. Any other value is the largest
            one that is possible.
    """

    log_probs: NDArray[np.float64]
    is_listed: NDArray[np.bool_]


def stored_replies(
    model: ChoiceModel,
    prompts: Sequence[str],
    choices: Sequence[str],
    *,
    cache: str | Path | None = None,
    progress: bool = False,
) -> Replies:
    """Return log P(choice | prompt) from a file if it is there, and from the model otherwise.

    Equal prompts are sent to the model once. The values are stored after every batch, so an
    interrupted call continues where it stopped. Values that the model does not know (NaN) are
    not stored, so they are requested again.

    Args:
        model: an object with `choice_log_probs`.
        prompts: n prompts.
        choices: C continuations.
        cache: an append-only file; it is created if it does not exist. None stores nothing.
        progress: show a progress bar.

    Raises:
        SentenceError: a line of the file is not a stored value.
        RunError: the file cannot be read or written.
    """
    rows = _read_stored(cache, model, choices) if cache is not None else {}
    missing = _missing(rows, prompts, choices)
    for batch in _batches(missing, getattr(model, "prompts_at_once", _AT_ONCE), progress=progress):
        replies = _requested(model, batch, choices)
        lines = []
        for prompt, log_probs, is_listed in zip(batch, *replies, strict=True):
            key = _prompt_key(prompt, choices)
            rows[key] = (log_probs, is_listed)
            if cache is not None and not np.isnan(log_probs).any():
                lines.append(_line(model, key, log_probs, is_listed))
        if cache is not None:
            append_lines(cache, lines)
    shape = (len(prompts), len(choices))
    prompt_rows = [rows[_prompt_key(prompt, choices)] for prompt in prompts]
    log_probs = np.array([row[0] for row in prompt_rows], dtype=np.float64).reshape(shape)
    is_listed = np.array([row[1] for row in prompt_rows], dtype=bool).reshape(shape)
    return Replies(log_probs, is_listed)


def missing_prompts(
    model: ChoiceModel, prompts: Sequence[str], choices: Sequence[str], cache: str | Path
) -> list[str]:
    """Return the different prompts that the model would be asked, because they are not stored."""
    return _missing(_read_stored(cache, model, choices), prompts, choices)


def _missing(
    stored: Mapping[str, object], prompts: Sequence[str], choices: Sequence[str]
) -> list[str]:
    """Return the different prompts whose key is not stored."""
    return [
        prompt for prompt in dict.fromkeys(prompts) if _prompt_key(prompt, choices) not in stored
    ]


def _requested(model: ChoiceModel, prompts: list[str], choices: Sequence[str]) -> Replies:
    """Return the replies of the model."""
    request = getattr(model, "listed_log_probs", None)
    if request is not None:
        return Replies(*request(prompts, choices))
    log_probs = np.asarray(model.choice_log_probs(prompts, choices), dtype=np.float64)
    return Replies(log_probs, np.full(log_probs.shape, True))


def _batches(prompts: list[str], at_once: int, *, progress: bool) -> Iterator[list[str]]:
    """Yield the prompts in batches, with a progress bar that counts prompts."""
    with tqdm(total=len(prompts), disable=not progress, unit="prompt") as bar:
        for start in range(0, len(prompts), at_once):
            batch = prompts[start : start + at_once]
            yield batch
            bar.update(len(batch))


def _line(
    model: ChoiceModel, key: str, log_probs: NDArray[np.float64], is_listed: NDArray[np.bool_]
) -> dict[str, object]:
    """Return the line of the file for one prompt."""
    line: dict[str, object] = {
        "model": model.name,
        "fingerprint": model.fingerprint,
        "settings": _settings(model),
        "prompt_sha256": key,
        "log_probs": log_probs.tolist(),
    }
    return line if is_listed.all() else line | {"is_listed": is_listed.tolist()}


def _settings(model: ChoiceModel) -> dict[str, object]:
    """Return the settings that decide the replies of a model."""
    return getattr(model, "reply_settings", {})


def _read_stored(
    cache: str | Path, model: ChoiceModel, choices: Sequence[str]
) -> dict[str, tuple[NDArray[np.float64], NDArray[np.bool_]]]:
    """Return the stored values of a model, and which of them it has listed, by the prompt's key."""
    stored = {}
    for number, line in enumerate(read_lines(cache), 1):
        try:
            log_probs = np.array(line["log_probs"], dtype=np.float64)
            is_listed = np.array(line.get("is_listed", [True] * len(log_probs)))
            key = str(line["prompt_sha256"])
            is_own = _is_reply_of(model, line, log_probs)
        except (KeyError, TypeError, ValueError) as error:
            raise SentenceError(
                f"{cache}, line {number} is not a stored verdict; use another file as cache"
            ) from error
        if is_own and log_probs.shape == is_listed.shape == (len(choices),):
            stored[key] = log_probs, is_listed
    return stored


def _is_reply_of(
    model: ChoiceModel, line: Mapping[str, Any], log_probs: NDArray[np.float64]
) -> bool:
    """Return whether a stored line is the reply of a model.

    Lines of earlier versions have no settings. They say neither which server of a host replied, nor
    whether it has listed all choices. So they are used only if the host has one server, and if one
    choice has more than half of the probability, so that the others cannot change the verdict.
    """
    if (line["model"], line["fingerprint"]) != (model.name, model.fingerprint):
        return False
    settings = _settings(model)
    if "settings" in line or not settings:
        return bool(line.get("settings", {}) == settings)
    return getattr(model, "is_only_server", False) and bool(log_probs.max() > np.log(0.5))


def _prompt_key(prompt: str, choices: Sequence[str]) -> str:
    """Return the digest of a prompt and of the choices."""
    return sha256("\n".join([*choices, prompt]).encode())
