"""Function catalogue, by theme."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from penstock.expr.functions import (
    arithmetic,
    casts,
    comparison,
    hashing,
    logic,
    nested,
    numbers,
    strings,
    time,
)
from penstock.expr.typing_rules import Function

_THEMES = (arithmetic, casts, comparison, hashing, logic, nested, numbers, strings, time)

CATALOGUE: Mapping[str, Function] = MappingProxyType(
    {function.name: function for theme in _THEMES for function in theme.FUNCTIONS}
)
