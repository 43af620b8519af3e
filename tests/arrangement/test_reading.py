"""All rows of some batches are read in parts, each row once."""

from __future__ import annotations

from collections import Counter

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from headrace.arrangement.batch import Layout, batch_of
from headrace.arrangement.reading import all_rows

TYPES = {"0": pl.Int64(), "1": pl.String(), "w": pl.Int64()}
ROW = st.tuples(st.one_of(st.none(), st.integers(0, 3)), st.sampled_from("ab"), st.sampled_from([-1, 1, 2]))


@given(
    st.lists(st.lists(ROW, max_size=12), max_size=4), st.integers(1, 8), st.sampled_from([("0",), ("0", "1")])
)
def test_each_row_is_read_once_with_its_sum(
    given: list[list[tuple[int | None, str, int]]], most: int, keys: tuple[str, ...]
) -> None:
    layout = Layout(TYPES, keys, ("w",), nullable=True)
    batches = [batch_of(layout, pl.DataFrame(rows, schema=TYPES, orient="row")) for rows in given]
    expected: Counter[tuple[int | None, str]] = Counter()
    for rows in given:
        for *row, weight in rows:
            expected[tuple(row)] += weight  # type: ignore[index]
    read = [row for frame in all_rows(layout, batches, most) for row in frame.select(list(TYPES)).rows()]
    found = {row[:-1]: row[-1] for row in read}
    assert len(found) == len(read), "each row once"
    assert found == {row: weight for row, weight in expected.items() if weight}
