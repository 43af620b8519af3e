"""Shapes of columns: the common form of a column's values, merged value by value.

A shape knows less than a type: nothing of a column that was always null, and of a column of texts and numbers
that it has no type. `columns` decides at the end. Arrow is only needed for Parquet files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.expr.types import (
    BOOL,
    BYTES,
    DATE,
    FLOAT64,
    INT64,
    INTERVAL,
    STR,
    TIMESTAMP,
    DataType,
    DecimalType,
    Field,
    ListType,
    MapType,
    StructType,
)
from headrace.io.files.file_reader import unreadable
from headrace.io.files.text_values import UnfitValue, parser_of

if TYPE_CHECKING:
    import pyarrow as pa

# --- columns of texts, as CSV has them ------------------------------------------------------------

# The types are those whose parser accepts every value, and recognised conservatively: "007" and numbers
# beyond 64 bits are text. Numbers are decimals if all have the same number of digits after the point and one
# of them ends in 0, as prices do; floats otherwise.


NULL_WORDS = frozenset({"NA", "N/A", "n/a", "NULL", "null", "None", "-", r"\N"})
"""Texts taken for null in a column that otherwise holds no text."""

LONGEST_INT = 1 << 63
_INT = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_FIXED = re.compile(r"-?(?:0|[1-9][0-9]*)\.([0-9]+)")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)?(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_day, _moment = parser_of(DATE), parser_of(TIMESTAMP)


def kind_of_text(text: str) -> str:
    """Classify a non-empty text: bool, int, number, date, timestamp or text."""
    if text in ("true", "false", "True", "False", "TRUE", "FALSE"):
        return "bool"
    if _INT.fullmatch(text):
        return "int" if -LONGEST_INT <= int(text) < LONGEST_INT else "text"
    if _NUMBER.fullmatch(text) and text[-1].isdigit():
        return "number" if "." in text or "e" in text.lower() else "text"
    if _DAY.match(text):
        try:
            _moment(text)
            return "timestamp" if len(text) > 10 else "date"
        except UnfitValue:
            pass
    return "text"


@dataclass(slots=True)
class TextColumn:
    """Shape of a column of texts. words: null words among them."""

    kinds: set[str] = field(default_factory=set[str])
    words: set[str] = field(default_factory=set[str])
    has_empty: bool = False
    _scales: set[int] = field(default_factory=set[int])
    _digits: int = 0
    _is_padded: bool = False

    def add(self, text: str) -> None:
        if not text:
            self.has_empty = True
        elif text in NULL_WORDS:
            self.words.add(text)
        else:
            kind = kind_of_text(text)
            self.kinds.add(kind)
            if kind == "number":
                fixed = _FIXED.fullmatch(text)
                self._scales.add(len(fixed[1]) if fixed else -1)
                self._digits = max(self._digits, len(text))
                self._is_padded |= text.endswith("0")

    @property
    def type(self) -> DataType:
        match sorted(self.kinds):
            case ["bool"]:
                return BOOL
            case ["int"]:
                return INT64
            case ["number"] if self._is_padded and len(self._scales) == 1 and self._digits <= 18:
                (scale,) = self._scales
                return FLOAT64 if scale < 0 else DecimalType(18, scale)
            case ["number"] | ["int", "number"]:
                return FLOAT64
            case ["date"]:
                return DATE
            case ["timestamp"] | ["date", "timestamp"]:
                return TIMESTAMP
            case _:
                return STR


@dataclass(frozen=True, slots=True)
class Shape:
    """Type evidence for one column.

    type:    of plain values. fields: of nested rows, by name. element: of lists. key: of maps, whose values
             are the elements. All are None if only null was seen.
    problem: why no type holds all values.
    """

    type: DataType | None = None
    fields: Mapping[str, Shape] | None = None
    element: Shape | None = None
    key: Shape | None = None
    nullable: bool = False
    problem: str = ""

    @property
    def is_unknown(self) -> bool:
        return self.type is None and self.fields is None and self.element is None

    @property
    def kind(self) -> str:
        if self.type is not None:
            return str(self.type)
        return "nested rows" if self.fields is not None else "maps" if self.key is not None else "lists"


NULL = Shape(nullable=True)
_TEXTS = {"date": Shape(DATE), "timestamp": Shape(TIMESTAMP)}


def shape_of_json(value: Any) -> Shape:
    """Return the shape of a JSON value. Numbers with a decimal point are floats."""
    match value:
        case None:
            return NULL
        case bool():
            return Shape(BOOL)
        case int():
            return Shape(INT64 if -LONGEST_INT <= value < LONGEST_INT else DecimalType(38, 0))
        case float():
            return Shape(FLOAT64)
        case str():
            return _TEXTS.get(kind_of_text(value), Shape(STR))
        case list():
            return Shape(element=merge_all(map(shape_of_json, value)))  # pyright: ignore[reportUnknownArgumentType]
        case _:
            return Shape(fields={name: shape_of_json(part) for name, part in value.items()})


def merge_all(shapes: Iterable[Shape]) -> Shape:
    found = Shape()
    for shape in shapes:
        found = merge(found, shape)
    return found


def merge(a: Shape, b: Shape) -> Shape:
    """Return the shape of values that have either shape."""
    if a == b:
        return a
    nullable, problem = a.nullable or b.nullable, a.problem or b.problem
    if b.is_unknown or a.is_unknown:
        return replace(a if b.is_unknown else b, nullable=nullable, problem=problem)
    if a.fields is not None and b.fields is not None:
        return Shape(fields=merge_fields(a.fields, b.fields), nullable=nullable, problem=problem)
    if a.element is not None and b.element is not None and (a.key is None) == (b.key is None):
        key = None if a.key is None or b.key is None else merge(a.key, b.key)
        return Shape(element=merge(a.element, b.element), key=key, nullable=nullable, problem=problem)
    wider = None if a.type is None or b.type is None else _wider(a.type, b.type)
    if wider is None:
        return replace(a, nullable=nullable, problem=problem or f"it holds {a.kind} and {b.kind}")
    return Shape(wider, nullable=nullable, problem=problem)


def merge_fields(a: Mapping[str, Shape], b: Mapping[str, Shape]) -> dict[str, Shape]:
    """Merge the shapes of two rows. A column missing from either becomes nullable."""
    names = a if a.keys() == b.keys() else dict.fromkeys([*a, *b])
    return {name: merge(a.get(name, NULL), b.get(name, NULL)) for name in names}


def _wider(a: DataType, b: DataType) -> DataType | None:
    if a == b:
        return a
    both = {a, b}
    if isinstance(a, DecimalType) and isinstance(b, DecimalType):
        scale = max(a.scale, b.scale)
        return DecimalType(min(38, max(a.precision - a.scale, b.precision - b.scale) + scale), scale)
    if both == {INT64, FLOAT64}:
        return FLOAT64
    if INT64 in both and DecimalType(38, 0) in both:
        return DecimalType(38, 0)
    if both == {DATE, TIMESTAMP}:
        return TIMESTAMP
    return STR if both <= {DATE, TIMESTAMP, STR} else None


# --- columns -----------------------------------------------------------------------------


@dataclass(slots=True)
class ColumnShapes:
    """Columns that a row class can declare. left_out: the others, with the reason."""

    fields: list[Field] = field(default_factory=list[Field])
    left_out: dict[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def of(cls, shapes: Mapping[str, Shape]) -> ColumnShapes:
        found = cls()
        found.fields = found._declare(shapes, "")
        return found

    def _declare(self, shapes: Mapping[str, Shape], path: str) -> list[Field]:
        fields: list[Field] = []
        for name, shape in shapes.items():
            at = f"{path}{name}"
            if not name.isidentifier() or iskeyword(name) or name.startswith("_"):
                self.left_out[at] = "its name cannot be an attribute of a NamedTuple"
            elif (type := self._type(shape, at)) is not None:
                fields.append(Field(name, type, nullable=shape.nullable))
        return fields

    def _type(self, shape: Shape, at: str) -> DataType | None:
        problem, type = shape.problem, shape.type
        if shape.fields is not None and not problem:
            fields = self._declare(shape.fields, f"{at}.")
            type, problem = StructType(tuple(fields)), "" if fields else "its rows have no columns"
        elif shape.element is not None and not problem:
            if shape.element.is_unknown:
                problem = "its lists are empty"
            elif (element := self._type(shape.element, f"{at}[]")) is None:
                return None
            elif shape.key is None or (key := self._type(shape.key, f"{at}[key]")) is None:
                type = ListType(element, nullable=shape.element.nullable)
            else:
                type = MapType(key, element, nullable=shape.element.nullable)
        if problem:
            self.left_out[at] = problem
            return None
        return STR if type is None else type


_PLAIN = (BOOL, INT64, FLOAT64, STR, BYTES, DATE, TIMESTAMP, INTERVAL)
_ROWS = 1 << 13


def parquet_shapes(name: str, path: Path) -> Iterator[tuple[int, Mapping[str, Shape]]]:
    """Yield the shapes of batches of a Parquet file's rows, with their length.

    Columns are nullable where a null occurs.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
            empty = pa.RecordBatch.from_pylist([], schema=file.schema_arrow)
            yield 0, _arrow_shapes(empty)
            for batch in file.iter_batches(_ROWS):
                yield batch.num_rows, _arrow_shapes(batch)
    except pa.ArrowException as error:
        raise unreadable(name, path, f"it is not Parquet: {error}") from error


