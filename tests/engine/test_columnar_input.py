"""Rows and frames on their way into columns and out: the same rows, and the same refusals."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, make_dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.engine import row_intake
from headrace.engine.change import SinkChanges
from headrace.errors import BadInput, BadRow, EvaluationError, UserFunctionFailed
from headrace.expr.types import DecimalType, Float32, Int8, Int16, Int32, TimestampNtz
from tests.properties.effort import examples

pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")


NOON = datetime(2001, 9, 11, 12, 34, 56, 789012, UTC)
NAN = float("nan")


class Item(NamedTuple):
    name: str
    price: float
    count: int | None


@dataclass
class Reading:
    at: datetime
    day: date
    raw: bytes
    ok: bool
    small: Int32
    money: Annotated[Decimal, DecimalType(10, 2)]


READING = Reading(NOON, date(1, 1, 1), b"\xff", True, 7, Decimal("1.50"))


def passing(
    row: Any, *, table: bool = False, columnar: Any = "always", columnar_rows: Any = None
) -> hr.Engine:
    """An engine whose one sink shows what its one source is given."""
    flow = hr.Flow("passing")
    flow.sink("out", flow.table("rows", row) if table else flow.source("rows", row))
    return hr.Engine(flow, columnar=columnar, columnar_rows=columnar_rows)


def told(engine: hr.Engine, rows: Any) -> object:
    """The changes, or the refusal as text."""
    try:
        return repr(list(engine.tick(rows=rows)["out"]))
    except BadRow as error:
        return str(error)


def in_columns(changes: SinkChanges[Any]) -> bool:
    """Whether a tick left its output in columns."""
    return not isinstance(changes._made, list)  # type: ignore[attr-defined]


ODD = st.sampled_from(
    [None, True, 0, 1, -1, 2**31, 2**63, 1.5, -0.0, NAN, "a", "\ud800", b"a", NOON, NOON.replace(tzinfo=None)]
)
FIELDS = {"name": st.text(max_size=3), "price": st.floats(), "count": st.none() | st.integers(-3, 3)}
ITEMS = st.builds(Item, **FIELDS)
ODD_ITEMS = st.one_of(
    ITEMS,
    ITEMS.map(tuple),
    ITEMS.map(lambda item: item._asdict()),
    st.tuples(FIELDS["name"], FIELDS["price"] | ODD, FIELDS["count"] | ODD),
    st.tuples(ODD, ODD),
    ODD,
)


@examples(0.6)
@given(st.lists(ITEMS, max_size=5), st.lists(ODD_ITEMS, max_size=2))
def test_a_list_is_taken_or_refused_as_in_rows(right: list[Any], odd: list[Any]) -> None:
    rows = [*right, *odd]
    assert told(passing(Item), rows) == told(passing(Item, columnar="never"), rows)


@examples(0.3)
@given(st.lists(st.one_of(ITEMS, st.builds(hr.Change, ITEMS, st.integers(-2, 2) | ODD)), max_size=5))
def test_a_list_of_changes_is_taken_or_refused_as_in_rows(rows: list[Any]) -> None:
    in_rows = passing(Item, table=True, columnar="never")
    assert told(passing(Item, table=True), rows) == told(in_rows, rows)


@pytest.mark.parametrize(
    "row",
    [
        bool,
        int,
        Int8,
        Int16,
        Int32,
        Float32,
        TimestampNtz,
        float,
        str,
        bytes,
        date,
        datetime,
        Decimal,
        int | None,
    ],
)
@examples(0.2)
@given(values=st.lists(ODD, max_size=3))
def test_a_list_of_bare_values_is_taken_or_refused_as_in_rows(row: Any, values: list[Any]) -> None:
    assert told(passing(row), values) == told(passing(row, columnar="never"), values)


@pytest.mark.parametrize("row", [bool, int, Int8, Int32, float, str, bytes, int | None])
@examples(0.2)
@given(values=st.lists(ODD, max_size=3))
def test_a_list_of_bare_values_that_is_put_into_columns_is_taken_or_refused_as_in_rows(
    row: Any, values: list[Any]
) -> None:
    def computing(columnar: Any) -> hr.Engine:
        flow = hr.Flow("computing")
        rows = flow.source("rows", row)
        flow.sink("out", rows.select(x=col.value, y=col.value.is_null()))
        flow.sink("counts", rows.group_by("value").agg(n=hr.count()))
        return hr.Engine(flow, columnar=columnar, columnar_rows=1)

    assert told(computing("auto"), values) == told(computing("never"), values)


@pytest.mark.parametrize(("row", "values"), [(int, [1, 2]), (str, ["a", "b"])])
def test_a_long_list_of_bare_values_is_computed_in_columns(row: Any, values: list[Any]) -> None:
    flow = hr.Flow("computing")
    flow.sink("out", flow.source("rows", row).filter(col.value > values[0]))
    engine = hr.Engine(flow, columnar_rows=2)
    assert in_columns(engine.tick(rows=values)["out"])
    assert not in_columns(engine.tick(rows=values[1:])["out"])
    assert list(engine.tick(rows=values)["out"]) == [hr.insert(values[1])]


def test_a_long_list_that_nothing_computes_on_in_columns_stays_rows() -> None:
    assert not in_columns(passing(int, columnar="auto", columnar_rows=1).tick(rows=[1, 2])["out"])


@pytest.mark.parametrize(("listed", "expected"), [(3, True), (5, False)])
def test_a_tick_of_which_most_rows_come_in_lists_runs_in_rows(listed: int, expected: bool) -> None:
    flow = hr.Flow("both")
    flow.sink("out", flow.source("framed", Item).union(flow.source("listed", Item)).filter(col.price > 0))
    frame = pl.DataFrame({"name": ["a"] * 4, "price": [1.5] * 4, "count": [None, 1, 2, 3]})
    made = hr.Engine(flow, columnar_rows=1).tick(framed=frame, listed=[Item("b", 2.5, 1)] * listed)["out"]
    assert in_columns(made) is expected
    assert len(made) == 4 + listed


@pytest.mark.parametrize("columnar", ["always", "auto", "never"])
def test_a_frame_gives_the_rows_that_it_holds(columnar: Any) -> None:
    rows = [Item("a", 1.5, None), Item("ä", NAN, 3)]
    frame = pl.DataFrame(rows, schema=["name", "price", "count"], orient="row").select(
        "count", "name", "price"
    )
    for given_as in (frame, frame.to_arrow()):
        assert told(passing(Item, columnar=columnar), given_as) == repr([hr.insert(row) for row in rows])


def test_every_type_of_column_comes_back_as_it_went() -> None:
    readings = [READING, Reading(NOON - timedelta(days=700_000), date.max, b"", False, -7, Decimal("0.00"))]
    engine = passing(Reading)
    assert [change.row for change in engine.tick(rows=readings)["out"]] == readings
    frame = engine.tick(rows=readings)["out"].frame()
    assert frame.schema["at"] == pl.Datetime("us", "UTC")
    assert [change.row for change in engine.tick(rows=frame)["out"]] == readings
    assert [change.row for change in engine.tick(rows=frame.to_arrow())["out"]] == readings


@pytest.mark.parametrize(
    ("frame", "fault"),
    [
        ({"name": ["a"], "price": [1.0]}, None),
        ({"name": ["a"], "prize": [1.0], "count": [1]}, "no column 'price', but an unknown column 'prize'"),
        ({"name": [None], "price": [1.0], "count": [1]}, "'name' must be str, got None"),
        ({"name": ["a"], "price": ["x"], "count": [1]}, "'price' must be float64, got str 'x'"),
        ({"name": ["a"], "price": [1], "count": [2**63]}, "'count' must be int64 or None"),
        ({"name": ["a"], "price": [1], "count": [2]}, None),
    ],
)
@pytest.mark.parametrize("columnar", ["always", "never"])
def test_a_frame_with_other_columns_is_refused_as_rows_are(
    columnar: Any, frame: Any, fault: str | None
) -> None:
    data = pl.DataFrame(frame, strict=False)
    if fault is None:
        assert len(passing(Item, columnar=columnar).tick(rows=data)["out"]) == 1
        return
    with pytest.raises(BadRow, match=fault):
        passing(Item, columnar=columnar).tick(rows=data)


@pytest.mark.parametrize(
    ("row", "series"),
    [
        (Int32, pl.Series([2**31])),
        (Int8, pl.Series([128])),
        (Int16, pl.Series([-(2**15) - 1])),
        (datetime, pl.Series([NOON.replace(tzinfo=None)])),
        (TimestampNtz, pl.Series([NOON])),
        (str, pl.Series([1])),
        (bool, pl.Series([1])),
        (int, pl.Series([True])),
    ],
)
def test_a_frame_of_values_of_another_type_is_refused(row: Any, series: Any) -> None:
    with pytest.raises(BadRow):
        passing(row).tick(rows=series.to_frame("value"))


@pytest.mark.parametrize(
    ("row", "values"),
    [
        (int, [1, 2**63 - 1]),
        (int, [1, 2**63]),
        (int | None, [1, None]),
        (int, [1, None]),
        (Int32, [1, 2**31]),
        (Int8, [1, 128]),
        (float, [1.5, NAN]),
        (float | None, [None, -0.0]),
        (datetime, [NOON, NOON.replace(year=1)]),
        (datetime | None, [NOON, None]),
        (TimestampNtz | None, [NOON.replace(tzinfo=None), None]),
        (TimestampNtz, [NOON]),
        (date, [date.max, date.min]),
        (bytes, [b"", b"a"]),
        (str, ["ä", ""]),
        (str, [1, 2]),
        (list[int], [[1], [2]]),
    ],
)
@pytest.mark.parametrize("table", [False, True])
def test_a_frame_checked_by_its_columns_is_taken_or_refused_as_its_rows_are(
    row: Any, values: list[Any], table: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = pl.DataFrame({"value": values * 50}, strict=False)
    answers: list[Any] = []
    for checked in (1, sys.maxsize):
        monkeypatch.setattr(row_intake, "CHECKED_IN_COLUMNS", checked)
        for given_as in (frame, frame.to_arrow()):
            engine = passing(row, columnar="never", table=table)
            answers.append(told(engine, given_as))
            if "BadRow" not in answers[-1]:
                engine.feed(rows=given_as)
                answers.append(repr(list(engine.run_tick()["out"])))
    assert len(set(answers)) == 1


def test_moments_of_another_zone_come_as_utc() -> None:
    there = datetime(2001, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    frame = pl.DataFrame({"value": [there]}).with_columns(pl.col("value").dt.convert_time_zone("Asia/Tokyo"))
    (change,) = passing(datetime).tick(rows=frame)["out"]
    assert change.row == there
    assert change.row.tzinfo is UTC


@pytest.mark.parametrize("columnar", ["always", "never"])
def test_a_frame_of_a_table_may_have_weights(columnar: Any) -> None:
    frame = pl.DataFrame({"value": [1, 2, 3], "weight": [2, -1, 0]})
    engine = passing(int, table=True, columnar=columnar)
    out = engine.tick(rows=frame)["out"]
    assert list(out) == [hr.Change(1, 2), hr.Change(2, -1)]
    assert out.frame().rows() == [(1, 2), (2, -1)]
    assert list(engine.tick(rows=frame.select("value"))["out"]) == [hr.insert(n) for n in (1, 2, 3)]


def test_changes_in_columns_are_the_sequence_that_changes_in_rows_are() -> None:
    frame = pl.DataFrame({"value": range(10)})
    changes = passing(int).tick(rows=frame)["out"]
    assert isinstance(changes, SinkChanges)
    assert len(changes) == 10
    assert changes[3] == hr.insert(3)
    assert changes[-2:] == [hr.insert(8), hr.insert(9)]
    assert changes == [hr.insert(n) for n in range(10)]
    assert changes.raw[0] == (0, 1)


def test_changes_that_cannot_stand_in_columns_say_so() -> None:
    class Nested(NamedTuple):
        parts: list[int]

    changes = passing(Nested).tick(rows=[([1],)])["out"]
    with pytest.raises(BadInput, match="cannot stand in columns"):
        changes.frame()


def test_rows_of_a_run_stay_rows() -> None:
    assert passing(int).tick_rows({"rows": [(1,), (2,)]}) == {"out": [(1,), (2,)]}


def test_what_was_fed_is_ticked_like_what_is_given() -> None:
    engine = passing(int)
    engine.feed(rows=pl.DataFrame({"value": [1, 2]}))
    assert list(engine.run_tick()["out"]) == [hr.insert(1), hr.insert(2)]


@pytest.mark.parametrize(
    "expr", [col.value * col.value, 1 / col.value, col.value // (col.value - 3)], ids=str
)
def test_a_row_that_fails_is_told_as_in_rows(expr: Any) -> None:
    messages: list[str] = []
    for columnar in ("always", "never"):
        flow = hr.Flow("fails")
        flow.sink("out", flow.source("rows", int).select(made=expr).group_by().agg(count=hr.count(col.made)))
        engine = hr.Engine(flow, columnar=columnar)  # type: ignore[arg-type]
        with pytest.raises(EvaluationError) as caught:
            engine.tick(rows=[1, 2, 3, 2**40, 0])
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_a_row_that_is_filtered_out_does_not_fail() -> None:
    flow = hr.Flow("guarded")
    kept = flow.source("rows", int).filter(col.value != 0).select(inverse=1 / col.value)
    flow.sink("out", kept.group_by().agg(least=hr.min(col.inverse)))
    (change,) = hr.Engine(flow, columnar="always").tick(rows=[0, 2, 4])["out"]
    assert change.row.least == 0.25


def test_a_sum_beyond_int64_fails_as_in_rows() -> None:
    flow = hr.Flow("sum")
    flow.sink("out", flow.source("rows", int).group_by().agg(total=hr.sum(col.value)))
    engine = hr.Engine(flow, columnar="always")
    engine.tick(rows=[2**62, -5])
    with pytest.raises(EvaluationError, match="int64") as caught:
        engine.tick(rows=[2**62, 5])
    assert caught.value.operator == "aggregate_1"
    assert "test_columnar_input.py" in str(caught.value)


def test_sums_that_pass_beyond_int64_and_come_back_are_exact() -> None:
    flow = hr.Flow("sum")
    flow.sink("out", flow.source("rows", int).group_by().agg(total=hr.sum(col.value)))
    (change,) = hr.Engine(flow, columnar="always").tick(rows=[2**63 - 1, 2**63 - 1, -(2**63), -(2**63)])[
        "out"
    ]
    assert change.row.total == -2


def test_small_ticks_between_large_ones_see_the_same_state() -> None:
    flow = hr.Flow("join")
    flow.sink("out", flow.source("a", Item).join(flow.source("b", Item), on="name", suffix="_b"))
    in_rows, on_frames = hr.Engine(flow, columnar="never"), hr.Engine(flow, columnar_rows=50)
    for size in (100, 1, 80, 3, 200, 60, 2):
        items = [Item(str(at % 7), float(size), at) for at in range(size)]
        wanted = in_rows.tick(a=items, b=items[: size // 2])["out"]
        made = on_frames.tick(a=items, b=items[: size // 2])["out"]
        assert sorted(wanted.raw) == sorted(made.raw)


def test_polars_is_not_imported_for_small_ticks() -> None:
    script = """
