"""Execution of signals: functions over persistent variables, and the order in which parts run.

A part runs in a tick in which something that it hears of fired, after all parts before
it. Which parts these are, is found while the tick runs: a heap of numbers of parts.
`static` looks at every operator in every tick instead, and `dynamic` schedules each by
itself; they are there to be compared with, and give the same answers.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from headrace.engine.flow_parts import PartSchedule
from headrace.engine.runtime_library import explain_in_signals, raise_explained
from headrace.engine.signals.blocks import Block, BlockLayout, ScheduledPart
from headrace.engine.signals.part_writer import (
    NOTHING,
    Notifications,
    TickFunction,
    cell_name,
    function_name,
    late_name,
    stamp_name,
    value_name,
)
from headrace.lowering.generated_source import Constants, SourceCode
from headrace.lowering.signal_step import SignalStep, signal_step
from headrace.operators.signals.lift import Constant, Lift, SignalOperator

if TYPE_CHECKING:
    from headrace.graph.node import Node
    from headrace.lowering.generated_source import Purpose


@dataclass(slots=True)
class CodeUnit:
    """A unit of code, compiled as a whole.

    parts:     the numbers of those parts whose functions still are its; those of loops are below 0.
    constants: names of values that its functions use, which go when it does.
    """

    file: str
    text: str
    purposes: tuple[Purpose, ...]
    parts: set[int]
    constants: tuple[str, ...]


class UnitConstants(Constants):
    """Names of constants, unique to a unit."""

    def __init__(self, unit: int) -> None:
        super().__init__()
        self._unit = unit

    def name(self, prefix: str, value: object) -> str:
        return super().name(f"{prefix}{self._unit}", value)


class GeneratedModule:
    """Variables by name, and the units compiled to work on them."""

    def __init__(self, name: str) -> None:
        self.variables: dict[str, Any] = {}
        self.variables["module"] = self.variables
        self._name = name
        self._units: list[CodeUnit] = []
        self._number = 0

    def constants(self) -> UnitConstants:
        """Constant names for the unit that is compiled next."""
        return UnitConstants(self._number)

    def execute(self, source: SourceCode, constants: UnitConstants, parts: Collection[int]) -> None:
        """Compile a unit and execute its definitions, which replace earlier ones for `parts`."""
        file = f"<headrace signals {self._name} {self._number}>"
        self._number += 1
        text = "\n".join(source.lines) + "\n"
        self.variables.update(constants.values)
        self.forget(parts)
        self._units.append(CodeUnit(file, text, tuple(source.purposes), set(parts), tuple(constants.values)))
        exec(compile(text, file, "exec"), self.variables)

    def forget(self, parts: Collection[int]) -> None:
        """Drop the functions of parts, and units left empty."""
        if not parts:
            return
        for unit in list(self._units):
            unit.parts.difference_update(parts)
            if not unit.parts:
                self._units.remove(unit)
                for name in unit.constants:
                    del self.variables[name]

    def purposes_of(self, file: str) -> tuple[Purpose, ...] | None:
        """Return the purposes of the lines of a generated file; None for any other file."""
        return next((unit.purposes for unit in self._units if unit.file == file), None)

    @property
    def code(self) -> str:
        """Generated Python code."""
        return "\n".join(unit.text for unit in self._units)


_LONG = 1_000
"""List length from which a list is handed over as a whole; shorter ones are faster to copy."""

Values = Mapping[int, Any]
"""Input values by source node."""


class _NoValue:
    def __repr__(self) -> str:
        return "no value"


NO_VALUE: Any = _NoValue()
"""Placeholder for the value of a signal that has none yet."""


@dataclass(slots=True)
class EmittedValues:
    """Values emitted at a sink, or as rows, with their ticks."""

    values: list[Any]
    ticks: Sequence[int]


class SignalMachine:
    """Executor of a flow's signals, or of one signal part.

    nodes:    the operators, by id, each after those that it reads.
    sources:  those of them whose values come from outside. outputs: those whose values are
              looked at from outside.
    schedule: in which pieces they are compiled, and which of them a tick runs.
    counting: whether activations are counted.
    name:     of the flow, for tracebacks.
    """

    def __init__(
        self,
        nodes: Mapping[int, Node],
        sources: Collection[int],
        outputs: Collection[int],
        *,
        schedule: PartSchedule = PartSchedule.HYBRID,
        counting: bool = False,
        name: str = "",
    ) -> None:
        self.nodes: dict[int, Node] = {}
        self.steps: dict[int, SignalStep] = {}
        self.module = GeneratedModule(name)
        self.arrangement = BlockLayout((), apart=schedule is not PartSchedule.HYBRID)
        self.kept: set[int] = set()
        self.shown: set[int] = set()
        self.counts: list[tuple[int, ...]] | None = [] if counting else None
        self.counted: dict[int, int] = {}
        self._counters: list[int] = []
        self._apart = schedule is not PartSchedule.HYBRID
        self._queued = schedule is not PartSchedule.STATIC
        self._notified = Notifications(self._queued)
        self._leaving: dict[int, tuple[list[Any], list[int]]] = {}
        self._queue: list[int] = []
        self._flags: list[int] = []
        self._parts: list[Callable[..., None]] = []
        self._nodes_of: dict[int, tuple[int, ...]] = {}
        self._sources = _Sources()
        self.module.variables |= {
            "push": heapq.heappush,
            "queue": self._queue,
            "queued": self._flags,
            "counts": self._counters,
            "tick": 0,
            NOTHING: NO_VALUE,
        }
        self.grow(nodes, sources, outputs)

    # -- compiling -----------------------------------------------------------------------------------

    def grow(self, nodes: Mapping[int, Node], sources: Collection[int], outputs: Collection[int]) -> None:
        """Add operators, which may read existing ones.

        Of the older ones only the parts that start new ones, or have values for them, are compiled again.
        """
        self.nodes.update(nodes)
        self.arrangement.sources.update(sources)
        for node in nodes.values():
            self.steps[node.id] = signal_step(node.operator, node)
            self.counted[node.id] = 0
            self.arrangement.add(node)
        made = self.arrangement.freeze_new_parts(self.nodes)
        self.shown.update(n for n in outputs if isinstance(self.nodes[n].operator, SignalOperator))
        changed = {*self._keep(nodes), *self._record_starts(made), *self._stamp(nodes)}
        for node in nodes:
            self._prepare(node)
        for node in outputs:
            self._collect(node)
        self._flags.extend([0] * (made[-1].at + 1 - len(self._flags)) if made else ())
        self.compile((*sorted(changed.difference(made), key=lambda part: part.at), *made))

    def shrink(self, nodes: Collection[int]) -> None:
        """Remove operators with all their state, readers first."""
        variables = self.module.variables
        changed: dict[ScheduledPart, None] = {}
        for node in nodes:
            changed[self.arrangement.remove(node)] = None
            for cell in self.steps.pop(node).cells():
                del variables[cell_name(node, cell.name)]
            for name in (value_name(node), f"out_{node}", f"ticks_{node}"):
                variables.pop(name, None)
            for known in (self.nodes, self.counted, self._leaving):
                known.pop(node, None)
            self.kept.discard(node)
            self.shown.discard(node)
            self.arrangement.sources.discard(node)
            self._sources.pop(node, None)
        self.compile([part for part in changed if part.nodes])
        for part in changed:
            if not part.nodes:
                self._forget(part)

    def _forget(self, part: ScheduledPart) -> None:
        variables = self.module.variables
        self.module.forget({part.at})
        self._parts[part.at] = _nothing_to_do
        del self._nodes_of[part.at]
        variables.pop(function_name(part.at), None)
        for block in part.triggers:
            if part.at in variables.get(late_name(block), ()):
                variables[late_name(block)].remove(part.at)
        for block in part.blocks:
            for name in (f"r_{block.name}", stamp_name(block), late_name(block)):
                variables.pop(name, None)
            self._notified.late.discard(block)
            self._notified.stamped.discard(block)
            self._notified.readers.pop(block, None)

    def _keep(self, nodes: Mapping[int, Node]) -> set[ScheduledPart]:
        """Record values that must outlive their run; return the parts of those that existed before.

        Lifts can be computed again of the values of what they read; what others remember cannot.
        """
        kept: set[int] = set()
        for node in nodes.values():
            operator = node.operator
            if isinstance(operator, SignalOperator) and (self._apart or not operator.is_pure()):
                kept.add(node.id)
            if node.id in self.arrangement.sources:
                kept.add(node.id)
                continue
            here = self.arrangement.runs_in[node.id]
            kept.update(i for i in node.inputs if not here.is_within(self.arrangement.fires_in[i]))
        kept -= self.kept
        older = kept.difference(nodes)
        for node_id, value in [(n, self.value_of(n)) for n in older]:
            self.module.variables[value_name(node_id)] = value
        self.kept |= kept
        return {self.arrangement.runs_in[n].part for n in older}

    def _record_starts(self, made: Sequence[ScheduledPart]) -> set[ScheduledPart]:
        """Record the blocks that start new parts; return older parts that started none before."""
        changed: set[ScheduledPart] = set()
        for part in made:
            for block in part.triggers:
                if block.part.generation == part.generation:
                    self._notified.readers.setdefault(block, []).append(part.at)
                    continue
                if block not in self._notified.late:
                    self._notified.late.add(block)
                    self.module.variables[late_name(block)] = []
                    changed.add(block.part)
                self.module.variables[late_name(block)].append(part.at)
            for block in part.blocks:
                self.module.variables[f"r_{block.name}"] = False
                self.module.variables[stamp_name(block)] = -1
        return changed

    def _stamp(self, nodes: Mapping[int, Node]) -> set[ScheduledPart]:
        """Record the blocks tested by other parts; return the parts to recompile for that."""
        asked: set[Block] = set()
        for node in nodes.values():
            if isinstance(node.operator, SignalOperator) and node.operator.tells_inputs_apart():
                own = self.arrangement.runs_in[node.id].part
                asked.update(b for i in node.inputs if (b := self.arrangement.fires_in[i]).part is not own)
        asked -= self._notified.stamped
        self._notified.stamped |= asked
        return {block.part for block in asked}

    def _prepare(self, node: int) -> None:
        """Initialise an operator's variables."""
        if node in self.kept:
            self.module.variables[value_name(node)] = NO_VALUE
        for cell in self.steps[node].cells():
            self.module.variables[cell_name(node, cell.name)] = cell.first()

    def _collect(self, node: int) -> None:
        """Create the lists of values emitted at a node, and name them for generated code."""
        values, ticks = self._leaving[node] = ([], [])
        self.module.variables[f"out_{node}"] = values.append
        self.module.variables[f"ticks_{node}"] = ticks.append

    def compile(self, parts: Sequence[ScheduledPart]) -> None:
        """Compile or recompile parts as one unit of code."""
        if not parts:
            return
        source, constants = SourceCode(), self.module.constants()
        for part in parts:
            source.extend(TickFunction(part, self, constants, self.counts).write(self._notified))
            source.line("")
        if self.counts is not None:
            self._counters.extend([0] * (len(self.counts) - len(self._counters)))
        self.module.execute(source, constants, [part.at for part in parts])
        self._parts.extend([_nothing_to_do] * (len(self._flags) - len(self._parts)))
        for part in parts:
            self._nodes_of[part.at] = tuple(part.nodes)
            function = self._parts[part.at] = self.module.variables[function_name(part.at)]
            if part.root.node in self.arrangement.sources:
                self._sources[part.root.node] = function

    @property
    def code(self) -> str:
        """Generated Python code."""
        return self.module.code

    # -- values --------------------------------------------------------------------------------------

    def value_of(self, node: int) -> Any:
        """Return the current value of an operator; `NO_VALUE` if it has none."""
        if node in self.kept:
            return self.module.variables[value_name(node)]
        operator = self.nodes[node].operator
        assert isinstance(operator, Lift), "whatever is no function of current values is kept"
        inputs = [self.value_of(i) for i in self.nodes[node].inputs]
        if any(value is NO_VALUE for value in inputs):
            return NO_VALUE
        return operator.function(
            *(a.value if isinstance(a, Constant) else inputs[a] for a in operator.arguments)
        )

    def has_value(self, node: int) -> bool:
        """Return whether an operator has fired yet. Only valid if its value is kept."""
        return self.module.variables[value_name(node)] is not NO_VALUE

    # -- ticks ---------------------------------------------------------------------------------------

    def run_tick(self, values: Values, tick: int, ran: list[int] | None = None) -> None:
        """Run one tick in which these sources fire. Raises `UserFunctionFailed` if an operator fails.

        ran: receives the operators of the parts that ran.
        """
        self.module.variables["tick"] = tick
        try:
            for source, value in values.items():
                self._sources[source](value)
            if ran is None:
                self._run_parts()
            else:
                self._run_parts_noting(ran)
                ran.extend(n for s in values for n in self._nodes_of[self.arrangement.runs_in[s].part.at])
        except Exception as error:
            self.raise_explained(error, tick)

    def run_as_if_fired(self, nodes: Collection[int], older: Collection[int], tick: int) -> None:
        """Run added operators as if the older ones they read had just fired.

        tick: a number that no tick has. Raises like `run`, and then leaves nothing scheduled.
        """
        variables = self.module.variables
        variables["tick"] = tick
        fires_in = self.arrangement.fires_in
        # A part may hear of the primitives of what its operators read, and not of that itself.
        fired: set[Block] = set()
        for node in older:
            if self.value_of(node) is not NO_VALUE:
                fired |= self.arrangement.firing_of(node)
                if fires_in[node] in self._notified.stamped:
                    variables[stamp_name(fires_in[node])] = tick
        for part in dict.fromkeys(self.arrangement.runs_in[node].part for node in nodes):
            if not fired.isdisjoint(part.triggers):
                self._flags[part.at] = 1
                heapq.heappush(self._queue, part.at)
        try:
            self._run_parts()
        except Exception as error:
            self._queue.clear()
            self._flags[:] = [0] * len(self._flags)
            self.raise_explained(error, tick)

    def raise_explained(self, error: Exception, tick: int) -> NoReturn:
        """Raise an error of generated code with its operator, values and tick."""
        raise_explained(explain_in_signals(error, self.nodes, self.module.purposes_of, tick), error)

    def _run_parts(self) -> None:
        parts, queued = self._parts, self._flags
        if self._queued:
            queue, pop = self._queue, heapq.heappop
            while queue:
                at = pop(queue)
                queued[at] = 0
                parts[at]()
            return
        self._queue.clear()
        for at, run in enumerate(parts):
            if queued[at]:
                queued[at] = 0
                run()

    def _run_parts_noting(self, ran: list[int]) -> None:
        for at in self._due():
            self._flags[at] = 0
            self._parts[at]()
            ran.extend(self._nodes_of[at])

    def _due(self) -> Iterator[int]:
        """Iterate over the numbers of the parts to run, as they become due."""
        if self._queued:
            while self._queue:
                yield heapq.heappop(self._queue)
        else:
            self._queue.clear()
            yield from (at for at in range(len(self._parts)) if self._flags[at])

    def run_tick_per_event(self, sources: Iterable[int], values: Iterable[Any], first: int) -> None:
        """Run one tick per event: a source and its value. first: the number of the first tick."""
        tick = first - 1
        variables = self.module.variables
        events = zip(map(self._sources.__getitem__, sources), values, strict=False)
        try:
            if self._queued:
                # As `run`, without its calls: most events reach few parts.
                parts, queue, queued, pop = self._parts, self._queue, self._flags, heapq.heappop
                for tick, (fire, value) in enumerate(events, first):
                    variables["tick"] = tick
                    fire(value)
                    while queue:
                        at = pop(queue)
                        queued[at] = 0
                        parts[at]()
            else:
                for tick, (fire, value) in enumerate(events, first):
                    variables["tick"] = tick
                    fire(value)
                    self._run_parts()
        except Exception as error:
            self.raise_explained(error, tick)

    # -- what came of it -----------------------------------------------------------------------------

    def take_emitted(self) -> dict[int, EmittedValues]:
        """Take the values emitted since the last call, by node."""
        found: dict[int, EmittedValues] = {}
        for node, (values, ticks) in self._leaving.items():
            if len(values) > _LONG:
                found[node] = EmittedValues(values, ticks)
                self._collect(node)
            elif values:
                found[node] = EmittedValues(values[:], ticks[:])
                values.clear()
                ticks.clear()
        return found

    @property
    def activations(self) -> dict[int, int]:
        """Number of activations per operator; 0 if not counted."""
        counted = dict(self.counted)
        for count, nodes in zip(self._counters, self.counts or (), strict=True):
            for node in nodes:
                if node in counted:
                    counted[node] += count
        return counted


class _Sources(dict[int, Callable[[Any], None]]):
    """Update functions of the sources; a no-op for a source without readers."""

    def __missing__(self, node: int) -> Callable[[Any], None]:
        return _nothing_to_do


def _nothing_to_do(*values: Any) -> None:
    pass
