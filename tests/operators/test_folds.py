"""Folds by users' functions: of all rows and per key, over the whole run and per tick."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace import col
from headrace.errors import BadRow, NotPlainData, UserFunctionFailed, WrongType
from headrace.testing import Backend, check_ticks
from tests.golden import MESSAGES, assert_golden

AnyStream = hr.Stream[Any, Any, Any, Any]


class Sale(NamedTuple):
    shop: str
    price: int


class Range(NamedTuple):
    low: int
    high: int


class Thing:
    """An object that is no plain data."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thing) and other.size == self.size

    def __hash__(self) -> int:
        return hash(self.size)


class Colour(Enum):
    RED = 1


class Bag:
    """An object that is equal to nothing but itself."""

    def __init__(self) -> None:
        self.items: list[int] = []


def put(bag: Bag, n: int) -> Bag:
    bag.items.append(n)
    return bag


def add(total: int, n: int) -> int:
    return total + n


def widened(range_: Range | None, n: int) -> Range:
    return Range(n, n) if range_ is None else Range(min(range_.low, n), max(range_.high, n))


def rows_of(changes: Any) -> list[Any]:
    return [change.row for change in changes]


def run(build: Callable[[hr.Flow], AnyStream], *ticks: dict[str, Any]) -> list[list[Any]]:
    """The rows of each tick, in their order, of a flow whose ticks are given."""
    flow = hr.Flow("folds", ticks="given")
    flow.sink("out", build(flow))
    engine = hr.Engine(flow)
    return [rows_of(engine.tick(**tick)["out"]) for tick in ticks]


def test_a_fold_is_a_table_of_one_row_from_the_first_tick_on(backend: Backend) -> None:
    check_ticks(
        backend,
        lambda flow: flow.source("n", int).fold(0, add, commutative=True),
        """
        tick | n    | out
        1    |      | + 0
        2    | 1; 2 | - 0; + 3
        3    |      |
        4    | 0    |
        5    | 4    | - 3; + 7
    """,
    )


def test_a_fold_begins_though_another_source_starts_the_first_tick(backend: Backend) -> None:
    def build(flow: hr.Flow) -> None:
        flow.sink("sum", flow.source("n", int).filter(col.value > 5).fold(0, add, commutative=True))
        flow.sink("other", flow.source("m", int).filter(col.value > 5))

    check_ticks(
        backend,
        build,
        """
        tick | n | m | sum      | other
        1    |   | 9 | + 0      | + 9
        2    | 1 |   |          |
        3    | 8 |   | - 0; + 8 |
    """,
    )


def test_a_fold_of_a_bounded_source_never_changes(backend: Backend) -> None:
    check_ticks(
        backend,
        lambda flow: flow.source("n", int, bounded=True).fold(0, add, commutative=True),
        """
        tick | n    | out
        1    | 1; 2 | + 3
        2    |      |
    """,
    )


def test_a_fold_per_tick_says_something_in_every_tick(backend: Backend) -> None:
    def build(flow: hr.Flow) -> AnyStream:
        numbers = flow.source("n", int)
        return numbers.fold(0, add, commutative=True, lifetime="tick", nondet="a total per tick is shown")

    check_ticks(
        backend,
        build,
        """
        tick | n    | out
        1    |      | + 0
        2    | 1; 2 | + 3
        3    |      | + 0
        4    | 4    | + 4
    """,
    )


def test_a_reduce_is_silent_while_nothing_has_come(backend: Backend) -> None:
    check_ticks(
        backend,
        lambda flow: flow.source("n", int).reduce(max, commutative=True),
        """
        tick | n    | out
        1    |      |
        2    | 1; 2 | + 2
        3    | 1    |
        4    | 3    | - 2; + 3
    """,
    )


def test_a_reduce_per_tick_is_silent_in_empty_ticks(backend: Backend) -> None:
    check_ticks(
        backend,
        lambda flow: flow.source("n", int).reduce(add, commutative=True, lifetime="tick", nondet="shown"),
        """
        tick | n    | out
        1    |      |
        2    | 1; 2 | + 3
        3    |      |
        4    | 4    | + 4
    """,
    )


def test_a_keyed_fold_has_a_row_per_key_that_has_come(backend: Backend) -> None:
    check_ticks(
        backend,
        lambda flow: flow.source("sales", Sale).fold_keyed("shop", 0, add, value="price", commutative=True),
        """
        tick | sales         | out
        1    |               |
        2    | a 3; b 1; a 4 | + a 7; + b 1
        3    | b 0           |
        4    | b 5; c 0      | - b 1; + b 6; + c 0
    """,
    )


