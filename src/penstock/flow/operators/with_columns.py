"""With-columns: a select that keeps all other columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.expr.tree import Column, Expr
from penstock.flow.operators.select import Select

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.expr.types import Schema


def with_columns(schema: Schema, columns: Mapping[str, Expr]) -> Select:
    """Replace existing columns and append new ones.

    All expressions see the row as it came in.

    >>> from penstock import col
    >>> from penstock.testing import show
    >>> show(lambda numbers: numbers.with_columns(half=col.value / 2), numbers=[1])
    + (value=1, half=0.5)
    """
    kept = [(name, columns.get(name, Column(name))) for name in schema.names]
    added = [(name, expr) for name, expr in columns.items() if name not in schema.names]
    return Select(tuple(kept + added))
