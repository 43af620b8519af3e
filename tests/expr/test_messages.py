"""What users read when an expression or a row is wrong: all texts, as a whole."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace import col, lit
from headrace.errors import EvaluationError, HeadraceError
from headrace.expr.check import check
from headrace.expr.compile_python import compile_rows
from headrace.expr.row_classes import from_user, schema_of
from tests.golden import assert_golden


class Address(NamedTuple):
    street: str
    number: int


class Order(NamedTuple):
    id: int
    price: float
    amount: Decimal
    note: str | None
    at: datetime
    paid: bool
    address: Address
    items: list[str]


ORDER = schema_of(Order)
GOOD = Order(1, 2.5, Decimal(1), "x", hr.timestamp("2001-01-01").value, True, Address("a", 1), ["b"])  # type: ignore[arg-type]

_WRONG: dict[str, Callable[[], Any]] = {
    "unknown column": lambda: col.pirce * 2,
    "unknown column, nothing near": lambda: col.zzz,
    "number and text": lambda: col.id + col.note,
    "text and date": lambda: col.at >= "2001-01-01",
    "sum of truth": lambda: col.paid + 1,
    "brackets forgotten": lambda: (col.id == 1) & (col.price),
    "not of a number": lambda: ~col.id,
    "whole division of floats": lambda: col.price // 2,
    "sum of timestamps": lambda: col.at + col.at,
    "hours on a date": lambda: col.at.to_date() + timedelta(hours=1),
    "upper of a number": lambda: col.id.upper(),
    "length of a number": lambda: col.id.length(),
    "concat of a number": lambda: hr.concat(col.note, col.id),
    "cast of a struct": lambda: col.address.cast(int),
    "cast of a date": lambda: col.at.to_date().cast(int),
    "unknown field": lambda: col.address.field("city"),
    "field of a number": lambda: col.id.field("x"),
    "item of a number": lambda: col.id[0],
    "order of structs of others": lambda: col.address < hr.struct(a=col.id),
    "unknown unit": lambda: col.at.truncate("decade"),
    "window of nothing": lambda: col.at.tumble(timedelta()),
    "year of text": lambda: col.note.year(),
    "nan of an integer": lambda: col.id.is_nan(),
    "one value only": lambda: hr.least(col.id),
    "branches of two types": lambda: hr.when(col.paid, 1).otherwise("no"),
    "a null of no type": lambda: lit(None),
    "constant of no type": lambda: col.id == {},
    "constant too big": lambda: col.id + 2**63,
    "hour of an interval": lambda: lit(timedelta()).hour(),
    "interval too long": lambda: col.at + timedelta.max,
    "interval too long to be subtracted": lambda: col.at - timedelta.max,
    "constant too big to be shown": lambda: col.note.upper() == -(10**5000),
    "constant that does not fit": lambda: lit(1.5, int),
    "time without a zone": lambda: col.at > datetime(2001, 1, 1),
    "truth value": lambda: col.id > 1 and col.id < 5,
    "chained comparison": lambda: 1 < col.id < 5,
    "in": lambda: "x" in col.note,
    "iteration": lambda: list(col.items_),
    "no type of that name": lambda: col.id.cast("int128"),
    "digits of a text": lambda: col.price.round("2"),  # pyright: ignore[reportArgumentType]
    "digits beyond count": lambda: col.price.round(10**20),
    "no span": lambda: col.at.tumble("ten seconds"),
    "no timestamp": lambda: hr.timestamp("yesterday"),
    "constant from an expression": lambda: lit(col.id),
    "wrong around a constant too big to be shown": lambda: col.note.upper().year() == col.id[10**5000],
}

_BAD_VALUES: dict[str, Any] = {
    "overflow": col.id + (2**63 - 1),
    "division by zero": col.id // 0,
    "text that is no number": col.note.cast(int),
    "too many digits": (col.price * 1000).cast("decimal(3,1)"),
    "nan as integer": (col.price * 0 / 1 + float("nan")).cast(int),
    "text that is no time": col.note.to_timestamp(),
    "beyond the last year": col.at + timedelta(days=9000 * 366),
    "pattern": col.note.like(hr.concat(col.note, lit("\\"))),
    "part 0": col.note.split_part(",", 0),
    "beyond the list": col["items"][5],
}

_BAD_ROWS: dict[str, Any] = {
    "wrong type": GOOD._replace(id="1"),
    "null": GOOD._replace(price=None),
    "too big": GOOD._replace(id=2**63),
    "no zone": GOOD._replace(at=datetime(2001, 1, 1)),
    "inside a struct": GOOD._replace(address=Address("a", None)),  # type: ignore[arg-type]
    "inside a list": GOOD._replace(items=["a", 1]),
    "a float for a decimal": GOOD._replace(amount=0.1),
    "too few fields": (1, 2.0),
    "no row": "text",
}


def _message(build: Callable[[], Any]) -> str:
    with pytest.raises(HeadraceError) as caught:
        check(build(), ORDER)
    return str(caught.value)


def test_errors_of_expressions_read_well() -> None:
    texts = [f"# {name}\n{_message(build)}\n" for name, build in _WRONG.items()]
    assert_golden(Path(__file__).with_name("messages_of_expressions.txt"), "\n".join(texts))


def test_errors_name_the_line_of_the_user() -> None:
    with pytest.raises(HeadraceError) as caught:
        check(col.pirce, ORDER)  # here
    (step,) = caught.value.where
    assert step.location.file == __file__
    assert step.location.text.endswith("# here")


def _value_message(expr: Any) -> str:
    (row,) = from_user(ORDER, what="orders")([GOOD])
    with pytest.raises(EvaluationError) as caught:
        compile_rows((expr,), ORDER)(row)
    return str(caught.value)


def test_errors_of_values_read_well() -> None:
    texts = [f"# {name}: {expr}\n{_value_message(expr)}\n" for name, expr in _BAD_VALUES.items()]
    assert_golden(Path(__file__).with_name("messages_of_values.txt"), "\n".join(texts))


def _row_message(row: Any) -> str:
    with pytest.raises(HeadraceError) as caught:
        from_user(ORDER, what="source 'orders'")([GOOD, row])
    return str(caught.value)


def test_errors_of_rows_read_well() -> None:
    texts = [f"# {name}\n{_row_message(row)}\n" for name, row in _BAD_ROWS.items()]
    assert_golden(Path(__file__).with_name("messages_of_rows.txt"), "\n".join(texts))


@pytest.mark.parametrize(
    ("expr", "shown"),
    [
        (col.price * 2 + 1, "price * 2 + 1"),
        (col.price * (2 + col.id), "price * (2 + id)"),
        (col.id - (col.id - 1), "id - (id - 1)"),
        ((col.id == 1) & ~(col.price > 2.5) | col.paid, "(id == 1) & ~(price > 2.5) | paid"),
        (col.note == "it's", 'note == "it\'s"'),
        (col.at + timedelta(hours=1, seconds=5), "at + 1h 5s"),
        (col.at - timedelta(days=1), "at - 1d"),
        (col.at.tumble("90 s"), "tumble(at, 1m 30s)"),
        (col.address.field("street").upper(), "upper(address.street)"),
        (hr.left.id == hr.right.id, "left.id == right.id"),
        (col.note.is_in("a", None), "is_in(note, 'a', null)"),
        (col.id.cast("decimal(5,2)"), "cast(id, decimal(5,2))"),
        (-(col.id + 1), "-(id + 1)"),
        (col.at > hr.timestamp("2001-01-01"), "at > 2001-01-01 00:00:00+00:00"),
    ],
    ids=str,
)
def test_expressions_read_as_they_were_written(expr: Any, shown: str) -> None:
    assert str(expr) == shown
