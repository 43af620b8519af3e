"""A program over state: it runs ticks.

Parts run in the order of (stratum, rank) of their heads, and only those that
have something to read: the order is static inside a part and dynamic between
parts. A part hears of its inputs before it runs, so it runs once per tick. A
flow of one part has nothing to schedule: its tick is generated, too.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

from penstock.engine.failure import explained
from penstock.engine.event_time import ends_of
from penstock.engine.plan import Schedule
from penstock.engine.program import slot_names
from penstock.engine.slot import SlotMapping

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.engine.program import Program

Rows = list[tuple[Any, ...]]
_NOTHING: Rows = []


class Machine:
    """Runs a program's ticks over `state`: one mapping per slot name.

    activations: per node id the number of ticks in which a row reached it, if the
                 program counts them.
    """

    def __init__(self, program: Program, state: Mapping[str, SlotMapping]) -> None:
        self.program = program
        transient: dict[str, dict[Any, Any]] = {s.name: {} for s in program.transient}
        self._names = functions = program.bind({**state, **transient})
        self.activations: list[int] = functions["x_activations"]
        self._transient = tuple(transient.values())
        self._straight: Callable[[Mapping[str, Rows]], dict[str, Rows]] | None = functions.get("tick")
        self._parts: list[tuple[Callable[..., tuple[Rows, ...]], tuple[int, ...], tuple[int, ...]]] = [
            (functions[p.function], p.inputs, p.outputs) for p in program.parts if p.function in functions
        ]
        self._readers: dict[int, list[int]] = {}
        for at, part in enumerate(program.parts):
            for node in part.inputs:
                self._readers.setdefault(node, []).append(at)
        self._sources = {**program.graph.sources, **ends_of(program.graph)}
        self._sinks = tuple(program.graph.sinks.items())
        self._delayed = tuple((d.node, d.source, state[d.slot.name]) for d in program.delayed)
        self._deferred = tuple(state[d.slot.name] for d in program.delayed if not d.lazy)
        self._restless = tuple(at for at, part in enumerate(program.parts) if part.restless)
        # What has begun by an earlier machine's tick finds that in its state, and says nothing.
        self._beginning = tuple(at for at, part in enumerate(program.parts) if part.begins)

    def rebind(self, slot: str, mapping: SlotMapping) -> None:
        """Let the functions use another mapping for a slot, with the same values. Not for a delay's."""
        self._names.update(slot_names(slot, mapping))

    @property
    def pending(self) -> bool:
        """Whether deferred rows wait that start a next tick."""
        return any(slot.get(()) for slot in self._deferred)

    def tick(self, inputs: Mapping[str, Rows]) -> dict[str, Rows]:
        """Run one tick. Rows are internal: tuples, with the weight last where the edge is no append edge.

        inputs:  rows per source name; a source may be left out.
        returns: consolidated rows per sink name; a sink without changes is left out.

        Raises what expressions and user functions raise, with operator, row and
        place; the state is then half of the tick.
        """
        try:
            outputs = self._scheduled(inputs) if self._straight is None else self._straight(inputs)
        except Exception as error:
            raise explained(error, self.program) from error
        for slot in self._transient:
            slot.clear()
        if self.program.counting:
            for name, given in inputs.items():
                self.activations[self._sources[name]] += bool(given)
        return outputs

    def _scheduled(self, inputs: Mapping[str, Rows]) -> dict[str, Rows]:
        rows: dict[int, Rows] = {}
        for name, given in inputs.items():
            if given:
                rows[self._sources[name]] = given
        for node, _, slot in self._delayed:
            kept = slot.get(())
            if kept:
                del slot[()]
                rows[node] = kept
                self.activations[node] += self.program.counting
        self._run(rows)
        for _, source, slot in self._delayed:
            if source in rows:
                slot[()] = rows[source]
        return {name: rows[node] for name, node in self._sinks if node in rows}

    def _run(self, rows: dict[int, Rows]) -> None:
        if self.program.schedule is Schedule.STATIC:
            self._run_all(rows)
        else:
            self._run_reached(rows)

    def _run_all(self, rows: dict[int, Rows]) -> None:
        for function, inputs, outputs in self._parts:
            made = function(*[rows.get(node, _NOTHING) for node in inputs])
            rows.update((node, out) for node, out in zip(outputs, made, strict=True) if out)

    def _run_reached(self, rows: dict[int, Rows]) -> None:
        readers, parts = self._readers, self._parts
        reached = (at for node in rows for at in readers.get(node, ()))
        queue = sorted({*self._restless, *self._beginning, *reached})
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
