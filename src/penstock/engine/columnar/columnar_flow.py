"""Large ticks of a whole flow, with generated code for the operators that stay row-wise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from penstock.analysis import analyse
from penstock.analysis.column_liveness import live_columns
from penstock.engine.columnar.aggregate import AggregatePlan, ColumnarAggregate, group_form
from penstock.engine.columnar.arranged_slot import ArrangedSlots
from penstock.engine.columnar.columnar_intake import columns_of_frame, columns_of_values
from penstock.engine.columnar.columnar_plan import ArrangedPlan, ColumnarPlan, plan_columnar, takes_values
from penstock.engine.columnar.columns import Columns
from penstock.engine.columnar.distinct import ColumnarDistinct, DistinctPlan, copies_form
from penstock.engine.columnar.join import ColumnarJoin, join_forms
from penstock.engine.columnar.join_plan import JoinPlan
from penstock.engine.columnar.matched_join import ColumnarMatchedJoin, matched_forms
from penstock.engine.columnar.pre_reduction import GroupedRows
from penstock.engine.columnar.runner import ArrangedOperator, PartRunner, as_rows
from penstock.engine.columnar.top_k import ColumnarTopK, TopPlan, top_form
from penstock.engine.generated_source import Constants, Purpose
from penstock.engine.partial_operators import PartialAggregate
from penstock.engine.plan import live_consumers
from penstock.engine.region_writer import RegionWriter
from penstock.engine.row_codegen import Row, key_columns, tuple_source
from penstock.engine.steps.accumulator import Target
from penstock.engine.steps.aggregate import AggregateStep, group_keys, group_writer
from penstock.engine.steps.group_code import ROWS
from penstock.engine.steps.joins import SIDES, JoinConditionWriter
from penstock.engine.steps.sort import TopKStep
from penstock.engine.steps.step import Step
from penstock.expr.tree import columns_of
from penstock.flow.operators.aggregate import Aggregate
from penstock.flow.operators.join import How, Join
from penstock.flow.operators.select import Select
from penstock.flow.operators.top_k import TopK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.analysis import Analysis
    from penstock.engine.plan import Consumers
    from penstock.engine.program import Program
    from penstock.engine.slot import SlotMapping
    from penstock.engine.step_writer import StepWriter
    from penstock.graph.node import FlowGraph, Node


class ReducedAggregateStep(AggregateStep):
    """Aggregate over reduced input: key, row count and partial values of each group."""

    takes_rows = False

    def __init__(self, node: Node, writer: StepWriter, operator: Aggregate, groups: GroupedRows) -> None:
        group = group_writer(operator, node, writer)
        super().__init__(node, writer, group_keys(operator), operator.lifetime, group)
        self.groups = groups

    def finish(self) -> None:
        writer, code = self.writer, self.code
        names = [writer.fresh("part") for _ in self.groups.types]
        width = len(self.groups.keys)
        keys, rows, values = names[:width], names[width], names[width + 1 :]
        slot, get = writer.slot(self.node.id, "groups"), writer.slot_get(self.node.id, "groups")
        key, group = writer.fresh("key"), writer.fresh("group")
        with code.block(f"for {', '.join(names)}, in {writer.buffer(self.node.inputs[0])}:"):
            code.line(f"{key} = {keys[0] if width == 1 else tuple_source(keys) if keys else '()'}")
            code.line(f"{group} = {get}({key})")
            with code.block(f"if {group} is None:"):
                code.line(f"{group} = {slot}[{key}] = {self.group.empty}")
            code.line(f"{self.touched}[{key}] = {group}")
            code.line(f"{group}[{ROWS}] += {rows}")
            taken = 0
            for (_, partial), (_, at) in zip(self.groups.parts, self.group.accumulators(), strict=True):
                count = len(partial.types)
                partial.merge(Target(writer, group, at), tuple(values[taken : taken + count]))
                taken += count
        super().finish()


class ReducedPartialStep(Step):
    """Partial aggregate over reduced input, which is its output."""

    takes_rows = False

    def __init__(self, node: Node, writer: StepWriter, groups: GroupedRows) -> None:
        super().__init__(node, writer)
        self.groups = groups

    def finish(self) -> None:
        names = tuple(self.writer.fresh("part") for _ in self.groups.types)
        with self.code.block(f"for {', '.join(names)}, in {self.writer.buffer(self.node.inputs[0])}:"):
            self.emit(Row(names, None, "1"))


class RestWriter(RegionWriter):
    """Writer of a part's row-wise operators, as a function of their feeds."""

    def __init__(
        self,
        graph: FlowGraph,
        analysis: Analysis,
        shape: ColumnarPlan,
        consumers: Consumers,
        constants: Constants,
    ) -> None:
        part = replace(
            shape.part,
            function=f"{shape.part.function}_rest",
            nodes=shape.rest,
            inputs=tuple(feed.source for feed in shape.feeds),
            outputs=tuple(n for n in shape.part.outputs if n in shape.rest),
        )
        super().__init__(graph, analysis, part, consumers, constants)
        for feed in shape.feeds:
            if isinstance(feed.reduction, GroupedRows):
                for node in (graph.nodes[n] for n in shape.rest):
                    if feed.source not in node.inputs:
                        continue
                    if isinstance(node.operator, Aggregate):
                        step = ReducedAggregateStep(node, self, node.operator, feed.reduction)
                        self._steps[node.id] = step
                    elif isinstance(node.operator, PartialAggregate):
                        self._steps[node.id] = ReducedPartialStep(node, self, feed.reduction)
        self._arranged = [graph.nodes[node] for node in shape.arranged]

    def write(self) -> None:
        super().write()
        for node in self._arranged:
            match node.operator:
                case Aggregate():
                    self._write_answer(node, node.operator)
                case TopK():
                    self._write_top(node)
                case Join(how=how) if how is not How.INNER:
                    self._write_matches(node, node.operator)
                case _:
                    pass

    def _write_answer(self, node: Node, operator: Aggregate) -> None:
        group = group_writer(operator, node, self)
        columns = (*key_columns("key", len(operator.keys)), *group.aggregate_sources("group"))
        with self.code.block(f"def {_function_of(node.id)}(key, group):"):
            self.code.line(f"return {tuple_source(columns)}")

    def _write_top(self, node: Node) -> None:
        step = TopKStep(node, self)
        count = step.operator.count
        with self.code.block(f"def {_function_of(node.id)}(copies):"):
            self.code.line(f"rows = sorted((row for row, n in copies.items() if n > 0), key={step.order})")
            if step.appends:
                self.code.line("return [row for row in rows for _ in range(copies[row])]")
            else:
                self.code.line(f"return [rows, copies, {{}}, x_first_copies(rows, copies, {count})]")

    def _write_matches(self, node: Node, operator: Join) -> None:
        rows = JoinConditionWriter(node, self, operator)
        with self.code.block(f"def {_function_of(node.id)}(row, others):"):
            self.code.line("matches = 0")
            columns = self.unpack(rows.schemas[0], "row")
            with self.code.block("for other, n in others.items():"):
                pair = columns + self.unpack(rows.schemas[1], "other")
                with rows.where_residual(pair):
                    self.code.line("matches += n")
            self.code.line("return matches")


