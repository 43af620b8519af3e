"""Keyed tables: keys, the net change of a tick per key, and rows held back.

A row's deletion may arrive before its insertion, or name a row that never arrives. Without a key the two
cases look the same until the input ends. A changelog records such a change as it is. A table hides the row,
remembers its negative multiplicity, and cancels it against a later insertion. At the end of the run, rows
still held back are reported with the sources they may come from.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from pathlib import Path
from typing import Any

from headrace.errors import BadInput, DuplicateKey
from headrace.expr.types import (
    DataType,
    DecimalType,
    FloatingType,
    ListType,
    MapType,
    Row,
    Rows,
    Schema,
    StructType,
)
from headrace.expr.value_keys import key_function
from headrace.file_system import move

# --- held-back rows -------------------------------------------------------------------------------


MAX_LISTED = 10
"""Limit on the rows that a report lists one by one."""


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Report of the rows a table still holds back.

    rows:    number of distinct rows.
    some:    a few of them, as changes with their negative weights.
    sources: table sources that the rows may come from.
    """

    rows: int
    some: Sequence[Any]
    sources: tuple[str, ...]


def consolidate_rows(rows: Iterable[Row]) -> dict[Row, int]:
    """Sum the weights (last fields) of equal rows. Memory use is limited to rows with a non-zero sum."""
    sums: dict[Row, int] = {}
    for *values, weight in rows:
        row = tuple(values)
        if total := sums.get(row, 0) + weight:
            sums[row] = total
        else:
            sums.pop(row, None)
    return sums


def source_names(sources: Sequence[str]) -> str:
    """Join source names for use in a sentence."""
    if len(sources) == 1:
        return f"source {sources[0]!r}"
    return f"one of the sources {', '.join(map(repr, sources))}"


def report_lines(held_back: Mapping[str, HeldBack]) -> Iterator[str]:
    """Format the report of rows still held back at the end of a run."""
    for sink, held in held_back.items():
        if held.rows == 1:
            what, them = "1 row was retracted more often than inserted", "it"
        else:
            what, them = f"{held.rows:,} rows were retracted more often than inserted", "them"
        yield f"{source_names(held.sources)}: {what}; sink {sink!r} holds {them} back:"
        yield from (f"  {change.weight:+d} {change.row!r}" for change in held.some)
        if held.rows > len(held.some):
            yield f"  and {held.rows - len(held.some):,} more"


class HeldRows:
    """Held-back rows of a sink in an external system, stored in a folder if they must survive the run.

    Each tick that changes the held-back rows writes a file before it commits. The previous file is kept,
    because the tick may have to be delivered again.
    """

    def __init__(self, schema: Schema, folder: Path | None) -> None:
        self.rows: dict[Row, int] = {}
        self._schema = schema
        self._folder = None if folder is None else folder / "held"
        self._tick = 0
        self._before: dict[Row, int] = {}

    def recover(self, tick: int) -> None:
        """Restore the rows held back as of the committed `tick`, and drop files of later ticks."""
        for number in self._numbers():
            if number > tick:
                self._path(number).unlink()
        self.rows, self._before, self._tick = self._read(tick), self._read(tick - 1), tick

    def before(self, tick: int) -> dict[Row, int]:
        """Return the rows held back before a tick, ignoring files of earlier attempts at it."""
        return self._before if tick == self._tick else self.rows

    def keep(self, tick: int, rows: dict[Row, int]) -> None:
        """Store the rows held back after a tick, on disk if there is a folder."""
        before = self.before(tick)
        if self._folder is not None and (rows != before or self._path(tick).exists()):
            self._write(self._path(tick), rows)
            newest_before = max((number for number in self._numbers() if number < tick), default=0)
            for number in self._numbers():
                if number < newest_before:
                    self._path(number).unlink()
        self.rows, self._before, self._tick = rows, before, tick

    def _write(self, path: Path, rows: dict[Row, int]) -> None:
        from headrace.io.arrow import write_part

        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.stem}.tmp")
        write_part(aside, [(*row, weight) for row, weight in rows.items()], self._schema)
        move(aside, path, durable=True)

    def _read(self, tick: int) -> dict[Row, int]:
        from headrace.io.arrow import read_part

        last = max((number for number in self._numbers() if number <= tick), default=None)
        return {} if last is None else consolidate_rows(read_part(self._path(last), self._schema))

    def _path(self, tick: int) -> Path:
        assert self._folder is not None
        return self._folder / f"{tick:012d}.parquet"

    def _numbers(self) -> list[int]:
        if self._folder is None or not self._folder.is_dir():
            return []
        return [int(file.stem) for file in self._folder.iterdir() if file.stem.isdigit()]