import sys, headrace as hr
flow = hr.Flow("numbers")
flow.sink("out", flow.source("n", int))
hr.Engine(flow).tick(n=[1, 2, 3])
hr.run(flow, {"n": [1, 2, 3]}, {"out": print})
assert "polars" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(("option", "value"), [("columnar", "sometimes"), ("columnar_rows", 0)])
def test_what_is_no_choice_is_refused(option: str, value: Any) -> None:
    with pytest.raises(BadInput, match=f"{option}="):
        passing(int, **{option: value})


def test_a_constant_counts_once_per_row() -> None:
    flow = hr.Flow("constants")
    rows = flow.source("rows", int)
    flow.sink("sum", rows.group_by().agg(total=hr.sum(hr.lit(2)), mean=hr.mean(hr.lit(3))))
    flow.sink("select", rows.select(one=hr.lit(1)))
    flow.sink("beside", rows.select(one=hr.lit(1), value=col.value).filter(hr.lit(True)))
    made = hr.Engine(flow, columnar="always").tick(rows=[5, 6, 7])
    assert [tuple(change.row) for change in made["sum"]] == [(6, 3.0)]
    assert [tuple(change.row) for change in made["select"]] == [(1,)] * 3
    assert [tuple(change.row) for change in made["beside"]] == [(1, 5), (1, 6), (1, 7)]


