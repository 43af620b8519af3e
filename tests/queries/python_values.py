"""Descriptions of what functions of pandas get: types and values, to the last part."""

from __future__ import annotations

from typing import Any

import pandas as pd


def shown(value: Any) -> str:
    """A cell of a series, with the types of all its parts."""
    kind = f"{type(value).__name__} {getattr(value, 'dtype', '')}"
    if isinstance(value, dict):
        return f"{kind} { {key: shown(item) for key, item in value.items()} }"
    if isinstance(value, str | bytes) or not hasattr(value, "__len__"):
        return f"{kind} {value!r}"
    return f"{kind} {list(map(shown, value))}"


def shown_columns(*columns: Any) -> list[str]:
    """For each row its cells, with the types of their columns: series, or for structs frames."""
    parts = [part for column in columns for part in _series(column)]
    kinds = [(type(column).__name__, list(getattr(column, "columns", ()))) for column in columns]
    dtypes = [str(part.dtype) for part in parts]
    rows = zip(*([part.iloc[at] for at in range(len(part))] for part in parts), strict=True)
    return [f"{kinds} {dtypes} {list(map(shown, row))}" for row in rows]


def _series(column: Any) -> list[pd.Series]:
    if isinstance(column, pd.DataFrame):
        return [column.iloc[:, at] for at in range(len(column.columns))]
    return [column]
