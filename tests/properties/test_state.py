"""State is data: a run may stop after any tick and go on from what was stored, and a tick costs what changes.

A store may give back tuples for lists; each slot says how to make them lists again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import Engine, col
from headrace.expr.code_runtime import NAN
from headrace.state.marked_values import Exact
from tests.properties.effort import examples
from tests.random_flows.cases import Case, Tick, cases, cuts

PLAIN = (bool, int, float, str, bytes, Decimal, date, datetime, timedelta)


def stored(value: Any) -> Any:
    """A value as a store may give it back; fails for what no store can hold."""
    if isinstance(value, list | tuple):
        return tuple(stored(part) for part in value)
    if isinstance(value, dict):
        return {stored(key): stored(part) for key, part in value.items()}
    if isinstance(value, float) and value != value:
        return NAN
    if isinstance(value, Exact):
        return Exact(stored(value.value))
    assert value is None or type(value) in PLAIN, f"state is plain data, found {value!r}"
    return value


def restarted(
    engine: Engine, flow: hr.Flow, state: dict[str, dict[Any, Any]]
) -> tuple[Engine, dict[str, Any]]:
    thaw = {slot.name: slot.thaw for slot in engine.program.slots}
    again = {
        name: {stored(key): thaw[name](stored(value)) for key, value in slot.items()}
        for name, slot in state.items()
    }
    return Engine(flow, state=again, first_tick=engine.ticks), again


def changes_of(answer: dict[str, Any]) -> dict[str, Counter[Any]]:
    return {name: Counter({row[:-1]: row[-1] for row in changes.raw}) for name, changes in answer.items()}


@examples(1.5)
@given(
    cases(deferred=True, settled=False, folds=True).flatmap(lambda case: st.tuples(st.just(case), cuts(case)))
)
def test_an_engine_that_goes_on_from_stored_state_answers_as_if_it_had_never_stopped(
    drawn: tuple[Case, list[Tick]],
) -> None:
    case, ticks = drawn
    straight = Engine(case.flow)
    state: dict[str, Any] = {slot.name: {} for slot in straight.program.slots}
    stopping = Engine(case.flow, state=state)
    for tick in [*ticks, {}, {}]:
        expected = changes_of(straight.tick(**tick))
        assert changes_of(stopping.tick(**tick)) == expected
        stopping, state = restarted(stopping, case.flow, state)
        assert stopping.pending == straight.pending


@examples(1)
@given(cases(tables=True))
def test_a_flow_whose_input_is_all_taken_back_keeps_no_state(case: Case) -> None:
    only_tables = all(not case.source(name).append for name in case.inputs)
    if not only_tables:
        return
    engine = Engine(case.flow, state=(state := {s.name: {} for s in Engine(case.flow).program.slots}))
    engine.tick(**case.tick(case.inputs))
    taken_back = {n: [hr.Change(c.row, -c.weight) for c in changes] for n, changes in case.inputs.items()}
    engine.tick(**taken_back)
    assert {name: slot for name, slot in state.items() if slot} == {}


class Counted(dict[Any, Any]):
    """A slot that counts how often it is asked and told."""

    uses = 0

    def get(self, key: Any, default: Any = None, /) -> Any:
        type(self).uses += 1
        return super().get(key, default)

    def __setitem__(self, key: Any, value: Any, /) -> None:
        type(self).uses += 1
        super().__setitem__(key, value)

    def __delitem__(self, key: Any, /) -> None:
        type(self).uses += 1
        super().__delitem__(key)

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("nothing iterates a slot")

    items = keys = values = __iter__  # type: ignore[assignment]


def test_a_tick_asks_the_state_for_what_changes_and_not_for_more() -> None:
    flow = hr.Flow("averages")
    left, right = flow.table("left", int), flow.table("right", int)
    joined = left.join(right, on="value").with_columns(group=col.value % 50)
    flow.sink("sums", joined.group_by("group").agg(sum=hr.sum(col.value)).top_k(1, by=col.sum, per="group"))
    flow.sink("absent", left.join(right, on="value", how="anti").distinct())

    def cost(rows: int) -> int:
        engine = Engine(flow, state={slot.name: Counted() for slot in Engine(flow).program.slots})
        engine.tick(left=range(rows), right=range(rows))
        Counted.uses = 0
        engine.tick(left=[hr.delete(7), hr.insert(-1)])
        return Counted.uses

    assert cost(100) == cost(10_000)
