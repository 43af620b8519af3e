"""Inference of a row class and a source URI from the rows of files."""

from __future__ import annotations

import csv
import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import singledispatchmethod
from itertools import islice
from pathlib import Path
from typing import Any

from headrace.errors import BadInput
from headrace.expr.types import (
    INT64,
    BoolType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Field,
    Float32Type,
    Float64Type,
    IntegerType,
    IntervalType,
    ListType,
    MapType,
    StrType,
    StructType,
    TimestampNtzType,
    TimestampType,
)
from headrace.io.column_shapes import (
    NULL_WORDS,
    ColumnShapes,
    Shape,
    TextColumn,
    kind_of_text,
    merge_fields,
    shape_of_json,
)
from headrace.io.files.csv_dialect import CsvDialect, likely_encoding
from headrace.io.files.file_reader import reported, unreadable
from headrace.io.files.file_source import Listing, line_blocks, open_bytes
from headrace.io.files.text_values import UnfitValue, unicode_text

# --- dialect of a CSV file ------------------------------------------------------------------------


_LOOKED_AT = 1 << 20
_RECORDS = 100


def sniff(path: Path) -> CsvDialect:
    """Find the dialect in which most records have as many fields as the first one, at least two."""
    with open_bytes(path) as file:
        encoding = likely_encoding(file.read(_LOOKED_AT))
    dialects = [CsvDialect(sep=sep, encoding=encoding) for sep in ",;\t|"]
    best, records = max(
        ((dialect, _records(path, dialect)) for dialect in dialects), key=lambda found: _regularity(found[1])
    )
    return (
        best
        if not records or _is_header(records[0])
        else CsvDialect(best.sep, encoding=encoding, header=False)
    )


def _records(path: Path, dialect: CsvDialect) -> list[list[str]]:
    with dialect.in_utf8(open_bytes(path)) as file:
        records: list[list[str]] = []
        with suppress(csv.Error):  # by another separator, quotes may stand within fields
            records.extend(islice(filter(None, dialect.reader(line_blocks(file))), _RECORDS))
        return records


def _regularity(records: list[list[str]]) -> tuple[float, int]:
    widths = Counter(map(len, records))
    width, count = widths.most_common(1)[0] if widths else (0, 0)
    return (count / len(records) if width > 1 else 0.0), width


def _is_header(first: list[str]) -> bool:
    return len({*first}) == len(first) and all(
        name and name not in NULL_WORDS and kind_of_text(name) == "text" for name in first
    )


# --- Python text of row classes -------------------------------------------------------------------


def row_class_text(name: str, fields: Sequence[Field]) -> str:
    """Write the classes of a row and of its nested rows, innermost first, with their imports."""
    classes = _Classes()
    classes.add(name, "", fields)
    modules = {**classes.imports, "typing": {"NamedTuple", *classes.imports.get("typing", ())}}
    # As isort orders them: the standard library, then ours.
    lines = [
        f"from {module} import {', '.join(sorted(modules[module]))}"
        for module in _MODULES
        if module in modules
    ]
    if "headrace" in modules:
        lines.insert(-1, "")
    return "\n".join(lines) + "".join(f"\n\n\n{text}" for text in classes.texts) + "\n"


_MODULES = ("datetime", "decimal", "typing", "headrace")
_TAKEN = (
    *("None", "True", "False", "NamedTuple", "Annotated", "Decimal", "DecimalType"),
    *("Float32", "Int8", "Int16", "Int32", "TimestampNtz"),
)
"""Names that a class cannot have, because they are keywords or imported for its columns."""


def class_name(words: str) -> str:
    """Make a class name from a file or column name: "order_lines" is OrderLines."""
    parts = "".join(c if c.isalnum() else " " for c in words).split()
    name = "".join(part[0].upper() + part[1:] for part in parts)
    return name if name.isidentifier() else f"Row{name}"


