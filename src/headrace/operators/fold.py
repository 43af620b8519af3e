"""Folds of all rows into one value, by an opaque function: fold, per tick too, and reduce.

Claims about the function relax the requirements on its input. They are not trusted: `headrace check --claims`
and `headrace.testing.check_claims` run each as a property test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.expr.check import check
from headrace.expr.row_classes import from_user, to_user
from headrace.expr.types import Field, Schema
from headrace.graph.node import ALTERABLE, Operator, function_name
from headrace.graph.operator_declarations import (
    OF_A_TICK,
    UNCLAIMED,
    WHOLE,
    Facts,
    MonotoneColumns,
    Need,
    Placement,
    Port,
)
from headrace.lattice import Max
from headrace.lowering.reference import (
    Bag,
    Bags,
    ExamplePair,
    Examples,
    NotOfBags,
    OperatorInput,
    answer_of_bags,
    copies,
    function_of,
    functions_of,
    output_of_tick,
)
from headrace.lowering.row_code import RowCode, holds_any, item_source, item_sources, user_form
from headrace.lowering.slot import Slot
from headrace.lowering.step import RowStep, register_step, step_for
from headrace.operators.lifetime import (
    DEPENDS_ON_CUT,
    Lifetime,
    TickDependent,
    WithLifetime,
    describe_lifetime,
)
from headrace.state.marked_values import Exact

if TYPE_CHECKING:
    from headrace.expr.tree import Expr
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Unservable
    from headrace.lowering.step_writer import StepWriter


@dataclass(frozen=True, slots=True)
class Claims:
    """Claims about a function `f(accumulated, row)`.

    commutative: the order of the rows does not matter.
    idempotent:  repeated rows have no effect.
    monotone:    the accumulated value never decreases.
    """

    commutative: bool = False
    idempotent: bool = False
    monotone: bool = False

    def names(self) -> Iterator[str]:
        """Yield the names of the claims made."""
        for name in ("commutative", "idempotent", "monotone"):
            if getattr(self, name):
                yield name

    def required_facts(self) -> tuple[Need, ...]:
        """Return the facts that a fold with this function requires of its input."""
        needs = [
            Need(
                0,
                "append",
                "a function cannot undo what it accumulated:\nof a row that is taken back it would not know",
                "group_by(...).agg(...) with hr.sum, hr.count, hr.max and the like, which take rows back",
            )
        ]
        if not self.commutative:
            needs.append(
                Need(
                    0,
                    "ordered",
                    "the function may give something else when rows come in another order",
                    "claim commutative=True if it does not (`headrace check --claims` tries it),\n"
                    'or say what the order is by .assume_ordered(nondet="why it is kept")',
                )
            )
        if not self.idempotent:
            needs.append(
                Need(
                    0,
                    "once",
                    "the function may count a row twice that comes twice",
                    "claim idempotent=True if it does not (`headrace check --claims` tries it)",
                )
            )
        return tuple(needs)

    def clauses_about(self, function: Callable[..., object]) -> Iterator[str]:
        """Render the claims about a function, one clause each, for `Operator.assumptions`."""
        for name in self.names():
            yield f"{function_name(function)} is {name}"

    def __str__(self) -> str:
        return ", ".join(self.names())


NO_CLAIMS = Claims()

# Claims that hold for the merge of any lattice.
MERGES = Claims(commutative=True, idempotent=True)


class FoldOperator(Operator):
    """Base of operators that fold rows, or items of rows, with an opaque function.

    reduces:  whether the first item is the initial value; else it is `init`.
    init, function, claims: fields defined by each subclass.
    """

    __slots__ = ()
    picks_representative: ClassVar[bool] = True
    reduces: ClassVar[bool] = False
    init: object
    function: Callable[..., object]
    claims: Claims

    def folded_item(self) -> Expr | None:
        """Return the item of a row that is folded; None for the whole row."""
        return None

    def group_keys(self) -> tuple[tuple[str, Expr], ...]:
        """Return the named keys whose rows are folded together."""
        return ()

    def value_schema(self, output: Schema) -> Schema:
        """Derive the schema of the accumulated value from the output schema."""
        return output

    def unservable(self) -> Unservable | None:
        return None if self.claims.commutative else UNCLAIMED

    def placement(self) -> Placement:
        return WHOLE

    def required_facts(self) -> tuple[Need, ...]:
        return self.claims.required_facts()

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        if not self.reduces and callable(self.init):
            yield "init", self.init
        yield "function", self.function

    def assumptions(self) -> Iterator[str]:
        yield from super().assumptions()
        yield from self.claims.clauses_about(self.function)

    def describe(self) -> str:
        return describe_fold(self.function, self.claims)


def describe_fold(function: Callable[..., object], claims: Claims) -> str:
    """Render a fold function and its claims."""
    name = getattr(function, "__name__", type(function).__name__)
    return f"{name}, {claims}" if str(claims) else name


def folded_facts(rows: Facts, lifetime: Lifetime, nondet: str | None) -> Facts:
    """Return the facts of folded values: a table, or plain rows per tick in key order."""
    if lifetime is Lifetime.TICK:
        return rows.but(append=True, once=True, det=rows.det and nondet is None)
    return rows.but(append=rows.append and rows.bounded, ordered=False, once=True)


@dataclass(frozen=True, slots=True)
class Fold(FoldOperator):
    """The result of `function(accumulated, row)` over all rows so far, in order, starting from `init`.

    The output is a table of exactly one row, which exists from the first tick on, even without input. In each
    tick that changes the value, the old one is retracted and the new one emitted. An empty tick changes
    nothing.

    init:        a value, or a function without arguments that returns one.
    accumulated: schema of the accumulated value.

    >>> from headrace.testing import show
    >>> show(lambda words: words.fold("", lambda all, word: all + word[0]), words=["ab", "cd"])
    + 'ac'
    """

    kind: ClassVar[str] = "fold"
    examples: ClassVar[Examples] = {
        "fold": lambda x, y: x.fold(0, lambda n, pair: n + pair.a, commutative=True)
    }
    runs_first_tick: ClassVar[bool] = True
    init: object
    function: Callable[..., object]
    accumulated: Schema
    claims: Claims = NO_CLAIMS

    def ports(self) -> tuple[Port, ...]:
        return (Port("input", blocking=True, why="a further row could change the value"),)

    def output(self, context: CheckContext) -> Columns:
        return self.accumulated.fields

    def at_most_one_row(self) -> bool:
        return True

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return folded_facts(inputs[0], Lifetime.STATIC, None)

    def monotone_columns(self, inputs: Sequence[MonotoneColumns | None]) -> MonotoneColumns | None:
        if not self.claims.monotone:
            return None
        return MonotoneColumns(
            (), dict.fromkeys(self.accumulated.names, Max()) if self.accumulated.scalar else {}
        )


@dataclass(frozen=True, slots=True)
class FoldTick(FoldOperator, TickDependent):
    """`function(accumulated, row)` over the rows of a tick, starting from `init`: `fold(lifetime="tick")`.

    It emits one plain row in every tick that runs; without input rows, the value is `init`.

    item: the folded item of a row; None for the whole row.

    >>> from headrace.testing import show
    >>> show(lambda n: n.fold(0, lambda sum, x: sum + x, lifetime="tick", nondet="it is shown"), n=[1, 2])
    + 3
    """

    kind: ClassVar[str] = "fold_tick"
    examples: ClassVar[Examples] = {
        "fold": lambda x, y: x.fold(0, lambda n, pair: n + pair.a, commutative=True, lifetime="tick"),
        "lattice_fold": lambda x, y: x.lattice_fold(Max(), value="a", lifetime="tick"),
    }
    runs_each_tick: ClassVar[bool] = True
    init: object
    function: Callable[..., object]
    accumulated: Schema
    claims: Claims = NO_CLAIMS
    item: Expr | None = None
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("input", blocking=True, why="a further row could change the tick's value"),)

    def output(self, context: CheckContext) -> Columns:
        if self.item is not None:
            context.check_keys([self.item])
        return self.accumulated.fields

    def folded_item(self) -> Expr | None:
        return self.item

    def unservable(self) -> Unservable | None:
        return OF_A_TICK

    def at_most_one_row(self) -> bool:
        return True

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        det = inputs[0].det and self.nondet is None
        return inputs[0].but(bounded=False, append=True, ordered=True, once=True, det=det)

    def depends_on_cut(self) -> str:
        return DEPENDS_ON_CUT

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        if self.item is not None:
            yield "item", self.item


def _first_by_text(pair: ExamplePair, other: ExamplePair) -> ExamplePair:
    return min(pair, other, key=repr)


@dataclass(frozen=True, slots=True)
class Reduce(FoldOperator, WithLifetime):
    """`function(so far, row)` over all rows, in order, starting from the first.

    The output is empty until the first row; then it is a table of exactly one row. With lifetime TICK, it is
    one plain row in each tick with rows. An empty tick changes and emits nothing.

    scalar_column: name of the column if rows are bare values, for monotone columns.

    >>> from headrace.testing import show
    >>> show(lambda numbers: numbers.reduce(max), numbers=[1, 3, 2])
    + 3
    """

    kind: ClassVar[str] = "reduce"
    examples: ClassVar[Examples] = {"reduce": lambda x, y: x.reduce(_first_by_text, commutative=True)}
    reduces: ClassVar[bool] = True
    function: Callable[..., object]
    scalar_column: str | None = None
    claims: Claims = NO_CLAIMS
    lifetime: Lifetime = Lifetime.STATIC
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("input", blocking=True, why="a further row could change the value"),)

    def output(self, context: CheckContext) -> Columns:
        column = context.input.names[0] if context.input.scalar else None
        context.require(self.scalar_column == column, "the column of single values is another")
        return context.input.fields

    def at_most_one_row(self) -> bool:
        return True

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return folded_facts(inputs[0], self.lifetime, self.nondet)

    def monotone_columns(self, inputs: Sequence[MonotoneColumns | None]) -> MonotoneColumns | None:
        if self.lifetime is Lifetime.TICK or not self.claims.monotone or self.scalar_column is None:
            return None
        return MonotoneColumns((), {self.scalar_column: Max()})

    def describe(self) -> str:
        return ", ".join([describe_fold(self.function, self.claims), *describe_lifetime(self.lifetime)])


# --- steps ----------------------------------------------------------------------------------------


_OF_ANOTHER_TYPE = (
    "give returns= the type of what the function gives (returns=float), or an init of that type (init=0.0)"
)


class FoldStep(RowStep):
    """Base of folds' steps: calls to the function, and conversion of its results to rows.

    State is the rows last emitted, from which the accumulated value is made again: so it is plain data
    whatever class users see it as, and a function may modify its own value.

    first: source of the accumulated value before any item.
    """

    operator: FoldOperator
    keeps_state = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        operator = self.operator
        self.accumulated = operator.value_schema(node.schema)
        self.function = writer.constant("f", operator.function)
        what = f"the value that {node.name!r} accumulated"
        self.checked = writer.constant(
            "rows", from_user(self.accumulated, what=what, fix="" if operator.reduces else _OF_ANOTHER_TYPE)
        )
        self.missing = writer.constant("missing", object())
        self.first = self.missing if operator.reduces else self._start(operator.init)

    def _start(self, init: object) -> str:
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

    def next_value(self, accumulated: str, row: RowCode) -> str:
        """Return the source of the next accumulated value for a row."""
        item = item_source(self.writer, self.node, self.operator.folded_item(), row)
        call = f"{self.function}({accumulated}, {item})"
        return f"{item} if {accumulated} is {self.missing} else {call}" if self.operator.reduces else call

    def user_value(self, row: str) -> str:
        """Return the source of the accumulated value as user functions see it, from the inside row `row`."""
        columns = item_sources(row, len(self.accumulated.fields))
        return user_form(self.writer, self.accumulated, RowCode(columns, row))


class WholeFoldStep(FoldStep):
    """Fold of all rows into one value. Slot: () -> the row last emitted."""

    consolidates = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
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

    def consume(self, port: int, row: RowCode) -> None:
        self.code.line(f"{self.touched} = True")
        self.code.line(f"{self.value} = {self.next_value(self.value, row)}")

    def finish(self) -> None:
        code, writer = self.code, self.writer
        new = writer.fresh("new")
        due = self.touched if self.operator.reduces else f"{self.touched} or {self.old} is None"
        with code.block(f"if {due}:"):
            code.line(f"({new},) = {self.checked}([{self.value}])")
            with code.block(f"if {new} != {self.old}:"):
                code.line(f"{self.slot('value')}[()] = {self.stored_form(new)}")
                if not writer.is_append(self.node.id):
                    with code.block(f"if {self.old} is not None:"):
                        self.emit_tuple(self.old, "-1")
                self.emit_tuple(new, "1")


class WholeTickFoldStep(FoldStep):
    """Fold of each tick's rows to one value, without state."""

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.value = writer.node_variable("value", node.id)

    def begin(self) -> None:
        self.code.line(f"{self.value} = {self.first}")

    def consume(self, port: int, row: RowCode) -> None:
        self.code.line(f"{self.value} = {self.next_value(self.value, row)}")

    def finish(self) -> None:
        new = self.writer.fresh("new")
        is_there = f"if {self.value} is not {self.missing}:"
        with self.code.block(is_there) if self.operator.reduces else nullcontext():
            self.code.line(f"({new},) = {self.checked}([{self.value}])")
            self.emit_tuple(new)


