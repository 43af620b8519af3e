"""Rows of inputs as Arrow tables, for tables that are brought up to date without Spark.

What is read here is what Spark reads, or nothing: a file of another form than the query's columns, an option,
or a value that Spark would have to interpret makes the table one for Spark (`NeedsSpark`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.pipelines.errors import NeedsSpark
from headrace.pipelines.leaves import spark_columns

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from headrace.pipelines.leaves import FilesLeaf

_compute: Any = pc

_PLACING = frozenset(("path", "pathglobfilter", "recursivefilelookup"))
"""Options that say which files are read."""

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
    reader = _READERS.get(leaf.form)
    if reader is None:
        raise NeedsSpark(f"Spark reads files of the format {leaf.form}")
    for key in sorted(leaf.named_options.keys() - reader.options - _PLACING - _RATES):
        raise NeedsSpark(f"Spark reads files with the option {key}")
    inside = arrow_columns(partitions.inside)
    tables = [wanted.empty_table()]
    for path in sorted(contents):
        found = reader.read(contents[path], partitions.inside, inside, leaf)
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
        found = () if leaf.is_recursive else folders
        parsed = [partition_of(_root(leaf, folder), folder) for folder in found]
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
        return {name: partition_value(folder, parsed[name], of) for name, of in self.columns.items()}


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


def partition_value(folder: str, text: str | None, of: DataType) -> pa.Scalar[Any]:
    """Return a partition value. Raises `NeedsSpark` for text that Spark would interpret."""
    from pyspark.sql import types as t

    plain = {
        t.IntegerType: (r"0|-?[1-9]\d{0,9}", pa.int32()),
        t.LongType: (r"0|-?[1-9]\d{0,17}", pa.int64()),
        t.DateType: (r"\d{4}-\d\d-\d\d", pa.date32()),
        t.BooleanType: ("true|false", pa.bool_()),
        t.StringType: (r"(?s).+", pa.string()),
    }.get(type(of))
    if plain is None or (text is not None and not re.fullmatch(plain[0], text)):
        raise NeedsSpark(f"only Spark can read the partition values of {folder}")
    try:
        return pa.scalar(text, pa.string()).cast(plain[1])
    except pa.ArrowException:
        raise NeedsSpark(f"only Spark can read the partition values of {folder}") from None


# --- Parquet --------------------------------------------------------------------------------------


def _read_parquet(path: str, schema: StructType, wanted: pa.Schema, leaf: FilesLeaf) -> pa.Table:
    try:
        file = pq.ParquetFile(path)
        check_writer(path, file)
        there = file.schema_arrow
        folded = {name.lower() for name in wanted.names}
        found = file.read([name for name in there.names if name.lower() in folded])
        return columns_of_table(path, found, wanted)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise NeedsSpark(f"{path} cannot be read: {error}") from None


def check_writer(path: str, file: pq.ParquetFile) -> None:
    """Raise `NeedsSpark` for a file whose dates and times may be of a calendar that Spark converts."""
    metadata = file.metadata.metadata or {}
    legacy = {b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"} & metadata.keys()
    if legacy or metadata.get(b"org.apache.spark.version", b"3").startswith((b"1.", b"2.", b"3.0.")):
        raise NeedsSpark(f"{path} may have dates of the Julian calendar, which Spark converts")


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
    if pa.types.is_timestamp(there) and pa.types.is_timestamp(wanted) and wanted.tz is not None:
        # A time without an offset is one in UTC to Spark, whatever zone the session has.
        return there.unit in ("ms", "us")
    return bool(there.equals(wanted))


# --- lines of text --------------------------------------------------------------------------------


_CORRUPT = "_corrupt_record"
"""Column in which Spark shows records that it cannot read."""


def _lines(path: str, schema: StructType) -> list[str]:
    """Return the lines of a file of UTF-8, empty ones too. Raises `NeedsSpark` for what may not be such."""
    if Path(path).suffix.lower() in (".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate", ".xz"):
        raise NeedsSpark(f"{path} is compressed")
    if _CORRUPT in map(str.lower, schema.names):
        raise NeedsSpark(f"Spark fills the column {_CORRUPT}")
    try:
        text = Path(path).read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NeedsSpark(f"{path} cannot be read: {error}") from None
    if "\ufeff" in text[:1] or "\0" in text:
        raise NeedsSpark(f"{path} is no plain UTF-8")
    return re.split("\r\n|\r|\n", text)


_TIME = re.compile(
    r"[12][0-9]{3}-[0-9]{2}-[0-9]{2}[ T](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
    r"(?P<zone>Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9])?"
)
"""Times that all readers take for the same, if they know the zone."""


def _reader_of_times(of: DataType, leaf: FilesLeaf) -> Callable[[str], datetime]:
    """Return the function from a text to a time of a type, which raises `NeedsSpark` for others."""
    from pyspark.sql.types import TimestampType

    in_zone = isinstance(of, TimestampType)

    def read(text: str) -> datetime:
        found = _TIME.fullmatch(text)
        if found is None or (not in_zone and found["zone"]) or (in_zone and not (found["zone"] or leaf.utc)):
            raise NeedsSpark(f"Spark reads the time {text[:40]!r}")
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            raise NeedsSpark(f"Spark reads the time {text[:40]!r}") from None
        return time.replace(tzinfo=UTC) if in_zone and time.tzinfo is None else time

    return read


# --- JSON -----------------------------------------------------------------------------------------


def _read_json(path: str, schema: StructType, wanted: pa.Schema, leaf: FilesLeaf) -> pa.Table:
    """Read lines of JSON whose values need no conversion. Raises `NeedsSpark` for all others."""
    convert = {field.name: _value_of(path, field.name, field.dataType, leaf) for field in schema.fields}
    columns: dict[str, list[Any]] = {name: [] for name in convert}
    keys = set[str]()
    for number, line in enumerate(_lines(path, schema), 1):
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


def _value_of(path: str, name: str, of: DataType, leaf: FilesLeaf) -> Callable[[Any], Any]:
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
        case t.TimestampType() | t.TimestampNTZType():
            read = _reader_of_times(of, leaf)
            return lambda value: read(plain(str, value))
        case _:
            raise NeedsSpark(f"Spark reads {of.simpleString()} in JSON")


# --- CSV ------------------------------------------------------------------------------------------


_BLANK = "".join(map(chr, range(33)))
"""Characters that Spark trims when it looks for empty lines."""


_SEPARATORS = (*",;|:~^\t", "\\t")
_CSV_VALUES: Mapping[str, tuple[str, ...]] = {
    "header": ("false", "true"),
    "sep": _SEPARATORS,
    "delimiter": _SEPARATORS,
    "quote": ('"',),
    "escape": ("\\", '"'),
}
"""Values of options that are understood, in lower case; the first is the default."""


@dataclass(frozen=True, slots=True)
class _CsvForm:
    """Form of a CSV file, as its options say. doubled: whether a quote in quotes is written twice."""

    header: bool
    separator: str
    null: str
    doubled: bool

    @classmethod
    def of(cls, options: Mapping[str, str]) -> _CsvForm:
        """Return the form that options describe. Raises `NeedsSpark` for values that are not understood."""
        for key, values in _CSV_VALUES.items():
            if options.get(key, values[0]).lower() not in values:
                raise NeedsSpark(f"Spark reads CSV with {key}={options[key]!r}")
        if "sep" in options and "delimiter" in options:
            raise NeedsSpark("Spark reads CSV with both sep and delimiter")
        separator = options.get("sep", options.get("delimiter", ",")).replace("\\t", "\t")
        header, doubled = options.get("header", "").lower() == "true", options.get("escape") == '"'
        return cls(header, separator, options.get("nullvalue", ""), doubled)

    def records(self, path: str, lines: Iterable[str]) -> Iterator[list[str]]:
        """Yield the values of each line. Raises `NeedsSpark` for quotes that readers differ on."""
        sep = re.escape(self.separator)
        quoted, plain = (r'(?:[^"\\]++|"")++' if self.doubled else r'[^"\\]++'), rf'[^"\\{sep}]*+'
        # Each value has a separator before it, also the first.
        value = re.compile(f'{sep}(?:"({quoted})"|({plain}))')
        whole = re.compile(f"(?:{value.pattern})+")
        for line in lines:
            if '"' not in line and "\\" not in line:
                yield line.split(self.separator)
            elif whole.fullmatch(text := self.separator + line):
                yield [inside.replace('""', '"') or outside for inside, outside in value.findall(text)]
            else:
                raise NeedsSpark(f"{path} has quotes or escapes that only Spark reads")


def _read_csv(path: str, schema: StructType, wanted: pa.Schema, leaf: FilesLeaf) -> pa.Table:
    """Read lines of CSV whose values can be read in one way only. Raises `NeedsSpark` for all others."""
    form = _CsvForm.of(leaf.named_options)
    lines = [line for line in _lines(path, schema) if line]
    if not all(line.strip(_BLANK) for line in lines):
        raise NeedsSpark(f"{path} has lines of nothing but blanks")
    records = list(form.records(path, lines))[form.header :]
    if any(len(record) != len(wanted) for record in records):
        raise NeedsSpark(f"{path} has lines of more or fewer than {len(wanted)} values")
    columns = zip(*records, strict=True) if records else ((),) * len(wanted)
    nulls = pa.array({"", form.null}, pa.string())
    made: list[pa.Array] = []
    for field, of, values in zip(wanted, schema.fields, columns, strict=True):
        texts = pa.array(values, pa.string())
        texts = _compute.if_else(_compute.is_in(texts, value_set=nulls), None, texts)
        try:
            made.append(_column_of(texts, of.dataType, field.type, leaf))
        except (NeedsSpark, pa.ArrowException) as error:
            why = error.what if isinstance(error, NeedsSpark) else str(error)
            raise NeedsSpark(f"{path}: {of.name}: {why}") from None
    return pa.Table.from_arrays(made, names=wanted.names)


def _column_of(texts: pa.Array, of: DataType, wanted: pa.DataType, leaf: FilesLeaf) -> pa.Array:
    """Return the values that texts stand for. Raises `NeedsSpark` and Arrow's errors."""
    from pyspark.sql import types as t

    if isinstance(of, (t.TimestampType, t.TimestampNTZType)):
        read = _reader_of_times(of, leaf)
        return pa.array([text and read(text) for text in texts.to_pylist()], wanted)
    plain = _compute.match_substring_regex(texts, rf"\A(?:{_text_pattern(of)})\z")
    if _compute.all(plain).as_py() is False:
        raise NeedsSpark(f"Spark reads some of these values of {of.simpleString()}")
    return texts.cast(wanted)