@dataclass(slots=True)
class _Classes:
    texts: list[str] = field(default_factory=list[str])
    imports: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    _names: set[str] = field(default_factory=lambda: {*_TAKEN})
    _prefix: str = ""

    def add(self, name: str, within: str, fields: Sequence[Field]) -> str:
        """Add a class, after the classes that it needs, and return its name."""
        while name in self._names:
            name = f"{within}{name}" if within else f"{name}Row"
        self._names.add(name)
        outer, self._prefix = self._prefix, name
        lines = [f"    {f.name}: {self._annotation(f.name, f.type, nullable=f.nullable)}" for f in fields]
        self._prefix = outer
        self.texts.append("\n".join([f"class {name}(NamedTuple):", *lines]))
        return name

    def _annotation(self, name: str, type: DataType, *, nullable: bool) -> str:
        return self._of(type, name) + (" | None" if nullable else "")

    def _import(self, module: str, name: str) -> str:
        self.imports.setdefault(module, set()).add(name)
        return name

    @singledispatchmethod
    def _of(self, type: Any, name: str) -> str:
        raise TypeError(type)

    @_of.register(BoolType | StrType | BytesType | Float64Type)
    def _(self, type: DataType, name: str) -> str:
        return str(type).rstrip("0123456789")

    @_of.register
    def _(self, type: IntegerType, name: str) -> str:
        return "int" if type == INT64 else self._import("headrace", str(type).title())

    @_of.register
    def _(self, type: DateType, name: str) -> str:
        return self._import("datetime", "date")

    @_of.register
    def _(self, type: TimestampType, name: str) -> str:
        return self._import("datetime", "datetime")

    @_of.register
    def _(self, type: Float32Type, name: str) -> str:
        return self._import("headrace", "Float32")

    @_of.register
    def _(self, type: IntervalType, name: str) -> str:
        return self._import("datetime", "timedelta")

    @_of.register
    def _(self, type: TimestampNtzType, name: str) -> str:
        return self._import("headrace", "TimestampNtz")

    @_of.register
    def _(self, type: DecimalType, name: str) -> str:
        self._import("typing", "Annotated")
        decimal, of = self._import("decimal", "Decimal"), self._import("headrace", "DecimalType")
        return f"Annotated[{decimal}, {of}({type.precision}, {type.scale})]"

    @_of.register
    def _(self, type: ListType, name: str) -> str:
        return f"list[{self._annotation(name, type.element, nullable=type.nullable)}]"

    @_of.register
    def _(self, type: MapType, name: str) -> str:
        return (
            f"dict[{self._of(type.key, name)}, {self._annotation(name, type.value, nullable=type.nullable)}]"
        )

    @_of.register
    def _(self, type: StructType, name: str) -> str:
        return self.add(class_name(name), self._prefix, type.fields)


_FORMATS = {
    "csv": ("csv", "tsv", "txt"),
    "json": ("json", "jsonl", "ndjson"),
    "parquet": ("parquet",),
}


@dataclass(frozen=True, slots=True)
class Inference:
    """Columns found in files. rows: number of rows read. partial: whether there are more.

    irregular: rows of CSV with more or fewer fields than the header. uri: of a source that reads the files.
    null_texts: text columns that hold a null word of the URI, by word; the URI reads it as null there, too.
    """

    name: str
    uri: str
    columns: ColumnShapes
    files: int
    rows: int
    partial: bool
    irregular: int = 0
    null_texts: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])

    def __str__(self) -> str:
        rows = f"{self.rows:,} row" + "s" * (self.rows != 1)
        files = f"{self.files:,} file" + "s" * (self.files != 1)
        lines = [f"# Read: {'the first ' if self.partial else ''}{rows} of {files}."]
        if self.irregular:
            rows = "1 row" if self.irregular == 1 else f"{self.irregular:,} rows"
            lines.append(f"# Skipped {rows} with a different number of fields.")
        lines += [f"# Left out: {name!r}, because {why}." for name, why in self.columns.left_out.items()]
        lines += [
            f"# null={word} also reads {word!r} as null in text columns: {', '.join(columns)}."
            for word, columns in self.null_texts.items()
        ]
        if "header=false" in self.uri:
            lines.append(
                "# The first row is read as data. If it is a header, rename its columns and infer again."
            )
        lines.append(f"# --source {shlex.quote(f'{self.name}={self.uri}')}")
        return "\n".join(lines) + "\n\n" + row_class_text(class_name(self.name), self.columns.fields)


