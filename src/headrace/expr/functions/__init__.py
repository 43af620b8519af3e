"""Function catalogue: the records of the modules in this package."""

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
    encodings,
    formatting,
    from_json,
    hashing,
    higher_order,
    instants,
    intervals,
    json,
    logic,
    maps,
    mathematics,
    nested,
    null_on_error,
    numbers,
    rounding,
    string_parts,
    string_search,
    strings,
    time,
    time_formats,
)
from headrace.expr.typing_rules import Function

CHAPTERS: Mapping[str, tuple[Function, ...]] = {
    "Numbers": (
        *arithmetic.FUNCTIONS,
        *numbers.DIVISIONS,
        *numbers.FUNCTIONS,
        *rounding.FUNCTIONS,
        *mathematics.FUNCTIONS,
        *mathematics.BIT_FUNCTIONS,
    ),
    "Text": (
        *strings.FUNCTIONS,
        *string_parts.BUILDING_FUNCTIONS,
        *string_parts.FUNCTIONS,
        *string_search.FUNCTIONS,
        *formatting.FUNCTIONS,
    ),
    "Regular expressions": string_search.REGULAR_EXPRESSIONS,
    "Bytes and encodings": (*encodings.FUNCTIONS, *hashing.FUNCTIONS),
    "Dates and times": (
        *time.FUNCTIONS,
        *calendar.FUNCTIONS,
        *instants.FUNCTIONS,
        *time_formats.FUNCTIONS,
        *intervals.FUNCTIONS,
    ),
    "Lists": (*arrays.FUNCTIONS, *nested.ELEMENT_FUNCTIONS),
    "Maps": maps.FUNCTIONS,
    "Functions of elements and entries": (*higher_order.FUNCTIONS, *maps.ENTRY_FUNCTIONS),
    "JSON and CSV": (*json.FUNCTIONS, *from_json.FUNCTIONS, *json.CSV_FUNCTIONS),
    "Errors": (*logic.FUNCTIONS, *null_on_error.FUNCTIONS),
    "Comparisons, casts and structs": (*comparison.FUNCTIONS, *casts.FUNCTIONS, *nested.FUNCTIONS),
}
"""Records, by the section of the documentation that shows those with a meaning."""

CATALOGUE: Mapping[str, Function] = MappingProxyType(
    {function.name: function for functions in CHAPTERS.values() for function in functions}
)

_MODULES = (
    arithmetic,
    numbers,
    rounding,
    mathematics,
    strings,
    string_parts,
    string_search,
    formatting,
    encodings,
    hashing,
    time,
    calendar,
    instants,
    time_formats,
    intervals,
    arrays,
    nested,
    maps,
    higher_order,
    json,
    from_json,
    logic,
    null_on_error,
    comparison,
    casts,
)

NAMES: Mapping[str, Any] = {
    **{name: value for module in _MODULES for name, value in getattr(module, "NAMES", {}).items()},
    **{name: value for function in CATALOGUE.values() for name, value in function.runtime.items()},
}
"""Names that the generated code of the functions uses."""