def test_a_keyed_fold_per_tick_knows_the_keys_of_its_tick_alone(backend: Backend) -> None:
    def build(flow: hr.Flow) -> AnyStream:
        sales = flow.source("sales", Sale)
        return sales.fold_keyed(
            "shop", 0, add, value="price", commutative=True, lifetime="tick", nondet="a report per tick"
        )

    check_ticks(
        backend,
        build,
        """
        tick | sales         | out
        1    | a 3; b 1; a 4 | + a 7; + b 1
        2    |               |
        3    | b 5           | + b 5
    """,
    )


def test_a_keyed_reduce_begins_with_the_first_value_of_a_key(backend: Backend) -> None:
    def build(flow: hr.Flow) -> None:
        sales = flow.source("sales", Sale)
        flow.sink("ever", sales.reduce_keyed("shop", min, commutative=True))
        tick = sales.reduce_keyed("shop", min, commutative=True, lifetime="tick", nondet="a report per tick")
        flow.sink("tick", tick)

    check_ticks(
        backend,
        build,
        """
        tick | sales         | ever         | tick
        1    | a 3; b 1; a 4 | + a 3; + b 1 | + a 3; + b 1
        2    | a 2; b 5      | - a 3; + a 2 | + a 2; + b 5
    """,
    )


def test_a_key_may_be_null_and_several_columns(backend: Backend) -> None:
    class Cell(NamedTuple):
        x: int | None
        y: str

    def count(n: int, cell: Cell) -> int:
        return n + 1

    check_ticks(
        backend,
        lambda flow: flow.source("cells", Cell).fold_keyed(["y", "x"], 0, count, commutative=True),
        """
        tick | cells               | out
        1    | 1 a; null a; null a | + a 1 1; + a null 2
        2    | null b; 1 a         | - a 1 1; + a 1 2; + b null 1
    """,
    )


def test_functions_see_rows_in_their_order_and_keys_leave_as_first_seen() -> None:
    def build(flow: hr.Flow) -> AnyStream:
        return flow.source("sales", Sale).fold_keyed("shop", "", lambda all, sale: f"{all}{sale.price}")

    sales = [Sale("b", 1), Sale("a", 2), Sale("b", 3), Sale("c", 4), Sale("b", 0)]
    assert run(build, {"sales": sales}) == [[("b", "130"), ("a", "2"), ("c", "4")]]


def test_what_is_accumulated_may_be_a_row_and_is_one_for_the_function_in_the_next_tick_too() -> None:
    def build(flow: hr.Flow) -> AnyStream:
        return flow.source("n", int).fold(Range(0, 0), widened).every_tick()

    assert run(build, {"n": [5]}, {"n": [-2]}) == [[Range(0, 5)], [Range(-2, 5)]]


def test_a_function_may_alter_the_list_that_it_accumulates() -> None:
    def collect(all_: list[int], n: int) -> list[int]:
        all_.append(n)
        return all_

    def build(flow: hr.Flow) -> AnyStream:
        return flow.source("n", int).fold([], collect)

    flow = hr.Flow("lists")
    flow.sink("out", build(flow))
    engine = hr.Engine(flow)
    assert engine.tick(n=[1, 2])["out"] == [([1, 2], 1)]
    assert engine.tick(n=[3])["out"] == [([1, 2], -1), ([1, 2, 3], 1)]


def test_an_init_that_makes_values_makes_one_for_each_key() -> None:
    def collect(all_: list[int], n: int) -> list[int]:
        all_.append(n)
        return all_

    def build(flow: hr.Flow) -> AnyStream:
        return flow.source("sales", Sale).fold_keyed("shop", list, collect, value="price")

    assert run(build, {"sales": [Sale("a", 1), Sale("b", 2)]}) == [[("a", [1]), ("b", [2])]]


def test_any_hashable_value_may_be_accumulated() -> None:
    def build(flow: hr.Flow) -> AnyStream:
        return flow.source("n", int).fold(frozenset(), lambda seen, n: seen | {n % 3})

    assert run(build, {"n": [1, 2]}, {"n": [4]}, {"n": [3]}) == [
        [frozenset({1, 2})],
        [],
        [frozenset({1, 2}), frozenset({0, 1, 2})],
    ]


