"""split: chunks of bytes, divided at a separator."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any, Generic, TypeVar

from penstock.errors import BadOption, LineTooLong, SourceLocation
from penstock.pull.edge import Edge
from penstock.pull.io.octets import octets
from penstock.pull.module import Module
from penstock.pull.options import whole
from penstock.pull.pieces import Transformer
from penstock.pull.protocol import AnswerTo, BatchRead, End

T = TypeVar("T", str, bytes)  # the same code for both, which pyright follows only with `Any`

LONGEST = 2**20
"""Bytes, or characters, that a line may have where nothing is said."""

_FEW = 256
"""Chunks without a separator that are held one by one; more are joined, for each has a price."""

Divided = tuple[list[Any], Exception | None]
"""The pieces that are complete, and what is wrong with what follows them."""


class Divider(Generic[T]):
    """Finds separators in what comes chunk by chunk, whatever its size, in time proportional to it."""

    def __init__(self, module: Module, separator: T, longest: int) -> None:
        self._module = module
        self._separator: Any = separator
        self._nothing: Any = separator[:0]
        self._longest = longest
        self._parts: list[Any] = []  # without a separator until now
        self._size = 0
        self._count = 0

    def feed(self, chunk: T) -> Divided:
        """The pieces that this chunk completes."""
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

    def rest(self) -> Divided:
        """What follows the last separator; no piece where that is nothing."""
        rest = self._nothing.join(self._parts)
        self._parts.clear()
        self._size = 0
        return self._bounded([rest] if rest else [])

    def _last(self, count: int) -> Any:
        """At least the last `count` of what is held, or all of it."""
        parts = self._parts
        at, found = len(parts), 0
        while at and found < count:
            at -= 1
            found += len(parts[at])
        return parts[at] if at == len(parts) - 1 else self._nothing.join(parts[at:])

    def _bounded(self, pieces: list[Any]) -> Divided:
        longest = self._longest
        if self._size < longest + len(self._separator) and all(len(piece) <= longest for piece in pieces):
            self._count += len(pieces)
            return pieces, None
        unit = "bytes" if isinstance(self._separator, bytes) else "characters"
        good = next((at for at, piece in enumerate(pieces) if len(piece) > longest), len(pieces))
        self._parts.clear()
        self._count += good
        return pieces[:good], LineTooLong(
            f"{self._module.name}(): line {self._count + 1} is longer than {longest:,} {unit}",
            where=[self._module.location],
            why="A line is held until its end has come; without a bound it could fill the memory.",
            fix="say longest=... where lines are that long, or read chunks of bytes instead",
            line=self._count + 1,
            longest=longest,
        )


class Dividing:
    """The module of `split` and `lines`: asks upstream when no piece is left, at most once for each ask.

    feed: the pieces that a chunk completes. rest: those that the end of the stream completes.
    """

    def __init__(
        self, module: Module, edge: Edge, feed: Callable[[Any], Divided], rest: Callable[[], Divided]
    ) -> None:
        self._module = module
        self._edge = edge
        self._feed = feed
        self._rest = rest
        self._asks: deque[tuple[AnswerTo, int]] = deque()
        self._pieces: deque[Any] = deque()
        self._in_flight = 0
        self._failure: Exception | None = None
        self._end: End | None = None

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is not None:
            self._asks.clear()
            self._pieces.clear()
            self._edge(abort, answer)
        else:
            self._asks.append((answer, most))
            self._go_on()

    def _got(self, end: End | None, chunk: Any = None, /) -> None:
        self._in_flight -= 1
        if self._failure is not None or self._end is not None:
            return
        if end is None:
            self._add(self._feed(chunk))
        else:
            if end is True:
                self._add(self._rest())
            self._end = end
        self._go_on()

    def _add(self, divided: Divided) -> None:
        pieces, self._failure = divided
        self._pieces.extend(pieces)

    def _go_on(self) -> None:
        asks, pieces = self._asks, self._pieces
        while asks and pieces:
            answer, most = asks.popleft()
            few = list(islice(pieces, most))
            for _ in few:
                pieces.popleft()
            answer(None, few)
        if not asks:
            return
        if self._failure is not None:
            raise self._failure
        if self._end is not None:
            asks.popleft()[0](self._end)
            return
        while self._in_flight < min(len(asks), self._edge.window):
            self._in_flight += 1
            self._edge(None, self._got)


def split(separator: bytes = b"\n", *, longest: int = LONGEST) -> Transformer:
    """Chunks of bytes, of any size, divided at each separator; the separators are left out.

    What follows the last separator is a piece too, unless it is empty. A piece of more than `longest` bytes
    fails the stream with `LineTooLong` after the pieces before it: no more than that and a chunk
    for each request in flight is ever held. Where upstream fails, that is answered after the pieces
    before, and what has no separator yet is dropped. It asks upstream only when it has no piece
    left, and at most once for each ask; an abort goes upstream and drops the pieces that are left.

    >>> from penstock.pull import collect, pull, values
    >>> pull(values([b"a;b", b"c;;d"]), split(b";"), collect()).run()
    [b'a', b'bc', b'', b'd']
    """
    whole("split", "longest", longest, least=1)
    if not separator:
        raise BadOption(
            "split() cannot work with an empty separator",
            where=[SourceLocation.of_caller()],
            why="It would be found everywhere.",
            fix="give one or more bytes; chunks of a certain size: from_file(path, chunk=SIZE)",
        )

    def open(module: Module, edge: Edge) -> BatchRead:
        divider = Divider(module, separator, longest)

        def feed(chunk: Any) -> Divided:
            return divider.feed(bytes(octets(module, chunk)))

        return Dividing(module, edge, feed, divider.rest).read

    return Transformer.of("split", open, batches=True)
