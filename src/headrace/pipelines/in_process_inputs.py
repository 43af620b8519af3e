"""Rows of inputs as Arrow tables, for tables that are brought up to date without Spark.

What is read here is what Spark reads, or nothing: a file of another form than the query's columns, an option,
or a value that Spark would have to interpret makes the table one for Spark (`NeedsSpark`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.pipelines.errors import NeedsSpark
from headrace.pipelines.leaves import spark_columns

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from headrace.pipelines.leaves import FilesLeaf

_RATES = frozenset(("maxfilespertrigger", "maxbytespertrigger", "latestfirst"))
"""Options of streams that say how much is read at once: a run reads all that there is."""


def arrow_columns(schema: StructType) -> pa.Schema:
    """Return columns of Spark as those of Arrow. Raises `NeedsSpark` for types that Arrow lacks."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema

    if any("collate" in field.dataType.simpleString() for field in schema.fields):
        raise NeedsSpark("it has text with a collation")
    try:
        made: Any = to_arrow_schema(schema, timezone="UTC")
    except (PySparkException, ValueError, TypeError) as error:
        raise NeedsSpark(f"Arrow has no type of a column: {error}") from None
    return pa.schema([field.with_nullable(True) for field in made])


def rows_of_files(leaf: FilesLeaf, contents: Mapping[str, str], folders: Iterable[str]) -> pa.Table:
    """Read files as the query of a leaf does.

    contents: where the content of each file lies, by its path. folders: that have files of the input.

    Raises `NeedsSpark`.
    """
    wanted = arrow_columns(spark_columns(leaf))
    partitions = _Partitions.of(leaf, {*map(os.path.dirname, contents), *folders})
    if not contents:
        return wanted.empty_table()
    read = _READERS.get(leaf.form)
    if read is None:
        raise NeedsSpark(f"Spark reads files of the format {leaf.form}")
    for key, _ in leaf.options:
        if key.lower() != "path" and key.lower() not in _RATES:
            raise NeedsSpark(f"Spark reads files with the option {key}")
    inside = arrow_columns(partitions.inside)
    tables = [wanted.empty_table()]
    for path in sorted(contents):
        found = read(contents[path], partitions.inside, inside)
        for name, value in partitions.values(os.path.dirname(path)).items():
            found = found.append_column(wanted.field(name), pa.repeat(value, len(found)))
        tables.append(found.select(wanted.names))
    return pa.concat_tables(tables)


# --- folders of partitions ------------------------------------------------------------------------


NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


def partition_of(root: str | Path, folder: str | Path) -> dict[str, str | None]:
    """Return the partition values in the names of folders below a root: `year=2026`, as by Hive.

    An escape stands for the character of that number, as Spark reads it.
    """
    found: dict[str, str | None] = {}
    for part in Path(folder).relative_to(root).parts:
        name, _, value = part.partition("=")
        found[_unescaped(name)] = None if value == NULL_PARTITION else _unescaped(value)
    return found


_unescaped = partial(unquote, encoding="latin-1")


@dataclass(frozen=True, slots=True)
class _Partitions:
    """Partitions of an input. inside: columns of its files. columns: partition columns, with their types."""

    leaf: FilesLeaf
    inside: StructType
    columns: Mapping[str, DataType]

    @classmethod
    def of(cls, leaf: FilesLeaf, folders: Iterable[str]) -> _Partitions:
        from pyspark.sql.types import StructType

        schema = spark_columns(leaf)
        parsed = [partition_of(_root(leaf, folder), folder) for folder in folders]
        if any(tuple(each) != leaf.partitions for each in parsed):
            raise NeedsSpark(f"the folders of {leaf.key} have other partition columns than before")
        columns = {name: schema[name].dataType for name in leaf.partitions}
        inside = StructType([each for each in schema.fields if each.name not in columns])
        if columns and not inside.fields:
            raise NeedsSpark(f"{leaf.key} has no columns but those of partitions")
        for name, of in columns.items() if not leaf.given else ():
            if not any(_infers(of, each[name]) for each in parsed):
                raise NeedsSpark(f"{name} of {leaf.key} may be of another type now")
        return cls(leaf, inside, columns)

    def values(self, folder: str) -> dict[str, pa.Scalar[Any]]:
        """Return the partition values of a folder. Raises `NeedsSpark`."""
        parsed = partition_of(_root(self.leaf, folder), folder) if self.columns else {}
        return {name: _partition_value(folder, parsed[name], of) for name, of in self.columns.items()}


