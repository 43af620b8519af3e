"""Signals at work: functions over variables that last, and the order in which parts run.

A part runs in a tick in which something that it hears of fired, after all parts before
it. Which parts these are, is found while the tick runs: a heap of numbers of parts.
`static` looks at every operator in every tick instead, and `dynamic` schedules each by
itself; they are there to be compared with, and give the same answers.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import length_hint
from typing import TYPE_CHECKING, Any

from penstock.engine.constants import Constants
from penstock.engine.schedule import Schedule
from penstock.engine.signals.arrangement import Arrangement, Block, arranged
from penstock.engine.signals.failure import explained
from penstock.engine.signals.loop_function import LOOP, LoopFunction, count_name
from penstock.engine.signals.moment import Moment
from penstock.engine.signals.part_writer import NOTHING, cell_name, stamp_name, value_name, woken_name
from penstock.engine.signals.step import SignalStep, signal_step
from penstock.engine.signals.tick_function import Heard, TickFunction, function_name
from penstock.engine.signals import steps as _registers_steps  # noqa: F401  # pyright: ignore
from penstock.engine.source_code import SourceCode
from penstock.flow.operators.signals.signal_operator import SignalOperator

if TYPE_CHECKING:
    from penstock.engine.source_code import Purpose
    from penstock.graph.node import Node

_LONG = 1_000
"""From so many values on a list is handed over; below, copying it is quicker than a new one."""

Values = Mapping[int, Any]
"""Per source (its node) the value that it is given."""


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


NO_VALUE = _Nothing()


@dataclass(slots=True)
class Leaving:
    """What left at a sink, or as rows: the values, and the ticks they are of."""

    values: list[Any]
    ticks: Sequence[int]


class SignalMachine:
    """Runs the signals of one flow, or of one island in it.

    nodes:    the operators, by id, each after those that it reads.
    sources:  those of them whose values come from outside. outputs: those whose values are
              looked at from outside.
    schedule: "hybrid", "static" or "dynamic".
    counting: whether activations are counted.
    name:     of the flow, for tracebacks.
    """

    def __init__(
        self,
        nodes: Mapping[int, Node],
        sources: Collection[int],
        outputs: Collection[int],
        *,
        schedule: Schedule = Schedule.HYBRID,
        counting: bool = False,
        name: str = "",
        moment: Moment | None = None,
    ) -> None:
        self.nodes = dict(nodes)
        self.moment = moment or Moment()
        self._outputs = set(outputs)
        self._shown = frozenset(n for n in outputs if _is_signal(nodes[n]))
        self._queued = schedule is not Schedule.STATIC
        self._apart = schedule is not Schedule.HYBRID
        self._name = name
        self._steps: dict[int, SignalStep] = {
            n: signal_step(node.operator, node) for n, node in nodes.items()
        }
        self._arrangement = arranged(self.nodes, Arrangement(sources, apart=self._apart))
        self._kept = frozenset(_kept(self.nodes, self._arrangement, self._apart))
        self._constants = Constants()
        self._files: dict[str, tuple[Purpose, ...]] = {}
        self._counts: list[tuple[int, ...]] | None = [] if counting else None
        self._counted = dict.fromkeys(self.nodes, 0)
        self._loops: dict[tuple[int, ...], _Loop] = {}
        self._leaving: dict[int, tuple[list[Any], list[int]]] = {}
        self._queue: list[int] = []
        self._flags: list[int] = []
        self._counters: list[int] = []
        self._module: dict[str, Any] = {
            "push": heapq.heappush,
            "queue": self._queue,
            "queued": self._flags,
            "counts": self._counters,
            "wake": self._wake,
            "tick": 0,
            "now": None,
            NOTHING: NO_VALUE,
        }
        self._module["module"] = self._module
        self._code: list[str] = []
        for node in self.nodes:
            self._prepare(node)
        self._compile_parts()

    # -- compiling -----------------------------------------------------------------------------------

    def _prepare(self, node: int) -> None:
        """The variables of an operator, before anything fired."""
        module = self._module
        if node in self._kept:
            module[value_name(node)] = NO_VALUE
        for cell in self._steps[node].cells():
            module[cell_name(node, cell.name)] = cell.first()
        module[woken_name(node)] = -1
        if node in self._outputs:
            self._collect(node)

    def _compile_parts(self) -> None:
        heard = self._heard()
        source = SourceCode()
        for part in self._arrangement.parts:
            writer = TickFunction(
                part,
                self._arrangement,
                self.nodes,
                self._steps,
                self._kept,
                self._shown,
                self._constants,
                self._counts,
            )
            source.extend(writer.write(heard))
            source.line("")
            for block in part.blocks:
                self._module[f"r_{block.name}"] = False
                self._module[stamp_name(block)] = -1
        self._flags.extend([0] * (len(self._arrangement.parts) - len(self._flags)))
        if self._counts is not None:
            self._counters.extend([0] * (len(self._counts) - len(self._counters)))
        self._execute(source)
        functions = [self._module[function_name(p.at)] for p in self._arrangement.parts]
        self._parts: list[Callable[..., None]] = functions
        self._sources = _Sources(
            (n, functions[self._arrangement.runs_in[n].part.at]) for n in self._arrangement.sources
        )

    def _heard(self) -> Heard:
        readers: dict[Block, tuple[int, ...]] = {}
        for part in self._arrangement.parts:
            for block in part.triggers:
                readers[block] = (*readers.get(block, ()), part.at)
        stamped: set[Block] = set()
        for node in self.nodes.values():
            if isinstance(node.operator, SignalOperator) and node.operator.tells_inputs_apart():
                own = self._arrangement.runs_in[node.id].part
                stamped.update(b for i in node.inputs if (b := self._arrangement.fires_in[i]).part is not own)
        return Heard(readers, frozenset(stamped), self._queued)

    def _execute(self, source: SourceCode) -> None:
        file = f"<penstock signals {self._name} {len(self._files)}>"
        self._files[file] = tuple(source.purposes)
        text = "\n".join(source.lines) + "\n"
        self._code.append(text)
        self._module.update(self._constants.values)
        exec(compile(text, file, "exec"), self._module)

    @property
    def code(self) -> str:
        """The generated source."""
        return "\n".join(self._code)

    # -- ticks ---------------------------------------------------------------------------------------

    def run(self, values: Values, tick: int) -> None:
        """One tick in which these sources fire. Raises `UserFunctionFailed` where an operator does."""
        self._module["tick"] = tick
        self._module["now"] = self.moment.now
        try:
            for source, value in values.items():
                self._sources[source](value)
            self._run_parts()
        except Exception as error:
            raise explained(error, self._files, self.nodes, tick) from error

    def _run_parts(self) -> None:
        parts, queued = self._parts, self._flags
        if self._queued:
            queue, pop = self._queue, heapq.heappop
            while queue:
                at = pop(queue)
                queued[at] = 0
                parts[at]()
            return
        for at, run in enumerate(parts):
            if queued[at]:
                queued[at] = 0
                run()

    def _wake(self, node: int, time: Any) -> None:
        raise NotImplementedError

    @property
    def activations(self) -> dict[int, int]:
        """Per operator how often it was activated: its function called, or a value there. 0 if not counted."""
        counted = dict(self._counted)
        for count, nodes in zip(self._counters, self._counts or (), strict=True):
            for node in nodes:
                counted[node] += count
        return counted

    @property
    def has_timers(self) -> bool:
        """Whether an operator may ask for ticks."""
        return any(_wakes(node) for node in self.nodes.values())

    def taken(self) -> dict[int, Leaving]:
        """What has left since the last call, by the node at which it left."""
        found: dict[int, Leaving] = {}
        for node, (values, ticks) in self._leaving.items():
            if len(values) > _LONG:
                found[node] = Leaving(values, ticks)
                self._collect(node)
            elif values:
                found[node] = Leaving(values[:], ticks[:])
                values.clear()
                ticks.clear()
        return found

    def _collect(self, node: int) -> None:
        """New lists for what leaves at a node, and their names for generated code."""
        values, ticks = self._leaving[node] = ([], [])
        self._module[f"out_{node}"] = values.append
        self._module[f"ticks_{node}"] = ticks.append

    # -- many ticks ----------------------------------------------------------------------------------

    def run_columns(
        self, columns: Mapping[int, Sequence[Any]], first: int, times: Sequence[Any] | None = None
    ) -> dict[int, Leaving]:
        """A tick per row of `columns`, which are of one length: per source, its values.

        first: the number of the first tick. times: of the ticks.
        What left, by node; the ticks of what left in all of them, from one on, are a range.
        """
        columns = {n: column for n, column in columns.items() if n in self._arrangement.sources}
        if not columns:
            return {}
        loop = self._loop(tuple(columns))
        first_column, *others = columns.values()
        count = len(first_column)
        # The iterator that is seen from here tells how far the loop came.
        seen = iter(first_column)
        lists = [seen, *others]
        if loop.reads_time:
            lists.insert(0, times if times is not None else repeat(self.moment.now))
        for at in range(len(loop.counts)):
            self._module[count_name(at)] = 0
        try:
            loop.function(lists[0] if len(lists) == 1 else zip(*lists), first)
        except Exception as error:
            tick = first + count - length_hint(seen) - 1
            raise explained(error, self._files, self.nodes, tick) from error
        finally:
            for at, nodes in enumerate(loop.counts):
                for node in nodes:
                    self._counted[node] += self._module[count_name(at)]
        left = self.taken()
        for node in loop.steady & left.keys():
            left[node].ticks = range(first + count - len(left[node].values), first + count)
        return left

    def _loop(self, sources: tuple[int, ...]) -> _Loop:
        loop = self._loops.get(sources)
        if loop is None:
            loop = self._loops[sources] = self._compile_loop(sources)
        return loop

    def _compile_loop(self, sources: tuple[int, ...]) -> _Loop:
        together = Arrangement(self._arrangement.sources, together=frozenset(sources))
        arranged(self.nodes, together)
        counts: list[tuple[int, ...]] | None = None if self._counts is None else []
        (part,) = together.parts
        writer = LoopFunction(
            part,
            together,
            self.nodes,
            self._steps,
            self._kept,
            self._shown,
            self._constants,
            counts,
        )
        self._execute(writer.write(sources))
        return _Loop(self._module[LOOP], writer.steady, writer.reads_time, counts or [])

    def run_events(self, events: Iterable[tuple[int, Any]], first: int) -> None:
        """A tick per event: a source and its value. first: the number of the first tick."""
        tick = first - 1
        try:
            if self._queued:
                # As `run`, without its calls: most events reach few parts.
                module, sources = self._module, self._sources
                parts, queue, queued, pop = self._parts, self._queue, self._flags, heapq.heappop
                for tick, (source, value) in enumerate(events, first):
                    module["tick"] = tick
                    sources[source](value)
                    while queue:
                        at = pop(queue)
                        queued[at] = 0
                        parts[at]()
            else:
                for tick, (source, value) in enumerate(events, first):
                    self._module["tick"] = tick
                    self._sources[source](value)
                    self._run_parts()
        except Exception as error:
            raise explained(error, self._files, self.nodes, tick) from error


class _Sources(dict[int, Callable[[Any], None]]):
    """The function of each source. Of one that nothing reads, one that does nothing."""

    def __missing__(self, node: int) -> Callable[[Any], None]:
        return _ignore


def _ignore(value: Any) -> None:
    pass


@dataclass(frozen=True, slots=True)
class _Loop:
    """steady: outputs at which a value leaves in every tick from the first on in which one does."""

    function: Callable[..., None]
    steady: frozenset[int]
    reads_time: bool
    counts: list[tuple[int, ...]]


def _wakes(node: Node) -> bool:
    return isinstance(node.operator, SignalOperator) and node.operator.wakes()


def _is_signal(node: Node) -> bool:
    return isinstance(node.operator, SignalOperator)


def _kept(nodes: Mapping[int, Node], arrangement: Arrangement, apart: bool) -> set[int]:
    """Operators whose value must outlast their run.

    Lifts can be computed again of the values of what they read; what others remember cannot.
    """
    kept = {
        n for n, node in nodes.items()
        if isinstance(node.operator, SignalOperator) and (apart or not node.operator.is_pure())
    }  # fmt: skip
    for node in nodes.values():
        if node.id in arrangement.sources:
            kept.add(node.id)
            continue
        here = arrangement.runs_in[node.id]
        kept.update(i for i in node.inputs if not here.is_within(arrangement.fires_in[i]))
    return kept
