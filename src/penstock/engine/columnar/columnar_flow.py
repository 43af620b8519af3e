"""Large ticks of a whole flow, with generated code for the operators that stay row-wise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from penstock.analysis import analyse
from penstock.analysis.column_liveness import live_columns
from penstock.engine.columnar.columnar_intake import columns_of_frame, columns_of_values
from penstock.engine.columnar.columnar_plan import ColumnarPlan, plan_columnar, takes_values
from penstock.engine.columnar.columns import Columns
from penstock.engine.columnar.pre_reduction import GroupedRows
from penstock.engine.columnar.runner import PartRunner, as_rows
from penstock.engine.generated_source import Constants, Purpose
from penstock.engine.partial_operators import PartialAggregate
from penstock.engine.plan import live_consumers
from penstock.engine.region_writer import RegionWriter
from penstock.engine.row_codegen import Row, tuple_source
from penstock.engine.steps.accumulator import Target
from penstock.engine.steps.aggregate import AggregateStep, group_keys, group_writer
from penstock.engine.steps.group_code import ROWS
from penstock.engine.steps.step import Step
from penstock.flow.operators.aggregate import Aggregate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.analysis import Analysis
    from penstock.engine.plan import Consumers
    from penstock.engine.program import Program
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


Rows = list[tuple[Any, ...]]
PartFunction = tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]


class LargeTicks:
    """Large-tick form of a program's parts.

    names: names in the generated code, of functions and slots. Code for large ticks is added to it.
    least: below this number of rows, a part runs row by row.
    always: run on frames even if all rows come as rows.
    lazily: the state of joins may stay in frames from tick to tick.

    program: generated code of the parts' row-wise operators, to locate errors in it.
    """

    def __init__(
        self, program: Program, names: dict[str, Any], *, least: int, always: bool, lazily: bool
    ) -> None:
        graph = program.graph
        analysis = analyse(graph)
        consumers = live_consumers(graph)
        self.shapes: tuple[ColumnarPlan, ...] = tuple(
            plan_columnar(graph, analysis, consumers, part) for part in program.parts
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
        self._runners: list[PartRunner] = []
        self.parts: list[PartFunction] = []
        for shape in self.shapes:
            part = shape.part
            in_rows = _whole(program, names["tick"]) if "tick" in names else names[part.function]
            run = _in_rows(in_rows)
            if shape.uses_frames:
                run = PartRunner(
                    graph,
                    analysis,
                    shape,
                    in_rows,
                    names[f"{part.function}_rest"],
                    lambda slot: names[f"slot_{slot.replace('.', '_')}"],
                    least=least,
                    always=always,
                    lazily=lazily,
                    wanted_as_rows=delayed,
                )
                self._runners.append(run)
            self.parts.append((run, part.inputs, part.outputs))
        self._sources = {
            name: (graph.nodes[node].schema, program.source_append[name])
            for name, node in graph.sources.items()
        }
        live = live_columns(program.graph)
        self._unread = {
            name: frozenset(self._sources[name][0].names) - live[node]
            for name, node in program.graph.sources.items()
        }
        self._as_rows = frozenset(name for name, node in graph.sources.items() if node in delayed)
        self._of_values = frozenset(
            name
            for name, (_, append) in self._sources.items()
            if append and takes_values(graph, self.shapes, graph.sources[name])
        )

    def to_columns(self, name: str, given: object) -> Columns | None:
        """Convert a source's frame to columns; None if its rows must be validated one by one.

        A list of bare values is converted too if it `takes_values`. Other lists stay rows.
        """
        schema, append = self._sources[name]
        if isinstance(given, list):
            return columns_of_values(schema, cast("list[Any]", given)) if name in self._of_values else None
        return columns_of_frame(schema, append, given, unread=self._unread[name])

    @property
    def has_state_in_frames(self) -> bool:
        """Return whether any state is in frames rather than in slots."""
        return any(join.is_in_frames for runner in self._runners for join in runner.joins.values())

    def move_state_to_slots(self) -> None:
        """Move all state into slots."""
        for runner in self._runners:
            runner.move_state_to_slots()

    def inputs(self, given: Mapping[str, Rows | Columns]) -> dict[str, Any]:
        """Return a tick's input per source, as rows if a delay keeps them."""
        return {
            name: rows.rows() if name in self._as_rows and isinstance(rows, Columns) else rows
            for name, rows in given.items()
        }


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
