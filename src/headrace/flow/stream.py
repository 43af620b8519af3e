"""`Stream`, the public class of streams, and its core methods.

Modules needed only for event time are imported on use, so that other flows do not load them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, overload

from typing_extensions import TypeVar

from headrace.errors import SourceLocation, WrongType
from headrace.expr.check import check, check_ordered
from headrace.expr.expression_errors import explains_calls
from headrace.expr.row_classes import computed_schema
from headrace.expr.tree import Column, Expr, Ordering
from headrace.expr.types import BOOL
from headrace.flow.grouped_streams import Grouped
from headrace.flow.joins import OUTER_JOINS, add_difference, add_join, add_outer_join, plan_join
from headrace.flow.stream_base import (
    Append,
    B,
    Bounded,
    Changes,
    G,
    NoOrder,
    O,
    Ordered,
    T_co,
    Unbounded,
    check_reason,
    check_stream,
)
from headrace.flow.stream_folds import StreamFolds
from headrace.flow.stream_pairs import StreamPairs
from headrace.flow.stream_rows import StreamRows
from headrace.flow.stream_time import StreamTime
from headrace.operators.column_arguments import (
    all_columns,
    check_expression,
    check_no_emit,
    check_no_positional,
    computed_columns,
    named_columns,
    render_argument,
    result_schema,
    split_own_keywords,
    uncalled_method,
    with_row_class,
)
from headrace.operators.distinct import Distinct
from headrace.operators.join.join import Difference, How
from headrace.operators.lifetime import LifetimeName, Lifetimes, parse_lifetimes
from headrace.operators.map import FlatMap, Map
from headrace.operators.over.over import OverAggregate
from headrace.operators.over.window_function import Over, grouped_by_partition
from headrace.operators.rows import Filter, Select, with_columns
from headrace.operators.top_k import TopK
from headrace.operators.union import Union

if TYPE_CHECKING:
    from headrace.flow.flow import Flow
    from headrace.flow.grouped_streams import WindowGroups
    from headrace.operators.time_spans import Windows


_OF_OTHER_JOINS = {
    **dict.fromkeys(("left_on", "right_on"), "join(other, on=hr.left.one == hr.right.two)"),
    **dict.fromkeys(("suffixes", "rsuffix"), 'suffix="_right", appended to names of right columns'),
}

U = TypeVar("U")
B2 = TypeVar("B2", bound=Unbounded)
G2 = TypeVar("G2", bound=Changes)


class Stream(
    StreamRows[T_co, B, G, O],
    StreamPairs[T_co, B, G, O],
    StreamFolds[T_co, B, G, O],
    StreamTime[T_co, B, G, O],
):
    """Stream of rows of one type: an edge of the flow.

    `T` is the row type users see. `B`, `G`, `O` are its facts as known to type checkers
    (`headrace.flow.stream_base`); the analysis derives the same facts when the flow is built.
    """

    __slots__ = ()

    @property
    def flow(self) -> Flow:
        """Flow that contains the stream."""
        return cast("Flow", self._flow)

    # -- row by row -------------------------------------------------------------------

    def map(
        self, function: Callable[[T_co], U], *, returns: type[U] | None = None, name: str | None = None
    ) -> Stream[U, B, G, O]:
        """Map each row to one row, by an opaque function (see `operators.map`).

        The row type of the result is `returns`, or the function's return annotation.
        """
        location = SourceLocation.of_caller()
        schema = result_schema("map", function, returns, location, many=False)
        return self._add(Map(function), schema, name, location)

    def flat_map(
        self,
        function: Callable[[T_co], Iterable[U]],
        *,
        returns: type[U] | None = None,
        name: str | None = None,
    ) -> Stream[U, B, G, O]:
        """Map each row to any number of rows, by an opaque function (see `operators.map`).

        The row type is `returns`, or the item type of the function's return annotation.
        """
        location = SourceLocation.of_caller()
        schema = result_schema("flat_map", function, returns, location, many=True)
        return self._add(FlatMap(function), schema, name, location)

    def filter(
        self, predicate: Expr | Callable[[T_co], bool], *, name: str | None = None
    ) -> Stream[T_co, B, G, O]:
        """Keep the rows that satisfy `predicate` (see `operators.rows`)."""
        location = SourceLocation.of_caller()
        if isinstance(predicate, Expr):
            found = check(predicate, self._schema).type
            if found != BOOL:
                raise WrongType(
                    f"filter needs true or false, got {found}: {predicate}",
                    where=[location],
                    fix="compare it with something: ==, !=, <, <=, >, >=, .is_in(...), .is_null()",
                )
        elif method := uncalled_method(predicate):
            raise WrongType(
                f"filter needs an expression or a function, got {render_argument(predicate)}",
                where=[location],
                fix=f"call it: {method}()",
            )
        elif not callable(predicate):
            raise WrongType(
                f"filter needs an expression or a function, got {render_argument(predicate)}",
                where=[location],
                why="`is`, `is not` and `not` are decided by Python, before there are rows."
                if isinstance(predicate, bool)
                else "",
                fix=".is_null(), .is_not_null(), ~"
                if isinstance(predicate, bool)
                else "filter(hr.col.price > 10)",
            )
        return self._add(Filter(predicate), self._schema, name, location)

    @overload
    def select(
        self, /, *columns: Expr | str, into: type[U], name: str | Expr | None = None, **named: Expr
    ) -> Stream[U, B, G, O]: ...
    @overload
    def select(
        self, /, *columns: Expr | str, name: str | Expr | None = None, **named: Expr
    ) -> Stream[Any, B, G, O]: ...
    def select(self, /, *columns: Expr | str, **named: Any) -> Stream[Any, B, G, O]:
        """Compute new columns from expressions (see `operators.rows`).

        Positional arguments are columns that keep their names. `into` is the row class of the result, whose
        columns must be the selected ones; by default a class is generated. `name` names the operator if it is
        text, and is a column if it is an expression.
        """
        location = SourceLocation.of_caller()
        into, name = split_own_keywords(named)
        chosen = (*named_columns(columns, location), *computed_columns(named, location))
        schema = self._computed(chosen, into, location)
        return self._add(Select(chosen), schema, name, location)

    @overload
    def with_columns(
        self, /, *, into: type[U], name: str | Expr | None = None, **named: Expr
    ) -> Stream[U, B, G, O]: ...
    @overload
    def with_columns(self, /, *, name: str | Expr | None = None, **named: Expr) -> Stream[Any, B, G, O]: ...
    @overload
    def with_columns(
        self, /, *, name: str | Expr | None = None, **named: Expr | Over
    ) -> Stream[Any, B, Changes, NoOrder]: ...
    def with_columns(self, /, *unnamed: Any, **named: Any) -> Stream[Any, B, Any, Any]:
        """Replace or add columns (see `operators.rows`), by window functions, too (see `operators.over`).

        `into` and `name` are as in `select`.
        """
        location = SourceLocation.of_caller()
        check_no_positional("with_columns takes expressions", unnamed, "double=hr.col.price * 2", location)
        into, name = split_own_keywords(named)
        computed = {column: over for column, over in named.items() if isinstance(over, Over)}
        if computed:
            return self._with_windows(computed, named, into, name, location)
        operator = with_columns(self._schema, dict(computed_columns(named, location)))
        schema = self._computed(operator.columns, into, location)
        return self._add(operator, schema, name, location)

    def _with_windows(
        self,
        computed: Mapping[str, Over],
        named: dict[str, Any],
        into: Any,
        name: Any,
        location: SourceLocation,
    ) -> Stream[Any, B, G, O]:
        """Add columns that include window functions, with one operator per partitioning and order."""
        stream: Any = self
        for group in grouped_by_partition(computed.items()):
            # A column that is replaced is read by the others.
            added = tuple((f"{c} over" if c in self._schema.names else c, over) for c, over in group)
            fields = (over.field(column, self._schema) for column, over in added)
            schema = computed_schema((*stream.schema.fields, *fields))
            stream = stream._add(OverAggregate(added), schema, None, location)
        exprs = {c: Column(f"{c} over" if c in self._schema.names else c) for c in computed}
        columns = dict(computed_columns({**named, **exprs}, location))
        operator = with_columns(self._schema, columns)
        if into is None and [(c, str(e)) for c, e in operator.columns] == [
            (c, c) for c in stream.schema.names
        ]:
            return stream
        return stream._add(operator, stream._computed(operator.columns, into, location), name, location)

    # -- several streams -----------------------------------------------------------------

    def union(
        self, *others: Stream[T_co, B2, G2, Any], name: str | None = None
    ) -> Stream[T_co, B | B2, G | G2, NoOrder]:
        """Combine all rows of all streams, duplicates included (see `operators.union`)."""
        location = SourceLocation.of_caller()
        schema = self._united("union", others, location)
        return self._flow.add(Union(1 + len(others)), schema, (self, *others), name, location)

    @overload
    def join(
        self,
        other: Stream[Any, B2, G2, Any],
        on: Expr | str | Sequence[str],
        how: Literal["semi"],
        *,
        lifetime: Lifetimes = "static",
        nondet: str | None = None,
        suffix: str | None = None,
        into: None = None,
        name: str | None = None,
    ) -> Stream[T_co, B | B2, G | G2, NoOrder]: ...
    @overload
    def join(
        self,
        other: Stream[Any, B2, Any, Any],
        on: Expr | str | Sequence[str],
        how: Literal["anti"],
        *,
        lifetime: Lifetimes = "static",
        nondet: str | None = None,
        suffix: str | None = None,
        into: None = None,
        name: str | None = None,
    ) -> Stream[T_co, B | B2, Changes, NoOrder]: ...
    @overload
    def join(
        self,
        other: Stream[Any, B2, Any, Any],
        on: Expr | str | Sequence[str],
        how: Literal["left", "right", "full"],
        *,
        lifetime: Lifetimes = "static",
        nondet: str | None = None,
        suffix: str | None = None,
        into: type[U],
        name: str | None = None,
    ) -> Stream[U, B | B2, Changes, NoOrder]: ...
    @overload
    def join(
        self,
        other: Stream[Any, B2, Any, Any],
        on: Expr | str | Sequence[str],
        how: Literal["left", "right", "full"],
        *,
        lifetime: Lifetimes = "static",
        nondet: str | None = None,
        suffix: str | None = None,
        into: None = None,
        name: str | None = None,
    ) -> Stream[Any, B | B2, Changes, NoOrder]: ...
    @overload
    def join(
        self,
        other: Stream[Any, B2, G2, Any],
        on: Expr | str | Sequence[str],
        how: Literal["inner"] = "inner",
        *,
        lifetime: Lifetimes = "static",
        nondet: str | None = None,
        suffix: str | None = None,
        into: type[U],
        name: str | None = None,
    ) -> Stream[U, B | B2, G | G2, NoOrder]: ...
    @overload
    def join(
        self,
        other: Stream[Any, B2, G2, Any],
        on: Expr | str | Sequence[str],
        how: Literal["inner"] = "inner",
        *,
        lifetime: Lifetimes = "static",
        nondet: str | None = None,
        suffix: str | None = None,
        into: None = None,
        name: str | None = None,
    ) -> Stream[Any, B | B2, G | G2, NoOrder]: ...
    @explains_calls(elsewhere=_OF_OTHER_JOINS)
    def join(
        self,
        other: Stream[Any, Any, Any, Any],
        on: Expr | str | Sequence[str],
        how: str = "inner",
        *,
        lifetime: Lifetimes = "static",
        nondet: str | None = None,
        suffix: str | None = None,
        into: Any = None,
        name: str | None = None,
    ) -> Stream[Any, Any, Any, NoOrder]:
        """Pair rows of both streams with equal keys (see `operators.join`).

        on:     names of common columns, or a condition with at least one equality between the sides:
                `hr.left.a == hr.right.b`; a column that only one side has can be written without its side
                (`col.auction == col.id`).
        how:    "inner", "left", "right", "full", "semi", or "anti".
        lifetime: "static", "tick", or a pair of them: each tick joins only its own rows of a "tick" side,
                with all rows so far of a "static" one.
        nondet: reason why results may depend on the cut into ticks, if a lifetime
                is "tick"; not needed if the ticks are given.
        suffix: appended to names of right columns that the left side has, too.
        into:   row class of the result, whose columns must be those of the join.
        """
        from headrace.flow.state_expiry import add_inner_join

        location = SourceLocation.of_caller()
        check_stream(other, "join", location)
        check_reason(nondet, location)
        given = parse_lifetimes(lifetime, 2, "join", location)
        if how in OUTER_JOINS:
            return add_outer_join(
                OUTER_JOINS[how], self, other, on, (given, nondet), suffix, into, name, location
            )
        try:
            kind = How(how)
        except ValueError:
            options = ", ".join(map(repr, (*(h.value for h in How), *OUTER_JOINS)))
            raise WrongType(f"unknown join type {how!r}", where=[location], fix=f"one of {options}") from None
        operator, schema = plan_join(self._schema, other._schema, on, kind, suffix, location)
        operator = replace(operator, lifetimes=given, nondet=nondet)
        if into is not None:
            schema = with_row_class(schema, into, location)
        forgetting = add_inner_join(self, other, operator, schema, name, location)
        if forgetting is not None:
            return forgetting
        return add_join(self, other, operator, schema, name, location)

    def difference(
        self,
        neg: Stream[T_co, B2, Any, Any],
        *,
        lifetime: Lifetimes = "static",
        nondet: str | None = None,
        name: str | None = None,
    ) -> Stream[T_co, B | B2, Changes, NoOrder]:
        """Keep the rows that are not in `neg` (see `operators.join.join`).

        lifetime: as in `join`. With ("static", "tick"), each tick emits all rows so far that its own rows of
                  `neg` do not exclude, at the corresponding cost.
        nondet:   as in `join`.
        """
        location = SourceLocation.of_caller()
        check_reason(nondet, location)
        check_stream(neg, "difference", location)
        self.check_row_type("difference", neg, location)
        given = parse_lifetimes(lifetime, 2, "difference", location)
        operator = Difference(all_columns(self._schema), all_columns(neg._schema), given, nondet)
        return add_difference(self, neg, operator, name, location)

    # -- groups --------------------------------------------------------------------------

    @overload
    def group_by(
        self, /, *keys: Expr | str, window: Windows, emit: Literal["close"] = "close", **named: Expr
    ) -> WindowGroups[B, Append, O]: ...
    @overload
    def group_by(
        self, /, *keys: Expr | str, window: Windows, emit: Literal["updates"], **named: Expr
    ) -> WindowGroups[B, Changes, NoOrder]: ...
    @overload
    def group_by(self, /, *keys: Expr | str, **named: Expr) -> Grouped[B]: ...
    def group_by(self, /, *keys: Expr | str, **named: Any) -> Grouped[B] | WindowGroups[B, Any, Any]:
        """Group by expressions; follow with `.agg(...)` (see `operators.aggregate`).

        window: event-time windows such as `hr.tumbling(...)`, to group by key and window (see
                `operators.event_time.window`).
        emit:   for windows: "close" emits the result of each window once, when the watermark passes its end;
                "updates" also emits changes until then.
        """
        from headrace.operators.time_spans import Windows

        location = SourceLocation.of_caller()
        if any(isinstance(given, Windows) for given in (*keys, *named.values())):
            return self._windows(keys, named, location)
        check_no_emit(named, location)
        chosen = (*named_columns(keys, location), *computed_columns(named, location))
        for _, expr in chosen:
            check(expr, self._schema)
        return Grouped(self, chosen)

    def distinct(
        self, *, lifetime: LifetimeName = "static", nondet: str | None = None, name: str | None = None
    ) -> Stream[T_co, B, G, NoOrder]:
        """Keep one copy of each row (see `operators.distinct`); with lifetime "tick", one per tick.

        nondet: as in `join`.
        """
        from headrace.flow.state_expiry import add_distinct

        location = SourceLocation.of_caller()
        check_reason(nondet, location)
        (given,) = parse_lifetimes(lifetime, 1, "distinct", location)
        operator = Distinct(all_columns(self._schema), given, nondet)
        return add_distinct(self, operator, name, location)

    def top_k(
        self,
        count: int,
        *,
        by: Expr | Ordering | Sequence[Expr | Ordering],
        per: Expr | str | Sequence[Expr | str] = (),
        lifetime: LifetimeName = "static",
        nondet: str | None = None,
        name: str | None = None,
    ) -> Stream[T_co, B, Changes, NoOrder]:
        """Keep the first `count` rows of each group `per`, in the order `by` (see `operators.top_k`).

        lifetime: "tick" treats each tick separately. nondet: as in `join`.
        """
        location = SourceLocation.of_caller()
        check_reason(nondet, location)
        (given,) = parse_lifetimes(lifetime, 1, "top_k", location)
        if not isinstance(count, int) or count < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WrongType(
                f"top_k needs a count of at least 1, got {render_argument(count)}",
                where=[location],
                fix="a whole number: top_k(3, by=...)",
            )
        listed = list(by) if isinstance(by, list | tuple) else [cast("Expr | Ordering", by)]
        orderings = tuple(o if isinstance(o, Ordering) else Ordering(o) for o in listed)
        groups = list(per) if isinstance(per, list | tuple) else [cast("Expr | str", per)]
        columns = tuple(Column(p) if isinstance(p, str) else p for p in groups)
        for expr in (*(o.expr for o in orderings), *columns):
            check_expression("top_k", expr, location)
            check(expr, self._schema)
        for ordering in orderings:
            check_ordered(ordering.expr, self._schema)
        operator = TopK(count, orderings, columns, given, nondet)
        return self._add(operator, self._schema, name, location)


Table: TypeAlias = Stream[T_co, Unbounded, Changes, NoOrder]
"""Stream whose rows may be retracted."""


__all__ = [
    "Append",
    "Bounded",
    "Changes",
    "Grouped",
    "NoOrder",
    "Ordered",
    "Stream",
    "Table",
    "Unbounded",
]
