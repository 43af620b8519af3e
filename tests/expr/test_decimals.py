"""Decimals are exact whatever the context of the program that uses them."""

from __future__ import annotations

from decimal import Context, Decimal, localcontext

from penstock.expr import decimal_arithmetic
from penstock.expr.types import DecimalType

QUOTIENT = decimal_arithmetic.DecimalSpec.of(DecimalType(38, 17))


def test_a_negative_quotient_has_all_its_digits() -> None:
    top, up, down = Decimal("99999999999999.259999"), Decimal("36.70"), Decimal("-36.70")
    for digits in (28, 3):
        with localcontext(Context(prec=digits)):
            assert str(decimal_arithmetic.divide(top, up, QUOTIENT)) == "2724795640326.95531332425068120"
            assert str(decimal_arithmetic.divide(top, down, QUOTIENT)) == "-2724795640326.95531332425068120"