def _function_of(node: int) -> str:
    """Return the name of what is computed of the state of a node in rows."""
    return f"of_state_{node}"


Rows = list[tuple[Any, ...]]
PartFunction = tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]


class LargeTicks:
    """Large-tick form of a program's parts.

    names: names in the generated code, of functions and slots. Code for large ticks is added to it.
    least: below this number of rows, a part runs row by row.
    always: run on frames even if all rows come as rows.
    arrange: replaces the mapping of a slot by an arrangement; None if operators with state have to stay
             row-wise.

    program: generated code of the parts' row-wise operators, to locate errors in it.
    """

    def __init__(
        self,
        program: Program,
        names: dict[str, Any],
        arrange: Callable[[str, SlotMapping], None] | None,
        *,
        least: int,
        always: bool,
    ) -> None:
        graph = program.graph
        analysis = analyse(graph)
        consumers = live_consumers(graph)
        self.shapes: tuple[ColumnarPlan, ...] = tuple(
            plan_columnar(graph, analysis, consumers, part, arranged=arrange is not None)
            for part in program.parts
        )
        columnar = [shape for shape in self.shapes if shape.uses_frames]
        constants = Constants()
        constants.values.update(program.constants)
        lines: list[str] = []
        purposes: list[Purpose] = []
        for shape in columnar:
            writer = RestWriter(graph, analysis, shape, consumers, constants)
            writer.write()
            for written in (writer.functions, writer.code):
                lines.extend(written.lines)
                purposes.extend(written.purposes)
        source_code = "\n".join(lines) + "\n"
        file = f"<penstock {graph.name}, large ticks>"
        self.program = replace(
            program, file=file, source_code=source_code, purposes=tuple(purposes), constants=constants.values
        )
        names.update(constants.values)
        exec(compile(source_code, file, "exec"), names)
        delayed = frozenset(d.source for d in program.delayed)
        live = live_columns(graph)
        unread = {
            node: frozenset(graph.nodes[node].schema.names) - live[node] for node in graph.sources.values()
        }
        self._unread = {name: unread[node] for name, node in graph.sources.items()}
        looked_over = _unread(graph, consumers)
        self.parts: list[PartFunction] = []
        self._least = least
        self._runners: list[PartRunner] = []
        for shape in self.shapes:
            part = shape.part
            in_rows = _whole(program, names["tick"]) if "tick" in names else names[part.function]
            run = _in_rows(in_rows)
            if shape.uses_frames:
                run = runner = PartRunner(
                    graph,
                    analysis,
                    shape,
                    in_rows,
                    names[f"{part.function}_rest"],
                    {n: _operator(plan, names, arrange) for n, plan in shape.arranged.items()},
                    least=least,
                    always=always,
                    wanted_as_rows=delayed,
                    unread=looked_over,
                )
                self._runners.append(runner)
            self.parts.append((run, part.inputs, part.outputs))
        self._sources = {
            name: (graph.nodes[node].schema, program.source_append[name])
            for name, node in graph.sources.items()
        }
        self._as_rows = frozenset(name for name, node in graph.sources.items() if node in delayed)
        self._of_values = frozenset(
            name
            for name, (_, append) in self._sources.items()
            if append and takes_values(graph, self.shapes, graph.sources[name])
        )

    @property
    def least(self) -> int:
        """Number of rows of one source from which some part may run on frames."""
        return min((runner.least for runner in self._runners), default=self._least)

    def to_columns(self, name: str, given: object) -> Columns | None:
        """Convert a source's frame to columns; None if its rows must be validated one by one.

        A list of bare values is converted too if it `takes_values`. Other lists stay rows.
        """
        schema, append = self._sources[name]
        if isinstance(given, list):
            return columns_of_values(schema, cast("list[Any]", given)) if name in self._of_values else None
        return columns_of_frame(schema, append, given, unread=self._unread[name])

    def inputs(self, given: Mapping[str, Rows | Columns]) -> dict[str, Any]:
        """Return a tick's input per source, as rows if a delay keeps them."""
        return {
            name: rows.rows() if name in self._as_rows and isinstance(rows, Columns) else rows
            for name, rows in given.items()
        }