@pytest.mark.parametrize("columnar", ["always", "never"])
def test_a_date_that_python_does_not_have_is_refused(columnar: Any) -> None:
    frame = pl.DataFrame({"value": [5_000_000]}).select(pl.col("value").cast(pl.Int32).cast(pl.Date))
    with pytest.raises(BadInput, match="no value of Python"):
        passing(date, columnar=columnar).tick(rows=frame)


@pytest.mark.parametrize(
    "values",
    [
        [1.5, NAN, -2.0],
        [NAN, NAN],
        [NAN, None],
        [None, None],
        [-1.0, float("inf"), None],
        [True, False],
        ["b", "ä", "a"],
        [b"\xff", b"a"],
        [NOON, NOON.replace(year=1)],
        [date.max, date.min],
        [2**63 - 1, -(2**63)],
    ],
    ids=repr,
)
def test_the_least_and_the_greatest_are_those_of_rows(values: list[Any]) -> None:
    wanted = type(next((v for v in values if v is not None), 0.0)) | None
    row: Any = NamedTuple("row", [("key", int), ("value", wanted)])  # type: ignore[misc]
    told_by: list[str] = []
    for columnar in ("always", "never"):
        flow = hr.Flow("extremes")
        grouped = flow.source("rows", row).group_by(key=col.key % 2)
        flow.sink("out", grouped.agg(least=hr.min(col.value), most=hr.max(col.value), n=hr.count(col.value)))
        engine = hr.Engine(flow, columnar=columnar)  # type: ignore[arg-type]
        ticks = [[(0, value) for value in values], [(1, values[0]), (0, values[-1])]]
        told_by.append(repr([list(engine.tick(rows=rows)["out"]) for rows in ticks]))
    assert told_by[0] == told_by[1]


