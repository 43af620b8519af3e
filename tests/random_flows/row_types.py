"""Random row types: scalars, and `NamedTuple`s of a few columns, some of them nullable or nested."""

from __future__ import annotations

import typing
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from hypothesis import strategies as st

from headrace.expr.types import Float32, Int8, Int16, Int32, TimestampNtz

COLUMNS: tuple[Any, ...] = (int, float, str, bool, datetime, Decimal)


class Nested(NamedTuple):
    """A row within a row.

    Its columns may be null, because `DataFrame.toArrow` of Spark 4.3, which tests use,
    refuses a null struct that has a column without nulls.
    """

    p: int | None
    q: float | None


_RARE: tuple[Any, ...] = (
    date,
    bytes,
    Int8,
    Int16,
    Int32,
    TimestampNtz,
    timedelta,
    Float32,
    Nested,
    list[int],
    list[float | None],
    list[Nested],
)


@st.composite
def row_types(draw: st.DrawFn) -> Any:
    """A row type: a scalar, or a `NamedTuple` of one to four columns."""
    if draw(st.integers(0, 4)) == 0:
        return draw(st.sampled_from(COLUMNS))
    fields: list[tuple[str, Any]] = []
    for name in draw(st.sampled_from(["a", "ab", "ab", "abc", "abcd"])):
        annotation = draw(st.sampled_from((*COLUMNS, int, int, str, *_RARE)))
        fields.append((name, annotation | None if draw(st.booleans()) else annotation))
    return typing.NamedTuple("Drawn", fields)  # type: ignore[misc]
