"""Operators: each defined in one place, with its semantics, facts, examples and form on every engine."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.graph.node import Operator


@cache
def all_operators() -> tuple[type[Operator], ...]:
    """Return all operator classes used in flows, by module and position in it. Imports all modules."""
    from headrace.graph.node import Operator

    found: list[type[Operator]] = []
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        for cls in vars(importlib.import_module(module.name)).values():
            is_own = isinstance(cls, type) and issubclass(cls, Operator) and cls.__module__ == module.name
            if is_own and not inspect.isabstract(cls) and {"kind", "plan_name"} & vars(cls).keys():
                found.append(cls)
    return tuple(found)
