"""`split`, `lines`, `join_lines`: chunks of bytes divided at separators, decoded to lines, and encoded."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Generic, TypeAlias, TypeVar

from headrace.errors import BadOption, SourceLocation
from headrace.pull.argument_checks import check_integer
from headrace.pull.edge import PullEdge
from headrace.pull.errors import LineTooLong, UndecodableText, WrongValue
from headrace.pull.fusion import Expansion, Kernel
from headrace.pull.module_context import Module
from headrace.pull.modules import PullTransformer
from headrace.pull.protocol import BatchRead

Octets: TypeAlias = bytes | bytearray | memoryview

CHUNK = 65536
"""Default limit on the bytes of one read."""


def check_octets(module: Module, value: object) -> Octets:
    """Return the value if it is bytes, as a view of single bytes if needed; otherwise raise `WrongValue`."""
    if isinstance(value, memoryview):
        # Event loops count the items of a view as bytes and would lose part of wider ones.
        return value.cast("B") if value.nbytes and value.c_contiguous else value.tobytes()
    if isinstance(value, bytes | bytearray):
        return value
    raise WrongValue(
        f"{module.name}() takes bytes, got {type(value).__name__}",
        where=[module.location],
        why=f"The value is {value!r:.60}.",
        fix="encode text first: join_lines() for lines, map(str.encode) for any text",
        value_type=type(value).__name__,
    )


T = TypeVar("T", str, bytes)  # the same code for both, which pyright follows only with `Any`

LONGEST = 2**20
"""Default limit on the length of a line, in bytes or characters."""

_FEW = 256
"""Number of chunks without a separator to hold separately; more are joined, to save overhead."""


class SeparatorSplitter(Generic[T]):
    """Incremental splitter at a separator, linear in the input however it is cut into chunks."""

    def __init__(self, module: Module, separator: T, longest: int) -> None:
        self._module = module
        self._separator: Any = separator
        self._nothing: Any = separator[:0]
        self._longest = longest
        self._parts: list[Any] = []  # the incomplete last piece
        self._size = 0
        self.count = 0
        """Number of pieces completed so far."""

    def feed(self, chunk: T) -> Iterator[T]:
        """Yield the pieces that a chunk completes; raise `LineTooLong` at the first that is too long."""
        separator, parts = self._separator, self._parts
        parts.append(chunk)
        self._size += len(chunk)
        if separator not in self._last(len(chunk) + len(separator) - 1):
            if len(parts) > _FEW:
                parts[:] = [self._nothing.join(parts)]
            pieces: list[Any] = []
        else:
            *pieces, rest = self._nothing.join(parts).split(separator)
            parts[:] = [rest]
            self._size = len(rest)
        return self._bounded(pieces)

    def rest(self) -> Iterator[T]:
        """Yield the rest after the last separator as a piece, unless it is empty."""
        rest = self._nothing.join(self._parts)
        self._parts.clear()
        self._size = 0
        return self._bounded([rest] if rest else [])

    def _last(self, count: int) -> Any:
        """Return at least the last `count` buffered bytes or characters, or all of them."""
        parts = self._parts
        at, found = len(parts), 0
        while at and found < count:
            at -= 1
            found += len(parts[at])
        return parts[at] if at == len(parts) - 1 else self._nothing.join(parts[at:])

    def _bounded(self, pieces: list[Any]) -> Iterator[T]:
        longest = self._longest
        if self._size < longest + len(self._separator) and all(len(piece) <= longest for piece in pieces):
            self.count += len(pieces)
            yield from pieces
            return
        for piece in pieces:
            if len(piece) > longest:
                break
            self.count += 1
            yield piece
        self._parts.clear()
        unit = "bytes" if isinstance(self._separator, bytes) else "characters"
        raise LineTooLong(
            f"{self._module.name}(): line {self.count + 1} is longer than {longest:,} {unit}",
            where=[self._module.location],
            why="A line is held in memory until its end arrives, so its length is bounded.",
            fix="raise longest=... if lines are that long, or read chunks of bytes instead",
            line=self.count + 1,
            longest=longest,
        )


def split(separator: bytes = b"\n", *, longest: int = LONGEST) -> PullTransformer:
    """Divide chunks of bytes, of any size, at each separator, and remove the separators.

    Any bytes after the last separator are also a piece. A piece of more than `longest` bytes fails the stream
    with `LineTooLong` after the pieces before it, so memory holds at most that much and one chunk per request
    in flight. If upstream fails, the complete pieces are answered first and the incomplete one is dropped. It
    asks upstream only when it has no piece left, and at most once for each ask; an abort goes upstream and
    drops the remaining pieces.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values([b"a;b", b"c;;d"]), split(b";"), collect()).run()
    [b'a', b'bc', b'', b'd']
    """
    check_integer("split", "longest", longest, least=1)
    if not separator:
        raise BadOption(
            "split() cannot work with an empty separator",
            where=[SourceLocation.of_caller()],
            why="An empty separator occurs between any two bytes.",
            fix="give one or more bytes; for chunks of a fixed size: from_file(path, chunk=SIZE)",
        )

    def open(module: Module, edge: PullEdge) -> BatchRead:
        divider = SeparatorSplitter(module, separator, longest)

        def feed(chunks: Iterable[Any]) -> Iterator[bytes]:
            return chain.from_iterable(divider.feed(bytes(check_octets(module, chunk))) for chunk in chunks)

        return Expansion(edge, feed, divider.rest, by_one=True).read

    return PullTransformer.of("split", open, batches=True)


def lines(encoding: str = "utf-8", *, longest: int = LONGEST) -> PullTransformer:
    r"""Decode chunks of bytes into lines of text, without their ends (`\n` or `\r\n`).

    longest: limit on the characters of a line; a longer one fails the stream with `LineTooLong` after the
             lines before it.

    Bytes that are invalid in this encoding fail the stream with `UndecodableText`, also after the lines
    before them. Otherwise it works like `split`.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values([b"caf\xc3", b"\xa9\r\nand\n", b"tea"]), lines(), collect()).run()
    ['café', 'and', 'tea']
    """
    check_integer("lines", "longest", longest, least=1)
    check_encoding("lines", encoding)

    def open(module: Module, edge: PullEdge) -> BatchRead:
        decoding = _Decoding(module, encoding, longest)
        return Expansion(edge, decoding.feed, decoding.rest, by_one=True).read

    return PullTransformer.of("lines", open, batches=True)


class _Decoding:
    """Incremental decoder of chunks, which may end within a character, into lines."""

    def __init__(self, module: Module, encoding: str, longest: int) -> None:
        self._module = module
        self._encoding = encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._divider = SeparatorSplitter(module, "\n", longest)

    def feed(self, chunks: Iterable[Any]) -> Iterator[str]:
        for chunk in chunks:
            yield from self._decode(bytes(check_octets(self._module, chunk)))

    def rest(self) -> Iterator[str]:
        yield from self._decode(b"", final=True)
        yield from self._divider.rest()

    def _decode(self, chunk: bytes, *, final: bool = False) -> Iterator[str]:
        try:
            text = self._decoder.decode(chunk, final)
        except UnicodeDecodeError as error:
            self._decoder.setstate((b"", self._decoder.getstate()[1]))
            yield from self._lines(self._decoder.decode(error.object[: error.start]))
            raise self._undecodable(error) from None
        yield from self._lines(text)

    def _lines(self, text: str) -> Iterator[str]:
        return (line.removesuffix("\r") for line in self._divider.feed(text))

    def _undecodable(self, error: UnicodeDecodeError) -> UndecodableText:
        bad = error.object[error.start : error.end]
        return UndecodableText(
            f"{self._module.name}(): line {self._divider.count + 1} is not valid {self._encoding}",
            where=[self._module.location],
            why=f"Bytes {bad!r}: {error.reason}.",
            fix="give the encoding it was written in; 'latin-1' decodes any bytes",
            line=self._divider.count + 1,
            encoding=self._encoding,
        )


def join_lines(encoding: str = "utf-8", *, end: str = "\n") -> PullTransformer:
    r"""Encode each line of text, followed by `end`. Fused with its neighbours.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values(["a", "b"]), join_lines(), collect()).run()
    [b'a\n', b'b\n']
    """
    check_encoding("join_lines", encoding)
    location = SourceLocation.of_caller()

    def kernel() -> Kernel:
        encode = encoder("join_lines", location, encoding, end)

        def run(values: Iterable[Any]) -> Iterator[bytes]:
            return (encode(value) for value in values)

        return run

    return PullTransformer.of_kernel("join_lines", kernel)


def encoder(name: str, location: SourceLocation, encoding: str, end: str) -> Callable[[Any], bytes]:
    """Create a function that encodes lines, and raises `WrongValue` for values that it cannot encode.

    If the encoding has a byte order mark, it is written once.
    """
    encoding_one = codecs.getincrementalencoder(encoding)()

    def encode(line: object) -> bytes:
        if not isinstance(line, str):
            raise WrongValue(
                f"{name}() takes text, got {type(line).__name__}",
                where=[location],
                why=f"The value is {line!r:.60}.",
                fix="convert the values to text first: map(str), or map(json.dumps)",
                value_type=type(line).__name__,
            )
        try:
            return encoding_one.encode(line + end)
        except UnicodeEncodeError as error:
            raise WrongValue(
                f"{name}(): {encoding} cannot write {error.object[error.start : error.end]!r}",
                where=[location],
                why=f"The line is {line!r:.60}: {error.reason}.",
                fix="use 'utf-8', which can encode any text",
                value_type="str",
            ) from None

    return encode


def check_encoding(name: str, encoding: str) -> None:
    """Raise `BadOption` unless Python has a text encoding of this name."""
    try:
        known = codecs.lookup(encoding)
        "".encode(known.name)
    except LookupError:
        raise BadOption(
            f"{name}() cannot work with encoding={encoding!r}",
            where=[SourceLocation.of_caller()],
            why="Python has no text encoding of that name.",
            fix="use one listed for Python's codecs module, such as 'utf-8', 'latin-1' or 'utf-16'",
        ) from None
