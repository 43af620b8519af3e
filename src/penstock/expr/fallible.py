"""Whether an expression can raise on some row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.expr.catalogue import Lazy, Strict
from penstock.expr.check import elaborate
from penstock.expr.typed import CallTerm, Term

if TYPE_CHECKING:
    from penstock.expr.tree import Expr
    from penstock.expr.types import Schema


def can_fail(expr: Expr, schema: Schema) -> bool:
    """Whether some row of `schema` makes `expr` raise: overflow, division by zero, a bad cast.

    Raises what `penstock.expr.check.check` raises.
    """
    waiting: list[Term] = [elaborate(expr, schema)]
    while waiting:
        term = waiting.pop()
        if isinstance(term, CallTerm):
            if _fallible(term):
                return True
            waiting.extend(term.arguments)
    return False


def _fallible(call: CallTerm) -> bool:
    function = call.function
    assert isinstance(function, Strict | Lazy)
    fallible = function.fallible
    return fallible(call) if callable(fallible) else fallible