def _unread(graph: FlowGraph, consumers: Consumers) -> dict[int, frozenset[str]]:
    """Return for each source the columns that none of its readers looks at or hands on."""
    found: dict[int, frozenset[str]] = {}
    for node in graph.sources.values():
        readers = [graph.nodes[edge.target].operator for edge in consumers[node]]
        if all(isinstance(reader, Select | Aggregate) for reader in readers):
            read = {
                name for reader in readers for _, expr in reader.expressions() for name in columns_of(expr)
            }
            found[node] = frozenset(graph.nodes[node].schema.names) - read
    return found


def _operator(
    plan: ArrangedPlan, names: dict[str, Any], arrange: Callable[[str, SlotMapping], None] | None
) -> ArrangedOperator:
    """Return the operator of a plan. names: where the generated code finds slots, and these its answers."""
    assert arrange is not None

    def slot(name: str) -> SlotMapping:
        return names[f"slot_{name.replace('.', '_')}"]

    match plan:
        case JoinPlan(operator=operator) if operator.how is How.INNER:
            return ColumnarJoin(plan, ArrangedSlots(join_forms(plan), slot, arrange))
        case JoinPlan():
            right = f"{plan.node}.{SIDES[1]}"
            forms = matched_forms(plan, lambda key: slot(right).get(key), names[_function_of(plan.node)])
            return ColumnarMatchedJoin(plan, ArrangedSlots(forms, slot, arrange))
        case AggregatePlan():
            form = group_form(plan, names[_function_of(plan.node)])
            return ColumnarAggregate(plan, ArrangedSlots({plan.slot: form}, slot, arrange))
        case TopPlan():
            form = top_form(plan, names[_function_of(plan.node)])
            return ColumnarTopK(plan, ArrangedSlots({plan.slot: form}, slot, arrange, whole=True))
        case DistinctPlan():
            return ColumnarDistinct(plan, ArrangedSlots({plan.slot: copies_form(plan)}, slot, arrange))


def _in_rows(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a part that only takes rows."""
    return lambda *inputs: function(*[as_rows(given) for given in inputs])


def _whole(program: Program, tick: Callable[[dict[str, Rows]], dict[str, Rows]]) -> Callable[..., Any]:
    """Wrap a single-part flow's generated tick to take its inputs, and return its outputs, by position."""
    (part,) = program.parts
    sources = {node: name for name, node in program.graph.sources.items()}
    sinks = {node: name for name, node in program.graph.sinks.items()}

    def run(*inputs: Rows) -> tuple[Rows, ...]:
        made = tick({sources[node]: rows for node, rows in zip(part.inputs, inputs, strict=True)})
        return tuple(made.get(sinks[node], []) for node in part.outputs)

    return run
