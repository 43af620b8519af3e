"""What is too large, too many or too slow ends a request or a connection, never a replica."""

from __future__ import annotations

import asyncio

import pytest

from headrace.compute.channels import ConnectionLimits, Greeting
from headrace.compute.errors import (
    ConnectionBroken,
    DataflowFailed,
    IncompatibleInstance,
    MessageTooLarge,
    ProtocolViolation,
    ResultGone,
    TooManyPeeks,
)
from headrace.compute.frontier import END, START, Frontier
from headrace.compute.protocol import serialization
from headrace.compute.protocol.commands import (
    CancelPeek,
    Command,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    Dataflow,
    Epoch,
    IndexExport,
    IndexTarget,
    InstanceConfig,
    Peek,
    PlanBytes,
    Schedule,
    SubscribeExport,
    TimelyConfig,
)
from headrace.compute.protocol.responses import (
    BatchResponse,
    Canceled,
    PeekResponse,
    Problem,
    RowsResponse,
    Status,
    SubscribeResponse,
)
from headrace.compute.protocol.rows import decode_counted
from headrace.compute.serve import replica_server
from tests.compute.transport.fakes import answered, linked, raw_stream, run_link, served, until

SMALL = ConnectionLimits(message=100_000, plan=10_000, batch=1_000_000, keys=10, peeks=5)
BEGIN: list[Command] = [
    CreateTimely(TimelyConfig(), Epoch(1, 1), b"A" * 16),
    CreateInstance(InstanceConfig("memory:")),
]


def dataflow(size: int) -> CreateDataflow:
    return CreateDataflow(Dataflow(PlanBytes(b"x" * size), (), (), (IndexExport("u9", "out"),), START))


def test_a_message_above_the_limit_is_not_sent_and_the_controller_is_told_why() -> None:
    async def story() -> None:
        async with served() as server:
            controller, link = await run_link(server, limits=SMALL, commands=[*BEGIN, dataflow(200_000)])
            assert isinstance(link.error, MessageTooLarge)
            assert link.error.facts["limit"] == SMALL.message
            assert controller.failures == [link.error]
            await server.check_alive()

    asyncio.run(story())


def test_a_message_above_the_limit_of_the_replica_ends_the_connection() -> None:
    async def story() -> None:
        async with served(limits=SMALL) as server:
            _, link = await run_link(server, commands=[*BEGIN, dataflow(2_000_000)])
            assert isinstance(link.error, MessageTooLarge)
            await server.check_alive()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("before", "command"),
    [
        ([], dataflow(50_000)),
        ([dataflow(10)], Peek(b"p" * 16, IndexTarget("u9"), 1, tuple((n,) for n in range(11)))),
    ],
    ids=["plan", "keys"],
)
def test_a_plan_or_a_peek_above_its_limit_ends_the_connection(
    before: list[Command], command: Command
) -> None:
    async def story() -> None:
        async with served(limits=SMALL) as server:
            _, link = await run_link(server, commands=[*BEGIN, *before, command])
            assert isinstance(link.error, MessageTooLarge)
            assert command not in server.replica.received
            await server.check_alive()

    asyncio.run(story())


def test_an_answer_that_is_too_large_is_answered_with_the_problem() -> None:
    async def story() -> None:
        async with served(limits=SMALL) as server, linked(server) as (controller, _):
            uuid = b"p" * 16
            controller.connections[0].send(Peek(uuid, IndexTarget("silent"), 1))
            await until(lambda: Peek(uuid, IndexTarget("silent"), 1) in server.replica.received)
            server.replica.say(PeekResponse(uuid, RowsResponse(((("x" * SMALL.message,), 1),))))
            server.replica.bell.ring()
            first = await controller.answer()
            assert isinstance(first, PeekResponse)
            assert isinstance(first.answer, Problem)
            assert first.answer.code == MessageTooLarge.code
            assert await controller.peek() == answered(1)

    asyncio.run(story())


