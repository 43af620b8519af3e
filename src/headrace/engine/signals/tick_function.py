"""Function that runs a part for one tick."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.engine.signals.part_writer import PartWriter, local_name, stamp_name, value_name
from headrace.lowering.generated_source import SourceCode

if TYPE_CHECKING:
    from headrace.engine.signals.block_grouping import Block


@dataclass(slots=True)
class Notifications:
    """Parts to notify when blocks are entered.

    readers: per block, the parts to be run when it is entered. late: blocks that may get further
    readers while the machine runs, whose numbers stand in a list. stamped: blocks of which
    others ask whether they were entered in this tick.
    queued:  whether parts wait in a queue; else all are looked at in every tick.
    """

    queued: bool
    readers: dict[Block, list[int]] = field(default_factory=dict["Block", list[int]])
    late: set[Block] = field(default_factory=set["Block"])
    stamped: set[Block] = field(default_factory=set["Block"])


class TickFunction(PartWriter):
    """Function `part_<number>`, with one argument for a source and none otherwise."""

    notified: Notifications

    def write(self, notified: Notifications) -> SourceCode:
        """Write the source of the function."""
        self.notified = notified
        source = self._source()
        if source is not None:
            self._in_run[source] = local_name(source)
            self.code.line(f"{self.register_lasting(value_name(source))} = {local_name(source)}")
        if ready := self.write_ready(self.part.root):
            with self.code.block(f"if not {ready}:"):
                self.code.line("return")
        self.write_body()
        function = SourceCode()
        function.line(
            f"def {function_name(self.part.at)}({local_name(source) if source is not None else ''}):"
        )
        with function.deeper():
            if self.used:
                function.line(f"global {', '.join(self.used)}")
            function.extend(self.code)
        return function

    def _source(self) -> int | None:
        node = self.part.root.node
        return node if node in self._arrangement.sources else None

    def tick_number(self) -> str:
        return "tick"

    def ready_flag(self, name: str) -> str:
        return self.register_lasting(name)

    def activation_count(self, at: int) -> str:
        return f"counts[{at}]"

    def assign_stored(self, node: int, value: str) -> str:
        name = self.register_lasting(value_name(node))
        if value.isidentifier() and value not in self.used:
            self.code.line(f"{name} = {value}")
            return value
        if node not in self.read_here:
            self.code.line(f"{name} = {value}")
            return name
        self.code.line(f"{local_name(node)} = {name} = {value}")
        return local_name(node)

    def write_firing(self, block: Block) -> None:
        if block in self.notified.stamped:
            self.code.line(f"{self.register_lasting(stamp_name(block))} = tick")
        for reader in self.notified.readers.get(block, ()):
            self._write_call(str(reader))
        if block in self.notified.late:
            with self.code.block(f"for late in {late_name(block)}:"):
                self._write_call("late")

    def _write_call(self, reader: str) -> None:
        if self.notified.queued:
            with self.code.block(f"if not queued[{reader}]:"):
                self.code.line(f"queued[{reader}] = 1")
                self.code.line(f"push(queue, {reader})")
        else:
            self.code.line(f"queued[{reader}] = 1")

    def write_leaving(self, node: int, value: str) -> None:
        self.code.line(f"out_{node}({value})")
        self.code.line(f"ticks_{node}(tick)")


def function_name(part: int) -> str:
    """Return the name of a part's function."""
    return f"part_{part}"


def late_name(block: Block) -> str:
    """Return the name of the list of parts added to a block's readers at run time."""
    return f"late_{block.name}"
