"""Checks that optional packages can be imported."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from headrace.errors import BadInput, SourceLocation

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
    """Return the error that names the extra of a missing package; None if no extra brings the package.

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
