"""What workers are told and what of their words counts, with workers that only take notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from headrace.compute.frontier import END, START, Frontier
from headrace.compute.plans import encode
from headrace.compute.protocol.commands import (
    AllowCompaction,
    CollectionImport,
    CollectionTarget,
    Command,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    Dataflow,
    Epoch,
    Id,
    IndexExport,
    IndexTarget,
    InitializationComplete,
    InstanceConfig,
    Parameters,
    Peek,
    SubscribeExport,
    TimelyConfig,
)
from headrace.compute.protocol.responses import (
    BatchResponse,
    DroppedAt,
    Frontiers,
    PeekResponse,
    Response,
    RowsResponse,
    Status,
    SubscribeResponse,
)
from headrace.compute.replica.replica import Replica
from headrace.compute.replica.runtime import ReachedFrontiers
from headrace.compute.replica.workers import runtime as workers
from headrace.compute.replica.workers.runtime import Workers
from headrace.compute.replica.workers.worker_link import (
    BeginWorker,
    BuildDataflow,
    ForgetExport,
    ToWorker,
    WorkerResponse,
)
from tests.compute.replica import flows

NUMBER = 3
LINKS: list[NotedLink] = []


class NotedLink:
    """A worker that does nothing. told: what it was told; to_say: what it says next."""

    def __init__(self, begin: BeginWorker, wake: Callable[[], None]) -> None:
        self.told: list[ToWorker] = []
        self.to_say: list[WorkerResponse] = []
        self.heard = 0
        self.frontiers: Mapping[Id, ReachedFrontiers] = {}
        self.broken: Mapping[Id, bool] = {}
        LINKS.append(self)

    @property
    def sent(self) -> int:
        return len(self.told)

    def send(self, message: ToWorker) -> None:
        self.told.append(message)

    def take(self) -> list[WorkerResponse]:
        said, self.to_say = self.to_say, []
        for one in said:
            self.heard, self.broken = one.heard, one.broken
            self.frontiers = self.frontiers if one.frontiers is None else one.frontiers
        return said

    def close(self) -> None: ...


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Workers:
    LINKS.clear()
    monkeypatch.setattr(workers, "WorkerLink", NotedLink)
    return Workers(InstanceConfig("memory:"), lambda: None, number=NUMBER, folder=tmp_path)


def totals(id: Id, as_of: int = 0) -> Dataflow:
    imports = (CollectionImport("s1", "s1"),)
    return Dataflow(encode(flows.totals()), imports, (), (IndexExport(id, "out"),), Frontier(as_of))


def asked(number: int, target: IndexTarget | CollectionTarget) -> Peek:
    return Peek(number.to_bytes(16, "big"), target, 0)


def at(time: int) -> ReachedFrontiers:
    return ReachedFrontiers(Frontier(time), Frontier(time), Frontier(time), START)


def test_all_workers_are_told_the_same_in_the_same_order(runtime: Workers) -> None:
    for number in range(10):
        id = f"u{number}"
        runtime.create_dataflow(totals(id))
        runtime.schedule(id)
        runtime.peek(asked(number, IndexTarget(id)))
        runtime.configure(Parameters(max_result_size=number))
        runtime.allow_compaction(id, Frontier(number))
        runtime.cancel_peek(asked(number, IndexTarget(id)).uuid)
    first, *others = (link.told for link in LINKS)
    assert len(first) == 60
    assert all(told == first for told in others)


def test_a_collection_is_peeked_by_one_worker_always_the_same(runtime: Workers) -> None:
    for number in range(30):
        for _ in range(2):
            runtime.peek(asked(number, CollectionTarget("s1")))
            runtime.forget_answers()
    told: list[list[Any]] = [[m.uuid for m in link.told if isinstance(m, Peek)] for link in LINKS]
    assert sum(map(len, told)) == 60
    assert all(uuids[::2] == uuids[1::2] for uuids in told)
    assert all(told)


def test_frontiers_are_those_of_the_slowest_worker_and_wait_for_all(runtime: Workers) -> None:
    runtime.create_dataflow(totals("u1"))
    for n, link in enumerate(LINKS):
        assert runtime.frontiers() == {}
        link.to_say = [WorkerResponse(1, (), {"u1": at(5 + n)})]
        runtime.step(0)
    assert runtime.frontiers()["u1"] == at(5)


def test_what_a_worker_says_of_an_old_export_is_not_said_of_a_new_one_of_that_id(runtime: Workers) -> None:
    runtime.create_dataflow(totals("u1"))
    runtime.allow_compaction("u1", END)
    runtime.forget("u1")
    runtime.create_dataflow(totals("u1", as_of=9))
    for link in LINKS:
        assert [type(m) for m in link.told][0::3] == [BuildDataflow, BuildDataflow]
        link.to_say = [
            WorkerResponse(3, (), {"u1": ReachedFrontiers(END, END, END, END)}, broken={"u1": True})
        ]
    runtime.step(0)
    assert runtime.frontiers() == {}
    assert runtime.broken_exports() == {}
    for link in LINKS:
        link.to_say = [WorkerResponse(4, (), {"u1": at(9)}, broken={"u1": True})]
    runtime.step(0)
    assert runtime.frontiers() == {"u1": at(9)}
    assert runtime.broken_exports() == {"u1": True}


def test_answers_to_an_earlier_connection_are_not_told(runtime: Workers) -> None:
    runtime.create_dataflow(totals("u1"))
    peek = asked(1, IndexTarget("u1"))
    for _ in range(2):
        runtime.peek(peek)
        runtime.forget_answers()
    runtime.peek(peek)
    for heard in (2, 4, 6):
        for link in LINKS:
            link.to_say = [
                WorkerResponse(heard, [PeekResponse(peek.uuid, RowsResponse(((("a", heard), 1),)))])
            ]
        runtime.step(0)
    assert runtime.take_answers() == [PeekResponse(peek.uuid, RowsResponse(((("a", 6), 3),)))]


def test_of_copies_that_a_worker_keeps_for_a_reader_nothing_is_told(runtime: Workers) -> None:
    runtime.create_dataflow(totals("u1"))
    LINKS[0].to_say = [WorkerResponse(1, [Status("u1", "hydrated"), Status("u1 for u2", "hydrated")])]
    runtime.step(0)
    assert runtime.take_answers() == [Status("u1", "hydrated")]
    assert all(not isinstance(m, AllowCompaction) for m in LINKS[0].told)


def test_what_workers_see_of_themselves_is_summed_up_and_the_slowest_duration_counts(
    runtime: Workers,
) -> None:
    for number, link in enumerate(LINKS):
        link.to_say = [
            WorkerResponse(0, [Status(None, "replica", (("rows", 10.0), ("cancel_ms_max", number)))])
        ]
    runtime.step(0)
    assert runtime.take_answers()[-1] == Status(None, "replica", (("rows", 30.0), ("cancel_ms_max", 2)))


def connected(runtime: Workers, *commands: Command) -> Replica:
    replica = Replica(
        lambda *_: runtime, clock=lambda: 0, wake=lambda: None, halt=lambda error: pytest.fail(str(error))
    )
    replica.begin_connection(bytes(16))
    timely = CreateTimely(TimelyConfig(workers=NUMBER), Epoch(1, 1), bytes(16))
    begin = (timely, CreateInstance(InstanceConfig("memory:")), InitializationComplete())
    for command in (*begin, *commands):
        replica.receive(command)
    replica.step(0)
    replica.responses()
    return replica


def test_that_an_export_has_ended_is_told_when_its_workers_have_said_so(runtime: Workers) -> None:
    replica = connected(runtime, CreateDataflow(totals("u1")), AllowCompaction("u1", END))
    told: list[Response] = []
    for reached in (at(5), ReachedFrontiers(END, END, END, END)):
        for link in LINKS:
            link.to_say = [WorkerResponse(link.sent, (), {"u1": reached})]
        replica.step(0)
        told += replica.responses()
    assert told == [Frontiers("u1", *(Frontier(5),) * 3), Frontiers("u1", *(END,) * 3)]
    assert LINKS[0].told[-1] == ForgetExport("u1")


def test_the_last_words_of_a_subscription_are_told_after_it_was_dropped(runtime: Workers) -> None:
    plan = encode(flows.all_bids())
    export = SubscribeExport("t1", "out")
    divided = Dataflow(plan, (CollectionImport("s1", "s1"),), (), (export,), Frontier(0))
    replica = connected(runtime, CreateDataflow(divided))
    sent = LINKS[0].sent
    replica.receive(AllowCompaction("t1", END))
    told: list[BatchResponse | DroppedAt] = []
    for number, link in enumerate(LINKS):
        link.to_say = [
            WorkerResponse(sent, [SubscribeResponse("t1", BatchResponse(START, Frontier(7 + number), ()))])
        ]
    replica.step(0)
    for number, link in enumerate(LINKS):
        link.to_say = [WorkerResponse(link.sent, [SubscribeResponse("t1", DroppedAt(Frontier(7 + number)))])]
        replica.step(0)
        told += [r.event for r in replica.responses() if isinstance(r, SubscribeResponse)]
    assert told == [BatchResponse(START, Frontier(7), ()), DroppedAt(Frontier(7))]
