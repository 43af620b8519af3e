"""Messages between the tasks of a tick and to the driver, as rows of one DataFrame.

    stage int, shard int, port int, place bigint, body binary

A message for a later stage holds rows of one exchange (`port` is its number in the plan) for one shard,
encoded as one blob, so that a shuffle moves few large rows. Where the order of an exchange means something,
`place` ascends in it.

A message for the driver has stage -1; its body is a `TaskResult`, names and numbers, and rows only for
sinks that live in the driver:

    chain   (cell, chain as JSON text, pending, waiting)   the version of a cell that the tick would make
    file    (sink, staged name, rows)              a file written for a sink
    rows    (sink, rows)                           changes for a sink that lives in the driver
    taken   (source, rows)                         rows read
    bad     (source, record)                       a row set aside
    widened (source, column, ...)                  a column of a file that is narrower than declared
    rounds  (rows by exchange, ...)                what went back after each round of a task
    cost    what a task cost, see `TaskCostReport`
    clock   (operator, watermark, late rows)       where a watermark stands now
    error   (stage, pickled error)                 why the tick cannot be
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import pyarrow as pa
import pyarrow.ipc as ipc

from headrace.engine.progress import Cost
from headrace.errors import HeadraceError
from headrace.expr.types import Rows
from headrace.io.arrow import rows_to_table, table_to_rows
from headrace.io.files.file_reader import ColumnMismatch
from headrace.io.source import BadRecord
from headrace.spark.ticks.failures import Task
from headrace.state.chain import BatchChain
from headrace.state.codec import decode, value_encoder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession
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
    """A task's report: `kind` names the type of `body` (plain data)."""

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
    """Convert rows of an exchange to columns; None if they are few, or do not fit columns."""
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
    """Decode the rows of an exchange message in the form sent. A table refers to the message's memory."""
    if bytes(body[: len(_ARROW_STREAM)]) != _ARROW_STREAM:
        return list(decode(bytes(body)))
    with ipc.open_stream(body) as stream:
        return stream.read_all()


def rows_of(piece: Rows | pa.Table, exchange: Exchange) -> Rows:
    """Convert an exchange's input to rows."""
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


@dataclass(slots=True)
class TickOutcome:
    """Combined results of a tick's tasks.

    passing: state files needed only by later jobs of the same tick.
    """

    chains: dict[int, BatchChain] = field(default_factory=dict[int, BatchChain])
    pending: set[int] = field(default_factory=set[int])
    waiting: set[int] = field(default_factory=set[int])
    files: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    rows: dict[str, Rows] = field(default_factory=dict[str, Rows])
    changes: dict[str, int] = field(default_factory=dict[str, int])
    taken: dict[str, int] = field(default_factory=dict[str, int])
    bad: dict[str, list[BadRecord]] = field(default_factory=dict[str, list[BadRecord]])
    widened: list[ColumnMismatch] = field(default_factory=list[ColumnMismatch])
    clocks: dict[str, tuple[Any, int]] = field(default_factory=dict[str, tuple[Any, int]])
    passing: set[str] = field(default_factory=set[str])
    costs: list[Any] = field(default_factory=list[Any])


def chain_result(cell: int, chain: BatchChain, pending: bool, waiting: bool) -> TaskResult:
    return TaskResult("chain", (cell, json.dumps(chain.to_json()), pending, waiting))


def bad_result(source: str, record: BadRecord) -> TaskResult:
    return TaskResult("bad", (source, astuple(record)))


def error_result(stage: int, error: HeadraceError) -> TaskResult:
    from pyspark import cloudpickle

    try:
        content: bytes = cloudpickle.dumps(error)
    except Exception:
        plain = type(error)(error.what, where=error.where, why=error.why, fix=error.fix)
        content = cloudpickle.dumps(plain)
    return TaskResult("error", (stage, content))


