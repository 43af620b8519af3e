"""Converters from what users give a source to internal rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeAlias

from penstock.engine.change import Change
from penstock.engine.signals.row_values import rows_of_signal
from penstock.expr.row_classes import from_user
from penstock.expr.row_conversion import from_trusted
from penstock.flow.operators.keyed_source import KeyedSource
from penstock.flow.operators.signals.signal_source import SignalSource
from penstock.flow.operators.source import Source

Rows: TypeAlias = "list[tuple[Any, ...]]"
Intake: TypeAlias = "Callable[[Iterable[Any]], Rows]"


def source_intake(operator: object, append: bool, trusted: bool) -> Intake:
    """Create the function from user input to internal rows. It raises `BadRow`."""
    if isinstance(operator, SignalSource):
        return rows_of_signal(operator)
    assert isinstance(operator, Source)
    what = f"source {operator.name!r}"
    if isinstance(operator, KeyedSource):
        # Imported here, so that flows without such tables need not load it.
        from penstock.engine.keyed_intake import KeyedIntake

        return KeyedIntake(operator.keyed, what, trusted)
    make = from_trusted if trusted else partial(from_user, what=what)
    return make(operator.schema, change=None if append else Change)