def _root(leaf: FilesLeaf, folder: str) -> str:
    """Return the folder below which names of folders have partition values."""
    roots = (each.rstrip("/") for each in leaf.roots)
    return next((root for root in roots if f"{folder}/".startswith(f"{root}/")), folder)


def _infers(of: DataType, text: str | None) -> bool:
    """Return whether a partition column has a type because of this value, whatever the others are.

    Spark tries numbers and times first.
    """
    from pyspark.sql import types as t

    match of:
        case t.StringType():
            return bool(re.fullmatch(r"(?!(?:nan|infinity|inf|now|today|yesterday|tomorrow|epoch)$)"
                                     r"[A-Za-z][A-Za-z_ -]+", text or "", re.IGNORECASE))  # fmt: skip
        case t.LongType():
            return bool(re.fullmatch(r"[1-9]\d{10,17}", text or ""))
        case t.IntegerType() | t.DateType():
            return text is not None
        case _:
            return False


def _partition_value(folder: str, text: str | None, of: DataType) -> pa.Scalar[Any]:
    """Return a partition value. Raises `NeedsSpark` for text that Spark would interpret."""
    from pyspark.sql import types as t

    plain = {
        t.IntegerType: (r"0|-?[1-9]\d{0,9}", pa.int32()),
        t.LongType: (r"0|-?[1-9]\d{0,17}", pa.int64()),
        t.DateType: (r"\d{4}-\d\d-\d\d", pa.date32()),
        t.StringType: (r"(?s).+", pa.string()),
    }.get(type(of))
    if plain is None or (text is not None and not re.fullmatch(plain[0], text)):
        raise NeedsSpark(f"only Spark can read the partition values of {folder}")
    try:
        return pa.scalar(text, pa.string()).cast(plain[1])
    except pa.ArrowException:
        raise NeedsSpark(f"only Spark can read the partition values of {folder}") from None


# --- Parquet --------------------------------------------------------------------------------------


def _read_parquet(path: str, schema: StructType, wanted: pa.Schema) -> pa.Table:
    try:
        file = pq.ParquetFile(path)
        _check_writer(path, file.metadata.metadata or {})
        there = file.schema_arrow
        folded = {name.lower() for name in wanted.names}
        found = file.read([name for name in there.names if name.lower() in folded])
        return columns_of_table(path, found, wanted)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise NeedsSpark(f"{path} cannot be read: {error}") from None