def test_a_row_that_fails_is_not_forgotten_by_a_later_filter() -> None:
    flow = hr.Flow("dropped")
    inverse = flow.source("rows", int).select(value=col.value, inverse=1 / col.value)
    flow.sink("out", inverse.filter(col.value > 0).group_by().agg(n=hr.count(), most=hr.max(col.inverse)))
    with pytest.raises(EvaluationError, match="division by zero"):
        hr.Engine(flow, columnar="always").tick(rows=[1, 0, 2])


def test_a_sum_that_leaves_int64_within_one_tick_fails_as_in_rows() -> None:
    flow = hr.Flow("sum")
    flow.sink("mean", flow.source("rows", int).group_by().agg(mean=hr.mean(col.value)))
    (change,) = hr.Engine(flow, columnar="always").tick(rows=[2**62] * 3)["mean"]
    assert change.row.mean == 2.0**62
    flow.sink("out", flow.source("more", int).group_by().agg(total=hr.sum(col.value)))
    with pytest.raises(EvaluationError, match="int64"):
        hr.Engine(flow, columnar="always").tick(more=[2**62] * 3)


def test_a_group_that_no_row_reaches_is_not_there() -> None:
    flow = hr.Flow("nothing")
    flow.sink("out", flow.source("rows", int).filter(col.value > 9).group_by().agg(n=hr.count()))
    engine = hr.Engine(flow, columnar="always")
    assert list(engine.tick(rows=[1, 2])["out"]) == []
    assert [change.row.n for change in engine.tick(rows=[10])["out"]] == [1]


