"""Lattice operators: folds that merge all items, and thresholds on values that only grow.

In a cycle, a fold emits the merge whenever it grows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.expr.check import check
from headrace.expr.compile_python import key_of
from headrace.expr.constructors import col
from headrace.expr.row_classes import from_user
from headrace.expr.types import AnyType, Field, Schema
from headrace.graph.node import ALTERABLE, Operator, function_name
from headrace.graph.operator_declarations import (
    LOOP_OF_LATTICES,
    Facts,
    KeyedSlot,
    MonotoneColumns,
    Need,
    Placement,
    Port,
    place_by_key,
)
from headrace.lattice import Max, Merging, Min
from headrace.lowering.reference import Bag, Bags, Examples, answer_of_bags, function_of
from headrace.lowering.row_code import MappingCode, RowCode, key_columns, merged_item, write_received
from headrace.lowering.slot import Slot
from headrace.lowering.step import RowStep, register_step
from headrace.operators.aggregate.counts import count
from headrace.operators.fold import items_by_key
from headrace.operators.lifetime import TickDependent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.expr.tree import Expr
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable
    from headrace.lattice import Lattice
    from headrace.lowering.step_writer import StepWriter


def _counting_up(pairs: Any) -> Any:
    back = pairs.flow.feedback(int)
    top = pairs.map(lambda n: n.a, returns=int).union(back).lattice_fold(Max())
    back.close(top.filter(col.value < 5).map(lambda n: n + 1, returns=int))
    return top


@dataclass(frozen=True, slots=True)
class LatticeGrowth(TickDependent):
    """Lattice fold in a cycle within a tick: non-blocking and without retractions.

    Each item that makes the value grow emits the new value, so the cycle ends when no value grows any more.
    If all operators downstream are monotone, the final value does not depend on the order; the intermediate
    ones depend on order and ticks, so a reason is required outside of flows with `ticks="given"`.

    >>> import headrace as hr
    >>> from headrace.lattice import Max
    >>> from headrace.testing import show
    >>> def count_up(seed):
    ...     numbers = seed.flow.feedback(int)
    ...     top = seed.union(numbers).lattice_fold(Max(), nondet="only the last one is read")
    ...     more = top.filter(hr.col.value < 3).map(lambda n: n + 1, returns=int)
    ...     numbers.close(more)
    ...     return top
    >>> show(count_up, seed=[1])
    + 1
    + 2
    + 3
    """

    kind: ClassVar[str] = "lattice_fold"
    plan_name: ClassVar[str | None] = ""
    examples: ClassVar[Examples] = {"lattice_fold in a loop": lambda x, y: _counting_up(x)}
    picks_representative: ClassVar[bool] = True
    lattice: Lattice
    keys: tuple[tuple[str, Expr], ...]
    into: str
    item: Expr
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def output(self, context: CheckContext) -> Columns:
        raise context.unbuildable_error(f"{self.kind} in a loop is made by the graph, and not written")

    def unservable(self) -> Unservable | None:
        return LOOP_OF_LATTICES

    def placement(self) -> Placement:
        return place_by_key(tuple(expr for _, expr in self.keys))

    def required_facts(self) -> tuple[Need, ...]:
        return (
            Need(
                0,
                "append",
                "a merged value cannot shrink:\nof an item that is taken back it would not know",
                "feed the loop from streams that only grow",
            ),
        )

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(ordered=False, once=True, det=inputs[0].det and self.nondet is None)

    def monotone_columns(self, inputs: Sequence[MonotoneColumns | None]) -> MonotoneColumns | None:
        return MonotoneColumns(tuple(name for name, _ in self.keys), {self.into: self.lattice})

    def depends_on_cut(self) -> str:
        return "In a cycle it shows its value each time it has grown, and ticks decide how often that is."

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield from self.keys
        yield self.into, self.item

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        yield from lattice_functions(self.lattice)

    def assumptions(self) -> Iterator[str]:
        yield from lattice_claims(self.lattice)

    def describe(self) -> str:
        keys = f" per {', '.join(name for name, _ in self.keys)}" if self.keys else ""
        return f"{self.lattice} of {self.item}{keys}"


def lattice_functions(lattice: Lattice) -> Iterator[tuple[str, Callable[..., object]]]:
    """Yield the opaque user functions of a lattice."""
    yield "merge", lattice.function if isinstance(lattice, Merging) else lattice.merge


def lattice_claims(lattice: Lattice) -> Iterator[str]:
    """Yield the assumptions about a user's lattice, one clause each. Built-in lattices need none."""
    if isinstance(lattice, Merging):
        yield f"{function_name(lattice.function)} {_MERGES}"
    elif type(lattice).__module__ != Merging.__module__:
        yield f"{function_name(type(lattice))} {_MERGES}"
    for part in lattice.parts:
        yield from lattice_claims(part)


