"""Function catalogue, by theme."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from headrace.expr.functions import (
    arithmetic,
    arrays,
    calendar,
    casts,
    comparison,
    csv,
    encodings,
    formatting,
    from_json,
    hashing,
    higher_order,
    intervals,
    json,
    logic,
    maps,
    mathematics,
    nested,
    null_on_error,
    numbers,
    regular_expressions,
    strings,
    time,
    time_formats,
)
from headrace.expr.typing_rules import Function

_THEMES = (
    arithmetic,
    arrays,
    calendar,
    casts,
    comparison,
    csv,
    encodings,
    formatting,
    from_json,
    hashing,
    higher_order,
    intervals,
    json,
    logic,
    maps,
    mathematics,
    nested,
    null_on_error,
    numbers,
    regular_expressions,
    strings,
    time,
    time_formats,
)

NAMES: Mapping[str, Any] = {
    name: value for theme in _THEMES for name, value in getattr(theme, "NAMES", {}).items()
}
"""Names that the generated code of the functions uses."""

CATALOGUE: Mapping[str, Function] = MappingProxyType(
    {function.name: function for theme in _THEMES for function in theme.FUNCTIONS}
)
