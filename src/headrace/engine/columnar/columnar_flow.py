"""Large ticks of a whole flow, with generated code for the operators that stay row-wise.

State in arrangements is read by that code too: slots complete their entries with functions of it, and a store
keeps slots in the forms that the code gives.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import polars as pl

from headrace.analysis import analyse
from headrace.analysis.column_lineage import live_columns
from headrace.arrangement.batch import own_copy
from headrace.columns.column_stream import build_stream, sum_weights
from headrace.columns.columns import ColumnarDeclined, Columns
from headrace.columns.slot_forms import SlotForm
from headrace.engine.columnar.arranged_slot import ArrangedSlots, stored_form
from headrace.engine.columnar.columnar_intake import columns_of_frame, columns_of_values
from headrace.engine.columnar.columnar_plan import ColumnarPlan, plan_columnar, takes_values
from headrace.engine.columnar.loop_rounds import RoundSlots
from headrace.engine.columnar.runner import ArrangedNode, PartRunner, as_rows
from headrace.engine.flow_parts import live_consumers
from headrace.engine.loop_code import write_rounds
from headrace.engine.program import slot_variable
from headrace.engine.region_writer import RegionWriter
from headrace.engine.runtime_library import consolidate
from headrace.expr.compile_python import runtime_names
from headrace.expr.tree import columns_of
from headrace.expr.types import Rows
from headrace.expr.typing_rules import bounded_code
from headrace.lowering.forms import reduced_step_for
from headrace.lowering.generated_source import RUNTIME, Constants, Purpose, SourceCode
from headrace.lowering.row_code import tuple_source
from headrace.operators.aggregate.aggregate import Aggregate
from headrace.operators.rows import Select

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.analysis import Analysis
    from headrace.engine.columnar.loop_rounds import LoopPlan
    from headrace.engine.program import Program
    from headrace.engine.runtime_library import TickBudget
    from headrace.graph.node import Consumers, FlowGraph
    from headrace.lowering.forms import ArrangedPlan
    from headrace.lowering.slot import SlotMapping
    from headrace.state.arranged_store import ArrangedForm


class RowWiseWriter(RegionWriter):
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
            for node in map(graph.nodes.__getitem__, shape.rest if feed.reduction is not None else ()):
                if feed.source in node.inputs:
                    step = reduced_step_for(node.operator, feed.reduction, node, self)
                    if step is not None:
                        self._steps[node.id] = step
        self._stored = tuple(shape.stored.values())

    def write_readers(self) -> None:
        """Write the functions that build slot entries from columnar state."""
        for plan in self._stored:
            plan.write_reader(self.graph.nodes[plan.node], self, reader_of(plan.node))


class LoopWriter(RegionWriter):
    """Writer of a loop as a function of a round's number and the rows that its feedbacks emit in it."""

    def __init__(
        self,
        graph: FlowGraph,
        analysis: Analysis,
        shape: ColumnarPlan,
        loop: LoopPlan,
        consumers: Consumers,
        constants: Constants,
    ) -> None:
        part = replace(
            shape.part,
            function=loop_function(shape.part.function, loop.nodes[0]),
            nodes=loop.nodes,
            inputs=loop.entering,
            outputs=loop.leaving,
        )
        super().__init__(graph, analysis, part, consumers, constants)
        self._loop = loop

    def write(self) -> None:
        loop, code = self._loop, self.code
        given = ", ".join(self.buffer(n) for n in loop.closing)
        with code.block(f"def {self.part.function}({self.round_variable(loop.nodes[0])}, {given}):"):
            for node in loop.entering:
                code.line(f"{self.buffer(node)} = ()")
            write_rounds(self, loop.nodes, self._steps, begun=True)
            code.line(f"return {tuple_source([self.buffer(n) for n in loop.leaving])}")


def loop_function(part: str, first: int) -> str:
    """Return the name of the function of a loop in a part. first: its first node."""
    return f"{part}_loop_{first}"


def reader_of(node: int) -> str:
    """Return the name of the function that builds the entries of a node's slot."""
    return f"of_state_{node}"


PartFunction = tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]


