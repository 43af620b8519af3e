"""All that some sources reach as one function with a loop over ticks, in each of which all of them fire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.signals.part_writer import PartWriter, value_name
from penstock.engine.source_code import SourceCode
from penstock.flow.operators.signals.signal_operator import SignalOperator

if TYPE_CHECKING:
    from penstock.engine.signals.arrangement import Block

LOOP = "loop"


class LoopFunction(PartWriter):
    """`loop(it, tick)`: an iterator over the values of the sources, and the number of the first tick.

    Variables that last are read from the module before the first tick and written back
    after the last, also when a tick fails.
    """

    def write(self, sources: tuple[int, ...]) -> SourceCode:
        """The function as source. `it` is there for whoever wants to see how far it came."""
        self._counts_ticks = False
        self._left: list[tuple[int, bool]] = []
        self._ready: list[str] = []
        for source in sources:
            self._in_run[source] = self.lasting(value_name(source))
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
        """Sinks that are given a value in every tick from their first on; the ticks are not noted."""
        return frozenset(node for node, steady in self._left if steady)

    def tick(self) -> str:
        self._counts_ticks = True
        return "tick"

    def ready(self, name: str) -> str:
        self._ready.append(name)
        return name

    def count(self, at: int) -> str:
        return self.lasting(count_name(at))

    def keep(self, node: int, value: str) -> str:
        name = self.lasting(value_name(node))
        self.code.line(f"{name} = {value}")
        return name

    def write_firing(self, block: Block) -> None:
        """Nobody else hears of anything."""

    def write_leaving(self, node: int, value: str) -> None:
        steady = all(self._is_steady(block) for block in self._here.chain()[:-1])
        self._left.append((node, steady))
        self.code.line(f"out_{node}({value})")
        if not steady:
            self.code.line(f"ticks_{node}({self.tick()})")

    def _is_steady(self, block: Block) -> bool:
        """Whether a block is entered in every tick in which its parent is, once it has been."""
        if block.node is None:
            return not block.any_of
        operator = self.nodes[block.node].operator
        return isinstance(operator, SignalOperator) and operator.is_steady() and not block.any_of


def count_name(at: int) -> str:
    """The variable of a count of the loop that runs."""
    return f"loop_count_{at}"
