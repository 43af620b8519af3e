"""Steps that carry state from row to row: scan, enumerate, state, thresholds."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from headrace.expr.row_classes import from_user, to_user
from headrace.expr.types import AnyType
from headrace.lowering.row_code import Row, key_columns
from headrace.lowering.slot import Slot
from headrace.lowering.step import Step, register_step
from headrace.lowering.user_rows import holds_any, merged_item, user_form, write_received
from headrace.operators.at_least import AtLeast
from headrace.operators.lifetime import Lifetime
from headrace.operators.scan import Enumerate, Scan, State
from headrace.state.codec import Exact

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.expr.types import Schema
    from headrace.graph.node import Node
    from headrace.lowering.step_writer import StepWriter


@register_step(Scan)
class ScanStep(Step):
    """Step of scan. Slot: key -> the inside row of the carried value, or () after its end.

    Within a tick the keys that came carry (value,) as the function knows it, which may be altered.
    """

    operator: Scan
    keeps_state = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        operator = self.operator
        self.function = writer.constant("f", operator.function)
        self.checked = writer.constant("rows", from_user(node.schema, what=f"a row sent by {node.name!r}"))
        self.of_a_tick = operator.lifetime is Lifetime.TICK
        kept, seen = storage_functions(operator.carried, f"the value that {node.name!r} carries")
        self.kept, self.seen = writer.constant("kept", kept), writer.constant("seen", seen)
        self.live = self.slot("carried") if self.of_a_tick else writer.node_variable("live", node.id)

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.carried", transient=self.of_a_tick),)

    def begin(self) -> None:
        if not self.of_a_tick:
            self.code.line(f"{self.live} = {{}}")

    def _first(self) -> str:
        init, writer = self.operator.init, self.writer
        name = writer.constant("init", init)
        if callable(init):
            return f"({name}(),)"
        if deepcopy(init) is init:
            return f"({name},)"
        # A function may alter what it is given, and each key, each engine begins anew.
        return f"({writer.constant('deepcopy', deepcopy)}({name}),)"

    def consume(self, port: int, row: Row) -> None:
        code, writer = self.code, self.writer
        key, carried, made, out = (writer.fresh(n) for n in ("key", "carried", "made", "row"))
        schema = self.input_schema()
        writer.assign_key(key, self.operator.per, schema, row.columns)
        code.line(f"{carried} = {self.live}.get({key})")
        with code.block(f"if {carried} is None:"):
            if not self.of_a_tick:
                code.line(f"{carried} = {self.slot_getter('carried')}({key})")
            first = self._first()
            before = first if self.of_a_tick else f"{first} if {carried} is None else {self.seen}({carried})"
            code.line(f"{carried} = {before}")
        with code.block(f"if {carried}:"):
            code.line(f"{made} = {self.function}({carried}[0], {user_form(writer, schema, row)})")
            with code.block(f"if {made} is None:"):
                code.line(f"{self.live}[{key}] = ()")
            with code.block("else:"):
                value = writer.fresh("value")
                with code.block(f"if {made}.__class__ is not tuple or len({made}) != 2:"):
                    code.line(f"x_no_pair({made})")
                code.line(f"{value}, {out} = {made}")
                code.line(f"{self.live}[{key}] = ({value},)")
                self.emit(write_received(writer, self.node.schema, out, self.checked))

    def finish(self) -> None:
        if self.of_a_tick:
            return
        key, carried = self.writer.fresh("key"), self.writer.fresh("carried")
        with self.code.block(f"for {key}, {carried} in {self.live}.items():"):
            self.code.line(f"{self.slot('carried')}[{key}] = {self.kept}({carried})")


def storage_functions(carried: Schema, what: str) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return the functions that convert (carried value,) to its stored form and back; () is unchanged."""
    if carried.scalar and isinstance(carried.fields[0].type, AnyType):
        # It stands in no row, and need not be hashable.
        return lambda one: Exact(one[0]) if one else (), lambda kept: (kept.value,) if kept else ()
    inside, seen = from_user(carried, what=what), to_user(carried)
    if holds_any(carried):
        return (
            lambda one: Exact(tuple(inside(one)[0])) if one else (),
            lambda kept: (seen(kept.value),) if kept else (),
        )
    return lambda one: inside(one)[0] if one else (), lambda kept: (seen(kept),) if kept else ()


