"""Checks that optional packages can be imported."""

from __future__ import annotations

from importlib import import_module

from penstock.errors import BadInput, SourceLocation


def require_package(what: str, package: str, extra: str, *where: SourceLocation) -> None:
    """Raise `BadInput` if an extra's package is missing. what: who needs it, as in "sink 'totals'"."""
    try:
        import_module(package)
    except ImportError as error:
        raise BadInput(
            f"{what} needs {package}, which cannot be imported",
            where=where,
            why=str(error),
            fix=f"pip install 'penstock[{extra}]'",
        ) from error


def require_arrow(what: str) -> None:
    """Raise `BadInput` if pyarrow is missing."""
    require_package(what, "pyarrow", "files")
