"""Steps of folds with user functions, over all rows or per key, for the whole run or per tick."""

from __future__ import annotations

from contextlib import nullcontext
from copy import deepcopy
from typing import TYPE_CHECKING

from headrace.expr.row_classes import from_user
from headrace.expr.types import Schema
from headrace.lowering.row_code import Row, item_sources, key_columns
from headrace.lowering.slot import Slot
from headrace.lowering.step import Step, step_for
from headrace.lowering.user_rows import holds_any, item_source, user_form, write_received
from headrace.operators.fold import Fold, FoldTick, Reduce
from headrace.operators.keyed_fold import FoldKeyed, ReduceKeyed
from headrace.operators.lifetime import Lifetime
from headrace.state.codec import Exact

if TYPE_CHECKING:
    from headrace.graph.node import Node
    from headrace.lowering.step_writer import StepWriter


_OF_ANOTHER_TYPE = (
    "give returns= the type of what the function gives (returns=float), or an init of that type (init=0.0)"
)


class Folding(Step):
    """Base of folds: calls to the function, and conversion of its results to rows.

    State is the rows last sent, and what is accumulated is made of them again: so it
    is plain data whatever class users see it as, and a function may alter its own.

    reduces: the first item is the initial value. first: source of what is accumulated before any item.
    """

    keeps_state = True

    def __init__(self, node: Node, writer: StepWriter, accumulated: Schema) -> None:
        super().__init__(node, writer)
        operator: Fold | FoldTick | FoldKeyed | Reduce | ReduceKeyed = self.operator
        self.accumulated = accumulated
        self.item = None if isinstance(operator, Fold | Reduce) else operator.item
        self.function = writer.constant("f", operator.function)
        what = f"the value that {node.name!r} accumulated"
        self.reduces = isinstance(operator, Reduce | ReduceKeyed)
        self.checked = writer.constant(
            "rows", from_user(accumulated, what=what, fix="" if self.reduces else _OF_ANOTHER_TYPE)
        )
        self.missing = writer.constant("missing", object())
        self.first = self.missing if isinstance(operator, Reduce | ReduceKeyed) else self.start(operator.init)

    def assign_old(self, old: str, slot: str, key: str) -> None:
        """Assign the last emitted inside row, or None."""
        self.code.line(f"{old} = {self.slot_getter(slot)}({key})")
        if holds_any(self.accumulated):
            with self.code.block(f"if {old} is not None:"):
                self.code.line(f"{old} = {old}.value")

    def stored_form(self, row: str) -> str:
        """Return the source of an inside row's stored form."""
        if holds_any(self.accumulated):
            return f"{self.writer.constant('Exact', Exact)}(tuple({row}))"
        return row

    def next_value(self, accumulated: str, row: Row) -> str:
        """Return the source of the next accumulated value for a row."""
        item = item_source(self.writer, self.node, self.item, row)
        call = f"{self.function}({accumulated}, {item})"
        return f"{item} if {accumulated} is {self.missing} else {call}" if self.reduces else call

    def user_value(self, row: str) -> str:
        """Return the source of the accumulated value as user functions see it, from the inside row `row`."""
        return user_form(
            self.writer, self.accumulated, Row(item_sources(row, len(self.accumulated.fields)), row)
        )

    def assign_inside(self, name: str, accumulated: str) -> None:
        """Assign the accumulated value's inside row to `name`."""
        self.code.line(f"({name},) = {self.checked}([{accumulated}])")

    def start(self, init: object) -> str:
        """Return the source of the initial accumulated value.

        A lattice may begin with None if no answer is null: a row is there once an item has come.
        """
        if callable(init):
            return f"{self.writer.constant('init', init)}()"
        if init is None:
            return "None"
        (inside,) = from_user(self.accumulated, what="init")([init])
        seen = self.user_value(self.writer.constant("init", inside))
        if deepcopy(inside) is inside:
            return seen
        # An object of users, which no key shares with another.
        return f"{self.writer.constant('deepcopy', deepcopy)}({seen})"


class WholeFold(Folding):
    """Fold of all rows into one value. Slot: () -> the row last sent."""

    consolidates = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer, node.schema)
        self.value = writer.node_variable("value", node.id)
        self.old = writer.node_variable("old", node.id)
        self.touched = writer.node_variable("touched", node.id)
        self.sites = 1 if writer.is_append(node.id) else 2

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.value"),)

    def begin(self) -> None:
        code = self.code
        self.assign_old(self.old, "value", "()")
        code.line(f"{self.touched} = False")
        with code.block(f"if {self.old} is None:"):
            code.line(f"{self.value} = {self.first}")
        with code.block("else:"):
            code.line(f"{self.value} = {self.user_value(self.old)}")

    def consume(self, port: int, row: Row) -> None:
        self.code.line(f"{self.touched} = True")
        self.code.line(f"{self.value} = {self.next_value(self.value, row)}")

    def finish(self) -> None:
        code, writer = self.code, self.writer
        new = writer.fresh("new")
        due = self.touched if self.reduces else f"{self.touched} or {self.old} is None"
        with code.block(f"if {due}:"):
            self.assign_inside(new, self.value)
            with code.block(f"if {new} != {self.old}:"):
                code.line(f"{self.slot('value')}[()] = {self.stored_form(new)}")
                if not writer.is_append(self.node.id):
                    with code.block(f"if {self.old} is not None:"):
                        self.emit_tuple(self.old, "-1")
                self.emit_tuple(new, "1")


