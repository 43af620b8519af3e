"""Writer of one part as a Python function, for single ticks or for a loop over ticks.

In a function for single ticks, values that outlast the tick are module variables, visible to other functions,
including those compiled later. In a loop, all variables are local.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from headrace.engine.signals.blocks import BlockEntry, order_entries
from headrace.lowering.generated_source import SourceCode
from headrace.operators.signals.lift import SignalOperator

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterator, Mapping

    from headrace.engine.signals.blocks import Block, BlockLayout, ScheduledPart
    from headrace.graph.node import Node
    from headrace.lowering.generated_source import Constants
    from headrace.lowering.signal_step import SignalStep


NOTHING = "NOTHING"
"""Placeholder for the value of a signal that has none yet."""


class ArrangedSignals(Protocol):
    """Access to all compiled signals, across parts.

    kept:  operators whose value outlasts the run. shown: those whose value is shown to others than signals.
    """

    @property
    def nodes(self) -> Mapping[int, Node]: ...
    @property
    def steps(self) -> Mapping[int, SignalStep]: ...
    @property
    def arrangement(self) -> BlockLayout: ...
    @property
    def kept(self) -> Collection[int]: ...
    @property
    def shown(self) -> Collection[int]: ...


class PartWriter:
    """Writer of one part's lines, as a `SignalWriter`.

    counts:      per count the operators that are counted by it; None: nothing is counted.
    arrangement: of the operators; by default that of `signals`.
    used:        variables that outlast the run, in the order in which lines name them.
    """

    def __init__(
        self,
        part: ScheduledPart,
        signals: ArrangedSignals,
        constants: Constants,
        counts: list[tuple[int, ...]] | None,
        arrangement: BlockLayout | None = None,
    ) -> None:
        self.part = part
        self.code = SourceCode()
        self.nodes = signals.nodes
        self.used: dict[str, None] = {}
        self._kept = signals.kept
        self._leaving = signals.shown
        self._steps = signals.steps
        self._arrangement = signals.arrangement if arrangement is None else arrangement
        self._constants = constants
        self._counts = counts
        self._fresh = 0
        self._entry = order_entries(part, self.nodes, self._arrangement)
        self._flagged = self._find_flagged()
        self.read_here = self._find_read_here()
        self._in_run: dict[int, str] = {}
        self._here: Block = part.root

    # -- what steps ask ----------------------------------------------------------------------------

    def constant(self, prefix: str, value: object) -> str:
        """Return the name of a constant without a source literal."""
        return self._constants.name(prefix, value)

    def fresh(self, name: str) -> str:
        """Return a new local variable, unique in the function."""
        self._fresh += 1
        return f"{name}_{self._fresh}_{self.part.at}"

    def cell(self, node: Node, name: str) -> str:
        """Return the variable that holds a piece of an operator's state."""
        return self.register_lasting(cell_name(node.id, name))

    def register_lasting(self, name: str) -> str:
        """Register `name` as a variable that outlives the tick."""
        self.used[name] = None
        return name

    def value_of(self, node: int) -> str:
        """Return the source code that reads an operator's value at the current line."""
        fires_in = self._arrangement.fires_in.get(node)
        if fires_in is not None and self._here.is_within(fires_in):
            return self._in_run[node]
        return self.register_lasting(value_name(node))

    def has_value(self, node: Node, port: int) -> str | None:
        """Return a test whether an input has a value; None if it certainly has one."""
        source = node.inputs[port]
        fires_in = self._arrangement.fires_in.get(source)
        if fires_in is not None and self._here.is_within(fires_in):
            return None
        return f"{self.register_lasting(value_name(source))} is not {NOTHING}"

    def fired_test(self, node: Node, port: int) -> str | None:
        """Return a test whether an input fired in this tick; None if it certainly did."""
        source = node.inputs[port]
        fires_in = self._arrangement.fires_in.get(source)
        if fires_in is None:
            return "False"
        if self._here.is_within(fires_in):
            return None
        if fires_in.part is self.part:
            return flag_name(fires_in)
        return f"{self.register_lasting(stamp_name(fires_in))} == {self.tick_number()}"

    @abstractmethod
    def tick_number(self) -> str:
        """Return the source of the tick's number."""

    @abstractmethod
    def write_leaving(self, node: int, value: str) -> None:
        """Write code that emits a value to a sink or a stream."""

    # -- the body ----------------------------------------------------------------------------------

    @abstractmethod
    def assign_stored(self, node: int, value: str) -> str:
        """Write the assignment of a stored value; return its source for readers in the same run."""

    @abstractmethod
    def write_firing(self, block: Block) -> None:
        """Write the code that notifies other parts when a block is first entered."""

    def write_body(self) -> None:
        """Write the lines of the root block."""
        for flag in sorted(flag_name(b) for b in self._flagged):
            self.code.line(f"{flag} = False")
        self._write_entry(self._entry)

    def write_ready(self, block: Block) -> str | None:
        """Write the update of a block's readiness (all primitives have a value); None if not needed."""
        if not block.all_have:
            return None
        ready = self.ready_flag(f"r_{block.name}")
        tests = [f"{self.register_lasting(value_name(p))} is not {NOTHING}" for p in block.all_have]
        with self.code.block(f"if not {ready}:"):
            self.code.line(f"{ready} = {' and '.join(tests)}")
        return ready

    @abstractmethod
    def ready_flag(self, name: str) -> str:
        """Return the variable that is false at first and stays true once set."""

    def _write_entry(self, entry: BlockEntry) -> None:
        with self._inside(entry.block):
            if not entry.again:
                self._write_first_entry(entry.block)
            for item in entry.items:
                if not isinstance(item, BlockEntry):
                    self._write_node(item)
                elif item.decider is not None:
                    self._write_decision(item.decider, item)
                else:
                    self._write_inner(item)

    @contextmanager
    def _inside(self, block: Block) -> Generator[None]:
        before, self._here = self._here, block
        yield
        self._here = before

    def _write_first_entry(self, block: Block) -> None:
        if block in self._flagged:
            self.code.line(f"{flag_name(block)} = True")
        if self._counts is not None:
            counted = self._counted(block)
            if counted:
                self.code.line(f"{self.activation_count(len(self._counts))} += 1")
                self._counts.append(counted)
        self.write_firing(block)

    @abstractmethod
    def activation_count(self, at: int) -> str:
        """Return the variable of an activation count."""

    def _counted(self, block: Block) -> tuple[int, ...]:
        """Return the operators activated exactly when a block is entered."""
        if block.node is not None and block.parent is not None:
            own = () if self._counts_calls(block.node) else (block.node,)
        else:
            own = ()
        runs_in = self._arrangement.runs_in
        return own + tuple(
            n for n in self.part.nodes
            if runs_in[n] is block and (self._arrangement.fires_in[n] is block or self._counts_calls(n))
        )  # fmt: skip

    def _counts_calls(self, node: int) -> bool:
        operator = self.nodes[node].operator
        return isinstance(operator, SignalOperator) and operator.counts_when_activated()

    def _write_inner(self, entry: BlockEntry) -> None:
        """Write a block that is not entered directly after its operator has fired."""
        block = entry.block
        if entry.again:
            condition = flag_name(block)
        else:
            ready = self.write_ready(block)
            fired = " or ".join(flag_name(b) for b in block.any_of)
            several = f"({fired})" if ready and len(block.any_of) > 1 else fired
            condition = " and ".join(part for part in (several, ready) if part)
        with self.code.block(f"if {condition}:"):
            self._write_entry(entry)

    def _write_node(self, node_id: int) -> None:
        if node_id in self._arrangement.sources:
            if node_id in self._leaving:
                self.write_leaving(node_id, self._in_run[node_id])
            return
        with self._working_for(node_id) as inputs:
            outcome = self._steps[node_id].write(self, *inputs)
            if outcome is not None:
                self._write_value(node_id, outcome.value)

    def _write_decision(self, decider: int, entry: BlockEntry) -> None:
        """Write an operator that decides whether it fires, and its dependents' block."""
        with self._working_for(decider) as inputs:
            outcome = self._steps[decider].write(self, *inputs)
            assert outcome is not None, "an operator that decides whether it fires has a value"
            with ExitStack() as inside:
                if outcome.condition is not None:
                    inside.enter_context(self.code.block(f"if {outcome.condition}:"))
                inside.enter_context(self._inside(entry.block))
                self._write_value(decider, outcome.value)
                self._write_entry(entry)

    @contextmanager
    def _working_for(self, node: int) -> Generator[tuple[str, ...]]:
        inputs = tuple(self.value_of(i) for i in self.nodes[node].inputs)
        with self.code.attribute_lines(node, inputs):
            yield inputs

    def _write_value(self, node: int, value: str) -> None:
        if node in self._kept:
            self._in_run[node] = self.assign_stored(node, value)
        elif value.isidentifier() and value not in self.used:
            self._in_run[node] = value  # a value that is passed on
        else:
            self._in_run[node] = local_name(node)
            self.code.line(f"{local_name(node)} = {value}")
        if node in self._leaving:
            self.write_leaving(node, self._in_run[node])

    def _find_read_here(self) -> frozenset[int]:
        """Find operators whose value is read in the run that computes it."""
        runs_in, fires_in = self._arrangement.runs_in, self._arrangement.fires_in
        return frozenset(
            i for n in self.part.nodes if n not in self._arrangement.sources for i in self.nodes[n].inputs
            if i in fires_in and runs_in[n].is_within(fires_in[i])
        )  # fmt: skip

    def _find_flagged(self) -> set[Block]:
        """Find blocks whose entry is tested by later lines."""
        flagged: set[Block] = set()
        for block in self.part.blocks:
            flagged.update(block.any_of)
        for node in self.part.nodes:
            operator = self.nodes[node].operator
            if isinstance(operator, SignalOperator) and operator.tells_inputs_apart():
                sources = (self._arrangement.fires_in.get(i) for i in self.nodes[node].inputs)
                here = self._arrangement.runs_in[node]
                flagged.update(
                    b for b in sources if b is not None and b.part is self.part and not here.is_within(b)
                )
        return flagged | set(_entered_again(self._entry))


def _entered_again(entry: BlockEntry) -> Iterator[Block]:
    for item in entry.items:
        if isinstance(item, BlockEntry):
            if item.again:
                yield item.block
            yield from _entered_again(item)


def value_name(node: int) -> str:
    """Return the variable of an operator's current value."""
    return f"v_{node}"


def local_name(node: int) -> str:
    """Return the variable of an operator's value within a run."""
    return f"x_{node}"


def cell_name(node: int, name: str) -> str:
    return f"c_{node}_{name}"


def flag_name(block: Block) -> str:
    """Return the variable that flags whether a block was entered in this tick."""
    return f"f_{block.name}"


def stamp_name(block: Block) -> str:
    """Return the name of the variable that holds the last tick in which a block was entered."""
    return f"s_{block.name}"


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
