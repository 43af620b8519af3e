"""Lowering of expressions to native Spark columns.

The checked tree is lowered node by node: every conversion is already a node, so Spark makes no typing
decisions. A function's column is in its record (`headrace.expr.functions`). Spark must run in ANSI mode; the
session's time zone does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from headrace.expr.check import checked_tree
from headrace.expr.code_runtime import EPOCH
from headrace.expr.functions.higher_order import VARIABLE, is_function
from headrace.expr.functions.intervals import interval_constant
from headrace.expr.spark_columns import quoted, spark_type
from headrace.expr.types import TIMESTAMP_NTZ
from headrace.expr.typing_rules import CallTerm, ColumnTerm, LiteralTerm, Term

if TYPE_CHECKING:
    from pyspark.sql import Column

    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema


@dataclass(frozen=True, slots=True)
class _Scope:
    """Meaning of names: the prefix of columns, and the columns of variables by their names."""

    prefix: str
    variables: Mapping[object, Column] = field(default_factory=dict[object, "Column"])


def to_column(expr: Expr, schema: Schema, prefix: str = "") -> Column:
    """Lower an expression over `schema` to a column of a DataFrame whose columns are prefixed with `prefix`.

    Raises the errors of `headrace.expr.check.check`.
    """
    return _column(checked_tree(expr, schema), _Scope(prefix))


def _column(term: Term, scope: _Scope) -> Column:
    match term:
        case ColumnTerm(name=name):
            return f.col(quoted(scope.prefix + name))
        case LiteralTerm():
            return _constant(term)
        case CallTerm(function=function) if function is VARIABLE:
            return scope.variables[term.options[0]]
        case CallTerm(function=function):
            arguments = tuple(
                _function(a, scope) if isinstance(a, CallTerm) and is_function(a) else _column(a, scope)
                for a in term.arguments
            )
            assert function.spark is not None
            return function.spark(term, arguments)
        case _:
            raise TypeError(f"not a checked expression: {type(term).__name__}")


def _constant(term: LiteralTerm) -> Column:
    value = term.value
    if isinstance(value, datetime):
        # As microseconds: no zone of this process or of the session has a say.
        if term.type == TIMESTAMP_NTZ:
            return f.expr(f"TIMESTAMP_NTZ'{value.isoformat(' ')}'")
        return f.timestamp_micros(f.lit((value - EPOCH) // timedelta(microseconds=1)).cast("bigint"))
    if isinstance(value, date):
        # As a number of days: java.sql.Date knows a calendar with a gap in 1582.
        return f.date_from_unix_date(f.lit((value - EPOCH.date()).days))
    column = interval_constant(value) if isinstance(value, timedelta) else f.lit(value)
    return column.cast(spark_type(term.type))


def _function(term: CallTerm, scope: _Scope) -> Callable[..., Column]:
    def body(*values: Column) -> Column:
        variables = {**scope.variables, **dict(zip(term.options, values, strict=True))}
        return _column(term.arguments[0], replace(scope, variables=variables))

    # Spark counts the parameters.
    match len(term.options):
        case 1:
            return lambda x: body(x)
        case 2:
            return lambda x, y: body(x, y)
        case _:
            return lambda x, y, z: body(x, y, z)
