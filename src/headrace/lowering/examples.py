"""Examples of operators: flows from two streams of pairs, which every engine is held to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias


class Pair(NamedTuple):
    """Row of the examples' streams."""

    a: int
    b: int | None


Examples: TypeAlias = Mapping[str, Callable[[Any, Any], Any]]
"""Flows that show an operator, by a label: functions of an append stream and a table of `Pair`s.

Tick tables, random flows, plans and the pages of the documentation are made from them.
"""