def test_a_large_tick_that_has_to_run_in_rows_sees_what_large_ticks_left_in_frames() -> None:
    flow = hr.Flow("declined")
    a, b = flow.source("a", str), flow.source("b", str)
    flow.sink("out", a.select(k=col.value.upper()).join(b.select(k=col.value.upper()), on="k"))
    on_frames, in_rows = hr.Engine(flow, columnar="always"), hr.Engine(flow, columnar="never")
    for tick in ({"a": ["x", "y"], "b": ["x"]}, {"a": ["é", "x"], "b": ["y", "É"]}, {"b": ["x", "é"]}):
        wanted, made = in_rows.tick(**tick)["out"], on_frames.tick(**tick)["out"]
        assert sorted(made.raw) == sorted(wanted.raw)
        assert len(made) > 0


@pytest.mark.parametrize("weight", [True, 0, 1.0, None, -3])
def test_a_weight_is_taken_or_refused_as_in_rows(weight: Any) -> None:
    rows = [hr.Change(1, 2), hr.Change(2, weight)]
    assert told(passing(int, table=True), rows) == told(passing(int, table=True, columnar="never"), rows)


@pytest.mark.parametrize("first", [True, False, None])
@pytest.mark.parametrize("both", [True, False])
def test_what_stands_behind_and_or_or_fails_only_where_it_is_reached(first: bool | None, both: bool) -> None:
    row: Any = NamedTuple("row", [("p", bool | None), ("n", int)])  # type: ignore[misc]
    positive = 1 / col.n > 0
    told_by: list[str] = []
    for columnar in ("always", "never"):
        flow = hr.Flow("reached")
        flow.sink("out", flow.source("rows", row).filter(col.p & positive if both else col.p | positive))
        engine = hr.Engine(flow, columnar=columnar)  # type: ignore[arg-type]
        try:
            told_by.append(repr(list(engine.tick(rows=[(True, 1), (first, 0)])["out"])))
        except EvaluationError as error:
            told_by.append(error.what)
    assert told_by[0] == told_by[1]


