"""Nothing behind a join is ever computed on a pair that no tick ended with.

Each flow divides by what only a pair of that moment could make zero: a row that
comes on one side meets, if changes were taken one by one, the old partner.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import Engine, col, delete, insert, left, right


class Due(NamedTuple):
    name: str
    amount: int


class Most(NamedTuple):
    name: str
    most: int


def shares(how: str, first: str) -> hr.Flow:
    """amount / most over a join, or over what a semi or anti join leaves of `most` (zeros never pass)."""
    flow = hr.Flow("shares")
    tables: dict[str, Any] = {}
    for name in sorted(("due", "most"), key=lambda n: n != first):
        tables[name] = flow.table(name, Due if name == "due" else Most)
    due, most = tables["due"], tables["most"]
    if how in ("inner", "left"):
        joined = due.join(most, on="name", how=how)
    else:
        joined = most.join(due, on="name", how=how).with_columns(amount=col.most)
    flow.sink("out", joined.select(share=col.amount / col.most))
    return flow


@pytest.mark.parametrize("first", ["due", "most"])
@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_row_that_comes_does_not_meet_a_partner_that_goes(how: str, first: str) -> None:
    engine = Engine(shares(how, first))
    engine.tick(most=[Most("ann", 0)])
    changes = engine.tick(due=[Due("ann", 3)], most=[delete(Most("ann", 0)), insert(Most("ann", 2))])
    assert [(change.row.share, change.weight) for change in changes["out"]] == [(1.5, 1)]


@pytest.mark.parametrize("first", ["due", "most"])
def test_a_partner_that_comes_does_not_meet_a_row_that_goes(first: str) -> None:
    flow = hr.Flow("the other way round")
    due, most = flow.table("due", Due), flow.table("most", Most)
    pairs = due.join(most, on="name") if first == "due" else most.join(due, on="name")
    flow.sink("out", pairs.select(share=col.most / col.amount))
    engine = Engine(flow)
    engine.tick(due=[Due("ann", 0)])
    changes = engine.tick(due=[delete(Due("ann", 0)), insert(Due("ann", 2))], most=[Most("ann", 3)])
    assert [(change.row.share, change.weight) for change in changes["out"]] == [(1.5, 1)]


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_a_row_that_goes_is_not_let_through_by_a_key_that_comes_or_goes(how: str) -> None:
    engine = Engine(shares(how, "most"))
    present = [Due("ann", 1)]
    engine.tick(most=[Most("ann", 0)], due=present if how == "anti" else [])
    crossing = [delete(d) for d in present] if how == "anti" else present
    changes = engine.tick(most=[delete(Most("ann", 0)), insert(Most("ann", 4))], due=crossing)
    assert [(change.row.share, change.weight) for change in changes["out"]] == [(1.0, 1)]


def test_a_residual_that_can_fail_sees_no_such_pair_either() -> None:
    flow = hr.Flow("residual")
    due, most = flow.table("due", Due), flow.table("most", Most)
    enough = (left.name == right.name) & (left.amount / right.most < 2)
    for how in ("inner", "left", "semi", "anti"):
        flow.sink(how, due.join(most, on=enough, how=how))  # type: ignore[call-overload]
    engine = Engine(flow)
    engine.tick(most=[Most("ann", 0)])
    engine.tick(due=[Due("ann", 3)], most=[delete(Most("ann", 0)), insert(Most("ann", 2))])


def test_an_opaque_function_behind_two_joins_sees_no_such_pair() -> None:
    seen: list[tuple[int, int]] = []

    def note(row: Any) -> int:
        seen.append((row.amount, row.most))
        return row.amount

    flow = hr.Flow("two joins")
    due, most, names = flow.table("due", Due), flow.table("most", Most), flow.table("names", Due)
    pairs = due.join(most, on="name").join(names, on="name", how="semi")
    flow.sink("out", pairs.map(note, returns=int))
    engine = Engine(flow)
    engine.tick(most=[Most("ann", 0)], names=[Due("ann", 0)])
    engine.tick(due=[Due("ann", 3)], most=[delete(Most("ann", 0)), insert(Most("ann", 2))])
    assert seen == [(3, 2)]


@pytest.mark.parametrize("first", ["due", "most"])
def test_a_partition_behind_a_join_finds_a_port_for_every_row(first: str) -> None:
    flow = hr.Flow("ports")
    tables = {name: flow.table(name, Due if name == "due" else Most) for name in ("due", "most")}
    other = "most" if first == "due" else "due"
    pairs: Any = tables[first].join(tables[other], on="name")
    flow.sink("out", pairs.demux(col.amount <= col.most, [True])[True])
    engine = Engine(flow)
    engine.tick(due=[Due("ann", 1)], most=[Most("ann", 2)])
    replaced = {
        "due": [delete(Due("ann", 1)), insert(Due("ann", 5))],
        "most": [delete(Most("ann", 2)), insert(Most("ann", 9))],
    }
    changes = engine.tick(**replaced)["out"]
    assert {(change.row.amount, change.row.most, change.weight) for change in changes} == {
        (1, 2, -1),
        (5, 9, 1),
    }


def test_where_nothing_can_notice_a_join_keeps_its_inputs_unbuffered() -> None:
    flow = hr.Flow("plain")
    pairs = flow.table("due", Due).filter(col.amount > 1).join(flow.table("most", Most), on="name")
    flow.sink("out", pairs.group_by("name").agg(total=hr.sum(col.amount)))
    assert "x_consolidate" not in Engine(flow).code


CHANGES = st.lists(
    st.tuples(st.sampled_from(["due", "most"]), st.sampled_from("ab"), st.integers(1, 3)), max_size=4
)


@settings(max_examples=150)
@given(st.sampled_from(["inner", "left"]), st.sampled_from(["due", "most"]), st.lists(CHANGES, max_size=5))
def test_replacing_a_row_within_a_tick_never_shows_a_mixture(
    how: str, first: str, ticks: list[list[tuple[str, str, int]]]
) -> None:
    """`due` and `most` of a name always change together and agree; a mixture would not, and fail."""
    flow = hr.Flow("agree")
    tables: dict[str, Any] = {}
    for name in sorted(("due", "most"), key=lambda n: n != first):
        tables[name] = flow.table(name, Due if name == "due" else Most)
    joined = tables["due"].join(tables["most"], on="name", how=how)
    # 1 / (1 - |amount - most|) fails for a pair that differs by one, overflows nothing else.
    flow.sink("out", joined.select(ok=1 / (1 - abs(col.amount - col.most))))
    engine = Engine(flow)
    now: dict[str, int] = {}
    for tick in ticks:
        then = dict(now)
        for _, name, value in tick:
            now[name] = value
        due: list[Any] = []
        most: list[Any] = []
        for name in {*then, *now}:
            if then.get(name) != now[name]:
                if name in then:
                    due.append(delete(Due(name, then[name])))
                    most.append(delete(Most(name, then[name])))
                due.append(insert(Due(name, now[name])))
                most.append(insert(Most(name, now[name])))
        engine.tick(due=due, most=most)
