"""Task bodies of a tick, run in Spark's Python workers: one stage per task, or the whole tick in one.

Both ways run the same cells on the same rows and the same state. They differ in how rows get from stage to
stage: through a shuffle, or through a list.
"""

from __future__ import annotations

import gc
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from headrace.errors import HeadraceError
from headrace.expr.types import Rows, Schema
from headrace.io.arrow import table_to_rows, with_all_columns, without_zero_weights
from headrace.spark.ticks.cell import (
    CellInput,
    by_source,
    by_time,
    cell_number,
    open_stage_on_shard,
    pass_on,
    run_stateless,
)
from headrace.spark.ticks.failures import Task
from headrace.spark.ticks.intake import Tagged, Taken, read_inputs, tagged_batch
from headrace.spark.ticks.messages import (
    Message,
    TaskCost,
    TaskResult,
    bad_result,
    chain_result,
    error_result,
    from_batches,
    piece_of,
    place_of,
    rows_of,
    to_batches,
    to_table,
)
from headrace.spark.ticks.output import takes_columns, write_changes
from headrace.spark.ticks.plan import Compiled, CompiledStage, ShippedPlan
from headrace.spark.ticks.round_task import Address, RoundJob, fetch_messages, post_output, run_rounds
from headrace.state.chain import BatchChain, make_durable

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.spark.placing.row_placement import Divide
    from headrace.spark.placing.stages import Exchange, LoopStages


ExchangedRows: TypeAlias = "tuple[int, int, Rows | pa.Table]"
"""Exchange number, place, and rows."""
Shares: TypeAlias = Sequence[Sequence[Tagged]]
"""Rows and files given by the driver to each task of stage 0, besides the rows of DataFrames."""


@dataclass(frozen=True, slots=True)
class TickSpec:
    """Everything a task needs to run its part of a tick.

    due: cells that run even without input. leg: the current job of a tick that takes several.
    shared: folder for large tables between stages, if all tasks see it.
    times: for a tick that covers several times in succession. A place is then the index of a time, and rows
        of sinks have the time as last field. No operator of such a flow reads the order of rows.
    """

    shipped: ShippedPlan
    tick: int
    chains: Mapping[int, BatchChain]
    due: frozenset[int]
    leg: RoundJob | None = None
    times: tuple[int, ...] | None = None
    shared: str | None = None


@dataclass(slots=True)
class CellOutput:
    """Rows sent by cells, grouped by destination. place: position of the next rows within their exchange.

    timed: places are kept apart in all exchanges, not only if order is meaningful.
    posts: the rows leave this process, for which columns are cheaper.
    """

    plan: Compiled
    cost: TaskCost
    timed: bool = False
    posts: bool = False
    place: int = 0
    _sent: dict[Address, list[Rows | pa.Table]] = field(
        default_factory=dict[Address, "list[Rows | pa.Table]"]
    )

    def send(self, number: int, exchange: Exchange, divide: Divide, rows: Rows | pa.Table) -> None:
        """Send rows over an exchange, divided among its shards. A table has a divider of its own."""
        before = self.cost.enter("exchange")
        divide_table, table = self._of_sender(exchange).in_columns.get(exchange.name), None
        if divide_table is not None:
            # A hash of columns costs a tenth of one of rows.
            table = self._to_table(rows, number) if isinstance(rows, list) else rows
        if divide_table is not None and table is not None:
            self._add(number, exchange, len(rows), divide_table(table))
        else:
            assert isinstance(rows, list)
            self._add(number, exchange, len(rows), divide(rows))
        self.cost.enter(before)

    def _add(self, number: int, exchange: Exchange, count: int, parts: Mapping[int, Rows | pa.Table]) -> None:
        self.cost.exchanges[number] += count
        for shard, part in parts.items():
            self._sent.setdefault(self._address(exchange.to_stage, shard, number), []).append(part)

    def _of_sender(self, exchange: Exchange) -> CompiledStage:
        return self.plan.stages[exchange.from_stage]

    def _to_table(self, rows: Rows, number: int) -> pa.Table | None:
        """Return rows that leave this process as columns; None if rows are cheaper or do not fit columns."""
        exchange = self.plan.plan.stages.exchanges[number]
        made = self.posts and number in self._of_sender(exchange).convertible
        return to_table(rows, exchange) if made else None

    def _address(self, stage: int, shard: int, exchange: int) -> Address:
        placed = self.timed or self.plan.plan.stages.exchanges[exchange].ordered
        return stage, shard, exchange, self.place if placed else 0

    def pieces(self) -> Iterator[tuple[Address, Rows | pa.Table]]:
        """Yield everything sent, by address, in the order in which it was sent."""
        import pyarrow as pa

        for address, pieces in self._sent.items():
            if all(isinstance(piece, pa.Table) for piece in pieces):
                yield address, pa.concat_tables(pieces)
            else:
                exchange = self.plan.plan.stages.exchanges[address[2]]
                rows = [row for piece in pieces for row in rows_of(piece, exchange)]
                table = self._to_table(rows, address[2])
                yield address, rows if table is None else table

    def put(self, message: Message) -> None:
        """Add the rows of a received message."""
        stage, shard, exchange, place, body = message
        self._sent.setdefault((stage, shard, exchange, place), []).append(piece_of(body))

    def take(self, stage: int, shard: int) -> list[ExchangedRows]:
        """Take the rows sent to a cell."""
        self.cost.enter("exchange")
        keys = [key for key in self._sent if key[:2] == (stage, shard)]
        return [
            (number, place, piece)
            for _, _, number, place, pieces in ((*key, self._sent.pop(key)) for key in keys)
            for piece in pieces
        ]


