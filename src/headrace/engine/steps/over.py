"""Step for window functions: each partition's rows in order, with their answers."""

from __future__ import annotations

from functools import singledispatchmethod
from typing import TYPE_CHECKING, Any

from headrace.engine import partition_frames, partition_ranks, partition_values, partitions
from headrace.engine.steps.group_code import ROWS, Group
from headrace.expr.check import check
from headrace.expr.sort_keys import order_key
from headrace.lowering.row_code import Row, comparable, item_sources, tuple_source
from headrace.lowering.slot import Slot
from headrace.lowering.step import Step, register_step
from headrace.operators.aggregates import Aggregation
from headrace.operators.over import ComputeOver
from headrace.operators.window_functions import (
    CumeDist,
    DenseRank,
    Lag,
    NthValue,
    Ntile,
    PercentRank,
    Rank,
    RowNumber,
    measured_by,
)

if TYPE_CHECKING:
    from headrace.expr.tree import Expr
    from headrace.graph.node import Node
    from headrace.lowering.step_writer import StepWriter
    from headrace.operators.window_functions import Frame


@register_step(ComputeOver)
class OverStep(Step):
    """Step of window functions. Slot: partition key -> state of the partition."""

    operator: ComputeOver
    keeps_state = True
    consolidates = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.schema = self.input_schema()
        self.touched = writer.node_variable("touched", node.id)

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.partitions", partitions.thaw_partition),)

    def begin(self) -> None:
        self.code.line(f"{self.touched} = {{}}")

    def consume(self, port: int, row: Row) -> None:
        writer, code = self.writer, self.code
        key, changes, whole = writer.fresh("key"), writer.fresh("changes"), writer.fresh("row")
        writer.assign_key(key, self.operator.per, self.schema, row.columns)
        code.line(f"{whole} = {writer.row_key(self.schema, row.columns)}")
        code.line(f"{changes} = {self.touched}.get({key})")
        with code.block(f"if {changes} is None:"):
            code.line(f"{self.touched}[{key}] = {{{whole}: {row.copies}}}")
        with code.block("else:"):
            code.line(f"{changes}[{whole}] = {changes}.get({whole}, 0) + {row.copies}")

    def finish(self) -> None:
        writer, code = self.writer, self.code
        key, changes, partition = writer.fresh("key"), writer.fresh("changes"), writer.fresh("partition")
        row, n = writer.fresh("row"), writer.fresh("n")
        rows, negative = (f"{partition}[{field}]" for field in (partitions.ROWS, partitions.NEGATIVE))
        rule = self.partition_rule()
        with code.block(f"for {key}, {changes} in {self.touched}.items():"):
            self.state("partitions").get_or_add(partition, key, "[[], [], {}]")
            code.line(f"{changes} = {rule}.update({partition}, {changes})")
            with code.block(f"if not {rows} and not {negative}:"):
                code.line(f"del {self.slot('partitions')}[{key}]")
            with code.block(f"for {row}, {n} in {changes}:"):
                columns = writer.unpack(self.node.schema, row)
                writer.emit_copies(self.node.id, Row(columns, row, n))

    # -- functions of rows -------------------------------------------------------------------------

    def partition_rule(self) -> str:
        """Write the module-level variable with the operator's `PartitionRule`, and return its name."""
        made = [
            self._function(over.function, over.frame, f"{at}_of_{self.node.id}")
            for at, (_, over) in enumerate(self.operator.functions)
        ]
        name = self.writer.node_variable("partition_rule", self.node.id)
        order = self._row_function("order", self._order_keys(whole=True))
        self.writer.functions.line(
            f"{name} = {self._of(partitions.PartitionRule)}({tuple_source(made)}, {order})"
        )
        return name

    def _of(self, made: Any) -> str:
        return self.writer.constant(made.__name__, made)

    def _row_function(self, name: str, sources: list[str]) -> str:
        """Write a function of a row, whose sources are over `row`; return its name."""
        function = self.writer.node_variable(name, self.node.id)
        made = sources[0] if len(sources) == 1 else tuple_source(sources)
        with self.writer.function_body(self.node.id, f"def {function}(row):"):
            self.writer.code.line(f"return {made}")
        return function

    @property
    def _columns(self) -> tuple[str, ...]:
        return item_sources("row", len(self.schema.fields))

    def _value(self, name: str, expr: Expr) -> str:
        return self._row_function(name, [self.writer.value(expr, self.schema, self._columns)])

    def _order_keys(self, *, whole: bool) -> list[str]:
        """Return the sources of a row's sort keys. whole: with all columns, which tell peers apart."""
        keys: list[str] = []
        for ordering in self.operator.by:
            source = self.writer.value(ordering.expr, self.schema, self._columns)
            typed = check(ordering.expr, self.schema)
            keys.append(comparable(self.writer, source, typed, descending=ordering.descending))
        if whole:
            pairs = zip(self._columns, self.schema.fields, strict=True)
            rest = [comparable(self.writer, column, field) for column, field in pairs]
            keys.extend(["row"] if rest == list(self._columns) else rest)
        return keys or ["()"]

    def _peers(self) -> str:
        name = self.writer.node_variable("peers", self.node.id)
        by = self._row_function("by", self._order_keys(whole=False))
        self.writer.functions.line(f"{name} = {self._of(partitions.Peers)}({by})")
        return name

    # -- window functions --------------------------------------------------------------------------

    @singledispatchmethod
    def _function(self, function: Any, frame: Frame | None, suffix: str) -> str:
        """Return the source of a function over partitions."""
        raise NotImplementedError(type(function).__name__)

    @_function.register(RowNumber)
    def _(self, function: RowNumber, frame: Frame | None, suffix: str) -> str:
        return f"{self._of(partition_ranks.RowNumbers)}()"

    @_function.register(Rank)
    def _(self, function: Rank, frame: Frame | None, suffix: str) -> str:
        return f"{self._of(partition_ranks.Ranks)}({self._peers()})"

    @_function.register(PercentRank)
    def _(self, function: PercentRank, frame: Frame | None, suffix: str) -> str:
        return f"{self._of(partition_ranks.Ranks)}({self._peers()}, True)"

    @_function.register(DenseRank)
    def _(self, function: DenseRank, frame: Frame | None, suffix: str) -> str:
        return f"{self._of(partition_ranks.DenseRanks)}({self._peers()})"

    @_function.register(CumeDist)
    def _(self, function: CumeDist, frame: Frame | None, suffix: str) -> str:
        return f"{self._of(partition_ranks.CumulativeParts)}({self._peers()})"

    @_function.register(Ntile)
    def _(self, function: Ntile, frame: Frame | None, suffix: str) -> str:
        return f"{self._of(partition_ranks.Tiles)}({function.parts})"

    @_function.register(Lag)
    def _(self, function: Lag, frame: Frame | None, suffix: str) -> str:
        value = self._value(f"value_{suffix}", function.expr)
        default = self._row_function(f"default_{suffix}", ["None"])
        if function.default is not None:
            default = self._value(f"default_{suffix}", function.default)
        made = self._of(partition_values.Lagged)
        return f"{made}({value}, {default}, {function.offset}, {function.ignore_nulls})"

    @_function.register(NthValue)
    def _(self, function: NthValue, frame: Frame | None, suffix: str) -> str:
        assert frame is not None
        value = self._value(f"value_{suffix}", function.expr)
        made = self._of(partition_values.NthValues)
        return f"{made}({self._bounds(frame)}, {value}, {function.n}, {function.ignore_nulls})"

    @_function.register(Aggregation)
    def _(self, function: Aggregation, frame: Frame | None, suffix: str) -> str:
        assert frame is not None
        writer, node = self.writer, self.node.id
        # Frames that start at the partition's start lose no row as they move.
        group = Group(writer, self.schema, [function], appends=frame.start is None)
        empty, add, result = (
            writer.node_variable(f"{name}_{suffix}", node) for name in ("empty", "add", "result")
        )
        with writer.function_body(node, f"def {empty}():"):
            writer.code.line(f"return {group.empty}")
        with writer.function_body(node, f"def {add}(group, row, weight):"):
            group.add("group", Row(self._columns, "row", None if group.appends else "weight"))
        with writer.function_body(node, f"def {result}(group):"):
            group.settle("group")
            (source,) = group.aggregate_sources("group")
            writer.code.line(f"return {source} if group[{ROWS}] > 0 else {function.of_no_rows!r}")
        made, nothing = self._of(partition_frames.Aggregates), function.of_no_rows
        return f"{made}({self._bounds(frame)}, {empty}, {add}, {result}, {nothing})"

    def _bounds(self, frame: Frame) -> str:
        """Return the source of a frame's bounds."""
        of = key = None
        value, descending = "None", False
        if frame.measures_values:
            ordering = measured_by(self.operator.by)
            assert ordering is not None
            typed = check(ordering.expr, self.schema)
            of, descending = typed.type, ordering.descending
            key = order_key(typed.type, False)
            value = self._value("range", ordering.expr)
        names = [
            self.writer.constant(name, given)
            for name, given in (("frame", frame), ("key", key), ("type", of))
        ]
        return (
            f"{self._of(partition_frames.bounds_of)}({names[0]}, {self._peers()}, {value}, {names[1]},"
            f" of={names[2]}, descending={descending})"
        )
