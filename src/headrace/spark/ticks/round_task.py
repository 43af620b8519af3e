"""Task side of a tick in several jobs: rounds within one task, and messages kept in files for later jobs.

Between jobs, a task writes all that it sends beyond its own into one file, and the driver holds only names:
what it tells of each message, the next job gets back as a message of the same address, with where it lies
in its stead. Within a job whose tasks share a machine, large tables go the same way: written once and
mapped by the task that reads them, instead of through Spark's shuffle, which copies and compresses them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.ipc as ipc

from headrace.engine.columnar.runner import as_rows
from headrace.errors import UnreadableSource
from headrace.expr.types import Rows
from headrace.spark.ticks.cell import OpenCell, by_source, cell_number, run_stateless
from headrace.spark.ticks.messages import (
    BLOBS_OF_ONE_PLACE,
    TO_DRIVER,
    Message,
    TaskResult,
    chain_result,
    messages_of,
)
from headrace.state.chain import BatchChain
from headrace.state.codec import decode, value_encoder

if TYPE_CHECKING:
    from headrace.spark.placing.stages import LoopStages
    from headrace.spark.ticks.task import Attempt, CellOutput


Address: TypeAlias = tuple[int, int, int, int]
"""Destination of rows: stage, shard, exchange, place."""

SENT = "sent"

NOTHING: Message = (-2, 0, 0, 0, b"")
"""Message to no stage: Spark starts no task on an empty frame, but some tasks must run without input."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A message stored in a file. port: number of its exchange. rows: its row count."""

    stage: int
    shard: int
    port: int
    place: int
    path: str
    offset: int
    size: int
    rows: int

    def reference(self) -> Message:
        """Return the reference that stands for the stored message in a job; a negative port marks it."""
        body = value_encoder()((self.path, self.offset, self.size))
        return (self.stage, self.shard, -1 - self.port, self.place, body)

    def result(self) -> TaskResult:
        body = (self.stage, self.shard, self.port, self.place, self.path, self.offset, self.size, self.rows)
        return TaskResult(SENT, body)


def split_sent(results: Iterable[TaskResult]) -> tuple[list[Sent], list[TaskResult]]:
    """Separate messages stored for later jobs from all other results."""
    sent: list[Sent] = []
    others: list[TaskResult] = []
    for result in results:
        if result.kind == SENT:
            sent.append(Sent(*result.body))
        else:
            others.append(result)
    return sent, others


def write_messages(path: Path, messages: Iterable[tuple[Message, int]]) -> Iterator[TaskResult]:
    """Write messages with their row counts to a file; yield a reference to each for the driver."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as out:
        for (stage, shard, port, place, body), rows in messages:
            offset = out.tell()
            out.write(body)
            yield Sent(stage, shard, port, place, str(path), offset, len(body), rows).result()


LARGE = 1 << 18
"""Bytes of a table from which it is handed on in a file, where tasks share a machine."""
_ALIGNED = 64


def write_large_tables(
    folder: str, attempt: str, tables: Iterable[tuple[Address, pa.Table]]
) -> Iterator[Message]:
    """Write tables to a file of their own; yield for each a message that refers to it."""
    path = Path(folder) / f"{attempt}.tables"
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(path), "wb") as out:
        for (stage, shard, port, place), table in tables:
            begin = out.tell()
            with ipc.new_stream(out, table.schema) as stream:
                stream.write_table(table)
            size = out.tell() - begin
            yield Sent(stage, shard, port, place * BLOBS_OF_ONE_PLACE, str(path), begin, size, 0).reference()
            out.write(bytes(-out.tell() % _ALIGNED))


def fetch_messages(messages: Iterable[Message], of: int | None = None) -> Iterator[Message]:
    """Resolve references among messages by reading their files.

    of: stage that reads the messages; references for other stages are not resolved.
    """
    for message in messages:
        stage, shard, port, place, body = message
        if message == NOTHING:
            continue
        if port >= 0 or stage == TO_DRIVER or (of is not None and stage != of):
            yield message
            continue
        path, offset, size = decode(body)
        yield (stage, shard, -1 - port, place, read(path, offset, size))


def read(path: str, offset: int, size: int) -> bytes | pa.Buffer:
    """Return the body of a stored message. Raises `UnreadableSource` if it is missing."""
    try:
        with pa.memory_map(path) as file:
            file.seek(offset)
            return file.read_buffer(size)
    except FileNotFoundError:
        raise UnreadableSource(
            "what a task has sent is not there for the next one",
            why=f"{path} is missing. In rounds, tasks hand each other files, which every host must see.",
            fix="put the checkpoint (of a batch: the temporary files, TMPDIR) where all hosts see it",
            path=path,
        ) from None


ROUNDS = "rounds"


@dataclass(frozen=True, slots=True)
class RoundJob:
    """Job of a tick with rounds.

    number: how many there were before it in the tick.
    last:   its last stage; what is bound for later ones, or goes round, is written down.
    folder: where that is written.
    """

    number: int
    last: int
    folder: str


def post_output(
    out: CellOutput, stage: int, leg: RoundJob | None, attempt: str, shared: str | None = None
) -> Iterator[Message | TaskResult]:
    """Yield the messages sent by a stage: passed to a later stage of the job, or stored for other jobs.

    shared: folder for large tables that a later stage of the job reads, if all tasks see it.
    """
    beyond: list[tuple[Address, Rows | pa.Table]] = []
    large: list[tuple[Address, pa.Table]] = []
    for address, rows in out.pieces():
        if leg is not None and not stage < address[0] <= leg.last:
            beyond.append((address, rows))
        elif shared is not None and not isinstance(rows, list) and rows.nbytes >= LARGE:
            large.append((address, rows))
        else:
            yield from messages_of(*address, rows)
    if shared is not None and large:
        yield from write_large_tables(shared, f"{attempt}-{stage}", large)
    if leg is not None and beyond:
        yield from write_messages(Path(leg.folder) / f"{attempt}.sent", _counted(beyond))


def _counted(
    pieces: list[tuple[Address, Rows | pa.Table]],
) -> Iterator[tuple[Message, int]]:
    """Yield the messages of all pieces; the first message of each carries the piece's row count."""
    for address, rows in pieces:
        count = len(rows)
        for message in messages_of(*address, rows):
            yield message, count
            count = 0


