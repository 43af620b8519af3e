"""Signal parts: conversion between rows and signal values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import length_hint
from typing import TYPE_CHECKING, Any

from headrace.engine.signals.blocks import BlockLayout
from headrace.engine.signals.durable import DurableVariables
from headrace.engine.signals.part_writer import PartWriter, value_name
from headrace.engine.signals.signal_machine import EmittedValues, SignalMachine
from headrace.errors import BadInput, Step
from headrace.expr.row_classes import from_user, to_user
from headrace.expr.types import AnyType, Rows
from headrace.lowering.generated_source import SourceCode
from headrace.operators.signals.earlier_values import LastRow, SignalSource, ValueRows
from headrace.operators.signals.lift import SignalOperator

if TYPE_CHECKING:
    from headrace.engine.flow_parts import CompiledPart
    from headrace.engine.signals.blocks import Block
    from headrace.graph.node import FlowGraph, Node
    from headrace.lowering.slot import SlotMapping


LOOP = "loop"


class LoopFunction(PartWriter):
    """Function `loop(it, tick)` of an iterator over the sources' values and the first tick's number.

    Persistent variables are read from the module before the first tick and written back after the last, even
    if a tick fails.
    """

    def write(self, sources: tuple[int, ...]) -> SourceCode:
        """Write the source of the function. The position of `it` shows how far the loop got."""
        self._counts_ticks = False
        self._left: list[tuple[int, bool]] = []
        self._ready: list[str] = []
        for source in sources:
            self._in_run[source] = self.register_lasting(value_name(source))
        self.write_body()
        function = SourceCode()
        with function.block(f"def {LOOP}(it, tick):"):
            for name in self.used:
                function.line(f"{name} = module[{name!r}]")
            for name in self._ready:
                function.line(f"{name} = False")
            for node, steady in self._left:
                function.line(f"out_{node} = module['out_{node}']")
                if not steady:
                    function.line(f"ticks_{node} = module['ticks_{node}']")
            with function.block("try:"):
                header = f"for {self._row(sources)} in it:"
                if self._counts_ticks:
                    header = f"for tick, {self._row(sources)} in enumerate(it, tick):"
                with function.block(header):
                    function.extend(self.code)
            with function.block("finally:"):
                for name in self.used:
                    function.line(f"module[{name!r}] = {name}")
        return function

    def _row(self, sources: tuple[int, ...]) -> str:
        names = [*map(value_name, sources)]
        return names[0] if len(names) == 1 else f"({', '.join(names)})"

    @property
    def steady(self) -> frozenset[int]:
        """Sinks that emit in every tick after their first, so their ticks are not recorded."""
        return frozenset(node for node, steady in self._left if steady)

    def tick_number(self) -> str:
        self._counts_ticks = True
        return "tick"

    def ready_flag(self, name: str) -> str:
        self._ready.append(name)
        return name

    def activation_count(self, at: int) -> str:
        return self.register_lasting(count_name(at))

    def assign_stored(self, node: int, value: str) -> str:
        name = self.register_lasting(value_name(node))
        self.code.line(f"{name} = {value}")
        return name

    def write_firing(self, block: Block) -> None:
        """Write nothing, since a loop has no other parts to notify."""

    def write_leaving(self, node: int, value: str) -> None:
        steady = all(self._is_steady(block) for block in self._here.chain()[:-1])
        self._left.append((node, steady))
        self.code.line(f"out_{node}({value})")
        if not steady:
            self.code.line(f"ticks_{node}({self.tick_number()})")

    def _is_steady(self, block: Block) -> bool:
        """Return whether a block, once entered, is entered in every tick in which its parent is."""
        if block.node is None:
            return not block.any_of
        operator = self.nodes[block.node].operator
        return isinstance(operator, SignalOperator) and operator.is_steady() and not block.any_of


def count_name(at: int) -> str:
    """Return the variable of a count in the running loop."""
    return f"loop_count_{at}"


@dataclass(frozen=True, slots=True)
class _Loop:
    """A compiled loop. steady: outputs that emit in every tick from their first on."""

    function: Callable[..., None]
    steady: frozenset[int]
    counts: list[tuple[int, ...]]


class Loops:
    """Compiled loops over a machine's variables. They are recompiled when operators are added."""

    def __init__(self, machine: SignalMachine) -> None:
        self._machine = machine
        self._loops: dict[tuple[int, ...], _Loop] = {}
        self._generation = machine.arrangement.generation

    def run(self, columns: Mapping[int, Sequence[Any]], first: int) -> dict[int, EmittedValues]:
        """Run one tick per row of `columns`: lists of values per source, all of equal length.

        first: the number of the first tick. What left, by node; the ticks of what left in
        all of them, from one on, are a range. Raises `UserFunctionFailed` where an operator does.
        """
        machine = self._machine
        columns = {n: column for n, column in columns.items() if n in machine.arrangement.sources}
        if not columns:
            return {}
        loop = self._loop(tuple(columns))
        first_column, *others = columns.values()
        count = len(first_column)
        # The iterator that is seen from here tells how far the loop came.
        seen = iter(first_column)
        variables = machine.module.variables
        for at in range(len(loop.counts)):
            variables[count_name(at)] = 0
        try:
            loop.function(zip(seen, *others) if others else seen, first)
        except Exception as error:
            tick = first + count - length_hint(seen) - 1
            machine.raise_explained(error, tick)
        finally:
            for at, nodes in enumerate(loop.counts):
                for node in nodes:
                    machine.counted[node] += variables[count_name(at)]
        left = machine.take_emitted()
        for node in loop.steady & left.keys():
            left[node].ticks = range(first + count - len(left[node].values), first + count)
        return left

    def _loop(self, sources: tuple[int, ...]) -> _Loop:
        if self._generation != self._machine.arrangement.generation:
            self._machine.module.forget([-at - 1 for at in range(len(self._loops))])
            self._generation = self._machine.arrangement.generation
            self._loops = {}
        if sources not in self._loops:
            self._loops[sources] = self._compile(sources)
        return self._loops[sources]

    def _compile(self, sources: tuple[int, ...]) -> _Loop:
        machine = self._machine
        together = BlockLayout(machine.arrangement.sources, together=frozenset(sources))
        for node in machine.nodes.values():
            together.add(node)
        together.freeze_new_parts(machine.nodes)
        counts: list[tuple[int, ...]] | None = None if machine.counts is None else []
        (part,) = together.parts
        constants = machine.module.constants()
        writer = LoopFunction(part, machine, constants, counts, together)
        machine.module.execute(writer.write(sources), constants, [-len(self._loops) - 1])
        return _Loop(machine.module.variables[LOOP], writer.steady, counts or [])