def infer(path: str, rows: int) -> Inference:
    """Infer the columns of a file, a folder or a pattern of files from their first `rows` rows.

    Raises `UnreadableSource` for files that cannot be read, `BadInput` for other formats and without columns.
    """
    stem = Path(path).name.partition(".")[0]
    words = "".join(c if c.isalnum() else "_" for c in stem).strip("_")
    name = words if words.isidentifier() else "rows"
    paths = [Path(file) for _, file in Listing(name, path).names(may_be_none=False)]
    found = _READERS[_format_of(path, paths)](name, path, paths, rows)
    if not found.columns.fields:
        reasons = "; ".join(f"{column!r}: {why}" for column, why in found.columns.left_out.items())
        raise BadInput(
            f"{path} has no column that a row class can declare",
            why=reasons or "It has no rows.",
            fix="rename the columns in the files: letters, digits and underscores, a letter first"
            if reasons
            else "give files with rows",
        )
    return found


def _ending(file: Path) -> str:
    return Path(file.name.removesuffix(".gz")).suffix.removeprefix(".").lower()


def _format_of(path: str, paths: list[Path]) -> str:
    endings = {_ending(file): file.name for file in paths}
    formats = {name for name, known in _FORMATS.items() if endings.keys() & {*known}}
    unknown = endings.keys() - {ending for known in _FORMATS.values() for ending in known}
    if unknown or len(formats) != 1:
        bare = endings.pop("", None)
        shown = [f"files that end in {', '.join(f'.{ending}' for ending in sorted(endings))}"] * bool(endings)
        shown += [f"a file without an ending, {bare!r}"] * (bare is not None)
        raise BadInput(
            f"{path} has {' and '.join(shown)}",
            why="The format is known by the ending: "
            + ", ".join(f".{e}" for es in _FORMATS.values() for e in es),
            fix="give files of one format: a pattern such as 'in/*.csv' chooses among those of a folder",
        )
    return formats.pop()


# --- formats -----------------------------------------------------------------------------


@dataclass(slots=True)
class _Tables:
    """Columns of several CSV files by name."""

    dialect: CsvDialect
    limit: int
    rows: int = 0
    irregular: int = 0

    def read(self, path: Path, columns: dict[str, TextColumn], *, is_first: bool) -> bool:
        """Add the rows of a file up to the limit. Returns whether the limit left rows unread."""
        with self.dialect.in_utf8(open_bytes(path)) as file:
            records = filter(None, self.dialect.reader(line_blocks(file)))
            names = [unicode_text(name) for name in next(records, [])] if self.dialect.header else []
            for fields in records:
                names = names or [f"column{at}" for at in range(1, len(fields) + 1)]
                if self.rows == self.limit:
                    return True
                self.rows += 1
                if len(fields) != len(names):
                    self.irregular += 1
                    continue
                for name, text in zip(names, fields):
                    columns.setdefault(name, TextColumn(has_empty=not is_first)).add(text)
        for name in names:
            columns.setdefault(name, TextColumn(has_empty=True))
        for name in columns.keys() - {*names}:
            columns[name].has_empty = True
        return False


