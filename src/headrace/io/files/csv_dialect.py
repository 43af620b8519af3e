"""CSV dialect: the characters, the encoding and the null words of CSV files.

The defaults are RFC 4180 in UTF-8. Options have the names that Spark's CSV source gives them.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

from headrace.errors import BadInput
from headrace.source_location import SourceLocation

_SPELLED = {r"\t": "\t"}


_OF_NAMES = ("idna", "punycode")
"""Encodings of host names, in which no file is written."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """Malformed CSV record. line: text of the line at fault. is_whole: whether it is the whole record."""

    problem: str
    line: str
    is_whole: bool


@dataclass(frozen=True, slots=True)
class CsvDialect:
    r"""Form of CSV files.

    sep:      between fields: one ASCII character; `\t` may be spelled out.
    quote:    around fields that hold separators, quotes or line breaks; doubled within them. "" for none.
    escape:   before a character that is meant literally, also before a quote within quotes. None for none.
    encoding: as Python names it.
    header:   whether the first record has the names of the columns. Without it, columns come in the order in
              which they are declared.
    null:     texts that are null, besides the empty field.

    Raises `BadInput`.
    """

    sep: str = ","
    quote: str = '"'
    escape: str | None = None
    encoding: str = "utf-8"
    header: bool = True
    null: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.header, bool):
            raise _refused(f"header is {self.header!r}", "give True or False")
        if not isinstance(self.encoding, str):
            raise _refused(f"encoding is {self.encoding!r}", "give a name, such as 'utf-8'")
        for word in self.null:
            if not isinstance(word, str):
                raise _refused(f"null has {word!r}", "give texts, such as 'NA'")
        for name in ("sep", "quote", "escape"):
            given = getattr(self, name)
            object.__setattr__(self, name, _SPELLED.get(given, given))
        if self.escape in ("", self.quote):  # in Spark, an escape that is the quote doubles quotes
            object.__setattr__(self, "escape", None)
        for name, may_be in (("sep", ()), ("quote", ("",)), ("escape", (None,))):
            given = getattr(self, name)
            if given not in may_be and not _is_one_character(given):
                raise _refused(f"{name} is {given!r}", f"give one ASCII character, as in {name}=';'")
        given = [c for c in (self.sep, self.quote, self.escape) if c]
        if len(set(given)) < len(given):
            raise _refused("sep, quote and escape are not different characters", "give each its own")
        try:
            object.__setattr__(self, "encoding", codecs.lookup(self.encoding).name)
            "\n".encode(self.encoding)
            if self.encoding in _OF_NAMES:
                raise LookupError
        except (LookupError, ValueError):
            raise _refused(
                f"unknown encoding {self.encoding!r}", "give one such as utf-8, latin-1, cp1252 or utf-16"
            ) from None

    @property
    def is_utf8(self) -> bool:
        return self.encoding in ("utf-8", "utf-8-sig")

    def is_plain(self, block: bytes) -> bool:
        """Check that a block has neither quotes nor escapes, so that every line is a record."""
        return not any(c.encode() in block for c in (self.quote, self.escape) if c)

    def quoting(self, lines: bytes) -> bool | None:
        """Check that lines from the start of a record have quotes only around fields, and end with a record.

        None if the last field is open, so that further lines have to tell. Escapes are left to `reader`.
        """
        if self.is_plain(lines):
            return True
        if self.escape is not None:
            return False
        well_quoted, open_field = _patterns(self.sep, self.quote)
        match = well_quoted.match(lines)
        end = match.end() if match is not None else 0
        if end == len(lines):
            return True
        is_open = open_field.fullmatch(lines, end) and len(lines) - end <= 4 * csv.field_size_limit()
        return None if is_open else False

    def is_header(self, line: bytes) -> bool:
        """Check that the first line of a file is its whole first record."""
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        return 0 < len(text) <= csv.field_size_limit() and b"\r" not in text and self.quoting(text) is True

    def reader(self, blocks: Iterable[bytes]) -> Any:
        """Build a reader of the `csv` module over blocks of whole lines in UTF-8."""
        return self._reader(chain.from_iterable(map(_lines, blocks)))

    def records(self, blocks: Iterable[bytes]) -> Iterator[tuple[int, list[str] | Malformed]]:
        """Yield the records of blocks of whole lines, each with its first line. Blank lines are skipped.

        A malformed record is yielded, too; it is the last one if its end is unknown.
        """
        block = io.StringIO()

        def opened() -> Iterator[io.StringIO]:
            nonlocal block
            for block in map(_lines, blocks):  # noqa: UP028  `block` is read below
                yield block

        reader, end = self._reader(chain.from_iterable(opened())), 0
        while True:
            try:
                fields = next(reader, None)
            except csv.Error as error:
                line = _line_before(block.getvalue()[: block.tell()])
                is_whole = reader.line_num == end + 1 and self._is_record(line)
                yield reader.line_num, Malformed(str(error), line, is_whole)
                if not is_whole:
                    return
            else:
                if fields is None:
                    return
                if fields:
                    yield end + 1, fields
            end = reader.line_num

    def _is_record(self, line: str) -> bool:
        """Check that a malformed line has balanced quotes, so that the next line starts a row."""
        has_escapes = self.escape is not None and self.escape in line
        return not has_escapes and (not self.quote or line.count(self.quote) % 2 == 0)

    def _reader(self, lines: Iterable[str]) -> Any:
        return csv.reader(lines, strict=True, **self._parameters())

    def writer(self, file: Any) -> Any:
        """Build a writer of the `csv` module on an open text file."""
        return csv.writer(file, lineterminator="\n", **self._parameters())

    def _parameters(self) -> dict[str, Any]:
        return {
            "delimiter": self.sep,
            "quotechar": self.quote or None,
            "quoting": csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE,
            "escapechar": self.escape,
        }

    def likely_encoding(self, text: str) -> str | None:
        """Guess the encoding of a text that is not valid UTF-8. None unless the dialect itself is UTF-8."""
        if not self.is_utf8 or text.isascii():
            return None
        found = likely_encoding(text.encode(errors="surrogateescape"))
        return None if found == "utf-8" else found

    def likely_sep(self, header: str) -> str | None:
        """Return the separator that divides a header in which this dialect's separator never occurs."""
        others = [c for c in ",;\t|" if c != self.sep and c in header] if self.sep not in header else []
        return max(others, key=header.count, default=None)

    def in_utf8(self, file: Any) -> Any:
        """Return an open binary file transcoded to UTF-8. Undecodable bytes stay unreadable."""
        if self.is_utf8:
            return file
        return io.BufferedReader(_Transcoder(file, self.encoding))


