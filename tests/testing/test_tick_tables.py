"""A tick table that is wrong says so, and so does one that an engine does not keep to."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace import col
from headrace.testing import InProcess, check_ticks
from headrace.testing.tick_tables import read_table


class Item(NamedTuple):
    name: str
    price: float | None


def items(flow: hr.Flow) -> hr.Stream[Any, Any, Any, Any]:
    return flow.table("items", Item).filter(col.price > 1)


def check(table: str) -> None:
    check_ticks(InProcess(), items, table)


def test_cells_are_read_by_the_types_of_the_columns() -> None:
    flow = hr.Flow("read")
    flow.sink("out", items(flow))
    [first, second] = read_table(
        flow,
        """
        tick | items                        | out
        1    | 'two words' 1e3; -2 ann null | +3 x nan
        2    |                              |
    """,
    )
    assert first.inputs["items"] == [
        hr.Change(Item("two words", 1000.0), 1),
        hr.Change(Item("ann", None), -2),
    ]
    [(row, weight)] = first.outputs["out"].items()
    assert row[0] == "x"
    assert row[1] != row[1]
    assert weight == 3
    assert second.inputs == {"items": []}


def test_a_table_holds_where_the_engine_keeps_to_it() -> None:
    check("""
        tick | items      | out
        1    | a 2; b 1   | + a 2
        2    | - a 2      | - a 2
    """)


@pytest.mark.parametrize(
    ("out", "complaint"),
    [
        ("+ a 3", "tick 1, sink 'out': expected"),
        ("", "tick 1, sink 'out': unexpected"),
        ("- a 2", "tick 1, sink 'out': expected"),
        ("+2 a 2", "tick 1, sink 'out': expected"),
        ("+ a 2; + c 2", "tick 1, sink 'out': expected"),
    ],
)
def test_an_answer_that_the_table_does_not_show_is_named(out: str, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check(f"""
            tick | items | out
            1    | a 2   | {out}
        """)


def test_a_column_that_the_flow_does_not_have_is_an_error() -> None:
    with pytest.raises(ValueError, match="no source and no sink 'itms'"):
        check("tick | itms | out")


def test_a_sink_without_a_column_is_an_error() -> None:
    with pytest.raises(ValueError, match="no column for the sinks"):
        check("tick | items")


def test_a_cell_that_is_no_row_is_an_error() -> None:
    with pytest.raises(ValueError, match="'a' is no row"):
        check("""
            tick | items | out
            1    | a     |
        """)
