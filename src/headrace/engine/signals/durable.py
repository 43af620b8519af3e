"""State of signals in slots: current values, and the operators' own state.

Each operator has a slot, with a key per variable and the value as plain data. Slots are written at the end of
a tick for the operators of the parts that ran, and read once before the first tick.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

from headrace.engine.signals.part_writer import cell_name, value_name
from headrace.errors import WrongType
from headrace.lowering.slot import Slot
from headrace.operators.signals.lift import SignalOperator
from headrace.operators.signals.statistic_signal import StatisticSignal

if TYPE_CHECKING:
    from headrace.engine.signals.signal_machine import SignalMachine
    from headrace.expr.types import Schema
    from headrace.graph.node import FlowGraph, Node
    from headrace.lowering.slot import SlotMapping

VALUE = "value"
_PLAIN = (type(None), bool, int, float, str, bytes, Decimal, date, datetime, timedelta)


def signal_slot(node: Node) -> Slot:
    """Return the slot of a signal."""
    return Slot(f"{node.id}.{'statistic' if isinstance(node.operator, StatisticSignal) else 'signal'}")


def signal_slots(graph: FlowGraph) -> tuple[Slot, ...]:
    """Return the slots of all signals in a flow."""
    return tuple(signal_slot(node) for node in graph.nodes if isinstance(node.operator, SignalOperator))


class DurableVariables:
    """Persistence of a machine's variables in slots, restored before the first tick."""

    def __init__(self, machine: SignalMachine, state: Mapping[str, SlotMapping]) -> None:
        self._machine = machine
        self._slots: dict[int, SlotMapping] = {
            node.id: state[signal_slot(node).name]
            for node in machine.nodes.values()
            if isinstance(node.operator, SignalOperator)
        }
        self._forms = ValueCodec(node.schema for node in machine.nodes.values())
        variables = machine.module.variables
        for node, slot in self._slots.items():
            kept = slot.get(VALUE)
            if kept is not None and node in machine.kept:
                variables[value_name(node)] = self._forms.thaw(kept[0])
            for cell in machine.steps[node].cells():
                kept = slot.get(cell.name)
                if kept is not None:
                    variables[cell_name(node, cell.name)] = cell.thaw(self._forms.thaw(kept[0]))

    def save(self, nodes: Iterable[int]) -> None:
        """Write the operators' state to their slots.

        Raises `WrongType` for a value that is not plain data.
        """
        for node in nodes:
            if node in self._slots:
                try:
                    self._save(node)
                except NoPlainData as error:
                    raise self._refused(node, error) from None

    def _save(self, node: int) -> None:
        machine, slot = self._machine, self._slots[node]
        variables = machine.module.variables
        # In a tuple of one each, for null is a value, too.
        if node in machine.kept and machine.has_value(node):
            slot[VALUE] = (self._forms.freeze(variables[value_name(node)]),)
        for cell in machine.steps[node].cells():
            slot[cell.name] = (self._forms.freeze(cell.freeze(variables[cell_name(node, cell.name)])),)

    def _refused(self, node_id: int, error: NoPlainData) -> WrongType:
        node = self._machine.nodes[node_id]
        return WrongType(
            f"{node.name!r} holds a {error}, which cannot be stored",
            where=[node.location],
            why="State is plain data, so that another process can read it, and another version of the code.",
            fix="use numbers, text, bytes, dates, decimals, rows of the flow's sources,\n"
            "and lists, tuples and dicts of them",
            operator=node.name,
        )


class NoPlainData(TypeError):
    """Exception for a value of an unsupported class, which the message names."""


class ValueCodec:
    """Conversion of values to and from immutable plain data that distinguishes lists from tuples.

    schemas: schemas whose row classes may occur in the values.
    """

    def __init__(self, schemas: Iterable[Schema]) -> None:
        classes = {s.row_class for s in schemas if not s.scalar and s.row_class is not None}
        self._classes: dict[str, type[Any]] = {c.__qualname__: c for c in classes}

    def freeze(self, value: Any) -> Any:
        """Convert a value to its stored form. Raises `NoPlainData`."""
        kind = cast("type[Any]", type(value))
        if kind in _PLAIN:
            return value
        if kind is list or kind is tuple:
            return (kind.__name__, *map(self.freeze, value))
        if kind is dict:
            return ("dict", *((self.freeze(k), self.freeze(v)) for k, v in value.items()))
        if self._classes.get(kind.__qualname__) is kind:
            fields: Iterable[Any] = value if issubclass(kind, tuple) else vars(cast("object", value)).values()
            return (f"row {kind.__qualname__}", *map(self.freeze, fields))
        raise NoPlainData(kind.__name__)

    def thaw(self, kept: Any) -> Any:
        """Convert a stored form back to its value."""
        if not isinstance(kept, list | tuple):
            return kept
        kind, *items = cast("Sequence[Any]", kept)
        if kind == "dict":
            return {self.thaw(k): self.thaw(v) for k, v in items}
        values = [self.thaw(item) for item in items]
        if kind == "list":
            return values
        return tuple(values) if kind == "tuple" else self._classes[kind.removeprefix("row ")](*values)
