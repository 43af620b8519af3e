"""Functions that raise, and those that are null where others raise.

Where a function might raise, the tick runs in rows, whether the error would be raised or give null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl

from headrace.engine.columnar.functions import arithmetic, casts
from headrace.expr.functions import CATALOGUE
from headrace.expr.polars_columns import (
    LoweredExpression,
    Lowering,
    dtype_of,
    either_condition,
    unscaled_bounds,
)
from headrace.expr.typing_rules import CallTerm

Arguments = Sequence[LoweredExpression]
_FUNCTIONS: Mapping[str, Lowering] = {**arithmetic.LOWERINGS, **casts.LOWERINGS}
_TRIED = ("add", "subtract", "multiply", "divide", "modulo", "cast")


def _tried(name: str) -> Lowering:
    def lowering(call: CallTerm, arguments: Arguments) -> LoweredExpression:
        made = _FUNCTIONS[name](replace(call, function=CATALOGUE[name]), arguments)
        return replace(made, fails=either_condition(*(a.fails for a in arguments), made.fails))

    return lowering


def _raised(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    bounds = None if unscaled_bounds(call.type) is None else (0, 0)
    return LoweredExpression(pl.lit(None, dtype=dtype_of(call.type)), bounds, pl.lit(True))


def _only(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    value, count = arguments
    several = either_condition(value.fails, count.fails, count.value > 1)
    return replace(value, fails=several)


LOWERINGS: Mapping[str, Lowering] = {
    **{f"try_{name}": _tried(name) for name in _TRIED},
    "try_eval": lambda call, arguments: arguments[0],
    "raise_error": _raised,
    "only_row": _only,
}
