"""Hydration: few at a time, none forgotten."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from headrace.compute.frontier import END, Frontier
from headrace.compute.hydration import SequentialHydration, may_be_scheduled
from headrace.compute.protocol.commands import (
    AllowCompaction,
    Command,
    CreateDataflow,
    Dataflow,
    IndexExport,
    Parameters,
    PlanBytes,
    Schedule,
    UpdateConfiguration,
)
from headrace.compute.protocol.responses import Frontiers

seeds = st.integers(0, 2**32).map(random.Random)


def created(*ids: str, as_of: int | None = 5) -> CreateDataflow:
    exports = tuple(IndexExport(id, f"out {id}") for id in ids)
    return CreateDataflow(Dataflow(PlanBytes(b""), (), (), exports, Frontier(as_of)))


class Replica:
    """The other end, which hydrates what it is told to schedule, sometime. Dataflows by their exports."""

    def __init__(self) -> None:
        self.exports: dict[str, tuple[str, ...]] = {}
        self.sent: list[Command] = []
        self.scheduled: list[str] = []
        self.behind: set[str] = set()

    def receive(self, commands: list[Command]) -> None:
        self.sent += commands
        for command in commands:
            match command:
                case CreateDataflow(dataflow):
                    ids = tuple(export.id for export in dataflow.exports)
                    self.exports.update(dict.fromkeys(ids, ids))
                    self.behind |= set(ids)
                case Schedule(id):
                    self.scheduled.append(id)
                case AllowCompaction(id):
                    self.behind.discard(id)
                case _:
                    pass

    @property
    def hydrating(self) -> set[tuple[str, ...]]:
        """Dataflows of which something is scheduled and something not hydrated."""
        flows = {self.exports[id] for id in self.scheduled if not id.startswith("t")}
        return {ids for ids in flows if any(id in self.behind for id in ids)}


@given(seeds, st.integers(1, 3))
def test_never_more_than_the_limit_hydrate_and_none_is_lost(chance: random.Random, limit: int) -> None:
    limiter, replica = SequentialHydration(limit), Replica()
    unscheduled, alive = list[str](), set[str]()
    for number in range(40):
        match chance.randrange(6):
            case 0 | 1:
                kind = chance.choice("uuut")
                ids = [f"{kind}{number}{part}" for part in "ab"[: chance.randrange(1, 3)]]
                replica.receive(limiter.commands_for(created(*ids)))
                unscheduled += ids
                alive |= set(ids)
            case 2 | 3 if unscheduled:
                id = unscheduled.pop(chance.randrange(len(unscheduled)))
                replica.receive(limiter.commands_for(Schedule(id)))
            case 4 if alive:
                id = chance.choice(sorted(alive))
                alive.remove(id)
                unscheduled = [i for i in unscheduled if i != id]
                replica.receive(limiter.commands_for(AllowCompaction(id, END)))
            case _ if replica.behind:
                id = chance.choice(sorted(replica.behind))
                replica.behind.remove(id)
                replica.receive(limiter.commands_after(Frontiers(id, output=Frontier(9))))
        assert len(replica.hydrating) <= limit
        limiter.check()
    for id in unscheduled:
        replica.receive(limiter.commands_for(Schedule(id)))
    while replica.behind:
        # What is dropped of a dataflow that never begins leaves the others of it waiting for its Schedule.
        ready = sorted(id for id in replica.behind if id in replica.scheduled)
        assert ready, "something waits that nobody will let begin"
        replica.behind.remove(ready[0])
        replica.receive(limiter.commands_after(Frontiers(ready[0], output=END)))
        assert len(replica.hydrating) <= limit
    assert len(replica.scheduled) == len(set(replica.scheduled)), "each is scheduled once"
    assert alive <= set(replica.scheduled)
    assert limiter.hydrating == 0
    assert limiter.queued == ()


def test_a_dataflow_with_two_exports_takes_one_place_until_both_are_hydrated() -> None:
    limiter = SequentialHydration(1)
    for command in (created("u1", "u2"), created("u3")):
        limiter.commands_for(command)
    assert limiter.commands_for(Schedule("u1")) == [Schedule("u1")]
    assert limiter.commands_for(Schedule("u2")) == [Schedule("u2")]
    assert limiter.commands_for(Schedule("u3")) == []
    assert limiter.commands_after(Frontiers("u1", output=Frontier(6))) == []
    assert limiter.commands_after(Frontiers("u2", output=Frontier(6))) == [Schedule("u3")]


def test_what_is_transient_takes_no_place_and_waits_for_none() -> None:
    limiter = SequentialHydration(1)
    for command in (created("u1"), created("t1"), created("t2"), Schedule("u1")):
        assert limiter.commands_for(command) == [command]
    assert limiter.commands_for(Schedule("t1")) == [Schedule("t1")]
    limiter.commands_after(Frontiers("u1", output=Frontier(6)))
    assert limiter.commands_for(Schedule("t2")) == [Schedule("t2")]
    assert limiter.hydrating == 0


def test_what_is_dropped_leaves_the_queue_and_its_place() -> None:
    limiter = SequentialHydration(1)
    for command in (created("u1"), created("u2"), created("u3"), *map(Schedule, ("u1", "u2", "u3"))):
        limiter.commands_for(command)
    drop = AllowCompaction("u2", END)
    assert limiter.commands_for(drop) == [drop]
    drop = AllowCompaction("u1", END)
    assert limiter.commands_for(drop) == [drop, Schedule("u3")]


def test_what_has_failed_leaves_its_place_to_others() -> None:
    """It reads its inputs no more, and will never be hydrated."""
    hydration = SequentialHydration(limit=1)
    for id in ("u1", "u2"):
        hydration.commands_for(created(id))
        hydration.commands_for(Schedule(id))
    assert hydration.queued == ("u2",)
    assert hydration.commands_after(Frontiers("u1", input=Frontier(7))) == []
    assert hydration.commands_after(Frontiers("u1", input=END)) == [Schedule("u2")]
    hydration.check()


def test_lowering_the_limit_stops_nothing_that_has_begun() -> None:
    limiter = SequentialHydration(2)
    for command in (*map(created, ("u1", "u2", "u3")), *map(Schedule, ("u1", "u2", "u3"))):
        limiter.commands_for(command)
    update = UpdateConfiguration(Parameters(hydration_concurrency=1))
    assert limiter.commands_for(update) == [update]
    assert limiter.commands_after(Frontiers("u1", output=Frontier(6))) == []
    assert limiter.commands_after(Frontiers("u2", output=Frontier(6))) == [Schedule("u3")]


def test_settings_that_say_nothing_of_it_change_nothing() -> None:
    limiter = SequentialHydration(1)
    for command in (*map(created, ("u1", "u2")), *map(Schedule, ("u1", "u2"))):
        limiter.commands_for(command)
    update = UpdateConfiguration(Parameters(max_result_size=9))
    assert limiter.commands_for(update) == [update]


def test_an_index_waits_for_what_it_reads_to_be_settled_at_its_as_of_and_to_have_begun_itself() -> None:
    at = Frontier(10)
    assert may_be_scheduled("u1", at, [Frontier(11), END], indexes_are=True)
    assert not may_be_scheduled("u1", at, [Frontier(11), Frontier(10)], indexes_are=True)
    assert not may_be_scheduled("u1", at, [Frontier(11)], indexes_are=False)
    assert may_be_scheduled("t1", at, [Frontier(0)], indexes_are=False)
    assert not may_be_scheduled("u1", END, [], indexes_are=True)
