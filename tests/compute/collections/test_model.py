"""Random appends, compactions and readings by two handles, against a list of updates."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from headrace.compute.collections.store import CollectionAppend, Collections, Listen
from headrace.compute.errors import NegativeMultiplicity, SinceViolation, TimestampNotReady, UpperMismatch
from headrace.compute.frontier import END, START, Frontier
from headrace.compute.protocol.responses import Update

from .conftest import KINDS, Place, place_of

IDS = ("s1", "s2")
VALUES = st.sampled_from(["a", "b", "c", 0, 1.5])


class Model:
    """What a collection is: all its updates, and how far it can be read."""

    def __init__(self) -> None:
        self.updates: list[Update] = []
        self.since, self.upper = START, START

    def bag(self, time: int, updates: list[Update] | None = None) -> dict[Any, int]:
        found: dict[Any, int] = {}
        for (value,), at, weight in self.updates if updates is None else updates:
            if at <= time:
                found[value] = found.get(value, 0) + weight
        return {value: count for value, count in found.items() if count}

    def refuses(self, updates: list[Update]) -> bool:
        both = self.updates + updates
        return any(n < 0 for _, at, _ in updates for n in self.bag(at, both).values())


class Follower:
    """Somebody who has a snapshot and listens from there on."""

    def __init__(self, store: Collections, id: str, at: int, chunk: int) -> None:
        self.id = id
        self.sums = {value: n for rows in store.snapshot(id, at, chunk) for (value,), n in rows}
        self.listen = Listen(store, id, Frontier(at + 1), chunk)

    def next(self) -> None:
        before = self.listen.reached
        part = self.listen.next()
        if part is None:
            assert self.listen.reached == before
            return
        assert part.lower == before
        assert part.upper == self.listen.reached
        assert len(part.updates) <= self.listen.chunk
        for (value,), time, weight in part.updates:
            assert part.lower <= Frontier(time) <= part.upper
            self.sums[value] = self.sums.get(value, 0) + weight


class Machine(RuleBasedStateMachine):
    open: Callable[[], Collections]

    @initialize()
    def begin(self) -> None:
        self.handles = [type(self).open(), type(self).open()]
        for handle in self.handles:
            for id in IDS:
                handle.drop(id)
        for id in IDS:
            self.handles[0].create(id, b"")
        self.models = {id: Model() for id in IDS}
        self.followers: list[Follower] = []

    @rule(data=st.data(), who=st.integers(0, 1), ids=st.sets(st.sampled_from(IDS), min_size=1))
    def append(self, data: st.DataObject, who: int, ids: set[str]) -> None:
        appends: list[CollectionAppend] = []
        refusals: set[type[Exception]] = set()
        for id in sorted(ids):
            model = self.models[id]
            expected = model.upper
            assume(expected.time is not None)
            assert expected.time is not None
            if data.draw(st.integers(0, 9)) == 0:
                expected = (
                    Frontier(expected.time + data.draw(st.sampled_from([-1, 1]))) if expected.time else END
                )
                refusals.add(UpperMismatch)
            lower = expected.time or 0
            span = data.draw(st.integers(0, 4)) if expected.time is not None else 0
            times = st.integers(lower, lower + span - 1)
            changes = st.tuples(st.tuples(VALUES), times, st.sampled_from([1, 1, 1, 2, -1, -2]))
            updates = data.draw(st.lists(changes, max_size=6)) if span else []
            upper = expected if expected.ended else Frontier(lower + span)
            if model.refuses(updates):
                refusals.add(NegativeMultiplicity)
            appends.append(CollectionAppend(id, expected, upper, updates))
        if refusals:
            with pytest.raises(tuple(refusals)):
                self.handles[who].append(appends)
            return
        self.handles[who].append(appends)
        for append in appends:
            self.models[append.id].updates += append.updates
            self.models[append.id].upper = append.upper

    @rule(who=st.integers(0, 1), id=st.sampled_from(IDS), ahead=st.integers(-3, 6))
    def compact(self, who: int, id: str, ahead: int) -> None:
        model = self.models[id]
        since = Frontier(max(0, (model.since.time or 0) + ahead))
        if any(f.id == id and since >= f.listen.reached for f in self.followers):
            return
        self.handles[who].compact(id, since)
        model.since = max(model.since, since)

    @rule(
        who=st.integers(0, 1),
        id=st.sampled_from(IDS),
        time=st.integers(0, 40),
        chunk=st.sampled_from([1, 3, 100]),
    )
    def snapshot(self, who: int, id: str, time: int, chunk: int) -> None:
        model, store = self.models[id], self.handles[who]
        if model.since.has_passed(time):
            with pytest.raises(SinceViolation):
                store.snapshot(id, time, chunk)
        elif not model.upper.has_passed(time):
            with pytest.raises(TimestampNotReady):
                store.snapshot(id, time, chunk)
        else:
            found = [row for rows in store.snapshot(id, time, chunk) for row in rows]
            assert {value: n for (value,), n in found} == model.bag(time)
            assert len(found) == len(model.bag(time))

    @rule(who=st.integers(0, 1), id=st.sampled_from(IDS), lower=st.integers(0, 30), upper=st.integers(0, 40))
    def changes(self, who: int, id: str, lower: int, upper: int) -> None:
        model, store = self.models[id], self.handles[who]
        if Frontier(lower) <= model.since and model.since != START:
            with pytest.raises(SinceViolation):
                store.changes(id, Frontier(lower), Frontier(upper))
        elif Frontier(upper) > model.upper:
            with pytest.raises(TimestampNotReady):
                store.changes(id, Frontier(lower), Frontier(upper))
        else:
            found = [u for part in store.changes(id, Frontier(lower), Frontier(upper), 2) for u in part]
            assert [time for _, time, _ in found] == sorted(time for _, time, _ in found)
            for time in range(lower, upper):
                ours = [u for u in model.updates if u[1] == time]
                assert model.bag(time, [u for u in found if u[1] == time]) == model.bag(time, ours)

    @rule(who=st.integers(0, 1), id=st.sampled_from(IDS), chunk=st.sampled_from([1, 2, 100]))
    def follow(self, who: int, id: str, chunk: int) -> None:
        model = self.models[id]
        if model.upper.time and not model.since.has_passed(model.upper.time - 1):
            self.followers.append(Follower(self.handles[who], id, model.upper.time - 1, chunk))

    @rule(data=st.data())
    def go_on(self, data: st.DataObject) -> None:
        if self.followers:
            data.draw(st.sampled_from(self.followers)).next()

    @invariant()
    def bounds_are_those_of_the_model(self) -> None:
        if hasattr(self, "models"):
            for handle in self.handles:
                for id, found in zip(IDS, handle.bounds(IDS)):
                    assert (found.since, found.upper) == (self.models[id].since, self.models[id].upper)

    def teardown(self) -> None:
        for follower in getattr(self, "followers", []):
            while follower.listen.reached < self.models[follower.id].upper:
                follower.next()
            reached = self.models[follower.id].upper.time
            assert reached is not None
            there = {value: n for value, n in follower.sums.items() if n}
            assert there == self.models[follower.id].bag(reached - 1)
        for handle in getattr(self, "handles", []):
            handle.close()


EXAMPLES = {"memory": 60, "sqlite": 40, "postgresql": 4, "delta": 4}


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_does_what_a_list_of_updates_does(kind: str, request: pytest.FixtureRequest) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place: Place = place_of(kind, Path(folder), request)
        machine = type(f"Machine of {kind}", (Machine,), {"open": staticmethod(place.open)})
        few = settings(max_examples=EXAMPLES[kind], stateful_step_count=30, deadline=None)
        run_state_machine_as_test(machine, settings=few)
        place.close()
