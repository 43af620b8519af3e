"""Functions of Spark in expressions, under Spark's names: `ps.functions.lpad(col.code, 5, "0")`.

Each takes columns, expressions and constants, is null if any of them is (some also otherwise), and means what
Spark means by it, with ANSI on. `dir(ps.functions)` lists them; `help(ps.functions.lpad)` tells one's types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.expr.function_bases import FixedFunction, Parameter
from penstock.expr.functions import CATALOGUE
from penstock.expr.tree import Call, Expr, operand
from penstock.expr.types import DataType

_FUNCTIONS = {name: each for name, each in CATALOGUE.items() if isinstance(each, FixedFunction)}


def __getattr__(name: str) -> Callable[..., Expr]:
    function = _FUNCTIONS.get(name)
    if function is None:
        raise AttributeError(f"module 'penstock.functions' has no attribute {name!r}")
    takes = function.takes

    def call(*arguments: Any) -> Expr:
        if len(arguments) != len(takes):
            raise TypeError(f"{name} takes {len(takes)} arguments, got {len(arguments)}")
        return Call(name, tuple(map(operand, arguments)))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{function.meaning} Takes {', '.join(map(_shown, takes))}."
    globals()[name] = call
    return call


def _shown(parameter: Parameter) -> str:
    wanted = parameter if isinstance(parameter, tuple) else (parameter,)
    return " or ".join(str(want) if isinstance(want, DataType) else "decimal" for want in wanted)


def __dir__() -> list[str]:
    return sorted(_FUNCTIONS)
