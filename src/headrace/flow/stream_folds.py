"""Stream methods for folds, ordering and lattices.

Each method imports the operator that it adds, so that flows load only the operators they use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

from typing_extensions import TypeVar

from headrace.errors import SourceLocation
from headrace.expr.check import check
from headrace.expr.tree import Column, Expr, Ordering
from headrace.expr.types import INT64, AnyType, Field, Schema
from headrace.flow.fold_arguments import (
    accumulated_schema,
    carried_schema,
    check_function,
    check_init,
    check_lattice,
    check_numbering,
    item_column,
    key_columns,
    parse_orderings,
    scanned_schema,
    value_column_type,
    with_columns_before,
)
from headrace.flow.stream_base import (
    Append,
    B,
    Bounded,
    G,
    NoOrder,
    O,
    Ordered,
    StreamBase,
    T_co,
    Unbounded,
    check_reason,
)
from headrace.operators.column_arguments import all_columns
from headrace.operators.fold import MERGES, Claims
from headrace.operators.lifetime import Lifetime, LifetimeName, parse_lifetimes

if TYPE_CHECKING:
    from headrace.flow.stream import Stream
    from headrace.graph.node import Operator
    from headrace.lattice import Lattice
    from headrace.operators.lattice_fold import LatticeFold

A = TypeVar("A")
U = TypeVar("U")
B2 = TypeVar("B2", bound=Unbounded)
Key: TypeAlias = "Expr | str"
By: TypeAlias = "Expr | Ordering | str | Callable[[Any], Any]"


class StreamFolds(StreamBase[T_co, B, G, O]):
    """Stream methods for folds, ordering and lattices."""

    __slots__ = ()

    # -- folds -------------------------------------------------------------------------

    def fold(
        self,
        init: A | Callable[[], A],
        function: Callable[[A, T_co], A],
        *,
        lifetime: LifetimeName = "static",
        commutative: bool = False,
        idempotent: bool = False,
        monotone: bool = False,
        returns: type[A] | None = None,
        nondet: str | None = None,
        name: str | None = None,
    ) -> Stream[A, Any, Any, Any]:
        """Fold all rows by `function(accumulated, row)`, starting from `init` (see `operators.fold`).

        init:     a value, or a function without arguments that returns one.
        lifetime: "static": a table of one row. "tick": one plain row in each tick (see
                  `operators.fold`), which needs `nondet` unless ticks are given.
        commutative, idempotent, monotone: claims (see `headrace.operators.fold`).
        returns:  type of the value; by default the function's return annotation, or the type of `init`.
        """
        from headrace.operators.fold import Fold, FoldTick

        location = SourceLocation.of_caller()
        check_reason(nondet, location)
        (life,) = parse_lifetimes(lifetime, 1, "fold", location)
        check_function("fold", function, location)
        schema = accumulated_schema(function, returns, init)
        check_init("fold", init, schema, location)
        claims = Claims(commutative, idempotent, monotone)
        if life is Lifetime.TICK:
            return self._add(FoldTick(init, function, schema, claims, None, nondet), schema, name, location)
        return self._add(Fold(init, function, schema, claims), schema, name, location)

    def reduce(
        self,
        function: Callable[[T_co, T_co], T_co],
        *,
        lifetime: LifetimeName = "static",
        commutative: bool = False,
        idempotent: bool = False,
        monotone: bool = False,
        nondet: str | None = None,
        name: str | None = None,
    ) -> Stream[T_co, B, Any, Any]:
        """Reduce all rows to one by `function(so far, row)`, from the first row on (see
        `operators.fold`).
        """
        from headrace.operators.fold import Reduce

        location = SourceLocation.of_caller()
        check_reason(nondet, location)
        (life,) = parse_lifetimes(lifetime, 1, "reduce", location)
        check_function("reduce", function, location)
        claims = Claims(commutative, idempotent, monotone)
        column = self._schema.names[0] if self._schema.scalar else None
        return self._add(Reduce(function, column, claims, life, nondet), self._schema, name, location)

    def fold_keyed(
        self,
        by: Key | Sequence[Key],
        init: A | Callable[[], A],
        function: Callable[[A, Any], A],
        *,
        value: Key | None = None,
        into: str = "value",
        lifetime: LifetimeName = "static",
        commutative: bool = False,
        idempotent: bool = False,
        monotone: bool = False,
        returns: type[A] | None = None,
        nondet: str | None = None,
        name: str | None = None,
    ) -> Stream[Any, B, Any, Any]:
        """Fold the rows of each key into a value in column `into` (see `operators.keyed_fold`).

        by:    names or columns of the key.
        value: the item passed to the function; by default the whole row.
        Other arguments are as in `fold`.
        """
        from headrace.operators.keyed_fold import FoldKeyed

        location = SourceLocation.of_caller()
        check_reason(nondet, location)
        (life,) = parse_lifetimes(lifetime, 1, "fold_keyed", location)
        check_function("fold_keyed", function, location)
        keys = key_columns("fold_keyed", by, self._schema, location)
        item = None if value is None else item_column("fold_keyed", value, self._schema, location)
        accumulated = value_column_type(accumulated_schema(function, returns, init), into)
        check_init("fold_keyed", init, accumulated, location)
        schema = with_columns_before(keys, accumulated.fields, self._schema, location)
        claims = Claims(commutative, idempotent, monotone)
        operator = FoldKeyed(keys, into, init, function, item, claims, life, nondet)
        return self._add(operator, schema, name, location)

    def reduce_keyed(
        self,
        by: Key | Sequence[Key],
        function: Callable[[Any, Any], Any],
        *,
        value: Key | None = None,
        into: str | None = None,
        lifetime: LifetimeName = "static",
        commutative: bool = False,
        idempotent: bool = False,
        monotone: bool = False,
        nondet: str | None = None,
        name: str | None = None,
    ) -> Stream[Any, B, Any, Any]:
        """Reduce the values of each key to one (see `operators.keyed_fold`).

        value: the items to fold; optional if there is only one non-key column.
        into:  name of the result column; by default that of `value`.
        Other arguments are as in `fold_keyed`.
        """
        from headrace.operators.keyed_fold import ReduceKeyed

        location = SourceLocation.of_caller()
        check_reason(nondet, location)
        (life,) = parse_lifetimes(lifetime, 1, "reduce_keyed", location)
        check_function("reduce_keyed", function, location)
        keys = key_columns("reduce_keyed", by, self._schema, location)
        item = item_column("reduce_keyed", value, self._schema, location, keys)
        typed = check(item, self._schema)
        column = into or getattr(item, "name", "value")
        field = Field(column, typed.type, typed.nullable)
        schema = with_columns_before(keys, (field,), self._schema, location)
        claims = Claims(commutative, idempotent, monotone)
        operator = ReduceKeyed(keys, column, function, item, claims, life, nondet)
        return self._add(operator, schema, name, location)

    def scan(
        self,
        init: A | Callable[[], A],
        function: Callable[[A, T_co], tuple[A, U] | None],
        *,
        per: Key | Sequence[Key] = (),
        lifetime: LifetimeName = "static",
        carries: type[A] | None = None,
        returns: type[U] | None = None,
        nondet: str | None = None,
        name: str | None = None,
    ) -> Stream[U, B, G, O]:
        """Map each row to one row with a carried value (see `operators.scan`).

        function: maps the carried value and a row to the next carried value and the output row; None ends
                  the scan.
        per:      names or columns of keys, each of which carries a value of its own.
        carries:  type of the carried value, which is kept as such from tick to tick; by default from the pair
                  in the return annotation, or the type of `init` if that is a row. Without a type, it may be
                  anything, but a checkpoint refuses values that it cannot restore exactly (a list, a
                  NamedTuple): `NotPlainData`.
        returns:  type of the output rows; by default from the pair in the return annotation.
        """
        from headrace.operators.scan import Scan

        location = SourceLocation.of_caller()
        check_reason(nondet, location)
        (life,) = parse_lifetimes(lifetime, 1, "scan", location)
        check_function("scan", function, location)
        keys = key_columns("scan", per, self._schema, location)
        schema = scanned_schema(function, returns)
        carried = carried_schema(function, carries, init)
        operator = Scan(init, function, carried, tuple(expr for _, expr in keys), life, nondet)
        return self._add(operator, schema, name, location)

    # -- order -------------------------------------------------------------------------

    @overload
    def sort(
        self: StreamBase[U, Bounded, Append, Any],
        by: By | Sequence[By] = (),
        *,
        name: str | None = None,
    ) -> Stream[U, Bounded, Append, Ordered]: ...
    @overload
    def sort(
        self: StreamBase[U, B2, Append, Any],
        by: By | Sequence[By] = (),
        *,
        lifetime: Literal["tick"],
        nondet: str | None = None,
        name: str | None = None,
    ) -> Stream[U, B2, Append, Ordered]: ...
    def sort(
        self,
        by: By | Sequence[By] = (),
        *,
        lifetime: LifetimeName = "static",
        nondet: str | None = None,
        name: str | None = None,
    ) -> Stream[Any, Any, Any, Any]:
        """Sort the rows of a bounded stream, or of each tick (see `operators.order`).

        by: one or several of: a column, its name, an expression, `.desc()` of these, or a function of a row;
            by default all columns from first to last.
        """
        return self._sort(by, lifetime, nondet, name, SourceLocation.of_caller())

    @overload
    def sort_by(
        self: StreamBase[U, Bounded, Append, Any],
        key: Callable[[U], Any],
        *,
        name: str | None = None,
    ) -> Stream[U, Bounded, Append, Ordered]: ...
    @overload
    def sort_by(
        self: StreamBase[U, B2, Append, Any],
        key: Callable[[U], Any],
        *,
        lifetime: Literal["tick"],
        nondet: str | None = None,
        name: str | None = None,
    ) -> Stream[U, B2, Append, Ordered]: ...
    def sort_by(
        self,
        key: Callable[[Any], Any],
        *,
        lifetime: LifetimeName = "static",
        nondet: str | None = None,
        name: str | None = None,
    ) -> Stream[Any, Any, Any, Any]:
        """Sort by a function of each row."""
        return self._sort(key, lifetime, nondet, name, SourceLocation.of_caller())

    def _sort(
        self,
        by: By | Sequence[By],
        lifetime: LifetimeName,
        nondet: str | None,
        name: str | None,
        location: SourceLocation,
    ) -> Stream[Any, Any, Any, Any]:
        from headrace.operators.order import Sort

        check_reason(nondet, location)
        (life,) = parse_lifetimes(lifetime, 1, "sort", location)
        return self._add(
            Sort(parse_orderings(by, self._schema, location), life, nondet), self._schema, name, location
        )

    def unique(
        self, *, lifetime: LifetimeName = "static", nondet: str | None = None, name: str | None = None
    ) -> Stream[T_co, B, G, O]:
        """Keep the first occurrence of each row (see `operators.distinct`)."""
        from headrace.operators.distinct import Unique

        location = SourceLocation.of_caller()
        check_reason(nondet, location)
        (life,) = parse_lifetimes(lifetime, 1, "unique", location)
        return self._add(Unique(all_columns(self._schema), life, nondet), self._schema, name, location)

    def enumerate(
        self,
        *,
        start: int = 0,
        per: Key | Sequence[Key] = (),
        index: str = "index",
        lifetime: LifetimeName = "static",
        nondet: str | None = None,
        name: str | None = None,
    ) -> Stream[Any, B, G, O]:
        """Number the rows, in the column `index` (see `operators.scan`).

        per: names or columns of keys, each of which is numbered separately.
        """
        from headrace.operators.scan import Enumerate

        location = SourceLocation.of_caller()
        check_reason(nondet, location)
        (life,) = parse_lifetimes(lifetime, 1, "enumerate", location)
        check_numbering(start, index, location)
        keys = key_columns("enumerate", per, self._schema, location)
        schema = with_columns_before((), (Field(index, INT64), *self._schema.fields), self._schema, location)
        operator = Enumerate(start, tuple(expr for _, expr in keys), life, nondet)
        return self._add(operator, schema, name, location)

    # -- lattices ----------------------------------------------------------------------

    def lattice_fold(
        self,
        lattice: Lattice,
        *,
        value: Key | None = None,
        per: Key | Sequence[Key] = (),
        into: str | None = None,
        lifetime: LifetimeName = "static",
        nondet: str | None = None,
        name: str | None = None,
    ) -> Stream[Any, Any, Any, Any]:
        """Merge all items (per key) in a lattice (see `operators.lattice_fold`).

        lattice: one of `headrace.lattice`.
        value:   the items; optional if there is only one non-key column.
        into:    name of the result column; by default that of `value`.
        nondet:  in a cycle, reason why the emitted values may depend on the cut into ticks.
        """
        from headrace.operators.lattice_fold import LatticeFold

        location = SourceLocation.of_caller()
        return self._lattice_fold(LatticeFold, lattice, value, per, into, lifetime, nondet, name, location)

    def lattice_reduce(
        self,
        lattice: Lattice,
        *,
        value: Key | None = None,
        per: Key | Sequence[Key] = (),
        into: str | None = None,
        lifetime: LifetimeName = "static",
        nondet: str | None = None,
        name: str | None = None,
    ) -> Stream[Any, Any, Any, Any]:
        """Merge all items like `lattice_fold`, without a row before the first item."""
        from headrace.operators.lattice_fold import LatticeReduce

        location = SourceLocation.of_caller()
        return self._lattice_fold(LatticeReduce, lattice, value, per, into, lifetime, nondet, name, location)

    def _lattice_fold(
        self,
        kind: type[LatticeFold],
        lattice: Lattice,
        value: Key | None,
        per: Key | Sequence[Key],
        into: str | None,
        lifetime: LifetimeName,
        nondet: str | None,
        name: str | None,
        location: SourceLocation,
    ) -> Stream[Any, Any, Any, Any]:
        from headrace.operators.fold import FoldTick
        from headrace.operators.keyed_fold import FoldKeyed

        check_reason(nondet, location)
        (life,) = parse_lifetimes(lifetime, 1, kind.kind, location)
        check_lattice(kind.kind, lattice, location)
        keys = key_columns(kind.kind, per, self._schema, location)
        item = item_column(kind.kind, value, self._schema, location, keys)
        typed = check(item, self._schema)
        column = into or ("value" if not keys else getattr(item, "name", "value"))
        merged = lattice.column(Field(column, typed.type, typed.nullable))
        if keys or not kind.runs_first_tick:
            # A row exists only after the first item, when the value is no longer the bottom.
            merged = Field(column, merged.type, typed.nullable or isinstance(merged.type, AnyType))
        schema = with_columns_before(keys, (merged,), self._schema, location)
        if not keys and into is None:
            schema = Schema((merged,), scalar=True)
        operator: Operator = kind(lattice, keys, column, item, nondet)
        if life is Lifetime.TICK:
            absorbing = (lattice.bottom, lattice.absorb)
            if kind.runs_first_tick and not keys:
                operator = FoldTick(*absorbing, schema, MERGES, item, nondet)
            else:
                operator = FoldKeyed(keys, column, *absorbing, item, MERGES, life, nondet)
        return self._add(operator, schema, name, location)

    def state(
        self,
        lattice: Lattice,
        *,
        value: Key | None = None,
        per: Key | Sequence[Key] = (),
        lifetime: LifetimeName = "static",
        nondet: str | None = None,
        name: str | None = None,
    ) -> Stream[T_co, B, G, O]:
        """Keep the rows that make the merge of all items grow (see `operators.scan`).

        The arguments are as in `lattice_fold`.
        """
        from headrace.operators.scan import RunningState

        location = SourceLocation.of_caller()
        check_reason(nondet, location)
        (life,) = parse_lifetimes(lifetime, 1, "state", location)
        check_lattice("state", lattice, location)
        keys = key_columns("state", per, self._schema, location)
        item = item_column("state", value, self._schema, location, keys)
        typed = check(item, self._schema)
        lattice.column(Field("item", typed.type, typed.nullable))
        operator = RunningState(lattice, item, tuple(expr for _, expr in keys), life, nondet)
        return self._add(operator, self._schema, name, location)

    def at_least(
        self, threshold_value: object, *, column: Column | str | None = None, name: str | None = None
    ) -> Stream[Any, B, Append, NoOrder]:
        """Emit each key once, when its value in `column` reaches a threshold (see `operators.lattice_fold`).

        column: a monotone column; optional if there is only one. Monotone are `count()`, `max()` and
                `count_distinct()` over append streams, values of `lattice_fold`, and of folds with the claim
                `monotone=True`.

        Raises `NeedNotMet` for a column that may decrease.
        """
        from headrace.flow.state_expiry import threshold

        location = SourceLocation.of_caller()
        operator, schema = threshold(self, threshold_value, column, location)
        return self._add(operator, schema, name, location)