def sorted_ticks(flow: hr.Flow, columnar: Any, ticks: list[dict[str, Any]]) -> list[Any]:
    """What the sinks say in each tick, whatever the order of the rows."""
    engine = hr.Engine(flow, columnar=columnar, columnar_rows=2)
    return [{name: sorted(made.raw) for name, made in engine.tick(**tick).items()} for tick in ticks]


def test_a_function_that_fails_as_polars_does_is_not_called_again_over_half_of_a_tick() -> None:
    calls: list[int] = []

    def first_time_fails(row: Any) -> int:
        calls.append(row.n)
        if len(calls) == 1:
            raise pl.exceptions.ComputeError("of the user")
        return row.n

    flow = hr.Flow("flaky")
    flow.sink("out", flow.table("rows", int).group_by(k=col.value).agg(n=hr.count()).map(first_time_fails))
    with pytest.raises(UserFunctionFailed, match="of the user"):
        hr.Engine(flow, columnar="always").tick(rows=[1, 1])
    assert calls == [2]


def joined() -> hr.Flow:
    flow = hr.Flow("joined")
    a, b = flow.table("a", str), flow.table("b", str)
    flow.sink("pairs", a.select(k=col.value).join(b.select(k=col.value), on="k"))
    flow.sink("rows", a)
    flow.sink("counts", a.group_by(k=col.value).agg(n=hr.count()))
    return flow


def test_state_that_cannot_stand_in_columns_stays_in_rows() -> None:
    ticks = [{"a": ["\ud800"]}, {"a": ["x", "y", "z"], "b": ["x", "y"]}]
    assert sorted_ticks(joined(), "always", ticks) == sorted_ticks(joined(), "never", ticks)


@pytest.mark.parametrize("copies", [2**40, 2**62, 2**63 - 1, -(2**63), 2**63])
@pytest.mark.parametrize("others", [1, 2**31, -(2**40)])
def test_weights_beyond_64_bits_count_as_in_rows(copies: int, others: int) -> None:
    ticks = [
        {"a": [hr.Change("x", copies), hr.Change("y", 1)], "b": [hr.Change("x", others), hr.Change("y", 1)]},
        {"a": [hr.Change("x", copies)] * 4, "b": [hr.Change("x", 1), hr.Change("y", 1)]},
        {"b": [hr.Change("x", others)] * 3},
    ]
    assert sorted_ticks(joined(), "always", ticks) == sorted_ticks(joined(), "never", ticks)


def moments(count: int, unit: Any) -> Any:
    return pl.DataFrame({"value": [count]}).cast(pl.Datetime(unit, "UTC"))


@pytest.mark.parametrize("columnar", ["always", "never"])
@pytest.mark.parametrize(
    ("row", "frame"),
    [
        (datetime, moments(2**62, "ms")),
        (datetime, moments(-(2**63), "us")),
        (date, pl.DataFrame({"value": [2**31 - 1]}).cast(pl.Int32).cast(pl.Date)),
        (date, pa.table({"value": pa.array([2**31 - 1], pa.date32())})),
        (int, pa.table([pa.array([1]), pa.array([2])], names=["value", "value"])),
        (int, pa.chunked_array([[1, 2]])),
    ],
    ids=["late moment", "early moment", "polars date", "pyarrow date", "two columns of one name", "no table"],
)
def test_a_frame_that_cannot_be_read_is_refused(columnar: Any, row: Any, frame: Any) -> None:
    engine = passing(row, columnar=columnar)
    with pytest.raises(BadInput):
        engine.tick(rows=frame)
    engine.tick(rows=[])