# --- keys and net changes -------------------------------------------------------------------------


Text = Callable[[Any], str]


@singledispatch
def text_converter(data_type: DataType) -> Text:
    """Build a converter from values to text that is equal for equal values in every process."""
    # repr is exact and fixed for bool, int, str, bytes, date and for datetimes in UTC.
    return repr


@text_converter.register(FloatingType)
@text_converter.register(DecimalType)
def _(data_type: DataType) -> Text:
    # Hashes of numbers do not depend on the process, and -0.0 and 0.0, 1.0 and 1.00 have the same.
    return lambda value: "nan" if value != value else str(hash(value))


@text_converter.register
def _(data_type: ListType) -> Text:
    element = nullable_text(data_type.element)
    return lambda values: "[" + ",".join(map(element, values)) + "]"


@text_converter.register
def _(data_type: StructType) -> Text:
    parts = [nullable_text(f.type) for f in data_type.fields]
    return lambda values: "(" + ",".join(part(value) for part, value in zip(parts, values)) + ")"


@text_converter.register
def _(data_type: MapType) -> Text:
    entries, key = text_converter(data_type.entries), key_function(data_type)
    return lambda value: entries(key(value))


def nullable_text(data_type: DataType) -> Text:
    inner = text_converter(data_type)
    return lambda value: "-" if value is None else inner(value)


