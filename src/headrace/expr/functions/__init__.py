"""Function catalogue: the records of the chapters beside this file."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, ModuleType
from typing import Any

from headrace.expr.functions import (
    arithmetic,
    array_elements,
    arrays,
    bits,
    calendar,
    casts,
    comparison,
    csv,
    division,
    encodings,
    entry_functions,
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
    regular_expressions,
    rounding,
    string_building,
    string_parts,
    string_search,
    strings,
    time,
    time_formats,
)
from headrace.expr.typing_rules import Function

CHAPTERS: Mapping[str, tuple[ModuleType, ...]] = {
    "Numbers": (arithmetic, division, numbers, rounding, mathematics, bits),
    "Text": (strings, string_building, string_parts, string_search, formatting),
    "Regular expressions": (regular_expressions,),
    "Bytes and encodings": (encodings, hashing),
    "Dates and times": (time, calendar, instants, time_formats, intervals),
    "Lists": (arrays, array_elements),
    "Maps": (maps,),
    "Functions of elements and entries": (higher_order, entry_functions),
    "JSON and CSV": (json, from_json, csv),
    "Errors": (logic, null_on_error),
    "Comparisons, casts and structs": (comparison, casts, nested),
}
"""Modules with records, by the section of the documentation that shows those with a meaning."""

_MODULES = tuple(module for modules in CHAPTERS.values() for module in modules)

CATALOGUE: Mapping[str, Function] = MappingProxyType(
    {function.name: function for module in _MODULES for function in module.FUNCTIONS}
)

NAMES: Mapping[str, Any] = {
    **{name: value for module in _MODULES for name, value in getattr(module, "NAMES", {}).items()},
    **{name: value for function in CATALOGUE.values() for name, value in function.runtime.items()},
}
"""Names that the generated code of the functions uses."""