def _infer_csv(name: str, path: str, paths: list[Path], rows: int) -> Inference:
    with reported(name, paths[0]):
        dialect = sniff(paths[0])
    tables, columns, partial = _Tables(dialect, rows), dict[str, TextColumn](), False
    for at, file in enumerate(paths):
        with reported(name, file):
            _check_separator(path, file, paths[0], dialect)
            try:
                partial = tables.read(file, columns, is_first=at == 0)
            except (csv.Error, UnfitValue) as error:
                raise unreadable(name, file, f"it is not CSV: {error}") from error
        if partial:
            break
    typed = [c for c in columns.values() if c.kinds and "text" not in c.kinds and str(c.type) != "str"]
    null = {word for column in typed for word in column.words}
    dialect = replace(dialect, null=tuple(sorted(null)))
    shapes = {
        column: Shape(found.type, nullable=found.has_empty or bool(found.words & null) or not found.kinds)
        for column, found in columns.items()
    }
    text = {name: found.words for name, found in columns.items() if found not in typed and found.kinds}
    null_texts = {word: [name for name, words in text.items() if word in words] for word in dialect.null}
    return Inference(
        name,
        _csv_uri(path, dialect),
        ColumnShapes.of(shapes),
        len(paths),
        tables.rows,
        partial,
        tables.irregular,
        {word: names for word, names in null_texts.items() if names},
    )


def _check_separator(path: str, file: Path, first: Path, dialect: CsvDialect) -> None:
    with dialect.in_utf8(open_bytes(file)) as opened:
        line = next(filter(bytes.strip, opened), b"").decode(errors="replace")
    if other := dialect.likely_sep(line):
        raise BadInput(
            f"{path} has files with different separators",
            why=f"{first.name} has {dialect.sep!r}, and {file.name} has {other!r}.",
            fix="infer them apart: a pattern such as 'in/2025-*.csv' chooses among the files of a folder",
        )


def _csv_uri(path: str, dialect: CsvDialect) -> str:
    usual = CsvDialect()
    spelled = {"\t": r"\t"}
    options = [
        f"{option}={spelled.get(value, value)}"
        for option, value in (("sep", dialect.sep), ("encoding", dialect.encoding))
        if value != getattr(usual, option)
    ]
    options += ["header=false"] * (not dialect.header) + [f"null={word}" for word in dialect.null]
    return f"csv:{path}" + (f"?{'&'.join(options)}" if options else "")


def _infer_json(name: str, path: str, paths: list[Path], rows: int) -> Inference:
    return _from_shapes(name, f"json:{path}", paths, rows, _json_shapes)


def _json_shapes(name: str, path: Path) -> Iterator[tuple[int, Mapping[str, Shape]]]:
    with open_bytes(path) as file:
        for number, value in _json_values(file):
            if not isinstance(value, dict):
                raise unreadable(name, path, f"row {number} is not an object: {json.dumps(value)[:60]}")
            yield 1, shape_of_json(value).fields or {}


def _json_values(file: Any) -> Iterator[tuple[int, Any]]:
    lines = (line for line in file if line.strip())
    first = next(lines, b"")
    if first.lstrip().startswith(b"["):
        yield from enumerate(json.loads(b"".join([first, *lines])), 1)
    elif first:
        yield 1, json.loads(first)
        yield from ((number, json.loads(line)) for number, line in enumerate(lines, 2))


def _infer_parquet(name: str, path: str, paths: list[Path], rows: int) -> Inference:
    from headrace.io.column_shapes import parquet_shapes

    return _from_shapes(name, f"parquet:{path}", paths, rows, parquet_shapes)


def _from_shapes(
    name: str,
    uri: str,
    paths: list[Path],
    limit: int,
    shapes_of: Callable[[str, Path], Iterator[tuple[int, Mapping[str, Shape]]]],
) -> Inference:
    """Merge the shapes of rows. shapes_of: yields them with the number of rows that have them."""
    found: Mapping[str, Shape] | None = None
    rows, partial = 0, False
    for path in paths:
        with reported(name, path):
            try:
                for count, shapes in shapes_of(name, path):
                    if rows >= limit:
                        partial = True
                        break
                    found = shapes if found is None else merge_fields(found, shapes)
                    rows += count
            except json.JSONDecodeError as error:
                raise unreadable(name, path, f"it is not JSON: {error}") from error
            except RecursionError as error:
                raise unreadable(name, path, "its values are nested too deeply") from error
        if partial:
            break
    return Inference(name, uri, ColumnShapes.of(found or {}), len(paths), rows, partial)


_READERS = {"csv": _infer_csv, "json": _infer_json, "parquet": _infer_parquet}
