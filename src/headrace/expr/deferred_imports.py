"""Heavy packages, imported when an attribute of them is first read.

The chapters of `headrace.expr.functions` hold the Polars and Spark forms of functions beside their Python.
`import headrace` imports them all, and must load neither Polars, PyArrow, NumPy nor PySpark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any


class DeferredModule:
    """Stand-in for a module that is imported when an attribute is first read."""

    def __init__(self, name: str) -> None:
        self._module_name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # pickle, doctest and inspect ask any object for these
            raise AttributeError(name)
        found = getattr(import_module(self._module_name), name)
        self.__dict__[name] = found  # read from here the next time
        return found


if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    import pyarrow as pa  # pyright: ignore[reportMissingTypeStubs]
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql import types as spark_types
else:
    np = DeferredModule("numpy")
    pl = DeferredModule("polars")
    pa = DeferredModule("pyarrow")
    F = DeferredModule("pyspark.sql.functions")
    spark_types = DeferredModule("pyspark.sql.types")

__all__ = ["F", "np", "pa", "pl", "spark_types"]
