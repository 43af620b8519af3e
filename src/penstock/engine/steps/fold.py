"""Folds: what users' functions accumulate, for all rows or per key, for ever or per tick."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

from penstock.engine.row_codegen import Row
from penstock.engine.slot import Slot
from penstock.engine.steps.step import Step, step_for
from penstock.engine.steps.user_rows import holds_any, item_of_row, users_view, write_received
from penstock.expr.rows import from_user
from penstock.expr.types import Schema
from penstock.flow.lifetime import Lifetime
from penstock.flow.operators.fold import Fold
from penstock.flow.operators.fold_keyed import FoldKeyed
from penstock.flow.operators.fold_tick import FoldTick
from penstock.flow.operators.reduce import Reduce
from penstock.flow.operators.reduce_keyed import ReduceKeyed
from penstock.state.codec import Exact

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.engine.step_writer import StepWriter
    from penstock.expr.tree import Expr
    from penstock.graph.node import Node


_OF_ANOTHER_TYPE = (
    "give returns= the type of what the function gives (returns=float), or an init of that type (init=0.0)"
)


class Folding(Step):
    """What the folds have in common: calling the function, and from what it gives to rows.

    State is the rows last sent, and what is accumulated is made of them again: so it
    is plain data whatever class users see it as, and a function may alter its own.
    """

    keeps_state = True

    def __init__(
        self,
        node: Node,
        writer: StepWriter,
        function: Callable[..., object],
        item: Expr | None,
        accumulated: Schema,
    ) -> None:
        super().__init__(node, writer)
        self.item = item
        self.accumulated = accumulated
        self.function = writer.constant("f", function)
        what = f"the value that {node.name!r} accumulated"
        fix = _OF_ANOTHER_TYPE if isinstance(node.operator, Fold | FoldTick | FoldKeyed) else ""
        self.checked = writer.constant("rows", from_user(accumulated, what=what, fix=fix))
        self.missing = writer.constant("missing", object())

    def assign_old(self, old: str, slot: str, key: str) -> None:
        """Assign the inside row that was last sent, or None."""
        self.code.line(f"{old} = {self.writer.slot_get(self.node.id, slot)}({key})")
        if holds_any(self.accumulated):
            with self.code.block(f"if {old} is not None:"):
                self.code.line(f"{old} = {old}.value")

    def kept(self, row: str) -> str:
        """Source of what is kept of an inside row."""
        if holds_any(self.accumulated):
            return f"{self.writer.constant('Exact', Exact)}(tuple({row}))"
        return row

    def next(self, accumulated: str, row: Row) -> str:
        """Source of what follows when a row comes."""
        return f"{self.function}({accumulated}, {item_of_row(self.writer, self.node, self.item, row)})"

    def seen(self, row: str) -> str:
        """Source of what is accumulated, as the function knows it, from the inside row `row`."""
        columns = tuple(f"{row}[{at}]" for at in range(len(self.accumulated.fields)))
        return users_view(self.writer, self.accumulated, Row(columns, row))

    def assign_inside(self, name: str, accumulated: str) -> None:
        """Assign to `name` the inside row of what is accumulated."""
        self.code.line(f"({name},) = {self.checked}([{accumulated}])")

    def start(self, init: object) -> str:
        """Source of what is accumulated when nothing has come.

        A lattice may begin with None where no answer is null: a row is there once an item has come.
        """
        if callable(init):
            return f"{self.writer.constant('init', init)}()"
        if init is None:
            return "None"
        (inside,) = from_user(self.accumulated, what="init")([init])
        seen = self.seen(self.writer.constant("init", inside))
        if deepcopy(inside) is inside:
            return seen
        # An object of users, which no key shares with another.
        return f"{self.writer.constant('deepcopy', deepcopy)}({seen})"


class WholeFold(Folding):
    """One value of all rows. Slot: () -> the row last sent.

    reduces: the first row is what it begins with.
    """

    consolidates = True

    def __init__(
        self, node: Node, writer: StepWriter, function: Callable[..., object], init: object, reduces: bool
    ) -> None:
        super().__init__(node, writer, function, None, node.schema)
        self.first = self.missing if reduces else self.start(init)
        self.reduces = reduces
        self.value = writer.named("value", node.id)
        self.old = writer.named("old", node.id)
        self.touched = writer.named("touched", node.id)
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
            code.line(f"{self.value} = {self.seen(self.old)}")

    def consume(self, port: int, row: Row) -> None:
        code = self.code
        code.line(f"{self.touched} = True")
        if not self.reduces:
            code.line(f"{self.value} = {self.next(self.value, row)}")
            return
        with code.block(f"if {self.value} is {self.missing}:"):
            code.line(f"{self.value} = {item_of_row(self.writer, self.node, None, row)}")
        with code.block("else:"):
            code.line(f"{self.value} = {self.next(self.value, row)}")

    def finish(self) -> None:
        code, writer = self.code, self.writer
        new = writer.fresh("new")
        due = self.touched if self.reduces else f"{self.touched} or {self.old} is None"
        with code.block(f"if {due}:"):
            self.assign_inside(new, self.value)
            with code.block(f"if {new} != {self.old}:"):
                code.line(f"{writer.slot(self.node.id, 'value')}[()] = {self.kept(new)}")
                if not writer.is_append(self.node.id):
                    with code.block(f"if {self.old} is not None:"):
                        self._emit(self.old, "-1")
                self._emit(new, "1")

    def _emit(self, row: str, weight: str) -> None:
        columns = tuple(f"{row}[{at}]" for at in range(len(self.node.schema.fields)))
        self.emit(Row(columns, row, weight))


class KeyedFold(Folding):
    """A value per key. Slot: key -> the accumulated row last sent.

    `touched` holds what the keys of this tick have accumulated, in the order in which they came.
    """

    consolidates = True

    def __init__(
        self, node: Node, writer: StepWriter, operator: FoldKeyed | ReduceKeyed, first: object | None
    ) -> None:
        accumulated = Schema(node.schema.fields[-1:], scalar=True)
        super().__init__(node, writer, operator.function, operator.item, accumulated)
        self.keys = tuple(expr for _, expr in operator.keys)
        self.reduces = isinstance(operator, ReduceKeyed)
        self.first = None if self.reduces else self.start(first)
        self.touched = writer.named("touched", node.id)
        self.sites = 1 if writer.is_append(node.id) else 3

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.values"),)

    def begin(self) -> None:
        self.code.line(f"{self.touched} = {{}}")

    def assign_before(self, value: str, key: str) -> None:
        """Assign what a key that is new in this tick has accumulated before."""
        code, old = self.code, self.writer.fresh("old")
        self.assign_old(old, "values", key)
        with code.block(f"if {old} is None:"):
            code.line(f"{value} = {self.missing if self.reduces else self.first}")
        with code.block("else:"):
            code.line(f"{value} = {self.seen(old)}")

    def consume(self, port: int, row: Row) -> None:
        code, writer = self.code, self.writer
        key, value = writer.fresh("key"), writer.fresh("value")
        writer.assign_key(key, self.keys, writer.input_schema(self.node, 0), row.columns)
        code.line(f"{value} = {self.touched}.get({key}, {self.missing})")
        with code.block(f"if {value} is {self.missing}:"):
            self.assign_before(value, key)
        if self.reduces:
            item = item_of_row(writer, self.node, self.item, row)
            first = f"{item} if {value} is {self.missing} else "
            code.line(f"{self.touched}[{key}] = {first}{self.function}({value}, {item})")
        else:
            code.line(f"{self.touched}[{key}] = {self.next(value, row)}")

    def finish(self) -> None:
        code, writer = self.code, self.writer
        key, value, new = writer.fresh("key"), writer.fresh("value"), writer.fresh("new")
        with code.block(f"for {key}, {value} in {self.touched}.items():"):
            code.line(f"{new} = {write_received(writer, self.accumulated, value, self.checked).source}")
            self.answer(key, new)

    def answer(self, key: str, new: str) -> None:
        """Write what is sent for a key with the accumulated row `new`."""
        code, writer = self.code, self.writer
        old, slot = writer.fresh("old"), writer.slot(self.node.id, "values")
        self.assign_old(old, "values", key)
        with code.block(f"if {new} != {old}:"):
            code.line(f"{slot}[{key}] = {self.kept(new)}")
            if not writer.is_append(self.node.id):
                with code.block(f"if {old} is not None:"):
                    self.emit_value(key, old, "-1")
            self.emit_value(key, new, "1")

    def emit_value(self, key: str, value: str, weight: str) -> None:
        count = len(self.keys)
        columns = [key] if count == 1 else [f"{key}[{at}]" for at in range(count)]
        self.emit(Row((*columns, f"{value}[0]"), None, weight))


class KeyedTickFold(KeyedFold):
    """A value per key of the tick's rows alone: no state."""

    def slots(self) -> tuple[Slot, ...]:
        return ()

    def assign_before(self, value: str, key: str) -> None:
        if not self.reduces:
            self.code.line(f"{value} = {self.first}")

    def answer(self, key: str, new: str) -> None:
        self.emit_value(key, new, "1")


