"""Declared types of parameters, and pydantic's errors as one sentence; knows no parameter by its name.

A type carries the words of its sentence, so that a class of parameters declares each parameter once, where it enters.
"""

import difflib
import functools
import re
import reprlib
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, PlainValidator, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass
from pydantic_core import PydanticCustomError

_PLAIN = {"missing", "unexpected_keyword_argument"}


class _Repr(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        # Python refuses to write numbers of more than 4,300 digits.
        return super().repr_int(x, level) if x.bit_length() < 10_000 else f"a number of {x.bit_length()} bits"


_SHORT = _Repr()
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 80
_LONGEST = 300


class SentenceError(ValueError):
    """An error whose message is one line, of at most 300 characters: of a longer one the middle is left out."""

    def __init__(self, said: object) -> None:
        super().__init__(one_line(said))


def one_line(said: object) -> str:
    """A message as one line that can be printed, of at most 300 characters; its beginning and its end are kept."""
    line = re.sub(r"\s*[\x00-\x1f\x7f-\x9f\u2028\u2029]+\s*", " ", str(said)).strip()
    line = line.encode("utf-8", "backslashreplace").decode()
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 120]} … {line[-117:]}"


def rule(kind: type | tuple[type, ...], holds: Callable[[Any], bool], words: str) -> Any:
    """The type of values of a kind (a boolean is no number) of which `holds` is true; else "<name>=<value> <words>"."""

    def check(value: Any) -> Any:
        is_kind = isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool)
        if not is_kind or not holds(value):
            raise PydanticCustomError("rule", words)
        return value

    return Annotated[Any, PlainValidator(check)]


def choice(*names: str | int) -> Any:
    """The type of one of these names."""
    return rule((str, int), lambda value: value in names, f"is unknown; choose {', '.join(map(str, names))}")


PositiveInt = rule(int, lambda value: value >= 1, "must be a positive whole number")
WholeNumber = rule(int, lambda value: value >= 0, "must be a whole number of at least 0")
Probability = rule((int, float), lambda value: 0 <= value <= 1, "must lie in [0, 1]")
PositiveShare = rule((int, float), lambda value: 0 < value <= 1, "must lie in (0, 1]")
Positive = rule((int, float), lambda value: 0 < value < float("inf"), "must be above 0")
NotNegative = rule((int, float), lambda value: 0 <= value < float("inf"), "must be 0 or more")
Probabilities = rule(
    (list, tuple),
    lambda value: bool(value) and all(type(each) in (int, float) and 0 <= each <= 1 for each in value),
    "must be a list of numbers in [0, 1]",
)
Flag = rule(bool, lambda value: True, "must be true or false")
# How weights may be shrunk and where runs are made; here, so that both are checked without loading torch.
QUANTIZATIONS, DTYPES = ("8bit", "4bit"), ("float32", "bfloat16", "float16")
Quantization, Dtype, Engine = choice(*QUANTIZATIONS), choice("auto", *DTYPES), choice("local", "ray")


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PydanticCustomError("rule", "holds half a character") from error
    return text


# Text as files of UTF-8 can hold it: without halves of a surrogate pair, which JSON and Python allow.
Text = Annotated[str, AfterValidator(_encodable)]
_TEXTS = rule((list, tuple), lambda value: all(isinstance(each, str) for each in value), "must be a list of texts")
Texts = Annotated[_TEXTS, AfterValidator(tuple)]
Name = Annotated[rule(str, lambda value: bool(value.strip()), "must be a text that is not empty"), *Text.__metadata__]


class Format(BaseModel):
    """What is declared of an object that is read: types are strict, and what is not declared is passed over."""

    model_config = ConfigDict(strict=True, frozen=True, from_attributes=True)


Declared = TypeVar("Declared", bound=BaseModel)


def fitted(declared: type[Declared], value: object, where: str, error: type[ValueError] = SentenceError) -> Declared:
    """The value (a mapping, or an object with attributes) as it is declared.

    Raises `error` with the first thing that is wrong: `<where>: <field>=<value> <what it must be>`.
    """
    try:
        return declared.model_validate(value)
    except ValidationError as wrong:
        raise error(f"{where}: {sentence(wrong)}") from None


def _chat(value: Any) -> Any:
    plain = isinstance(value, dict) and value and all(isinstance(each, str) for each in value)
    if not isinstance(value, bool) and not (plain and all(isinstance(v, str | int | float) for v in value.values())):
        raise PydanticCustomError("rule", "must be true, false, or options of the chat template by their names")
    return value


Chat = Annotated[Any, PlainValidator(_chat)]


def checked(cls: type) -> type:
    """The class as a frozen dataclass whose fields are checked by their types, keyword-only as far as it says so.

    What is wrong ends in a `SentenceError`.
    """
    made = pydantic_dataclass(frozen=True, config=ConfigDict(arbitrary_types_allowed=True, extra="forbid"))(cls)
    validated, names = made.__init__, [field.name for field in fields(made) if not field.kw_only]

    @functools.wraps(validated)
    def __init__(self, *args: Any, **values: Any) -> None:  # noqa: N807
        check_known(values, [field.name for field in fields(made)])
        try:
            validated(self, *args[len(names) :], **dict(zip(names, args, strict=False)), **values)
        except ValidationError as error:
            optional = {name for name, kind in get_type_hints(cls).items() if type(None) in get_args(kind)}
            raise SentenceError(sentence(error, optional=optional)) from None

    made.__init__ = __init__
    return made


def check_known(names: Iterable[str], known: Collection[str], where: str = "") -> None:
    """Refuse, with a `SentenceError` that says the nearest known one, a name that is not known."""
    for name in names:
        if name not in known:
            nearest = "".join(f"; the nearest is {each}" for each in difflib.get_close_matches(name, known, 1, 0))
            raise SentenceError(f"{name} is no parameter{where}{nearest}")


def check_writable(folder: Path, name: str) -> None:
    """Refuse, with a `SentenceError`, a folder in which no file can be made; the folder itself is not made."""
    try:
        there = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        raise SentenceError(f"{name}={str(folder)!r} cannot be written: {error.strerror}") from error


def sentence(error: ValidationError, *, optional: Collection[str] = ()) -> str:
    """The first thing that is wrong, as `<name>=<value> <what it must be>`; the names in `optional` may be None."""
    errors = error.errors(include_url=False)
    first = next((each for each in errors if each["type"] not in _PLAIN), errors[0])
    place = [part for part in first["loc"] if not (isinstance(part, str) and "[" in part)]
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")
    if first["type"] in _PLAIN:
        return f"{name} is {'missing' if first['type'] == 'missing' else 'no parameter'}"
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    said = f"{name}={_SHORT.repr(first['input'])}" if name else _SHORT.repr(first["input"])
    return f"{said} {first['msg'].removeprefix('Input ')}{' or None' if name in optional else ''}"


@contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """What is imported within is of the extra of this name; an `ImportError` says what lacks it, and what to type."""
    try:
        yield
    except ModuleNotFoundError as error:
        lacking = (error.name or str(error)).partition(".")[0]
        raise ImportError(f"{what} needs {lacking}: pip install 'pro-workbench[{name}]'", name=lacking) from error
