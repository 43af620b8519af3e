"""Joins: split of a condition into keys and a residual, and joins composed of several operators.

Composed are joins and differences of mixed lifetimes, and right and full joins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from headrace.errors import HeadraceError, NeedNotMet, UnknownColumn, WrongType, did_you_mean
from headrace.expr.check import check
from headrace.expr.row_classes import computed_schema
from headrace.expr.tree import Column, Expr, FunctionCall, Literal
from headrace.expr.types import BOOL, Field, Schema, holds_maps
from headrace.operators.across_ticks import EveryTick
from headrace.operators.column_arguments import all_columns, render_argument, with_row_class
from headrace.operators.distinct import Distinct
from headrace.operators.join.join import Difference, How, Join
from headrace.operators.lifetime import Lifetime
from headrace.operators.rows import Select
from headrace.operators.union import Union

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headrace.errors import SourceLocation
    from headrace.flow.stream_base import AnyStream, Output


@dataclass(frozen=True, slots=True)
class _Sides:
    left: Schema
    right: Schema
    location: SourceLocation

    def side_of(self, column: Column) -> str:
        if column.side is not None:
            schema = self.left if column.side == "left" else self.right
            if schema.position(column.name) is None:
                raise self._unknown(column.name, column.side)
            return column.side
        in_left = self.left.position(column.name) is not None
        in_right = self.right.position(column.name) is not None
        if in_left and in_right:
            raise UnknownColumn(
                f"column {column.name!r} of the join condition is on both sides",
                where=[self.location],
                why="Nothing says which of them is meant.",
                fix=f"write hr.left.{column.name} or hr.right.{column.name}",
                column=column.name,
            )
        if not in_left and not in_right:
            raise self._unknown(column.name, "either")
        return "left" if in_left else "right"

    def _unknown(self, name: str, side: str) -> HeadraceError:
        return UnknownColumn(
            f"no column {name!r} on the {side} side of the join",
            where=[self.location],
            why=f"Left has {', '.join(self.left.names)}; right has {', '.join(self.right.names)}.",
            fix=self._instead(name, side),
            column=name,
        )

    def _instead(self, name: str, side: str) -> str:
        left, right = self.left.names, self.right.names
        if guess := did_you_mean(name, {"left": left, "right": right}.get(side, (*left, *right))):
            return guess
        if name in left:
            return f"on=hr.left.{name} == hr.right.<its name there>"
        return (
            f"on=hr.left.<its name there> == hr.right.{name}"
            if name in right
            else "use a column that is there"
        )

    def sides(self, expr: Expr) -> set[str]:
        return {self.side_of(part) for part in expr.walk() if isinstance(part, Column)}


def conjuncts(expr: Expr) -> Iterator[Expr]:
    """Yield the operands of a chain of `&`."""
    if isinstance(expr, FunctionCall) and expr.function == "and":
        for argument in expr.arguments:
            yield from conjuncts(argument)
    else:
        yield expr


def to_pair_columns(expr: Expr, names: dict[tuple[str, str], str], sides: _Sides) -> Expr:
    """Replace the columns of each side with plain columns, named as in `names`."""
    if isinstance(expr, Column):
        return Column(names[sides.side_of(expr), expr.name])
    if isinstance(expr, FunctionCall):
        arguments = tuple(to_pair_columns(a, names, sides) for a in expr.arguments)
        return replace(expr, arguments=arguments)
    return expr


def plan_join(
    left: Schema,
    right: Schema,
    on: Expr | str | Sequence[str],
    how: How,
    suffix: str | None,
    location: SourceLocation,
) -> tuple[Join, Schema]:
    """Plan a join: its operator and output schema.

    Raises `UnknownColumn`, `WrongType`, and `NeedNotMet` if no equality is a key.
    """
    sides = _Sides(left, right, location)
    condition = _as_condition(on, location)
    plain = {("left", n): n for n in left.names} | {("right", n): n for n in right.names}
    left_keys: list[Expr] = []
    right_keys: list[Expr] = []
    rest: list[Expr] = []
    for part in condition:
        pair = _key_pair(part, sides)
        if pair is None:
            rest.append(part)
        else:
            left_keys.append(to_pair_columns(pair[0], plain, sides))
            right_keys.append(to_pair_columns(pair[1], plain, sides))
    if not left_keys:
        raise NeedNotMet(
            "a join needs at least one equality between its sides",
            where=[location],
            why="Without a key every row would have to be compared with every other.",
            fix="on=hr.left.a == hr.right.b; further conditions may follow with `&`",
        )
    _same_types(left_keys, right_keys, sides)
    names_in_pair = pair_names(left, right)
    names = dict(zip(_qualified(left, right), names_in_pair, strict=True))
    residual: Expr | None = None
    for part in rest:
        renamed = to_pair_columns(part, names, sides)
        residual = renamed if residual is None else FunctionCall("and", (residual, renamed))
    pair_fields = [
        replace(f, name=name) for f, name in zip((*left.fields, *right.fields), names_in_pair, strict=True)
    ]
    if residual is not None and check(residual, Schema(tuple(pair_fields))).type != BOOL:
        raise WrongType(
            f"a join condition must be true or false: {residual}",
            where=[location],
            fix="compare it with something: ==, !=, <, <=, >, >=, .is_in(...), .is_null()",
        )
    kept = _kept_right(left, right, left_keys, right_keys) if how.has_right_columns else ()
    operator = Join(how, tuple(left_keys), tuple(right_keys), residual, names_in_pair, kept)
    if not how.has_right_columns:
        return operator, left
    may_lack = (False, how is How.LEFT)
    return operator, paired_schema("join", left, right, kept, suffix, location, may_lack=may_lack)


def plan_outer_join(
    left: Schema,
    right: Schema,
    on: Expr | str | Sequence[str],
    may_lack: tuple[bool, bool],
    suffix: str | None,
    location: SourceLocation,
) -> tuple[Join, Schema]:
    """Plan an outer join: its left join and its output columns. Raises like `plan_join`.

    may_lack: per side, whether its row may be missing in an output row. A key with the same name on both
    sides is always present.
    """
    operator, _ = plan_join(left, right, on, How.LEFT, suffix, location)
    schema = paired_schema("join", left, right, operator.kept_right, suffix, location, may_lack=may_lack)
    fields = list(schema.fields)
    for at, field in enumerate(right.fields):
        if at not in operator.kept_right:
            # The key comes from the left row, or from the right row if there is no left one.
            key = next(i for i, f in enumerate(left.fields) if f.name == field.name)
            nullable = (may_lack[1] and left.fields[key].nullable) or (may_lack[0] and field.nullable)
            fields[key] = replace(fields[key], nullable=nullable)
    return operator, computed_schema(tuple(fields))


def plan_product(
    left: Schema, right: Schema, suffix: str | None, location: SourceLocation
) -> tuple[Join, Schema]:
    """Plan a cross join: its operator and output schema. Raises `WrongType`."""
    kept = tuple(range(len(right.fields)))
    schema = paired_schema("cross_join", left, right, kept, suffix, location)
    return Join(How.INNER, (), (), None, pair_names(left, right), kept), schema


def _as_condition(on: object, location: SourceLocation) -> list[Expr]:
    if isinstance(on, Expr):
        return list(conjuncts(on))
    listed = cast("Sequence[object]", on) if isinstance(on, list | tuple) else [on]
    names = [name for name in listed if isinstance(name, str)]
    if not names or len(names) < len(listed):
        raise WrongType(
            f"a join is on a condition or on names of columns, got {render_argument(cast('object', on))}",
            where=[location],
            fix='on=hr.left.a == hr.right.b, or on="key", or on=["key", "day"]',
        )
    return [FunctionCall("eq", (Column(n, "left"), Column(n, "right"))) for n in names]


def _key_pair(part: Expr, sides: _Sides) -> tuple[Expr, Expr] | None:
    if not (isinstance(part, FunctionCall) and part.function == "eq"):
        return None
    first, second = part.arguments
    at = (sides.sides(first), sides.sides(second))
    if at == ({"left"}, {"right"}):
        return first, second
    if at == ({"right"}, {"left"}):
        return second, first
    return None


def _same_types(left_keys: list[Expr], right_keys: list[Expr], sides: _Sides) -> None:
    for a, b in zip(left_keys, right_keys, strict=True):
        one, other = check(a, sides.left).type, check(b, sides.right).type
        if holds_maps(one):
            raise WrongType(
                f"a join key is {one}",
                where=[sides.location],
                why="Spark compares no maps.",
                fix="join by a value of the map, or by its sorted entries: array_sort(map_entries(col.m))",
            )
        if one != other:
            raise WrongType(
                f"a join key is {one} on the left and {other} on the right",
                where=[sides.location],
                why=f"{a} and {b} must be of one type to be equal on every engine.",
                fix=f'cast one of them: .cast("{one}")',
            )


def _qualified(left: Schema, right: Schema) -> list[tuple[str, str]]:
    return [("left", n) for n in left.names] + [("right", n) for n in right.names]


def pair_names(left: Schema, right: Schema) -> tuple[str, ...]:
    """Unique names for the left and right columns together; a clashing name gets the prefix `right.`."""
    taken = set(left.names)
    return (*left.names, *(f"right.{n}" if n in taken else n for n in right.names))


def _kept_right(
    left: Schema, right: Schema, left_keys: list[Expr], right_keys: list[Expr]
) -> tuple[int, ...]:
    """Return the right columns, except keys with the same name on both sides."""
    same = {
        b.name
        for a, b in zip(left_keys, right_keys, strict=True)
        if isinstance(a, Column) and isinstance(b, Column) and a.name == b.name
    }
    return tuple(i for i, n in enumerate(right.names) if n not in same)


def paired_schema(
    what: str,
    left: Schema,
    right: Schema,
    kept: Sequence[int],
    suffix: str | None,
    location: SourceLocation,
    *,
    may_lack: tuple[bool, bool] = (False, False),
) -> Schema:
    """Return the schema of `left` followed by the columns of `right` at `kept`; clashing names get `suffix`.

    may_lack: per side, whether its row may be missing, replaced by nulls.

    Raises `WrongType` for a name that both sides have, for an operator `what`.
    """
    fields = [replace(f, nullable=f.nullable or may_lack[0]) for f in left.fields]
    taken = set(left.names)
    for at in kept:
        f = right.fields[at]
        name = f.name
        if name in taken:
            if suffix is None:
                raise WrongType(
                    f"both sides of the {what} have a column {name!r}",
                    where=[location],
                    why="The answer has the columns of both sides"
                    f"{'; only keys of one name are one column' if what == 'join' else ''}.",
                    fix=f'give suffix="_right", or rename it with select() before the {what}',
                    column=name,
                )
            name += suffix
            if name in taken:
                raise WrongType(
                    f"the left side of the {what} has a column {name!r} already",
                    where=[location],
                    why=f"It is what suffix={suffix!r} makes of the right side's {f.name!r}.",
                    fix=f"give another suffix, or rename it with select() before the {what}",
                    column=name,
                )
        taken.add(name)
        fields.append(Field(name, f.type, f.nullable or may_lack[1]))
    return computed_schema(tuple(fields))


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