def test_peeks_above_the_limit_are_answered_at_once_and_the_others_go_on() -> None:
    async def story() -> None:
        async with served(limits=SMALL) as server, linked(server) as (controller, _):
            connection = controller.connections[0]
            uuids = [bytes([n]) * 16 for n in range(8)]
            connection.send(*(Peek(uuid, IndexTarget("silent"), 1) for uuid in uuids))
            refused = [await controller.answer() for _ in range(3)]
            assert [r.uuid for r in refused if isinstance(r, PeekResponse)] == uuids[5:]
            for response in refused:
                assert isinstance(response, PeekResponse)
                assert isinstance(response.answer, Problem)
                assert response.answer.code == TooManyPeeks.code
                assert response.answer.retryable
            connection.send(*(CancelPeek(uuid) for uuid in uuids))
            cancelled = [await controller.answer() for _ in range(5)]
            assert cancelled == [PeekResponse(uuid, Canceled()) for uuid in uuids[:5]]
            assert await controller.peek() == answered(1)
            assert CancelPeek(uuids[7]) not in server.replica.received

    asyncio.run(story())


def test_who_asks_on_without_end_though_refused_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_server, "MAX_REFUSED", 3)

    async def story() -> None:
        async with served(limits=SMALL) as server, linked(server) as (controller, link):
            uuids = [bytes([n]) * 16 for n in range(SMALL.peeks + 4)]
            controller.connections[0].send(*(Peek(uuid, IndexTarget("silent"), 1) for uuid in uuids))
            await until(lambda: bool(controller.failures))
            assert isinstance(link.error, TooManyPeeks)
            await server.check_alive()

    asyncio.run(story())


def test_a_large_batch_arrives_whole_through_small_messages() -> None:
    async def story() -> None:
        async with served(limits=SMALL) as server, linked(server, limits=SMALL) as (controller, _):
            subscription = Dataflow(PlanBytes(b""), (), (), (SubscribeExport("t1", "out"),), START)
            controller.connections[0].send(CreateDataflow(subscription))
            await until(lambda: CreateDataflow(subscription) in server.replica.received)
            updates = tuple(((n, "x" * 50), 1, 1) for n in range(10_000))
            whole = SubscribeResponse("t1", BatchResponse(START, Frontier(9), updates))
            server.replica.say(whole)
            server.replica.say(SubscribeResponse("t1", BatchResponse(Frontier(9), END, ())))
            server.replica.bell.ring()
            assert await controller.answer() == whole
            assert await controller.answer() == SubscribeResponse("t1", BatchResponse(Frontier(9), END, ()))

    asyncio.run(story())


def test_a_violation_ends_the_connection_and_not_the_replica() -> None:
    async def story() -> None:
        async with served() as server:
            server.replica.refuses[Schedule] = DataflowFailed("no", id="u9", time=7, cause="because")
            controller, link = await run_link(server, commands=[*BEGIN, dataflow(1), Schedule("u9")])
            # The same class with the same facts, on the other side of the network.
            assert isinstance(link.error, DataflowFailed)
            assert link.error.facts == {"id": "u9", "time": 7, "cause": "because"}
            assert controller.failures == [link.error]
            await server.check_alive()

    asyncio.run(story())


def test_a_controller_that_breaks_the_rules_is_told_which() -> None:
    async def story() -> None:
        async with served() as server, linked(server) as (controller, link):
            await controller.peek()
            # Its own side refuses to send it.
            controller.connections[0].send(Schedule("u77"))
            await until(lambda: bool(controller.failures))
            assert isinstance(link.error, ProtocolViolation)
            assert link.error.facts["message"] == "Schedule"
            await server.check_alive()

    asyncio.run(story())


