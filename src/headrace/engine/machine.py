"""Execution of a program's ticks over its state.

Parts run in the order of their heads' (stratum, rank), and only if they have input: the order is static
within a part and dynamic between parts. All inputs of a part are complete before it runs, so it runs at most
once per tick. A flow with a single part needs no scheduling: its whole tick is generated.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.engine.columnar.columnar_option import NEVER, Columnar, begins_arranged
from headrace.engine.event_time import end_receivers
from headrace.engine.flow_parts import PartSchedule
from headrace.engine.program import slot_names
from headrace.engine.progress import RegionTime
from headrace.engine.runtime_library import consolidate, explain_in_stream, raise_explained
from headrace.engine.signals.row_values import TickContext
from headrace.engine.spilling import estimated_bytes
from headrace.expr.types import Rows
from headrace.lowering.slot import SlotMapping
from headrace.operators.event_time.temporal_filter import DueTimes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from headrace.columns.columns import Columns
    from headrace.engine.columnar.columnar_flow import ColumnarExecutor
    from headrace.engine.program import Program
    from headrace.engine.runtime_library import TickBudget


PartFunction: TypeAlias = "tuple[Callable[..., tuple[Rows, ...]], tuple[int, ...], tuple[int, ...]]"
"""A part's function from inputs to outputs, and the nodes they belong to."""

_NOTHING: Rows = []


class Machine:
    """Executor of a program's ticks over `state`: one mapping per slot name.

    columnar:     condition for running a tick on Polars.
    owns_unkeyed: whether this machine runs the parts that run without input; else another machine, with
                  other keys of the same flow, does.
    region_timer: what times the regions of the current tick; None for most ticks.
    budget:       limit on the rows of one tick, which bounded code counts.
    activations:  per node id the number of ticks in which a row reached it, if the
                  program counts them.
    """

    def __init__(
        self,
        program: Program,
        state: Mapping[str, SlotMapping],
        columnar: Columnar | None = None,
        *,
        owns_unkeyed: bool = True,
    ) -> None:
        self.program = program
        transient: dict[str, dict[Any, Any]] = {s.name: {} for s in program.transient}
        self._state = {**state}
        self._slots = {**state, **transient}
        self._names = functions = program.bind(self._slots)
        self.context = TickContext()
        self.signal_parts = program.signal_parts(self.context)
        functions.update(self.signal_parts)
        self.activations: list[int] = functions["x_activations"]
        self.budget: TickBudget = functions["x_made"]
        self._transient = tuple(transient.values())
        self._straight: Callable[[Mapping[str, Rows]], dict[str, Rows]] | None = functions.get("tick")
        self._parts: list[PartFunction] = [
            (functions[p.function], p.inputs, p.outputs) for p in program.parts if p.function in functions
        ]
        self._readers: dict[int, list[int]] = {}
        for at, part in enumerate(program.parts):
            for node in part.inputs:
                self._readers.setdefault(node, []).append(at)
        self._sources = {**program.graph.sources, **end_receivers(program.graph)}
        self._sinks = tuple(program.graph.sinks.items())
        self._delayed = tuple((d.node, d.source, state[d.slot.name], d.append) for d in program.delayed)
        self._deferred = tuple(state[d.slot.name] for d in program.delayed if not d.lazy)
        own = tuple(enumerate(program.parts)) if owns_unkeyed else ()
        self._runs_each_tick = tuple(at for at, part in own if part.runs_each_tick)
        # What has begun by an earlier machine's tick finds that in its state, and says nothing.
        self._beginning = tuple(at for at, part in own if part.begins)

        self.region_timer: RegionTimer | None = None
        self._columnar = columnar
        self.least = NEVER if columnar is None else columnar.least
        self._large: ColumnarExecutor | None = None
        if columnar is not None and columnar.release is not None and begins_arranged(state.values()):
            large = self.large_ticks()
            self.least = NEVER if large is None else large.least

    def rebind(self, slot: str, mapping: SlotMapping) -> None:
        """Replace a slot's mapping with another that has the same values. Not allowed for a delay's slot."""
        self._names.update(slot_names(slot, mapping))
        self._slots[slot] = self._state[slot] = mapping

    def slot(self, name: str) -> SlotMapping:
        """Return the current mapping of a slot."""
        return self._slots[name]

    def next_due(self, time: datetime) -> datetime | None:
        """Return the time of the next changes of temporal filters after a tick at `time` (`DueTimes`)."""
        return self._due_times.after(time, self._slots)

    @cached_property
    def _due_times(self) -> DueTimes:
        return DueTimes(self.program.graph, self._slots.keys())

    def state_bytes(self) -> int:
        """Estimate the memory of the state from samples. Externally stored state is not counted."""
        return sum(map(estimated_bytes, self._state.values()))

    @property
    def pending(self) -> bool:
        """Return whether waiting deferred rows will start another tick."""
        return any(slot.get(()) for slot in self._deferred)

    @property
    def waiting(self) -> bool:
        """Return whether any deferred rows are waiting for the next tick."""
        return any(slot.get(()) for _, _, slot, _ in self._delayed)

    def tick(self, inputs: Mapping[str, Rows]) -> dict[str, Rows]:
        """Run one tick. Rows are internal: tuples, with the weight last unless the edge is append-only.

        inputs:  rows per source name; a source may be omitted.
        returns: consolidated rows per sink name; a sink without changes is omitted.

        Raises the errors of expressions and user functions, with operator, row and
        place; the state is then half of the tick.
        """
        self.budget.made = 0
        try:
            for given in self._given(inputs) if self._delayed else inputs.values():
                if len(given) >= self.least and (large := self._large_ticks_for(given)) is not None:
                    outputs = self._on_columns(large, inputs)
                    break
            else:
                if self._straight is None:
                    outputs = self._scheduled(inputs, self._parts)
                elif self.region_timer is None:
                    outputs = self._straight(inputs)
                else:
                    outputs = self.region_timer.time_tick(self._straight, inputs)
        except Exception as error:
            raise_explained(self._explained(error), error)
        finally:
            for slot in self._transient:
                slot.clear()
        if self.program.counting:
            for name, given in inputs.items():
                self.activations[self._sources[name]] += bool(given)
        return outputs

    def _given(self, inputs: Mapping[str, Rows]) -> Iterable[Rows | Columns]:
        """Return the initial rows of a tick, per source and per delay."""
        return (*inputs.values(), *(slot.get(()) or _NOTHING for _, _, slot, _ in self._delayed))

    def large_ticks(self) -> ColumnarExecutor | None:
        """Columnar form for large ticks; None if large ticks run like all others."""
        if self._large is None and self._columnar is not None and self.least < NEVER:
            self._large = self._columnar.build_large_ticks(self.program, self._names, self.rebind)
            if self._large is None:
                self.least = NEVER
        return self._large

    def _large_ticks_for(self, given: Rows | Columns) -> ColumnarExecutor | None:
        # Rows stay rows: to put them into columns costs what columns save, unless state lies there.
        always = self._columnar is not None and (self._columnar.always or self.least < self._columnar.least)
        return self.large_ticks() if always or given.__class__ is not list else None

    def _on_columns(self, large: ColumnarExecutor, inputs: Mapping[str, Rows]) -> dict[str, Rows]:
        outputs = self._scheduled(large.inputs(inputs), large.parts, large)
        self.least = large.least
        return outputs

    def _explained(self, error: Exception) -> Exception:
        """Add operator, row and location to an error."""
        nodes = self.program.graph.nodes
        if self._large is not None:
            explained = explain_in_stream(error, nodes, self._large.code.program.purposes_of)
            if explained is not error:
                return explained
        return explain_in_stream(error, nodes, self.program.purposes_of)

    def _scheduled(
        self, inputs: Mapping[str, Rows], parts: list[PartFunction], large: ColumnarExecutor | None = None
    ) -> dict[str, Rows]:
        """Run the parts, with delayed rows as input. large: columnar form of the parts that have one."""
        rows: dict[int, Rows] = {}
        for name, given in inputs.items():
            if given:
                rows[self._sources[name]] = given
        for node, _, slot, _ in self._delayed:
            kept = slot.get(())
            if kept:
                del slot[()]
                rows[node] = kept if large is not None or kept.__class__ is list else kept.rows()
                self.activations[node] += self.program.counting
        self._run(rows, parts)
        for _, source, slot, append in self._delayed:
            # What cancels out does not wait: it would start a tick in which nothing happens.
            if source not in rows:
                continue
            kept: Any = rows[source]
            if large is not None and kept.__class__ is not list:
                kept = large.to_keep(kept)
            elif not append:
                kept = consolidate(kept)
            if kept:
                slot[()] = kept
        return {name: rows[node] for name, node in self._sinks if node in rows}

    def _run(self, rows: dict[int, Rows], parts: list[PartFunction]) -> None:
        if self.region_timer is not None:
            parts = self.region_timer.timed(parts)
        if self.program.schedule is PartSchedule.STATIC:
            self._run_all(rows, parts)
        else:
            self._run_reached(rows, parts)

    def _run_all(self, rows: dict[int, Rows], parts: list[PartFunction]) -> None:
        for function, inputs, outputs in parts:
            made = function(*[rows.get(node, _NOTHING) for node in inputs])
            rows.update((node, out) for node, out in zip(outputs, made, strict=True) if out)

    def _run_reached(self, rows: dict[int, Rows], parts: list[PartFunction]) -> None:
        readers = self._readers
        reached = (at for node in rows for at in readers.get(node, ()))
        queue = sorted({*self._runs_each_tick, *self._beginning, *reached})
        self._beginning = ()
        queued = set(queue)
        while queue:
            function, inputs, outputs = parts[heapq.heappop(queue)]
            made = function(*[rows.get(node, _NOTHING) for node in inputs])
            for node, out in zip(outputs, made, strict=True):
                if out:
                    rows[node] = out
                    for at in readers.get(node, ()):
                        if at not in queued:
                            queued.add(at)
                            heapq.heappush(queue, at)


