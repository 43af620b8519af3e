"""Errors for uses of Python that ask an expression for its value, which only rows have."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from headrace.errors import ExpressionTruthValue, SourceLocation, WrongType
from headrace.expr.missing_attributes import MethodGuesses

_ELSEWHERE = {
    "alias": "name it by keyword: select(total=hr.col.price * 2)",
    "isin": "did you mean .is_in(...)?",
    "astype": "did you mean .cast(...)?",
    "isna": "did you mean .is_null()?",
    "isnull": "did you mean .is_null()?",
    "startswith": "did you mean .starts_with(...)?",
    "endswith": "did you mean .ends_with(...)?",
    "strip": "did you mean .trim()?",
    "sum": "group_by(...).agg(total=hr.sum(hr.col.price))",
    "count": "group_by(...).agg(rows=hr.count())",
    "mean": "group_by(...).agg(mean=hr.mean(hr.col.price))",
    "apply": "functions of whole rows go to stream.map(function)",
    "fillna": "hr.coalesce(hr.col.price, 0)",
}


_OPERATORS = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "truediv",
    "remainder": "mod",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
    "equal": "eq",
    "not_equal": "ne",
    "bitwise_and": "and_",
    "bitwise_or": "or_",
}
"""Python's operators by NumPy's names."""


class ValueMisuse(MethodGuesses):
    """Base of expressions: Python's own functions and statements are refused."""

    __slots__ = ()
    _what = "an expression"
    _elsewhere = _ELSEWHERE
    _other_fix = "functions are in headrace.functions; functions of whole rows go to stream.map(function)"

    def __bool__(self) -> NoReturn:
        raise ExpressionTruthValue(
            "an expression has no truth value while the flow is being built",
            where=[SourceLocation.of_caller()],
            why="`and`, `or`, `not`, `if` and `in` ask for one; so does a chained comparison.",
            fix="use `&`, `|`, `~`, `hr.when(...)`, `.is_in(...)`, `.between(...)`",
        )

    def __iter__(self) -> Iterator[Any]:
        raise WrongType(
            f"an expression cannot be iterated: {self}",
            where=[SourceLocation.of_caller()],
            why="It has no values until the flow runs.",
            fix="aggregate the rows of a group by hr.sum(...), hr.max(...) and the like, not by Python's own",
        )

    def __contains__(self, value: object) -> bool:
        raise ExpressionTruthValue(
            "`in` asks for a truth value, which an expression does not have",
            where=[SourceLocation.of_caller()],
            fix="use .contains(...)",
        )

    def __len__(self) -> int:
        raise self._unknown_value("has no length", ".length()")

    def __int__(self) -> int:
        raise self._unknown_value("is not a number", ".cast(int)")

    def __float__(self) -> float:
        raise self._unknown_value("is not a number", ".cast(float)")

    def __round__(self, digits: int = 0) -> NoReturn:
        raise self._unknown_value("is not a number", f".round({digits})")

    if not TYPE_CHECKING:  # type checkers find it by themselves

        def __array_ufunc__(self, ufunc: Any, method: str, *of: Any, **_options: Any) -> Any:
            """Called by NumPy: its operators make expressions, its functions are refused."""
            compute = getattr(operator, _OPERATORS.get(ufunc.__name__, ""), None)
            if compute is not None and method == "__call__":
                return compute(*(each if isinstance(each, ValueMisuse) else each.tolist() for each in of))
            raise WrongType(
                f"numpy.{ufunc.__name__} cannot take an expression",
                where=[SourceLocation.of_caller()],
                why="It has no value until the flow runs.",
                fix="headrace.functions has functions of columns, such as hr.functions.log(hr.col.price)",
            )

    def _unknown_value(self, problem: str, method: str) -> WrongType:
        return WrongType(
            f"an expression {problem} while the flow is being built: {self}",
            where=[SourceLocation.of_caller()],
            why="It has no value until the flow runs.",
            fix=f"use the method {method}, which makes an expression again",
        )
