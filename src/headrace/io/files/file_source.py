"""File sources: common options, the finished files at a path in name order, and their blocks of lines.

A path is a folder (the files directly in it), a file, or a pattern with `*`, `?`, `[...]`. Files whose
names begin with `_` or `.` or end in `.tmp` are skipped as unfinished; writers should rename them when
done. Links that lead out of the folder are refused.

Text files are read in blocks of whole lines; tasks share a file by ranges of bytes.
"""

from __future__ import annotations

import glob
import gzip
import os
import re
import time
import zlib
from collections.abc import Callable, Iterator, MutableMapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from stat import S_ISDIR
from typing import Any, TypeAlias

from headrace.errors import BadInput, InputChanged, UnreadableSource, did_you_mean
from headrace.expr.expression_errors import explains_calls
from headrace.file_system import local_path
from headrace.io.source import DONE, Source, dead_letter_folder, printable, set_fields

_CHECKED_AT_ONCE = 256
"""Number of files already read that are compared with what was read, in turn."""

_CHECKED_EVERY = 1.0
"""Seconds between two such comparisons."""

_LISTED_EVERY = 10.0
"""Seconds after which a folder is listed though it seems unchanged: not every file system notes changes."""

_CLOCK_GRAIN = 2 * 10**9
"""Nanoseconds after which a further change of a folder certainly shows in its time of modification."""


_LEAST_LIMIT = 1 << 20
_ROW_CLASS = "columns and their types are those of the row class: flow.source(name, RowClass)"
OF_OTHER_READERS = {
    **dict.fromkeys(("dtype", "dtypes", "schema", "names", "columns", "usecols", "inferSchema"), _ROW_CLASS),
    **dict.fromkeys(("lines", "multiLine", "orient"), "leave it out: lines and arrays are told apart"),
    **dict.fromkeys(("compression", "encoding"), "leave it out: .gz is decompressed, and files are UTF-8"),
    **dict.fromkeys(("mode", "badRecordsPath", "on_bad_lines"), 'dead_letter="FOLDER" sets bad rows aside'),
    **dict.fromkeys(("chunksize", "nrows"), "hr.run(..., tick_rows=1000) limits the rows of a tick"),
    **dict.fromkeys(("maxFilesPerTrigger", "max_files_per_trigger"), "files_per_tick=1"),
}
"""Ways out by options of readers in pandas, Polars and Spark."""


@dataclass(frozen=True)
class Files(Source):
    """Base class of file sources: files in name order, including new ones if the run follows its sources.

    path:           a folder (the files directly in it), a file, or a pattern such as `in/*.json`.
                    Names that begin with `_` or `.` or end in `.tmp` are skipped as unfinished.
    dead_letter:    a folder for unreadable rows as JSON lines, one file per tick: row, reason, file and
                    number. Without it, an unreadable row ends the run.
    files_per_tick: number of whole files per tick, however many rows they have.
    max_value_bytes: size from which on a line (JSON, CSV) or a page of a column (Parquet) makes a file
                    unreadable, before memory is taken for it: a few bytes may decompress to gigabytes. At
                    least 1 MiB, since pages of ordinary files are as large; by default there is no limit.
    """

    path: str
    dead_letter: str | None
    files_per_tick: int | None
    max_value_bytes: int | None

    @explains_calls(elsewhere=OF_OTHER_READERS)
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        dead_letter: str | os.PathLike[str] | None = None,
        files_per_tick: int | None = None,
        max_value_bytes: int | None = None,
    ) -> None:
        if max_value_bytes is not None and max_value_bytes < _LEAST_LIMIT:
            raise BadInput(
                f"max_value_bytes is {max_value_bytes}", fix=f"give {_LEAST_LIMIT} or more, or leave it out"
            )
        if files_per_tick is not None and files_per_tick < 1:
            raise BadInput(f"files_per_tick is {files_per_tick}", fix="give 1 or more, or leave it out")
        what = type(self).__name__
        letters = None if dead_letter is None else local_path(dead_letter, f"dead_letter of {what}")
        set_fields(
            self,
            path=local_path(path, what),
            dead_letter=letters,
            files_per_tick=files_per_tick,
            max_value_bytes=max_value_bytes,
        )


@dead_letter_folder.register
def _(source: Files) -> str | None:
    return source.dead_letter


