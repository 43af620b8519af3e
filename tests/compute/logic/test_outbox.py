"""The outbox: no connection misses or repeats anything, and a slow one costs little."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from headrace.compute.frontier import Frontier
from headrace.compute.history import CommandLog, LogCursor
from headrace.compute.protocol.commands import (
    AllowCompaction,
    CancelPeek,
    CollectionImport,
    Command,
    CreateDataflow,
    Dataflow,
    IndexExport,
    IndexTarget,
    Peek,
    PlanBytes,
    Schedule,
)
from tests.compute.logic.model_replica import ModelReplica
from tests.compute.logic.random_commands import LAST, RandomController

seeds = st.integers(0, 2**32).map(random.Random)


def created(id: str) -> CreateDataflow:
    reads = (CollectionImport("in", "s1"),)
    return CreateDataflow(Dataflow(PlanBytes(b""), reads, (), (IndexExport(id, "out"),), Frontier(0)))


def peek(number: int) -> Peek:
    return Peek(number.to_bytes(16, "big"), IndexTarget("u1"), 0)


def cancel(number: int) -> CancelPeek:
    return CancelPeek(number.to_bytes(16, "big"))


@dataclass
class Connection:
    """A reader, and all that it has taken."""

    reader: LogCursor
    taken: list[Command] = field(default_factory=list[Command])

    def take(self, most: int) -> None:
        self.taken += self.reader.take_commands(most)


@given(seeds)
def test_whoever_has_read_all_is_where_a_fresh_replica_would_be(chance: random.Random) -> None:
    controller, outbox = RandomController(chance), CommandLog(most_behind=20)
    connections: list[Connection] = []
    for _ in range(60):
        for command in controller.step():
            outbox.push(command)
        if chance.random() < 0.2:
            connections.append(Connection(outbox.open_cursor()))
        for connection in connections:
            if chance.random() < 0.4:
                connection.take(chance.randrange(1, 9))
        if connections and chance.random() < 0.05:
            connections.pop(chance.randrange(len(connections))).reader.close()
    fresh = ModelReplica(LAST).apply(outbox.history.commands).said()
    for connection in connections:
        while connection.reader.has_commands:
            connection.take(5)
        if not connection.reader.cut:
            assert ModelReplica(LAST).apply(connection.taken).said() == fresh


@given(seeds)
def test_what_comes_after_the_beginning_is_read_once_and_in_order(chance: random.Random) -> None:
    outbox = CommandLog(most_behind=1000)
    outbox.push(created("u1"))
    reader = outbox.open_cursor()
    pushed, taken = list[Command](), list[Command]()
    for number in range(200):
        command = AllowCompaction("u1", Frontier(number))
        outbox.push(command)
        pushed.append(command)
        if chance.random() < 0.3:
            taken += reader.take_commands(chance.randrange(1, 10))
    while reader.has_commands:
        taken += reader.take_commands()
    assert taken == [created("u1"), *pushed]


def test_what_all_have_read_is_forgotten() -> None:
    outbox = CommandLog([created("u1")])
    fast, slow = outbox.open_cursor(), outbox.open_cursor()
    for number in range(50):
        outbox.push(AllowCompaction("u1", Frontier(number)))
    fast.take_commands(1000)
    assert outbox.unread_count == 50
    slow.take_commands(21)  # the dataflow, and 20 more
    assert outbox.unread_count == 30
    slow.close()
    assert outbox.unread_count == 0


def test_a_connection_that_is_too_far_behind_is_cut_and_the_next_one_is_told_little() -> None:
    outbox = CommandLog([created("u1")], most_behind=10)
    slow, fast = outbox.open_cursor(), outbox.open_cursor()
    for number in range(1000):
        outbox.push(AllowCompaction("u1", Frontier(number)))
        fast.take_commands()
        assert outbox.unread_count <= 11
    assert slow.cut
    assert not slow.has_commands
    assert slow.take_commands() == []
    assert not fast.cut
    again = outbox.open_cursor().take_commands(1000)
    assert len(outbox.history) == 1
    assert [c.dataflow.as_of for c in again if isinstance(c, CreateDataflow)] == [Frontier(999)]
    assert len(again) == 1


def test_a_peek_that_is_cancelled_before_it_was_taken_is_not_sent_and_neither_is_its_cancellation() -> None:
    outbox = CommandLog([created("u1"), peek(1)])
    slow, fast = outbox.open_cursor(), outbox.open_cursor()
    fast.take_commands()
    for command in (peek(2), cancel(1), Schedule("u1"), cancel(2), peek(3)):
        outbox.push(command)
    assert slow.take_commands() == [created("u1"), Schedule("u1"), peek(3)]
    assert fast.take_commands() == [cancel(1), Schedule("u1"), peek(3)]


def test_what_does_not_concern_a_replica_is_left_out() -> None:
    outbox = CommandLog([created("u1"), created("u2")])
    reader = outbox.open_cursor(lambda c: not isinstance(c, CreateDataflow) or "u2" in c.dataflow.export_ids)
    assert reader.take_commands() == [created("u2")]


def test_a_new_connection_is_told_the_present_uppers() -> None:
    outbox = CommandLog([created("u1")])
    (told,) = outbox.open_cursor(uppers={"s1": Frontier(50)}).take_commands()
    assert isinstance(told, CreateDataflow)
    assert [i.upper for i in told.dataflow.collections] == [Frontier(50)]
