"""Joins and differences composed of several operators: mixed lifetimes, right and full joins.

Most combinations of lifetimes need only one operator. With a static left side and a right side of lifetime
TICK, each tick is about all left rows so far:

    inner   one operator: this tick's right rows look up the left ones
    semi    the inner join with this tick's right keys, each once
    left, anti, difference, semi with a residual
            `every_tick` repeats the left rows; then both sides have lifetime TICK

A right join is the left join with its sides swapped and its columns put back in order. A
full join is the left join united with the right rows without a partner: the anti join with its
sides swapped, with nulls for the left columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.expr.check import check
from headrace.expr.row_classes import computed_schema
from headrace.expr.tree import Column, Expr, Literal
from headrace.expr.types import Field
from headrace.flow.join_condition import pair_names, plan_outer_join
from headrace.operators.across_ticks import EveryTick
from headrace.operators.column_arguments import all_columns, with_row_class
from headrace.operators.distinct import Distinct
from headrace.operators.join.join import Difference, How, Join
from headrace.operators.lifetime import Lifetime
from headrace.operators.rows import Select
from headrace.operators.union import Union

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.errors import SourceLocation
    from headrace.expr.types import Schema
    from headrace.flow.output_handle import AnyStream, Output

_KEEPS_LEFT = (Lifetime.STATIC, Lifetime.TICK)
_OF_A_TICK = (Lifetime.TICK, Lifetime.TICK)


def add_join(
    left: Output,
    right: Output,
    operator: Join,
    schema: Schema,
    name: str | None,
    location: SourceLocation,
) -> AnyStream:
    """Add a join with the lifetimes of `operator`. Raises like `Flow.add`."""
    if operator.lifetimes == _KEEPS_LEFT and operator.how is not How.INNER:
        if operator.how is How.SEMI and operator.residual is None:
            right = _keys_of_tick(right, operator, location)
            operator = replace(
                operator,
                how=How.INNER,
                right_keys=all_columns(right.schema),
                pair_names=pair_names(left.schema, right.schema),
            )
        else:
            left = _shown_again(left, operator.nondet, location)
            operator = replace(operator, lifetimes=_OF_A_TICK)
    return left.flow.add(operator, schema, (left, right), name, location)


def add_difference(
    pos: Output, neg: Output, operator: Difference, name: str | None, location: SourceLocation
) -> AnyStream:
    """Add a difference with the lifetimes of `operator`. Raises like `Flow.add`."""
    if operator.lifetimes == _KEEPS_LEFT:
        pos = _shown_again(pos, operator.nondet, location)
        operator = replace(operator, lifetimes=_OF_A_TICK)
    return pos.flow.add(operator, pos.schema, (pos, neg), name, location)


def _shown_again(stream: Output, nondet: str | None, location: SourceLocation) -> Output:
    return stream.flow.add(EveryTick(nondet), stream.schema, (stream,), None, location)


def _keys_of_tick(right: Output, operator: Join, location: SourceLocation) -> Output:
    """Return the distinct keys among a tick's right rows."""
    named = tuple((f"key {at}", key) for at, key in enumerate(operator.right_keys))
    typed = [check(key, right.schema) for _, key in named]
    fields = tuple(Field(name, t.type, t.nullable) for (name, _), t in zip(named, typed, strict=True))
    schema = computed_schema(fields)
    keys = right.flow.add(Select(named), schema, (right,), None, location)
    columns = tuple(Column(name) for name, _ in named)
    distinct = Distinct(columns, Lifetime.TICK, operator.nondet)
    return right.flow.add(distinct, schema, (keys,), None, location)


# -- right and full joins ----------------------------------------------------------------------

AddJoin: TypeAlias = "Callable[[Output, Output, Join, Schema, str | None, SourceLocation], AnyStream]"


@dataclass(frozen=True, slots=True)
class OuterJoin:
    """Kind of outer join. may_lack: per side, whether its row may be missing in an output row.

    add: adds it to the flow, given the left join of its sides and the output columns.
    """

    may_lack: tuple[bool, bool]
    add: AddJoin


def add_outer_join(
    kind: OuterJoin,
    left: Output,
    right: Output,
    on: Expr | str | Sequence[str],
    lifetimes: tuple[tuple[Lifetime, Lifetime], str | None],
    suffix: str | None,
    into: Any,
    name: str | None,
    location: SourceLocation,
) -> AnyStream:
    """Add an outer join of the given kind. lifetimes: those of both sides, and the reason for them.

    Raises like `plan_join` and `Flow.add`.
    """
    planned, schema = plan_outer_join(left.schema, right.schema, on, kind.may_lack, suffix, location)
    planned = replace(planned, lifetimes=lifetimes[0], nondet=lifetimes[1])
    if into is not None:
        schema = with_row_class(schema, into, location)
    return kind.add(left, right, planned, schema, name, location)


def _add_right_join(
    left: Output,
    right: Output,
    planned: Join,
    schema: Schema,
    name: str | None,
    location: SourceLocation,
) -> AnyStream:
    """Add a right join. planned, schema: the corresponding left join, and the output columns."""
    mirrored = replace(_mirrored(left, right, planned), kept_right=tuple(range(len(left.schema.fields))))
    width = len(right.schema.fields)
    fields = (*right.schema.fields, *left.schema.fields)
    pairs = computed_schema(
        tuple(replace(f, name=f"c{at}", nullable=f.nullable or at >= width) for at, f in enumerate(fields))
    )
    joined = add_join(right, left, mirrored, pairs, None, location)
    of_left: list[Expr] = [Column(name) for name in pairs.names[width:]]
    columns = _in_place(right, planned, schema, of_left, pairs.names[:width])
    return left.flow.add(Select(columns), schema, (joined,), name, location)


def _add_full_join(
    left: Output,
    right: Output,
    planned: Join,
    schema: Schema,
    name: str | None,
    location: SourceLocation,
) -> AnyStream:
    """Add a full join. planned, schema: the corresponding left join, and the output columns."""
    matched = add_join(left, right, planned, schema, None, location)
    mirrored = replace(_mirrored(left, right, planned), how=How.ANTI, kept_right=())
    alone = add_join(right, left, mirrored, right.schema, None, location)
    nulls: list[Expr] = [Literal(None, field.type) for field in left.schema.fields]
    columns = _in_place(right, planned, schema, nulls, right.schema.names)
    padded = left.flow.add(Select(columns), schema, (alone,), None, location)
    return left.flow.add(Union(2), schema, (matched, padded), name, location)


def _mirrored(left: Output, right: Output, planned: Join) -> Join:
    """Swap the sides of a join. The residual keeps its column names."""
    width = len(left.schema.fields)
    return replace(
        planned,
        left_keys=planned.right_keys,
        right_keys=planned.left_keys,
        pair_names=planned.pair_names[width:] + planned.pair_names[:width],
        lifetimes=(planned.lifetimes[1], planned.lifetimes[0]),
    )


def _in_place(
    right: Output, planned: Join, schema: Schema, of_left: list[Expr], names: tuple[str, ...]
) -> tuple[tuple[str, Expr], ...]:
    """Return the output columns of an outer join: left ones from `of_left`, right ones under `names`.

    A key with the same name on both sides is a single column, taken from the right row, which always exists.
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
