"""Function catalogue, by theme."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from penstock.expr.functions import (
    arithmetic,
    calendar,
    casts,
    comparison,
    encodings,
    formatting,
    hashing,
    logic,
    mathematics,
    nested,
    numbers,
    regular_expressions,
    strings,
    texts,
    time,
    time_formats,
)
from penstock.expr.typing_rules import Function

_THEMES = (
    arithmetic,
    calendar,
    casts,
    comparison,
    encodings,
    formatting,
    hashing,
    logic,
    mathematics,
    nested,
    numbers,
    regular_expressions,
    strings,
    texts,
    time,
    time_formats,
)

CATALOGUE: Mapping[str, Function] = MappingProxyType(
    {function.name: function for theme in _THEMES for function in theme.FUNCTIONS}
)
