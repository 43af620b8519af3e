"""The client against a service whose controller answers at once; connections are real."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace.compute.channels import ConnectionLimits
from headrace.compute.client.client import AsyncClient
from headrace.compute.client.conversation import _Waiting
from headrace.compute.controller.pending import StashedOnReplica
from headrace.compute.errors import (
    BadMessage,
    ConnectionBroken,
    MessageTooLarge,
    Missing,
    NegativeMultiplicity,
    PeekCanceled,
    ReadTimeout,
    ResultGone,
    SinceViolation,
    StoreUnavailable,
    Unconfirmed,
    UnknownName,
)
from headrace.compute.frontier import Frontier
from headrace.compute.protocol import row_batch
from headrace.compute.protocol.client_messages import DropRequest
from headrace.compute.protocol.responses import BatchResponse, EncodedUpdates, RowCount, RowsResponse
from headrace.compute.protocol.row_batch import RowBatch
from headrace.compute.serve import client_session
from headrace.errors import BadInput, BadRow, UnknownColumn
from headrace.expr.row_classes import schema_of
from tests.compute.serve.paper import Service, service
from tests.compute.serve.paper_controller import PaperController
from tests.golden import MESSAGES, assert_golden


class Sale(NamedTuple):
    shop: str
    price: int


class Turned(NamedTuple):
    price: int
    shop: str


Test = Callable[[AsyncClient, PaperController, Service], Awaitable[None]]


def with_client(test: Test) -> None:
    async def run() -> None:
        controller = PaperController()
        controller._define("sales", schema_of(Sale), view=True, key=["shop"])
        async with service(controller) as served, AsyncClient(served.address, patience="5s") as client:
            await test(client, controller, served)

    asyncio.run(run())


SALES = [Sale("a", 1), Sale("b", 2), Sale("a", 1)]


def test_rows_are_read_as_they_were_written_and_as_often() -> None:
    async def test(client: AsyncClient, *_: Any) -> None:
        assert await client.insert("sales", SALES) == 1
        assert sorted(await client.peek("sales")) == sorted(SALES)
        assert await client.peek("sales", key="b") == [Sale("b", 2)]
        assert sorted(await client.peek("sales", keys=["a", "c"])) == [Sale("a", 1), Sale("a", 1)]
        (row,) = await client.peek("sales", key="b")
        assert (row.shop, row.price) == ("b", 2)

    with_client(test)


def test_rows_are_taken_as_tuples_mappings_and_named_tuples_whose_columns_stand_otherwise() -> None:
    async def test(client: AsyncClient, *_: Any) -> None:
        await client.insert("sales", [("a", 1)])
        await client.insert("sales", [{"price": 1, "shop": "a"}])
        await client.insert("sales", [Turned(1, "a")])
        await client.insert("sales", [("a", 1), {"price": 1, "shop": "a"}, Turned(1, "a")])
        assert await client.peek("sales") == [("a", 1)] * 6

    with_client(test)


def test_a_write_of_changes_brings_and_takes_at_one_time() -> None:
    async def test(client: AsyncClient, *_: Any) -> None:
        await client.insert("sales", SALES)
        time = await client.write({"sales": [hr.delete(Sale("b", 2)), hr.insert(Sale("c", 3))]})
        assert await client.peek("sales", keys=["b", "c"]) == [Sale("c", 3)]
        assert await client.peek("sales", keys=["b", "c"], at=time - 1) == [Sale("b", 2)]

    with_client(test)


def test_what_the_controller_refuses_is_raised_as_what_it_is() -> None:
    async def test(client: AsyncClient, *_: Any) -> None:
        with pytest.raises(UnknownName) as unknown:
            await client.peek("nothing")
        assert unknown.value.facts["name"] == "nothing"
        with pytest.raises(NegativeMultiplicity) as not_there:
            await client.delete("sales", [Sale("z", 9)])
        assert not_there.value.facts["row"] == ("z", 9)

    with_client(test)


def test_wrong_rows_keys_columns_and_numbers_are_found_before_anything_is_sent() -> None:
    async def test(client: AsyncClient, *_: Any) -> None:
        with pytest.raises(BadRow, match="'price' must be int64"):
            await client.insert("sales", [("a", "one")])
        with pytest.raises(BadRow, match="keys of 'sales'"):
            await client.peek("sales", key=1)
        with pytest.raises(UnknownColumn):
            await client.peek("sales", order_by="size")
        with pytest.raises(BadInput):
            await client.peek("sales", limit=-1)
        with pytest.raises(BadInput):
            await client.peek("sales", at=1, staleness="1s")

    with_client(test)


def test_a_request_above_the_limit_of_messages_is_not_sent() -> None:
    async def test(client: AsyncClient, controller: PaperController, _: Any) -> None:
        client._conversation._endpoint = replace(
            client._conversation._endpoint, limits=ConnectionLimits(message=1000)
        )
        with pytest.raises(MessageTooLarge, match=r"a write of [0-9,]+ bytes is too large") as caught:
            await client.insert("sales", [Sale("a" * 1000, 1)])  # here
        assert caught.value.facts["size"] > caught.value.facts["limit"] == 1000
        (step,) = caught.value.where
        assert step.location.text.endswith("# here")
        with pytest.raises(MessageTooLarge, match=r"a peek of [0-9,]+ bytes is too large"):
            await client.peek("sales", keys=["a" * 500, "b" * 500])
        await client.insert("sales", [Sale("a" * 500, 1)])
        assert len(await client.peek("sales")) == 1

    with_client(test)


def test_a_view_that_was_made_anew_under_the_same_name_is_asked_by_its_new_columns() -> None:
    class Other(NamedTuple):
        name: str

    async def test(client: AsyncClient, controller: PaperController, served: Service) -> None:
        await client.insert("sales", SALES)
        controller.drop("sales")
        controller._define("sales", schema_of(Other), view=True, key=["name"])
        with pytest.raises(BadRow):
            await client.insert("sales", SALES)
        await client.insert("sales", [Other("x")])
        assert await client.peek("sales", key="x") == [Other("x")]
        controller.drop("sales")
        controller._define("sales", schema_of(Sale), view=True, key=["shop"])
        async with AsyncClient(served.address) as other:
            await other.insert("sales", SALES)
        (row,) = await client.peek("sales", key="b")
        assert (row.shop, row.price) == ("b", 2)

    with_client(test)


def test_writes_that_come_while_one_is_under_way_are_committed_together() -> None:
    async def test(client: AsyncClient, controller: PaperController, served: Service) -> None:
        await client.describe("sales")
        served.around.store.may_append.clear()
        writing = [asyncio.create_task(client.insert("sales", [Sale("a", n)])) for n in range(50)]
        while len(served.around.writing._waiting) < 49:
            await asyncio.sleep(0.001)
        served.around.store.may_append.set()
        assert await asyncio.gather(*writing) == [1] + [2] * 49
        assert list(map(len, controller.commits)) == [1, 49]
        assert len(await client.peek("sales", key="a")) == 50

    with_client(test)


def test_a_write_that_is_refused_harms_no_other_of_its_group() -> None:
    async def test(client: AsyncClient, _: PaperController, served: Service) -> None:
        await client.describe("sales")
        served.around.store.may_append.clear()
        wrong = client.delete("sales", [Sale("z", 9)])
        right = [client.insert("sales", [Sale("a", n)]) for n in range(5)]
        asked = asyncio.gather(*right[:3], wrong, *right[3:], return_exceptions=True)
        while len(served.around.writing._waiting) < 5:
            await asyncio.sleep(0.001)
        served.around.store.may_append.set()
        assert [type(result) for result in await asked] == [int, int, int, NegativeMultiplicity, int, int]
        assert len(await client.peek("sales")) == 5

    with_client(test)


def test_a_store_that_refuses_is_told_to_the_writer() -> None:
    async def test(client: AsyncClient, _: PaperController, served: Service) -> None:
        served.around.store.refuse = StoreUnavailable("the disk is full")
        with pytest.raises(StoreUnavailable, match="the disk is full"):
            await client.insert("sales", SALES)
        served.around.store.refuse = None
        assert await client.peek("sales") == []
        await client.insert("sales", SALES)

    with_client(test)


def test_a_peek_that_nobody_waits_for_any_more_is_cancelled() -> None:
    async def test(client: AsyncClient, controller: PaperController, _: Service) -> None:
        await client.describe("sales")
        controller.hold_answers = True
        task = asyncio.create_task(client.peek("sales"))
        while not controller.held:
            await asyncio.sleep(0.001)
        task.cancel()
        while not controller.cancelled:
            await asyncio.sleep(0.001)
        assert not controller.held

    with_client(test)


def test_a_connection_that_is_cut_leaves_nothing_in_the_log() -> None:
    """Of each request that was on its way asyncio would log that nobody has read its error."""

    async def test(client: AsyncClient, controller: PaperController, served: Service) -> None:
        logged: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))
        await client.describe("sales")
        controller.hold_answers = True
        line = client._conversation._line
        assert line is not None
        sent = [asyncio.create_task(client.peek("sales")) for _ in range(20)]
        subscribed = asyncio.create_task(batches(client.subscribe("sales"), 2))
        await until(lambda: len(controller.held) == 20 and controller.subscribers)
        async with line._sending:  # as while the network takes nothing
            kept = [asyncio.create_task(client.peek("sales")) for _ in range(20)]
            lost = asyncio.create_task(client.peek("sales"))
            await asyncio.sleep(0)
            lost.cancel()
            await served.kill()
            await until(lambda: line.broken)
            pass_time(10)
        results = await asyncio.gather(*sent, *kept, return_exceptions=True)
        assert all(isinstance(result, ConnectionBroken | ReadTimeout) for result in results)
        subscribed.cancel()
        await asyncio.gather(subscribed, lost, return_exceptions=True)
        del sent, kept, subscribed, lost, results
        gc.collect()
        await asyncio.sleep(0)
        gc.collect()
        assert [context["message"] for context in logged] == []

    with_client(test)


def test_peeks_of_a_client_that_is_gone_are_cancelled() -> None:
    async def test(client: AsyncClient, controller: PaperController, served: Service) -> None:
        other = AsyncClient(served.address)
        await other.describe("sales")
        controller.hold_answers = True
        task = asyncio.create_task(other.peek("sales"))
        while not controller.held:
            await asyncio.sleep(0.001)
        await other.aclose()
        with pytest.raises(ConnectionBroken):
            await task
        while not controller.cancelled:
            await asyncio.sleep(0.001)

    with_client(test)


def test_a_peek_that_the_controller_cancels_says_so() -> None:
    async def test(client: AsyncClient, controller: PaperController, _: Service) -> None:
        controller.hold_answers = True
        task = asyncio.create_task(client.peek("sales"))
        while not controller.held:
            await asyncio.sleep(0.001)
        controller.cancel_peek(next(iter(controller.held)))
        with pytest.raises(PeekCanceled) as error:
            await task
        assert_golden(MESSAGES / "peek_cancelled.txt", f"{error.value}\n")

    with_client(test)


def test_large_answers_come_in_pieces_from_the_controller_or_from_a_replica() -> None:
    async def test(client: AsyncClient, controller: PaperController, _: Service) -> None:
        many = [Sale(f"shop {n}", n) for n in range(5_000)]
        await client.insert("sales", many)
        assert sorted(await client.peek("sales")) == sorted(many)
        controller.stash_above = 10
        assert sorted(await client.peek("sales")) == sorted(many)
        assert not controller.stashed

    with_client(test)


def columns_of(many: list[Sale]) -> bytes:
    (data,) = row_batch.encode(RowBatch.of_rows(schema_of(Sale), [(tuple(sale), 1) for sale in many]))
    return data


BAD_COLUMNS = columns_of(SALES)[:-100] + b"x" * 100


def test_rows_in_columns_are_read_and_bad_ones_are_refused() -> None:
    async def test(client: AsyncClient, controller: PaperController, served: Service) -> None:
        await client.insert("sales", SALES)
        controller.stash_above = 0
        sent = columns_of(SALES)

        async def fetch(stash: StashedOnReplica) -> AsyncIterator[bytes]:
            yield sent
            yield columns_of([Sale("c", 3)])

        served.around.fetch = fetch  # type: ignore[method-assign]
        assert await client.peek("sales") == [*SALES, Sale("c", 3)]
        with pytest.raises(BadMessage) as refused:
            await client.peek("sales", columns=["shop"])
        assert refused.value.facts["field"] == "Rows.rows"
        sent = BAD_COLUMNS
        with pytest.raises(BadMessage):
            await client.peek("sales")
        controller.stash_above = None
        assert sorted(await client.peek("sales")) == sorted(SALES)

    with_client(test)


def test_a_subscription_reads_columns_and_refuses_bad_ones() -> None:
    async def test(client: AsyncClient, controller: PaperController, _: Service) -> None:
        subscription = client.subscribe("sales")
        await batches(subscription, 1)
        (subscriber,) = controller.subscribers.values()

        def tell(lower: int, *chunks: bytes) -> None:
            updates = EncodedUpdates(lower, chunks)
            subscriber.deliver(BatchResponse(Frontier(lower), Frontier(lower + 1), updates))

        tell(1, columns_of(SALES), columns_of([Sale("c", 3)]))
        (batch,) = await batches(subscription, 1)
        assert [(update.row, update.time, update.weight) for update in batch.updates] == [
            (sale, 1, 1) for sale in (*SALES, Sale("c", 3))
        ]
        tell(2, BAD_COLUMNS)
        with pytest.raises(BadMessage):
            await batches(subscription, 1)

    with_client(test)


def test_reads_go_on_when_the_controller_is_back_and_a_write_is_done_once() -> None:
    async def test(client: AsyncClient, controller: PaperController, served: Service) -> None:
        await client.insert("sales", SALES)
        await served.kill()
        reading = asyncio.create_task(client.peek("sales", key="b"))
        writing = asyncio.create_task(client.insert("sales", [Sale("c", 3)]))
        await asyncio.sleep(0)
        await served.start()
        assert await reading == [Sale("b", 2)]
        await writing
        assert await client.peek("sales", key="c") == [Sale("c", 3)]

    with_client(test)


def test_a_controller_that_stays_away_is_said_in_the_end() -> None:
    async def run() -> None:
        async with AsyncClient("127.0.0.1:1", patience="0s") as client:
            with pytest.raises(ConnectionBroken, match=r"there is no connection to 127\.0\.0\.1:1"):
                await client.peek("sales")

    asyncio.run(run())


async def batches(subscription: Any, count: int) -> list[Any]:
    return [await anext(subscription) for _ in range(count)]


def contiguous(found: list[Any]) -> None:
    assert all(before.upper == after.lower for before, after in pairwise(found))


def test_a_subscription_begins_with_what_is_there_and_goes_on_with_what_changes() -> None:
    async def test(client: AsyncClient, controller: PaperController, _: Service) -> None:
        await client.insert("sales", SALES)
        subscription = client.subscribe("sales")
        (first,) = await batches(subscription, 1)
        assert {(u.row, u.weight) for u in first.updates} == {(Sale("a", 1), 2), (Sale("b", 2), 1)}
        await client.insert("sales", [Sale("c", 3)])
        await client.delete("sales", [Sale("b", 2)])
        rest = await batches(subscription, 2)
        assert [u for batch in rest for u in batch.updates] == [(("c", 3), 2, 1), (("b", 2), 3, -1)]
        contiguous([first, *rest])
        controller.seal("sales")
        assert [batch async for batch in subscription] == []
        assert subscription.upper is None

    with_client(test)


def test_a_subscription_goes_on_after_the_controller_was_away_without_gap_or_repetition() -> None:
    async def test(client: AsyncClient, controller: PaperController, served: Service) -> None:
        subscription = client.subscribe("sales")
        found = await batches(subscription, 1)
        for n in range(4):
            await client.insert("sales", [Sale("a", n)])
            if n % 2:
                await served.kill()
                await served.start()
            found += await batches(subscription, 1)
        assert [u.row.price for batch in found for u in batch.updates] == [0, 1, 2, 3]
        contiguous(found)
        assert controller.subscriptions >= 2

    with_client(test)


def test_a_subscription_that_was_away_for_longer_than_the_view_keeps_is_told() -> None:
    async def test(client: AsyncClient, controller: PaperController, served: Service) -> None:
        await client.insert("sales", SALES)
        subscription = client.subscribe("sales")
        await batches(subscription, 1)
        await served.kill()
        controller.time = controller.since = 100
        await served.start()
        with pytest.raises(SinceViolation):
            await anext(subscription)

    with_client(test)


def test_a_subscription_to_a_view_that_is_dropped_ends_with_an_error() -> None:
    async def test(client: AsyncClient, controller: PaperController, _: Service) -> None:
        subscription = client.subscribe("sales")
        await batches(subscription, 1)
        await client.drop("sales")
        with pytest.raises(UnknownName, match="was dropped"):
            await anext(subscription)
        with pytest.raises(UnknownName):
            await anext(client.subscribe("sales"))

    with_client(test)


def test_a_large_snapshot_is_one_batch_however_it_travels() -> None:
    async def test(client: AsyncClient, *_: Any) -> None:
        many = [Sale(f"shop {n}", n) for n in range(5_000)]
        await client.insert("sales", many)
        (first,) = await batches(client.subscribe("sales"), 1)
        assert {u.row for u in first.updates} == set(many)

    with_client(test)


def test_batches_without_changes_are_given_where_they_are_asked_for() -> None:
    async def test(client: AsyncClient, controller: PaperController, _: Service) -> None:
        controller._define("other", schema_of(Sale), view=True)
        quiet, eager = client.subscribe("sales"), client.subscribe("sales", progress=True)
        await batches(quiet, 1)
        await batches(eager, 1)
        await client.insert("other", SALES)
        await client.insert("sales", SALES)
        found = await batches(eager, 2)
        assert [len(batch.updates) for batch in found] == [0, 3]
        (one,) = await batches(quiet, 1)
        assert (one.lower, one.upper) == (found[0].lower, found[1].upper)

    with_client(test)


def test_what_may_have_been_done_or_not_is_said_and_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setitem(client_session._REQUESTS, DropRequest, lambda *request: asked.append(request))

    async def test(client: AsyncClient, _: PaperController, served: Service) -> None:
        task = asyncio.create_task(client.drop("sales"))
        while not asked:
            await asyncio.sleep(0.001)
        await served.kill()
        with pytest.raises(Unconfirmed) as error:
            await task
        assert len(asked) == 1
        assert_golden(Path(__file__).parent / "golden" / "unconfirmed.txt", f"{error.value}\n")

    with_client(test)


def pass_time(seconds: float) -> None:
    """For all that waits in this loop, so much time goes by at once."""
    loop: Any = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds


async def until(fits: Callable[[], Any]) -> None:
    while not fits():
        await asyncio.sleep(0.001)


READS: dict[str, Callable[[AsyncClient], Awaitable[Any]]] = {
    "peek": lambda client: client.peek("sales"),
    "subscribe": lambda client: anext(client.subscribe("sales")),
    "copy": lambda client: client.copy("sales", "sales.jsonl"),
    "describe": lambda client: client.describe("sales"),
    "status": lambda client: client.status(),
}


@pytest.mark.parametrize("name", ["peek", "subscribe", "copy"])
def test_a_read_that_no_replica_answers_says_what_is_missing_within_its_patience(name: str) -> None:
    async def test(client: AsyncClient, controller: PaperController, _: Service) -> None:
        await client.describe("sales")
        controller.hold_answers = True
        reading = asyncio.create_task(READS[name](client))  # type: ignore[arg-type]
        await until(lambda: controller.held or controller.copies or controller.subscribers)
        pass_time(4.4)
        await asyncio.sleep(0)
        assert not controller.given_up
        pass_time(0.2)  # a little before the end of the five seconds: the answer has a way to go
        with pytest.raises(ReadTimeout, match="no replica is connected") as error:
            await reading
        assert error.value.facts["missing"] == Missing.REPLICA.value
        assert controller.given_up == 1
        assert not controller.held
        assert not controller.copies
        assert not controller.subscribers

    with_client(test)


@pytest.mark.parametrize("name", READS)
def test_a_read_of_a_controller_that_says_nothing_ends_within_its_patience(name: str) -> None:
    """As of a process that is stopped, not dead: it takes connections, and does nothing with them."""

    async def run(address: str) -> None:
        async with AsyncClient(address, patience="5s") as client:
            reading = asyncio.create_task(READS[name](client))  # type: ignore[arg-type]
            await asyncio.sleep(0)
            pass_time(5)
            with pytest.raises(ReadTimeout) as error:
                await reading
            assert error.value.facts["missing"] == Missing.CONTROLLER.value

    with socket.create_server(("127.0.0.1", 0)) as listening:
        asyncio.run(run(f"127.0.0.1:{listening.getsockname()[1]}"))


@pytest.mark.parametrize("name", READS)
def test_a_read_that_found_no_controller_says_so_even_if_its_time_ends_within_a_later_attempt(
    name: str,
) -> None:
    """On a busy machine, to connect again may take longer than what is left of the patience."""
    connected: list[asyncio.StreamWriter] = []

    async def refuse_first(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.append(writer)
        if len(connected) == 1:
            writer.close()

    async def run() -> None:
        server = await asyncio.start_server(refuse_first, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with AsyncClient(address, patience="5s") as client:
            reading = asyncio.create_task(READS[name](client))  # type: ignore[arg-type]
            await until(lambda: len(connected) > 1)
            pass_time(5)
            with pytest.raises(ConnectionBroken, match=f"there is no connection to {address}"):
                await reading
        for writer in connected:
            writer.close()
        server.close()
        await server.wait_closed()

    asyncio.run(run())


def test_a_controller_that_forgets_a_read_is_not_waited_for() -> None:
    async def test(client: AsyncClient, controller: PaperController, _: Service) -> None:
        await client.describe("sales")
        controller.hold_answers = True
        controller.time_out_peek = lambda uuid: None  # type: ignore[method-assign]
        reading = asyncio.create_task(client.peek("sales"))
        await until(lambda: controller.held)
        pass_time(5)
        with pytest.raises(ReadTimeout) as error:
            await reading
        shown = str(error.value).replace(client._conversation.address, "ADDRESS")
        assert_golden(Path(__file__).parent / "golden" / "no_answer.txt", f"{shown}\n")
        await until(lambda: controller.cancelled)

    with_client(test)


def test_a_read_may_be_more_patient_than_its_client_or_wait_for_ever() -> None:
    async def test(client: AsyncClient, controller: PaperController, _: Service) -> None:
        await client.describe("sales")
        controller.hold_answers = True
        patient = asyncio.create_task(client.peek("sales", patience="2m"))
        endless = asyncio.create_task(client.peek("sales", patience=None))
        subscribed = asyncio.create_task(anext(client.subscribe("sales", patience=None)))
        await until(lambda: len(controller.held) == 2 and controller.subscribers)
        pass_time(60)
        await asyncio.sleep(0)
        assert not controller.given_up
        pass_time(59.8)
        with pytest.raises(ReadTimeout):
            await patient
        pass_time(1_000_000)
        await asyncio.sleep(0)
        assert not endless.done()
        assert not subscribed.done()
        (answer,) = controller.held.values()
        controller.held.clear()
        answer(RowsResponse(((("a", 1), 1),)))
        assert await endless == [Sale("a", 1)]
        controller._deliver(next(iter(controller.subscribers.values())), Frontier(1))
        assert (await subscribed).upper == 1

    with_client(test)


def test_a_copy_takes_as_long_as_a_replica_is_at_work_on_it() -> None:
    async def test(client: AsyncClient, controller: PaperController, _: Service) -> None:
        controller.copying = True
        copying = asyncio.create_task(client.copy("sales", "sales.jsonl"))
        await until(lambda: controller.copies)
        signs: list[object] = []
        take = _Waiting.take
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(_Waiting, "take", lambda self, answer: (signs.append(answer), take(self, answer)))
            for number in range(1, 4):
                pass_time(4.6)
                await until(lambda: len(signs) == number)  # noqa: B023
        (answer,) = controller.copies.values()
        answer(RowCount(7))
        assert await copying == 7

    with_client(test)


def test_an_answer_that_went_with_its_replica_is_asked_for_again() -> None:
    async def test(client: AsyncClient, controller: PaperController, served: Service) -> None:
        await client.insert("sales", SALES)
        controller.stash_above = 1
        fetch = served.around.fetch
        lost: list[StashedOnReplica] = []

        async def fetch_from_the_dead(stash: StashedOnReplica) -> AsyncIterator[Any]:
            async for chunk in fetch(stash):
                yield chunk
                if not lost:
                    lost.append(stash)
                    raise ResultGone("replica 'r1' is gone, with the rows of the answer")

        served.around.fetch = fetch_from_the_dead  # type: ignore[method-assign]
        assert sorted(await client.peek("sales")) == sorted(SALES)
        assert len(lost) == 1

    with_client(test)


def test_a_subscription_that_has_begun_waits_for_a_controller_without_limit() -> None:
    async def test(client: AsyncClient, controller: PaperController, served: Service) -> None:
        subscription = client.subscribe("sales", patience="1s")
        await batches(subscription, 1)
        following = asyncio.create_task(anext(subscription))
        controller.subscribers.clear()
        await served.kill()
        attempts = count_calls(client._conversation, "subscribe")
        for _ in range(3):
            before = len(attempts)
            await until(lambda before=before: len(attempts) > before or following.done())
            pass_time(3_600)
        assert not following.done()
        await served.start()
        await until(lambda: controller.subscribers or following.done())
        await client.insert("sales", [Sale("a", 1)])
        assert [u.row for u in (await following).updates] == [Sale("a", 1)]

    with_client(test)


def count_calls(of: Any, method: str) -> list[None]:
    """A list that gets longer with each call."""
    calls: list[None] = []
    called = getattr(of, method)

    def call(*arguments: Any) -> Any:
        calls.append(None)
        return called(*arguments)

    setattr(of, method, call)
    return calls


def test_a_subscription_that_was_quiet_for_longer_than_its_patience_survives_an_outage() -> None:
    async def test(client: AsyncClient, controller: PaperController, served: Service) -> None:
        subscription = client.subscribe("sales")
        await batches(subscription, 1)
        following = asyncio.create_task(anext(subscription))
        for _ in range(2):
            await until(lambda: controller.subscribers or following.done())
            pass_time(3_600)
            controller.subscribers.clear()
            await served.kill()
            await served.start()
        await until(lambda: controller.subscribers or following.done())
        await client.insert("sales", [Sale("a", 1)])
        assert [u.row for u in (await following).updates] == [Sale("a", 1)]

    with_client(test)