@pytest.mark.parametrize("init", [Bag(), Bag])
def test_an_object_that_is_equal_to_nothing_else_is_no_init(init: Any) -> None:
    numbers = hr.Flow("bags").source("n", int)
    with pytest.raises(WrongType, match="its class Bag compares by identity"):
        numbers.fold(init, put)
    with pytest.raises(WrongType, match="its class Bag compares by identity"):
        numbers.fold_keyed("value", init, put)


@pytest.mark.parametrize(("init", "instead"), [(set(), "a frozenset"), ([], "a tuple"), ({}, "a tuple")])
def test_what_cannot_be_hashed_is_refused_with_what_to_give_instead(init: Any, instead: str) -> None:
    with pytest.raises(WrongType, match=f"give {instead}"):
        hr.Flow("sets").source("n", int).fold(lambda: init, lambda kept, n: kept)


@pytest.mark.parametrize("init", [None, Colour.RED, len, int])
def test_what_cannot_be_altered_may_be_accumulated(init: Any) -> None:
    def build(flow: hr.Flow) -> AnyStream:
        return flow.source("n", int).fold(lambda: init, lambda kept, n: kept)

    assert run(build, {}) == [[init]]


def test_an_object_to_begin_with_is_shared_between_no_keys() -> None:
    def grown(thing: Thing, n: int) -> Thing:
        thing.size += n
        return thing

    def build(flow: hr.Flow) -> AnyStream:
        return flow.source("n", int).fold_keyed("value", Thing(0), grown, into="thing")

    ((one, two),) = run(build, {"n": [1, 5]})
    assert (one.thing.size, two.thing.size) == (1, 5)


def test_a_value_of_an_expression_may_be_folded() -> None:
    def build(flow: hr.Flow) -> AnyStream:
        return flow.source("sales", Sale).fold_keyed("shop", 0, add, value=col.price * 2, into="double")

    ((row,),) = run(build, {"sales": [Sale("a", 1), Sale("a", 2)]})
    assert (row.shop, row.double) == ("a", 6)


def test_a_function_that_raises_is_named_with_its_row() -> None:
    flow = hr.Flow("failing")
    flow.sink("out", flow.source("n", int).fold(0.0, lambda sum, n: sum + 1 / n, name="inverses"))
    with pytest.raises(UserFunctionFailed) as failed:
        hr.Engine(flow).tick(n=[1, 0])
    assert (failed.value.operator, failed.value.row) == ("inverses", (0,))  # type: ignore[attr-defined]
    assert isinstance(failed.value.__cause__, ZeroDivisionError)


def test_a_value_of_another_type_than_declared_is_refused() -> None:
    flow = hr.Flow("failing")
    flow.sink("out", flow.source("n", int).fold(0, lambda sum, n: sum + 0.5, name="halves"))
    with pytest.raises(BadRow, match="'halves' accumulated") as refused:
        hr.Engine(flow).tick(n=[1])
    assert "returns=float" in refused.value.fix
    assert "convert it before" not in str(refused.value)


def test_what_is_accumulated_goes_on_after_a_restart(tmp_path: Path) -> None:
    def seen(all_: frozenset[str], sale: Sale) -> frozenset[str]:
        return all_ | {sale.shop}

    def carry(kept: list[int], n: int) -> tuple[list[int], int]:
        kept.append(n)
        return kept, sum(kept)

    def build() -> hr.Flow:
        flow = hr.Flow("kept")
        sales = flow.source("sales", Sale)
        flow.sink("shops", sales.fold(frozenset(), seen, commutative=True).map(sorted, returns=list[str]))
        flow.sink("range", sales.select(value=col.price, into=int).fold(Range(9, 9), widened))
        flow.sink("sums", sales.select(value=col.price, into=int).scan(list, carry))
        return flow

    batches = [[Sale("a", 5)], [Sale("b", 7)], [Sale("a", 1)]]
    for count in (1, 3):
        sinks = {name: hr.io.Memory() for name in ("shops", "range", "sums")}
        sources = {"sales": hr.io.Rows(batches[:count])}
        hr.run(build(), sources=sources, sinks=sinks, checkpoint=tmp_path)  # type: ignore[arg-type]
    changes = {name: [tuple(change) for change in sink.changes()] for name, sink in sinks.items()}
    assert changes == {
        "shops": [(["a"], -1), (["a", "b"], 1)],
        "range": [(Range(5, 9), -1), (Range(1, 9), 1)],
        "sums": [(12, 1), (13, 1)],
    }


class Tally(NamedTuple):
    count: int
    seen: list[str]


