"""The file in which the answers of a `ChoiceModel` are kept, so that nothing is asked twice."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from pro_lib.common.choice_model import ChoiceModel
from pro_lib.common.files import sha256
from pro_lib.common.line_file import append_lines, read_lines
from pro_lib.common.validation import SentenceError

_AT_ONCE = 32  # prompts whose log-probabilities are stored together


def stored_choice_log_probs(
    model: ChoiceModel,
    prompts: Sequence[str],
    choices: Sequence[str],
    *,
    cache: str | Path | None = None,
    progress: bool = False,
) -> NDArray[np.float64]:
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

    Returns:
        (n, C) log-probabilities in nats.

    Raises:
        SentenceError: a line of the file is not a stored value.
        RunError: the file cannot be read or written.
    """
    log_probs = np.full((len(prompts), len(choices)), np.nan)
    stored = _read_stored(cache, model, len(choices)) if cache is not None else {}
    missing: dict[str, list[int]] = {}
    for position, prompt in enumerate(prompts):
        key = _prompt_key(prompt, choices)
        if key in stored:
            log_probs[position] = stored[key]
        else:
            missing.setdefault(prompt, []).append(position)
    at_once = getattr(model, "prompts_at_once", _AT_ONCE)
    for batch in _batches(list(missing), at_once, progress=progress):
        values = np.asarray(model.choice_log_probs(batch, choices), dtype=np.float64)
        if cache is not None:
            is_known = ~np.isnan(values).any(axis=1)
            keys = [_prompt_key(prompt, choices) for prompt in batch]
            lines = [_line(model, keys[row], values[row]) for row in np.flatnonzero(is_known)]
            append_lines(cache, lines)
        for prompt, row in zip(batch, values, strict=True):
            log_probs[missing[prompt]] = row
    return log_probs


def missing_prompts(
    model: ChoiceModel, prompts: Sequence[str], choices: Sequence[str], cache: str | Path
) -> list[str]:
    """Return the different prompts that the model would be asked, because they are not stored."""
    stored = _read_stored(cache, model, len(choices))
    return [
        prompt for prompt in dict.fromkeys(prompts) if _prompt_key(prompt, choices) not in stored
    ]


def _batches(prompts: list[str], at_once: int, *, progress: bool) -> Iterator[list[str]]:
    """Yield the prompts in batches, with a progress bar that counts prompts."""
    with tqdm(total=len(prompts), disable=not progress, unit="prompt") as bar:
        for start in range(0, len(prompts), at_once):
            batch = prompts[start : start + at_once]
            yield batch
            bar.update(len(batch))


def _line(model: ChoiceModel, key: str, log_probs: NDArray[np.float64]) -> dict[str, object]:
    """Return the line of the file for one prompt."""
    return {
        "model": model.name,
        "fingerprint": model.fingerprint,
        "prompt_sha256": key,
        "log_probs": [float(value) for value in log_probs],
    }


def _read_stored(cache: str | Path, model: ChoiceModel, n_choices: int) -> dict[str, list[float]]:
    """Return the stored log-probabilities of a model by the key of the prompt."""
    stored = {}
    for number, line in enumerate(read_lines(cache), 1):
        try:
            identity = (line["model"], line["fingerprint"])
            log_probs = [float(value) for value in line["log_probs"]]
            key = str(line["prompt_sha256"])
        except (KeyError, TypeError, ValueError) as error:
            raise SentenceError(
                f"{cache}, line {number} is not a stored verdict; use another file as cache"
            ) from error
        if identity == (model.name, model.fingerprint) and len(log_probs) == n_choices:
            stored[key] = log_probs
    return stored


def _prompt_key(prompt: str, choices: Sequence[str]) -> str:
    """Return the digest of a prompt and of the choices."""
    return sha256("\n".join([*choices, prompt]).encode())
