"""Rows with counts in columns, and their encoding as Arrow for messages and stashes.

What has many rows travels so: a replica encodes a batch, a controller hands on its bytes, and a client makes
rows of them. A batch is one record batch in Arrow's IPC stream format with the columns "0", "1", ... and
"w", the counts. Small answers are encoded row by row (`rows`); the first byte of the two forms differs.

Columns of types that Polars has not (any value, nested ones) hold the bytes of `headrace.state.codec`.

Polars and pyarrow are imported when there are batches, and not before.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast, overload

from headrace.compute.errors import BadMessage
from headrace.compute.protocol import rows as encoding
from headrace.compute.protocol.responses import Counted
from headrace.errors import CheckpointDamaged
from headrace.expr.types import INT64, AnyType, DataType, Row, Schema, parts_of
from headrace.expr.value_keys import key_function
from headrace.state import codec

if TYPE_CHECKING:
    import polars as pl


WEIGHT = "w"
"""Name of the column of counts; the engine's frames have the same names."""
_ARROW = b"\xff\xff\xff\xff"
"""Beginning of each message of an IPC stream. Encoded rows begin with the head of an array."""
_MAX_BYTES = 1024 * 1024
_FIRST_DAY, _LAST_DAY = ((day - date(1970, 1, 1)).days for day in (date.min, date.max))


class RowBatch(Sequence[Counted]):
    """Rows with their counts in columns. As a sequence, it consists of rows, which are created once.

    frame: columns "0", "1", ... of the schema, and "w", counts other than 0.
    """

    __slots__ = ("_rows", "frame", "schema")

    def __init__(self, schema: Schema, frame: pl.DataFrame) -> None:
        self.schema = schema
        self.frame = frame
        self._rows: list[Counted] | None = None

    @classmethod
    def of_rows(cls, schema: Schema, rows: Sequence[Counted]) -> RowBatch:
        """Convert rows to columns. Raises `NotColumnar` for a value that columns cannot hold."""
        if isinstance(rows, cls):
            return rows
        return cls(schema, frame_of(schema, [row for row, _ in rows], [count for _, count in rows]))

    @classmethod
    def together(cls, schema: Schema, frames: Sequence[pl.DataFrame]) -> RowBatch:
        """Concatenate one or more frames into a batch."""
        import polars as pl

        return cls(schema, pl.concat(frames))

    def __len__(self) -> int:
        return self.frame.height

    def __iter__(self) -> Iterator[Counted]:
        return iter(self.rows())

    @overload
    def __getitem__(self, at: int) -> Counted: ...
    @overload
    def __getitem__(self, at: slice) -> RowBatch: ...
    def __getitem__(self, at: int | slice) -> Counted | RowBatch:
        return RowBatch(self.schema, self.frame[at]) if isinstance(at, slice) else self.rows()[at]

    def rows(self) -> list[Counted]:
        """Return the rows with their counts."""
        if self._rows is None:
            self._rows = list(zip(self.bare_rows(), self.frame[WEIGHT].to_list(), strict=True))
        return self._rows

    def bare_rows(self) -> list[Row]:
        """Return the rows without their counts."""
        columns = [reader_of(f.type)(self.frame[str(at)]) for at, f in enumerate(self.schema.fields)]
        return list(zip(*columns, strict=True)) if columns else [()] * len(self)

    @property
    def weight(self) -> int:
        """Sum of the counts."""
        return int(self.frame[WEIGHT].sum())

    @property
    def size(self) -> int:
        """Size of the rows in bytes, as estimated by `rows_size`."""
        columns = self.frame.get_columns()[:-1]
        known = [_size_of(f.type, c) for f, c in zip(self.schema.fields, columns, strict=True)]
        if None in known:
            return sum(encoding.row_size(row) for row in self.bare_rows())
        return encoding.OVERHEAD * len(self) + sum(cast("list[int]", known))

    def positive(self) -> RowBatch:
        """Return the rows whose counts are positive."""
        kept = self.frame[WEIGHT] > 0
        return self if kept.all() else RowBatch(self.schema, self.frame.filter(kept))

    def project(self, positions: Sequence[int]) -> RowBatch:
        """Return a batch with the columns at these positions, in this order."""
        import polars as pl

        schema = Schema(tuple(self.schema.fields[at] for at in positions))
        taken = [self.frame[str(at)].alias(str(to)) for to, at in enumerate(positions)]
        return RowBatch(schema, pl.DataFrame([*taken, self.frame[WEIGHT]]))