def run_rounds(
    attempt: Attempt, loop: LoopStages, out: CellOutput, most: int | None = None, before: int = 0
) -> Iterator[TaskResult]:
    """Run a loop on all shards from the rows in `out`, until no rows circulate.

    most: gives up, leaving in `out` what goes round, when that is more rows in one round.
    before: number of earlier rounds in the tick. With `most`, the driver receives the counts of the rounds
          run.
    """
    growth: list[Mapping[int, int]] = []
    with ExitStack() as closing:
        cells = _Cells(attempt, closing)
        while True:
            for stage in range(loop.first, loop.last + 1):
                for shard in range(attempt.plan.plan.stages.shards):
                    given = by_source(attempt.plan, out.take(stage, shard), columns=False)
                    inputs = {name: as_rows(rows) for name, rows in given.items()}
                    if inputs:
                        cells.run(stage, shard, inputs, out)
            back = Counter[int]()
            for (to_stage, _, exchange, _), rows in out.pieces():
                if to_stage <= loop.last:
                    back[exchange] += len(rows)
            if not back or (most is not None and back.total() > most):
                break
            growth.append(back)
            loop.check(growth, before)
        yield from cells.finished()
    if most is not None:
        yield TaskResult(ROUNDS, tuple(dict(back) for back in growth))


def rounds_of(results: Iterable[TaskResult]) -> Iterator[Mapping[int, int]]:
    """Return the rows fed back over each exchange, for each round that tasks ran."""
    return (back for result in results if result.kind == ROUNDS for back in result.body)


class _Cells:
    """Open cells of a loop, each opened on first input and finished once."""

    def __init__(self, attempt: Attempt, closing: ExitStack) -> None:
        self._attempt = attempt
        self._closing = closing
        self._open: dict[int, OpenCell] = {}

    def run(self, stage: int, shard: int, inputs: dict[str, Rows], out: CellOutput) -> None:
        attempt = self._attempt
        of = attempt.plan.stages[stage]
        if not of.slots:
            attempt.keep(run_stateless(of, inputs, out.send))
            return
        number = cell_number(stage, shard, attempt.plan.plan.stages.shards)
        cell = self._open.get(number)
        if cell is None:
            chain = attempt.order.chains.get(number, BatchChain())
            cell = OpenCell(attempt.plan, stage, shard, chain, attempt.order.tick)
            self._closing.callback(cell.close)
            self._open[number] = cell
        attempt.keep(cell.run(inputs, out.send))

    def finished(self) -> Iterator[TaskResult]:
        for number, cell in self._open.items():
            done = cell.finish(self._attempt.name)
            self._attempt.files.extend(done.files)
            yield chain_result(number, done.chain, done.pending, done.waiting)