def likely_encoding(start: bytes) -> str:
    """Guess the encoding of a text from its beginning."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    for encoding in ("utf-8", "cp1252"):
        try:
            codecs.getincrementaldecoder(encoding)().decode(start)
        except UnicodeDecodeError:
            continue
        return encoding
    return "latin-1"


class _Transcoder(io.RawIOBase):
    """Raw file that transcodes another file to UTF-8."""

    def __init__(self, file: Any, encoding: str) -> None:
        self._file = file
        self._pieces = _transcoded(file, encoding)
        self._piece = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._piece:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._piece = piece
        count = min(len(buffer), len(self._piece))
        buffer[:count] = self._piece[:count]
        self._piece = self._piece[count:]
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _replace_unreadable(error: UnicodeError) -> tuple[str | bytes, int]:
    """Replace undecodable input by a byte that is invalid in UTF-8, so that its row is unreadable."""
    if isinstance(error, UnicodeEncodeError):
        return b"\xff" * (error.end - error.start), error.end
    assert isinstance(error, UnicodeDecodeError)
    return "\udcff", error.end


_UNREADABLE = "headrace.unreadable"
codecs.register_error(_UNREADABLE, _replace_unreadable)


def _transcoded(file: Any, encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)(_UNREADABLE)
    begun = False
    while chunk := file.read(io.DEFAULT_BUFFER_SIZE):
        text = decoder.decode(chunk)
        if text and not begun:  # utf-16-le and the like leave the byte order mark in the text
            text, begun = text.removeprefix("\ufeff"), True
        yield text.encode(errors=_UNREADABLE)
    yield decoder.decode(b"", True).encode(errors=_UNREADABLE)


@cache
def _patterns(sep: str, quote: str) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    s, q = re.escape(sep).encode(), re.escape(quote).encode()
    before, after, within = rb"(?<![^%b\r\n])" % s, rb"(?![^%b\r\n])" % s, rb"(?:[^%b]++|%b%b)*+" % (q, q, q)
    other = rb"[^%b]*+" % q
    quoted = before + q + within + q + after
    return re.compile(other + rb"(?:" + quoted + other + rb")*+"), re.compile(before + q + within)


def _is_one_character(text: object) -> bool:
    return isinstance(text, str) and len(text) == 1 and text.isascii() and text not in "\r\n\0"


def _refused(problem: str, fix: str) -> BadInput:
    return BadInput(f"options of CSV files: {problem}", where=[SourceLocation.of_caller()], fix=fix)


def _line_before(text: str) -> str:
    """Return the last line of a text, without its line ending."""
    text = text.removesuffix("\n").removesuffix("\r")
    return text[max(text.rfind("\n"), text.rfind("\r")) + 1 :]


def _lines(block: bytes) -> io.StringIO:
    return io.StringIO(block.decode("utf-8", "surrogateescape"), newline="")
