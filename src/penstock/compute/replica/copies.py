"""Copies: the rows of a sink at the as-of, written once to a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from penstock.compute.errors import StoreUnavailable
from penstock.compute.frontier import Frontier
from penstock.compute.problems import problem_of
from penstock.compute.protocol.dataflow import Id
from penstock.compute.protocol.responses import CopyToResponse, Counted, Dropped, Problem, Row, RowCount
from penstock.compute.replica.copy_files import CopyFile, copy_file
from penstock.compute.replica.export_writer import ExportWriter
from penstock.compute.replica.failed import Failed
from penstock.compute.replica.pending_changes import add_up
from penstock.errors import PenstockError
from penstock.expr.types import Schema

PART = 1000
"""How many rows are written at a time."""


class CopyOutlet(ExportWriter):
    """Collects the rows at the as-of, then writes them, a part at a time; at last the file has its name."""

    once = True

    def __init__(
        self,
        id: Id,
        sink: str,
        folder: Path,
        name: str,
        schema: Schema,
        tell: Callable[[CopyToResponse], None],
    ) -> None:
        super().__init__(id, sink)
        self._folder = folder
        self._name = name
        self._schema = schema
        self._tell = tell
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
        except PenstockError as error:
            self._answer(problem_of(error, id=self.id))
        except OSError as error:
            self._answer(problem_of(_unwritten(self._name, error), id=self.id))
        return True

    def _write(self) -> Iterator[None]:
        file = self._file = copy_file(self._folder, self._name, self._schema)
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

    def fail(self, failed: Failed) -> None:
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
        self._tell(CopyToResponse(self.id, result))


def _unwritten(name: str, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(
        f"the copy {name} cannot be written: {error.strerror or error}",
        fix="make room in the folder of the replica, or make it writable",
    )
