"""A stream with group keys: half of an aggregation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, overload

from typing_extensions import TypeVar

from penstock.errors import SourceLocation, WrongType
from penstock.expr.check import check
from penstock.expr.rows import derived_schema
from penstock.expr.tree import Expr
from penstock.expr.types import Field
from penstock.flow.aggregates import Aggregation
from penstock.flow.columns import as_class, check_aggregations, check_named, own_keywords
from penstock.flow.lifetime import Lifetime, LifetimeName, check_reason, lifetimes
from penstock.flow.markers import Changes, NoOrder, Unbounded
from penstock.flow.operators.aggregate import Aggregate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.expr.types import Schema
    from penstock.flow.stream import Stream

R = TypeVar("R")
B = TypeVar("B", bound=Unbounded, covariant=True, default=Unbounded)


class Grouped(Generic[B]):
    """A stream with group keys, waiting for `agg`."""

    __slots__ = ("_keys", "_stream")

    def __init__(self, stream: Stream[Any, B, Any, Any], keys: tuple[tuple[str, Expr], ...]) -> None:
        self._stream = stream
        self._keys = keys

    @overload
    def agg(
        self,
        *,
        into: type[R],
        lifetime: LifetimeName | Aggregation = "static",
        nondet: str | Aggregation | None = None,
        name: str | Aggregation | None = None,
        **named: Aggregation,
    ) -> Stream[R, B, Changes, NoOrder]: ...
    @overload
    def agg(
        self,
        *,
        lifetime: LifetimeName | Aggregation = "static",
        nondet: str | Aggregation | None = None,
        name: str | Aggregation | None = None,
        **named: Aggregation,
    ) -> Stream[Any, B, Changes, NoOrder]: ...
    def agg(self, *unnamed: Any, **named: Any) -> Stream[Any, B, Changes, NoOrder]:
        """One row per group: the keys, then these aggregates (see `operators.aggregate`).

        `into` and `name` are as in `Stream.select`. lifetime: "tick" answers each tick for
        itself, in plain rows; nondet: why it is right that answers depend on the cut into
        ticks then, not needed where the ticks are given. Columns may be called so too.
        """
        location = SourceLocation.of_caller()
        check_named("agg takes aggregates", unnamed, "total=ps.sum(ps.col.price)", location)
        lifetime, nondet = _own_lifetime(named, location)
        schema = self._stream.schema
        into, name = own_keywords(named)
        result = answer_schema(schema, self._keys, (), named, into, location)
        operator = Aggregate(self._keys, tuple(named.items()), lifetime, nondet)
        return self._stream.flow.add(operator, result, (self._stream,), name, location)


def answer_schema(
    schema: Schema,
    keys: Sequence[tuple[str, Expr]],
    more: Sequence[Field],
    named: dict[str, Any],
    into: Any,
    location: SourceLocation,
) -> Schema:
    """The row type of an aggregation over rows of `schema`: the keys, `more`, the aggregates `named`.

    Raises `WrongType` for what is no aggregate, for none, and for a column made twice.
    """
    check_aggregations(named, location)
    fields: list[Field] = []
    for key, expr in keys:
        typed = check(expr, schema)
        fields.append(Field(key, typed.type, typed.nullable))
    fields.extend(more)
    fields.extend(aggregation.field(column, schema) for column, aggregation in named.items())
    names = [f.name for f in fields]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise WrongType(
            f"column {twice[0]!r} is made twice",
            where=[location],
            why="The group keys are columns of the answer too.",
            fix="give one of them another name",
            column=twice[0],
        )
    if not named:
        raise WrongType(
            "agg needs at least one aggregate",
            where=[location],
            fix="agg(rows=ps.count()); for the keys alone, select() them and use distinct()",
        )
    result = derived_schema(tuple(fields))
    return result if into is None else as_class(result, into, location)


def _own_lifetime(named: dict[str, Any], location: SourceLocation) -> tuple[Lifetime, str | None]:
    """Take `lifetime` and `nondet` out of keyword arguments where they are no aggregates.

    Raises `WrongType`.
    """
    given, nondet = (
        default if isinstance(named.get(key, default), Aggregation) else named.pop(key, default)
        for key, default in (("lifetime", "static"), ("nondet", None))
    )
    (lifetime,) = lifetimes(given, 1, "agg", location)
    check_reason(nondet, location)
    return lifetime, nondet