class ValueCheck:
    """Validation of one signal's values, with conversion to its type.

    exact: the class whose instances are taken as they are; `object` where all are.

    Raises `BadRow` for a value of another type.
    """

    def __init__(self, source: SignalSource) -> None:
        schema = source.schema
        field = schema.fields[0]
        self.exact: type | None = schema.row_class
        self._takes_all = schema.scalar and isinstance(field.type, AnyType)
        if self._takes_all:
            self.exact = object
        elif schema.scalar and field.nullable:
            self.exact = None
        self._source = source

    def __call__(self, values: Iterable[Any]) -> list[Any]:
        given = list(values)
        if self._takes_all or (self.exact is not None and set(map(type, given)) <= {self.exact}):
            return given
        row, user = self._made_right
        return [user(made) for made in row(given)]

    @cached_property
    def _made_right(self) -> tuple[Callable[[Iterable[Any]], Rows], Callable[[tuple[Any, ...]], Any]]:
        # Compiled when it is first needed: a flow may have thousands of signals, given what they declare.
        schema = self._source.schema
        return from_user(schema, what=f"signal {self._source.name!r}"), to_user(schema)


def rows_of_signal(source: SignalSource) -> Callable[[Iterable[Any]], Rows]:
    """Return the function from a signal's values to rows: one value, or the columns of its row class."""
    if not source.schema.scalar:
        return from_user(source.schema, what=f"signal {source.name!r}")
    check = ValueCheck(source)
    return lambda values: [(value,) for value in check(values)]


@dataclass(slots=True)
class TickContext:
    """State shared by all signal parts of a tick. tick: the running tick's number."""

    tick: int = 0