def restarted(flow: Callable[[], hr.Flow], rows: list[Any], folder: Path) -> list[list[Any]]:
    """The rows that one run gives, and those of two that share a checkpoint, as changes of the rest."""
    found: list[list[Any]] = []
    for location, counts in ((folder / "one", [len(rows)]), (folder / "two", [1, len(rows)])):
        found.append([])
        for count in counts:
            sink = hr.io.Memory()
            source = hr.io.Rows([[row] for row in rows[:count]])
            hr.run(flow(), sources={"n": source}, sinks={"out": sink}, checkpoint=location)  # type: ignore[arg-type]
            found[-1].extend(sink.changes())
    return found


def listed(all_: list[Any] | None, n: int) -> tuple[list[Any] | None, int]:
    return [*(all_ or []), (n,)], len(all_ or [])


def nested(kept: dict[str, Any], n: int) -> tuple[dict[str, Any], int]:
    kept.setdefault("all", []).append(n)
    return kept, len(kept["all"])


def tallied(tally: Tally | None, n: int) -> tuple[Tally, int]:
    before = tally or Tally(0, [])
    return Tally(before.count + n, [*before.seen, str(n)]), len(before.seen)


SCANS: list[tuple[str, Callable[[AnyStream], AnyStream]]] = [
    ("a list, said", lambda n: n.scan(None, lambda a, x: ((a or []) + [x], len(a or [])), carries=list[int])),
    ("a list, annotated", lambda n: n.scan(None, listed)),
    ("a row, annotated", lambda n: n.scan(None, tallied)),
    ("a row, begun with", lambda n: n.scan(Tally(0, []), lambda a, x: (a._replace(count=x), a.count))),
    ("a table", lambda n: n.scan({}, lambda a, x: ({**a, x: (x,)}, len(a)))),
    ("a set", lambda n: n.scan(frozenset(), lambda a, x: (a | {x}, len(a)))),
    ("an end", lambda n: n.scan(0, lambda a, x: (x, a) if a < 5 else None)),
]


@pytest.mark.parametrize("scan", [scan for _, scan in SCANS], ids=[what for what, _ in SCANS])
def test_a_scan_carries_the_same_whether_or_not_the_run_was_restarted(
    scan: Callable[[AnyStream], AnyStream], tmp_path: Path
) -> None:
    def flow() -> hr.Flow:
        made = hr.Flow("scan")
        made.sink("out", scan(made.source("n", int)).map(repr, returns=str))
        return made

    whole, parts = restarted(flow, [5, 2, 7, 1], tmp_path)
    assert whole == parts != []


@pytest.mark.parametrize(
    "build",
    [
        lambda n: n.scan(None, lambda a, x: ([*(a or []), x], x)),
        lambda n: n.scan({}, nested),
        lambda n: n.scan(None, lambda a, x: (Range(x, x), x)),
        lambda n: n.fold(None, lambda a, x: Range(x, x)),
        lambda n: n.fold_keyed("value", None, into="one", function=lambda a, x: (Range(x, x),)),
    ],
)
def test_what_would_come_back_as_something_else_is_refused_when_it_is_stored(
    build: Callable[[AnyStream], AnyStream], tmp_path: Path
) -> None:
    def flow() -> hr.Flow:
        made = hr.Flow("scan")
        made.sink("out", build(made.source("n", int)).map(repr, returns=str))
        return made

    assert hr.Engine(flow()).tick(n=[1, 2])["out"]
    with pytest.raises(NotPlainData, match=r"a (list|Range) cannot be stored where any value may stand"):
        hr.run(flow(), sources={"n": [1, 2]}, sinks={"out": hr.io.Memory()}, checkpoint=tmp_path)


def test_a_value_that_is_no_plain_data_works_in_memory_and_is_refused_by_a_checkpoint(tmp_path: Path) -> None:
    def flow() -> hr.Flow:
        made = hr.Flow("thing")
        things = made.source("n", int).fold(Thing(0), lambda thing, n: Thing(thing.size + n))
        made.sink("out", things.map(lambda thing: thing.size, returns=int))
        return made

    assert hr.Engine(flow()).tick(n=[1, 2])["out"] == [(3, 1)]
    with pytest.raises(NotPlainData) as error:
        hr.run(flow(), sources={"n": hr.io.Rows([[1]])}, sinks={"out": hr.io.Memory()}, checkpoint=tmp_path)
    assert_golden(MESSAGES / "not_plain_data.txt", re.sub(" at 0x[0-9a-f]+", "", f"{error.value}\n"))
