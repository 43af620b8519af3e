"""Expressions and schemas that travel by themselves: conditions of peeks, columns of collections."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import col, lit
from headrace.compute.errors import BadPlan, MessageTooLarge
from headrace.compute.plans import (
    PlanLimits,
    decode_expr,
    encode_expr,
    predicate_of,
    schema_from_bytes,
    schema_to_bytes,
)
from headrace.errors import EvaluationError, UnknownColumn
from headrace.expr.compile_python import compile_rows
from headrace.expr.functions import CATALOGUE
from headrace.expr.row_classes import from_user, schema_of
from headrace.expr.tree import Expr
from headrace.expr.types import Schema
from headrace.testing.strategies import rows
from tests.compute.plans.test_round_trip import Bid
from tests.golden import MESSAGES, assert_golden
from tests.properties.effort import examples
from tests.random_flows.expressions import column_types, expressions, predicates
from tests.random_flows.row_types import row_types

BID = schema_of(Bid)


@st.composite
def drawn(draw: st.DrawFn) -> tuple[Schema, Expr, Expr, list[Any]]:
    schema = schema_of(draw(row_types()))
    expr = draw(expressions(schema, draw(st.sampled_from(column_types(schema)))))
    given_rows = draw(st.lists(rows(schema), max_size=4))
    return schema, expr, draw(predicates(schema)), from_user(schema, what="rows")(given_rows)


@examples(1)
@given(drawn())
def test_any_expression_and_any_schema_come_back(case: tuple[Schema, Expr, Expr, list[Any]]) -> None:
    schema, expr, condition, given_rows = case
    assert schema_from_bytes(schema_to_bytes(schema)) == schema
    octets = encode_expr(expr, schema)
    again = decode_expr(octets, schema)
    assert again.same(expr) or str(again) == str(expr)
    assert encode_expr(again, schema) == octets
    holds, expected = predicate_of(encode_expr(condition, schema), schema), compile_rows((condition,), schema)
    for row in given_rows:
        assert outcome(holds, row) == outcome(lambda row: expected(row)[0], row)


def outcome(function: Any, row: Any) -> Any:
    try:
        return function(row)
    except EvaluationError:
        return EvaluationError


def test_a_condition_is_true_false_or_null() -> None:
    dear = predicate_of(encode_expr(col.price > 1.5, BID), BID)
    assert [dear((1, price, "who")) for price in (2.0, 1.0, None)] == [True, False, None]


def test_what_is_no_condition_over_the_rows_is_refused() -> None:
    with pytest.raises(BadPlan, match="not true or false"):
        predicate_of(encode_expr(col.price * 2, BID), BID)
    with pytest.raises(BadPlan, match="no column 'price'"):
        predicate_of(encode_expr(col.price > 1.5, BID), schema_of(int))
    with pytest.raises(BadPlan) as error:
        predicate_of(b"\xff\xff", BID)
    assert_golden(MESSAGES / "bad_plan.txt", f"{error.value}\n")
    with pytest.raises(MessageTooLarge):
        decode_expr(encode_expr(col.price > 1.5, BID), BID, limits=PlanLimits(size=3))


def test_spans_beyond_64_bits_of_microseconds_are_refused() -> None:
    longest = timedelta(microseconds=2**63 - 1)
    for function in ("shift", "tumble"):
        assert CATALOGUE[function].accepts(1, (longest,))
        assert not CATALOGUE[function].accepts(1, (longest + timedelta(microseconds=1),))


def test_an_expression_that_does_not_fit_the_rows_is_not_encoded() -> None:
    with pytest.raises(UnknownColumn):
        encode_expr(col.nobody == lit(1), BID)
