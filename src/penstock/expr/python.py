"""Expressions as Python source, to be inlined in generated functions."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate, count
from typing import TYPE_CHECKING, Any

from penstock.errors import SourceLocation, WrongType
from penstock.expr import decimals, formatting, keys, parsing, runtime, xxhash64
from penstock.expr.check import elaborate
from penstock.expr.emit import Emitter
from penstock.expr.functions import CATALOGUE, arithmetic, casts, nested, numbers, strings, time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.expr.tree import Expr
    from penstock.expr.types import DataType, Schema

__all__ = ["CATALOGUE", "RUNTIME", "Scope", "compile_rows", "key", "key_of", "lower", "predicate"]

_MODULES = (
    decimals,
    formatting,
    keys,
    parsing,
    runtime,
    xxhash64,
    arithmetic,
    casts,
    nested,
    numbers,
    strings,
    time,
)

RUNTIME: dict[str, Any] = {name: value for module in _MODULES for name, value in module.NAMES.items()}
"""The names that generated code may use; all start with `x_`."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Where generated source stands.

    variables: column i of `schema` is in the Python variable `variables[i]`.
    constants: gets the values that source cannot spell, under fresh names; the
               generated code must see them, and `RUNTIME`, as globals.

    Temporaries are named `x_1`, `x_2`, ... and assigned where they are used; a
    source may stand in a comprehension or a lambda, but not in the iterable of
    a comprehension.
    """

    schema: Schema
    variables: tuple[str, ...]
    constants: dict[str, object]
    _numbers: Iterator[int] = field(default_factory=lambda: count(1), repr=False, compare=False)

    def fresh(self) -> str:
        """A name for a temporary."""
        return f"x_{next(self._numbers)}"

    def constant(self, value: object) -> str:
        """The name of a constant; equal names for the same object."""
        for name, known in self.constants.items():
            if known is value:
                return name
        name = f"x_c{len(self.constants)}"
        self.constants[name] = value
        return name


def lower(expr: Expr, scope: Scope) -> str:
    """Source of the value; None where it is null, NaN always the one NaN.

    Raises what `penstock.expr.check.check` raises.
    """
    return _not_too_deep(Emitter(scope).value(elaborate(expr, scope.schema)), expr)


def predicate(expr: Expr, scope: Scope) -> str:
    """Source that is truthy exactly where a bool expression is true."""
    return _not_too_deep(Emitter(scope).true(elaborate(expr, scope.schema)), expr)


def key(expr: Expr, scope: Scope) -> str:
    """Source of the value as a dictionary key: what Spark groups together is equal."""
    return _not_too_deep(Emitter(scope).key(elaborate(expr, scope.schema)), expr)


# Python reads 200 nested brackets; some are left to the code around.
_BRACKETS = 160


def _not_too_deep(source: str, expr: Expr) -> str:
    if source.count("(") > _BRACKETS:
        depth = max(accumulate((c == "(") - (c == ")") for c in source))
        if depth > _BRACKETS:
            raise WrongType(
                f"an expression is nested too deeply: {str(expr)[:60]}...",
                where=[SourceLocation.of_caller()],
                why="The Python code that it becomes has more nested brackets than Python reads.",
                fix="compute a part of it first, in with_columns()",
            )
    return source


def key_of(type: DataType, nullable: bool, source: str, scope: Scope | None = None) -> str:
    """The same for a source whose value is already a row's value of `type`."""

    def name(source: str) -> tuple[str, str]:
        if source.isidentifier():
            return source, source
        fresh = scope.fresh() if scope is not None else "x_k"
        return f"({fresh} := {source})", fresh

    return keys.key_of(type, nullable, source, name)


def compile_rows(exprs: tuple[Expr, ...], schema: Schema) -> Any:
    """A function from an internal row to the tuple of the values: for tests and small jobs."""
    variables = tuple(f"c{at}" for at in range(len(schema.fields)))
    scope = Scope(schema, variables, {})
    values = "".join(f"{lower(e, scope)}, " for e in exprs)
    unpack = f"    {''.join(f'{v}, ' for v in variables)}= row\n" if variables else ""
    names: dict[str, Any] = {**RUNTIME, **scope.constants}
    exec(f"def compute(row):\n{unpack}    return ({values})\n", names)
    return names["compute"]