@dataclass(frozen=True, slots=True)
class Listing:
    """Files at a path. source: name of the source for errors. skip: absolute paths to leave out."""

    source: str
    path: str
    skip: frozenset[str] = frozenset()

    def names(self, *, may_be_none: bool, known: AbstractSet[str] = frozenset()) -> list[tuple[str, str]]:
        """List the finished files whose names are not `known`, as (name for positions, path), in name order.

        Raises `UnreadableSource` if the path does not exist or, unless `may_be_none`, has no file.
        """
        path = self.path
        if os.path.isdir(path):
            found = self._in_folder(known)
        elif os.path.exists(path):
            found = [(os.path.basename(path), path)]
        elif glob.has_magic(path):
            found = [(name, name) for name in glob.glob(path) if finished(os.path.basename(name))]
            self._check_links([name for name, _ in found if name not in known], _folder_of(path))
        else:
            raise self.error("does not exist", self._near(path))
        if not found and not known and not may_be_none:
            raise self.error("has no file to read")
        new = sorted((name, path) for name, path in found if name not in known)
        return [file for file in new if os.path.abspath(file[1]) not in self.skip] if self.skip else new

    def _in_folder(self, known: AbstractSet[str]) -> list[tuple[str, str]]:
        # The names alone take a fifth of the time that a scan with types takes; few of them are new.
        try:
            new = [name for name in {*os.listdir(self.path)} - known if finished(name)]
        except OSError as error:
            raise self.error(f"cannot be listed: {error.strerror}") from error
        found = [(name, os.path.join(self.path, name)) for name in new]
        self._check_links([path for _, path in found if os.path.islink(path)], self.path)
        return [(name, path) for name, path in found if os.path.isfile(path)]

    def _check_links(self, paths: list[str], folder: str) -> None:
        """Refuse links that lead out of a folder, so that its writers cannot expose other files."""
        inside = os.path.join(os.path.realpath(folder), "") if paths else ""
        for path in paths:
            if not os.path.realpath(path).startswith(inside):
                raise self.error(
                    f"holds {os.path.basename(path)!r}, a link that leads out of it",
                    "put the file itself there, or give its own folder as the source",
                )

    def _near(self, path: str) -> str:
        """Suggest a similarly named file in the same folder."""
        folder, name = os.path.split(path)
        with suppress(OSError):
            beside = os.listdir(folder or ".")
            return did_you_mean(name, beside, lambda near: repr(os.path.join(folder, near)))
        return ""

    def error(self, problem: str, fix: str = "") -> UnreadableSource:
        return UnreadableSource(
            f"source {self.source!r}: {self.path} {problem}",
            fix=fix
            or "give a folder, a file, or a pattern such as in/*.json; "
            "names that begin with _ or . or end in .tmp are skipped",
            source=self.source,
            path=self.path,
        )


def _folder_of(pattern: str) -> str:
    """Return the folder below which a pattern finds files."""
    return os.path.dirname(re.split(r"[*?[]", pattern, maxsplit=1)[0]) or "."


def finished(name: str) -> bool:
    return not name.startswith(("_", ".")) and not name.endswith(".tmp")


@dataclass(frozen=True, slots=True)
class PendingFile:
    """A file to read. rows: number of its records that earlier ticks have read.

    size, modified: in bytes, and in nanoseconds since 1970, before it is read.
    """

    name: str
    path: str
    rows: int
    size: int
    modified: int

    def now(self) -> PendingFile:
        """Return the file with its current size and modification time, just before it is read."""
        stat = _stat(self.path)
        return self if stat is None else replace(self, size=stat.st_size, modified=stat.st_mtime_ns)

    @property
    def absolute(self) -> str:
        return os.path.abspath(self.path)

    def position(self, rows: int) -> tuple[int, int, int, str]:
        """Return the position to record after `rows` records, or after all of them (`DONE`)."""
        return rows, self.size, self.modified, self.absolute


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _time_text(nanoseconds: int) -> str:
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC).isoformat(" ", "milliseconds")


_Read: TypeAlias = tuple[str, int, int]
"""Path, size and time of modification of a file when it was read."""


