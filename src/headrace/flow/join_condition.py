"""Planning of joins: split of a condition into keys and a residual.

Users write a condition as one expression: `on=(left.a == right.b) & (left.t <= right.t)`. Equalities between
an expression over the left side and one over the right side become keys; everything else is the residual,
which is evaluated for each pair.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from headrace.errors import HeadraceError, NeedNotMet, UnknownColumn, WrongType, did_you_mean
from headrace.expr.check import check
from headrace.expr.row_classes import computed_schema
from headrace.expr.tree import Call, Column, Expr
from headrace.expr.types import BOOL, Field, Schema, holds_maps
from headrace.operators.column_arguments import render_argument
from headrace.operators.join.join import How, Join

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.errors import SourceLocation


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
    if isinstance(expr, Call) and expr.function == "and":
        for argument in expr.arguments:
            yield from conjuncts(argument)
    else:
        yield expr


def to_pair_columns(expr: Expr, names: dict[tuple[str, str], str], sides: _Sides) -> Expr:
    """Replace the columns of each side with plain columns, named as in `names`."""
    if isinstance(expr, Column):
        return Column(names[sides.side_of(expr), expr.name])
    if isinstance(expr, Call):
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
        residual = renamed if residual is None else Call("and", (residual, renamed))
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
    return [Call("eq", (Column(n, "left"), Column(n, "right"))) for n in names]


def _key_pair(part: Expr, sides: _Sides) -> tuple[Expr, Expr] | None:
    if not (isinstance(part, Call) and part.function == "eq"):
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