def _check_writer(path: str, metadata: Mapping[bytes, bytes]) -> None:
    """Raise `NeedsSpark` for dates and times of a calendar that Spark converts."""
    for key in (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"):
        if key in metadata:
            raise NeedsSpark(f"{path} has dates of the Julian calendar")


def columns_of_table(what: str, found: pa.Table, wanted: pa.Schema) -> pa.Table:
    """Return a table with these columns, null where it lacks them. Raises `NeedsSpark` for other types."""
    folded = {name.lower(): name for name in found.column_names}
    if len(folded) < len(found.column_names):
        raise NeedsSpark(f"{what} has columns whose names differ in case only")
    columns: list[Any] = []
    for field in wanted:
        name = folded.get(field.name.lower())
        if name is None:
            columns.append(pa.nulls(len(found), field.type))
        elif name != field.name or not _same_values(found.schema.field(name).type, field.type):
            raise NeedsSpark(f"{what} has {name} as {found.schema.field(name).type}, not {field.type}")
        else:
            columns.append(found[name].cast(field.type))
    return pa.Table.from_arrays(columns, schema=pa.schema([field.with_nullable(True) for field in wanted]))


def _same_values(there: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a type holds the values of another one as they are."""
    if pa.types.is_dictionary(there):
        there = there.value_type
    if pa.types.is_large_string(there) or pa.types.is_string_view(there):
        there = pa.string()
    if pa.types.is_large_binary(there) or pa.types.is_binary_view(there):
        there = pa.binary()
    if pa.types.is_struct(there) and pa.types.is_struct(wanted):
        names = [field.name for field in there] == [field.name for field in wanted]
        return names and all(_same_values(a.type, b.type) for a, b in zip(there, wanted, strict=True))
    if pa.types.is_list(there) and pa.types.is_list(wanted):
        return _same_values(there.value_type, wanted.value_type)
    return bool(there.equals(wanted))


# --- JSON -----------------------------------------------------------------------------------------


def _read_json(path: str, schema: StructType, wanted: pa.Schema) -> pa.Table:
    """Read lines of JSON whose values need no conversion. Raises `NeedsSpark` for all others."""
    if Path(path).suffix.lower() in (".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate", ".xz"):
        raise NeedsSpark(f"{path} is compressed")
    try:
        text = Path(path).read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NeedsSpark(f"{path} cannot be read: {error}") from None
    if "\ufeff" in text[:1] or "\0" in text:
        raise NeedsSpark(f"{path} is no plain UTF-8")
    convert = {field.name: _value_of(path, field.name, field.dataType) for field in schema.fields}
    columns: dict[str, list[Any]] = {name: [] for name in convert}
    keys = set[str]()
    for number, line in enumerate(re.split("\r\n|\r|\n", text), 1):
        if not line:
            continue
        try:
            record: Any = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if type(record) is not dict:
            raise NeedsSpark(f"{path}, line {number}, is no JSON object")
        keys.update(record)
        for name, values in columns.items():
            value = record.get(name)
            values.append(None if value is None else convert[name](value))
    folded = {name.lower() for name in columns}
    if others := sorted(key for key in keys - columns.keys() if key.lower() in folded):
        raise NeedsSpark(f"{path} has {others[0]!r}, as a column is called in another case")
    try:
        return pa.table([pa.array(columns[f.name], f.type) for f in wanted], names=wanted.names)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
        raise NeedsSpark(f"{path}: {error}") from None


def _value_of(path: str, name: str, of: DataType) -> Callable[[Any], Any]:
    """Return the function from a value in JSON to one of a type. Raises `NeedsSpark` for further types."""
    from pyspark.sql import types as t

    def other(value: Any) -> NeedsSpark:
        return NeedsSpark(f"{path}: {name} is {type(value).__name__}, to be read as {of.simpleString()}")

    def plain(kind: type, value: Any) -> Any:
        if type(value) is not kind:
            raise other(value)
        return value

    def double(value: Any) -> float:
        if type(value) not in (int, float) or not isfinite(value) or abs(value) >= 1 << 53:
            raise other(value)
        return float(value)

    def day(value: Any) -> date:
        if type(value) is not str or not re.fullmatch(r"\d{4}-\d\d-\d\d", value):
            raise other(value)
        try:
            return date.fromisoformat(value)
        except ValueError:
            raise other(value) from None

    match of:
        case t.IntegerType() | t.LongType() | t.ShortType() | t.ByteType():
            return partial(plain, int)
        case t.StringType():
            return partial(plain, str)
        case t.BooleanType():
            return partial(plain, bool)
        case t.DoubleType():
            return double
        case t.DateType():
            return day
        case _:
            raise NeedsSpark(f"Spark reads {of.simpleString()} in JSON")


_READERS: Mapping[str, Callable[[str, Any, pa.Schema], pa.Table]] = {
    "parquet": _read_parquet,
    "json": _read_json,
}
