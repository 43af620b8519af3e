"""Decimals are exact whatever the context of the program that uses them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal, localcontext

from headrace.expr import code_runtime
from headrace.expr.expression_text import fit_number
from headrace.expr.functions.casts import timestamp_of_decimal
from headrace.expr.functions.hashing import MURMUR3
from headrace.expr.functions.intervals import units_of
from headrace.expr.text_casts import number_format
from headrace.expr.types import DecimalType

QUOTIENT = code_runtime.DecimalSpec.of(DecimalType(38, 17))


def test_a_negative_quotient_has_all_its_digits() -> None:
    top, up, down = Decimal("99999999999999.259999"), Decimal("36.70"), Decimal("-36.70")
    for digits in (28, 3):
        with localcontext(Context(prec=digits)):
            assert str(code_runtime.divide(top, up, QUOTIENT)) == "2724795640326.95531332425068120"
            assert str(code_runtime.divide(top, down, QUOTIENT)) == "-2724795640326.95531332425068120"


def test_a_value_has_all_its_digits_where_it_is_hashed_written_or_made_another_type() -> None:
    digits = Decimal("9" * 38)
    with localcontext(Context(prec=3)):
        for value in (digits, digits.copy_negate()):
            assert fit_number(value, DecimalType(38, 0)) == value
            assert Decimal(number_format("S" + "9" * 38).format(value)) == value
            assert MURMUR3.of_type(DecimalType(38, 0))(value, 42) == MURMUR3.of_bytes(
                int(value).to_bytes(16, "big", signed=True), 42
            )
        assert timestamp_of_decimal(Decimal("253402300799.999999999999999999")) == datetime.max.replace(
            tzinfo=UTC
        )
        assert units_of(timedelta(days=1, microseconds=1), 3) == Decimal("86400.000001")
