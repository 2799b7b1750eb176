"""Types of parameters, and errors as one sentence."""

import difflib
import errno
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
_SHORT.maxstring = 80
_SHORT.maxlong = 80
_SHORT.maxother = 80


class SentenceError(ValueError):
    """An error whose message is one line of at most 500 characters."""

    def __init__(self, message: object) -> None:
        super().__init__(one_line(message))


def one_line(message: object) -> str:
    """Return a message as one printable line of at most 500 characters.

    The middle of a longer message is left out.
    """
    line = re.sub(r"\s*[\x00-\x1f\x7f-\x9f\u2028\u2029]+\s*", " ", str(message)).strip()
    line = printable(line)
    return line if len(line) <= 500 else f"{line[:330]} … {line[-167:]}"


def printable(text: object) -> str:
    r"""Return a text in which characters that a terminal does not print are escaped.

    Control characters, line ends, bidirectional overrides and unpaired surrogates become ``\x1b``,
    ``\n`` or ``\u202e``. A text then cannot move the cursor, change colours or reverse the text
    after it.

    Example:
        >>> printable("Paris" + chr(27))
        'Paris\\x1b'
    """
    return "".join(char if is_printable(char) else ascii(char)[1:-1] for char in str(text))


def is_printable(character: str) -> bool:
    """Return whether a terminal prints a character: a letter, a sign or a space of any width."""
    return character.isprintable() or unicodedata.category(character) == "Zs"


def is_damaged(text: str) -> bool:
    """Return whether a text has an unpaired surrogate, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


# Words for errors of the operating system that say more than its own.
_SYSTEM_REASONS = {
    errno.ENAMETOOLONG: "the name is too long, use a shorter one",
    errno.EACCES: "you do not have permission for it or for its folder",
    errno.EPERM: "you do not have permission for it or for its folder",
    errno.ENOSPC: "the disk is full",
    errno.EROFS: "it is on a disk that is read-only",
}


def system_reason(error: OSError) -> str:
    """Return the reason of an error of the operating system without its number."""
    return _SYSTEM_REASONS.get(error.errno or 0) or error.strerror or one_line(error)


def describe(error: BaseException) -> str:
    """Return an error's message as one line.

    Some errors have no message, but the line has. An error of the operating system is told in
    words, without its number.
    """
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename} cannot be used: " if error.filename else ""
        return one_line(f"{place}{system_reason(error)}")
    name = type(error).__name__
    message = one_line(error)
    if message:
        return message
    if isinstance(error, MemoryError):
        return f"there is not enough memory ({name}); use a smaller file, model or batch"
    return f"{name}, an error without a message"


def not_empty(value: _T, name: str) -> _T:
    """Return a path or a name as it is, or raise `SentenceError` if it is an empty text.

    An unset variable of a shell is an empty text.
    """
    if isinstance(value, str) and not value.strip():
        raise SentenceError(f"{name} is empty; give a path or a name")
    return value


def rule(
    kind: type | tuple[type, ...], holds: Callable[[Any], object], words: str
) -> PlainValidator:
    """Return a validator of values.

    Args:
        kind: the type of the values, or several; a boolean is not a number.
        holds: returns whether a value of this type is valid.
        words: the words of the error after the name and the value.
    """

    def check(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, kind) or not holds(value):
            raise PydanticCustomError("rule", words)
        return value

    return PlainValidator(check)


# The quantizations and data types of weights; they are here to be checked without loading torch.
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
# Text that UTF-8 can encode: with a minimal length, even 0, pydantic rejects unpaired surrogates.
Text = Annotated[str, StringConstraints(strict=True, min_length=0)]
Texts = tuple[Text, ...]
Name = Annotated[Text, StringConstraints(pattern=r"\S")]
Chat = Flag | Mapping[Text, Any]  # options of the chat template by their names


class Format(BaseModel):
    """The declared fields of an object that is read.

    Types are strict, other fields are ignored.
    """

    model_config = ConfigDict(strict=True, frozen=True, from_attributes=True)


@dataclass_transform(frozen_default=True)
def checked(cls: type[_T]) -> type[_T]:
    """Return a class as a frozen dataclass whose fields are checked by their types.

    The constructor raises `SentenceError` for a wrong value or an unknown parameter.
    """
    config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")
    dataclass: Any = pydantic_dataclass(frozen=True, config=config)(cls)
    validated_init = dataclass.__init__
    names = [field.name for field in fields(dataclass)]
    positional_names = [field.name for field in fields(dataclass) if not field.kw_only]

    @functools.wraps(validated_init)
    def __init__(self, *args: Any, **values: Any) -> None:  # noqa: N807
        for name in values:
            if name not in names:
                [nearest] = difflib.get_close_matches(name, names, n=1, cutoff=0)
                raise SentenceError(f"{name} is not a parameter; the nearest is {nearest}")
        surplus_args = args[len(positional_names) :]
        named_args = dict(zip(positional_names, args, strict=False))
        try:
            validated_init(self, *surplus_args, **named_args, **values)
        except ValidationError as error:
            raise SentenceError(sentence(error)) from None

    dataclass.__init__ = __init__
    return dataclass


def sentence(error: ValidationError) -> str:
    """Return the first problem of a value, as `<name>=<value> <the rule for it>`."""
    errors = error.errors(include_url=False)
    first_error = next((problem for problem in errors if problem["type"] != "missing"), errors[0])
    name = _field_name(first_error["loc"])
    if first_error["type"] == "missing":
        return f"{name} is missing"
    if first_error["type"] == "value_error":
        return str(first_error["ctx"]["error"])
    value = f"{name}={_SHORT.repr(first_error['input'])}".removeprefix("=")
    words = re.sub(r"^[A-Z][a-z]+ (?=should)", "", first_error["msg"])
    return f"{value} {words}"


def _field_name(location: tuple[int | str, ...]) -> str:
    """Return the name of a field at a location, such as `answers[0].text`."""
    name = ""
    for part in location:
        if isinstance(part, int):
            name += f"[{part}]"
        elif "[" not in part and part != "bool":  # pydantic adds the alternative of a union
            name += f".{part}"
    return name.removeprefix(".")


@contextmanager
def refusing(kind: type[Exception], trouble: str) -> Iterator[None]:
    """Turn the errors of other libraries into one sentence.

    Errors that are sentences already and errors about memory are raised as they are.

    Args:
        kind: the type of the error that is raised.
        trouble: the beginning of the sentence; the reason follows in parentheses.
    """
    try:
        yield
    except (SentenceError, MemoryError):
        raise
    except Exception as error:
        if type(error).__name__ == "OutOfMemoryError":  # torch's, which is not loaded here
            raise
        has_words = type(error) is ValueError or getattr(error, "strerror", None)
        is_named = str(error) and not has_words
        reason = f"{type(error).__name__}: {error}" if is_named else describe(error)
        raise kind(one_line(f"{trouble} ({reason})")) from error


@contextmanager
def extra(name: str, feature: str) -> Iterator[None]:
    """Turn a failed import into an `ImportError` that says how to install the package.

    Args:
        name: the extra of this project that contains the package.
        feature: the feature that needs it, for the message.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or str(error)).partition(".")[0]
        command = f"pip install 'pro-workbench[{name}]'"
        raise ImportError(f"{feature} needs {module}: {command}", name=module) from error