class EncodedRows(Sequence[Counted]):
    """Encoded part of a result, decoded only when its rows are read.

    schema: schema of the rows.
    """

    def __init__(self, data: bytes, schema: Schema) -> None:
        self.data = data
        self._schema = schema

    @cached_property
    def _rows(self) -> Sequence[Counted]:
        return decode(self.data, self._schema)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, at: int) -> Counted: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Counted]: ...
    def __getitem__(self, at: int | slice) -> Counted | Sequence[Counted]:
        return self._rows[at]


class NotColumnar(Exception):
    """Exception for rows with a value that columns cannot hold, such as a lone surrogate."""


def is_columnar(schema: Schema) -> bool:
    """Return whether columns can hold a schema's rows, apart from unusual values.

    Any values cannot be columns: 1, 1.0 and True are equal there.
    """
    return not any(_holds_any(field.type) for field in schema.fields)


def _holds_any(type: DataType) -> bool:
    return isinstance(type, AnyType) or any(map(_holds_any, parts_of(type)))


def _is_encoded(type: DataType) -> bool:
    from headrace.expr.polars_columns import polars_type

    return polars_type(type) is None


def column_types(schema: Schema) -> dict[str, pl.DataType]:
    """Return the types of a batch's columns, by name."""
    import polars as pl

    from headrace.expr.polars_columns import polars_type

    types: dict[str, pl.DataType] = {
        str(at): polars_type(f.type) or pl.Binary() for at, f in enumerate(schema.fields)
    }
    return {**types, WEIGHT: pl.Int64()}


def encoder_of(type: DataType) -> Callable[[Any], bytes] | None:
    """Return the encoder of a column stored as bytes, else None. Equal values have equal bytes."""
    if not _is_encoded(type):
        return None
    encode, key = codec.value_encoder(), key_function(type)
    return lambda value: encode(key(value))


def frame_of(schema: Schema, rows: Sequence[Row], counts: Sequence[int]) -> pl.DataFrame:
    """Convert rows with counts to columns. Raises `NotColumnar`."""
    import polars as pl

    from headrace.expr.polars_columns import to_series

    made: dict[str, pl.Series] = {}
    try:
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema.fields)
        for at, (field, values) in enumerate(zip(schema.fields, columns, strict=True)):
            encode = encoder_of(field.type)
            if encode is None:
                made[str(at)] = to_series(field.type, list(values))
            else:
                encoded = [None if value is None else encode(value) for value in values]
                made[str(at)] = pl.Series(values=encoded, dtype=pl.Binary())
        made[WEIGHT] = to_series(INT64, list(counts))
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise NotColumnar from error
    return pl.DataFrame(made)


def reader_of(type: DataType) -> Callable[[pl.Series], list[Any]]:
    """Return a converter of columns to values. It raises `CheckpointDamaged` for invalid bytes."""
    from headrace.expr.polars_columns import from_series

    return _decoded if _is_encoded(type) else partial(from_series, type)


def single_row_decoder(types: Sequence[DataType]) -> Callable[[tuple[Any, ...]], Row]:
    """Return a converter of single rows from `DataFrame.row`, which is cheaper than converting columns."""
    from headrace.expr.polars_columns import row_reader, value_reader

    return row_reader([codec.decode if _is_encoded(type) else value_reader(type) for type in types])


def _decoded(series: pl.Series) -> list[Any]:
    return [None if data is None else codec.decode(data) for data in series.to_list()]


def _size_of(type: DataType, series: pl.Series) -> int | None:
    """Return the bytes of a column as `rows.row_size` counts them; None if that requires decoding it."""
    import polars as pl

    if _is_encoded(type):
        return None
    nulls = series.null_count()
    if isinstance(series.dtype, pl.String):
        held = int(series.str.len_chars().sum()) + encoding.VARIABLE * (len(series) - nulls)
    elif isinstance(series.dtype, pl.Binary):
        held = int(series.bin.size().sum()) + encoding.VARIABLE * (len(series) - nulls)
    else:
        held = _fixed_size(series.dtype) * (len(series) - nulls)
    return held + nulls


def rows_size(rows: Sequence[Counted]) -> int:
    """Estimate the bytes of rows in a message; a row's count makes no difference."""
    return rows.size if isinstance(rows, RowBatch) else sum(encoding.row_size(row) for row, _ in rows)


def _fixed_size(type: pl.DataType) -> int:
    import polars as pl

    match type:
        case pl.Boolean():
            return 1
        case pl.Decimal():
            return 16
        case _:
            return 8


def is_batch(data: bytes) -> bool:
    """Return whether encoded rows are a batch of columns."""
    return data.startswith(_ARROW)