@register_step(Enumerate)
class EnumerateStep(Step):
    """Step of enumerate. Slot: key -> number of rows so far."""

    operator: Enumerate
    keeps_state = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.count = writer.node_variable("count", node.id)

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.count", transient=self.operator.lifetime is Lifetime.TICK),)

    def begin(self) -> None:
        if not self.operator.per:
            self.code.line(f"{self.count} = {self.slot_getter('count')}(()) or 0")

    def consume(self, port: int, row: Row) -> None:
        code, writer, start = self.code, self.writer, self.operator.start
        if not self.operator.per:
            code.line(f"{self.count} += 1")
            number = self.count
        else:
            number = writer.fresh("n")
            key = writer.key("key", self.operator.per, self.input_schema(), row.columns)
            before = f"{self.slot_getter('count')}({key}) or 0"
            code.line(f"{number} = {self.slot('count')}[{key}] = ({before}) + 1")
        index = number
        if start != 1:
            index = writer.fresh("index")
            code.line(f"{index} = {number} {'+' if start > 1 else '-'} {abs(start - 1)}")
            if start > 2**62:
                # From lower on, no stream comes so far.
                with code.block(f"if {index} >= {2**63}:"):
                    code.line(f"x_overflow({index}, 'int64')")
        elif not self.operator.per:
            # A buffer keeps the row, and the counter goes on.
            index = writer.fresh("index")
            code.line(f"{index} = {number}")
        self.emit(Row((index, *row.columns)))

    def finish(self) -> None:
        if not self.operator.per:
            with self.code.block(f"if {self.count}:"):
                self.code.line(f"{self.slot('count')}[()] = {self.count}")


@register_step(State)
class StateStep(Step):
    """Step of state. Slot: key -> the merge so far; absent while that is the bottom."""

    operator: State
    keeps_state = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.absorb = writer.constant("absorb", self.operator.lattice.absorb)
        self.bottom = writer.constant("bottom", self.operator.lattice.bottom)

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.merged", transient=self.operator.lifetime is Lifetime.TICK),)

    def consume(self, port: int, row: Row) -> None:
        code, writer = self.code, self.writer
        key, old, new = writer.fresh("key"), writer.fresh("old"), writer.fresh("new")
        writer.assign_key(key, self.operator.per, self.input_schema(), row.columns)
        code.line(f"{old} = {self.slot_getter('merged')}({key})")
        with code.block(f"if {old} is None:"):
            code.line(f"{old} = {self.bottom}")
        item = merged_item(writer, self.node, self.operator.item, row)
        code.line(f"{new} = {self.absorb}({old}, {item})")
        # As parts of tuples, NaN is NaN.
        with code.block(f"if ({new},) != ({old},):"):
            code.line(f"{self.slot('merged')}[{key}] = {new}")
            self.emit(row)


@register_step(AtLeast)
class AtLeastStep(Step):
    """Step of at_least. Slot: key -> 1 once its value has reached the threshold."""

    operator: AtLeast
    keeps_state = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.threshold = writer.constant("threshold", self.operator.threshold)
        self.leq = writer.constant("leq", self.operator.lattice.leq)

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.reached"),)

    def consume(self, port: int, row: Row) -> None:
        code, writer, operator = self.code, self.writer, self.operator
        schema = self.input_schema()
        at = schema.position(operator.column)
        assert at is not None
        comes = f"{row.weight} > 0 and " if row.weight not in (None, "1") else ""
        if row.weight == "-1":
            return
        with code.block(f"if {comes}{self.leq}({self.threshold}, {row.columns[at]}):"):
            key = writer.fresh("key")
            writer.assign_key(key, operator.keys, schema, row.columns)
            with code.block(f"if {self.slot_getter('reached')}({key}) is None:"):
                code.line(f"{self.slot('reached')}[{key}] = 1")
                self.emit(Row((*key_columns(key, len(operator.keys)), self.threshold)))
