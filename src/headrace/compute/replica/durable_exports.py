"""Exports to collections of a store, and to files."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from secrets import token_hex
from typing import Any

from headrace.compute.collections.store import CollectionAppend
from headrace.compute.errors import BadPlan, StoreUnavailable, UpperMismatch, problem_of
from headrace.compute.frontier import Frontier
from headrace.compute.protocol.commands import Id
from headrace.compute.protocol.responses import CopyToResponse, Counted, Dropped, Problem, RowCount, Update
from headrace.compute.replica.exports import ExportWriter, FailedExport, add_up
from headrace.compute.replica.feeds import CHUNK, RETRY, CollectionFeed
from headrace.compute.replica.runtime import ReachedFrontiers
from headrace.errors import HeadraceError
from headrace.expr.types import Row, Schema
from headrace.file_system import make_private_file, make_private_folder
from headrace.io.files.json_values import object_encoder

# All replicas that run the dataflow write the same changes: the first to append from an upper writes for
# all, and the others see from the upper what is already written. At the start, the collection may hold
# output of an earlier run, so the first append is the difference between the expected and the existing
# contents.


class CollectionWriter(ExportWriter):
    """Export to a collection: appends the changes of settled times, once allowed.

    Invariant: `_pending` has the changes of settled times from `_written` on, an earlier upper of the
    collection. If it `_agrees`, all earlier times are done. Otherwise `_difference` has the expected contents
    just before, from which the existing contents must still be subtracted.
    """

    def __init__(
        self,
        id: Id,
        sink: str,
        feed: CollectionFeed,
        as_of: int,
        *,
        timer: Callable[[], float],
        report: Callable[[Id, str], None],
    ) -> None:
        super().__init__(id, sink)
        self.feed = feed
        self._as_of = as_of
        self._timer = timer
        self._report = report
        self._computed = Frontier(as_of)
        self._written = feed.upper
        self._time = -1
        self._open: list[Sequence[Counted]] = []
        self._pending: list[Update] = []
        self._difference: dict[Row, int] = {}
        self._agrees = False
        self._agreeing: Iterator[None] | None = None
        self._allowed = False
        self._over = False

    def add(self, changes: Sequence[Counted], time: int) -> None:
        if not self._written.has_passed(time):
            self._time = time
            self._open.append(changes)
        elif not self._agrees:
            add_up(self._difference, changes, 1)

    def advance(self, upper: Frontier) -> None:
        if not self._written.has_passed(self._time):  # else another replica has written it meanwhile
            for changes in self._open:
                self._pending += [(row, self._time, weight) for row, weight in changes]
        self._open.clear()
        self._computed = upper

    def allow_writes(self) -> None:
        """Allow writes from now on."""
        self._allowed = True

    def fail(self, failed: FailedExport) -> None:
        # What was settled before may still be written, and no more.
        self._open.clear()
        if failed.lasting:
            self.feed.failed = failed

    def clear(self) -> None:
        self._open.clear()
        self._difference.clear()

    def drop(self) -> None:
        self._over = True

    def reached_frontiers(self, computed: Frontier, read: Frontier) -> ReachedFrontiers:
        write = max(self.feed.upper, Frontier(self._as_of))
        return ReachedFrontiers(write, read, min(write, self._computed), Frontier(self._as_of))

    def work(self) -> bool:
        if self._over or self._timer() < self.retry_at:
            return False
        try:
            return self._append() if self._agrees else self._agree()
        except StoreUnavailable:
            self._agreeing = None
            self.retry_at = self._timer() + RETRY
        except (HeadraceError, ValueError) as error:  # ValueError: a weight that no collection can hold
            self._over = True
            what = error.what if isinstance(error, HeadraceError) else str(error)
            self._report(self.id, f"cannot write {self.feed.id}: {what}")
        return True

    def _agree(self) -> bool:
        if self._agreeing is None:
            upper = self.feed.upper
            if upper.time is None or self._computed < max(upper, Frontier(self._as_of + 1)):
                return False
            earlier = self._before(upper)
            add_up(self._difference, [(row, weight) for row, _, weight in earlier], 1)
            self._agreeing = self._take_off(upper.time)
        try:
            next(self._agreeing)
        except StopIteration:
            self._agrees, self._agreeing = True, None
        return True

    def _take_off(self, upper: int) -> Iterator[None]:
        """Turn `_difference` into the corrections to append at `upper`, or at the as-of if later."""
        there: dict[Row, int] = {}
        # One of which no time can be read is new: nothing was ever written to it.
        if upper and self.feed.since < Frontier(upper):
            for part in self.feed.store.snapshot(self.feed.id, upper - 1, CHUNK):
                add_up(there, part, 1)
                yield
        rows = list(there.items())
        for at in range(0, len(rows), CHUNK):
            add_up(self._difference, rows[at : at + CHUNK], -1)
            yield
        time = max(upper, self._as_of)
        self._pending += [(row, time, weight) for row, weight in self._difference.items()]
        self._difference = {}

    def _before(self, upper: Frontier) -> list[Update]:
        """Remove and return the pending changes before an upper, which the collection already contains."""
        earlier = [update for update in self._pending if upper.has_passed(update[1])]
        if earlier:
            self._pending = [update for update in self._pending if not upper.has_passed(update[1])]
        self._written = upper
        return earlier

    def _append(self) -> bool:
        upper = self.feed.upper
        if upper > self._written:
            self._before(upper)
        if not self._allowed or self._computed <= upper:
            return False
        append = CollectionAppend(self.feed.id, upper, self._computed, self._pending)
        try:
            self.feed.store.append([append])
        except UpperMismatch:
            self.feed.refresh()
            return True
        self._pending = []
        self.feed.refresh()
        return True


# A file gets its name only once it is complete, and replaces an older one of that name. A source of the same
# schema can read the values back.


PART = 1000
"""Number of rows written at a time."""
_LONGEST = 200
"""Limit on the length of a file name."""


class CopyWriter(ExportWriter):
    """Export to a file: collects the rows at the as-of, writes them in parts, then renames the file."""

    once = True

    def __init__(
        self,
        id: Id,
        sink: str,
        folder: Path,
        name: str,
        schema: Schema,
        respond: Callable[[CopyToResponse], None],
    ) -> None:
        super().__init__(id, sink)
        self._folder = folder
        self._name = name
        self._schema = schema
        self._respond = respond
        self._time = -1
        self._rows: dict[Row, int] = {}
        self._file: CopyFile | None = None
        self._writing: Iterator[None] | None = None
        self._answered = False

    def add(self, changes: Sequence[Counted], time: int) -> None:
        self._time = time
        add_up(self._rows, changes)

    def advance(self, upper: Frontier) -> None:
        if not self._answered and self._writing is None:
            self._writing = self._write()

    def work(self) -> bool:
        if self._writing is None or self._answered:
            return False
        try:
            next(self._writing)
        except HeadraceError as error:
            self._answer(problem_of(error, id=self.id))
        except OSError as error:
            self._answer(problem_of(_unwritten(self._name, error), id=self.id))
        return True

    def _write(self) -> Iterator[None]:
        file = self._file = create_copy_target(self._folder, self._name, self._schema)
        part: list[Row] = []
        total = 0
        for row, count in self._rows.items():
            for _ in range(count):
                part.append(row)
                if len(part) == PART:
                    file.write(part)
                    total += len(part)
                    part = []
                    yield
        file.write(part)
        total += len(part)
        file.commit()
        self._answer(RowCount(total))
        yield

    def fail(self, failed: FailedExport) -> None:
        self._answer(problem_of(failed.error))

    def clear(self) -> None:
        self._rows.clear()

    def drop(self) -> None:
        self._answer(Dropped())

    def _answer(self, result: RowCount | Problem | Dropped) -> None:
        if self._answered:
            return
        self._answered = True
        if self._file is not None:
            self._file.discard()
        self._rows = {}
        self._respond(CopyToResponse(self.id, result))


def _unwritten(name: str, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(
        f"the copy {name} cannot be written: {error.strerror or error}",
        fix="make room in the folder of the replica, or make it writable",
    )


class CopyFile(ABC):
    """File written under a temporary name. Call `write`, then `commit` or `discard`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        make_private_folder(path.parent)
        self.partial = path.with_name(f".{path.name}.{token_hex(4)}.partial")
        make_private_file(self.partial)

    @abstractmethod
    def write(self, rows: Sequence[Row]) -> None:
        """Write some rows. Raises OSError."""

    def commit(self) -> None:
        """Rename the complete file to its final name. Raises OSError."""
        self.close()
        os.replace(self.partial, self.path)

    def discard(self) -> None:
        """Remove the file unless it has been committed."""
        with suppress(OSError):  # the disk is full
            self.close()
        with suppress(OSError):  # on a disk that takes no changes it stays
            self.partial.unlink(missing_ok=True)

    @abstractmethod
    def close(self) -> None:
        """Close the file."""


