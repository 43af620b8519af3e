"""What a replica says of any served flow is what the flow says of the rows at that time, from scratch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.compute.errors import NotServable
from headrace.compute.frontier import Frontier
from headrace.compute.plans import check_servable, sinks_of
from headrace.compute.protocol.commands import AllowCompaction, IndexExport
from headrace.compute.protocol.responses import RowsResponse, Update
from headrace.expr.row_classes import from_user
from headrace.testing.oracle import answers
from tests.compute.replica.rig import Bag, Rig, bag, subscribed
from tests.properties.effort import examples
from tests.random_flows.cases import Case, Tick, cases, cuts


@st.composite
def served(draw: st.DrawFn) -> tuple[Case, list[Tick]]:
    """A flow that may be served, and its input by times."""
    case = draw(cases(folds=True))
    try:
        check_servable(case.flow)
    except NotServable:
        assume(False)
    return case, draw(cuts(case, most=5))


class Truth:
    """The input of a case as updates by time, and what the flow says of the rows at a time."""

    def __init__(self, case: Case, ticks: list[Tick]) -> None:
        self.case = case
        self.updates: list[dict[str, list[Update]]] = []
        for at, tick in enumerate(ticks):
            self.updates.append({n: self._updates(n, changes, 10 * at + 5) for n, changes in tick.items()})

    def _updates(self, name: str, changes: list[Any], time: int) -> list[Update]:
        source = self.case.source(name)
        pairs = [(row, 1) for row in changes] if source.append else [tuple(change) for change in changes]
        rows = from_user(source.schema, what=name)([row for row, _ in pairs])
        return [(row, time, weight) for row, (_, weight) in zip(rows, pairs, strict=True)]

    def at(self, time: int) -> dict[str, Bag]:
        there: dict[str, Counter[Any]] = {name: Counter() for name in self.case.inputs}
        for tick in self.updates:
            for name, updates in tick.items():
                for row, when, weight in updates:
                    there[name][row] += weight * (when <= time)
        return answers(self.case.graph, there)


@examples(0.3)
@given(served(), st.data())
def test_peeks_and_subscriptions_are_the_answer_from_scratch(
    drawn: tuple[Case, list[Tick]], data: st.DataObject
) -> None:
    case, ticks = drawn
    truth, rig = Truth(case, ticks), Rig().connect()
    written = data.draw(st.integers(0, len(ticks)), "ticks written before")
    for name in case.inputs:
        rig.collection(name, case.source(name).schema)
    for tick in range(written):
        write(rig, truth, tick)
    as_of = data.draw(st.integers(0, 10 * len(ticks)), "as of")
    sinks = sinks_of(case.flow)
    indexes = [
        IndexExport(f"u{at}", sink.name, tuple(data.draw(st.permutations(sink.schema.names))[: at % 3]))
        for at, sink in enumerate(sinks)
    ]
    rig.create(case.flow, *indexes, as_of=as_of)
    since, subscribed_at, asked = as_of, {}, []
    for tick in range(written, len(ticks) + 1):
        for _ in range(data.draw(st.integers(0, 4), "things that happen")):
            match data.draw(st.sampled_from(["step", "peek", "compact", "subscribe"])):
                case "step":
                    rig.step(data.draw(st.sampled_from([0.0, 0.005])))
                case "peek":
                    index = data.draw(st.sampled_from(indexes))
                    time = data.draw(st.integers(since, max(since, 10 * len(ticks))))
                    asked.append((index, time, rig.ask(index.id, time)))
                case "compact":
                    since = data.draw(st.integers(since, since + 10))
                    rig.tell(*(AllowCompaction(index.id, Frontier(since)) for index in indexes))
                case _:
                    id = f"t{len(subscribed_at)}"
                    at, snapshot = data.draw(st.integers(0, len(sinks) - 1)), data.draw(st.booleans())
                    subscribed_at[id] = (sinks[at].name, since, snapshot)
                    rig.subscribe(id, f"u{at}", sinks[at].schema, as_of=since, snapshot=snapshot)
        if tick < len(ticks):
            write(rig, truth, tick)
    rig.run()
    end = 10 * len(ticks)
    for index, time, uuid in asked:
        answer = rig.answer(uuid)
        if time < end:
            assert isinstance(answer, RowsResponse), answer
            assert bag(answer.rows) == truth.at(time)[index.sink]
    for index in indexes:
        for time in range(since, end, 5):
            assert rig.rows(index.id, time) == truth.at(time)[index.sink]
    for id, (sink, from_time, snapshot) in subscribed_at.items():
        if from_time < end:
            check_subscription(
                subscribed(rig.batches(id), Frontier(end)), truth, sink, from_time, snapshot, end
            )


def write(rig: Rig, truth: Truth, tick: int) -> None:
    for name in truth.case.inputs:
        rig.write(name, *truth.updates[tick].get(name, ()), upper=10 * tick + 10)


def check_subscription(
    changes: Mapping[int, Bag], truth: Truth, sink: str, as_of: int, snapshot: bool, end: int
) -> None:
    there: Bag = Counter() if snapshot else truth.at(as_of)[sink]
    for time in range(as_of, end):
        for row, weight in changes.get(time, {}).items():
            there[row] += weight
        if time % 5 == 0 or time == as_of:
            assert Counter({r: n for r, n in there.items() if n}) == truth.at(time)[sink]
    assert all(as_of <= time < end for time in changes)
