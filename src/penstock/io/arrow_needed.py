"""Parquet needs pyarrow, which a bare installation does not have."""

from __future__ import annotations

from penstock.errors import BadInput


def need_arrow(what: str) -> None:
    """Raises `BadInput` if pyarrow is not installed. `what` needs it: "sink 'totals'"."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise BadInput(
            f"{what} needs pyarrow, which cannot be imported",
            why=str(error),
            fix="pip install 'penstock[files]'",
        ) from error