def _arrow_shapes(batch: pa.RecordBatch) -> Mapping[str, Shape]:
    return {name: _shape(column) for name, column in zip(batch.schema.names, batch.columns)}


def _shape(array: Any) -> Shape:
    from pyarrow import types

    nullable, arrow = array.null_count > 0, array.type
    if types.is_null(arrow):
        return Shape(nullable=True)
    if types.is_map(arrow):
        return Shape(key=_shape(array.keys), element=_shape(array.items), nullable=nullable)
    if types.is_list(arrow) or types.is_large_list(arrow) or types.is_fixed_size_list(arrow):
        return Shape(element=_shape(array.flatten()), nullable=nullable)
    if types.is_struct(arrow):
        # Fields of a null row are null, whether they ever are otherwise or not.
        parts = array.filter(array.is_valid()).flatten()
        return Shape(fields={f.name: _shape(part) for f, part in zip(arrow, parts)}, nullable=nullable)
    declared = _declared(arrow)
    return Shape(declared, nullable=nullable, problem="" if declared else f"no column type holds {arrow}")


def _declared(arrow: pa.DataType) -> DataType | None:
    from pyarrow import types

    from headrace.io.files.parquet_rows import fits, plain

    arrow = plain(arrow)
    if types.is_decimal(arrow):
        return (
            DecimalType(arrow.precision, arrow.scale) if 0 <= arrow.scale <= arrow.precision <= 38 else None
        )
    return next((each for each in _PLAIN if fits(each, arrow)), None)