def scatter(order: TickSpec, shares: Shares = ()) -> Task:
    """Task of stage 0: turn input into messages for the shards."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        given = _given(batches, shares)
        return to_batches(_guarded(Attempt(order), 0, lambda attempt: _scatter(attempt, given)))

    return task


def stage(order: TickSpec, number: int) -> Task:
    """Task for a later stage, which runs on the shard whose number is the partition's."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return to_batches(_guarded(Attempt(order), number, lambda attempt: _stage(attempt, number, batches)))

    return task


def whole_tick(order: TickSpec, shares: Shares = ()) -> Task:
    """Task that runs all stages of a small tick, shard by shard, without a shuffle."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        given = _given(batches, shares)
        return to_batches(_guarded(Attempt(order), 0, lambda attempt: _whole_tick(attempt, given)))

    return task


def make_rounds_task(order: TickSpec, loop: LoopStages, most: int, before: int) -> Task:
    """Task that runs a loop on all shards while rounds have at most `most` rows, after `before` rounds."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return to_batches(
            _guarded(
                Attempt(order), loop.first, lambda attempt: _rounds(attempt, loop, most, before, batches)
            )
        )

    return task


@dataclass(slots=True)
class Attempt:
    """Attempt of a task; its files carry its name."""

    order: TickSpec
    plan: Compiled = field(init=False)
    name: str = field(init=False)
    sinks: defaultdict[str, Rows] = field(init=False)
    tables: defaultdict[str, list[pa.Table]] = field(init=False)
    files: list[Path] = field(init=False)
    cost: TaskCost = field(default_factory=TaskCost, init=False)

    def __post_init__(self) -> None:
        self.plan = self.order.shipped.unpack()
        self.name = uuid.uuid4().hex[:12]
        self.sinks = defaultdict(list)
        self.tables = defaultdict(list)
        self.files = []

    def outbox(self, *, posts: bool = True) -> CellOutput:
        return CellOutput(self.plan, self.cost, self.order.times is not None, posts)

    def keep(self, sinks: Mapping[str, Rows | pa.Table], place: int = 0) -> None:
        times = self.order.times
        for name, rows in sinks.items():
            output = self.plan.plan.outputs.get(name)
            if output is None:
                continue
            if not isinstance(rows, list):
                if times is None:
                    self.tables[name].append(rows)
                    continue
                rows = table_to_rows(rows, output.schema, weighted=True)
            self.sinks[name].extend(rows if times is None else [(*row, times[place]) for row in rows])

    def run_on_columns(
        self, source: str, table: pa.Table, out: CellOutput, place: int, *, checked: bool
    ) -> None:
        """Run stage 0 on rows of a source that arrived in columns.

        checked: whether each value is known to be as declared.
        """
        of = self.plan.stages[0]
        to = of.forwarded.get(source)
        if to is None:
            made = of.columnar.run(source, table, checked=checked)
        elif not to.sinks:
            return
        else:
            graph = of.stage.graph
            fields = graph.nodes[graph.sources[source]].schema.fields
            table = with_all_columns(table, Schema(tuple(f for f in fields if f.name in to.columns)))
            table = table.select(list(to.columns)).rename_columns(list(to.names))
            if not of.program.source_append[source]:
                table = without_zero_weights(table)
            made = dict.fromkeys(to.sinks, table)
        self.keep(pass_on(of, made, out.send), place)

    def cell(
        self, stage: int, shard: int, arrived: list[ExchangedRows], out: CellOutput
    ) -> Iterator[TaskResult]:
        """Run a cell if it has input or is due."""
        number = cell_number(stage, shard, self.plan.plan.stages.shards)
        is_due = number in self.order.due
        if not arrived and not is_due:
            return
        chain = self.order.chains.get(number, BatchChain())
        self.cost.enter("load state")
        with closing(open_stage_on_shard(self.plan, stage, shard, chain, self.order.tick)) as cell:
            self.cost.enter("compute")
            for place, inputs in self._turns(shard, arrived, is_due, columns=cell.takes_columns):
                out.place = place
                self.keep(cell.run(inputs, out.send), place)
            self.cost.enter("write state")
            done = cell.finish(self.name)
            self.cost.loaded(done.seconds_loading)
        self.files.extend(done.files)
        yield chain_result(number, done.chain, done.pending, done.waiting)
        yield from (TaskResult("clock", clock) for clock in done.clocks)

    def _turns(
        self, shard: int, arrived: list[ExchangedRows], is_due: bool, *, columns: bool
    ) -> Iterable[tuple[int, dict[str, CellInput]]]:
        """Yield a cell's inputs one after another, each with the place of its output rows.

        columns: whether rows that came in columns stay there.
        """
        if self.order.times is None:
            return [(shard, by_source(self.plan, arrived, columns=columns))]
        turns = by_time(self.plan, arrived, columns=columns)
        # What acts by itself does so at the first time.
        return ({0: {}} | turns if is_due else turns).items()

    def post_output(self, out: CellOutput, stage: int) -> Iterator[Message | TaskResult]:
        """Yield the messages sent by a stage."""
        self.cost.enter("exchange")
        for message in post_output(out, stage, self.order.leg, self.name, self.order.shared):
            if not isinstance(message, TaskResult):
                self.cost.shuffled += len(message[4])
            yield message

    def written(self) -> Iterator[TaskResult]:
        """Write the task's output. Its results count only once this has finished."""
        self.cost.enter("write state")
        if self.plan.plan.durable:
            make_durable(self.files)
        self.cost.enter("write")
        changes: dict[str, Rows | pa.Table] = {**self.sinks}
        for name, tables in self.tables.items():
            changes[name] = self._together(name, tables)
        for name, rows in changes.items():
            output = self.plan.plan.outputs[name]
            yield from write_changes(
                output.target, output, self.order.tick, self.name, rows, self.plan.plan.durable
            )

    def _together(self, name: str, tables: list[pa.Table]) -> Rows | pa.Table:
        """Combine a sink's changes, some in columns; keep columns if all are and the target takes them."""
        import pyarrow as pa

        output, rows = self.plan.plan.outputs[name], self.sinks.get(name, [])
        whole = pa.concat_tables(tables)
        if not rows and takes_columns(output.target):
            return whole
        return [*rows, *table_to_rows(whole, output.schema, weighted=True)]


