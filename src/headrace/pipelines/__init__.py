"""Declarative pipelines of Spark (`pyspark.pipelines`), kept up to date by the changes of their inputs.

A table goes through four stages, each with a record that is complete when the stage ends: a `Dataset` is
what a file defines; a `StoredTable` has its queries analysed by Spark; a `TablePlan` is how it is
maintained; a `TableEntry` is what the last run left in the catalogue. `TableVersions` reads and writes its
rows.

Files of a project import the decorators of expectations from here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.pipelines.expectations import (
        create_streaming_table,
        expect,
        expect_all,
        expect_all_or_drop,
        expect_all_or_fail,
        expect_or_drop,
        expect_or_fail,
    )

__all__ = [
    "create_streaming_table",
    "expect",
    "expect_all",
    "expect_all_or_drop",
    "expect_all_or_fail",
    "expect_or_drop",
    "expect_or_fail",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'headrace.pipelines' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module("headrace.pipelines.expectations"), name)
    return value
