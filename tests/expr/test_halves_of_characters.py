"""Texts of Python that hold half a character: where bytes are needed, the error says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

import headrace as hr
from headrace import col
from headrace.errors import EvaluationError
from headrace.expr.tree import FunctionCall

if TYPE_CHECKING:
    from headrace.expr.tree import Expr


class Text(NamedTuple):
    s: str


HALF = Text("a\ud800")
F = hr.functions


def value(expr: Expr) -> object:
    flow = hr.Flow("texts")
    flow.sink("out", flow.table("texts", Text).select(c=expr))
    (change,) = hr.Engine(flow).tick(texts=[hr.insert(HALF)])["out"]
    return change.row.c


@pytest.mark.parametrize(
    "expr",
    [
        hr.hash(col.s),
        FunctionCall("murmur3", (col.s,)),
        F.octet_length(col.s),
        col.s.cast(bytes),
        F.hex(col.s),
    ],
    ids=str,
)
def test_what_needs_its_bytes_raises(expr: Expr) -> None:
    with pytest.raises(EvaluationError, match="half of a character"):
        value(expr)


def test_it_is_not_valid_and_can_be_made_so() -> None:
    assert value(F.is_valid_utf8(col.s)) is False
    assert value(F.try_validate_utf8(col.s)) is None
    assert value(F.is_valid_utf8(F.make_valid_utf8(col.s))) is True
    with pytest.raises(EvaluationError, match="is not UTF-8"):
        value(F.validate_utf8(col.s))