def _guarded(
    attempt: Attempt, stage: int, run: Callable[[Attempt], Iterator[Message | TaskResult]]
) -> Iterator[Message]:
    # Rows and state hold no cycles, and a task's memory is free again at its end.
    collects = gc.isenabled()
    gc.disable()
    _spare_what_stays(attempt.order.shipped.digest)
    try:
        for item in run(attempt):
            yield item.message(0) if isinstance(item, TaskResult) else item
        yield TaskResult("cost", attempt.cost.result()).message(0)
    except HeadraceError as error:
        # An error of ours is the same whenever the task is run again: it is told, not retried.
        yield error_result(stage, error).message(0)
    finally:
        if collects:
            gc.enable()


_plan_before = _spared_for = ""


def _spare_what_stays(plan: str) -> None:
    """Exclude modules and a plan from the garbage collection that a worker runs after each task."""
    global _plan_before, _spared_for
    from pyspark import TaskContext

    if TaskContext.get() is None:
        return
    if plan != _plan_before:
        # What the plan before leaves behind is collected after this task.
        gc.unfreeze()
        _spared_for = ""
    elif plan != _spared_for:
        # To look at all of them takes 35 ms. Once per plan only: what later tasks leave has to be collected.
        gc.freeze()
        _spared_for = plan
    _plan_before = plan


