"""Joins and differences with lifetimes: which of them are operators, and of what the others are made.

A side of which a tick answers its own rows alone needs nothing special. Where it is
the left side that stays and the right one that goes, all left rows so far are spoken
of in each tick:

    inner   one operator: this tick's right rows look up the left ones
    semi    the inner join with this tick's right keys, each once
    left, anti, difference, semi with a residual
            `every_tick` shows the left rows again; then both sides are of the tick
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.expr.check import check
from penstock.expr.rows import derived_schema
from penstock.expr.tree import Column
from penstock.expr.types import Field
from penstock.flow.columns import all_columns
from penstock.flow.join_condition import pair_names
from penstock.flow.lifetime import Lifetime
from penstock.flow.operators.difference import Difference
from penstock.flow.operators.distinct import Distinct
from penstock.flow.operators.every_tick import EveryTick
from penstock.flow.operators.join import How, Join
from penstock.flow.operators.select import Select

if TYPE_CHECKING:
    from penstock.errors import SourceLocation
    from penstock.expr.types import Schema
    from penstock.flow.stream import Stream
    from penstock.flow.stream_base import StreamBase

AnyStream: TypeAlias = "StreamBase[Any, Any, Any, Any]"

_KEEPS_LEFT = (Lifetime.STATIC, Lifetime.TICK)
_OF_A_TICK = (Lifetime.TICK, Lifetime.TICK)


def add_join(
    left: AnyStream,
    right: AnyStream,
    operator: Join,
    schema: Schema,
    name: str | None,
    location: SourceLocation,
) -> Stream[Any, Any, Any, Any]:
    """Add a join with the lifetimes that `operator` has. Raises what `Flow.add` raises."""
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
    pos: AnyStream, neg: AnyStream, operator: Difference, name: str | None, location: SourceLocation
) -> Stream[Any, Any, Any, Any]:
    """Add a difference with the lifetimes that `operator` has. Raises what `Flow.add` raises."""
    if operator.lifetimes == _KEEPS_LEFT:
        pos = _shown_again(pos, operator.nondet, location)
        operator = replace(operator, lifetimes=_OF_A_TICK)
    return pos.flow.add(operator, pos.schema, (pos, neg), name, location)


def _shown_again(stream: AnyStream, nondet: str | None, location: SourceLocation) -> AnyStream:
    return stream.flow.add(EveryTick(nondet), stream.schema, (stream,), None, location)


def _keys_of_tick(right: AnyStream, operator: Join, location: SourceLocation) -> AnyStream:
    """The keys of the right rows of a tick, each once."""
    named = tuple((f"key {at}", key) for at, key in enumerate(operator.right_keys))
    typed = [check(key, right.schema) for _, key in named]
    fields = tuple(Field(name, t.type, t.nullable) for (name, _), t in zip(named, typed, strict=True))
    schema = derived_schema(fields)
    keys = right.flow.add(Select(named), schema, (right,), None, location)
    columns = tuple(Column(name) for name, _ in named)
    distinct = Distinct(columns, Lifetime.TICK, operator.nondet)
    return right.flow.add(distinct, schema, (keys,), None, location)