def encode(rows: Sequence[Counted]) -> Iterator[bytes]:
    """Encode rows with counts in chunks of about a megabyte: batches as Arrow, others row by row."""
    if isinstance(rows, EncodedRows):
        yield rows.data
        return
    data = _to_arrow(rows.frame) if isinstance(rows, RowBatch) else encoding.encode(rows)
    if len(data) <= _MAX_BYTES or len(rows) < 2:
        yield data
        return
    half = len(rows) // 2
    yield from encode(rows[:half])
    yield from encode(rows[half:])


def _arrow_table(frame: pl.DataFrame) -> Any:
    import polars as pl

    # Other readers than Polars' own do not know its views.
    return cast("Any", frame).to_arrow(compat_level=pl.CompatLevel.oldest())


def _to_arrow(frame: pl.DataFrame) -> bytes:

    pa: Any = import_module("pyarrow")
    table = _arrow_table(frame)
    columns = [column.combine_chunks() for column in table.columns]
    out: Any = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_batch(pa.record_batch(columns, schema=table.schema))
    return out.getvalue().to_pybytes()


def decode(data: bytes, schema: Schema, field: str = "rows") -> Sequence[Counted]:
    """Decode rows of `schema` with positive counts, in either form. Raises `BadMessage`."""
    if not is_batch(data):
        return encoding.decode_counted(data, field)
    batch = decode_batch(data, schema, field)
    if (batch.frame[WEIGHT] < 1).any():
        raise _bad(field, "A count is not positive.")
    return batch


def decode_batch(data: bytes, schema: Schema, field: str) -> RowBatch:
    """Decode an untrusted batch of rows of `schema`. Raises `BadMessage`."""
    import polars as pl

    pa: Any = import_module("pyarrow")
    types = column_types(schema)
    expected = _arrow_table(pl.DataFrame(schema=types)).schema
    try:
        stream: Any = pa.BufferReader(data)
        messages: Any = list(pa.ipc.MessageReader.open_stream(stream))
        if [each.type for each in messages] != ["schema", "record batch"] or stream.tell() != len(data):
            raise _bad(field, "It is not one batch of columns.")
        if _is_compressed(messages[1].metadata.to_pybytes()):
            raise _bad(field, "It is compressed, so nobody can tell its size.")
        found: Any = pa.ipc.read_schema(messages[0])
        if not found.equals(expected):
            raise _bad(field, "It has other columns than its rows.")
        read: Any = pa.ipc.read_record_batch(messages[1], found)
        read.validate(full=True)
        batch = RowBatch(schema, cast("Any", pl).from_arrow(read))
        _check_dates(batch.frame, field)
        batch.rows()  # are needed anyway, and not all numbers are times, or all bytes values
    except CheckpointDamaged as error:
        raise _bad(field, error.why) from error
    except (pa.ArrowException, ValueError, ArithmeticError, OSError, struct.error, *_of_polars()) as error:
        raise _bad(field, f"It is no batch of columns: {error}"[:300]) from error
    optional = {str(at) for at, f in enumerate(schema.fields) if f.nullable}
    if (batch.frame[WEIGHT] == 0).any() or any(
        batch.frame[name].null_count() for name in types if name not in optional
    ):
        raise _bad(field, "A value or a count is missing.")
    return batch


def _check_dates(frame: pl.DataFrame, field: str) -> None:
    import polars as pl

    for column in frame.get_columns():
        days = column.to_physical() if isinstance(column.dtype, pl.Date) else None
        if days is not None and not days.drop_nulls().is_between(_FIRST_DAY, _LAST_DAY).all():
            raise _bad(field, "A date is beyond the years 1 to 9999.")


def _of_polars() -> tuple[type[BaseException], ...]:
    import polars as pl

    return pl.exceptions.PolarsError, pl.exceptions.PanicException


def _is_compressed(metadata: bytes) -> bool:
    """Return whether a record batch has compressed buffers, whose uncompressed size is unknown.

    The header is the third field of the table `Message`, the compression the fourth of `RecordBatch`.
    """
    return _table_field(metadata, _table_field(metadata, _indirect(metadata, 0), 2), 3) is not None


def _indirect(data: bytes, at: int) -> int:
    return at + struct.unpack_from("<I", data, at)[0]


def _table_field(data: bytes, table: int | None, number: int) -> int | None:
    """Return the offset of the table that a FlatBuffers field refers to; None if the field is unset."""
    if table is None:
        return None
    fields = table - struct.unpack_from("<i", data, table)[0]
    size = struct.unpack_from("<H", data, fields)[0]
    at = 4 + 2 * number
    offset = struct.unpack_from("<H", data, fields + at)[0] if at < size else 0
    return _indirect(data, table + offset) if offset else None


def _bad(field: str, why: str) -> BadMessage:
    return BadMessage(f"{field} does not hold rows", why=why, field=field)
