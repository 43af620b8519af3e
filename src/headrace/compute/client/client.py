"""Blocking client, for notebooks and programs without an event loop."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from headrace.compute.client.async_client import AsyncClient
from headrace.compute.client.conversation import AS_CLIENT, Patience
from headrace.compute.client.subscription import Subscription
from headrace.compute.errors import ConnectionBroken
from headrace.compute.transport.credentials import Security
from headrace.errors import HeadraceError, SourceLocation

P = ParamSpec("P")
T = TypeVar("T")
_ASYNCIO = os.path.dirname(asyncio.__file__)


def _blocking(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    """Wrap a method of the asynchronous client as a blocking one with the same signature and docstring."""

    @wraps(method)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._wait(method(self._client, *args, **kwargs))  # pyright: ignore[reportPrivateUsage]

    return call


class Client:
    """Blocking, thread-safe version of `AsyncClient`. Close it, or use it in a `with` statement.

    The connection lives in a thread of its own, so it works even where an event loop is already running.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        security: Security | None = None,
        patience: timedelta | str | None = "30s",
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run, args=(self._loop,), name="headrace client", daemon=True)
        self._thread.start()
        self._closed = False
        self._finalize = weakref.finalize(self, _stop, self._loop, self._thread)

        async def made() -> AsyncClient:
            return AsyncClient(address, security=security, patience=patience)

        try:
            self._client = self._wait(made())
        except BaseException:
            self._finalize()
            raise

    def _wait(self, asked: Coroutine[Any, Any, T]) -> T:
        if self._closed:
            asked.close()
            raise ConnectionBroken("the client is closed", fix="make a new client", address="")
        answer = asyncio.run_coroutine_threadsafe(asked, self._loop)
        try:
            return answer.result()
        except HeadraceError as error:
            # Raised in the thread of the loop, whose stack has no line of the user.
            error.blaming(_ASYNCIO, SourceLocation.of_caller())
            raise
        except BaseException:
            answer.cancel()  # Ctrl-C while waiting: cancel the request at the controller, too
            raise

    create_collection = _blocking(AsyncClient.create_collection)
    create_view = _blocking(AsyncClient.create_view)
    flow = _blocking(AsyncClient.flow)
    drop = _blocking(AsyncClient.drop)
    describe = _blocking(AsyncClient.describe)
    insert = _blocking(AsyncClient.insert)
    delete = _blocking(AsyncClient.delete)
    write = _blocking(AsyncClient.write)
    peek = _blocking(AsyncClient.peek)
    copy = _blocking(AsyncClient.copy)
    add_replica = _blocking(AsyncClient.add_replica)
    drop_replica = _blocking(AsyncClient.drop_replica)
    release_replica = _blocking(AsyncClient.release_replica)
    status = _blocking(AsyncClient.status)

    def subscribe(
        self,
        view: str,
        *,
        as_of: int | None = None,
        snapshot: bool = True,
        progress: bool = False,
        replica: str | None = None,
        patience: Patience = AS_CLIENT,
    ) -> Subscription:
        """See `AsyncClient.subscribe`."""
        subscription = self._client.subscribe(
            view, as_of=as_of, snapshot=snapshot, progress=progress, replica=replica, patience=patience
        )
        return Subscription(subscription, self._wait)

    def close(self) -> None:
        """Close the connection and its thread; calls pending in other threads raise `ConnectionBroken`."""
        if not self._closed:
            try:
                self._wait(self._client.aclose())
            finally:
                self._closed = True
                self._finalize()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left))
    finally:
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
    if thread is not threading.current_thread():
        thread.join()