@pytest.mark.parametrize("columnar", ["always", "never"])
def test_a_frame_that_can_be_read_only_once_is_taken_whole(columnar: Any) -> None:
    for values, expected in ([1, 2], [1, 2]), ([], []):
        reader = pa.table({"value": pa.array(values, pa.int64())}).to_reader()
        made = passing(int, columnar=columnar).tick(rows=reader)["out"]
        assert [change.row for change in made] == expected
    reader = pa.table({"value": [1.0, 2.0]}).to_reader()
    with pytest.raises(BadRow, match="got float"):
        passing(int, columnar=columnar).tick(rows=reader)


@pytest.mark.parametrize(("row", "change"), [(int, hr.Change(1, 2**70)), (str, hr.Change("\ud800", 1))])
def test_changes_with_a_value_that_polars_cannot_hold_say_so(row: Any, change: Any) -> None:
    made = passing(row, table=True, columnar="never").tick(rows=[change])["out"]
    with pytest.raises(BadInput, match="cannot stand in columns"):
        made.frame()
    assert list(made) == [change]


@pytest.mark.parametrize("columnar", ["always", "never"])
def test_weights_stand_in_a_column_that_is_not_one_of_the_rows(columnar: Any) -> None:
    row = make_dataclass("row", [("_weight", int), ("weight", int)])
    made = passing(row, table=True, columnar=columnar).tick(rows=[hr.Change(row(5, 6), 7)])["out"]
    assert made.frame().rows(named=True) == [{"_weight": 5, "weight": 6, "__weight": 7}]


def test_rows_of_weight_0_are_no_rows() -> None:
    """Without them the tick is no large one."""
    flow = hr.Flow("weights")
    flow.sink("out", flow.table("numbers", int).filter(hr.col.value >= 0))
    many = 20_000
    for kept in (0, 1):
        frame = pl.DataFrame({"value": range(many), "weight": [1] * kept + [0] * (many - kept)})
        assert [change.row for change in hr.Engine(flow).tick(numbers=frame)["out"]] == [0] * kept


@pytest.mark.parametrize("count", [63, 64])
def test_old_times_with_a_zone_are_the_same_however_many(count: int) -> None:
    """Zones have other offsets in Polars and in Python, long ago."""
    moment = datetime(1800, 1, 1, tzinfo=UTC)
    table = pa.table({"value": pa.array([moment] * count, pa.timestamp("us", "Europe/Amsterdam"))})
    flow = hr.Flow("times")
    flow.sink("out", flow.source("times", datetime))
    for frame in (table, pl.DataFrame(table)):
        assert {change.row for change in hr.Engine(flow).tick(times=frame)["out"]} == {moment}


@pytest.mark.parametrize("count", [63, 64])
def test_text_that_is_no_utf_8_is_refused(count: int) -> None:
    offsets = b"".join(at.to_bytes(4, "little") for at in range(count + 1))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"\xff" * count)]
    table = pa.table({"value": pa.Array.from_buffers(pa.string(), count, buffers)})
    flow = hr.Flow("texts")
    flow.sink("out", flow.source("texts", str))
    with pytest.raises(BadInput, match="no value of Python"):
        hr.Engine(flow).tick(texts=table)


# -- columns that nobody reads -------------------------------------------------------------------


def counted_by_name(*, table: bool) -> hr.Engine:
    flow = hr.Flow("counted")
    items = flow.table("rows", Item) if table else flow.source("rows", Item)
    flow.sink("out", items.group_by("name").agg(n=hr.count()))
    return hr.Engine(flow, columnar_rows=100)


@pytest.mark.parametrize("size", [1, 70, 300])
@pytest.mark.parametrize("frame_of", [pl.DataFrame, pa.table])
@pytest.mark.parametrize("table", [False, True])
def test_columns_that_nobody_reads_may_be_left_out(size: int, frame_of: Any, table: bool) -> None:
    engine = counted_by_name(table=table)
    assert engine.columns_read("rows") == {"name"}
    frame = frame_of({"name": ["a"] * size})
    assert list(engine.tick(rows=frame)["out"]) == [hr.insert(("a", size))]
    assert list(engine.tick(rows=[Item("a", 1.0, None)])["out"])[-1] == hr.insert(("a", size + 1))


@pytest.mark.parametrize("frame_of", [pl.DataFrame, pa.table])
def test_one_that_is_read_is_missed(frame_of: Any) -> None:
    with pytest.raises(BadRow, match="name"):
        counted_by_name(table=False).tick(rows=frame_of({"price": [1.0] * 100}))


