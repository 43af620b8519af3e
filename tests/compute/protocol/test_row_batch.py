"""Rows in columns: they come back as they were, and nothing in what comes from outside is trusted."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.compute.errors import BadMessage
from headrace.compute.protocol import row_batch, rows
from headrace.compute.protocol.responses import Counted
from headrace.compute.protocol.row_batch import (
    WEIGHT,
    NotColumnar,
    RowBatch,
    decode,
    decode_batch,
    encode,
    is_columnar,
)
from headrace.expr.code_runtime import NAN
from headrace.expr.types import (
    ANY,
    BOOL,
    BYTES,
    DATE,
    FLOAT64,
    INT8,
    INT64,
    INTERVAL,
    STR,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    Field,
    ListType,
    MapType,
    Schema,
    StructType,
)
from headrace.state.codec import value_encoder

_times = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
VALUES: list[tuple[DataType, st.SearchStrategy[Any]]] = [
    (BOOL, st.booleans()),
    (INT8, st.integers(-128, 127)),
    (INT64, st.integers(-(2**63), 2**63 - 1)),
    (FLOAT64, st.floats(allow_nan=False) | st.just(NAN)),
    (DecimalType(38, 6), st.decimals(-(10**31), 10**31, places=6)),
    (STR, st.text()),
    (BYTES, st.binary()),
    (DATE, st.dates()),
    (TIMESTAMP, _times.map(lambda time: time.replace(tzinfo=UTC))),
    (TIMESTAMP_NTZ, _times),
    (INTERVAL, st.timedeltas(timedelta(-100_000_000), timedelta(100_000_000))),
    (ListType(INT64), st.lists(st.integers(-9, 9)).map(tuple)),
    (MapType(STR, INT64), st.dictionaries(st.text(), st.integers()).map(lambda m: tuple(sorted(m.items())))),
    (StructType((Field("a", STR), Field("b", DATE))), st.tuples(st.text(), st.dates())),
]
SCHEMA = Schema(tuple(Field(f"c{at}", type, nullable=True) for at, (type, _) in enumerate(VALUES)))
ROWS: st.SearchStrategy[list[Counted]] = st.lists(
    st.tuples(st.tuples(*(st.none() | values for _, values in VALUES)), st.integers(1, 2**40)), max_size=5
)
ROW = (True, 1, -1, -0.0, Decimal("1.500000"), "\u00e9x", b"\xff", date(2024, 2, 29), *[None] * 6)


def one(*counts: int) -> bytes:
    """A batch of some rows."""
    (data,) = encode(RowBatch.of_rows(SCHEMA, [(ROW, count) for count in counts]))
    return data


@given(ROWS)
def test_rows_come_back_as_they_were(counted: list[Counted]) -> None:
    batch = RowBatch.of_rows(SCHEMA, counted)
    assert list(batch) == counted
    assert batch.weight == sum(count for _, count in counted)
    assert batch.size == sum(rows.row_size(row) for row, _ in counted)
    (data,) = encode(batch)
    assert list(decode(data, SCHEMA)) == counted
    # Zeros keep their signs.
    assert [str(row[3]) for row, _ in decode(data, SCHEMA)] == [str(row[3]) for row, _ in counted]
    read = row_batch.single_row_decoder([field.type for field in SCHEMA.fields])
    assert [(read(row[:-1]), row[-1]) for row in batch.frame.rows()] == counted
    kept = [5, 0, 3]
    assert list(batch.project(kept)) == [(tuple(row[at] for at in kept), count) for row, count in counted]
    assert list(batch[1:3]) == counted[1:3]


def test_rows_are_sent_in_pieces_of_a_megabyte() -> None:
    schema = Schema((Field("text", STR),))
    counted: list[Counted] = [((f"{n}" * 1000,), 1) for n in range(2000)]
    pieces = list(encode(RowBatch.of_rows(schema, counted)))
    assert len(pieces) > 2
    assert max(map(len, pieces)) <= 1024 * 1024
    assert [each for piece in pieces for each in decode(piece, schema)] == counted
    assert [each for piece in encode(counted) for each in decode(piece, schema)] == counted


@pytest.mark.parametrize(
    ("type", "value"),
    [(STR, "\udc80"), (INTERVAL, timedelta(999_999_999)), (INT64, 2**63), (DATE, "no date")],
)
def test_values_that_columns_cannot_hold_are_told(type: DataType, value: Any) -> None:
    with pytest.raises(NotColumnar):
        RowBatch.of_rows(Schema((Field("value", type),)), [((value,), 1)])
    with pytest.raises(NotColumnar):
        RowBatch.of_rows(Schema((Field("value", INT64),)), [((1,), 2**63)])


def test_any_values_are_no_columns_as_one_is_true() -> None:
    assert not is_columnar(Schema((Field("value", ListType(ANY)),)))
    assert is_columnar(SCHEMA)


# --- what comes from outside ---------------------------------------------------------------------


def arrow(frame: pl.DataFrame, *, times: int = 1, **options: Any) -> bytes:
    table: Any = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    out: Any = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as stream:
        for _ in range(times):
            stream.write_table(table)
    return out.getvalue().to_pybytes()


PLAIN = Schema(
    (Field("n", INT64), Field("day", DATE, nullable=True), Field("list", ListType(INT64), nullable=True))
)


def plain(**columns: Any) -> pl.DataFrame:
    """A frame as `PLAIN` has it, but for these columns."""
    made = {
        "0": pl.Series([1], dtype=pl.Int64),
        "1": pl.Series([date(2024, 1, 1)]),
        "2": pl.Series([value_encoder()((1, 2))]),
        WEIGHT: pl.Series([1], dtype=pl.Int64),
    }
    return pl.DataFrame({**made, **{name.removeprefix("c"): column for name, column in columns.items()}})


HOSTILE = {
    "no stream": b"\xff\xff\xff\xff",
    "cut off": arrow(plain())[:-200],
    "followed by more": arrow(plain()) + b"more",
    "no batch": arrow(plain(), times=0),
    "two batches": arrow(plain(), times=2),
    "compressed": arrow(plain(), compression="zstd"),
    "another type": arrow(plain(c0=pl.Series([1], dtype=pl.Int32))),
    "another column": arrow(plain(more=pl.Series([1]))),
    "a column too few": arrow(plain().drop("1")),
    "other names": arrow(plain().rename({"0": "x"})),
    "a null where none may be": arrow(plain(c0=pl.Series([None], dtype=pl.Int64))),
    "no count": arrow(plain(w=pl.Series([None], dtype=pl.Int64))),
    "a count of zero": arrow(plain(w=pl.Series([0], dtype=pl.Int64))),
    "a day beyond all years": arrow(plain(c1=pl.Series([10_000_000], dtype=pl.Int32).cast(pl.Date))),
    "bytes that are no value": arrow(plain(c2=pl.Series([b"\xc1"]))),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_a_bad_batch_is_refused_with_its_field(data: bytes) -> None:
    for read in (decode, decode_batch):
        with pytest.raises(BadMessage) as refused:
            read(data, PLAIN, "Batch.updates")
        assert refused.value.facts["field"] == "Batch.updates"
        assert refused.value.why


def test_a_peek_has_no_negative_rows_and_a_subscription_may() -> None:
    with pytest.raises(BadMessage):
        decode(one(1, -1), SCHEMA)
    assert [count for _, count in decode_batch(one(1, -1), SCHEMA, "updates")] == [1, -1]


@pytest.mark.seeds(40, together=40)
def test_a_damaged_batch_is_another_one_or_refused(seeds: range) -> None:
    whole = one(1, 2, 3)
    for seed in seeds:
        draw = random.Random(seed)
        for _ in range(25):
            damaged = bytearray(whole)
            for _ in range(draw.randint(1, 4)):
                damaged[draw.randrange(len(damaged))] = draw.choice((0, 255, draw.randrange(256)))
            try:
                found = decode(
                    bytes(damaged[: draw.choice((len(damaged), draw.randrange(len(damaged))))]), SCHEMA
                )
            except BadMessage:
                continue
            assert all(len(row) == len(SCHEMA.fields) and count > 0 for row, count in found)