@dataclass(slots=True)
class PendingFiles:
    """Files of a source that no tick has read to the end, each listed once.

    taken: positions by name, as `PendingFile.position` makes them.
    """

    listing: Listing
    taken: MutableMapping[Any, Any]
    _known: set[str] = field(default_factory=set[str], init=False)
    _read: dict[str, _Read] = field(default_factory=dict[str, "_Read"], init=False)
    _listed_at: tuple[int, ...] | None = field(default=None, init=False)
    _listed_when: float = field(default=0.0, init=False)
    _checked_when: float = field(default=0.0, init=False)

    def look(self, *, may_be_none: bool) -> list[PendingFile]:
        """List the files that have appeared since the last call, in name order.

        The first look compares all files that were read with what they were then, later ones some of them in
        turn. Raises `InputChanged` for a file that differs, `UnreadableSource` like `Listing.names`.
        """
        self._check()
        changed, now = self._folder_changed(), time.monotonic()
        if changed is not None and changed == self._listed_at and now < self._listed_when + _LISTED_EVERY:
            return []
        found = self.listing.names(may_be_none=may_be_none, known=self._known)
        self._listed_at, self._listed_when = changed, now
        unread: list[PendingFile] = []
        for name, path in found:
            stat = self._stat(path)
            if stat is not None:
                unread += self._unread(name, path, stat)
                self._known.add(name)
        return unread

    def finished(self, file: PendingFile) -> None:
        """Record the size and time of a file that was read, for later comparison."""
        self._read[file.name] = file.path, file.size, file.modified

    def shrunk(self, file: PendingFile, rows: int) -> InputChanged:
        """Build the error for a file that has fewer rows than earlier ticks have read from it."""
        return InputChanged(
            f"source {self.listing.source!r}: {printable(file.path)} changed after a part of it was read",
            why=f"Earlier ticks read {file.rows:,} of its rows, and it has only {rows:,} now. "
            "Its new content would be lost.",
            fix="restore the file or remove it, and deliver new rows in a new file",
            source=self.listing.source,
            file=file.path,
        )

    def _folder_changed(self) -> tuple[int, ...] | None:
        """Return a folder's change marker; None if it could miss a later change, or for a non-folder."""
        try:
            stat = os.stat(self.listing.path)
        except OSError:
            return None
        at = max(stat.st_mtime_ns, stat.st_ctime_ns)
        if not S_ISDIR(stat.st_mode) or time.time_ns() - at <= _CLOCK_GRAIN:
            return None
        return stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns

    def _stat(self, path: str) -> os.stat_result | None:
        try:
            return _stat(path)
        except OSError as error:
            raise self.listing.error(
                f"holds {printable(path)}, of which nothing can be known: {error}"
            ) from error

    def _unread(self, name: str, path: str, stat: os.stat_result) -> list[PendingFile]:
        name, position = self._position(name, path)
        rows = 0
        if position is not None:
            rows, size, modified, _ = position
            # One that was read in part may have been corrected since, behind that part.
            if rows == DONE:
                self._compare(path, stat, size, modified)
                self._read[name] = path, size, modified
                return []
        return [PendingFile(name, path, rows, stat.st_size, stat.st_mtime_ns)]

    def _position(self, name: str, path: str) -> tuple[str, tuple[int, int, int, str] | None]:
        """Find the position of a file, and the name that it has there.

        An earlier run may have been given the same files as a folder or by another pattern.
        """
        position = self.taken.get(name)
        if position is not None:
            return name, position
        absolute = os.path.abspath(path)
        relative = os.path.relpath(absolute)
        for other in (os.path.basename(path), absolute, relative, os.path.join(os.curdir, relative)):
            position = None if other == name else self.taken.get(other)
            if position is not None and position[3] == absolute:
                return other, position
        return name, None

    def _check(self) -> None:
        if time.monotonic() < self._checked_when + _CHECKED_EVERY:
            return
        self._checked_when = time.monotonic()
        for name in list(islice(self._read, _CHECKED_AT_ONCE)):
            path, size, modified = self._read.pop(name)
            stat = self._stat(path)
            if stat is None:
                # What was read of it stays; one that comes under its name is compared.
                self._known.discard(name)
                continue
            self._compare(path, stat, size, modified)
            self._read[name] = path, size, modified

    def _compare(self, path: str, stat: os.stat_result, size: int, modified: int) -> None:
        if (stat.st_size, stat.st_mtime_ns) == (size, modified):
            return
        how = "grew" if stat.st_size > size else "changed"
        difference = f"It had {size:,} bytes, and has {stat.st_size:,} now."
        if stat.st_size == size:
            then, now = _time_text(modified), _time_text(stat.st_mtime_ns)
            difference = f"Its modification time was {then}, and is {now} now."
        raise InputChanged(
            f"source {self.listing.source!r}: {printable(path)} {how} after it was read",
            why=f"{difference} A file is read once, so the difference would be lost.",
            fix="restore the file, including its modification time, or remove it; "
            "deliver new rows in a new file",
            source=self.listing.source,
            file=path,
        )


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
