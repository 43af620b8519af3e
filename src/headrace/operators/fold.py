"""Folds of all rows into one value, by an opaque function: fold, per tick too, and reduce."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.monotone_columns import MonotoneColumns
from headrace.graph.node import ALTERABLE, Operator
from headrace.graph.operator_declarations import WHOLE, Facts, Need, Placement, Port
from headrace.lattice import Max
from headrace.operators.function_claims import NO_CLAIMS, Claims
from headrace.operators.lifetime import DEPENDS_ON_CUT, Lifetime, WithLifetime, describe_lifetime
from headrace.operators.unservable import OF_A_TICK, UNCLAIMED

if TYPE_CHECKING:
    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Unservable


# --- fold operator: combine all rows into one value, by an opaque function ------------------------


@dataclass(frozen=True, slots=True)
class Fold(Operator):
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
    merges_equal: ClassVar[bool] = True
    runs_first_tick: ClassVar[bool] = True
    init: object
    function: Callable[..., object]
    accumulated: Schema
    claims: Claims = NO_CLAIMS

    def ports(self) -> tuple[Port, ...]:
        return (Port("input", blocking=True, why="a further row could change the value"),)

    def output(self, context: CheckContext) -> Columns:
        return self.accumulated.fields

    def unservable(self) -> Unservable | None:
        return None if self.claims.commutative else UNCLAIMED

    def at_most_one_row(self) -> bool:
        return True

    def needs(self) -> tuple[Need, ...]:
        return self.claims.needs()

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        rows = inputs[0]
        return rows.but(append=rows.append and rows.bounded, ordered=False, once=True)

    def growth(self, inputs: Sequence[MonotoneColumns | None]) -> MonotoneColumns | None:
        if not self.claims.monotone:
            return None
        return MonotoneColumns(
            (), dict.fromkeys(self.accumulated.names, Max()) if self.accumulated.scalar else {}
        )

    def placement(self) -> Placement:
        return WHOLE

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        yield from named_functions(self.init, self.function)

    def assumptions(self) -> Iterator[str]:
        yield from Operator.assumptions(self)
        yield from self.claims.clauses_about(self.function)

    def describe(self) -> str:
        return described(self.function, self.claims)


def named_functions(
    init: object, function: Callable[..., object]
) -> Iterator[tuple[str, Callable[..., object]]]:
    """Yield the opaque functions of a fold, each with a label."""
    if callable(init):
        yield "init", init
    yield "function", function


def described(function: Callable[..., object], claims: Claims) -> str:
    """Render a fold function and its claims."""
    name = getattr(function, "__name__", type(function).__name__)
    return f"{name}, {claims}" if str(claims) else name


# --- tick fold operator: combine the rows of each tick into one value -----------------------------


@dataclass(frozen=True, slots=True)
class FoldTick(Operator):
    """`function(accumulated, row)` over the rows of a tick, starting from `init`: `fold(lifetime="tick")`.

    It emits one plain row in every tick that runs; without input rows, the value is `init`.

    item: the folded item of a row; None for the whole row.

    >>> from headrace.testing import show
    >>> show(lambda n: n.fold(0, lambda sum, x: sum + x, lifetime="tick", nondet="it is shown"), n=[1, 2])
    + 3
    """

    kind: ClassVar[str] = "fold_tick"
    merges_equal: ClassVar[bool] = True
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

    def unservable(self) -> Unservable | None:
        return OF_A_TICK

    def at_most_one_row(self) -> bool:
        return True

    def needs(self) -> tuple[Need, ...]:
        return self.claims.needs()

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        det = inputs[0].det and self.nondet is None
        return inputs[0].but(bounded=False, append=True, ordered=True, once=True, det=det)

    def guard(self) -> str | None:
        return self.nondet

    def depends_on_cut(self) -> str:
        return DEPENDS_ON_CUT

    def placement(self) -> Placement:
        return WHOLE

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        if self.item is not None:
            yield "item", self.item

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        yield from named_functions(self.init, self.function)

    def assumptions(self) -> Iterator[str]:
        yield from Operator.assumptions(self)
        yield from self.claims.clauses_about(self.function)

    def describe(self) -> str:
        return described(self.function, self.claims)


# --- reduce operator: combine all rows into one row, by an opaque function ------------------------


@dataclass(frozen=True, slots=True)
class Reduce(WithLifetime):
    """`function(so far, row)` over all rows, in order, starting from the first.

    The output is empty until the first row; then it is a table of exactly one row. With lifetime TICK, it is
    one plain row in each tick with rows. An empty tick changes and emits nothing.

    scalar_column: name of the column if rows are bare values, for monotone columns.

    >>> from headrace.testing import show
    >>> show(lambda numbers: numbers.reduce(max), numbers=[1, 3, 2])
    + 3
    """

    kind: ClassVar[str] = "reduce"
    merges_equal: ClassVar[bool] = True
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

    def unservable(self) -> Unservable | None:
        return None if self.claims.commutative else UNCLAIMED

    def at_most_one_row(self) -> bool:
        return True

    def needs(self) -> tuple[Need, ...]:
        return self.claims.needs()

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return folded_facts(inputs[0], self.lifetime, self.nondet)

    def growth(self, inputs: Sequence[MonotoneColumns | None]) -> MonotoneColumns | None:
        if self.lifetime is Lifetime.TICK or not self.claims.monotone or self.scalar_column is None:
            return None
        return MonotoneColumns((), {self.scalar_column: Max()})

    def placement(self) -> Placement:
        return WHOLE

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        yield "function", self.function

    def assumptions(self) -> Iterator[str]:
        yield from WithLifetime.assumptions(self)
        yield from self.claims.clauses_about(self.function)

    def describe(self) -> str:
        return ", ".join([described(self.function, self.claims), *describe_lifetime(self.lifetime)])


def folded_facts(rows: Facts, lifetime: Lifetime, nondet: str | None) -> Facts:
    """Return the facts of folded values: a table, or plain rows per tick in key order."""
    if lifetime is Lifetime.TICK:
        return rows.but(append=True, once=True, det=rows.det and nondet is None)
    return rows.but(append=rows.append and rows.bounded, ordered=False, once=True)
