"""A checkpoint goes on with a flow that was changed, exactly where its state is still that of the flow."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace import Change, Flow, col
from headrace.analysis import fingerprints
from headrace.errors import FlowChanged
from headrace.io import Changelog, TableFiles


class Bid(NamedTuple):
    item: str
    price: int


class Item(NamedTuple):
    item: str
    owner: str


BIDS = [Bid("ab"[n % 2], n) for n in range(1, 9)]
ITEMS = [Item("a", "ann"), Item("b", "bob")]

Build = Callable[[Flow], None]


def flow_of(build: Build) -> Flow:
    flow = Flow("bids")
    build(flow)
    return flow


def best(flow: Flow, *, at_least: int = 0, name: str | None = None) -> Any:
    bids = flow.source("bids", Bid).filter(col.price > at_least, name=name)
    return bids.group_by(col.item).agg(best=hr.max(col.price), number=hr.count())


def base(flow: Flow) -> None:
    flow.sink("best", best(flow))


def run(build: Build, folder: Path, rows: list[Bid], **more: Any) -> dict[str, Counter[Any]]:
    """Run to the end of `rows`; the sums of the changes of this run, per sink."""
    flow = flow_of(build)
    sinks: dict[str, list[Change[Any]]] = {name: [] for name in flow.graph().sinks}
    sources = {"bids": rows, "items": ITEMS} | more
    used = {name: sources[name] for name in flow.graph().sources}
    hr.run(flow, used, sinks, checkpoint=folder, tick_rows=2)
    sums: dict[str, Counter[Any]] = {}
    for name, changes in sinks.items():
        total: Counter[Any] = Counter()
        for row, weight in changes:
            total[tuple(row)] += weight
        sums[name] = Counter({row: n for row, n in total.items() if n})
    return sums


def goes_on(before: Build, after: Build, folder: Path, sink: str = "best") -> None:
    """The changes of both runs together are those of one run of `after`."""
    first = run(before, folder / "c", BIDS[:5])
    second = run(after, folder / "c", BIDS)
    whole = run(after, folder / "whole", BIDS)
    total = Counter(first["best"])
    total.update(second[sink])
    assert {row: n for row, n in total.items() if n} == whole[sink]


def with_another_sink(flow: Flow) -> None:
    found = best(flow)
    flow.sink("best", found)
    flow.sink("high", found.filter(col.best > 3).select(col.item))


def with_a_branch_before(flow: Flow) -> None:
    flow.sink("prices", flow.source("items", Item).select(col.owner))
    flow.sink("best", best(flow))


def renamed(flow: Flow) -> None:
    flow.sink("the best", best(flow, name="all"))


def with_a_new_source_and_its_state(flow: Flow) -> None:
    flow.sink("owners", flow.source("items", Item).group_by(col.owner).agg(number=hr.count()))
    flow.sink("best", best(flow))


@pytest.mark.parametrize(
    ("after", "sink"),
    [
        (with_another_sink, "best"),
        (with_a_branch_before, "best"),
        (with_a_new_source_and_its_state, "best"),
        (renamed, "the best"),
    ],
)
def test_a_change_beside_the_state_goes_on_with_it(tmp_path: Path, after: Build, sink: str) -> None:
    goes_on(base, after, tmp_path, sink)


def joined(flow: Flow) -> Any:
    return flow.source("bids", Bid).join(flow.source("items", Item), on="item")


def owners(flow: Flow) -> None:
    flow.sink("best", joined(flow).top_k(2, by=col.price.desc(), per=col.owner))


def owners_read_by_a_function(flow: Flow) -> None:
    found = joined(flow)
    flow.sink("lines", found.map(lambda row: f"{row.owner} {row.price}", returns=str))
    flow.sink("best", found.top_k(2, by=col.price.desc(), per=col.owner))


@pytest.mark.parametrize(
    ("before", "after"), [(owners, owners_read_by_a_function), (owners_read_by_a_function, owners)]
)
def test_state_is_kept_in_one_form_whoever_reads_it(tmp_path: Path, before: Build, after: Build) -> None:
    goes_on(before, after, tmp_path)


def two_sums(flow: Flow) -> None:
    bids = flow.source("bids", Bid)
    flow.sink("best", bids.group_by(col.item).agg(best=hr.max(col.price), number=hr.count()))
    flow.sink("sum", bids.group_by(col.item).agg(sum=hr.sum(col.price)))


def two_sums_turned_round(flow: Flow) -> None:
    bids = flow.source("bids", Bid)
    flow.sink("sum", bids.group_by(col.item).agg(sum=hr.sum(col.price)))
    flow.sink("best", bids.group_by(col.item).agg(best=hr.max(col.price), number=hr.count()))


def only_best(flow: Flow) -> None:
    bids = flow.source("bids", Bid)
    flow.sink("best", bids.group_by(col.item).agg(best=hr.max(col.price), number=hr.count()))


@pytest.mark.parametrize("after", [two_sums_turned_round, only_best])
def test_definitions_in_another_order_and_fewer_of_them_go_on(tmp_path: Path, after: Build) -> None:
    goes_on(two_sums, after, tmp_path)


def test_state_that_was_removed_does_not_come_back(tmp_path: Path) -> None:
    run(two_sums, tmp_path, BIDS[:3])
    run(only_best, tmp_path, BIDS[:6])
    with pytest.raises(
        FlowChanged, match=r"aggregate.*: its groups would lack what ticks 1 to \d read of 'bids'"
    ):
        run(two_sums, tmp_path, BIDS)


def test_a_source_that_comes_back_is_read_from_its_beginning(tmp_path: Path) -> None:
    def twice(flow: Flow) -> None:
        with_a_branch_before(flow)

    run(twice, tmp_path / "c", BIDS[:3])
    run(base, tmp_path / "c", BIDS[:6])
    again = run(twice, tmp_path / "c", BIDS)
    assert again["prices"] == Counter({("ann",): 1, ("bob",): 1})


@pytest.mark.parametrize("number", [1, 2])
def test_two_operators_that_do_the_same_keep_each_its_own_state(tmp_path: Path, number: int) -> None:
    def build(flow: Flow) -> None:
        bids = flow.source("bids", Bid)
        for at in range(number):
            flow.sink(f"{at}", bids.group_by(col.item).agg(best=hr.max(col.price)))

    run(build, tmp_path, BIDS[:3])
    assert run(build, tmp_path, BIDS)["0"] == Counter({("a", 8): 1, ("b", 7): 1, ("a", 2): -1, ("b", 3): -1})


# -- columns that nobody reads -----------------------------------------------------------------------


class Noted(NamedTuple):
    item: str
    note: str | None
    price: int
    more: int | None = None


def over(kind: Any, then: Callable[[Any], Any]) -> Build:
    """A flow over bids of a kind, with the same columns of it read."""
    return lambda flow: flow.sink("best", then(flow.source("bids", kind)))


READERS: dict[str, Callable[[Any], Any]] = {
    "aggregate": lambda bids: bids.group_by(col.item).agg(best=hr.max(col.price)),
    "filter": lambda bids: bids.filter(col.price > 1).group_by(col.item).agg(best=hr.max(col.price)),
    "computed": lambda bids: bids.select(col.item, p=col.price * 2).group_by(col.item).agg(s=hr.sum(col.p)),
    "selected": lambda bids: bids.select(col.item, col.price).distinct(),
    "join": lambda bids: bids.join(bids.select(col.item, p=col.price + 1), on="item").select(col.item, col.p),
    "two": lambda bids: bids.select(col.item).distinct().join(
        bids.group_by(col.item).agg(n=hr.count()), on="item"
    ),
}  # fmt: skip


def noted(rows: list[Bid]) -> list[Noted]:
    return [Noted(row.item, f"note {row.price}", row.price) for row in rows]


def tables_of(build: Build, folder: Path, rows: Any, out: Path) -> Counter[Any]:
    """Run to the end of `rows` with a table as sink; its rows."""
    import pyarrow.parquet as pq

    hr.run(flow_of(build), {"bids": rows}, {"best": TableFiles(out)}, checkpoint=folder, tick_rows=2)
    return Counter(tuple(row.values()) for row in pq.read_table(out / "current").to_pylist())


@pytest.mark.parametrize("reader", READERS)
def test_columns_that_nobody_reads_may_come_and_go(tmp_path: Path, reader: str) -> None:
    before, after = over(Bid, READERS[reader]), over(Noted, READERS[reader])
    whole = tables_of(before, tmp_path / "whole", BIDS, tmp_path / "all")
    tables_of(before, tmp_path / "c", BIDS[:3], tmp_path / "out")
    tables_of(after, tmp_path / "c", noted(BIDS[:6]), tmp_path / "out")
    assert tables_of(before, tmp_path / "c", BIDS, tmp_path / "out") == whole


@pytest.mark.parametrize("reads", [lambda bids: bids.distinct(), lambda bids: bids.filter(lambda bid: True)])
def test_columns_that_are_read_with_the_rest_count(tmp_path: Path, reads: Any) -> None:
    then: Any = lambda bids: reads(bids).group_by(col.item).agg(n=hr.count())  # noqa: E731
    run(over(Bid, then), tmp_path, BIDS[:3])
    with pytest.raises(FlowChanged, match="note is new"):
        run(over(Noted, then), tmp_path, noted(BIDS))  # type: ignore[arg-type]


def test_a_manifest_of_a_time_when_all_columns_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unread = over(Noted, READERS["aggregate"])
    with monkeypatch.context() as patched:
        patched.setattr(
            "headrace.engine.flow_compatibility.add_live_columns", lambda description, graph: description
        )
        tables_of(unread, tmp_path / "c", noted(BIDS[:3]), tmp_path / "out")
    for rows in (BIDS[:5], BIDS):
        found = tables_of(unread, tmp_path / "c", noted(rows), tmp_path / "out")
    assert found == Counter({("a", 8): 1, ("b", 7): 1})
    tables_of(over(Bid, READERS["aggregate"]), tmp_path / "c", BIDS, tmp_path / "out")


# -- refused ----------------------------------------------------------------------------------------


def refused(before: Build, after: Build, folder: Path) -> str:
    run(before, folder, BIDS[:5])
    with pytest.raises(FlowChanged) as caught:
        run(after, folder, BIDS)
    # Nothing is spoilt by it.
    run(before, folder, BIDS)
    return str(caught.value)


def test_an_edited_operator_before_state_is_told_with_place_old_and_new(tmp_path: Path) -> None:
    def stricter(flow: Flow) -> None:
        flow.sink("best", best(flow, at_least=2))

    text = refused(base, stricter, tmp_path)
    assert "changed  filter (price > 2) at test_changed_flows.py:" in text
    assert ": was price > 0, is price > 2" in text
    assert "state    aggregate (by (item): best=max(price), number=count()) at test_changed_flows.py:" in text
    assert ": its groups would lack what ticks 1 to 3 read of 'bids'" in text


def test_an_edited_operator_with_state_is_told(tmp_path: Path) -> None:
    def other(flow: Flow) -> None:
        flow.sink("best", flow.source("bids", Bid).group_by(col.item).agg(least=hr.min(col.price)))

    text = refused(only_best, other, tmp_path)
    assert "was by (item): best=max(price), number=count(), is by (item): least=min(price)" in text


def test_new_state_over_a_source_that_was_read_is_refused(tmp_path: Path) -> None:
    text = refused(only_best, two_sums, tmp_path)
    assert "added    aggregate (by (item): sum=sum(price))" in text
    assert "would lack what ticks 1 to 3 read of 'bids'" in text


def test_a_join_of_an_old_source_and_a_new_one_is_refused(tmp_path: Path) -> None:
    def joined(flow: Flow) -> None:
        bids = flow.source("bids", Bid)
        flow.sink("best", bids.group_by(col.item).agg(best=hr.max(col.price), number=hr.count()))
        flow.sink("owned", bids.join(flow.source("items", Item), on="item"))

    assert "state    join" in refused(only_best, joined, tmp_path)


def test_a_flow_that_has_no_use_for_the_state_is_refused(tmp_path: Path) -> None:
    def prices(flow: Flow) -> None:
        flow.sink("best", flow.source("bids", Bid).select(col.price))

    assert "would be used by nobody" in refused(base, prices, tmp_path)


def test_an_operator_that_was_read_by_nobody_has_no_state_to_go_on_with(tmp_path: Path) -> None:
    def unread(flow: Flow) -> None:
        bids = flow.source("bids", Bid)
        bids.group_by(col.item).agg(sum=hr.sum(col.price))
        flow.sink("best", bids.group_by(col.item).agg(best=hr.max(col.price), number=hr.count()))

    assert "would lack" in refused(unread, two_sums, tmp_path)


def with_function(flow: Flow) -> None:
    bids = flow.source("bids", Bid).filter(lambda bid: bid.price > 0)
    flow.sink("best", bids.group_by(col.item).agg(best=hr.max(col.price)))


def test_another_python_is_named_where_it_makes_other_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(with_function, tmp_path, BIDS[:5])
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    monkeypatch.setattr(fingerprints, "_code", lambda code: "of another Python")
    monkeypatch.setattr(fingerprints, "sys", SimpleNamespace(version_info=(3, 99)))
    with pytest.raises(FlowChanged) as caught:
        run(with_function, tmp_path, BIDS)
    text = str(caught.value)
    assert f"was written with Python {version}, and this is Python 3.99" in text
    assert f"is compiled by Python 3.99, was by {version}" in text
    assert f"Fix: run it with Python {version}" in text
    assert caught.value.where[0].location.file == __file__


# -- sinks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [Changelog, TableFiles])
def test_a_sink_that_was_left_out_for_a_while_is_refused(tmp_path: Path, target: Any) -> None:
    sink = {"best": target(tmp_path / "out")}
    for rows, sinks in ((BIDS[:3], sink), (BIDS[:5], None)):
        hr.run(flow_of(base), {"bids": rows}, sinks, checkpoint=tmp_path / "c")
    with pytest.raises(FlowChanged, match="'best' has missed 2 ticks"):
        hr.run(flow_of(base), {"bids": BIDS}, sink, checkpoint=tmp_path / "c")


def test_a_sink_may_be_renamed_where_its_place_stays(tmp_path: Path) -> None:
    hr.run(
        flow_of(base), {"bids": BIDS[:3]}, {"best": TableFiles(tmp_path / "out")}, checkpoint=tmp_path / "c"
    )
    hr.run(
        flow_of(renamed), {"bids": BIDS}, {"the best": TableFiles(tmp_path / "out")},
        checkpoint=tmp_path / "c",
    )  # fmt: skip


def test_a_sink_that_holds_what_was_not_filtered_is_not_gone_on_with(tmp_path: Path) -> None:
    def filtered(flow: Flow) -> None:
        flow.sink("best", best(flow).filter(col.best > 3))

    sink = {"best": TableFiles(tmp_path / "out")}
    hr.run(flow_of(base), {"bids": BIDS[:3]}, sink, checkpoint=tmp_path / "c")
    with pytest.raises(FlowChanged, match="'best' reads something other than before"):
        hr.run(flow_of(filtered), {"bids": BIDS}, sink, checkpoint=tmp_path / "c")
    # A list holds nothing, so nothing in it can be wrong.
    hr.run(flow_of(filtered), {"bids": BIDS}, {"best": []}, checkpoint=tmp_path / "c")


def test_a_sink_is_told_by_its_place_and_not_by_its_name(tmp_path: Path) -> None:
    def two(flow: Flow) -> None:
        found = best(flow)
        flow.sink("best", found)
        flow.sink("high", found.filter(col.best > 3))

    out, high = TableFiles(tmp_path / "out"), TableFiles(tmp_path / "high")
    hr.run(flow_of(two), {"bids": BIDS[:5]}, {"best": out, "high": high}, checkpoint=tmp_path / "c")
    with pytest.raises(FlowChanged, match="'best' reads something other than before"):
        hr.run(flow_of(two), {"bids": BIDS}, {"best": high}, checkpoint=tmp_path / "c")