@dataclass(frozen=True, slots=True)
class Bucketing:
    """Assignment of rows to buckets by key hash, stable across processes and versions.

    columns: positions of the key. buckets: their number.
    """

    columns: tuple[int, ...]
    buckets: int
    texts: tuple[Text, ...]

    def key(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(row[at] for at in self.columns)

    def bucket(self, row: tuple[Any, ...]) -> int:
        """Return the bucket number of a row; a trailing weight is ignored."""
        text = ",".join(part(row[at]) for part, at in zip(self.texts, self.columns))
        return zlib.crc32(text.encode("utf-8", "surrogatepass")) % self.buckets


def _unknown(columns: list[str]) -> str:
    if not columns:
        return "no column"
    return f"unknown column{'s' * (len(columns) > 1)} {', '.join(map(repr, columns))}"


def build_bucketing(sink: str, schema: Schema, key: tuple[str, ...] | None, buckets: int) -> Bucketing:
    """Build a bucketing by key columns, or by the whole row if `key` is None.

    Raises `BadInput` for unknown columns.
    """
    names = schema.names if key is None else key
    unknown = [name for name in names if schema.position(name) is None]
    if unknown or not names:
        raise BadInput(
            f"sink {sink!r}: the key has {_unknown(unknown)}",
            why=f"the stream has the columns {', '.join(schema.names)}",
            fix="give key=(...) with columns of the stream",
            sink=sink,
            unknown=tuple(unknown),
        )
    columns = tuple(schema.names.index(name) for name in names)
    return Bucketing(columns, buckets, tuple(nullable_text(schema.fields[at].type) for at in columns))


GOES, COMES, REPLACES = -1, 1, 2
"""Markers that replace the weight as the last field of a row in a net change."""


def validate_key(sink: str, schema: Schema, key: tuple[str, ...]) -> tuple[str, ...]:
    """Validate a key and return its columns. Raises `BadInput` for unknown columns and for nullable ones."""
    build_bucketing(sink, schema, key, 1)
    for name in key:
        position = schema.position(name)
        assert position is not None
        if schema.fields[position].nullable:
            raise BadInput(
                f"sink {sink!r}: the key's column {name!r} may be null",
                why="a row without a key could not be found again when it is retracted",
                fix=f"filter such rows out and declare it, or give it a value: coalesce(col.{name}, ...)",
                sink=sink,
                column=name,
            )
    return key


@dataclass(frozen=True, slots=True)
class TableKey:
    """Key of a table, with the sink and the row sources to name in errors."""

    sink: str
    schema: Schema
    key: tuple[str, ...]
    sources: tuple[str, ...] = ()

    def of(self) -> Callable[[Row], Row]:
        """Return a function that extracts the key from a row."""
        return build_bucketing(self.sink, self.schema, self.key, 1).key


@dataclass(frozen=True, slots=True)
class NetChange:
    """Net effect of a tick's changes on a table.

    rows: one row per changed key, followed by GOES, COMES or REPLACES.
    held: rows with negative multiplicity, weight last.
    """

    rows: Rows
    held: Rows


def net_change(
    keys: TableKey, there: Iterable[Row], changes: Mapping[Row, int], *, replaces: bool = False
) -> NetChange:
    """Compute the net effect of `changes`, which include the held-back rows of their keys, on a table.

    there:    the rows of the table that have one of these keys.
    replaces: a row that no change names may belong to another writer, and is replaced.

    Raises `DuplicateKey` if a key has two rows afterwards.
    """
    key = keys.of()
    now = {key(row): row for row in there}
    groups: dict[Row, dict[Row, int]] = {}
    for row, weight in changes.items():
        groups.setdefault(key(row), {})[row] = weight
    rows: Rows = []
    held: Rows = []
    twice: list[Row] = []
    for found, counts in groups.items():
        old = now.get(found)
        if old is not None and not (replaces and old not in counts and max(counts.values()) > 0):
            counts[old] = counts.get(old, 0) + 1
        shown = [row for row, count in counts.items() for _ in range(min(count, 2))]
        held += [(*row, count) for row, count in counts.items() if count < 0]
        if len(shown) > 1:
            twice = twice or shown[:2]
        elif not shown and old is not None:
            rows.append((*old, GOES))
        elif shown and shown[0] != old:
            rows.append((*shown[0], COMES if old is None else REPLACES))
    if twice:
        raise duplicate_key_error(keys, twice[0], twice[1], held=held)
    return NetChange(rows, held)


_TABLE_FIX = "give a key that is unique, or write a changelog, which keeps all changes"
_MAX_OTHERS = 3
"""Limit on the rows of other keys that an error lists one by one."""


def duplicate_key_error(
    keys: TableKey, one: Row, other: object, *, held: Rows, fix: str = _TABLE_FIX
) -> DuplicateKey:
    """Build the error for two rows with one key. held: rows the tick would hold back, weight last.

    An update whose old row has the wrong key retracts a row of that key, and leaves the one that was meant.
    """
    key = keys.of()
    own = [row for row in held if key(row) == key(one)]
    also = [row for row in held if key(row) != key(one)]
    parts = [f"{one!r}\nand {other!r}"]
    parts += [f"{row[:-1]!r} was retracted, and is missing." for row in own]
    parts += [f"{row[:-1]!r} was also retracted in this tick, and is missing." for row in also[:_MAX_OTHERS]]
    if len(also) > _MAX_OTHERS:
        parts.append(f"{len(also) - _MAX_OTHERS:,} more retracted rows are missing.")
    if keys.sources and own:
        parts[-1] += f" It comes from {source_names(keys.sources)}."
    elif keys.sources:
        parts.append(f"The rows come from {source_names(keys.sources)}.")
    if held:
        parts.append("A retraction must match the inserted row in every column.")
        fix = f"correct the change that retracts a missing row; or {fix}"
    return DuplicateKey(
        f"sink {keys.sink!r}: two rows have the same key ({', '.join(keys.key)})",
        why="\n".join(parts),
        fix=fix,
        sink=keys.sink,
        key=key(one),
        held=tuple(own),
        also_held=tuple(also),
        sources=keys.sources,
    )
