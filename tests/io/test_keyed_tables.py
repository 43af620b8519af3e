"""Tables held by key: what sets and deletes their rows, in Python."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import BadRow, RecordMisfit, UnknownColumn, WrongType
from tests.io.keyed_flows import (
    AMY,
    ANN,
    BOB,
    Customer,
    Dated,
    Tagged,
    Versioned,
    customers,
    prices,
    tagged,
    versioned,
    weights,
)


def test_a_row_sets_the_row_of_its_key() -> None:
    assert weights(customers(), [ANN, hr.insert(BOB)], [AMY, AMY], [AMY]) == [
        [(*ANN, 1), (*BOB, 1)],
        [(*AMY, 1), (*ANN, -1)],
        [],
    ]


def test_a_deletion_needs_no_more_than_the_key() -> None:
    ticks = [ANN, BOB], [hr.delete_key(2), hr.delete_key(2), hr.delete_key(9)], [hr.delete(ANN)]
    assert weights(customers(), *ticks)[1:] == [[(*BOB, -1)], [(*ANN, -1)]]


def test_an_update_may_move_a_row_to_another_key() -> None:
    moved = ANN._replace(id=7)
    assert weights(customers(), [ANN], [hr.update(ANN, moved)])[1] == [(*ANN, -1), (*moved, 1)]


def test_a_frame_sets_its_rows() -> None:
    table = pa.table({"id": [1, 2], "name": ["ann", "bob"], "city": ["Rome", None]})
    assert weights(customers(), table) == [[(*ANN, 1), (*BOB, 1)]]


def test_an_update_that_does_not_fit_is_found() -> None:
    engine = hr.Engine(customers())
    engine.tick(customers=[ANN])
    with pytest.raises(RecordMisfit, match="it replaces"):
        engine.tick(customers=[hr.update(ANN._replace(name="ana"), AMY)])


def test_an_update_that_does_not_fit_is_trusted() -> None:
    flow = customers(on_misfit="trust_key")
    assert weights(flow, [ANN], [hr.update(ANN._replace(name="ana"), AMY)])[1] == [(*AMY, 1), (*ANN, -1)]


def test_maps_before_a_change_have_no_order() -> None:
    held, same = Tagged(1, {"a": 0.0, "b": 1.0}), Tagged(1, {"b": 1.0, "a": -0.0})
    engine = hr.Engine(tagged())
    engine.tick(tagged=[held])
    assert list(engine.tick(tagged=[same])["out"]) == []
    assert list(engine.tick(tagged=[hr.update(same, Tagged(1, {})), hr.delete(Tagged(1, {}))])["out"]) == [
        hr.delete(held)
    ]


def test_misfits_are_set_aside() -> None:
    flow = hr.Flow("customers")
    held = flow.table("customers", Customer, key="id", on_misfit="dead_letter")
    flow.sink("out", held)
    flow.sink("misfits", held.misfits().select("key", "row"))
    engine = hr.Engine(flow)
    engine.tick(customers=[ANN])
    made = engine.tick(customers=[hr.delete(ANN._replace(name="ana")), hr.update(BOB, BOB)])
    assert made["out"].raw == []
    assert made["misfits"].raw == [((1,), None, 1), ((2,), tuple(BOB), 1)]


@pytest.mark.parametrize(
    ("on_misfit", "left", "misfits"),
    [("dead_letter", [(1, "bob"), (2, "ann")], [(2,)]), ("trust_key", [(1, "bob")], [])],
)
def test_the_halves_of_rows_that_exchange_keys_are_applied_one_by_one(
    on_misfit: Any, left: list[Any], misfits: list[Any]
) -> None:
    flow = hr.Flow("customers")
    held = flow.table("customers", Customer, key="id", on_misfit=on_misfit)
    flow.sink("out", held)
    if misfits:
        flow.sink("misfits", held.misfits().select("key"))
    engine, shown = hr.Engine(flow), Counter[Any]()
    moves = [hr.update(ANN, ANN._replace(id=2)), hr.update(BOB, BOB._replace(id=1))]
    for tick in [ANN, BOB], moves:
        made = engine.tick(customers=tick)
        for id, name, _, weight in made["out"].raw:
            shown[id, name] += weight
    assert sorted(+shown) == left
    assert [key for key, _ in made["misfits"].raw] == misfits if misfits else True


def test_misfits_have_the_columns_of_records() -> None:
    held = hr.Flow("f").table("prices", Dated, key=["shop", "item"], sequence="at", on_misfit="dead_letter")
    assert held.misfits().schema.names == ("key", "before", "row", "sequence", "place", "misfit")


def test_rows_with_a_sequence_come_in_any_order() -> None:
    new, old = Dated("a", 1, 30, 5), Dated("a", 1, 20, 4)
    key = ("a", 1)
    ticks = [new, old], [hr.delete_key(key, sequence=4)], [hr.delete_key(key, sequence=6), new], [old]
    assert weights(prices(), *ticks) == [[(*new, 1)], [], [(*new, -1)], []]


def test_a_deletion_with_the_sequence_of_its_row_deletes_it() -> None:
    row = Dated("a", 1, 30, 5)
    assert weights(prices(), [row], [hr.delete(row)], [row]) == [[(*row, 1)], [(*row, -1)], []]


OLD, NEW = Versioned(1, "ann", 0), Versioned(1, "amy", 1)


@pytest.mark.parametrize("new", [NEW, OLD._replace(version=1)])
@pytest.mark.parametrize("gone", [hr.delete(OLD._replace(version=1)), hr.delete_key(1, sequence=1)])
@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("split", [False, True])
def test_a_row_set_where_an_older_one_is_deleted_stays(new: Any, gone: Any, order: int, split: bool) -> None:
    records = [gone, new][::order]
    ticks = [[OLD], *([each] for each in records)] if split else [[OLD], records]
    changes: Counter[Any] = Counter()
    for tick in weights(versioned(), *ticks):
        for *row, weight in tick:
            changes[tuple(row)] += weight
    assert +changes == Counter([tuple(new)])


def test_a_deletion_that_names_the_row_of_its_sequence_deletes_it() -> None:
    assert weights(versioned(), [OLD], [NEW], [hr.delete(NEW)], [NEW])[2:] == [[(*NEW, -1)], []]


def test_a_changed_record_does_not_say_which_row_of_commits_is_older() -> None:
    @dataclass(frozen=True)
    class Committed:
        id: int
        name: str
        _commit_version: int

    flow = hr.Flow("f")
    flow.sink("out", flow.table("rows", Committed, key="id", sequence="_commit_version"))
    one = Committed(1, "ann", 5)
    assert weights(flow, [one], [hr.delete(one)], [one]) == [[(1, "ann", 5, 1)], [], []]


@pytest.mark.parametrize(
    "given",
    [
        hr.delete_key((1, 2)),
        hr.delete_key("one"),
        hr.delete_key(None),
        hr.delete_key(1, sequence=3),
        hr.Change(ANN, 2),
        hr.insert(("1", "ann", None)),
        hr.update(ANN, ("x", "y", "z")),
        7,
    ],
)
def test_what_is_no_record_is_refused(given: Any) -> None:
    with pytest.raises(BadRow):
        weights(customers(), [given])


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"key": "nobody"}, UnknownColumn),
        ({"key": "id", "sequence": "nobody"}, UnknownColumn),
        ({"sequence": "id"}, WrongType),
        ({"key": ()}, WrongType),
        ({"key": "id", "on_misfit": "no"}, WrongType),
        ({"on_misfit": "trust_key"}, WrongType),
    ],
)
def test_columns_that_are_no_key_are_refused(columns: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        hr.Flow("f").table("customers", Customer, **columns)


def test_bare_values_have_no_key() -> None:
    with pytest.raises(WrongType, match="table 'n' holds int64"):
        hr.Flow("f").table("n", int, key="value")


def test_the_columns_that_are_read_are_those_of_its_rows() -> None:
    assert hr.Engine(prices()).columns_read("prices") == set(Dated._fields)


def test_explain_shows_how_a_table_is_held() -> None:
    shown = " ".join(hr.explain(prices(on_misfit="trust_key")).split())
    assert "records by (shop, item), sequence at" in shown
    assert "on_misfit=trust_key" in shown
    assert "before" not in shown


def test_rows_that_move_along_with_one_sequence_stay() -> None:
    rows = [Versioned(1, "ann", 1), Versioned(2, "bob", 1)]
    moves = [hr.update(row, row._replace(id=row.id + 1, version=5)) for row in rows]
    assert weights(versioned(), rows, moves)[1] == [
        (1, "ann", 1, -1),
        (2, "ann", 5, 1),
        (2, "bob", 1, -1),
        (3, "bob", 5, 1),
    ]


@pytest.mark.parametrize(
    "given", [hr.delete_key(1), hr.delete(Versioned(1, "ann", None)), Versioned(1, "ann", None)]
)
def test_a_record_in_python_without_a_sequence_is_refused(given: Any) -> None:
    with pytest.raises(BadRow, match="'rows', row 1") as error:
        weights(versioned(), [Versioned(1, "ann", 1), given])
    assert "sequence=" in (error.value.fix or "")
    assert error.value.facts["row"] == 1
