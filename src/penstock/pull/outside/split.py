"""split: chunks of bytes, divided at a separator."""

from __future__ import annotations

from typing import Any

from penstock.errors import BadOption, SourceLocation
from penstock.pull.edge import Edge
from penstock.pull.module import Module
from penstock.pull.options import whole
from penstock.pull.outside.dividing import LONGEST, Divided, Divider, Dividing
from penstock.pull.outside.octets import octets
from penstock.pull.pieces import Transformer
from penstock.pull.protocol import BatchRead


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