class ColumnarProgram:
    """Large ticks of a program, without state.

    arranged: whether operators may keep their state in arrangements.

    program: generated code of the parts' row-wise operators, to locate errors in it.
    unread:  per source the columns that nobody reads. looked_over: per source node those that none of its
        readers looks at or hands on.
    delays:  nodes whose rows a delay keeps, each with its slot. of_values: sources whose bare values become
        a column.
    """

    def __init__(self, program: Program, *, arranged: bool) -> None:
        self.graph = graph = program.graph
        self.analysis = analyse(graph)
        self.consumers = live_consumers(graph)
        self.shapes: tuple[ColumnarPlan, ...] = tuple(
            plan_columnar(graph, self.analysis, self.consumers, part, arranged=arranged)
            for part in program.parts
        )
        constants = Constants()
        constants.values.update(program.constants)
        lines: list[str] = []
        purposes: list[Purpose] = []
        # Large ticks are compiled when the first one comes, elsewhere than the program.
        with nullcontext() if program.bounds is None else bounded_code(program.bounds):
            for code in self._written(constants):
                lines.extend(code.lines)
                purposes.extend(code.purposes)
        source_code = "\n".join(lines) + "\n"
        file = f"<headrace {graph.name}, large ticks>"
        self.bytecode = compile(source_code, file, "exec")
        self.program = replace(
            program, file=file, source_code=source_code, purposes=tuple(purposes), constants=constants.values
        )
        live = live_columns(graph)
        self.unread = {
            name: frozenset(graph.nodes[node].schema.names) - live[node]
            for name, node in graph.sources.items()
        }
        self.looked_over = _unread(graph, self.consumers)
        self.delays = [(delay.source, delay.slot.name) for delay in program.delayed]
        self.arranged = arranged
        self.of_values = frozenset(
            name
            for name, node in graph.sources.items()
            if program.source_append[name] and takes_values(graph, self.shapes, node)
        )

    def _written(self, constants: Constants) -> Iterator[SourceCode]:
        """Yield the code for the row-wise remainder of each part."""
        for shape in self.shapes:
            if not (shape.uses_frames or shape.stored):
                continue
            writer = RowWiseWriter(self.graph, self.analysis, shape, self.consumers, constants)
            if shape.uses_frames:
                writer.write()
            writer.write_readers()
            yield from (writer.functions, writer.code)
            for plan in shape.loops.values():
                loop = LoopWriter(self.graph, self.analysis, shape, plan, self.consumers, constants)
                loop.write()
                yield from (loop.functions, loop.code)

    @property
    def uses_frames(self) -> bool:
        """Return whether any operator runs on frames."""
        return any(shape.uses_frames for shape in self.shapes)

    def forms(self, slot: Callable[[str], SlotMapping]) -> dict[str, SlotForm]:
        """Return the forms of slots that a store keeps as arrangements. slot: returns a slot's mapping."""
        names: dict[str, Any] = {
            **runtime_names(bounded=self.program.bounds is not None),
            **RUNTIME,
            **self.program.constants,
        }
        exec(self.bytecode, names)
        plans = (plan for shape in self.shapes for plan in shape.stored.values())
        return {
            name: form
            for plan in plans
            for name, form in plan.slot_forms(names.get(reader_of(plan.node)), slot).items()
        }


def large_ticks_code(program: Program, *, arranged: bool) -> ColumnarProgram:
    """Return the code of a program's large ticks, compiled once.

    arranged: whether operators may keep their state in arrangements.
    """
    if arranged not in program.large_ticks:
        program.large_ticks[arranged] = ColumnarProgram(program, arranged=arranged)
    return program.large_ticks[arranged]


def stored_forms(program: Program, slots: Mapping[str, SlotMapping]) -> dict[str, ArrangedForm]:
    """Return the stored forms of a program's arranged slots.

    slots: mappings of all its slots, which need not be there before something is read.
    """
    forms = large_ticks_code(program, arranged=True).forms(slots.__getitem__)
    return {name: stored_form(form) for name, form in forms.items()}


