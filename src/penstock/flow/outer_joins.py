"""Right and full joins, made of left and anti joins.

A right join is the left join of the sides the other way round, with its columns put
back in their places. A full join is the left join, and beside it the right rows
that have no partner: the anti join the other way round, with nulls for the left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.expr.rows import derived_schema
from penstock.expr.tree import Column, Expr, Literal
from penstock.expr.types import Schema
from penstock.flow.columns import as_class
from penstock.flow.join_condition import plan_outer_join
from penstock.flow.operators.join import How, Join
from penstock.flow.operators.select import Select
from penstock.flow.operators.union import Union
from penstock.flow.tick_joins import AnyStream, add_join

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.errors import SourceLocation
    from penstock.flow.lifetime import Lifetime
    from penstock.flow.stream import Stream


AddJoin: TypeAlias = (
    "Callable[[AnyStream, AnyStream, Join, Schema, str | None, SourceLocation], Stream[Any, Any, Any, Any]]"
)


@dataclass(frozen=True, slots=True)
class OuterJoin:
    """may_lack: per side, whether a row of the answer may lack its row.

    add: adds it, given the left join of its sides and the columns of the answer.
    """

    may_lack: tuple[bool, bool]
    add: AddJoin


def add_outer_join(
    kind: OuterJoin,
    left: AnyStream,
    right: AnyStream,
    on: Expr | str | Sequence[str],
    lifetimes: tuple[tuple[Lifetime, Lifetime], str | None],
    suffix: str | None,
    into: Any,
    name: str | None,
    location: SourceLocation,
) -> Stream[Any, Any, Any, Any]:
    """Add a join of this kind. lifetimes: of both sides, and the reason for them.

    Raises what `plan_join` and `Flow.add` raise.
    """
    planned, schema = plan_outer_join(left.schema, right.schema, on, kind.may_lack, suffix, location)
    planned = replace(planned, lifetimes=lifetimes[0], nondet=lifetimes[1])
    if into is not None:
        schema = as_class(schema, into, location)
    return kind.add(left, right, planned, schema, name, location)


def _add_right_join(
    left: AnyStream,
    right: AnyStream,
    planned: Join,
    schema: Schema,
    name: str | None,
    location: SourceLocation,
) -> Stream[Any, Any, Any, Any]:
    """Add a right join. planned, schema: the left join of these sides, and the columns of the answer."""
    mirrored = replace(_mirrored(left, right, planned), kept_right=tuple(range(len(left.schema.fields))))
    width = len(right.schema.fields)
    fields = (*right.schema.fields, *left.schema.fields)
    pairs = derived_schema(
        tuple(replace(f, name=f"c{at}", nullable=f.nullable or at >= width) for at, f in enumerate(fields))
    )
    joined = add_join(right, left, mirrored, pairs, None, location)
    of_left: list[Expr] = [Column(name) for name in pairs.names[width:]]
    columns = _in_place(right, planned, schema, of_left, pairs.names[:width])
    return left.flow.add(Select(columns), schema, (joined,), name, location)


def _add_full_join(
    left: AnyStream,
    right: AnyStream,
    planned: Join,
    schema: Schema,
    name: str | None,
    location: SourceLocation,
) -> Stream[Any, Any, Any, Any]:
    """Add a full join. planned, schema: the left join of these sides, and the columns of the answer."""
    matched = add_join(left, right, planned, schema, None, location)
    mirrored = replace(_mirrored(left, right, planned), how=How.ANTI, kept_right=())
    alone = add_join(right, left, mirrored, right.schema, None, location)
    nulls: list[Expr] = [Literal(None, field.type) for field in left.schema.fields]
    columns = _in_place(right, planned, schema, nulls, right.schema.names)
    padded = left.flow.add(Select(columns), schema, (alone,), None, location)
    return left.flow.add(Union(2), schema, (matched, padded), name, location)


def _mirrored(left: AnyStream, right: AnyStream, planned: Join) -> Join:
    """The join with its sides the other way round; the residual sees columns under the same names."""
    width = len(left.schema.fields)
    return replace(
        planned,
        left_keys=planned.right_keys,
        right_keys=planned.left_keys,
        pair_names=planned.pair_names[width:] + planned.pair_names[:width],
        lifetimes=(planned.lifetimes[1], planned.lifetimes[0]),
    )


def _in_place(
    right: AnyStream, planned: Join, schema: Schema, of_left: list[Expr], names: tuple[str, ...]
) -> tuple[tuple[str, Expr], ...]:
    """The columns of the answer: those of the left as `of_left`, those of the right under `names`.

    A key of one name on both sides is one column, which the right row tells: it is always there.
    """
    kept = set(planned.kept_right)
    keys = {n: names[at] for at, n in enumerate(right.schema.names) if at not in kept}
    width = len(of_left)
    columns: list[tuple[str, Expr]] = []
    for at, name in enumerate(schema.names[:width]):
        columns.append((name, Column(keys[name]) if name in keys else of_left[at]))
    for at, name in zip(planned.kept_right, schema.names[width:], strict=True):
        columns.append((name, Column(names[at])))
    return tuple(columns)


OUTER_JOINS = {
    "right": OuterJoin((True, False), _add_right_join),
    "full": OuterJoin((True, True), _add_full_join),
}