def _text_pattern(of: DataType) -> str:
    """Return the pattern of texts that all readers take for the same value. Raises `NeedsSpark`."""
    from pyspark.sql import types as t

    match of:
        case t.StringType():
            return "(?s:.*)"
        case t.IntegerType() | t.LongType() | t.ShortType() | t.ByteType():
            return "-?[0-9]{1,19}"
        case t.DoubleType() | t.FloatType():
            return r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?"
        case t.DecimalType(precision=precision, scale=scale):
            whole, rest = precision - scale, rf"(?:\.[0-9]{{1,{scale}}})?" if scale else ""
            return f"-?{f'[0-9]{{1,{whole}}}' if whole else '0'}{rest}"
        case t.BooleanType():
            return "(?i:true|false)"
        case t.DateType():
            return "[12][0-9]{3}-[0-9]{2}-[0-9]{2}"
        case _:
            raise NeedsSpark(f"Spark reads {of.simpleString()} in CSV")


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reader of a format.

    read: gives the rows of a file at a path, with columns of Spark and of Arrow, as the query of a leaf does.
    options: names, in lower case, of those that it understands.
    """

    read: Callable[[str, StructType, pa.Schema, FilesLeaf], pa.Table]
    options: frozenset[str] = frozenset()


_READERS: Mapping[str, _Reader] = {
    "parquet": _Reader(_read_parquet, frozenset(("mergeschema",))),
    "json": _Reader(_read_json, frozenset(("mode",))),
    "csv": _Reader(_read_csv, frozenset((*_CSV_VALUES, "nullvalue", "mode"))),
}
