"""Conversions that nobody wrote: a term as the type that a rule asks for."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import cast

from penstock.expr.catalogue import Mismatch
from penstock.expr.functions.casts import CAST
from penstock.expr.literals import fitted
from penstock.expr.typed import NULL, CallTerm, LiteralTerm, Term
from penstock.expr.types import DataType, DecimalType, Float64Type


def as_constant(term: LiteralTerm, wanted: DataType) -> LiteralTerm | None:
    """The constant as `wanted`; None where that would be another value."""
    if term.value is None or term.type == wanted:
        return replace(term, type=wanted, adapts=False)
    value = fitted(term.value, wanted)
    if value is not None:
        return LiteralTerm(wanted, False, value)
    is_exact = isinstance(term.value, int | Decimal) and not isinstance(term.value, bool)
    if isinstance(wanted, Float64Type) and is_exact:
        return LiteralTerm(wanted, False, float(cast("int | Decimal", term.value)))
    return None


def converted(term: Term, wanted: DataType) -> Term:
    """`term` as `wanted`: constants at once, everything else by a cast. Raises `Mismatch`."""
    if term.type == wanted:
        return term
    if isinstance(term, LiteralTerm):
        constant = as_constant(term, wanted)
        if constant is not None:
            return constant
    signature = CAST.rule((term,), (wanted,))
    narrows = isinstance(term.type, DecimalType) and not isinstance(wanted, DecimalType | Float64Type)
    if term.type == NULL or narrows:
        raise Mismatch(f"{term.type} is no {wanted}")
    return CallTerm(wanted, bool(signature.nullable) or term.nullable, CAST, (term,), (wanted,))
