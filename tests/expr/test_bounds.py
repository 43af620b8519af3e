"""In bounded code, no function makes a value above the limits."""

from __future__ import annotations

from headrace.expr import bounds
from headrace.expr.compile_python import CodeScope, value_source
from headrace.expr.functions import CATALOGUE
from headrace.expr.functions import NAMES as USUAL
from headrace.expr.row_classes import schema_of
from headrace.expr.tree import Column, FunctionCall, Literal


def test_bounded_code_replaces_names_that_there_are() -> None:
    assert bounds.NAMES.keys() - {"x_sized"} <= USUAL.keys()


def test_results_are_checked_unless_a_record_says_otherwise() -> None:
    scope = CodeScope(schema_of(str), ("text",), {}, bounded=True)
    assert value_source(Column("value").upper(), scope).startswith("x_sized(")
    assert "x_sized" not in value_source(Column("value").length(), scope)
    assert CATALOGUE["left"].keeps_size
    assert value_source(FunctionCall("left", (Column("value"), Literal(2))), scope) == "text[:max(2, 0)]"
