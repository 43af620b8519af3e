"""Expressions as people write them, for messages and `explain`."""

from __future__ import annotations

from datetime import timedelta
from functools import singledispatch

from penstock.expr.durations import short
from penstock.expr.tree import Call, Column, Expr, Literal
from penstock.expr.types import DataType

# Strength as in Python, so that the text can be written back as it stands.
_INFIX = {
    "eq": ("==", 1),
    "ne": ("!=", 1),
    "lt": ("<", 1),
    "le": ("<=", 1),
    "gt": (">", 1),
    "ge": (">=", 1),
    "or": ("|", 2),
    "and": ("&", 3),
    "add": ("+", 5),
    "subtract": ("-", 5),
    "multiply": ("*", 6),
    "divide": ("/", 6),
    "div": ("//", 6),
    "modulo": ("%", 6),
}
_PREFIX = {"not": ("~", 7), "negate": ("-", 7)}
_ATOM = 9
_COMPARISON = 1
_ASSOCIATIVE = ("|", "&")


def text(expr: Expr) -> str:
    """The expression on one line, with brackets only where they are needed."""
    return _render(expr)[0]


def constant_text(value: object) -> str:
    """A value as it is written in Python; an integer that is longer than any column's by its size alone.

    Python refuses to write out integers of thousands of digits.
    """
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"an integer of {value.bit_length():,} bits"
    return repr(value)


_MOST_BITS = 256


@singledispatch
def _render(expr: Expr) -> tuple[str, int]:
    raise TypeError(f"not an expression: {type(expr).__name__}")


@_render.register(Column)
def _column(expr: Column) -> tuple[str, int]:
    return (f"{expr.side}.{expr.name}" if expr.side else expr.name), _ATOM


@_render.register(Literal)
def _literal(expr: Literal) -> tuple[str, int]:
    value = expr.value
    if isinstance(value, timedelta):
        return short(value), _ATOM
    if value is None:
        return "null", _ATOM
    return (constant_text(value) if type(value) in (int, str, bytes) else str(value)), _ATOM


@_render.register(Call)
def _call(expr: Call) -> tuple[str, int]:
    if expr.function in _INFIX and len(expr.arguments) == 2:
        symbol, strength = _INFIX[expr.function]
        left, right = expr.arguments
        on_left = strength + (1 if strength == _COMPARISON else 0)
        on_right = strength + (0 if symbol in _ASSOCIATIVE else 1)
        return f"{_bracketed(left, on_left)} {symbol} {_bracketed(right, on_right)}", strength
    if expr.function in _PREFIX:
        symbol, strength = _PREFIX[expr.function]
        return f"{symbol}{_bracketed(expr.arguments[0], strength)}", strength
    if expr.function == "shift":
        (span,) = expr.options
        assert isinstance(span, timedelta)
        sign, shown = ("-", -span) if span < timedelta() else ("+", span)
        return f"{_bracketed(expr.arguments[0], 5)} {sign} {short(shown)}", 5
    if expr.function == "field":
        return f"{_bracketed(expr.arguments[0], _ATOM)}.{expr.options[0]}", _ATOM
    shown_options = [_option(o) for o in expr.options]
    return f"{expr.function}({', '.join([*(text(a) for a in expr.arguments), *shown_options])})", _ATOM


def _bracketed(expr: Expr, strength: int) -> str:
    shown, own = _render(expr)
    return f"({shown})" if own < strength else shown


def _option(option: object) -> str:
    if isinstance(option, timedelta):
        return short(option)
    return str(option) if isinstance(option, DataType | int) else repr(option)