class WholeTickFold(Folding):
    """Fold of each tick's rows to one value, without state."""

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer, node.schema)
        self.value = writer.node_variable("value", node.id)

    def begin(self) -> None:
        self.code.line(f"{self.value} = {self.first}")

    def consume(self, port: int, row: Row) -> None:
        self.code.line(f"{self.value} = {self.next_value(self.value, row)}")

    def finish(self) -> None:
        new = self.writer.fresh("new")
        with self.code.block(f"if {self.value} is not {self.missing}:") if self.reduces else nullcontext():
            self.assign_inside(new, self.value)
            self.emit_tuple(new)


class KeyedFold(Folding):
    """Fold per key. Slot: key -> the accumulated row last sent.

    `touched` holds what the keys of this tick have accumulated, in the order in which they came.
    """

    operator: FoldKeyed | ReduceKeyed
    consolidates = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer, Schema(node.schema.fields[-1:], scalar=True))
        self.keys = tuple(expr for _, expr in self.operator.keys)
        self.touched = writer.node_variable("touched", node.id)
        self.sites = 1 if writer.is_append(node.id) else 3

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.values"),)

    def begin(self) -> None:
        self.code.line(f"{self.touched} = {{}}")

    def assign_before(self, value: str, key: str) -> None:
        """Assign a key's accumulated value from before this tick."""
        code, old = self.code, self.writer.fresh("old")
        self.assign_old(old, "values", key)
        with code.block(f"if {old} is None:"):
            code.line(f"{value} = {self.first}")
        with code.block("else:"):
            code.line(f"{value} = {self.user_value(old)}")

    def consume(self, port: int, row: Row) -> None:
        code, writer = self.code, self.writer
        key, value = writer.fresh("key"), writer.fresh("value")
        writer.assign_key(key, self.keys, self.input_schema(), row.columns)
        code.line(f"{value} = {self.touched}.get({key}, {self.missing})")
        with code.block(f"if {value} is {self.missing}:"):
            self.assign_before(value, key)
        code.line(f"{self.touched}[{key}] = {self.next_value(value, row)}")

    def finish(self) -> None:
        code, writer = self.code, self.writer
        key, value, new = writer.fresh("key"), writer.fresh("value"), writer.fresh("new")
        with code.block(f"for {key}, {value} in {self.touched}.items():"):
            code.line(f"{new} = {write_received(writer, self.accumulated, value, self.checked).source}")
            self.emit_key_change(key, new)

    def emit_key_change(self, key: str, new: str) -> None:
        """Write code that emits the change of a key whose accumulated row is `new`."""
        code, old = self.code, self.writer.fresh("old")
        self.assign_old(old, "values", key)
        with code.block(f"if {new} != {old}:"):
            code.line(f"{self.slot('values')}[{key}] = {self.stored_form(new)}")
            if not self.writer.is_append(self.node.id):
                with code.block(f"if {old} is not None:"):
                    self.emit_value(key, old, "-1")
            self.emit_value(key, new, "1")

    def emit_value(self, key: str, value: str, weight: str) -> None:
        self.emit(Row((*key_columns(key, len(self.keys)), f"{value}[0]"), None, weight))


class KeyedTickFold(KeyedFold):
    """Fold per key of each tick's rows, without state."""

    def slots(self) -> tuple[Slot, ...]:
        return ()

    def assign_before(self, value: str, key: str) -> None:
        if not self.reduces:
            self.code.line(f"{value} = {self.first}")

    def emit_key_change(self, key: str, new: str) -> None:
        self.emit_value(key, new, "1")


@step_for.register(Fold)
@step_for.register(FoldTick)
@step_for.register(Reduce)
def _whole(operator: Fold | FoldTick | Reduce, node: Node, writer: StepWriter) -> Step:
    of_a_tick = isinstance(operator, FoldTick) or (
        isinstance(operator, Reduce) and operator.lifetime is Lifetime.TICK
    )
    return WholeTickFold(node, writer) if of_a_tick else WholeFold(node, writer)


@step_for.register(FoldKeyed)
@step_for.register(ReduceKeyed)
def _keyed(operator: FoldKeyed | ReduceKeyed, node: Node, writer: StepWriter) -> Step:
    return KeyedTickFold(node, writer) if operator.lifetime is Lifetime.TICK else KeyedFold(node, writer)
