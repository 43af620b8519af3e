"""Steps for sort and top-k.

Sort gathers a tick's rows with their sort keys. Top k keeps each group's rows in order, and compares per tick
the first k before and after.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from headrace.expr.check import check
from headrace.lowering.row_code import MappingCode, Row, comparable, item_sources, tuple_source
from headrace.lowering.slot import Slot, thaw_list
from headrace.lowering.step import Step, register_step
from headrace.operators.lifetime import Lifetime
from headrace.operators.top_k import TopK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.graph.node import Node
    from headrace.lowering.step_writer import StepWriter


def thaw_group(group: Any) -> list[Any]:
    """Thaw function for a group's list."""
    rows, counts, moved, top = group
    return [list(rows), dict(counts), dict(moved), dict(top)]


@register_step(TopK)
class TopKStep(Step):
    """Step of top-k.

    Slot where rows are never retracted: group -> its first rows in order, a copy each. Otherwise:
    group -> [first rows in order, {row: copies}, rows of this tick, {row: copies} last emitted].
    """

    operator: TopK
    keeps_state = True
    consolidates = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.touched = writer.node_variable("touched", node.id)
        self.appends = writer.is_append(node.inputs[0])

    def slots(self) -> tuple[Slot, ...]:
        of_a_tick = self.operator.lifetime is Lifetime.TICK
        name = f"{self.node.id}.groups"
        if self.appends:
            return (Slot(name, thaw_list, "value", transient=of_a_tick),)
        return (Slot(name, thaw_group, "fields", transient=of_a_tick),)

    @cached_property
    def keeps_best(self) -> bool:
        """Whether a tick keeps its first row of each group, and not all that come.

        Rows must be what they are as dict keys, so that sort keys can be taken from columns.
        """
        columns = tuple(f"c{at}" for at in range(len(self.node.schema.fields)))
        plain = self.writer.row_key(self.node.schema, columns) == tuple_source(columns)
        return self.appends and plain and self.operator.count == 1

    def begin(self) -> None:
        self.code.line(f"{self.touched} = {{}}")

    def _by(self, columns: tuple[str, ...]) -> Iterator[str]:
        """Yield the sources of a row's sort keys, without the whole row that breaks ties."""
        schema = self.node.schema
        for ordering in self.operator.by:
            typed = check(ordering.expr, schema)
            source = self.writer.value(ordering.expr, schema, columns)
            yield comparable(self.writer, source, typed, descending=ordering.descending)

    @cached_property
    def order(self) -> str:
        """Constant with the function from a row to its sort key, which ends with the whole row."""
        schema = self.node.schema
        row = self.writer.fresh("row")
        columns = item_sources(row, len(schema.fields))
        parts = list(self._by(columns))
        whole = [comparable(self.writer, c, f) for c, f in zip(columns, schema.fields, strict=True)]
        parts.extend([row] if whole == list(columns) else whole)
        function = self.writer.node_variable("order", self.node.id)
        self.writer.function(f"def {function}({row}):", f"return ({', '.join(parts)},)")
        return function

    def consume(self, port: int, row: Row) -> None:
        writer, code = self.writer, self.code
        key, whole = writer.fresh("key"), writer.fresh("row")
        writer.assign_key(key, self.operator.per, self.node.schema, row.columns)
        source = writer.row_key(self.node.schema, row.columns)
        if self.keeps_best:
            self._keep_best(key, row, source)
            return
        code.line(f"{whole} = {source}")
        if self.appends:
            MappingCode(writer, self.touched).append(key, whole)
            return
        group = writer.fresh("group")
        self.state("groups").get_or_add(group, key, "[[], {}, {}, {}]")
        code.line(f"{self.touched}[{key}] = {group}")
        code.line(f"x_add_ordered_value({group}, 0, {whole}, {row.copies})")

    def _keep_best(self, key: str, row: Row, source: str) -> None:
        """Write code that keeps a group's first row of the tick, and makes no tuple of most others."""
        by, best, whole = (self.writer.fresh(name) for name in ("by", "best", "row"))
        self.code.line(f"{by} = {tuple_source(tuple(self._by(row.columns)) or ('0',))}")
        self.code.line(f"{best} = {self.touched}.get({key})")
        with self.code.block(f"if {best} is None or {by} <= {best}[0]:"):
            self.code.line(f"{whole} = {source}")
            tie = f"{self.order}({whole}) < {self.order}({best}[1])"
            with self.code.block(f"if {best} is None or {by} < {best}[0] or {tie}:"):
                self.code.line(f"{self.touched}[{key}] = ({by}, {whole})")

    def finish(self) -> None:
        writer, code = self.writer, self.code
        key, group, changes = writer.fresh("key"), writer.fresh("group"), writer.fresh("changes")
        if self.appends:
            rows = writer.fresh("rows")
            with code.block(f"for {key}, {rows} in {self.touched}.items():"):
                self.state("groups").get_or_add(group, key, "[]")
                come = f"[{rows}[1]]" if self.keeps_best else rows
                code.line(f"{changes} = x_add_to_top({group}, {come}, {self.operator.count}, {self.order})")
                self._emit(changes)
            return
        with code.block(f"for {key}, {group} in {self.touched}.items():"):
            top = writer.fresh("top")
            code.line(f"x_settle_end({group}, 0, {self.order}, {self.operator.count}, 0)")
            code.line(f"{top} = x_first_copies({group}[0], {group}[1], {self.operator.count})")
            code.line(f"{changes} = x_top_changes({group}[3], {top})")
            code.line(f"{group}[3] = {top}")
            with code.block(f"if not {group}[1]:"):
                code.line(f"del {self.slot('groups')}[{key}]")
            self._emit(changes)

    def _emit(self, changes: str) -> None:
        row, n = self.writer.fresh("row"), self.writer.fresh("n")
        with self.code.block(f"for {row}, {n} in {changes}:"):
            columns = self.writer.unpack(self.node.schema, row)
            self.writer.emit_copies(self.node.id, Row(columns, row, n))
