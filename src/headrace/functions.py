"""Functions of Spark in expressions, under Spark's names: `hr.functions.lpad(col.code, 5, "0")`.

Each takes columns, expressions and constants, is null if any of them is (some also otherwise), and means what
Spark means by it, with ANSI on. Functions of lists such as `transform` take Python functions of expressions,
which are called once: `hr.functions.transform(col.prices, lambda price: price * 2)`. `dir(hr.functions)`
lists them; `help(hr.functions.lpad)` tells one's types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from headrace.expr.constructors import lambda_from
from headrace.expr.function_records import FixedFunction, HigherOrderFunction, Parameter
from headrace.expr.functions import CATALOGUE
from headrace.expr.tree import Expr, FunctionCall, operand
from headrace.expr.types import STR, DataType, as_type
from headrace.expr.typing_rules import Function

_FUNCTIONS = {name: each for name, each in CATALOGUE.items() if each.meaning}


@dataclass(frozen=True, slots=True)
class ComposedFunction:
    """Documentation entry of a Spark function that is composed of other catalogue functions."""

    section: str
    parameters: str
    example: str


COMPOSED: dict[str, ComposedFunction] = {}


def _composed(
    section: str, parameters: str, example: str
) -> Callable[[Callable[..., Expr]], Callable[..., Expr]]:
    def register(build: Callable[..., Expr]) -> Callable[..., Expr]:
        COMPOSED[build.__name__] = ComposedFunction(section, parameters, example)
        return build

    return register


@_composed("Lists", "list or map", "array(1, 2)")
def size(values: Any) -> Expr:
    """Number of elements or entries. Takes a list or a map."""
    return operand(values).length()


@_composed("Lists", "list, element", "array(1, 2), 3")
def array_append(values: Any, value: Any) -> Expr:
    """The list with an element, or null, added at the end. Takes a list and an element."""
    return FunctionCall("array_insert", (operand(values), operand(-1), operand(value)))


@_composed("Lists", "list, element", "array(1, 2), 0")
def array_prepend(values: Any, value: Any) -> Expr:
    """The list with an element, or null, added at the start. Takes a list and an element."""
    return FunctionCall("array_insert", (operand(values), operand(1), operand(value)))


@_composed("Lists", "**lists", "a=array(1, 2), b=array('x', 'y')")
def arrays_zip(**lists: Any) -> Expr:
    """List of structs of elements at equal positions, with nulls where a list is shorter."""
    return FunctionCall("arrays_zip", tuple(map(operand, lists.values())), (tuple(lists),))


@_composed("JSON and CSV", "str, type, mode", "'[1, 2]', list[int]")
def from_json(text: Any, schema: Any, mode: str = "PERMISSIVE") -> Expr:
    """Value of a JSON text. Takes a text, and the row class or type of the value, a struct, list or map.

    What does not fit the type is null, or raises in the mode "FAILFAST".
    """
    return FunctionCall("from_json", (operand(text),), (as_type(schema), mode))


@_composed("Errors", "condition, message", "lit(True)")
def assert_true(condition: Any, message: Any = None) -> Expr:
    """Null if the condition is true; otherwise raises an error. Takes a condition and the error's text."""
    tested = operand(condition)
    shown = f"'{tested}' is not true!" if message is None else message
    failed = FunctionCall("raise_error", (operand(shown),))
    return FunctionCall("when", (tested, FunctionCall("cast", (operand(None),), (STR,)), failed))


@_composed("Text", "str, upper, lower, digit, other", "'Ab 12'")
def mask(
    text: Any,
    upper: str | None = "X",
    lower: str | None = "x",
    digit: str | None = "n",
    other: str | None = None,
) -> Expr:
    """The text with letters and digits replaced. Takes a text, and what replaces each kind; None keeps it."""
    return FunctionCall("mask", (operand(text),), (upper, lower, digit, other))


@_composed("Bytes and encodings", "str, format", "'xyz', 'hex'")
def try_to_binary(text: Any, format: str = "hex") -> Expr:
    """As `to_binary`; null if the text doesn't fit. Takes a text, and hex, base64 or utf-8."""
    return FunctionCall("try_eval", (FunctionCall("to_binary", (operand(text), operand(format))),))


def __getattr__(name: str) -> Callable[..., Expr]:
    return _function_named(name)


# Not by globals: those named as Python's own, such as `map`, would be the ones of this module.
@cache
def _function_named(name: str) -> Callable[..., Expr]:
    function = _FUNCTIONS.get(name)
    if function is None:
        raise AttributeError(f"module 'headrace.functions' has no attribute {name!r}")
    most = function.arity[1]
    least = function.arity[0] - len(function.defaults)

    def call(*arguments: Any) -> Expr:
        if len(arguments) < least or (most is not None and len(arguments) > most):
            raise TypeError(f"{name} takes {_count(least, most)} arguments, got {len(arguments)}")
        given = (*arguments, *function.defaults[max(len(arguments) - least, 0) :])
        return FunctionCall(name, tuple(_operand(function, each) for each in given))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{function.meaning} Takes {parameters_of(function)}."
    return call


def _operand(function: Function, given: Any) -> Expr:
    if isinstance(function, HigherOrderFunction) and callable(given) and not isinstance(given, Expr):
        return lambda_from(given, function.most_variables, function.name)
    return operand(given)


def _count(least: int, most: int | None) -> str:
    return str(least) if least == most else f"{least} to {most}" if most is not None else f"{least} or more"


def parameters_of(function: Function) -> str:
    """Return the parameters of a function as documentation shows them, with their defaults."""
    if function.shown_parameters:
        shown = function.shown_parameters.split(", ")
    elif isinstance(function, FixedFunction):
        shown = list(map(_shown, function.takes))
    else:
        return f"{_count(*function.arity)} arguments"
    first = len(shown) - len(function.defaults)
    return ", ".join(
        each if at < first else f"{each} = {function.defaults[at - first]!r}" for at, each in enumerate(shown)
    )


def _shown(parameter: Parameter) -> str:
    wanted = parameter if isinstance(parameter, tuple) else (parameter,)
    return " or ".join(str(want) if isinstance(want, DataType) else "decimal" for want in wanted)


def __dir__() -> list[str]:
    return sorted((*_FUNCTIONS, *COMPOSED))
