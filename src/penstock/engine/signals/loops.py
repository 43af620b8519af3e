"""Runs of ticks in each of which the same sources fire: a compiled loop per set of sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import length_hint
from typing import TYPE_CHECKING, Any

from penstock.engine.signals.arrangement import Arrangement
from penstock.engine.signals.loop_function import LOOP, LoopFunction, count_name

if TYPE_CHECKING:
    from penstock.engine.signals.machine import Leaving, SignalMachine


@dataclass(frozen=True, slots=True)
class _Loop:
    """steady: outputs at which a value leaves in every tick from the first on in which one does."""

    function: Callable[..., None]
    steady: frozenset[int]
    counts: list[tuple[int, ...]]


class Loops:
    """Loops over the variables of a machine. When operators are added to it, they are compiled anew."""

    def __init__(self, machine: SignalMachine) -> None:
        self._machine = machine
        self._loops: dict[tuple[int, ...], _Loop] = {}
        self._generation = machine.arrangement.generation

    def run(self, columns: Mapping[int, Sequence[Any]], first: int) -> dict[int, Leaving]:
        """A tick per row of `columns`, which are of one length: per source, its values.

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
        left = machine.taken()
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
        together = Arrangement(machine.arrangement.sources, together=frozenset(sources))
        for node in machine.nodes.values():
            together.add(node)
        together.settle(machine.nodes)
        counts: list[tuple[int, ...]] | None = None if machine.counts is None else []
        (part,) = together.parts
        constants = machine.module.constants()
        writer = LoopFunction(part, machine, constants, counts, together)
        machine.module.execute(writer.write(sources), constants, [-len(self._loops) - 1])
        return _Loop(machine.module.variables[LOOP], writer.steady, counts or [])
