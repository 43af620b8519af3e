"""The client that blocks, against a service in a thread of its own."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

pytest.importorskip("grpc", reason="grpcio is not installed")

import headrace as hr
from headrace.compute import Client
from headrace.compute.errors import ConnectionBroken, UnknownName
from headrace.errors import UnknownColumn
from headrace.expr.row_classes import schema_of
from tests.compute.serve.paper import service
from tests.compute.serve.paper_controller import PaperController


class Sale(NamedTuple):
    shop: str
    price: int


class Served:
    """A service whose event loop runs in a thread."""

    def __init__(self) -> None:
        self.controller = PaperController()
        self.controller._define("sales", schema_of(Sale), view=True, key=["shop"])
        self.address = ""
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._ready.wait()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        async with service(self.controller) as served:
            self.address = served.address
            self._ready.set()
            await self._end.wait()

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.end()


def test_it_writes_reads_and_subscribes(served: Served) -> None:
    with Client(served.address) as client:
        client.insert("sales", [Sale("a", 1), Sale("b", 2)])
        client.write({"sales": [hr.delete(Sale("b", 2)), hr.insert(Sale("c", 3))]})
        assert sorted(client.peek("sales")) == [("a", 1), ("c", 3)]
        assert client.peek("sales", key="c")[0].price == 3
        with client.subscribe("sales") as subscription:
            first = next(subscription)
            client.delete("sales", [Sale("a", 1)])
            second = next(subscription)
            assert [(u.row.shop, u.weight) for u in second.updates] == [("a", -1)]
            assert (first.upper, subscription.upper) == (second.lower, second.upper)


def test_many_threads_share_one(served: Served) -> None:
    with Client(served.address) as client, ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: client.insert("sales", [Sale(f"shop {n}", n)]), range(40)))
        answers = list(threads.map(lambda n: client.peek("sales", key=f"shop {n}"), range(40)))
        assert answers == [[(f"shop {n}", n)] for n in range(40)]


def test_it_works_where_an_event_loop_runs_already(served: Served) -> None:
    async def in_a_notebook() -> None:
        with Client(served.address) as client:
            client.insert("sales", [Sale("a", 1)])
            assert client.peek("sales") == [("a", 1)]

    asyncio.run(in_a_notebook())


def test_errors_are_raised_where_it_was_asked(served: Served) -> None:
    with Client(served.address) as client:
        with pytest.raises(UnknownName):
            client.peek("nothing")
        assert client.peek("sales") == []


def test_a_peek_that_is_broken_off_is_cancelled_and_the_client_goes_on(served: Served) -> None:
    with Client(served.address) as client:
        client.describe("sales")
        served.controller.hold_answers = True
        waiting = asyncio.run_coroutine_threadsafe(client._client.peek("sales"), client._loop)
        while not served.controller.held:
            pass
        waiting.cancel()
        while not served.controller.cancelled:
            pass
        served.controller.hold_answers = False
        assert client.peek("sales") == []


def test_closing_ends_its_thread_and_what_others_wait_for(served: Served) -> None:
    client = Client(served.address)
    served.controller.hold_answers = True
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(client.peek, "sales")
        while not served.controller.held:
            pass
        client.close()
        with pytest.raises(ConnectionBroken):
            waiting.result()
    assert not client._thread.is_alive()
    with pytest.raises(ConnectionBroken, match="closed"):
        client.peek("sales")
    client.close()


def test_a_client_that_nobody_has_any_more_ends_its_thread(served: Served) -> None:
    client = Client(served.address)
    client.peek("sales")
    thread = client._thread
    del client
    gc.collect()
    thread.join()


def test_rows_may_come_out_of_the_client_that_writes_them(served: Served) -> None:
    with Client(served.address) as client:
        client.insert("sales", [Sale("a", 1)])
        client.insert("sales", (Sale("b", len(client.peek("sales"))) for _ in range(2)))
        client.write({"sales": (row for name in "c" for row in [Sale(name, len(client.peek("sales")))])})
        assert sorted(client.peek("sales")) == [("a", 1), ("b", 1), ("b", 1), ("c", 3)]


def test_errors_name_the_line_that_asked(served: Served) -> None:
    with Client(served.address) as client, pytest.raises(UnknownColumn) as error:
        client.peek("sales", order_by="nope")
    (step,) = error.value.where
    assert step.location.file == __file__
    assert 'order_by="nope"' in step.location.text
