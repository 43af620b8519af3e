"""Files that copies are written to. Their values can be read again by sources of the same schema.

A file has its name only once it is whole; an older one of that name is replaced.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from secrets import token_hex
from typing import Any

from penstock.compute.errors import BadPlan
from penstock.compute.protocol.responses import Row
from penstock.expr.types import Schema
from penstock.io.files.json_values import to_object
from penstock.io.requirements import require_arrow
from penstock.private_files import make_private_file, make_private_folder

_LONGEST = 200


class CopyFile(ABC):
    """A file that is being written beside its name. Write, then `commit`; or `discard` it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        make_private_folder(path.parent)
        self.partial = path.with_name(f".{path.name}.{token_hex(4)}.partial")
        make_private_file(self.partial)

    @abstractmethod
    def write(self, rows: Sequence[Row]) -> None:
        """Add some rows. Raises OSError."""

    def commit(self) -> None:
        """It is whole: give it its name. Raises OSError."""
        self.close()
        os.replace(self.partial, self.path)

    def discard(self) -> None:
        """Leave nothing behind but what was committed."""
        with suppress(OSError):  # what is left to be written has no place
            self.close()
        with suppress(OSError):  # on a disk that takes no changes it stays
            self.partial.unlink(missing_ok=True)

    @abstractmethod
    def close(self) -> None:
        """Give back the file."""


def copy_file(folder: Path, name: str, schema: Schema) -> CopyFile:
    """A new file of rows. Raises `BadPlan` for a name with folders or another ending, `BadInput` where
    pyarrow is needed and not there."""
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
    """An object per line."""

    def __init__(self, path: Path, schema: Schema) -> None:
        super().__init__(path)
        self._record = to_object(schema.fields)
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
    """A row group per part."""

    def __init__(self, path: Path, schema: Schema) -> None:
        require_arrow(f"the copy {path.name}")
        super().__init__(path)
        self._schema = schema
        self._arrow: Any = import_module("penstock.io.arrow")
        parquet: Any = import_module("pyarrow.parquet")
        self._file: Any = parquet.ParquetWriter(self.partial, self._arrow.arrow_schema(schema))

    def write(self, rows: Sequence[Row]) -> None:
        if rows:
            self._file.write_table(self._arrow.rows_to_table(rows, self._schema))

    def close(self) -> None:
        self._file.close()


_KINDS: dict[str, Callable[[Path, Schema], CopyFile]] = {".jsonl": _JsonLines, ".parquet": _Parquet}
