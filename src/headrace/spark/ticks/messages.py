"""Messages between the tasks of a tick and to the driver, as rows of one DataFrame.

    stage int, shard int, port int, place bigint, body binary

A message for a later stage holds rows of one exchange (`port` is its number in
the plan) for one shard, encoded as one blob, so that a shuffle moves few large
rows. Where the order of an exchange means something, `place` ascends in it. A
message for the driver has stage -1; its body is a `TaskResult`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.ipc as ipc

from headrace.expr.types import Rows
from headrace.io.arrow import rows_to_table, table_to_rows
from headrace.spark.ticks.failures import Task
from headrace.state.codec import decode, value_encoder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from headrace.spark.placing.stages import Exchange


TO_DRIVER = -1
ARROW = pa.schema(
    [
        ("stage", pa.int32()),
        ("shard", pa.int32()),
        ("port", pa.int32()),
        ("place", pa.int64()),
        ("body", pa.binary()),
    ]
)
_ROWS_PER_BLOB = 20_000
_FEW_ROWS = 64
"""Rows below which building columns costs more than encoding rows."""

_ARROW_STREAM = b"\xff\xff\xff\xff"
"""First bytes of an Arrow IPC stream. No encoded list starts with them."""

_BYTES_PER_BATCH = 64 << 20
BLOBS_OF_ONE_PLACE = 1 << 20


Message: TypeAlias = "tuple[int, int, int, int, bytes | pa.Buffer]"


@dataclass(frozen=True, slots=True)
class TaskResult:
    """A task's report: `kind` names the type of `body` (plain data); see `spark.ticks.task_outcome`."""

    kind: str
    body: Any

    def message(self, shard: int) -> Message:
        return (TO_DRIVER, shard, 0, 0, value_encoder()((self.kind, self.body)))


def run_tasks(frame: DataFrame, task: Task) -> DataFrame:
    """Run a task on each partition of a frame; return the messages that it yields."""
    return frame.mapInArrow(task, _schema())


@cache
def _schema() -> StructType:
    # As a text, Spark would parse it for each tick.
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(ARROW)


def to_table(rows: Rows, exchange: Exchange) -> pa.Table | None:
    """Return rows of an exchange as columns; None if they are few, or hold what columns cannot."""
    if len(rows) < _FEW_ROWS:
        return None
    try:
        return rows_to_table(rows, exchange.schema, weighted=not exchange.append)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None


def messages_of(stage: int, shard: int, port: int, place: int, rows: Rows | pa.Table) -> Iterator[Message]:
    """Encode an exchange's rows for one shard as messages of bounded size. A table's rows stay columns.

    place: position of the rows among those of other messages, if their order is meaningful.
    """
    encode = value_encoder()
    for number, at in enumerate(range(0, len(rows), _ROWS_PER_BLOB)):
        if isinstance(rows, list):
            body = encode(rows[at : at + _ROWS_PER_BLOB])
        else:
            body = _arrow_stream(rows.slice(at, _ROWS_PER_BLOB))
        yield (stage, shard, port, place * BLOBS_OF_ONE_PLACE + number, body)


def place_of(message: Message) -> int:
    """Return the place given to `messages_of` for this message."""
    return message[3] // BLOBS_OF_ONE_PLACE


def piece_of(body: bytes | pa.Buffer) -> Rows | pa.Table:
    """Decode the rows of an exchange message, as they were sent. A table stays in the message's memory."""
    if bytes(body[: len(_ARROW_STREAM)]) != _ARROW_STREAM:
        return list(decode(bytes(body)))
    with ipc.open_stream(body) as stream:
        return stream.read_all()


def rows_of(piece: Rows | pa.Table, exchange: Exchange) -> Rows:
    """Return what came over an exchange as rows."""
    if isinstance(piece, list):
        return piece
    return table_to_rows(piece, exchange.schema, weighted=not exchange.append)


def _arrow_stream(table: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    with ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    return out.getvalue().to_pybytes()


def to_batches(messages: Iterable[Message]) -> Iterator[pa.RecordBatch]:
    """Convert messages to Arrow batches of bounded size."""
    waiting: list[Message] = []
    size = 0
    for message in messages:
        waiting.append(message)
        size += len(message[4])
        if size >= _BYTES_PER_BATCH:
            yield _batch(waiting)
            waiting, size = [], 0
    if waiting:
        yield _batch(waiting)


def from_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[Message]:
    for batch in batches:
        yield from zip(*(batch.column(at).to_pylist() for at in range(5)), strict=True)


def results_of(table: pa.Table) -> list[TaskResult]:
    """Extract the results from a job's output."""
    found = (decode(body) for body in table.column("body").to_pylist())
    return [TaskResult(kind, body) for kind, body in found]


def _batch(messages: list[Message]) -> pa.RecordBatch:
    columns = zip(*messages, strict=True)
    arrays = [pa.array(list(c), type=f.type) for c, f in zip(columns, ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW)
