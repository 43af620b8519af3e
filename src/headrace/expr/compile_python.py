"""Compilation of expressions to Python source that can be inlined in generated functions."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

from headrace.errors import SourceLocation, WrongType
from headrace.expr import bounds, code_runtime, decimal_arithmetic, dict_keys, text_casts
from headrace.expr.check import checked_tree
from headrace.expr.code_emission import is_bounded
from headrace.expr.functions import CATALOGUE, NAMES
from headrace.expr.python_emitter import PythonEmitter, Scope

if TYPE_CHECKING:
    from headrace.expr.tree import Expr
    from headrace.expr.types import DataType, Schema

__all__ = [
    "CATALOGUE",
    "RUNTIME",
    "Scope",
    "compile_rows",
    "dict_key_source",
    "key_of",
    "predicate_source",
    "runtime_names",
    "value_source",
]

RUNTIME: dict[str, Any] = {
    **decimal_arithmetic.NAMES,
    **dict_keys.NAMES,
    **code_runtime.NAMES,
    **text_casts.NAMES,
    **NAMES,
}
"""Names that generated code may use, all starting with `x_`."""


BOUNDED_RUNTIME: dict[str, Any] = {**RUNTIME, **bounds.NAMES}


def runtime_names(*, bounded: bool) -> dict[str, Any]:
    """Return the names that generated code may use, other than its own."""
    return BOUNDED_RUNTIME if bounded else RUNTIME


def value_source(expr: Expr, scope: Scope) -> str:
    """Return source of the value: None for null, NaN canonical.

    Raises like `headrace.expr.check.check`.
    """
    return _not_too_deep(PythonEmitter(scope).value(checked_tree(expr, scope.schema)), expr)


def predicate_source(expr: Expr, scope: Scope) -> str:
    """Return source that is truthy exactly if a bool expression is true."""
    return _not_too_deep(PythonEmitter(scope).truth_test(checked_tree(expr, scope.schema)), expr)


def dict_key_source(expr: Expr, scope: Scope) -> str:
    """Return source of the value as a dictionary key, equal for values that Spark groups together."""
    return _not_too_deep(PythonEmitter(scope).key(checked_tree(expr, scope.schema)), expr)


# Python parses 200 nested brackets, some of which are reserved for the surrounding code.
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
    """Return source of the dictionary key for `source`, which yields an internal value of `type`."""

    def name(source: str) -> tuple[str, str]:
        if source.isidentifier():
            return source, source
        fresh = scope.fresh() if scope is not None else "x_k"
        return f"({fresh} := {source})", fresh

    return dict_keys.dict_key_source(type, nullable, source, name)


def compile_rows(exprs: tuple[Expr, ...], schema: Schema) -> Any:
    """Compile expressions to a function from an internal row to the tuple of their values."""
    variables = tuple(f"c{at}" for at in range(len(schema.fields)))
    scope = Scope(schema, variables, {})
    values = "".join(f"{value_source(e, scope)}, " for e in exprs)
    unpack = f"    {''.join(f'{v}, ' for v in variables)}= row\n" if variables else ""
    names: dict[str, Any] = {**runtime_names(bounded=is_bounded()), **scope.constants}
    exec(f"def compute(row):\n{unpack}    return ({values})\n", names)
    return names["compute"]