class RegionTimer:
    """Measurements of one tick of a program. found: the regions that ran, in order."""

    def __init__(self, program: Program) -> None:
        self._parts = program.parts
        self.found: list[RegionTime] = []

    def timed(self, parts: list[PartFunction]) -> list[PartFunction]:
        """Wrap the functions of a program's parts so that their calls are measured."""
        return [(self._timed(at, function), ins, outs) for at, (function, ins, outs) in enumerate(parts)]

    def _timed(self, at: int, function: Callable[..., tuple[Rows, ...]]) -> Callable[..., tuple[Rows, ...]]:
        def measured(*inputs: Rows) -> tuple[Rows, ...]:
            began = time.perf_counter()
            made = function(*inputs)
            self._add(at, began, sum(map(len, inputs)), sum(map(len, made)))
            return made

        return measured

    def time_tick(
        self, tick: Callable[[Mapping[str, Rows]], dict[str, Rows]], inputs: Mapping[str, Rows]
    ) -> dict[str, Rows]:
        """Run and measure the tick of a flow that is a single part."""
        began = time.perf_counter()
        made = tick(inputs)
        self._add(0, began, sum(map(len, inputs.values())), sum(map(len, made.values())))
        return made

    def _add(self, at: int, began: float, rows_in: int, rows_out: int) -> None:
        seconds = time.perf_counter() - began
        self.found.append(RegionTime(self._parts[at].nodes, seconds, rows_in, rows_out))