_MERGES = "merges in any order and any number of times alike"


@dataclass(frozen=True, slots=True)
class LatticeFold(Operator):
    """The merge in `lattice` of all items so far, per key if there are keys.

    Without keys, the output is a table of exactly one row, which exists from the first tick on, with the
    bottom until the first item. In each tick that grows the value, the old one is retracted and the new one
    emitted. An empty tick changes nothing.

    The order and the number of copies of items do not matter. In a cycle within a tick, the operator is
    non-blocking: see `operators.lattice_fold`.

    >>> from headrace.lattice import Max
    >>> from headrace.testing import show
    >>> show(lambda numbers: numbers.lattice_fold(Max()), numbers=[1, 3, 2])
    + 3
    """

    kind: ClassVar[str] = "lattice_fold"
    examples: ClassVar[Examples] = {
        "of all": lambda x, y: x.lattice_fold(Max(), value="b"),
        "per key": lambda x, y: x.lattice_fold(Min(), value="b", per="a"),
    }
    picks_representative: ClassVar[bool] = True
    runs_first_tick: ClassVar[bool] = True
    lattice: Lattice
    keys: tuple[tuple[str, Expr], ...]
    into: str
    item: Expr
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("input", blocking=True, why="a further item could make the value grow"),)

    def output(self, context: CheckContext) -> Columns:
        typed = check(self.item, context.input)
        merged = self.lattice.column(Field(self.into, typed.type, typed.nullable))
        if self.keys or not self.runs_first_tick:
            merged = Field(self.into, merged.type, typed.nullable or isinstance(merged.type, AnyType))
        return (*context.computed_columns(self.keys), merged)

    def unservable(self) -> Unservable | None:
        return None

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (dict(self.keys),)

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"merged": KeyedSlot()}

    def placement(self) -> Placement:
        return place_by_key(tuple(expr for _, expr in self.keys))

    def required_facts(self) -> tuple[Need, ...]:
        return (
            Need(
                0,
                "append",
                "a merged value cannot shrink:\nof an item that is taken back it would not know",
                "group_by(...).agg(...) with hr.max, hr.collect and the like, which take rows back",
            ),
        )

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        rows = inputs[0]
        return rows.but(append=rows.append and rows.bounded, ordered=False, once=True)

    def monotone_columns(self, inputs: Sequence[MonotoneColumns | None]) -> MonotoneColumns | None:
        return MonotoneColumns(tuple(name for name, _ in self.keys), {self.into: self.lattice})

    def inside_loop(self) -> Operator:
        return LatticeGrowth(self.lattice, self.keys, self.into, self.item, self.nondet)

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield from self.keys
        yield self.into, self.item

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        yield from lattice_functions(self.lattice)

    def assumptions(self) -> Iterator[str]:
        yield from lattice_claims(self.lattice)

    def describe(self) -> str:
        keys = f" per {', '.join(name for name, _ in self.keys)}" if self.keys else ""
        return f"{self.lattice} of {self.item}{keys}"


