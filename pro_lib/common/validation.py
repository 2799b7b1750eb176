"""Declared types of parameters, and pydantic's errors as one sentence; knows no parameter by its name."""

import difflib
import functools
import re
import reprlib
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Annotated, Any, Literal, TypeVar, dataclass_transform, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    StrictBool,
    StringConstraints,
    ValidationError,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass
from pydantic_core import PydanticCustomError

_T = TypeVar("_T")
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 80


class SentenceError(ValueError):
    """An error whose message is one line, of at most 500 characters: of a longer one the middle is left out."""

    def __init__(self, message: object) -> None:
        super().__init__(one_line(message))


def one_line(message: object) -> str:
    """Return a message as one line that can be printed, of at most 500 characters; its beginning and end stay."""
    line = re.sub(r"\s*[\x00-\x1f\x7f-\x9f\u2028\u2029]+\s*", " ", str(message)).strip()
    line = printable(line)
    return line if len(line) <= 500 else f"{line[:330]} … {line[-167:]}"


def printable(text: object) -> str:
    """Return a text on one line with every character that a terminal would not print as an escape.

    Control characters, line ends, bidirectional overrides and unpaired surrogates become ``\\x1b``, ``\\n`` or
    ``\\u202e``, so that a text cannot move the cursor, change colours or reverse what follows it.
    """
    return "".join(char if is_printable(char) else ascii(char)[1:-1] for char in str(text))


def is_printable(character: str) -> bool:
    """Return whether a terminal prints a character as it is: letters, signs and spaces of any width."""
    return character.isprintable() or unicodedata.category(character) == "Zs"


def describe(error: BaseException) -> str:
    """Return an error's message as one line that is never empty: some errors come without a message."""
    name = type(error).__name__
    message = one_line(error)
    if message:
        return message
    if isinstance(error, MemoryError):
        return f"there is not enough memory ({name}); use a smaller file, model or batch"
    return f"{name}, an error without a message"


def not_empty(value: _T, name: str) -> _T:
    """Return a path or a name as it is; raise `SentenceError` for an empty text, which an unset variable gives."""
    if isinstance(value, str) and not value.strip():
        raise SentenceError(f"{name} is empty; give a path or a name")
    return value


def rule(
    kind: type | tuple[type, ...], holds: Callable[[Any], object], words: str
) -> PlainValidator:
    """Return what takes values of a kind of which `holds` is true, booleans excepted; `words` are the error's."""

    def check(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, kind) or not holds(value):
            raise PydanticCustomError("rule", words)
        return value

    return PlainValidator(check)


# How weights may be shrunk and in what they may be loaded; here, so that both are checked without loading torch.
QUANTIZATIONS = ("8bit", "4bit")
Dtype = Literal["auto", "float32", "bfloat16", "float16"]
DTYPES = get_args(Dtype)[1:]
Engine = Literal["local", "ray"]
Flag = StrictBool
PositiveInt = Annotated[int, Field(strict=True, gt=0)]
WholeNumber = Annotated[int, Field(strict=True, ge=0)]
_Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Probability = Annotated[_Number, Field(ge=0, le=1)]
PositiveShare = Annotated[_Number, Field(gt=0, le=1)]
Positive = Annotated[_Number, Field(gt=0)]
NotNegative = Annotated[_Number, Field(ge=0)]
Probabilities = Annotated[tuple[Probability, ...], Field(min_length=1)]
# Text as files of UTF-8 can hold it; a length, even of 0, has pydantic refuse half a surrogate pair.
Text = Annotated[str, StringConstraints(strict=True, min_length=0)]
Texts = tuple[Text, ...]
Name = Annotated[Text, StringConstraints(pattern=r"\S")]
Chat = Flag | Mapping[Text, Any]  # options of the chat template by their names


class Format(BaseModel):
    """What is declared of an object that is read: types are strict, and what is not declared is passed over."""

    model_config = ConfigDict(strict=True, frozen=True, from_attributes=True)


@dataclass_transform(frozen_default=True)
def checked(cls: type[_T]) -> type[_T]:
    """Return the class as a frozen dataclass whose fields are checked by their types: else a `SentenceError`."""
    config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")
    dataclass: Any = pydantic_dataclass(frozen=True, config=config)(cls)
    validated, known = dataclass.__init__, [field.name for field in fields(dataclass)]
    places = [field.name for field in fields(dataclass) if not field.kw_only]

    @functools.wraps(validated)
    def __init__(self, *args: Any, **values: Any) -> None:  # noqa: N807
        for name in values:
            if name not in known:
                [nearest] = difflib.get_close_matches(name, known, n=1, cutoff=0)
                raise SentenceError(f"{name} is no parameter; the nearest is {nearest}")
        try:
            validated(self, *args[len(places) :], **dict(zip(places, args, strict=False)), **values)
        except ValidationError as error:
            raise SentenceError(sentence(error)) from None

    dataclass.__init__ = __init__
    return dataclass


def sentence(error: ValidationError) -> str:
    """Return what is wrong first, as `<name>=<value> <what it must be>`."""
    errors = error.errors(include_url=False)
    first = next((wrong for wrong in errors if wrong["type"] != "missing"), errors[0])
    # Of a union, pydantic puts the alternative into the place.
    place = [
        part
        for part in first["loc"]
        if not (isinstance(part, str) and ("[" in part or part == "bool"))
    ]
    name = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in place
    ).removeprefix(".")
    if first["type"] == "missing":
        return f"{name} is missing"
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    value = f"{name}={_SHORT.repr(first['input'])}".removeprefix("=")
    return f"{value} {re.sub(r'^[A-Z][a-z]+ (?=should)', '', first['msg'])}"


@contextmanager
def refusing(kind: type[Exception], trouble: str) -> Iterator[None]:
    """Raise what other libraries make of what they did not expect as one sentence of a kind, but for lack of memory."""
    try:
        yield
    except (SentenceError, MemoryError):
        raise
    except Exception as error:
        if type(error).__name__ == "OutOfMemoryError":  # torch's, which is not loaded here
            raise
        is_named = type(error) is not ValueError and str(error)
        reason = f"{type(error).__name__}: {error}" if is_named else describe(error)
        raise kind(one_line(f"{trouble} ({reason})")) from error


@contextmanager
def extra(name: str, feature: str) -> Iterator[None]:
    """Import within what comes with an extra: an `ImportError` says what the feature lacks, and what to type."""
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or str(error)).partition(".")[0]
        raise ImportError(
            f"{feature} needs {module}: pip install 'pro-workbench[{name}]'", name=module
        ) from error