class ColumnarExecutor:
    """Large-tick form of a program's parts, over its state.

    names: names in the generated code, of functions and slots. Code for large ticks is added to it.
    least: below this number of rows, a part runs row by row.
    always: run on frames even if all rows come as rows.
    arrange: replaces the mapping of a slot by an arrangement.
    """

    def __init__(
        self,
        code: ColumnarProgram,
        names: dict[str, Any],
        arrange: Callable[[str, SlotMapping], None],
        *,
        least: int,
        always: bool,
    ) -> None:
        self.code = code
        graph, program = code.graph, code.program
        names.update(program.constants)
        exec(code.bytecode, names)
        limit: TickBudget | None = names["x_made"] if program.bounds is not None else None
        # Slots that others read, or that are stored, hold rows.
        self._delayed_as_rows = frozenset(
            source
            for source, slot in code.delays
            if not code.arranged or type(names[slot_variable(slot)]) is not dict
        )
        self.parts: list[PartFunction] = []
        self._least = least
        self._runners: list[PartRunner] = []
        for shape in code.shapes:
            part = shape.part
            in_rows = _whole(program, names["tick"]) if "tick" in names else names[part.function]
            run = _in_rows(in_rows)
            if shape.uses_frames:
                run = runner = PartRunner(
                    graph,
                    code.analysis,
                    shape,
                    in_rows,
                    names[f"{part.function}_rest"],
                    {
                        n: _arranged_node(plan, names, arrange, limit, in_loop=shape.is_in_loop(n))
                        for n, plan in shape.arranged.items()
                    },
                    least=least,
                    always=always,
                    wanted_as_rows=self._delayed_as_rows,
                    unread=code.looked_over,
                    limit=limit,
                    loops={first: names[loop_function(part.function, first)] for first in shape.loops},
                    most_rounds=sys.maxsize if program.bounds is None else program.bounds.rounds,
                )
                for first, loop in runner.loops.items():
                    names["x_loops"][first] = loop.go_on
                self._runners.append(runner)
            self.parts.append((run, part.inputs, part.outputs))

    @property
    def least(self) -> int:
        """Number of rows of one source from which some part may run on frames."""
        return min((runner.least for runner in self._runners), default=self._least)

    def to_columns(self, name: str, given: object) -> Columns | None:
        """Convert a source's frame to columns; None if its rows must be validated one by one.

        A list of bare values is converted too if it `takes_values`. Other lists stay rows.
        """
        code = self.code
        schema = code.graph.nodes[code.graph.sources[name]].schema
        if isinstance(given, list):
            return columns_of_values(schema, cast("list[Any]", given)) if name in code.of_values else None
        append = code.program.source_append[name]
        return columns_of_frame(schema, append, given, unread=code.unread[name])

    def inputs(self, given: Mapping[str, Rows | Columns]) -> dict[str, Any]:
        """Return a tick's input per source, as rows if a delay keeps rows of it."""
        sources, delayed = self.code.graph.sources, self._delayed_as_rows
        return {
            name: rows.rows() if isinstance(rows, Columns) and sources[name] in delayed else rows
            for name, rows in given.items()
        }

    def to_keep(self, columns: Columns) -> Columns | Rows:
        """Return rows for a delay to keep, copied to memory of their own; changes are consolidated."""
        schema, append, frame = columns.schema, columns.append, columns.frame
        if not append:
            try:
                frame = sum_weights(build_stream(columns)).collected()
            except (ColumnarDeclined, pl.exceptions.PolarsError):
                return consolidate(columns.rows())
        return Columns(schema, append, own_copy(frame), unread=columns.unread)


def _unread(graph: FlowGraph, consumers: Consumers) -> dict[int, frozenset[str]]:
    """Return for each source the columns that none of its readers uses or passes on."""
    found: dict[int, frozenset[str]] = {}
    for node in graph.sources.values():
        readers = [graph.nodes[edge.target].operator for edge in consumers[node]]
        if all(isinstance(reader, Select | Aggregate) for reader in readers):
            read = {
                name for reader in readers for _, expr in reader.expressions() for name in columns_of(expr)
            }
            found[node] = frozenset(graph.nodes[node].schema.names) - read
    return found


def _arranged_node(
    plan: ArrangedPlan,
    names: dict[str, Any],
    arrange: Callable[[str, SlotMapping], None],
    limit: TickBudget | None,
    *,
    in_loop: bool,
) -> ArrangedNode:
    """Create a stateful node. names: variables with the slots, and the readers of their forms."""

    def slot(name: str) -> SlotMapping:
        return names[slot_variable(name)]

    forms = plan.slot_forms(names.get(reader_of(plan.node)), slot)
    kind = RoundSlots if in_loop else ArrangedSlots
    slots = kind(forms, slot, arrange, alone=plan.acts_alone, limit=limit)
    return ArrangedNode(slots, plan.start(slots))


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
