"""Folds of the rows of each key into one value, by an opaque function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.expr.types import Field, Schema
from headrace.graph.node import ALTERABLE
from headrace.graph.operator_declarations import (
    Facts,
    KeyedSlot,
    MonotoneColumns,
    Placement,
    Port,
    place_by_key,
)
from headrace.lattice import Max
from headrace.lowering.reference import Examples
from headrace.lowering.row_code import RowCode, key_columns, write_received
from headrace.lowering.slot import Slot
from headrace.lowering.step import RowStep, step_for
from headrace.operators.fold import NO_CLAIMS, Claims, FoldOperator, FoldStep, describe_fold, folded_facts
from headrace.operators.lifetime import Lifetime, WithLifetime, describe_lifetime

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.expr.tree import Expr
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Lineage, SlotLayout
    from headrace.lowering.step_writer import StepWriter


class KeyedFoldOperator(FoldOperator, WithLifetime):
    """Base of operators that fold the rows of each key with an opaque function.

    keys, into: fields defined by each subclass.
    """

    __slots__ = ()
    keys: tuple[tuple[str, Expr], ...]
    into: str

    def ports(self) -> tuple[Port, ...]:
        return (Port("input", blocking=True, why="a further row could change its key's value"),)

    def group_keys(self) -> tuple[tuple[str, Expr], ...]:
        return self.keys

    def value_schema(self, output: Schema) -> Schema:
        return Schema(output.fields[-1:], scalar=True)

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return folded_facts(inputs[0], self.lifetime, self.nondet)

    def monotone_columns(self, inputs: Sequence[MonotoneColumns | None]) -> MonotoneColumns | None:
        if self.lifetime is Lifetime.TICK or not self.claims.monotone:
            return None
        return MonotoneColumns(tuple(name for name, _ in self.keys), {self.into: Max()})

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (dict(self.keys),)

    def placement(self) -> Placement:
        return place_by_key(tuple(expr for _, expr in self.keys))

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield from self.keys
        item = self.folded_item()
        if item is not None:
            yield self.into, item

    def describe(self) -> str:
        keys = ", ".join(name for name, _ in self.keys)
        return ", ".join(
            [f"by ({keys}): {describe_fold(self.function, self.claims)}", *describe_lifetime(self.lifetime)]
        )


def _add(total: int, n: int | None) -> int:
    return total + (n or 0)


@dataclass(frozen=True, slots=True)
class FoldKeyed(KeyedFoldOperator):
    """Per key, `function(accumulated, item)` over all items so far, in order, starting from `init`.

    The output has a row per key seen so far: the key columns, then `value`. In each tick, a key whose value
    has changed retracts the old row and emits the new one, once. Keys are emitted in the order of their first
    rows in the tick. With lifetime TICK, each tick emits plain rows for its own keys and items. An empty tick
    emits nothing.

    init: a value, or a function without arguments that returns one for each key.
    item: the folded item of a row; None for the whole row.

    >>> from headrace.testing import show
    >>> show(lambda n: n.fold_keyed("value", 0, lambda count, row: count + 1, into="copies"), n=[5, 7, 5])
    + (value=5, copies=2)
    + (value=7, copies=1)
    """

    kind: ClassVar[str] = "fold_keyed"
    examples: ClassVar[Examples] = {
        "of values": lambda x, y: x.fold_keyed("a", 0, _add, value="b", commutative=True),
        "of rows": lambda x, y: x.fold_keyed(["a", "b"], 0, lambda n, pair: n + 1, commutative=True),
    }
    keys: tuple[tuple[str, Expr], ...]
    into: str
    init: object
    function: Callable[..., object]
    item: Expr | None = None
    claims: Claims = NO_CLAIMS
    lifetime: Lifetime = Lifetime.STATIC
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def output(self, context: CheckContext) -> Columns:
        if self.item is not None:
            context.check_keys([self.item])
        keys = context.computed_columns(self.keys)
        context.require(len(context.output.fields) == len(keys) + 1, "a fold per key has one value")
        # Of what type it is, the function decides.
        value = context.output.fields[-1]
        return (*keys, Field(self.into, value.type, value.nullable))

    def folded_item(self) -> Expr | None:
        return self.item

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"values": KeyedSlot()}


@dataclass(frozen=True, slots=True)
class ReduceKeyed(KeyedFoldOperator):
    """Per key, `function(so far, item)` over all items, in order, starting from the first.

    Rows, order, lifetimes and empty ticks are as those of `fold_keyed`.

    >>> from typing import NamedTuple
    >>> from headrace.testing import show
    >>> class Sale(NamedTuple):
    ...     shop: str
    ...     price: int
    >>> show(lambda sales: sales.reduce_keyed("shop", max), sales=[Sale("a", 3), Sale("b", 1), Sale("a", 5)])
    + (shop='a', price=5)
    + (shop='b', price=1)
    """

    kind: ClassVar[str] = "reduce_keyed"
    examples: ClassVar[Examples] = {"reduce_keyed": lambda x, y: x.reduce_keyed("b", max, commutative=True)}
    reduces: ClassVar[bool] = True
    keys: tuple[tuple[str, Expr], ...]
    into: str
    function: Callable[..., object]
    item: Expr
    claims: Claims = NO_CLAIMS
    lifetime: Lifetime = Lifetime.STATIC
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def output(self, context: CheckContext) -> Columns:
        context.require(bool(self.keys), "a fold per key has no key")
        return (*context.computed_columns(self.keys), *context.computed_columns(((self.into, self.item),)))

    def folded_item(self) -> Expr | None:
        return self.item

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"values": KeyedSlot(), "merged": KeyedSlot()}


# --- steps ----------------------------------------------------------------------------------------


class KeyedFoldStep(FoldStep):
    """Fold per key. Slot: key -> the accumulated row last emitted.

    `touched` holds the accumulated values of this tick's keys, in the order of their first rows.
    """

    consolidates = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.keys = tuple(expr for _, expr in self.operator.group_keys())
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

    def consume(self, port: int, row: RowCode) -> None:
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
        self.emit(RowCode((*key_columns(key, len(self.keys)), f"{value}[0]"), None, weight))


class KeyedTickFoldStep(KeyedFoldStep):
    """Fold per key of each tick's rows, without state."""

    def slots(self) -> tuple[Slot, ...]:
        return ()

    def assign_before(self, value: str, key: str) -> None:
        if not self.operator.reduces:
            self.code.line(f"{value} = {self.first}")

    def emit_key_change(self, key: str, new: str) -> None:
        self.emit_value(key, new, "1")


@step_for.register(KeyedFoldOperator)
def _step(operator: KeyedFoldOperator, node: Node, writer: StepWriter) -> RowStep:
    step = KeyedTickFoldStep if operator.lifetime is Lifetime.TICK else KeyedFoldStep
    return step(node, writer)
