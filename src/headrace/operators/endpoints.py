"""Ends of a flow: sources, keyed tables, the row of the first tick, empty streams, and sinks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.expr.row_classes import KeyedRows
from headrace.graph.node import Operator
from headrace.graph.operator_declarations import (
    ANYWHERE,
    BOUNDED,
    RECORDS,
    WHOLE,
    Facts,
    Placement,
    Port,
    meet,
)
from headrace.lowering.forms import apply_operator, lower_operator
from headrace.lowering.reference import Bag, Bags, Examples, answer_of_bags
from headrace.lowering.row_code import RowCode
from headrace.lowering.slot import Slot
from headrace.lowering.step import RowStep, register_step
from headrace.operators.column_arguments import ANY_VALUE
from headrace.operators.signals.lift import SignalOperator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.columns.column_stream import ColumnStream
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Unservable
    from headrace.lowering.forms import BatchContext


# --- source operator: entry point of rows ---------------------------------------------------------


# --- source operator: entry point of rows ---------------------------------------------------------


TICK_TIME = "tick_time"
"""Name of the source of times that runs feed with the time of their ticks."""


@dataclass(frozen=True, slots=True)
class SourceOperator(Operator):
    """The rows given to each tick under the source's name.

    bounded: all rows arrive in the first tick; later ones are an error.
    append:  rows are only added; otherwise each row has a weight, and may be retracted.

    >>> import headrace as hr
    >>> from headrace.testing import show
    >>> show(lambda added: added, added=[1, 2, 1])
    + 1
    + 2
    + 1
    >>> show(lambda table: table, table=[hr.insert(1), hr.insert(2), hr.delete(1)])
    + 2
    """

    kind: ClassVar[str] = "source"
    examples: ClassVar[Examples] = {"append": lambda x, y: x, "table": lambda x, y: y}
    name: str
    schema: Schema
    bounded: bool = False
    append: bool = True

    def ports(self) -> tuple[Port, ...]:
        return ()

    def output(self, context: CheckContext) -> Columns:
        context.check_name(self.name)
        context.require(self.append or not self.bounded, "a table cannot be bounded")
        context.require(self.schema == context.output, "the source has other columns than its rows")
        return self.schema.fields

    def unservable(self) -> Unservable | None:
        return BOUNDED if self.bounded else None

    def placement(self) -> Placement:
        return ANYWHERE

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return Facts(bounded=self.bounded, append=self.append, ordered=self.append)

    def columns_given(self, live: frozenset[str]) -> frozenset[str]:
        """Return the user's columns from which the live columns of this source are computed."""
        return live

    def describe(self) -> str:
        return ", ".join(["changes"] * (not self.append) + ["bounded"] * self.bounded)


# --- keyed-source operator: entry point of the records of a table with a key ----------------------


@dataclass(frozen=True, slots=True)
class KeyedSource(SourceOperator):
    """The records of a table with a key: each sets or deletes the row of its key.

    keyed: rows of the table. What is given to the source is converted to records of them.
    """

    plan_name: ClassVar[str | None] = "keyed_source"
    examples: ClassVar[Examples] = {}
    keyed: KeyedRows = field(kw_only=True)

    def output(self, context: CheckContext) -> Columns:
        context.require(self.append and self.schema == self.keyed.records, "the records are not of its rows")
        return SourceOperator.output(self, context)

    def unservable(self) -> Unservable | None:
        return RECORDS

    def columns_given(self, live: frozenset[str]) -> frozenset[str]:
        return frozenset(self.keyed.rows.names)  # a row is held whole

    def describe(self) -> str:
        order = "" if self.keyed.sequence is None else f", sequence {self.keyed.sequence}"
        return f"records by ({', '.join(self.keyed.key)}){order}"


# --- initialize operator: one row in the first tick -----------------------------------------------


@dataclass(frozen=True, slots=True)
class Initialize(Operator):
    """One row, `()`, in the first tick of a run. The operator itself starts no tick.

    A run resumed from a checkpoint has already had its first tick.

    >>> import headrace as hr
    >>> flow = hr.Flow("start")
    >>> flow.sink("started", flow.initialize())
    >>> engine = hr.Engine(flow)
    >>> [change.row for change in engine.tick()["started"]]
    [()]
    >>> [change.row for change in engine.tick()["started"]]
    []
    """

    kind: ClassVar[str] = "initialize"
    examples: ClassVar[Examples] = {
        "initialize": lambda x, y: x.flow.initialize(),
        "mapped": lambda x, y: x.flow.initialize().map(lambda _: 1, returns=int),
    }
    runs_first_tick: ClassVar[bool] = True

    def ports(self) -> tuple[Port, ...]:
        return ()

    def output(self, context: CheckContext) -> Columns:
        return ANY_VALUE.fields

    def unservable(self) -> Unservable | None:
        return None

    def at_most_one_row(self) -> bool:
        return True

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return Facts(bounded=True, append=True, ordered=True)

    def placement(self) -> Placement:
        return WHOLE