def test_values_that_nobody_reads_are_not_looked_at_but_their_type_is() -> None:
    bad = pa.StringArray.from_buffers(100, pa.py_buffer(bytes(404)), pa.py_buffer(b"\xff"))
    names = pa.array(["a"] * 100)
    flow = hr.Flow("prices")
    flow.sink("out", flow.source("rows", Item).group_by().agg(total=hr.sum(col.price)))
    engine = hr.Engine(flow, columnar_rows=100)
    prices, counts = pa.array([1.0] * 100), pa.array([None] * 100, pa.int64())
    found = engine.tick(rows=pa.table({"name": bad, "price": prices, "count": counts}))["out"]
    assert list(found) == [hr.insert((100.0,))]
    with pytest.raises(BadRow, match="count"):
        engine.tick(rows=pa.table({"name": names, "price": prices, "count": names}))


def test_rows_are_counted_by_their_first_column_where_none_is_read() -> None:
    flow = hr.Flow("counted")
    flow.sink("out", flow.source("rows", Item).group_by().agg(n=hr.count()))
    engine = hr.Engine(flow, columnar_rows=100)
    frame = pa.table({"name": ["a"] * 300, "price": [1.0] * 300, "count": [1] * 300})
    assert list(engine.tick(rows=frame)["out"]) == [hr.insert((300,))]
    assert list(engine.tick(rows=frame.select(["name"]))["out"])[-1] == hr.insert((600,))


@pytest.mark.parametrize("size", [5, 100])
def test_two_columns_of_one_name_are_refused_also_where_nobody_reads_them(size: int) -> None:
    columns = [pa.array(["a"] * size), pa.array([1.0] * size), *[pa.array([1] * size)] * 2]
    table = pa.Table.from_arrays(columns, names=["name", "price", "count", "count"])
    with pytest.raises(BadInput, match="two columns of one name"):
        counted_by_name(table=False).tick(rows=table)


@pytest.mark.parametrize("count", [1, 300])
def test_a_frame_of_any_size_may_lack_or_leave_empty_what_nobody_reads(count: int) -> None:
    class Sale(NamedTuple):
        shop: str
        price: int
        note: str

    flow = hr.Flow("sales")
    flow.sink("out", flow.table("sales", Sale).group_by(hr.col.shop).agg(total=hr.sum(hr.col.price)))
    whole = pl.DataFrame({"shop": ["a"] * count, "price": range(count), "note": [None] * count})
    for frame in (whole, whole.drop("note"), whole.drop("note").to_arrow()):
        out = hr.Engine(flow).tick(sales=frame)["out"]
        assert list(out) == [hr.insert(("a", sum(range(count))))]
    with pytest.raises(BadRow, match="price"):
        hr.Engine(flow).tick(sales=whole.drop("price"))
    with pytest.raises(BadRow, match="shop"):
        hr.Engine(flow).tick(sales=whole.with_columns(shop=pl.lit(None, pl.String)))


class Sample(NamedTuple):
    key: int
    value: int


@pytest.mark.parametrize(
    "keep",
    [
        lambda samples, keys: samples.defer_tick(),
        lambda samples, keys: samples.filter(hr.col.key >= 0).defer_tick_lazy(nondet="test"),
        lambda samples, keys: keys.join(samples, on="key"),
        lambda samples, keys: keys.join(samples, on="key", how="semi"),
    ],
)
def test_what_a_tick_keeps_is_not_the_memory_of_the_user(keep: Any) -> None:
    flow = hr.Flow("kept")
    samples, keys = flow.source("samples", Sample), flow.source("keys", Sample)
    flow.sink("out", keep(samples, keys.select("key")))
    ticks: list[list[tuple[Any, ...]]] = []
    for columnar in ("never", "always"):
        engine = hr.Engine(flow, columnar=columnar)  # type: ignore[arg-type]
        key, value = np.arange(300), np.arange(300)
        engine.tick(samples=pl.DataFrame({"key": key, "value": value}))
        # As one does who fills the same arrays again.
        key[:], value[:] = -1, -2
        ticks.append(sorted(engine.tick(keys=[Sample(7, 0)])["out"].raw))
    in_rows, in_columns = ticks
    assert in_columns == in_rows != []
