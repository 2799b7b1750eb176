"""Rows of CSV files in any of the usual dialects and encodings, as real tools write them.

Each reader adds a note about every guess, such as "read as Windows-1252", to a list.
"""

import codecs
import csv
import io
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pro_lib.common.files import RunError
from pro_lib.questions.cell_values import plain_name

# Marks at the beginning of a file that tell its encoding; the longer ones come first.
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
# The letters beyond ASCII that the words of each West European language have.
_WESTERN_ALPHABETS = {
    "French": "àâæçéèêëîïôœùûüÿ",
    "German": "äöüß",
    "Spanish": "áéíñóúü",
    "Portuguese": "àáâãçéêíóôõúü",
    "Italian": "àèéìíîòóùú",
    "Catalan": "àçèéíïòóúü·",
    "Dutch": "áàäéèëíïóöúü",
    "Danish and Norwegian": "æøåéèêóòôü",
    "Swedish and Finnish": "åäöéàü",
}
# Signs that texts in these languages have; some of them stand within words.
_WESTERN_SIGNS = frozenset("€‘’“”‚„–—…•™\xa0¡£§©ª«®°±²³´µ·º»¼½¾¿×÷\xad")
_SIGNS_IN_WORDS = frozenset("’‘·–—\xad\xa0…")
_SEPARATOR_NAMES = {",": "','", ";": "';'", "\t": "a tab", "|": "'|'"}
_EXCEL_SEPARATOR = re.compile(r'\s*"?sep=(.)"?\r?\n', re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?")
# The number of rows that may contain the header.
_N_ABOVE = 6
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be used.

    The reason is words that follow the row's place.
    """

    reason: str


@dataclass(frozen=True)
class Dialect:
    """How the fields of a CSV file are separated and quoted."""

    delimiter: str
    skips_spaces: bool = False
    has_quotes: bool = True
    has_escapes: bool = False

    def reader(self, text: str) -> "Iterator[list[str]]":
        """Return a reader of the standard library for a text."""
        if self.has_escapes:
            text = text.replace('\\"', '""')  # other backslashes are text
        return csv.reader(
            io.StringIO(text, newline=""),
            strict=True,
            delimiter=self.delimiter,
            skipinitialspace=self.skips_spaces,
            quoting=csv.QUOTE_MINIMAL if self.has_quotes else csv.QUOTE_NONE,
        )

    def note(self, usual_delimiter: str) -> str:
        """Return the differences from the usual dialect of the file, as words."""
        words = []
        if self.delimiter != usual_delimiter:
            words.append(
                f"fields separated by {_SEPARATOR_NAMES.get(self.delimiter, repr(self.delimiter))}"
            )
        if not self.has_quotes:
            words.append("quotation marks taken as text")
        if self.has_escapes:
            words.append("quotation marks escaped by backslashes")
        return ", ".join(words)


def check_names(columns: Iterable[object], source: object) -> None:
    """Raise `RunError` unless the names of a source's columns are different texts."""
    for name, count in Counter(columns).items():
        if not isinstance(name, str):
            raise RunError(f"{source} has the column {name!r}, whose name is not a text")
        if count > 1:
            raise RunError(f"{source} has the column {name!r} twice")


# --- Encodings ---


def utf8_bytes(data: bytes, path: str | Path, notes: list[str]) -> bytes:
    """Return the bytes of a text file in UTF-8, whatever its encoding.

    A byte-order mark, or the zero bytes of UTF-16, tell an encoding with certainty. A file that is
    not UTF-8 is read as Windows-1252 if all of it looks like a West European text; a note says so.
    Single damaged bytes in a file of UTF-8 stay, so that their line can be named.

    Raises:
        RunError: if the encoding is not known.
    """
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if data.startswith(mark):
            return (
                data[len(mark) :]
                if encoding == "utf-8"
                else _transcoded(data[len(mark) :], encoding, path)
            )
    wide = _wide_encoding(data)
    if wide is not None:
        return _transcoded(data, wide, path)
    try:
        data.decode()
    except UnicodeDecodeError as error:
        if _is_mostly_utf8(data) or _has_few_damaged_lines(data):
            return data  # UTF-8 with some damaged bytes
        return _from_windows_1252(data, path, error.start, notes)
    return data


def damaged_text(data: bytes) -> str:
    """Return bytes in UTF-8 as a text in which each damaged byte is an unpaired surrogate."""
    return data.decode("utf-8", "surrogateescape")


def is_damaged(text: str) -> bool:
    """Return whether a text has an unpaired surrogate, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _transcoded(data: bytes, encoding: str, path: str | Path) -> bytes:
    try:
        return data.decode(encoding).removeprefix("\ufeff").encode()
    except UnicodeError as error:
        name = encoding[:6].upper()
        raise RunError(f"{path} cannot be read as {name} ({error}); save it as UTF-8") from error


def _wide_encoding(data: bytes) -> str | None:
    """Return UTF-16, little or big endian, where zero bytes show it, or None for any other file."""
    if 0 not in data:
        return None
    zeros_even = data[0::2].count(0)
    zeros_odd = data[1::2].count(0)
    if len(data) % 2:
        return None
    encoding = "utf-16-le" if zeros_odd > zeros_even else "utf-16-be"
    if min(zeros_even, zeros_odd) > 0 or max(zeros_even, zeros_odd) < 4:
        return None
    try:
        text = data.decode(encoding)
    except UnicodeError:
        return None
    # In another encoding the decoded text would not have line ends.
    return encoding if "\n" in text or text.lstrip()[:1] in ("{", "[") else None


def _is_mostly_utf8(data: bytes) -> bool:
    """Return whether bytes are UTF-8 of which some are damaged, and no other encoding.

    In another encoding few bytes beyond ASCII happen to be letters of UTF-8.
    """
    n_letters = sum(not character.isascii() for character in data.decode("utf-8", "ignore"))
    n_damaged = sum(is_damaged(character) for character in damaged_text(data))
    return n_letters >= n_damaged


def _has_few_damaged_lines(data: bytes) -> bool:
    """Return whether bytes are lines of JSON of which few are not UTF-8."""
    lines = data.splitlines()
    n_damaged = sum(is_damaged(damaged_text(line)) for line in lines)
    return data.lstrip()[:1] == b"{" and 10 * n_damaged <= len(lines)


def _from_windows_1252(data: bytes, path: str | Path, place: int, notes: list[str]) -> bytes:
    """Return a file of Windows-1252 as UTF-8.

    Raise `RunError` if it may be in another encoding.
    """
    line = data.count(b"\n", 0, place) + 1
    remedy = "save it as UTF-8 (in Excel: 'CSV UTF-8')"
    if not _is_western_text(data):
        words = "its encoding is not UTF-8 and is uncertain"
        raise RunError(f"{path}, line {line} cannot be read: {words}; {remedy}")
    text = data.decode("cp1252")
    word = re.search(r"[^\s,;|\"]*[^\x00-\x7f][^\s,;|\"]*", text)
    sample = f", such as {word[0][:40]!r} in line {line}" if word else ""
    notes.append(f"read as Windows-1252{sample}; if letters are wrong, {remedy}")
    return text.encode()


def _is_western_text(data: bytes) -> bool:
    """Return whether bytes are text of a West European language in Windows-1252.

    In other encodings the bytes of a word would be signs within words, capitals after small
    letters, several letters beyond ASCII in a row, or letters of different languages.
    """
    try:
        text = data.decode("cp1252")
    except UnicodeError:
        return False
    letters = frozenset("".join(_WESTERN_ALPHABETS.values()))
    beyond = {character for character in text if character > "\x7f"}
    if not {character.lower() for character in beyond} <= letters | _WESTERN_SIGNS:
        return False
    if re.search(r"[À-ÖØ-öø-ÿŒœŸ]{3}|[a-zß-öø-ÿ][À-ÖØ-ÞŒŸ]", text):
        return False
    within_words = re.findall(r"(?<=[^\W\d_])[^\x00-\x7f](?=[^\W\d_])", text)
    if not {sign.lower() for sign in within_words} <= letters | _SIGNS_IN_WORDS:
        return False
    if 3 * sum(character in letters for character in text.lower()) > sum(map(str.isalpha, text)):
        return False
    words = {frozenset(word.lower()) & letters for word in re.findall(r"[^\W\d_]+", text)}
    return all(map(_is_in_one_alphabet, words))


def _is_in_one_alphabet(letters: frozenset[str]) -> bool:
    """Return whether the letters beyond ASCII of a word are all in the alphabet of one language."""
    return any(letters <= set(alphabet) for alphabet in _WESTERN_ALPHABETS.values())


# --- CSV ---


def csv_rows(
    data: bytes,
    path: str | Path,
    delimiter: str,
    notes: list[str],
    header: Set[str] | None = frozenset(),
) -> tuple[list[tuple[str, "dict[str, str] | BadRow"]], str]:
    """Return the rows of a CSV file with their places, and the delimiter.

    The names of the fields are those in the header. Rows without any text are ignored. A row with
    another number of fields than the header, or with bytes that are not UTF-8, is a `BadRow`.

    Args:
        data: the file, in UTF-8.
        path: the file's path, for places and errors.
        delimiter: the usual delimiter of such files; others are recognized.
        notes: a list, to which sentences about the detected format are added.
        header: plain names of which the header must have one; none for any header. None means that
            the file has no header, and its columns are called 1, 2 and so on.

    Raises:
        RunError: if the quotation marks do not match, or if there is no such header.
    """
    text = damaged_text(data)
    separator = _EXCEL_SEPARATOR.match(text)
    first_line = 1
    with _long_fields():
        if separator:
            text = text[separator.end() :]
            first_line = 2
            dialect = Dialect(separator[1])
        else:
            dialect = detect_dialect(text, delimiter)
        lines = list(_numbered_rows(dialect.reader(text), path, first_line))
    note = dialect.note(delimiter)
    if note:
        notes.append(note)
    if not lines:
        return [], dialect.delimiter
    if header is None:
        lines.insert(0, (0, [str(n) for n in range(1, len(lines[0][1]) + 1)]))
    elif header:
        _check_header(lines, header, path)
    (_, first_fields), *others = lines
    names, places = _named_columns(first_fields, others)
    check_names(names, path)
    rows = []
    for line, fields in others:
        if any(fields):
            rows.append((f"{path}, line {line}", _row(names, places, fields, len(first_fields))))
    return rows, dialect.delimiter


def _check_header(
    lines: Sequence[tuple[int, Sequence[str]]], known_names: Set[str], path: str | Path
) -> None:
    """Raise `RunError` unless the first row has a known name of a column."""
    counts = [len(known_names & set(map(plain_name, fields))) for _, fields in lines[:_N_ABOVE]]
    if counts[0]:
        return
    line, fields = lines[0]
    words = f"{path}, line {line} has no known name of a column: {', '.join(fields)[:120]!r}"
    if max(counts) > 1:
        below = lines[counts.index(max(counts))][0]
        raise RunError(f"{words}; line {below} looks like the header, so remove the lines above it")
    advice = "A table of answers has the columns question_id, text and log_prob"
    if "references" in known_names:
        advice = (
            "Name the columns with --columns question=NAME --columns references=NAME, or by number "
            "if the file has no header: --columns question=1 --columns references=2"
        )
    raise RunError(f"{words}. {advice}")


def _numbered_rows(
    reader: "Iterator[list[str]]",
    path: str | Path,
    first_line: int,
) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a reader that are not blank, with the lines in which they end."""
    while True:
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            line = reader.line_num + first_line - 1  # type: ignore[attr-defined]
            raise RunError(
                f"{path}, line {line} cannot be read: {error}; check its quotation marks"
            ) from error
        if fields:
            yield reader.line_num + first_line - 1, fields  # type: ignore[attr-defined]


def _named_columns(
    header: Sequence[str],
    rows: Sequence[tuple[int, Sequence[str]]],
) -> tuple[list[str], list[int]]:
    """Return the names and places of the columns that have a name or a content.

    Spreadsheets leave empty columns at the end, and pandas writes its row numbers into a column
    without a name, which it reads as `Unnamed: 0`.
    """
    names = [name.strip().strip("\ufeff\u200b").strip() for name in header]
    places = []
    for place, name in enumerate(names):
        if name == "" or re.fullmatch(r"Unnamed: \d+(\.\d+)*|__index_level_\d+__", name):
            cells = {row[place].strip() for _, row in rows if place < len(row)}
            if all(re.fullmatch(r"\d*", cell) for cell in cells):
                continue
        places.append(place)
    return [names[place] for place in places], places


def _row(
    names: Sequence[str],
    places: Sequence[int],
    fields: Sequence[str],
    size: int,
) -> "dict[str, str] | BadRow":
    surplus = fields[size:]
    if len(fields) < size or any(surplus):
        number = f"{len(fields)} field{'' if len(fields) == 1 else 's'}"
        advice = "quote fields that contain the separator"
        return BadRow(f"it has {number}, the header has {size}; {advice}")
    row = {name: fields[place] for name, place in zip(names, places, strict=True)}
    for name, cell in row.items():
        if is_damaged(cell):
            return BadRow(f"column {name!r} has bytes that are not UTF-8")
    return row


def detect_dialect(text: str, usual_delimiter: str) -> Dialect:
    """Return the dialect in which every row has as many fields as the header.

    The usual dialect of the file's name wins if it fits. If none fits every row, it is the one
    whose header has several fields and that fits the most rows.
    """
    delimiters = [
        usual_delimiter,
        *(other for other in (",", ";", "\t", "|") if other != usual_delimiter),
    ]
    candidates = []
    for delimiter in delimiters:
        plain = Dialect(delimiter, skips_spaces=_has_spaces_after(text, delimiter))
        candidates.append(plain)
        if delimiter == "\t":
            candidates.append(replace(plain, has_quotes=False))
        if '\\"' in text:
            candidates.append(replace(plain, has_escapes=True))
    fits = [_fit(text, candidate) for candidate in candidates]
    for fit in fits:
        if fit.share == 1 and fit.n_fields > 1:
            return _without_quotes(text, fit)
    best = max(fits, key=lambda fit: (fit.n_fields > 1, fit.share))
    return best.dialect if best.n_fields > 1 else fits[0].dialect


@dataclass(frozen=True)
class _Fit:
    """How well a dialect fits a file: the share of rows with as many fields as the header."""

    dialect: Dialect
    share: float
    n_fields: int
    n_rows: int


def _without_quotes(text: str, fit: _Fit) -> Dialect:
    """Return the dialect, with quotation marks as text if they would join tab-separated rows."""
    plain = _fit(text, replace(fit.dialect, has_quotes=False, has_escapes=False))
    is_joined = fit.dialect.delimiter == "\t" and plain.share == 1 and plain.n_rows > fit.n_rows
    return plain.dialect if is_joined else fit.dialect


def _has_spaces_after(text: str, delimiter: str) -> bool:
    """Return whether the header has a space after each delimiter, as in `question, answer`."""
    header = text.lstrip().split("\n", 1)[0]
    return delimiter in header and all(name.startswith(" ") for name in header.split(delimiter)[1:])


def _fit(text: str, dialect: Dialect) -> _Fit:
    size = n_rows = n_fitting = 0
    try:
        for fields in dialect.reader(text):
            if not any(fields):
                continue
            if size == 0:
                size = len(fields)
            n_rows += 1
            n_fitting += len(fields) == size or (len(fields) > size and not any(fields[size:]))
    except csv.Error:
        return _Fit(dialect, 0.0, size, n_rows)
    return _Fit(dialect, n_fitting / max(n_rows, 1), size, n_rows)


@contextmanager
def _long_fields() -> Iterator[None]:
    """Allow fields of any length while a file is read.

    The default is 131,072 characters.
    """
    before = csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    try:
        yield
    finally:
        csv.field_size_limit(before)


# --- Numbers ---


def decimal_points(cells: Sequence[str | None], *, has_semicolons: bool) -> list[str | None]:
    """Replace the decimal commas of a column by points.

    Other columns stay as they are.

    A comma may also separate thousands. So `1,234` counts as a decimal number only if the fields of
    the file are separated by semicolons or tabs, or if another number of the column cannot have
    thousands, such as `0,1054`.
    """
    with_comma = [cell.strip() for cell in cells if cell and "," in cell]
    is_decimal = bool(with_comma) and all(_DECIMAL_COMMA.fullmatch(cell) for cell in with_comma)
    has_points = any(cell and "." in cell for cell in cells)
    is_certain = has_semicolons or any(not _THOUSANDS.fullmatch(cell) for cell in with_comma)
    if not is_decimal or has_points or not is_certain:
        return list(cells)
    return [cell.replace(",", ".") if cell else cell for cell in cells]
