"""Why a row is there: the rows that are chosen by keys, checked by the flow, and shrunk."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace import Flow, col
from headrace.analysis.column_lineage import matched_keys, restrict_sources
from headrace.cli.inspection import witness_json
from headrace.engine.source_rereading import ReplayLimits
from headrace.engine.witness import Witness, find_witness
from headrace.io import DeltaRows, DeltaTable, JsonFiles, Memory, Rows


class Order(NamedTuple):
    customer: str
    product: str
    amount: int


class Product(NamedTuple):
    product: str
    category: str


ORDERS = [
    Order("ann", "pen", 3),
    Order("bob", "pen", 9),
    Order("ann", "ink", 5),
    Order("ann", "pen", 7),
    Order("bob", "mug", 1),
]
PRODUCTS = [Product("pen", "tools"), Product("ink", "tools"), Product("mug", "kitchen")]


def shop() -> Flow:
    flow = Flow("shop")
    orders, products = flow.source("orders", Order), flow.source("products", Product)
    joined = orders.filter(col.amount > 0).join(products, on="product")
    flow.sink("joined", joined)
    flow.sink("best", orders.group_by(col.customer).agg(best=hr.max(col.amount)))
    flow.sink("total", joined.group_by(col.category).agg(total=hr.sum(col.amount)))
    flow.sink("all", orders.group_by().agg(total=hr.sum(col.amount)))
    flow.sink("unsold", products.anti_join(orders, on="product"))
    flow.sink("top", orders.top_k(1, by=col.amount.desc(), per=col.customer))
    return flow


def search(sink: str, row: tuple[Any, ...], **more: Any) -> Witness:
    return find_witness(shop(), {"orders": ORDERS, "products": PRODUCTS}, sink, row, **more)


def needed(found: Witness) -> list[tuple[Any, ...]]:
    assert found.found, found.problem
    return [item.row for item in found.needed]


@pytest.mark.parametrize(
    ("sink", "row", "rows"),
    [
        ("joined", ("ann", "ink", 5, "tools"), [ORDERS[2], PRODUCTS[1]]),
        ("best", ("ann", 7), [ORDERS[3]]),
        ("total", ("kitchen", 1), [ORDERS[4], PRODUCTS[2]]),
        ("total", ("tools", 24), [*ORDERS[:4], *PRODUCTS[:2]]),
        ("all", (25,), ORDERS),
        ("top", ("bob", "pen", 9), [ORDERS[1]]),
    ],
)
def test_the_rows_suffice_and_none_can_be_left_out(
    sink: str, row: tuple[Any, ...], rows: list[tuple[Any, ...]]
) -> None:
    found = search(sink, row)
    assert sorted(needed(found), key=repr) == sorted(map(tuple, rows), key=repr)
    assert found.minimal


def test_keys_are_followed_through_joins_and_groups() -> None:
    graph = shop().graph()
    told = {
        sink: {name: str(each) for name, each in restrict_sources(graph, sink, row, keys_only=keys).items()}
        for sink, row, keys in (
            ("joined", ("ann", "ink", 5, "tools"), False),
            ("best", ("ann", 7), True),
            ("total", ("tools", 24), False),
            ("all", (25,), False),
            ("unsold", ("ink", "tools"), True),
        )
    }
    assert told == {
        "joined": {
            "orders": "customer = 'ann' and product = 'ink' and amount = 5",
            "products": "product = 'ink' and category = 'tools'",
        },
        "best": {"orders": "customer = 'ann'"},
        "total": {"orders": "", "products": "category = 'tools'"},
        "all": {"orders": ""},
        "unsold": {"orders": "product = 'ink'", "products": "product = 'ink'"},
    }


def test_rows_without_a_partner_are_left_out_also_of_many() -> None:
    products = [Product(f"p{n}", "tools" if n < 3 else "kitchen") for n in range(100)]
    orders = [Order("ann", f"p{n % 100}", 1) for n in range(1_000)]
    limits = ReplayLimits(shrink=10)
    found = find_witness(
        shop(), {"orders": orders, "products": products}, "total", ("tools", 30), limits=limits
    )
    assert (found.found, found.minimal, len(found.possible), len(found.needed)) == (True, False, 1003, 33)
    assert {row[1] for row in needed(found) if len(row) == 3} == {"p0", "p1", "p2"}


def test_keys_that_match_rows_of_sources_are_followed_to_them() -> None:
    matched = [
        {name: [*map(str, key)] for name, key in each.items()} for each in matched_keys(shop().graph())
    ]
    assert {"orders": ["product"], "products": ["product"]} in matched


def test_of_a_row_that_is_there_because_another_is_absent_only_its_own_is_needed() -> None:
    products = [*PRODUCTS, Product("cup", "kitchen")]
    found = find_witness(shop(), {"orders": ORDERS, "products": products}, "unsold", ("cup", "kitchen"))
    assert needed(found) == [("cup", "kitchen")]


def test_a_row_that_does_not_come_out_is_not_explained() -> None:
    found = search("best", ("ann", 6))
    assert (found.found, found.conclusive, found.needed) == (False, True, ())
    assert witness_json(found)["steps"] == [
        "orders: read 5 rows again; 3 have customer = 'ann'.",
        found.problem,
    ]
    assert found.problem.startswith("The sources as they are now do not produce the row: ")


@pytest.mark.parametrize("beaten", [("ann", "pen", 5), ("ann", "ink", 5)])
def test_a_row_that_others_beat_is_not_explained(beaten: tuple[Any, ...]) -> None:
    flow = Flow("top")
    orders = flow.source("orders", Order)
    flow.sink("all", orders.top_k(1, by=col.amount.desc()))
    rank = hr.rank().over(partition_by="product", order_by=col.amount.desc())
    flow.sink(
        "first", orders.with_columns(rank=rank).filter(col.rank == 1).select("customer", "product", "amount")
    )
    given = {"orders": [Order(*beaten), Order("bob", beaten[1], 9)]}
    for sink in ("all", "first"):
        assert not find_witness(flow, given, sink, beaten).found
        assert find_witness(flow, given, sink, ("bob", beaten[1], 9)).found


def test_a_limit_of_reading_confirms_no_row_that_is_beaten_within_it() -> None:
    flow = Flow("top")
    flow.sink("all", flow.source("orders", Order).top_k(1, by=col.amount.desc()))
    found = find_witness(flow, {"orders": ORDERS}, "all", ORDERS[0], tick_rows=1, limits=ReplayLimits(rows=3))
    assert not found.found
    assert "more rows than the limit" in found.problem


def test_a_row_that_unread_rows_may_replace_is_reported_as_such() -> None:
    flow = Flow("highest")
    flow.sink("all", flow.source("numbers", int).group_by().agg(highest=hr.max(col.value)))
    some = find_witness(
        flow, {"numbers": [*range(100)]}, "all", (49,), tick_rows=10, limits=ReplayLimits(rows=50)
    )
    assert (some.found, some.conclusive) == (True, False)
    assert witness_json(some)["steps"][-2] == "Rows that were not read may replace this row."
    every = find_witness(flow, {"numbers": [*range(100)]}, "all", (99,), tick_rows=10)
    assert (every.found, every.conclusive) == (True, True)


def test_the_limit_counts_rows_that_can_matter() -> None:
    found = find_witness(
        shop(),
        {"orders": ORDERS * 50, "products": PRODUCTS},
        "best",
        ("bob", 9),
        limits=ReplayLimits(rows=120),
    )
    assert (found.found, found.conclusive) == (True, True)


def test_an_equality_that_fails_on_a_row_does_not_hide_that_another_rules_it_out() -> None:
    flow = Flow("ratios")
    orders = flow.source("orders", Order)
    flow.sink("all", orders.select("customer", "amount", ratio=hr.lit(1) / col.amount))
    given = {"orders": [Order("ann", "pen", 4), Order("bob", "pen", 0)]}
    assert needed(find_witness(flow, given, "all", ("ann", 4, 0.25))) == [("ann", "pen", 4)]


def test_a_join_for_another_sink_does_no_harm() -> None:
    flow = shop()
    flow.sink("numbers", flow.source("numbers", int))
    given = {"orders": ORDERS, "products": PRODUCTS, "numbers": [1, 2]}
    assert needed(find_witness(flow, given, "numbers", (2,))) == [(2,)]


def test_a_source_that_cannot_be_read_again_is_named() -> None:
    sources = {"orders": iter(ORDERS), "products": PRODUCTS}
    found = find_witness(shop(), sources, "best", ("ann", 7))
    assert not found.found
    assert found.problem == "The row needs rows of orders, which cannot be read again."
    assert "cannot be read again" in found.sources["orders"].why_not


def test_files_are_read_again_and_the_limit_is_told(tmp_path: Path) -> None:
    lines = [f'{{"customer": "c{n % 7}", "product": "pen", "amount": {n}}}\n' for n in range(100)]
    (tmp_path / "1.json").write_text("".join(lines[:60]))
    (tmp_path / "2.json").write_text("".join(lines[60:]))
    sources = {"orders": JsonFiles(tmp_path), "products": PRODUCTS}
    found = find_witness(shop(), sources, "best", ("c3", 94))
    assert needed(found) == [("c3", "pen", 94)]
    assert (found.sources["orders"].rows, found.sources["orders"].all_read) == (100, True)
    few = find_witness(shop(), sources, "all", (4950,), tick_rows=10, limits=ReplayLimits(rows=50))
    assert (
        few.problem == "The rows that were read do not produce it; the source has more rows than the limit."
    )


def test_delta_tables_are_read_again(tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    batches = Rows([[*map(hr.insert, ORDERS)], [hr.delete(ORDERS[3]), hr.insert(Order("ann", "pen", 8))]])
    write = Flow("write")
    write.sink("orders", write.table("orders", Order))
    hr.run(write, {"orders": batches}, {"orders": DeltaTable(tmp_path / "t", key=Order._fields)})
    newest = DeltaRows(tmp_path / "t")
    before = DeltaRows(tmp_path / "t", version=deltalake_version(tmp_path / "t") - 1)

    followed, bounded = Flow("followed"), Flow("bounded")
    for flow, orders in (
        (followed, followed.table("orders", Order)),
        (bounded, bounded.source("orders", Order, bounded=True)),
    ):
        flow.sink("best", orders.group_by(col.customer).agg(best=hr.max(col.amount)))

    def best(flow: Flow, source: DeltaRows, amount: int) -> Witness:
        return find_witness(flow, {"orders": source}, "best", ("ann", amount))

    assert needed(best(followed, newest, 8)) == [("ann", "pen", 8, 1)]
    assert needed(best(followed, before, 8)) == [("ann", "pen", 8, 1)]
    assert needed(best(bounded, newest, 8)) == [Order("ann", "pen", 8)]
    assert needed(best(bounded, before, 7)) == [Order("ann", "pen", 7)]
    assert not best(bounded, newest, 7).found
    assert not best(bounded, before, 8).found


def deltalake_version(path: Path) -> int:
    from deltalake import DeltaTable as Table

    return Table(path).version()


def test_effort_is_bounded_and_what_was_reached_is_true() -> None:
    orders = [Order("ann", "pen", 1) for _ in range(200)]
    sources = {"orders": orders, "products": PRODUCTS}
    found = find_witness(shop(), sources, "all", (200,), limits=ReplayLimits(runs=20))
    assert (found.runs, found.minimal, len(found.needed)) == (20, False, 200)


def test_a_table_is_explained_by_the_row_that_is_left() -> None:
    flow = Flow("stock")
    flow.sink("stock", flow.table("stock", Product))
    one, other = Product("pen", "tools"), Product("pen", "gifts")
    changes = Rows([[hr.insert(one)], [hr.delete(one), hr.insert(other)]])
    found = find_witness(flow, {"stock": changes}, "stock", ("pen", "gifts"))
    assert needed(found) == [("pen", "gifts", 1)]
    assert not find_witness(flow, {"stock": changes}, "stock", ("pen", "tools")).found


def test_windows_that_close_at_the_end_are_explained() -> None:
    flow = Flow("windows")
    orders = flow.source("orders", Order).watermark(col.amount, lateness=0)
    flow.sink("n", orders.group_by(window=hr.tumbling(col.amount, 4)).agg(n=hr.count()))
    found = find_witness(flow, {"orders": ORDERS[:3]}, "n", (8, 12, 1))
    assert needed(found) == [("bob", "pen", 9)]
    assert not find_witness(flow, {"orders": ORDERS[:3]}, "n", (8, 12, 1), end=False).found


class Keyed(NamedTuple):
    k: str
    x: int


def rows_of(*ticks: str) -> Rows:
    """A tick per text: "p9 k1" are the rows (p, 9) and (k, 1)."""
    return Rows([[Keyed(each[0], int(each[1:])) for each in tick.split()] for tick in ticks])


def run_and_ask(flow: Flow, given: dict[str, Any], sink: str) -> set[tuple[Any, ...]]:
    """Rows of a sink after a run, each of which is found."""
    memory = Memory()
    hr.run(flow, given, {sink: memory})
    there = {tuple(row) for row in memory.rows()}
    for row in there:
        found = find_witness(flow, given, sink, row, end=True)
        assert (found.found, found.conclusive, found.by_tick) == (True, True, True), row
    return there


def is_absent(flow: Flow, given: dict[str, Any], sink: str, row: tuple[Any, ...]) -> bool:
    found = find_witness(flow, given, sink, row, end=True)
    return (found.found, found.conclusive) == (False, True)


def test_a_deferred_row_arrives_with_the_next_input_as_in_a_run() -> None:
    flow = Flow("new", ticks="given")
    a, b = flow.source("a", Keyed), flow.source("b", Keyed)
    flow.sink("new", a.anti_join(b.defer_tick(), on="k", lifetime="tick"))
    flow.sink("both", a.join(b.defer_tick(), on="k", lifetime="tick", suffix="_b"))
    given = {"a": rows_of("p9", "k1"), "b": rows_of("k5", "z5")}
    assert run_and_ask(flow, given, "new") == {("p", 9)}
    assert is_absent(flow, given, "new", ("k", 1))
    assert run_and_ask(flow, given, "both") == {("k", 1, 5)}


def test_a_lazily_deferred_row_does_not_wait_for_a_tick_with_rows_of_its_key() -> None:
    flow = Flow("late", ticks="given")
    a, b = flow.source("a", Keyed), flow.source("b", Keyed)
    flow.sink("both", a.join(b.defer_tick_lazy(), on="k", lifetime="tick", suffix="_b"))
    given = {"a": rows_of("", "z1", "k7"), "b": rows_of("k5", "", "")}
    assert run_and_ask(flow, given, "both") == set()
    assert is_absent(flow, given, "both", ("k", 7, 5))
    no_rows = given | {"a": rows_of("", "", "k7")}
    assert run_and_ask(flow, no_rows, "both") == set()
    assert is_absent(flow, no_rows, "both", ("k", 7, 5))
    assert run_and_ask(flow, given | {"a": rows_of("", "k7")}, "both") == {("k", 7, 5)}


def test_ticks_that_another_source_starts_count() -> None:
    flow = Flow("three", ticks="given")
    a, b, c = (flow.source(name, Keyed) for name in "abc")
    flow.sink("b", b.defer_tick_lazy())
    flow.sink("each", a.every_tick().group_by(col.k).agg(n=hr.count()))
    flow.sink("c", c.defer_tick())
    given = {"a": rows_of("a1"), "b": rows_of("", "b1"), "c": rows_of("", "c1")}
    # The row of c is deferred, and starts a third tick.
    assert run_and_ask(flow, given, "b") == {("b", 1)}
    assert run_and_ask(flow, given, "each") == {("a", 3)}
    fewer = given | {"c": rows_of("c1")}
    assert run_and_ask(flow, fewer, "b") == set()
    assert is_absent(flow, fewer, "b", ("b", 1))
    assert is_absent(flow, fewer, "each", ("a", 3))
    unread = find_witness(flow, given | {"c": iter([])}, "b", ("b", 1), end=True)
    assert (unread.found, unread.conclusive) == (False, False)
    assert unread.problem == "The row may depend on the ticks of c, which cannot be read again."
    told = witness_json(find_witness(flow, given, "b", ("b", 1), end=True))["steps"]
    assert told[:2] == [
        "b: read 1 row again; 1 has k = 'b' and x = 1.",
        "a: read 1 row again; only its ticks matter.",
    ]
    assert told[3].startswith("The sink depends on the cut into ticks.")


def test_a_source_that_ends_first_closes_windows_as_in_a_run() -> None:
    flow = Flow("windows", ticks="given")
    a, b = (flow.source(name, Keyed).watermark(col.x, lateness=0) for name in "ab")
    windows = a.union(b).group_by(window=hr.tumbling(col.x, 4)).agg(n=hr.count())
    flow.sink("first", windows.group_by().agg(lifetime="tick", n=hr.max(col.n)))
    given = {"a": rows_of("a1 a2", "a9"), "b": rows_of("b1")}
    assert run_and_ask(flow, given, "first") == {(3,), (1,)}


def test_rows_are_cut_into_ticks_as_in_a_run_whatever_the_limit() -> None:
    flow = Flow("ticks", ticks="given")
    flow.sink("n", flow.source("a", int).group_by().agg(lifetime="tick", n=hr.count()))
    found = find_witness(flow, {"a": [*range(9)]}, "n", (9,), limits=ReplayLimits(rows=9))
    assert (found.found, found.conclusive) == (True, True)
    assert is_absent(flow, {"a": [*range(9)]}, "n", (4,))


def test_a_source_that_is_not_read_leaves_a_row_in_doubt_that_it_may_replace() -> None:
    flow = shop()
    sources = {"orders": iter(ORDERS), "products": PRODUCTS}
    found = find_witness(flow, sources, "unsold", PRODUCTS[0])
    assert (found.found, found.conclusive) == (True, False)
    two = Flow("two")
    two.sink("either", two.source("a", int).union(two.source("b", int)))
    grows = find_witness(two, {"a": [1, 2], "b": iter([3])}, "either", (2,))
    assert (grows.found, grows.conclusive) == (True, True)
    assert not find_witness(two, {"a": [1, 2], "b": iter([3])}, "either", (3,)).conclusive


def test_a_part_of_a_bounded_source_does_not_tell_what_is_absent_from_it() -> None:
    flow = Flow("unsold")
    sold = flow.source("sold", int, bounded=True).map(lambda n: n, returns=int)
    flow.sink("unsold", flow.source("all", int).anti_join(sold, on="value"))
    given = {"sold": [*range(50)], "all": [40, 200]}
    for row, there in ((40, False), (200, True)):
        part = find_witness(flow, given, "unsold", (row,), limits=ReplayLimits(rows=10))
        assert (part.found, part.conclusive) == (True, False)
        whole = find_witness(flow, given, "unsold", (row,))
        assert (whole.found, whole.conclusive) == (there, True)


def test_a_row_found_by_its_columns_is_in_doubt_if_the_rows_that_decide_it_were_not_all_read() -> None:
    flow = Flow("top")
    flow.sink("all", flow.source("orders", Order).top_k(1, by=col.amount.desc()))
    orders = [Order("ann", "pen", n) for n in range(50)]
    found = find_witness(
        flow, {"orders": orders}, "all", orders[9], tick_rows=1, limits=ReplayLimits(rows=10)
    )
    assert (found.found, found.conclusive, len(found.possible)) == (True, False, 1)


def test_an_error_of_the_flow_is_told() -> None:
    flow = Flow("inverse")
    flow.sink("inverse", flow.source("n", int).select(value=1 / col.value))
    found = find_witness(flow, {"n": [1, 0]}, "inverse", (3.0,))
    assert not found.found
    assert "fails on the rows that were read again" in found.problem


def _drawn(random_: random.Random) -> dict[str, list[Any]]:
    products = [Product(p, random_.choice(("tools", "kitchen"))) for p in ("pen", "ink", "mug")]
    names, bought = ("ann", "bob"), ("pen", "ink", "cup")
    orders = [
        Order(random_.choice(names), random_.choice(bought), random_.randrange(-2, 9)) for _ in range(12)
    ]
    return {"orders": orders, "products": products}


def _answers(given: dict[str, list[Any]]) -> dict[str, set[tuple[Any, ...]]]:
    """Rows of each sink of the shop, without weights."""
    engine = hr.Engine(shop())
    made = engine.tick_rows({name: engine.internal_rows(name, rows) for name, rows in given.items()})
    widths = {
        name: len(engine.program.graph.nodes[node].schema.fields)
        for name, node in engine.program.graph.sinks.items()
    }
    return {name: {row[: widths[name]] for row in rows} for name, rows in made.items()}


@pytest.mark.seeds(6)
def test_a_witness_gives_the_row_by_itself_for_each_row_of_each_sink(seed: int) -> None:
    given = _drawn(random.Random(seed))
    for sink, rows in _answers(given).items():
        for row in rows:
            found = find_witness(shop(), given, sink, row)
            assert found.minimal, (sink, row)
            again = hr.Engine(shop())
            inputs: dict[str, list[Any]] = {}
            for item in found.needed:
                inputs.setdefault(item.source, []).append(item.row)
            assert row in [each[: len(row)] for each in again.tick_rows(inputs).get(sink, [])]


@pytest.mark.seeds(6)
def test_a_row_that_only_some_of_the_rows_would_give_is_not_explained(seed: int) -> None:
    random_ = random.Random(seed)
    given = _drawn(random_)
    there = _answers(given)
    some = {name: random_.sample(rows, len(rows) // 2) for name, rows in given.items()}
    for sink, rows in _answers(some).items():
        for row in rows - there[sink]:
            assert not find_witness(shop(), given, sink, row).found, (sink, row)