@dataclass(frozen=True, slots=True)
class LatticeReduce(LatticeFold):
    """Lattice fold that emits no row before the first item.

    >>> from headrace.lattice import Max
    >>> from headrace.testing import show
    >>> show(lambda numbers: numbers.filter(lambda n: n > 9).lattice_reduce(Max()), numbers=[1, 3, 2])
    """

    kind: ClassVar[str] = "lattice_reduce"
    examples: ClassVar[Examples] = {"lattice_reduce": lambda x, y: x.lattice_reduce(Max(), value="b")}
    runs_first_tick: ClassVar[bool] = False


# --- steps ----------------------------------------------------------------------------------------


class LatticeStep(RowStep):
    """Base of both steps of lattice folds. Slot: key -> (the merge so far,)."""

    operator: LatticeFold | LatticeGrowth
    keeps_state = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.keys = tuple(expr for _, expr in self.operator.keys)
        self.bottom = writer.constant("bottom", self.operator.lattice.bottom)
        self.merged = Schema(node.schema.fields[-1:], scalar=True)
        what = f"the value that {node.name!r} merged"
        self.checked = writer.constant("rows", from_user(self.merged, what=what))

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.merged", tuple),)

    def assign_key(self, row: RowCode) -> str:
        key = self.writer.fresh("key")
        self.writer.assign_key(key, self.keys, self.input_schema(), row.columns)
        return key

    def value_of(self, call: str) -> str:
        """Return the source of a lattice call's result, checked against the column's type."""
        value = write_received(self.writer, self.merged, call, self.checked).columns[0]
        (field,) = self.merged.fields
        source = key_of(field.type, field.nullable, value)
        if source != value:
            value = self.writer.fresh("value")
            self.code.line(f"{value} = {source}")
        return value

    def emit_value(self, key: str, value: str, weight: str | None) -> None:
        self.emit(RowCode((*key_columns(key, len(self.keys)), value), None, weight))


@register_step(LatticeFold)
class LatticeFoldStep(LatticeStep):
    """Fold that gathers a tick's items per key in `touched` and merges them together."""

    consolidates = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.absorb_all = writer.constant("absorb_all", self.operator.lattice.absorb_all)
        self.touched = writer.node_variable("touched", node.id)
        self.sites = 1 if writer.is_append(node.id) else 2

    def begin(self) -> None:
        shown = self.operator.runs_first_tick and not self.keys
        missing = f"{self.slot_getter('merged')}(()) is None"
        self.code.line(f"{self.touched} = {f'{{(): []}} if {missing} else {{}}' if shown else '{}'}")

    def consume(self, port: int, row: RowCode) -> None:
        code, items = self.code, self.writer.fresh("items")
        key = self.assign_key(row)
        MappingCode(self.writer, self.touched).get_or_add(items, key, "[]")
        code.line(f"{items}.append({merged_item(self.writer, self.node, self.operator.item, row)})")

    def finish(self) -> None:
        code, writer = self.code, self.writer
        key, items, old, new = (writer.fresh(n) for n in ("key", "items", "old", "new"))
        slot = self.slot("merged")
        with code.block(f"for {key}, {items} in {self.touched}.items():"):
            code.line(f"{old} = {self.slot_getter('merged')}({key})")
            before = f"{self.bottom} if {old} is None else {old}[0]"
            value = self.value_of(f"{self.absorb_all}({before}, {items})")
            code.line(f"{new} = ({value},)")
            with code.block(f"if {new} != {old}:"):
                code.line(f"{slot}[{key}] = {new}")
                if not writer.is_append(self.node.id):
                    with code.block(f"if {old} is not None:"):
                        self.emit_value(key, f"{old}[0]", "-1")
                self.emit_value(key, f"{new}[0]", "1")


