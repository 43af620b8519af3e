"""Stream methods that combine streams by position or as products.

Each method imports the operator that it adds, so that flows load only the operators they use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.errors import SourceLocation, WrongType
from headrace.expr.types import Schema
from headrace.flow.joins import add_join, paired_schema, plan_join, plan_product
from headrace.flow.stream_base import (
    Append,
    B,
    Changes,
    G,
    NoOrder,
    O,
    Ordered,
    StreamBase,
    T_co,
    Unbounded,
    check_reason,
    check_stream,
)
from headrace.operators.across_ticks import EveryTick
from headrace.operators.column_arguments import all_columns, render_argument, with_row_class
from headrace.operators.distinct import Distinct
from headrace.operators.join.join import How
from headrace.operators.lifetime import Lifetime, Lifetimes, parse_lifetimes
from headrace.operators.top_k import TopK

if TYPE_CHECKING:
    from headrace.expr.tree import Expr
    from headrace.flow.stream import Stream

B2 = TypeVar("B2", bound=Unbounded)
G2 = TypeVar("G2", bound=Changes)
U = TypeVar("U")


class StreamPairs(StreamBase[T_co, B, G, O]):
    """Stream methods that combine streams by position or as products.

    For pairs, `suffix` is appended to names of the other stream's columns that clash, and `into` is the row
    class of the result, whose columns must be those of the pair. `lifetime` is "static", "tick", or one of
    them per input. Methods whose results depend on the cut into ticks take a reason `nondet`, which is not
    needed if the ticks are given.
    """

    __slots__ = ()

    # -- one after the other ---------------------------------------------------------------

    def chain(
        self, other: Stream[T_co, B2, G2, Any], *, name: str | None = None
    ) -> Stream[T_co, B | B2, G | G2, NoOrder]:
        """Append the rows of the other stream in each tick (see `operators.union`)."""
        from headrace.operators.union import Chain

        location = SourceLocation.of_caller()
        schema = self._united("chain", (other,), location)
        return self._flow.add(Chain(), schema, (self, other), name, location)

    def chain_first_n(
        self,
        count: int,
        *others: Stream[T_co, B2, Append, Any],
        nondet: str | None = None,
        name: str | None = None,
    ) -> Stream[T_co, B | B2, Append, Ordered]:
        """Keep the first `count` rows of each tick of this and the others (see `operators.union`).

        Raises `WrongType` unless the count is an integer of at least 0.
        """
        from headrace.operators.union import ChainFirstN

        location = SourceLocation.of_caller()
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WrongType(
                f"chain_first_n needs a number of rows, got {render_argument(count)}",
                where=[location],
                fix="a whole number: chain_first_n(3, others)",
            )
        check_reason(nondet, location)
        schema = self._united("chain_first_n", others, location)
        operator = ChainFirstN(count, 1 + len(others), nondet)
        return self._flow.add(operator, schema, (self, *others), name, location)

    # -- by position -----------------------------------------------------------------------

    def zip(
        self,
        other: Stream[Any, B2, Append, Any],
        *,
        lifetime: Lifetimes = "static",
        nondet: str | None = None,
        suffix: str | None = None,
        into: Any = None,
        name: str | None = None,
    ) -> Stream[Any, B | B2, Append, Ordered]:
        """Pair rows by position (see `operators.order`).

        lifetime: "static" keeps rows without a partner, "tick" drops them at the end of the tick.
        """
        from headrace.operators.order import Zip

        location = SourceLocation.of_caller()
        check_stream(other, "zip", location)
        check_reason(nondet, location)
        schema, kept = self._beside("zip", other, suffix, into, location)
        left, right = parse_lifetimes(lifetime, 2, "zip", location)
        return self._flow.add(Zip(kept, (left, right), nondet), schema, (self, other), name, location)

    def zip_longest(
        self,
        other: Stream[Any, B2, Append, Any],
        *,
        nondet: str | None = None,
        suffix: str | None = None,
        into: Any = None,
        name: str | None = None,
    ) -> Stream[Any, B | B2, Append, Ordered]:
        """Pair the rows of each tick by position, up to the longer stream (see `operators.order`).

        Missing rows of the shorter stream are replaced by nulls.
        """
        from headrace.operators.order import ZipLongest

        location = SourceLocation.of_caller()
        check_stream(other, "zip_longest", location)
        check_reason(nondet, location)
        schema, kept = self._beside("zip_longest", other, suffix, into, location, may_lack=True)
        return self._flow.add(ZipLongest(kept, nondet), schema, (self, other), name, location)

    def _beside(
        self,
        what: str,
        other: StreamBase[Any, Any, Any, Any],
        suffix: str | None,
        into: Any,
        location: SourceLocation,
        *,
        may_lack: bool = False,
    ) -> tuple[Schema, tuple[int, ...]]:
        """Return the columns of both streams, and the positions of the other's kept columns."""
        kept = tuple(range(len(other.schema.fields)))
        lack = (may_lack, may_lack)
        schema = paired_schema(what, self._schema, other.schema, kept, suffix, location, may_lack=lack)
        return (schema if into is None else with_row_class(schema, into, location)), kept

    # -- products --------------------------------------------------------------------------

    def cross_join(
        self,
        other: Stream[Any, B2, G2, Any],
        *,
        lifetime: Lifetimes = "static",
        nondet: str | None = None,
        suffix: str | None = None,
        into: Any = None,
        name: str | None = None,
    ) -> Stream[Any, B | B2, G | G2, NoOrder]:
        """Pair every row with every row of the other; copies multiply (see `operators.join`).

        It keeps all rows of both streams as state, and emits the product of their numbers.
        """
        return self._joined("cross_join", other, None, lifetime, nondet, suffix, into, name)

    def cross_join_set(
        self,
        other: Stream[Any, B2, G2, Any],
        *,
        lifetime: Lifetimes = "static",
        nondet: str | None = None,
        suffix: str | None = None,
        into: Any = None,
        name: str | None = None,
    ) -> Stream[Any, B | B2, G | G2, NoOrder]:
        """Pair every distinct row with every distinct row of the other.

        Equivalent to `distinct` on both sides, then `cross_join`.
        """
        given = (lifetime, nondet, suffix, into, name)
        return self._joined("cross_join_set", other, None, *given, as_sets=True)

    def join_set(
        self,
        other: Stream[Any, B2, G2, Any],
        on: Expr | str | Sequence[str],
        *,
        lifetime: Lifetimes = "static",
        nondet: str | None = None,
        suffix: str | None = None,
        into: Any = None,
        name: str | None = None,
    ) -> Stream[Any, B | B2, G | G2, NoOrder]:
        """Join the distinct rows of both streams: `distinct` on either side, then `join`.

        on: as in `join`.
        """
        given = (lifetime, nondet, suffix, into, name)
        return self._joined("join_set", other, on, *given, as_sets=True)

    def _joined(
        self,
        what: str,
        other: StreamBase[Any, Any, Any, Any],
        on: Expr | str | Sequence[str] | None,
        lifetime: Lifetimes,
        nondet: str | None,
        suffix: str | None,
        into: Any,
        name: str | None,
        *,
        how: How = How.INNER,
        as_sets: bool = False,
    ) -> Stream[Any, Any, Any, Any]:
        """Join both streams, or pair all rows if `on` is None. `as_sets`: with distinct rows."""
        location = SourceLocation.of_caller()
        check_stream(other, what, location)
        check_reason(nondet, location)
        given = parse_lifetimes(lifetime, 2, what, location)
        if on is None:
            operator, schema = plan_product(self._schema, other.schema, suffix, location)
        else:
            operator, schema = plan_join(self._schema, other.schema, on, how, suffix, location)
        operator = replace(operator, lifetimes=given, nondet=nondet)
        schema = schema if into is None else with_row_class(schema, into, location)
        sides = self._sets(other, given, nondet, location) if as_sets else (self, other)
        return add_join(*sides, operator, schema, name, location)

    def _sets(
        self,
        other: StreamBase[Any, Any, Any, Any],
        given: tuple[Lifetime, ...],
        nondet: str | None,
        location: SourceLocation,
    ) -> tuple[StreamBase[Any, Any, Any, Any], StreamBase[Any, Any, Any, Any]]:
        """Return the distinct rows of both streams, within their lifetimes."""
        left, right = (
            self._flow.add(
                Distinct(all_columns(side.schema), lifetime, nondet if lifetime is Lifetime.TICK else None),
                side.schema,
                (side,),
                None,
                location,
            )
            for side, lifetime in zip((self, other), given, strict=True)
        )
        return left, right

    def cross_singleton(
        self,
        single: Stream[Any, B2, Any, Any],
        *,
        lifetime: Lifetimes = "static",
        nondet: str | None = None,
        suffix: str | None = None,
        into: Any = None,
        name: str | None = None,
    ) -> Stream[Any, B | B2, Changes, NoOrder]:
        """Combine each row with the single row of `single`, if it has one.

        "static":            `single` is a table of one row, such as a total. When it changes, all pairs so
                             far change with it. Of several rows, the least one is used.
        ("tick", "static"):  each row of a tick with the table's row at the end of the tick.
        "tick":              each row with the first row of `single` in this tick (see
                             `operators.cross_singleton`).
        ("static", "tick"):  in each tick, all rows so far with the tick's first row of `single`.
        """
        from headrace.operators.cross_singleton import CrossSingleton

        location = SourceLocation.of_caller()
        check_stream(single, "cross_singleton", location)
        check_reason(nondet, location)
        given = parse_lifetimes(lifetime, 2, "cross_singleton", location)
        schema, kept = self._beside("cross_singleton", single, suffix, into, location)
        if given[1] is Lifetime.STATIC:
            one = self._flow.add(TopK(1, (), ()), single.schema, (single,), None, location)
            operator, _ = plan_product(self._schema, single.schema, "_", location)
            operator = replace(operator, lifetimes=given, nondet=nondet)
            return add_join(self, one, operator, schema, name, location)
        rows: StreamBase[Any, Any, Any, Any] = self
        if given[0] is Lifetime.STATIC:
            rows = self._flow.add(EveryTick(nondet), self._schema, (self,), None, location)
        return self._flow.add(CrossSingleton(kept, nondet), schema, (rows, single), name, location)

    # -- anti and semi joins ---------------------------------------------------------------

    def anti_join(
        self,
        other: Stream[Any, B2, Any, Any],
        on: Expr | str | Sequence[str],
        *,
        lifetime: Lifetimes = "static",
        nondet: str | None = None,
        name: str | None = None,
    ) -> Stream[T_co, B | B2, Changes, NoOrder]:
        """Keep the rows without a partner in the other stream: `join(..., how="anti")`."""
        given = (lifetime, nondet, None, None, name)
        return self._joined("anti_join", other, on, *given, how=How.ANTI)

    def semi_join(
        self,
        other: Stream[Any, B2, G2, Any],
        on: Expr | str | Sequence[str],
        *,
        lifetime: Lifetimes = "static",
        nondet: str | None = None,
        name: str | None = None,
    ) -> Stream[T_co, B | B2, G | G2, NoOrder]:
        """Keep the rows with a partner in the other stream, with duplicates: `join(..., how="semi")`."""
        given = (lifetime, nondet, None, None, name)
        return self._joined("semi_join", other, on, *given, how=How.SEMI)
