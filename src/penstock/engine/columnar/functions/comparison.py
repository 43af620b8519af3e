"""Comparisons. Polars agrees with Spark here: NaN equals NaN and is greater than every number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

import polars as pl

from penstock.engine.columnar.lowered import Lowered, Lowering, either
from penstock.expr.typed import CallTerm


def _compare(compared: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Lowering:
    def lowering(call: CallTerm, arguments: Sequence[Lowered]) -> Lowered:
        one, other = arguments
        return Lowered(compared(one.value, other.value))

    return lowering


def _same(call: CallTerm, arguments: Sequence[Lowered]) -> Lowered:
    one, other = arguments
    return Lowered(one.value.eq_missing(other.value), None, either(one.fails, other.fails))


def _is_in(call: CallTerm, arguments: Sequence[Lowered]) -> Lowered:
    value, *options = arguments
    fails = either(*(a.fails for a in arguments))
    if not options:
        return Lowered(pl.when(value.value.is_not_null()).then(pl.lit(False)), None, fails)
    return Lowered(reduce(lambda a, b: a | b, (value.value == o.value for o in options)), None, fails)


LOWERINGS: Mapping[str, Lowering] = {
    "eq": _compare(lambda a, b: a == b),
    "ne": _compare(lambda a, b: a != b),
    "lt": _compare(lambda a, b: a < b),
    "le": _compare(lambda a, b: a <= b),
    "gt": _compare(lambda a, b: a > b),
    "ge": _compare(lambda a, b: a >= b),
    "eq_null_safe": _same,
    "is_in": _is_in,
}
