"""Conversions that nobody wrote: a term as the type that a rule asks for."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from penstock.expr.catalogue import Mismatch
from penstock.expr.functions.casts import CAST
from penstock.expr.literals import fitted
from penstock.expr.typed import NULL, CallTerm, LiteralTerm, Term
from penstock.expr.types import DataType, DecimalType, Float64Type

_EXACT_FROM = (int, Decimal)


def converted(term: Term, wanted: DataType) -> Term:
    """`term` as `wanted`: constants at once, everything else by a cast. Raises `Mismatch`."""
    if term.type == wanted:
        return term
    if isinstance(term, LiteralTerm):
        if term.value is None:
            return replace(term, type=wanted, adapts=False)
        value = fitted(term.value, wanted)
        if value is not None:
            return LiteralTerm(wanted, False, value)
        if isinstance(wanted, Float64Type) and isinstance(term.value, _EXACT_FROM):
            return LiteralTerm(wanted, False, float(term.value))
    signature = CAST.rule((term,), (wanted,))
    if term.type == NULL or (
        isinstance(term.type, DecimalType) and not isinstance(wanted, DecimalType | Float64Type)
    ):
        raise Mismatch(f"{term.type} is no {wanted}")
    return CallTerm(wanted, bool(signature.nullable) or term.nullable, CAST, (term,), (wanted,))