@register_step(LatticeGrowth)
class LatticeGrowthStep(LatticeStep):
    """Fold that emits the value whenever an item makes it grow."""

    def consume(self, port: int, row: RowCode) -> None:
        code, writer = self.code, self.writer
        absorb = writer.constant("absorb", self.operator.lattice.absorb)
        old = writer.fresh("old")
        key = self.assign_key(row)
        code.line(f"{old} = {self.slot_getter('merged')}({key})")
        item = merged_item(writer, self.node, self.operator.item, row)
        new = self.value_of(f"{absorb}({self.bottom} if {old} is None else {old}[0], {item})")
        with code.block(f"if {old} is None or ({new},) != {old}:"):
            code.line(f"{self.slot('merged')}[{key}] = ({new},)")
            self.emit_value(key, new, None)


# --- reference answer -----------------------------------------------------------------------------


@answer_of_bags.register(LatticeFold)
def _lattice_fold_answer(operator: LatticeFold, node: Node, inputs: Bags) -> Bag:
    [(schema, bag)] = inputs
    lattice = operator.lattice
    groups = items_by_key(schema, bag, operator.keys, operator.item)
    if not operator.keys and operator.runs_first_tick:
        groups.setdefault((), [])
    out: Bag = Counter()
    for key, items in groups.items():
        merged = lattice.bottom
        for item in items:
            merged = lattice.merge(merged, lattice.value(item))
        out[(*key, merged)] += 1
    return out


@dataclass(frozen=True, slots=True)
class AtLeast(Operator):
    """Keys whose value in `column` has reached `threshold`, each emitted once, in the tick of reaching it.

    A row has the key's columns, and the threshold in place of the column. The operator itself is non-blocking
    (its input may not be: an aggregate completes the tick first). It retracts nothing, although its input
    retracts old values, because the column must be monotone, which the analysis checks. An empty tick emits
    nothing; keys are emitted in the order in which they reach the threshold.

    lattice: lattice whose order defines "at least"; for numbers, the usual order.

    >>> import headrace as hr
    >>> from headrace.testing import show
    >>> show(lambda words: words.group_by("value").agg(n=hr.count()).at_least(2, column="n"),
    ...      words=["a", "b", "a", "a"])
    + (value='a', n=2)
    """

    kind: ClassVar[str] = "at_least"
    examples: ClassVar[Examples] = {"at_least": lambda x, y: x.group_by("a").agg(n=count()).at_least(2)}
    picks_representative: ClassVar[bool] = True
    threshold: object
    column: str
    keys: tuple[Expr, ...]
    lattice: Lattice

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def output(self, context: CheckContext) -> Columns:
        # Whether the column only grows follows from the upstream operators alone.
        made, schema = context.threshold(self.threshold, self.column)
        context.require_as_built_by_flow(made, self, "what grows, and by which keys, is something else")
        return schema.fields

    def unservable(self) -> Unservable | None:
        return None

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"reached": KeyedSlot()}

    def placement(self) -> Placement:
        return place_by_key(self.keys)

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(append=True, ordered=False, once=True)

    def required_monotone_column(self) -> str | None:
        return self.column

    def describe(self) -> str:
        return f"{self.column} >= {self.threshold!r}"


@register_step(AtLeast)
class AtLeastStep(RowStep):
    """Step of at_least. Slot: key -> 1 once its value has reached the threshold."""

    operator: AtLeast
    keeps_state = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.threshold = writer.constant("threshold", self.operator.threshold)
        self.leq = writer.constant("leq", self.operator.lattice.leq)

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.reached"),)

    def consume(self, port: int, row: RowCode) -> None:
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
                self.emit(RowCode((*key_columns(key, len(operator.keys)), self.threshold)))


@answer_of_bags.register(AtLeast)
def _at_least_answer(operator: AtLeast, node: Node, inputs: Bags) -> Bag:
    # All previous rows are still present, because the input only grows.
    [(schema, bag)] = inputs
    value = schema.position(operator.column)
    assert value is not None
    parts = [function_of(expr, schema) for expr in operator.keys]
    return Counter(
        {
            (*(part(row) for part in parts), operator.threshold): 1
            for row in bag
            if operator.lattice.leq(operator.threshold, row[value])
        }
    )
