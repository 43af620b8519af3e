"""The examples of functions, which their records hold: calls with constants."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import headrace as hr
from headrace.expr.functions import CATALOGUE
from headrace.expr.tree import Expr, operand

_NAMES = {name: getattr(hr, name) for name in ("array", "concat", "date", "lit", "struct", "timestamp")}


def value_of(text: str) -> Any:
    """Evaluate a text in which an example is written."""
    functions = {name: getattr(hr.functions, name) for name in dir(hr.functions)}
    return eval(text, {**functions, **_NAMES, "Decimal": Decimal, "hr": hr})


def arguments_of(name: str) -> tuple[Expr, ...]:
    """The arguments of a function's example, without functions among them."""
    given = value_of(f"({CATALOGUE[name].example},)")
    return tuple(map(operand, given))


WITH_VALUES = sorted(
    name for name, function in CATALOGUE.items() if function.example and "lambda" not in function.example
)
"""Functions whose examples have values for arguments, and no functions."""
