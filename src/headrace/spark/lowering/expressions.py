"""Lowering of expressions to native Spark columns.

The checked tree is lowered node by node: every conversion is already a node, so Spark makes no typing
decisions. `SPARK` maps each catalogue function to its column, by name; the themes are in `value_functions`,
`array_functions` and `time_functions`. Spark must run in ANSI mode; the session's time zone does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from functools import singledispatch
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from headrace.expr.check import checked_tree
from headrace.expr.code_runtime import EPOCH
from headrace.expr.functions.higher_order import VARIABLE, is_function
from headrace.expr.spark_columns import spark_type
from headrace.expr.types import TIMESTAMP_NTZ
from headrace.expr.typing_rules import CallTerm, ColumnTerm, LiteralTerm, Term
from headrace.spark.lowering.array_functions import ARRAYS
from headrace.spark.lowering.json_functions import JSON
from headrace.spark.lowering.time_functions import TIME, interval_constant
from headrace.spark.lowering.value_functions import VALUES

if TYPE_CHECKING:
    from pyspark.sql import Column

    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema

SPARK: Mapping[str, Callable[[CallTerm, tuple[Any, ...]], Column]] = {
    **VALUES,
    **ARRAYS,
    **JSON,
    **TIME,
}
"""Lowerings of the catalogue functions: from argument columns to the column of the call.

An argument that is a function comes as a Python function of columns. "lambda" and "variable" have none.
"""


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


@singledispatch
def _column(term: Term, scope: _Scope) -> Column:
    raise TypeError(f"not a checked expression: {type(term).__name__}")


@_column.register(ColumnTerm)
def _named(term: ColumnTerm, scope: _Scope) -> Column:
    quoted = (scope.prefix + term.name).replace("`", "``")
    return F.col(f"`{quoted}`")


@_column.register(LiteralTerm)
def _constant(term: LiteralTerm, scope: _Scope) -> Column:
    value = term.value
    if isinstance(value, datetime):
        # As microseconds: no zone of this process or of the session has a say.
        if term.type == TIMESTAMP_NTZ:
            return F.expr(f"TIMESTAMP_NTZ'{value.isoformat(' ')}'")
        return F.timestamp_micros(F.lit((value - EPOCH) // timedelta(microseconds=1)).cast("bigint"))
    if isinstance(value, date):
        # As a number of days: java.sql.Date knows a calendar with a gap in 1582.
        return F.date_from_unix_date(F.lit((value - EPOCH.date()).days))
    column = interval_constant(value) if isinstance(value, timedelta) else F.lit(value)
    return column.cast(spark_type(term.type))


@_column.register(CallTerm)
def _call(term: CallTerm, scope: _Scope) -> Column:
    if term.function is VARIABLE:
        return scope.variables[term.options[0]]
    arguments = tuple(
        _function(a, scope) if isinstance(a, CallTerm) and is_function(a) else _column(a, scope)
        for a in term.arguments
    )
    return SPARK[term.function.name](term, arguments)


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
