"""Rendering of expressions as text, for messages and `explain`.

Rendered parts carry how strongly they bind, so that brackets appear only where they are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TypeAlias, cast

from headrace.expr.durations import format_duration
from headrace.expr.types import DataType

Rendered: TypeAlias = tuple[str, int]
"""Text and its binding strength."""

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
ATOM = 9
_COMPARISON = 1
_ASSOCIATIVE = ("|", "&")
_MOST_BITS = 256


def constant_text(value: object) -> str:
    """Render a value as Python source. Integers longer than any column's are shown by size.

    Python refuses to format integers of thousands of digits.
    """
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"an integer of {value.bit_length():,} bits"
    return repr(value)


def literal_text(value: object) -> str:
    """Render the constant `value` as shown in expressions."""
    if isinstance(value, timedelta):
        return format_duration(value)
    if value is None:
        return "null"
    return constant_text(value) if type(value) in (int, str, bytes) else str(value)


def call_text(function: str, arguments: Sequence[Rendered], options: tuple[object, ...]) -> Rendered:
    """Render a call with rendered arguments, as an operator if the function has a symbol."""
    if function in _INFIX and len(arguments) == 2:
        symbol, strength = _INFIX[function]
        left, right = arguments
        on_left = strength + (1 if strength == _COMPARISON else 0)
        on_right = strength + (0 if symbol in _ASSOCIATIVE else 1)
        return f"{_bracketed(left, on_left)} {symbol} {_bracketed(right, on_right)}", strength
    if function in _PREFIX:
        symbol, strength = _PREFIX[function]
        return f"{symbol}{_bracketed(arguments[0], strength)}", strength
    if function == "shift":
        (span,) = options
        assert isinstance(span, timedelta)
        sign, shown = ("-", -span) if span < timedelta() else ("+", span)
        return f"{_bracketed(arguments[0], 5)} {sign} {format_duration(shown)}", 5
    if function == "variable":
        return str(options[0]), ATOM
    if function == "lambda":
        names = cast("tuple[str, ...]", options[0])
        return f"lambda {', '.join(names)}: {arguments[0][0]}", 0
    if function == "field":
        return f"{_bracketed(arguments[0], ATOM)}.{options[0]}", ATOM
    shown_options = [_option(o) for o in options]
    return f"{function}({', '.join([*(text for text, _ in arguments), *shown_options])})", ATOM


def _bracketed(part: Rendered, strength: int) -> str:
    text, own = part
    return f"({text})" if own < strength else text


def _option(option: object) -> str:
    if isinstance(option, timedelta):
        return format_duration(option)
    return str(option) if isinstance(option, DataType | int) else repr(option)
