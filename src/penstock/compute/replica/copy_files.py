"""Files that copies are written to. Their values can be read again by sources of the same schema.

A file has its name only once it is whole; an older one of that name is replaced.
"""

from __future__ import annotations

import json
import math
import os
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Callable, Sequence
from functools import singledispatch
from importlib import import_module
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeAlias

from penstock.compute.errors import BadPlan
from penstock.compute.protocol.responses import Row
from penstock.expr.types import (
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Field,
    Float64Type,
    ListType,
    Schema,
    StructType,
    TimestampType,
)
from penstock.io.arrow_needed import need_arrow

_LONGEST = 200


class CopyFile(ABC):
    """A file that is being written beside its name. Write, then `commit`; or `discard` it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.partial = path.with_name(f".{path.name}.{token_hex(4)}.partial")

    @abstractmethod
    def write(self, rows: Sequence[Row]) -> None:
        """Add some rows. Raises OSError."""

    def commit(self) -> None:
        """It is whole: give it its name. Raises OSError."""
        self.close()
        os.replace(self.partial, self.path)

    def discard(self) -> None:
        """Leave nothing behind but what was committed."""
        self.close()
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
        self._fields = [(field.name, _json(field.type)) for field in schema.fields]
        self._file = self.partial.open("w", encoding="utf-8", newline="\n")

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            record = {n: convert(v) for (n, convert), v in zip(self._fields, row, strict=True)}
            self._file.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")

    def commit(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        super().commit()

    def close(self) -> None:
        self._file.close()


class _Parquet(CopyFile):
    """A row group per part."""

    def __init__(self, path: Path, schema: Schema) -> None:
        need_arrow(f"the copy {path.name}")
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

_ToJson: TypeAlias = Callable[[Any], Any]


def _json(data_type: DataType) -> _ToJson:
    """From a value, or None, to what JSON has for it."""
    convert = _to_json(data_type)
    return lambda value: None if value is None else convert(value)


@singledispatch
def _to_json(data_type: DataType) -> _ToJson:
    return lambda value: value


@_to_json.register
def _(data_type: Float64Type) -> _ToJson:
    return lambda value: value if math.isfinite(value) else _not_finite(value)


def _not_finite(value: float) -> str:
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


@_to_json.register(DecimalType)
def _decimal(data_type: DecimalType) -> _ToJson:
    return str


@_to_json.register(DateType)
@_to_json.register(TimestampType)
def _moment(data_type: DateType | TimestampType) -> _ToJson:
    return lambda value: value.isoformat()


@_to_json.register
def _(data_type: BytesType) -> _ToJson:
    return lambda value: b64encode(value).decode("ascii")


@_to_json.register
def _(data_type: ListType) -> _ToJson:
    element = _json(data_type.element)
    return lambda values: [element(value) for value in values]


@_to_json.register
def _(data_type: StructType) -> _ToJson:
    return _record(data_type.fields)


def _record(fields: Sequence[Field]) -> _ToJson:
    parts = [(field.name, _json(field.type)) for field in fields]
    return lambda row: {name: convert(value) for (name, convert), value in zip(parts, row, strict=True)}