def create_copy_target(folder: Path, name: str, schema: Schema) -> CopyFile:
    """Create a file for rows.

    Raises `BadPlan` for a name with folders or another suffix, and `BadInput` if pyarrow is required but
    missing.
    """
    kind = _KINDS.get(Path(name).suffix)
    plain = name == Path(name).name and not name.startswith(".") and "\0" not in name and "\\" not in name
    if kind is None or not plain or len(name) > _LONGEST:
        raise BadPlan(
            f"no file for a copy: {name!r}",
            why="a copy is a file in a folder that the replica has for copies",
            fix=f"give a plain name that ends in {' or '.join(_KINDS)}",
            part="file",
        )
    return kind(folder / name, schema)


class _JsonLines(CopyFile):
    """File with one JSON object per line."""

    def __init__(self, path: Path, schema: Schema) -> None:
        super().__init__(path)
        self._record = object_encoder(schema.fields)
        self._file = self.partial.open("w", encoding="utf-8", newline="\n")

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._file.write(json.dumps(self._record(row), ensure_ascii=False, allow_nan=False) + "\n")

    def commit(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        super().commit()

    def close(self) -> None:
        self._file.close()


class _Parquet(CopyFile):
    """Parquet file with one row group per part."""

    def __init__(self, path: Path, schema: Schema) -> None:
        super().__init__(path)
        self._schema = schema
        self._arrow: Any = import_module("headrace.io.arrow")
        parquet: Any = import_module("pyarrow.parquet")
        self._file: Any = parquet.ParquetWriter(self.partial, self._arrow.arrow_schema(schema))

    def write(self, rows: Sequence[Row]) -> None:
        if rows:
            self._file.write_table(self._arrow.rows_to_table(rows, self._schema))

    def close(self) -> None:
        self._file.close()


_KINDS: dict[str, Callable[[Path, Schema], CopyFile]] = {".jsonl": _JsonLines, ".parquet": _Parquet}
