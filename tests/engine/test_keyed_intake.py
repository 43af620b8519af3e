"""What is given to tables with a key in Python: its conversion to records, and the numbers of wrong rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import BadRow


class Price(NamedTuple):
    shop: str
    item: int
    price: int | None
    stock: int


@dataclass(frozen=True)
class Customer:
    id: int
    name: str


TEA, RUM = Price("a", 1, 300, 5), Price("a", 2, 900, 1)


def engine(rows: Any = Price, key: Any = ("shop", "item"), **options: Any) -> hr.Engine:
    flow = hr.Flow("f")
    flow.sink("out", flow.table("rows", rows, key=key))
    return hr.Engine(flow, **options)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (Price("a", 3, 1, "many"), "stock"),  # type: ignore[arg-type]
        (hr.insert(("a", 3, "free", 1)), "price"),
        (hr.delete(("a", None, 3, 1)), "item"),
        (hr.update(TEA, ("a", 3, "free", 1)), "price"),
        (hr.update(("a", "tea", 3, 1), TEA), "item"),
        (hr.Change(TEA, 2), "weight"),
        (hr.delete_key(7), "key"),
        (hr.delete_key((7, 8, 9)), "key"),
        (hr.delete_key((7, 8)), "shop"),
        (hr.delete_key(("a", 1), sequence=3), "key"),
        (7, None),
    ],
)
@pytest.mark.parametrize("trailing", [[], [hr.delete_key(1)], [7]])
def test_a_wrong_row_has_its_number_among_changes(wrong: Any, field: str | None, trailing: list[Any]) -> None:
    given = [
        TEA,
        hr.update(TEA, TEA),
        hr.delete(TEA),
        hr.insert(RUM),
        hr.delete_key(("a", 1)),
        wrong,
        *trailing,
    ]
    with pytest.raises(BadRow, match=r"'rows', row 5") as error:
        engine().tick(rows=given)
    assert (error.value.facts["row"], error.value.facts["field"]) == (5, field)


def test_a_deletion_needs_no_more_than_the_key() -> None:
    made = engine()
    made.tick(rows=[TEA, RUM])
    given: list[Any] = [
        hr.delete(("a", 1, None, None)),
        hr.update(("a", 2, None, None), RUM._replace(stock=2)),
    ]
    assert made.tick(rows=given)["out"].raw == [(*TEA, -1), (*RUM, -1), ("a", 2, 900, 2, 1)]


@pytest.mark.parametrize("trusted", [(), ("rows",)])
def test_trusted_rows_are_the_same(trusted: tuple[str, ...]) -> None:
    made = engine(Customer, "id", trusted=trusted)
    made.tick(rows=[Customer(1, "ann"), hr.insert(Customer(2, "bob"))])
    given = [hr.update(Customer(1, "ann"), Customer(1, "amy")), hr.delete_key(2), Customer(3, "eve")]
    assert sorted(made.tick(rows=given)["out"].raw) == [
        (1, "amy", 1),
        (1, "ann", -1),
        (2, "bob", -1),
        (3, "eve", 1),
    ]


@pytest.mark.parametrize("key", [None, "id"])
def test_a_frame_is_trusted(key: Any) -> None:
    frame = pa.table({"id": [1, 2], "name": ["ann", "bob"]})
    assert len(engine(Customer, key, trusted=("rows",)).tick(rows=frame)["out"]) == 2


def test_trusted_rows_are_not_checked() -> None:
    made = engine(Customer, "id", trusted=("rows",))
    given: Any = [Customer(1, None), hr.update(Customer(1, None), Customer(1, 7))]  # type: ignore[arg-type]
    assert made.tick(rows=given)["out"].raw == [(1, 7, 1)]


@pytest.mark.parametrize("size", [2, 200])
def test_weights_of_a_frame_set_and_delete(size: int) -> None:
    made = engine(Customer, "id")
    ids = list(range(size))
    rows = pa.table({"id": ids, "name": ["ann"] * size})
    assert len(made.tick(rows=rows)["out"]) == size
    changes = pa.table({"id": ids, "name": ["amy"] + [None] * (size - 1), "weight": [1] + [-1] * (size - 1)})
    assert len(made.tick(rows=changes)["out"]) == size + 1


def test_another_weight_is_refused() -> None:
    frame = pa.table({"id": [1, 2], "name": ["ann", "bob"], "weight": [1, 2]})
    with pytest.raises(BadRow, match=r"'rows', row 1: weight: .*, found 2"):
        engine(Customer, "id").tick(rows=frame)


def test_a_column_called_weight_is_a_column() -> None:
    class Parcel(NamedTuple):
        id: int
        weight: int

    made = engine(Parcel, "id").tick(rows=pa.table({"id": [1], "weight": [7]}))
    assert made["out"].raw == [(1, 7, 1)]
