"""Copies: the rows of a sink at the as-of, written to a file once.

A file gets its name only once it is complete, and replaces an older one of that name. A source of the same
schema can read the values back.
"""

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

from headrace.compute.errors import BadPlan, StoreUnavailable
from headrace.compute.frontier import Frontier
from headrace.compute.problem_conversion import problem_of
from headrace.compute.protocol.dataflow import Id
from headrace.compute.protocol.responses import CopyToResponse, Counted, Dropped, Problem, Row, RowCount
from headrace.compute.replica.exports import ExportWriter, Failed, add_up
from headrace.errors import HeadraceError
from headrace.expr.types import Schema
from headrace.io.files.json_values import object_encoder
from headrace.private_files import make_private_file, make_private_folder

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