class WholeTickFold(Folding):
    """One value of the tick's rows, in every tick: no state."""

    def __init__(
        self,
        node: Node,
        writer: StepWriter,
        function: Callable[..., object],
        init: object,
        item: Expr | None,
        reduces: bool,
    ) -> None:
        super().__init__(node, writer, function, item, node.schema)
        self.reduces = reduces
        self.first = self.missing if reduces else self.start(init)
        self.value = writer.named("value", node.id)

    def begin(self) -> None:
        self.code.line(f"{self.value} = {self.first}")

    def consume(self, port: int, row: Row) -> None:
        if not self.reduces:
            self.code.line(f"{self.value} = {self.next(self.value, row)}")
            return
        item = item_of_row(self.writer, self.node, self.item, row)
        first = f"{item} if {self.value} is {self.missing} else "
        self.code.line(f"{self.value} = {first}{self.function}({self.value}, {item})")

    def finish(self) -> None:
        new = self.writer.fresh("new")
        columns = tuple(f"{new}[{at}]" for at in range(len(self.node.schema.fields)))
        if self.reduces:
            with self.code.block(f"if {self.value} is not {self.missing}:"):
                self.assign_inside(new, self.value)
                self.emit(Row(columns, new))
        else:
            self.assign_inside(new, self.value)
            self.emit(Row(columns, new))


@step_for.register(Fold)
def _fold(operator: Fold, node: Node, writer: StepWriter) -> Step:
    return WholeFold(node, writer, operator.function, operator.init, reduces=False)


@step_for.register(FoldTick)
def _fold_tick(operator: FoldTick, node: Node, writer: StepWriter) -> Step:
    return WholeTickFold(node, writer, operator.function, operator.init, operator.item, reduces=False)


@step_for.register(Reduce)
def _reduce(operator: Reduce, node: Node, writer: StepWriter) -> Step:
    if operator.lifetime is Lifetime.TICK:
        return WholeTickFold(node, writer, operator.function, None, None, reduces=True)
    return WholeFold(node, writer, operator.function, None, reduces=True)


@step_for.register(FoldKeyed)
def _fold_keyed(operator: FoldKeyed, node: Node, writer: StepWriter) -> Step:
    step = KeyedTickFold if operator.lifetime is Lifetime.TICK else KeyedFold
    return step(node, writer, operator, operator.init)


@step_for.register(ReduceKeyed)
def _reduce_keyed(operator: ReduceKeyed, node: Node, writer: StepWriter) -> Step:
    step = KeyedTickFold if operator.lifetime is Lifetime.TICK else KeyedFold
    return step(node, writer, operator, None)
