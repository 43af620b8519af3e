"""String functions, which count code points, and byte functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import polars as pl

from penstock.engine.columnar.column_types import NotLowered
from penstock.engine.columnar.lowered_expression import LoweredExpression, Lowering, constant_value
from penstock.expr.types import BYTES, STR
from penstock.expr.typing_rules import CallTerm


def _concat(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    if call.type != STR:
        raise NotLowered("concat() of bytes has no columnar form")
    return LoweredExpression(pl.concat_str([a.value for a in arguments]))


def _length(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    type_ = call.arguments[0].type
    if type_ not in (STR, BYTES):
        raise NotLowered(f"length() of a {type_} has no columnar form")
    text = arguments[0].value
    count = text.str.len_chars() if type_ == STR else text.bin.size()
    return LoweredExpression(count.cast(pl.Int32), (0, 2**31 - 1))


def _found(found: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Lowering:
    def lowering(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
        text, part = arguments
        return LoweredExpression(found(text.value, part.value))

    return lowering


def _trim(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    return LoweredExpression(arguments[0].value.str.strip_chars(" "))


def _cased(cased: Callable[[pl.Expr], pl.Expr]) -> Lowering:
    def lowering(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
        text = arguments[0].value
        # Of other letters Python and Polars may know different editions of Unicode.
        return LoweredExpression(cased(text), None, text.str.len_chars() != text.str.len_bytes())

    return lowering


def _substring(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    start, count = (constant_value(a) for a in call.arguments[1:])
    if not isinstance(start, int) or not isinstance(count, int) or start < 1 or count < 0:
        raise NotLowered("substring() has a columnar form only for a constant start from 1 and a length")
    if call.type != STR:
        raise NotLowered("substring() of bytes has no columnar form")
    return LoweredExpression(arguments[0].value.str.slice(start - 1, count))


LOWERINGS: Mapping[str, Lowering] = {
    "concat": _concat,
    "length": _length,
    "contains": _found(lambda text, part: text.str.contains(part, literal=True)),
    "starts_with": _found(lambda text, part: text.str.starts_with(part)),
    "ends_with": _found(lambda text, part: text.str.ends_with(part)),
    "trim": _trim,
    "upper": _cased(lambda text: text.str.to_uppercase()),
    "lower": _cased(lambda text: text.str.to_lowercase()),
    "substring": _substring,
}