def collect_outcome(results: Iterable[TaskResult]) -> TickOutcome:
    """Combine results into one outcome. Raises the error of the earliest stage, if a task reported one."""
    outcome = TickOutcome()
    errors: list[tuple[int, bytes]] = []
    for result in results:
        match result.kind, result.body:
            case "error", (stage, content):
                errors.append((stage, content))
            case "chain", (cell, text, pending, waiting):
                outcome.chains[cell] = BatchChain.from_json(json.loads(text))
                if pending:
                    outcome.pending.add(cell)
                if waiting:
                    outcome.waiting.add(cell)
            case "file", (sink, name, count):
                outcome.files.setdefault(sink, []).append(name)
                outcome.changes[sink] = outcome.changes.get(sink, 0) + count
            case "rows", (sink, rows):
                outcome.rows.setdefault(sink, []).extend(rows)
                outcome.changes[sink] = outcome.changes.get(sink, 0) + len(rows)
            case "taken", (source, count):
                outcome.taken[source] = outcome.taken.get(source, 0) + count
            case "bad", (source, record):
                outcome.bad.setdefault(source, []).append(BadRecord(*record))
            case "widened", column:
                outcome.widened.append(ColumnMismatch(*column))
            case "clock", (operator, watermark, late):
                outcome.clocks[operator] = (watermark, late)
            case "cost", cost:
                outcome.costs.append(cost)
            case "rounds", _:
                pass  # `rounds_of` reads these
            case _:
                raise AssertionError(f"unknown kind of result: {result.kind}")
    if errors:
        # Later stages ran on half of the rows; what they say follows from the first error.
        raise pickle.loads(min(errors)[1])
    return outcome


Phase: TypeAlias = Literal["read", "compute", "load state", "write state", "exchange", "write"]
TaskCostReport: TypeAlias = "tuple[float, Mapping[str, float], Mapping[int, int], int, int | None]"
"""Report of a task: processor seconds, by phase, rows by exchange, bytes shuffled, bytes in memory."""

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_reported = 0.0
"""Processor time of this worker process that its tasks have reported."""


@dataclass(slots=True)
class TaskCost:
    """Processor time of a task by phase, and its rows by exchange. A task runs in one thread.

    shuffled: bytes of rows that leave the task.
    """

    phases: dict[str, float] = field(default_factory=lambda: dict.fromkeys(get_args(Phase), 0.0))
    exchanges: Counter[int] = field(default_factory=Counter[int])
    shuffled: int = 0
    _phase: Phase = "read"
    _since: float = field(default_factory=time.thread_time)

    def enter(self, phase: Phase) -> Phase:
        """Attribute time from now on to `phase`; return the previous phase."""
        now = time.thread_time()
        before = self._phase
        self.phases[before] += now - self._since
        self._phase, self._since = phase, now
        return before

    def loaded(self, seconds: float) -> None:
        """Count part of the computing time as time spent loading state.

        It was measured by the clock, so on a busy machine it may be more than the processor gave.
        """
        part = min(seconds, self.phases["compute"])
        self.phases["load state"] += part
        self.phases["compute"] -= part

    def result(self) -> TaskCostReport:
        """Report the costs. The seconds are the process's time since its last task."""
        global _reported
        self.enter(self._phase)
        seconds = time.process_time()
        spent, _reported = seconds - _reported, seconds
        return spent, dict(self.phases), dict(self.exchanges), self.shuffled, _most_memory()


def _most_memory() -> int | None:
    """Return the peak memory of this process in bytes."""
    try:
        import resource
    except ImportError:
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


@dataclass(slots=True)
class CostMeter:
    """Driver-side meter of tick costs. exchanges: their names, by number."""

    spark: SparkSession | None = None
    exchanges: tuple[str, ...] = ()
    _driver: float = field(default_factory=time.process_time)
    _jvm: float | None = None

    def __post_init__(self) -> None:
        self._jvm = self._jvm_seconds()

    def lap(self, tasks: Iterable[TaskCostReport]) -> Cost:
        """Return the cost since the last lap, including tasks."""
        driver, jvm = time.process_time(), self._jvm_seconds()
        phases, exchanges = dict.fromkeys(get_args(Phase), 0.0), Counter[str]()
        workers, shuffled = 0.0, 0
        memory: int | None = None
        for seconds, by_phase, rows, size, most in tasks:
            workers += seconds
            memory = max(memory or 0, most or 0) or None
            for phase, part in by_phase.items():
                phases[phase] += part
            shuffled += size
            for number, count in rows.items():
                exchanges[self._name(number)] += count
        spent = None if jvm is None or self._jvm is None else jvm - self._jvm
        cost = Cost(driver - self._driver, spent, workers, phases, dict(exchanges), shuffled, memory)
        self._driver, self._jvm = driver, jvm
        return cost

    def _name(self, exchange: int) -> str:
        return self.exchanges[exchange] if exchange < len(self.exchanges) else str(exchange)

    def _jvm_seconds(self) -> float | None:
        """Return the CPU time of the JVM that this process started, if the system reports it."""
        gateway: Any = getattr(getattr(self.spark, "_sc", None), "_gateway", None)
        process: Any = getattr(gateway, "proc", None)
        try:
            text = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii", errors="replace")
        except (OSError, AttributeError):
            return None
        # The second field is the name, which may hold blanks; user and system time are the 14th and 15th.
        fields = text.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
