"""Rows of CSV files in any of the usual dialects and encodings, as real tools write them.

A warning says what was guessed, such as "read as Windows-1252".
"""

import codecs
import csv
import io
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pro_lib.common.files import RunError
from pro_lib.common.validation import is_damaged
from pro_lib.questions.question_formats import plain_name

# Marks at the beginning of a file that tell its encoding; the longer ones come first.
_BYTE_ORDER_MARKS = {
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
class _Dialect:
    """How the fields of a CSV file are separated and quoted."""

    delimiter: str
    skips_spaces: bool = False
    has_quotes: bool = True
    has_escapes: bool = False

    def rows(self, text: str) -> Any:
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


def check_names(columns: Iterable[object], source: object) -> None:
    """Raise `RunError` unless the names of a source's columns are different texts."""
    for name, count in Counter(columns).items():
        if not isinstance(name, str):
            raise RunError(f"{source} has the column {name!r}, whose name is not a text")
        if count > 1:
            raise RunError(f"{source} has the column {name!r} twice")


# --- Encodings ---


def utf8_bytes(data: bytes, path: str | Path) -> bytes:
    """Return the bytes of a text file in UTF-8, whatever its encoding.

    A byte-order mark, or the zero bytes of UTF-16, tell an encoding with certainty. A file that is
    not UTF-8 is read as Windows-1252 if all of it looks like a West European text; a warning says
    so. Single damaged bytes in a file of UTF-8 stay, so that their line can be named.

    Raises:
        RunError: if the encoding is not known.
    """
    if data.startswith(codecs.BOM_UTF8):
        return data.removeprefix(codecs.BOM_UTF8)
    marks = [mark for mark in _BYTE_ORDER_MARKS if data.startswith(mark)]
    encoding = _BYTE_ORDER_MARKS[marks[0]] if marks else _wide_encoding(data)
    if encoding is not None:
        try:
            return data.decode(encoding).removeprefix("\ufeff").encode()
        except UnicodeError as error:
            words = f"cannot be read as {encoding[:6].upper()} ({error}); save it as UTF-8"
            raise RunError(f"{path} {words}") from error
    try:
        data.decode()
    except UnicodeDecodeError as error:
        if not _is_damaged_utf8(data):
            return _from_windows_1252(data, path, error.start)
    return data


def damaged_text(data: bytes) -> str:
    """Return bytes in UTF-8 as a text in which each damaged byte is an unpaired surrogate."""
    return data.decode("utf-8", "surrogateescape")


def _wide_encoding(data: bytes) -> str | None:
    """Return UTF-16, little or big endian, where zero bytes show it, or None for any other file."""
    zeros = [data[start::2].count(0) for start in (0, 1)]
    if len(data) % 2 or min(zeros) > 0 or max(zeros) < 4:
        return None
    encoding = "utf-16-le" if zeros[1] else "utf-16-be"
    try:
        text = data.decode(encoding)
    except UnicodeError:
        return None
    # In another encoding the decoded text would not have line ends.
    return encoding if "\n" in text or text.lstrip()[:1] in ("{", "[") else None


def _is_damaged_utf8(data: bytes) -> bool:
    """Return whether bytes are UTF-8 of which some are damaged, and no other encoding.

    In another encoding few bytes beyond ASCII happen to be letters of UTF-8. Lines of JSON are
    UTF-8 if few of them are damaged.
    """
    n_letters = sum(not character.isascii() for character in data.decode("utf-8", "ignore"))
    lines = damaged_text(data).splitlines()
    n_damaged_lines = sum(map(is_damaged, lines))
    if data.lstrip()[:1] == b"{" and 10 * n_damaged_lines <= len(lines):
        return True
    return n_letters >= sum(map(is_damaged, damaged_text(data)))


def _from_windows_1252(data: bytes, path: str | Path, place: int) -> bytes:
    """Return a file of Windows-1252 as UTF-8, or raise `RunError` if it may be another encoding."""
    line = data.count(b"\n", 0, place) + 1
    remedy = "save it as UTF-8 (in Excel: 'CSV UTF-8')"
    if not _is_western_text(data):
        words = "its encoding is not UTF-8 and is uncertain"
        raise RunError(f"{path}, line {line} cannot be read: {words}; {remedy}")
    text = data.decode("cp1252")
    word = re.search(r"[^\s,;|\"]*[^\x00-\x7f][^\s,;|\"]*", text)
    sample = f", such as {word[0][:40]!r} in line {line}" if word else ""
    words = f"read as Windows-1252{sample}; if letters are wrong, {remedy}"
    warnings.warn(f"{path}: {words}", UserWarning, stacklevel=2)
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
    alphabets = list(map(set, _WESTERN_ALPHABETS.values()))
    return all(any(word <= alphabet for alphabet in alphabets) for word in words)


# --- CSV ---


def csv_rows(
    data: bytes, path: str | Path, delimiter: str, header: Set[str] | None
) -> list[tuple[str, "dict[str, str] | BadRow"]]:
    """Return the rows of a CSV file with their places.

    The names of the fields are those in the header. Rows without any text are ignored. A row with
    another number of fields than the header, or with bytes that are not UTF-8, is a `BadRow`. A
    warning says if the dialect is not the usual one.

    Args:
        data: the file, in UTF-8.
        path: the file's path, for places and errors.
        delimiter: the usual delimiter of such files; others are recognized.
        header: plain names of which the header must have one; none for any header. None means that
            the file has no header, and its columns are called 1, 2 and so on.

    Raises:
        RunError: if the quotation marks do not match, or if there is no such header.
    """
    text = damaged_text(data)
    separator = _EXCEL_SEPARATOR.match(text)
    size_limit = csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # of a field
    if separator:
        text = text[separator.end() :]
    try:
        dialect = _Dialect(separator[1]) if separator else _dialect(text, delimiter)
        lines = _lines(dialect, text, path, first_line=2 if separator else 1)
    finally:
        csv.field_size_limit(size_limit)
    _warn_of_dialect(dialect, delimiter, path)
    if not lines:
        return []
    if header is None:
        lines.insert(0, (0, [str(n) for n in range(1, len(lines[0][1]) + 1)]))
    elif header:
        _check_header(lines, header, path)
    (_, first_fields), *others = lines
    names = [name.strip().strip("\ufeff\u200b").strip() for name in first_fields]
    places = [place for place, name in enumerate(names) if name]  # spreadsheets add empty columns
    check_names([names[place] for place in places], path)
    rows: list[tuple[str, dict[str, str] | BadRow]] = []
    for line, fields in others:
        if not any(fields):
            continue
        row: dict[str, str] | BadRow
        if len(fields) < len(names) or any(fields[len(names) :]):
            number = f"{len(fields)} field{'' if len(fields) == 1 else 's'}"
            advice = "quote fields that contain the separator"
            row = BadRow(f"it has {number}, the header has {len(names)}; {advice}")
        else:
            row = {names[place]: fields[place] for place in places}
            damaged = [name for name, cell in row.items() if is_damaged(cell)]
            if damaged:
                row = BadRow(f"column {damaged[0]!r} has bytes that are not UTF-8")
        rows.append((f"{path}, line {line}", row))
    return rows


def _lines(
    dialect: _Dialect, text: str, path: str | Path, *, first_line: int
) -> list[tuple[int, list[str]]]:
    """Return the rows that are not blank, with the lines in which they end."""
    reader = dialect.rows(text)
    lines = []
    try:
        for fields in reader:
            if fields:
                lines.append((reader.line_num + first_line - 1, fields))
    except csv.Error as error:
        place = f"{path}, line {reader.line_num + first_line - 1}"
        raise RunError(f"{place} cannot be read: {error}; check its quotation marks") from error
    return lines


def _warn_of_dialect(dialect: _Dialect, usual_delimiter: str, path: str | Path) -> None:
    """Warn of the differences from the usual dialect of a file."""
    words = []
    if dialect.delimiter != usual_delimiter:
        name = _SEPARATOR_NAMES.get(dialect.delimiter, repr(dialect.delimiter))
        words.append(f"fields separated by {name}")
    if not dialect.has_quotes:
        words.append("quotation marks taken as text")
    if dialect.has_escapes:
        words.append("quotation marks escaped by backslashes")
    if words:
        warnings.warn(f"{path}: {', '.join(words)}", UserWarning, stacklevel=3)


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


def _dialect(text: str, usual_delimiter: str) -> _Dialect:
    """Return the dialect in which every row has as many fields as the header.

    The usual dialect of the file's name wins if it fits. If none fits every row, it is the one
    whose header has several fields and that fits the most rows.
    """
    header = text.lstrip().split("\n", 1)[0]
    candidates = []
    for delimiter in dict.fromkeys((usual_delimiter, ",", ";", "\t", "|")):
        names = header.split(delimiter)[1:]
        has_spaces = bool(names) and all(name.startswith(" ") for name in names)
        plain = _Dialect(delimiter, skips_spaces=has_spaces)
        candidates.append(plain)
        if delimiter == "\t":
            candidates.append(replace(plain, has_quotes=False))
        if '\\"' in text:
            candidates.append(replace(plain, has_escapes=True))
    fits = {candidate: _fit(text, candidate) for candidate in candidates}
    dialect = max(candidates, key=lambda each: (fits[each][1] > 1, fits[each][0]))
    share, n_fields, n_rows = fits[dialect]
    if n_fields < 2:
        return candidates[0]
    # Quotation marks are text if they would join rows that are separated by tabs.
    unquoted = replace(dialect, has_quotes=False, has_escapes=False)
    if share == 1 and dialect.delimiter == "\t":
        unquoted_share, _, n_unquoted_rows = fits[unquoted]
        if unquoted_share == 1 and n_unquoted_rows > n_rows:
            return unquoted
    return dialect


def _fit(text: str, dialect: _Dialect) -> tuple[float, int, int]:
    """Return how many rows have as many fields as the header, as a share, and both numbers."""
    sizes: list[int] = []
    try:
        for fields in dialect.rows(text):
            if any(fields):
                n_header = sizes[0] if sizes else len(fields)
                is_surplus_empty = len(fields) > n_header and not any(fields[n_header:])
                sizes.append(n_header if is_surplus_empty else len(fields))
    except csv.Error:
        return 0.0, sizes[0] if sizes else 0, len(sizes)
    if not sizes:
        return 0.0, 0, 0
    return sizes.count(sizes[0]) / len(sizes), sizes[0], len(sizes)


# --- Numbers ---


def decimal_points(cells: Sequence[str | None]) -> list[str | None]:
    """Replace the decimal commas of a column by points.

    A comma may also separate thousands. So `1,234` counts as a decimal number only if another
    number of the column cannot have thousands, such as `0,1054`. Other columns stay as they are.
    """
    with_comma = [cell.strip() for cell in cells if cell and "," in cell]
    is_decimal = all(_DECIMAL_COMMA.fullmatch(cell) for cell in with_comma)
    is_certain = any(not _THOUSANDS.fullmatch(cell) for cell in with_comma)
    has_points = any(cell and "." in cell for cell in cells)
    if not is_decimal or has_points or not is_certain:
        return list(cells)
    return [cell.replace(",", ".") if cell else cell for cell in cells]