# --- null operator: an empty stream, and a consumer for unused rows -------------------------------


@dataclass(frozen=True, slots=True)
class Null(Operator):
    """Stream without rows.

    swallows: whether it reads a stream. Then the operators upstream run as if for a sink, and their rows are
              dropped.

    >>> import headrace as hr
    >>> flow = hr.Flow("watched")
    >>> _ = flow.source("numbers", int).inspect(print).null()
    >>> _ = hr.Engine(flow).tick(numbers=[1, 2])
    1
    2
    """

    kind: ClassVar[str] = "null"
    examples: ClassVar[Examples] = {"null": lambda x, y: y.null()}
    ends_streams: ClassVar[bool] = True
    swallows: bool

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),) if self.swallows else ()

    def output(self, context: CheckContext) -> Columns:
        return context.input.fields if self.swallows else None

    def unservable(self) -> Unservable | None:
        return None

    def placement(self) -> Placement:
        return ANYWHERE

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return meet(())


@register_step(Initialize)
class InitializeStep(RowStep):
    """Step of initialize. Slot, under the key (): present after the first tick."""

    keeps_state = True

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.begun"),)

    def finish(self) -> None:
        with self.code.block(f"if {self.slot_getter('begun')}(()) is None:"):
            self.code.line(f"{self.slot('begun')}[()] = True")
            self.emit(RowCode(("()",)))


@register_step(Null)
class NullStep(RowStep):
    """Step that emits nothing."""

    def consume(self, port: int, row: RowCode) -> None:
        pass


@lower_operator.register(Null)
def _null_on_spark(operator: Null, context: BatchContext) -> DataFrame:
    return context.empty()


@answer_of_bags.register(Initialize)
def _initialize_answer(operator: Initialize, node: Node, inputs: Bags) -> Bag:
    return Counter({((),): 1})


@answer_of_bags.register(Null)
def _null_answer(operator: Null, node: Node, inputs: Bags) -> Bag:
    return Counter()


@dataclass(frozen=True, slots=True)
class SinkOperator(Operator):
    """The changes of a stream, consolidated: per tick at most one per row, with non-zero weight.

    An append stream is emitted as plain rows: weight +1 each, copies one by one.

    >>> import headrace as hr
    >>> flow = hr.Flow("numbers")
    >>> flow.sink("out", flow.table("numbers", int))
    >>> hr.Engine(flow).tick(numbers=[hr.insert(1), hr.insert(2), hr.delete(1)])["out"]
    SinkChanges([Change(row=2, weight=1)])
    """

    kind: ClassVar[str] = "sink"
    examples: ClassVar[Examples] = {"sink": lambda x, y: y, "append": lambda x, y: x}
    reads_net_changes: ClassVar[bool] = True
    name: str

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def output(self, context: CheckContext) -> Columns:
        context.check_name(self.name)
        if isinstance(context.upstream(0), SignalOperator) and not context.input.scalar:
            return ANY_VALUE.fields
        return context.input.fields

    def unservable(self) -> Unservable | None:
        return None

    def placement(self) -> Placement:
        return ANYWHERE

    def free_of_negative_zero(self, inputs: Sequence[bool]) -> bool:
        return all(inputs)


@apply_operator.register(SinkOperator)
def _sink_on_columns(
    operator: SinkOperator, schema: Schema, append: bool, inputs: Sequence[ColumnStream]
) -> ColumnStream:
    from headrace.columns.column_stream import check_plain, sum_weights

    (stream,) = inputs
    check_plain(schema)
    return stream if append else sum_weights(stream)


@lower_operator.register(SinkOperator)
def _sink_on_spark(operator: SinkOperator, context: BatchContext) -> DataFrame:
    return context.inputs[0]


@answer_of_bags.register(SinkOperator)
def _sink_answer(operator: SinkOperator, node: Node, inputs: Bags) -> Bag:
    return inputs[0][1]


@register_step(SinkOperator)
class SinkStep(RowStep):
    """Step that collects a tick's changes for the region to return."""

    keeps_state = True
    has_result = True

    def begin(self) -> None:
        self.code.line(f"{self.writer.result_variable(self.node.id)} = []")

    def consume(self, port: int, row: RowCode) -> None:
        append = self.writer.is_append(self.node.id)
        self.code.line(f"{self.writer.result_variable(self.node.id)}.append({row.flat(append=append)})")

    def finish(self) -> None:
        if not self.writer.is_append(self.node.id) and not self.writer.is_consolidated(self.node.inputs[0]):
            name = self.writer.result_variable(self.node.id)
            self.code.line(f"{name} = x_consolidate({name})")
