"""Texts of Python that hold half a character: where bytes are needed, the error says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

import penstock as ps
from penstock import col
from penstock.errors import EvaluationError
from penstock.expr.tree import Call

if TYPE_CHECKING:
    from penstock.expr.tree import Expr


class Text(NamedTuple):
    s: str


HALF = Text("a\ud800")
F = ps.functions


def value(expr: Expr) -> object:
    flow = ps.Flow("texts")
    flow.sink("out", flow.table("texts", Text).select(c=expr))
    (change,) = ps.Engine(flow).tick(texts=[ps.insert(HALF)])["out"]
    return change.row.c


@pytest.mark.parametrize(
    "expr",
    [
        ps.hash(col.s),
        Call("murmur3", (col.s,)),
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