def _read(attempt: Attempt, batches: Iterable[pa.RecordBatch], out: CellOutput) -> Iterator[TaskResult]:
    taken = Taken()
    of = attempt.plan.stages[0]
    gathered: frozenset[str] = frozenset()
    columns: frozenset[str] = frozenset()
    if attempt.order.times is None:
        gathered = of.columnar.sources - of.forwarded.keys()
        columns = gathered.union(of.forwarded)
    for piece in read_inputs(batches, attempt.plan.plan.inputs, taken, _partition(), columns, gathered):
        if not len(piece.rows):
            continue
        attempt.cost.enter("compute")
        out.place = piece.place
        if isinstance(piece.rows, list):
            attempt.keep(run_stateless(of, {piece.name: piece.rows}, out.send), piece.place)
        else:
            attempt.run_on_columns(piece.name, piece.rows, out, piece.place, checked=piece.checked)
        attempt.cost.enter("read")
    yield from (TaskResult("taken", item) for item in taken.rows.items())
    yield from (bad_result(source, record) for source, record in taken.bad)
    yield from (TaskResult("widened", astuple(column)) for column in taken.widened)


def _scatter(attempt: Attempt, batches: Iterable[pa.RecordBatch]) -> Iterator[Message | TaskResult]:
    out = attempt.outbox()
    yield from _read(attempt, batches, out)
    yield from attempt.post_output(out, 0)
    yield from attempt.written()


def _stage(
    attempt: Attempt, number: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[Message | TaskResult]:
    shard = _partition()
    attempt.cost.enter("exchange")
    timed = attempt.order.times is not None
    arrived: list[ExchangedRows] = []
    for message in fetch_messages(from_batches(batches), number):
        if message[0] == number:
            assert message[1] == shard, "rows came to the wrong shard"
            place = place_of(message) if timed else message[3]
            arrived.append((message[2], place, piece_of(message[4])))
        else:
            yield message
    out = attempt.outbox()
    yield from attempt.cell(number, shard, arrived, out)
    yield from attempt.post_output(out, number)
    yield from attempt.written()


def _given(batches: Iterable[pa.RecordBatch], shares: Shares) -> Iterable[pa.RecordBatch]:
    """Return the input of a task: its share if a frame only starts the tasks, otherwise the frame's rows."""
    if not shares:
        return batches
    # Spark does not use a worker again that has left rows unread.
    for _ in batches:
        pass
    return [tagged_batch(shares[_partition()])]


def _partition() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _whole_tick(attempt: Attempt, batches: Iterable[pa.RecordBatch]) -> Iterator[Message | TaskResult]:
    out = attempt.outbox(posts=False)
    yield from _read(attempt, batches, out)
    stages = attempt.plan.plan.stages
    for span in stages.spans():
        if span.loop is not None:
            yield from run_rounds(attempt, span.loop, out)
            continue
        for number in range(span.first, span.last + 1):
            for shard in range(stages.shards):
                yield from attempt.cell(number, shard, out.take(number, shard), out)
    yield from attempt.written()


def _rounds(
    attempt: Attempt, loop: LoopStages, most: int, before: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[Message | TaskResult]:
    out = attempt.outbox(posts=False)
    for message in fetch_messages(from_batches(batches)):
        out.put(message)
    yield from run_rounds(attempt, loop, out, most, before)
    yield from attempt.post_output(out, loop.last)
    yield from attempt.written()


__all__ = ["Attempt", "CellOutput", "TickSpec", "make_rounds_task", "scatter", "stage", "whole_tick"]
