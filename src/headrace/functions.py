"""Functions of Spark in expressions, under Spark's names: `hr.functions.lpad(col.code, 5, "0")`.

Each takes columns, expressions and constants, is null if any of them is (some also otherwise), and means what
Spark means by it, with ANSI on. Functions of lists such as `transform` take Python functions of expressions,
which are called once: `hr.functions.transform(col.prices, lambda price: price * 2)`. `dir(hr.functions)`
lists them; `help(hr.functions.lpad)` tells one's types.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from headrace.expr.annotations import as_type
from headrace.expr.function_bases import FixedFunction, HigherOrderFunction, Parameter
from headrace.expr.functions import CATALOGUE
from headrace.expr.lambdas import lambda_from
from headrace.expr.tree import Call, Expr, operand
from headrace.expr.types import STR, DataType
from headrace.expr.typing_rules import Function

_FUNCTIONS = {name: each for name, each in CATALOGUE.items() if each.meaning}


def size(values: Any) -> Expr:
    """Number of elements or entries. Takes a list or a map."""
    return operand(values).length()


def array_append(values: Any, value: Any) -> Expr:
    """The list with an element, or null, added at the end. Takes a list and an element."""
    return Call("array_insert", (operand(values), operand(-1), operand(value)))


def array_prepend(values: Any, value: Any) -> Expr:
    """The list with an element, or null, added at the start. Takes a list and an element."""
    return Call("array_insert", (operand(values), operand(1), operand(value)))


def arrays_zip(**lists: Any) -> Expr:
    """List of structs of elements at equal positions, with nulls where a list is shorter."""
    return Call("arrays_zip", tuple(map(operand, lists.values())), (tuple(lists),))


def from_json(text: Any, schema: Any, mode: str = "PERMISSIVE") -> Expr:
    """Value of a JSON text. Takes a text, and the row class or type of the value, a struct, list or map.

    What does not fit the type is null, or raises in the mode "FAILFAST".
    """
    return Call("from_json", (operand(text),), (as_type(schema), mode))


def assert_true(condition: Any, message: Any = None) -> Expr:
    """Null if the condition is true; otherwise raises an error. Takes a condition and the error's text."""
    tested = operand(condition)
    shown = f"'{tested}' is not true!" if message is None else message
    failed = Call("raise_error", (operand(shown),))
    return Call("when", (tested, Call("cast", (operand(None),), (STR,)), failed))


def mask(
    text: Any,
    upper: str | None = "X",
    lower: str | None = "x",
    digit: str | None = "n",
    other: str | None = None,
) -> Expr:
    """The text with letters and digits replaced. Takes a text, and what replaces each kind; None keeps it."""
    return Call("mask", (operand(text),), (upper, lower, digit, other))


def try_to_binary(text: Any, format: str = "hex") -> Expr:
    """As `to_binary`; null if the text doesn't fit. Takes a text, and hex, base64 or utf-8."""
    return Call("try_eval", (Call("to_binary", (operand(text), operand(format))),))


_OTHERS = (
    *("array_append", "array_prepend", "arrays_zip", "assert_true", "from_json", "mask", "size"),
    "try_to_binary",
)


def __getattr__(name: str) -> Callable[..., Expr]:
    return _function_named(name)


# Not by globals: those named as Python's own, such as `map`, would be the ones of this module.
@cache
def _function_named(name: str) -> Callable[..., Expr]:
    function = _FUNCTIONS.get(name)
    if function is None:
        raise AttributeError(f"module 'headrace.functions' has no attribute {name!r}")
    least, most = function.arity

    def call(*arguments: Any) -> Expr:
        if len(arguments) < least or (most is not None and len(arguments) > most):
            raise TypeError(f"{name} takes {_count(least, most)} arguments, got {len(arguments)}")
        return Call(name, tuple(_operand(function, each) for each in arguments))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{function.meaning} Takes {_taken(function)}."
    return call


def _operand(function: Function, given: Any) -> Expr:
    if isinstance(function, HigherOrderFunction) and callable(given) and not isinstance(given, Expr):
        return lambda_from(given, function.most_variables, function.name)
    return operand(given)


def _count(least: int, most: int | None) -> str:
    return str(least) if least == most else f"{least} to {most}" if most is not None else f"{least} or more"


def _taken(function: Function) -> str:
    if isinstance(function, FixedFunction):
        return ", ".join(map(_shown, function.takes))
    return f"{_count(*function.arity)} arguments"


def _shown(parameter: Parameter) -> str:
    wanted = parameter if isinstance(parameter, tuple) else (parameter,)
    return " or ".join(str(want) if isinstance(want, DataType) else "decimal" for want in wanted)


def __dir__() -> list[str]:
    return sorted((*_FUNCTIONS, *_OTHERS))
