"""Comparison of two tables as multisets of rows, in DuckDB."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb

FLOAT_TOLERANCE = 1e-6


def difference(
    db: duckdb.DuckDBPyConnection, left: str, right: str, tolerances: Mapping[str, float] | None = None
) -> str | None:
    """Say in what two relations of a FROM clause differ; None if in nothing.

    Columns are matched by name. Rows are compared by their number and the sum of their hashes; of columns of
    floats, and those in `tolerances`, the sums are compared, which may differ by a part of that size.
    """
    types, others = _types(db, left), _types(db, right)
    if types.keys() != others.keys():
        return f"columns {sorted(types)} and {sorted(others)}"
    loose = {name: FLOAT_TOLERANCE for name, type in types.items() if type in ("FLOAT", "DOUBLE")}
    loose |= tolerances or {}
    exact = [_text(name, type) for name, type in types.items() if name not in loose]
    sums = [f'sum("{name}")' for name in loose]
    asked = ", ".join(["count(*)", f"sum(hash({', '.join(exact) or 'NULL'})::HUGEINT)", *sums])
    ours, theirs = (db.execute(f"SELECT {asked} FROM {each}").fetchall()[0] for each in (left, right))
    if ours[0] != theirs[0]:
        return f"{ours[0]:,} rows and {theirs[0]:,}"
    if ours[1] != theirs[1]:
        return f"other values in {', '.join(name for name in types if name not in loose)}"
    for (name, tolerance), a, b in zip(loose.items(), ours[2:], theirs[2:], strict=True):
        if not _close(a, b, tolerance):
            return f"sums of {name}: {a} and {b}"
    return None


def _types(db: duckdb.DuckDBPyConnection, relation: str) -> dict[str, str]:
    return {name: type for name, type, *_ in db.execute(f"DESCRIBE FROM {relation}").fetchall()}


def _text(name: str, type: str) -> str:
    # A moment may be stored with a time zone or without one, a number in more or fewer bits.
    return f'CAST(epoch_us("{name}") AS TEXT)' if type.startswith("TIMESTAMP") else f'CAST("{name}" AS TEXT)'


def _close(a: Any, b: Any, tolerance: float) -> bool:
    if a is None or b is None:
        return a is b
    return math.isclose(a, b, rel_tol=tolerance)
