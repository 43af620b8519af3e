"""Blocks of whole lines in which text files are read, and byte ranges in which tasks share a file."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BLOCK = 1 << 18
"""Size of a block in bytes, up to the end of a line. One unreadable row makes its block slow, no other."""

BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class FilePart:
    """Part of a file: bytes from the start of a line, or row groups of Parquet. stop: None for the end."""

    start: int = 0
    stop: int | None = None


WHOLE = FilePart()


@dataclass(slots=True)
class BlockPosition:
    """Rows and lines before a block. begin: counts those before the part, which is done only for bad rows."""

    row: int = 0
    line: int = 0
    begin: Callable[[], tuple[int, int]] | None = None

    def find(self) -> None:
        if self.begin is not None:
            rows, lines = self.begin()
            self.row += rows
            self.line += lines
            self.begin = None


def parts_from(starts: list[int]) -> list[FilePart]:
    """Build parts that begin at these positions and end where the next one begins."""
    return [FilePart(start, stop) for start, stop in zip(starts, [*starts[1:], None])]


def open_bytes(path: Path) -> Any:
    """Open a file behind its byte order mark, decompressed if its name ends in .gz.

    Raises `EOFError` for a compressed file without a byte, which `gzip` takes for an empty one.
    """
    if path.suffix == ".gz" and not path.stat().st_size:
        raise EOFError("the compressed file is truncated: it has not even its header")
    file: Any = gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # noqa: SIM115
    try:
        if file.read(len(BOM)) != BOM:
            file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


def line_blocks(file: Any, part: FilePart = WHOLE, limit: int | None = None) -> Iterator[bytes]:
    """Yield an open file in blocks of whole lines, from where it is or from the start of a later part.

    If reading fails, as in a truncated `.gz` file, the lines before the failure are yielded first.
    Raises `OSError` for a line of more than `limit` bytes, which is at least `BLOCK`.
    """
    if part.start:
        file.seek(part.start)
    begun: list[bytes] = []
    size = 0
    for chunk in _chunks(file, None if part.stop is None else part.stop - file.tell()):
        end = chunk.rfind(b"\n") + 1
        if end:
            yield b"".join((*begun, chunk[:end]))
            begun, size = [], 0
        begun.append(chunk[end:])
        size += len(chunk) - end
        if limit is not None and size > limit:
            raise OSError(f"a line has more than max_value_bytes={limit:,}")
    if last := b"".join(begun):
        yield last


def _chunks(file: Any, left: int | None) -> Iterator[bytes]:
    failure: Exception | None = None
    while failure is None and left != 0:
        want = BLOCK if left is None else min(BLOCK, left)
        read: list[bytes] = []
        try:
            while want and (piece := file.read1(want)):
                read.append(piece)
                want -= len(piece)
        except (OSError, EOFError, zlib.error) as error:
            failure = error
        chunk = b"".join(read)
        left = None if left is None else left - len(chunk)
        if not chunk and failure is None:
            return
        yield chunk
    if failure is not None:
        raise failure


def line_parts(path: Path, size: int) -> list[FilePart]:
    """Cut a file into parts of about `size` bytes at ends of lines; a compressed file is one part."""
    if path.suffix == ".gz":
        return [WHOLE]
    length = path.stat().st_size
    cuts = [0]
    with path.open("rb") as file:
        for at in range(size, length, size):
            if at > cuts[-1]:
                file.seek(at)
                file.readline()
                cuts.append(file.tell())
    return parts_from([cut for cut in cuts if cut < max(length, 1)])