class SignalPart:
    """A running signal part, callable as a part: rows of its inputs to rows of its outputs.

    left: output of the last tick in which the part ran.
    """

    def __init__(
        self, graph: FlowGraph, part: CompiledPart, machine: SignalMachine, context: TickContext
    ) -> None:
        self.machine = machine
        self.left: Mapping[int, EmittedValues] = {}
        self.loops = Loops(machine)
        self._context = context
        self._durable: DurableVariables | None = None
        self._entering: list[list[tuple[int, Callable[[tuple[Any, ...]], Any]]]] = [
            _entering(graph, part, node) for node in part.inputs
        ]
        self._graph = graph
        self._readers: dict[tuple[int, int, int], Node | None] = {}
        self._outputs = part.outputs
        self._rows = {n: _leaving(graph.nodes[n]) for n in part.outputs}

    def keep_in(self, state: Mapping[str, SlotMapping]) -> None:
        """Restore the state from slots, and write each tick's changes to them."""
        self._durable = DurableVariables(self.machine, state)

    def save_all(self) -> None:
        """Write the whole state, if the part is durable."""
        if self._durable is not None:
            self._durable.save(self.machine.nodes)

    def __call__(self, *inputs: Rows) -> tuple[Rows, ...]:
        for rows, entering in zip(inputs, self._entering, strict=True):
            if len(rows) > 1:
                self._refuse_missed(len(rows), [node for node, _ in entering])
        values = {
            node: value(rows[-1])
            for rows, entering in zip(inputs, self._entering, strict=True)
            if rows
            for node, value in entering
        }
        if self._durable is None:
            self.machine.run_tick(values, self._context.tick)
        else:
            ran: list[int] = []
            self.machine.run_tick(values, self._context.tick, ran)
            self._durable.save(ran)
        left = self.left = self.machine.take_emitted()
        return tuple(self._rows[n](left[n].values) if n in left else [] for n in self._outputs)

    def _refuse_missed(self, rows: int, entered: Sequence[int]) -> None:
        """Raise `BadInput` if an operator would miss all but the last of the tick's rows."""
        for source in entered:
            latest, reader = self.machine.nodes[source], self._reader_of_every_value(source)
            if reader is not None:
                raise BadInput(
                    f"a tick brings {rows} rows to latest(), and all but the last would be missed",
                    where=[
                        Step(latest.location, "a value per tick"),
                        Step(reader.location, "reads every value"),
                    ],
                    fix="let each tick bring one row: feed() with tick_rows=1; "
                    'or say why the last is enough: latest(nondet="...")',
                    operator=reader.name,
                    tick=self._context.tick,
                )

    def _reader_of_every_value(self, source: int) -> Node | None:
        """Return the operator of the current graph that may not miss a source's rows, if any."""
        operator = self.machine.nodes[source].operator
        if not isinstance(operator, LastRow) or operator.nondet:
            return None
        known = source, len(self.machine.nodes), next(reversed(self.machine.nodes))
        if known not in self._readers:
            nodes = {node.id: node for node in self._graph.nodes} | self.machine.nodes
            self._readers[known] = _reader_of_every_value(nodes, source)
        return self._readers[known]


def _reader_of_every_value(nodes: Mapping[int, Node], source: int) -> Node | None:
    """Return the first operator whose output would differ if a source fired more often."""
    fires = {source}
    for number in sorted(nodes):
        node = nodes[number]
        ports = [port for port, read in enumerate(node.inputs) if read in fires]
        if isinstance(node.operator, ValueRows) and ports:
            return node
        if not isinstance(node.operator, SignalOperator):
            continue
        if any(port in node.operator.reads_every_value() for port in ports):
            return node
        if any(port in node.operator.triggers() for port in ports):
            fires.add(number)
    return None


def _entering(
    graph: FlowGraph, part: CompiledPart, node: int
) -> list[tuple[int, Callable[[tuple[Any, ...]], Any]]]:
    """Return the signal sources fed by a node's rows, each with its function from row to value."""
    operator = graph.nodes[node].operator
    if isinstance(operator, SignalOperator):
        rows = isinstance(operator, SignalSource) and not operator.schema.scalar
        return [(node, to_user(graph.nodes[node].schema) if rows else _only)]
    reading = (n for n in part.nodes if isinstance(graph.nodes[n].operator, LastRow))
    value = to_user(graph.nodes[node].schema)
    return [(n, value) for n in reading if node in graph.nodes[n].inputs]


def _only(row: tuple[Any, ...]) -> Any:
    return row[0]


def _leaving(node: Node) -> Callable[[list[Any]], Rows]:
    """Return the function from values to rows. Values of a stream are converted to its row type."""
    if isinstance(node.operator, ValueRows) and not isinstance(node.schema.fields[0].type, AnyType):
        return from_user(node.schema, what=f"a row made by {node.name!r}")
    return lambda values: [(value,) for value in values]


def signal_part_of(graph: FlowGraph, part: CompiledPart, context: TickContext, **options: Any) -> SignalPart:
    """Create a signal part with its machine. Signals of other parts become its sources."""
    inside = set(part.nodes)
    outside = [n for n in part.inputs if isinstance(graph.nodes[n].operator, SignalOperator)]
    rows_to = [n for n in inside if isinstance(graph.nodes[n].operator, LastRow)]
    nodes = {n: graph.nodes[n] for n in sorted((*inside, *outside))}
    machine = SignalMachine(nodes, (*outside, *rows_to), part.outputs, name=graph.name, **options)
    return SignalPart(graph, part, machine, context)
