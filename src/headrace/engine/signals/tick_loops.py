"""Compiled loops over consecutive ticks in which the same sources fire."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import length_hint
from typing import TYPE_CHECKING, Any

from headrace.engine.signals.block_grouping import Arrangement
from headrace.engine.signals.part_writer import PartWriter, value_name
from headrace.lowering.generated_source import SourceCode
from headrace.operators.signals.lift import SignalOperator

if TYPE_CHECKING:
    from headrace.engine.signals.block_grouping import Block
    from headrace.engine.signals.signal_machine import EmittedValues, SignalMachine


LOOP = "loop"


class LoopFunction(PartWriter):
    """Function `loop(it, tick)` of an iterator over the sources' values and the first tick's number.

    Persistent variables are read from the module before the first tick and written back after the last, even
    if a tick fails.
    """

    def write(self, sources: tuple[int, ...]) -> SourceCode:
        """Write the source of the function. `it` tells the caller how far the loop got."""
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
        together = Arrangement(machine.arrangement.sources, together=frozenset(sources))
        for node in machine.nodes.values():
            together.add(node)
        together.freeze_new_parts(machine.nodes)
        counts: list[tuple[int, ...]] | None = None if machine.counts is None else []
        (part,) = together.parts
        constants = machine.module.constants()
        writer = LoopFunction(part, machine, constants, counts, together)
        machine.module.execute(writer.write(sources), constants, [-len(self._loops) - 1])
        return _Loop(machine.module.variables[LOOP], writer.steady, counts or [])
