"""Optional and heavy packages: import checks, and lazy imports."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headrace.errors import BadInput, SourceLocation

__all__ = [
    "F",
    "np",
    "pa",
    "pl",
    "spark_types",
]

_EXTRAS = {
    "deltalake": "delta",
    "google": "serve",
    "grpc": "serve",
    "hypothesis": "dev",
    "pandas": "spark",
    "pg8000": "postgres",
    "prometheus_client": "metrics",
    "py4j": "spark",
    "pyspark": "spark",
    "re2": "serve",
    "rich": "cli",
    "starlette": "ui",
    "uvicorn": "ui",
    "yaml": "pipelines",
}
"""The extra that brings each optional package, by the name under which it is imported."""


def require_package(what: str, package: str, extra: str, *where: SourceLocation) -> None:
    """Raise `BadInput` if an extra's package is missing. what: who needs it, as in "sink 'totals'"."""
    try:
        import_module(package)
    except ImportError as error:
        raise _missing(what, package, extra, error, *where) from error


def import_attribute(module: str, name: str, extra: str, what: str) -> Any:
    """Return an attribute of one of Headrace's modules.

    Raises `BadInput` if an optional package that it imports is missing. extra: brings all that it needs.
    what: who needs it, as in "headrace.spark.run".
    """
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        missing = missing_extra(error, what, extra)
        if missing is None:
            raise
        raise missing from error


def missing_extra(error: ModuleNotFoundError, what: str, extra: str | None = None) -> BadInput | None:
    """Return the error naming the extra that provides a missing package; None if no extra does.

    extra: to be named instead of the package's own.
    """
    package = (error.name or "").partition(".")[0]
    if package not in _EXTRAS:
        return None
    shown = "protobuf" if package == "google" else package
    return _missing(what, shown, extra or _EXTRAS[package], error)


def _missing(what: str, package: str, extra: str, error: ImportError, *where: SourceLocation) -> BadInput:
    return BadInput(
        f"{what} needs {package}, which cannot be imported",
        where=where,
        why=str(error),
        fix=f"pip install 'headrace[{extra}]'",
    )


class LazyModule:
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
    np = LazyModule("numpy")
    pl = LazyModule("polars")
    pa = LazyModule("pyarrow")
    F = LazyModule("pyspark.sql.functions")
    spark_types = LazyModule("pyspark.sql.types")