def test_a_replica_that_breaks_the_rules_is_left() -> None:
    async def story() -> None:
        async with served() as server, linked(server) as (controller, link):
            await controller.peek()
            server.replica.say(SubscribeResponse("t5", BatchResponse(START, END, ())))
            server.replica.bell.ring()
            await until(lambda: bool(controller.failures))
            assert isinstance(link.error, ProtocolViolation)
            await server.check_alive()

    asyncio.run(story())


def test_a_mistake_in_the_replica_is_told_and_ends_it() -> None:
    async def story() -> None:
        async with served() as server, linked(server) as (controller, link):
            await controller.peek()

            def fail() -> bool:
                raise ZeroDivisionError("mistake")

            server.replica.work.append(fail)
            controller.connections[0].send(Peek(b"p" * 16, IndexTarget("u1"), 1))
            await until(lambda: bool(controller.failures))
            assert link.error is not None
            assert "ZeroDivisionError: mistake" in link.error.what
            with pytest.raises(ZeroDivisionError):
                await server.task

    asyncio.run(story())


def test_a_replica_that_halts_ends_its_process_with_the_error_and_says_so() -> None:
    async def story() -> None:
        async with served() as server, linked(server) as (controller, link):
            await controller.peek()
            server.replica.bell.end_process(IncompatibleInstance("another configuration"))
            await until(lambda: bool(controller.failures))
            assert isinstance(link.error, IncompatibleInstance)
            with pytest.raises(IncompatibleInstance):
                await server.task
            assert "closed" in server.replica.events

    asyncio.run(story())


def test_stashed_rows_are_fetched_in_chunks_once() -> None:
    async def story() -> None:
        async with served() as server, linked(server) as (controller, link):
            await controller.peek()
            token = b"t" * 16
            chunks = [[((n, m), 1) for m in range(100)] for n in range(20)]
            server.replica.stashes[token] = chunks
            assert [list(decode_counted(chunk)) async for chunk in link.fetch(token)] == chunks
            with pytest.raises(ResultGone):
                await anext(link.fetch(token))
            assert await controller.peek() == answered(2)

    asyncio.run(story())


def test_fetching_ends_with_the_connection() -> None:
    async def story() -> None:
        async with served() as server, linked(server) as (controller, link):
            await controller.peek()
            token = b"t" * 16
            server.replica.stashes[token] = [[(("x" * 10_000,), 1)] * 50] * 100
            rows = link.fetch(token)
            await anext(rows)
            server.task.cancel()
            with pytest.raises((ConnectionBroken, ResultGone)):
                async for _ in rows:
                    pass

    asyncio.run(story())


def test_a_replica_does_not_work_ahead_of_a_controller_that_does_not_read() -> None:
    async def story() -> None:
        async with served() as server:
            greeting = Greeting(Epoch(1, 1), b"A" * 16).metadata()
            async with raw_stream(server, greeting) as call:
                for message in serialization.commands_to_messages(BEGIN, 10_000):
                    await call.write(message)
                await until(lambda: len(server.replica.received) == 2)
                made = 0

                def work() -> bool:
                    nonlocal made
                    made += 1
                    server.replica.say(Status(None, "x" * 500_000))
                    return True

                server.replica.work.append(work)
                server.replica.bell.ring()
                await until(lambda: made > 0)
                before = -1
                while before != made:  # it would go on for ever
                    before = made
                    for _ in range(1_000):
                        await asyncio.sleep(0)
                assert made < 100
                for _ in range(before):
                    await call.read()
                await until(lambda: made > before)
                server.replica.work.clear()
            await server.check_alive()

    asyncio.run(story())


def test_commands_are_received_while_the_replica_is_busy() -> None:
    async def story() -> None:
        async with served() as server, linked(server) as (controller, _):
            await controller.peek()
            slices = 0

            def work() -> bool:
                nonlocal slices
                slices += 1
                return True

            server.replica.work.append(work)
            server.replica.bell.ring()
            await until(lambda: slices > 10)
            assert await controller.peek() == answered(2)
            server.replica.work.clear()

    asyncio.run(story())
