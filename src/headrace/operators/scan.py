"""Operators that carry a value from row to row, in order: scan, enumerate, state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, cast

from headrace.errors import UserFunctionFailed
from headrace.expr.check import check
from headrace.expr.row_classes import from_user, to_user
from headrace.expr.types import INT64, AnyType, Field
from headrace.graph.node import ALTERABLE, identity_lineage
from headrace.graph.operator_declarations import (
    IN_ORDER,
    Facts,
    KeyedSlot,
    Need,
    Placement,
    Port,
    place_by_key,
)
from headrace.lattice import Max
from headrace.lowering.generated_source import register_runtime
from headrace.lowering.reference import ExamplePair, Examples
from headrace.lowering.row_code import RowCode, holds_any, merged_item, user_form, write_received
from headrace.lowering.slot import Slot
from headrace.lowering.step import RowStep, register_step
from headrace.operators.fold import NO_CLAIMS, describe_fold
from headrace.operators.lattice_fold import lattice_claims, lattice_functions
from headrace.operators.lifetime import Lifetime, WithLifetime, describe_lifetime
from headrace.state.marked_values import Exact

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable
    from headrace.lattice import Lattice
    from headrace.lowering.step_writer import StepWriter


class OrderedOperator(WithLifetime):
    """Base of operators whose output for a row depends on the rows before it, per key if there are keys.

    order_reason: clause that says what depends on the earlier rows.
    per:          field defined by each subclass: the keys, none for all rows together.
    """

    __slots__ = ()
    order_reason: ClassVar[str]
    per: tuple[Expr, ...]

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def required_facts(self) -> tuple[Need, ...]:
        why = self.order_reason
        return (
            Need(
                0,
                "append",
                f"{why},\nand a row that is taken back would have been one of them",
                "feed it from a stream that only grows",
            ),
            Need(
                0,
                "ordered",
                why,
                'say what the order is by .assume_ordered(nondet="why it is kept"), or sort a bounded stream',
            ),
        )

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        rows = inputs[0]
        if self.lifetime is Lifetime.TICK:
            return rows.but(det=rows.det and self.nondet is None)
        return rows

    def placement(self) -> Placement:
        return place_by_key(self.per)

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        for expr in self.per:
            yield "per", expr

    def keys_and_lifetime(self) -> list[str]:
        """Render keys and lifetime for `describe`."""
        keys = [f"per {', '.join(str(e) for e in self.per)}"] if self.per else []
        return [*keys, *describe_lifetime(self.lifetime)]


def _carry(last: int, pair: ExamplePair) -> tuple[int, int]:
    return pair.a, pair.a - last


@dataclass(frozen=True, slots=True)
class Scan(OrderedOperator):
    """`function(carried, row)` returns the next carried value and the output row, or None to end.

    The operator is non-blocking: each row is mapped on arrival, in order. Once the function returns None, all
    further rows (of the key, if there are keys `per`) are dropped; with lifetime TICK, only until the end of
    the tick, when the scan starts over. An empty tick emits nothing.

    init:    a value, or a function without arguments that returns one (for each key).
    carried: schema of the carried value, as kept from tick to tick.

    >>> from headrace.testing import show
    >>> def total(sum: int, n: int) -> tuple[int, int] | None:
    ...     return (sum + n, sum + n) if sum + n < 10 else None
    >>> show(lambda numbers: numbers.scan(0, total), numbers=[1, 2, 3, 9, 1])
    + 1
    + 3
    + 6
    """

    kind: ClassVar[str] = "scan"
    examples: ClassVar[Examples] = {
        "scan": lambda x, y: x.scan(0, _carry),
        "per key": lambda x, y: x.scan(0, _carry, per="b"),
    }
    order_reason: ClassVar[str] = "what is carried along depends on the rows before"
    init: object
    function: Callable[..., object]
    carried: Schema
    per: tuple[Expr, ...] = ()
    lifetime: Lifetime = Lifetime.STATIC
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def output(self, context: CheckContext) -> Columns:
        context.check_keys(self.per)
        return None

    def unservable(self) -> Unservable | None:
        return IN_ORDER

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"carried": KeyedSlot()}

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        if callable(self.init):
            yield "init", self.init
        yield "function", self.function

    def describe(self) -> str:
        what = describe_fold(self.function, NO_CLAIMS)
        return ", ".join([what, *self.keys_and_lifetime()])


@dataclass(frozen=True, slots=True)
class Enumerate(OrderedOperator):
    """Each row with its number in front: `start`, `start + 1`, ... in row order.

    The operator is non-blocking. With keys `per`, each key is numbered separately, so `start=1` makes a
    running count. With lifetime TICK, numbers start again in each tick. An empty tick emits nothing. A number
    beyond 64 bits stops the tick with `EvaluationError`.

    >>> from headrace.testing import show
    >>> show(lambda words: words.enumerate(start=1, per="value"), words=["a", "b", "a"])
    + (index=1, value='a')
    + (index=1, value='b')
    + (index=2, value='a')
    """

    kind: ClassVar[str] = "enumerate"
    examples: ClassVar[Examples] = {
        "enumerate": lambda x, y: x.enumerate(per="a"),
        "of all": lambda x, y: x.enumerate(),
    }
    order_reason: ClassVar[str] = "a row's number counts the rows before it"
    start: int = 0
    per: tuple[Expr, ...] = ()
    lifetime: Lifetime = Lifetime.STATIC
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def output(self, context: CheckContext) -> Columns:
        context.require(-(2**63) <= self.start < 2**63, "numbers begin beyond 64 bits")
        context.check_keys(self.per)
        return (Field(context.output.names[0], INT64), *context.input.fields)

    def unservable(self) -> Unservable | None:
        return IN_ORDER

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]),)

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"count": KeyedSlot()}

    def describe(self) -> str:
        return ", ".join([f"from {self.start}", *self.keys_and_lifetime()])


@dataclass(frozen=True, slots=True)
class RunningState(OrderedOperator):
    """The rows whose item is not yet contained in the merge of the earlier ones.

    The operator is non-blocking, and rows keep their order. With keys `per`, each key has a value of its own.
    With lifetime TICK, the value starts from the bottom in each tick. An empty tick emits nothing.

    >>> from headrace.lattice import Max
    >>> from headrace.testing import show
    >>> show(lambda numbers: numbers.state(Max()), numbers=[3, 1, 5, 5])
    + 3
    + 5
    """

    described_as: ClassVar[str] = "State"
    kind: ClassVar[str] = "state"
    examples: ClassVar[Examples] = {
        "state": lambda x, y: x.state(Max(), value="a", per="b"),
        "of all": lambda x, y: x.state(Max(), value="a"),
    }
    order_reason: ClassVar[str] = "which rows are news depends on the rows before"
    lattice: Lattice
    item: Expr
    per: tuple[Expr, ...] = ()
    lifetime: Lifetime = Lifetime.STATIC
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def output(self, context: CheckContext) -> Columns:
        typed = check(self.item, context.input)
        self.lattice.column(Field("item", typed.type, typed.nullable))
        context.check_keys(self.per)
        return context.input.fields

    def unservable(self) -> Unservable | None:
        return IN_ORDER

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]),)

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"merged": KeyedSlot()}

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield "item", self.item
        # Not `super()`, because a dataclass with slots is a different class from the one defined here.
        yield from OrderedOperator.expressions(self)

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        yield from lattice_functions(self.lattice)

    def assumptions(self) -> Iterator[str]:
        yield from lattice_claims(self.lattice)

    def describe(self) -> str:
        return ", ".join([f"{self.lattice} of {self.item}", *self.keys_and_lifetime()])


# --- steps ----------------------------------------------------------------------------------------


@register_step(Scan)
class ScanStep(RowStep):
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

    def consume(self, port: int, row: RowCode) -> None:
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
class EnumerateStep(RowStep):
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

    def consume(self, port: int, row: RowCode) -> None:
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
        self.emit(RowCode((index, *row.columns)))

    def finish(self) -> None:
        if not self.operator.per:
            with self.code.block(f"if {self.count}:"):
                self.code.line(f"{self.slot('count')}[()] = {self.count}")


@register_step(RunningState)
class RunningStateStep(RowStep):
    """Step of state. Slot: key -> the merge so far; absent while that is the bottom."""

    operator: RunningState
    keeps_state = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.absorb = writer.constant("absorb", self.operator.lattice.absorb)
        self.bottom = writer.constant("bottom", self.operator.lattice.bottom)

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.merged", transient=self.operator.lifetime is Lifetime.TICK),)

    def consume(self, port: int, row: RowCode) -> None:
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


# --- run time ------------------------------------------------------------------------------------


def check_pair(made: object) -> None:
    """Raise an error unless a scan function's result is a pair: a tuple or list of two."""
    given: Any = made
    if isinstance(given, tuple | list) and len(cast("list[object]", given)) == 2:
        return
    found = type(made).__name__
    raise UserFunctionFailed(
        f"the function gave {found} {made!r:.100}, which is no pair (carried, row), nor None",
        fix="return the value to carry on and the row to send, or None to end",
    )


register_runtime({"x_no_pair": check_pair})