register_step(Fold)(WholeFoldStep)
register_step(FoldTick)(WholeTickFoldStep)


@step_for.register(Reduce)
def _reduce_step(operator: Reduce, node: Node, writer: StepWriter) -> RowStep:
    step = WholeTickFoldStep if operator.lifetime is Lifetime.TICK else WholeFoldStep
    return step(node, writer)


# --- reference answers ----------------------------------------------------------------------------


@answer_of_bags.register(FoldOperator)
def _answer(operator: FoldOperator, node: Node, inputs: Bags) -> Bag:
    [(schema, bag)] = inputs
    value = operator.value_schema(node.schema)
    inside, seen = from_user(value, what="values"), to_user(value)
    groups = items_by_key(schema, bag, operator.group_keys(), operator.folded_item())
    if operator.runs_first_tick or operator.runs_each_tick:
        groups.setdefault((), [])
    out: Bag = Counter()
    for key, items in groups.items():
        if not operator.claims.commutative:
            raise NotOfBags("the function may read the order of rows")
        if operator.reduces:
            so_far, *items = items
        else:
            so_far = operator.init() if callable(operator.init) else operator.init
        if so_far is not None:
            [so_far] = map(seen, inside([so_far]))
        for item in items:
            so_far = operator.function(so_far, item)
        [row] = inside([so_far])
        out[(*key, *row)] += 1
    return out


@output_of_tick.register(FoldOperator)
def _tick_output(operator: FoldOperator, node: Node, inputs: Sequence[OperatorInput]) -> Bag:
    return _answer(operator, node, [inputs[0].rows(of_tick=True)])


def items_by_key(
    schema: Schema, bag: Bag, keys: tuple[tuple[str, Expr], ...], item: Expr | None
) -> dict[tuple[Any, ...], list[Any]]:
    """Group the items passed to functions by key, as users see them."""
    seen = to_user(schema) if item is None else user_item(item, schema)
    key_of = functions_of([expr for _, expr in keys], schema)
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for row in copies(bag):
        groups.setdefault(key_of(row), []).append(seen(row))
    return groups


def user_item(item: Expr, schema: Schema) -> Callable[[tuple[Any, ...]], Any]:
    """Return the function from a row to the value of an expression, as users see it."""
    typed, value = check(item, schema), function_of(item, schema)
    seen = to_user(Schema((Field("value", typed.type, typed.nullable),), scalar=True))
    return lambda row: seen((value(row),))
