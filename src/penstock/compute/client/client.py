"""The client for programs without an event loop, and for notebooks."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from penstock.compute.client.async_client import AsyncClient
from penstock.compute.client.patience import AS_CLIENT, Patience
from penstock.compute.client.rows import Known
from penstock.compute.client.subscription import Subscription
from penstock.compute.controller.status import ControllerStatus
from penstock.compute.errors import ConnectionBroken
from penstock.compute.protocol.commands import RuntimeName
from penstock.compute.transport.credentials import Security
from penstock.errors import PenstockError, SourceLocation
from penstock.expr.tree import Expr
from penstock.flow.flow import Flow

T = TypeVar("T")
_ASYNCIO = os.path.dirname(asyncio.__file__)


class Client:
    """As `AsyncClient`, with calls that block; for any number of threads. Close it, or use `with`.

    Its connection lives in a thread of its own, so it works where an event loop runs already.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        security: Security | None = None,
        patience: timedelta | str | None = "30s",
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run, args=(self._loop,), name="penstock client", daemon=True)
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
            raise ConnectionBroken("the client is closed", fix="make another one", address="")
        answer = asyncio.run_coroutine_threadsafe(asked, self._loop)
        try:
            return answer.result()
        except PenstockError as error:
            # Found in the thread of the loop, where nobody's line is.
            error.blaming(_ASYNCIO, SourceLocation.of_caller())
            raise
        except BaseException:
            answer.cancel()  # Ctrl-C while it waits: the controller is told, too
            raise

    def create_collection(self, name: str, rows: Any, *, append_only: bool = False) -> None:
        """See `AsyncClient.create_collection`."""
        self._wait(self._client.create_collection(name, rows, append_only=append_only))

    def create_view(
        self,
        name: str,
        flow: Flow,
        *,
        key: str | Sequence[str] = (),
        keep: timedelta | str = "10s",
        into: str | None = None,
        allow_callables: bool = False,
    ) -> None:
        """See `AsyncClient.create_view`."""
        self._wait(
            self._client.create_view(
                name, flow, key=key, keep=keep, into=into, allow_callables=allow_callables
            )
        )

    def drop(self, name: str) -> None:
        """See `AsyncClient.drop`."""
        self._wait(self._client.drop(name))

    def describe(self, name: str) -> Known:
        """See `AsyncClient.describe`."""
        return self._wait(self._client.describe(name))

    def insert(self, collection: str, rows: Iterable[Any]) -> int:
        """See `AsyncClient.insert`."""
        return self._wait(self._client.insert(collection, list(rows)))

    def delete(self, collection: str, rows: Iterable[Any]) -> int:
        """See `AsyncClient.delete`."""
        return self._wait(self._client.delete(collection, list(rows)))

    def write(self, changes: Mapping[str, Iterable[Any]]) -> int:
        """See `AsyncClient.write`."""
        # Read here: where rows come out of this client, its own thread would wait for itself.
        return self._wait(self._client.write({name: list(rows) for name, rows in changes.items()}))

    def peek(
        self,
        view: str,
        *,
        key: Any = None,
        keys: Iterable[Any] | None = None,
        where: Expr | None = None,
        order_by: Any = (),
        limit: int | None = None,
        offset: int = 0,
        columns: Sequence[str | Expr] | None = None,
        at: int | None = None,
        staleness: timedelta | str | None = None,
        replica: str | None = None,
        patience: Patience = AS_CLIENT,
    ) -> list[Any]:
        """See `AsyncClient.peek`."""
        keys = None if keys is None else list(keys)
        return self._wait(
            self._client.peek(
                view,
                key=key,
                keys=keys,
                where=where,
                order_by=order_by,
                limit=limit,
                offset=offset,
                columns=columns,
                at=at,
                staleness=staleness,
                replica=replica,
                patience=patience,
            )
        )

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

    def copy(self, view: str, file: str, *, patience: Patience = AS_CLIENT) -> int:
        """See `AsyncClient.copy`."""
        return self._wait(self._client.copy(view, file, patience=patience))

    def add_replica(
        self, name: str, address: str, *, runtime: RuntimeName = "here", workers: int = 1
    ) -> None:
        """See `AsyncClient.add_replica`."""
        self._wait(self._client.add_replica(name, address, runtime=runtime, workers=workers))

    def drop_replica(self, name: str) -> None:
        """See `AsyncClient.drop_replica`."""
        self._wait(self._client.drop_replica(name))

    def release_replica(self, name: str) -> None:
        """See `AsyncClient.release_replica`."""
        self._wait(self._client.release_replica(name))

    def status(self) -> ControllerStatus:
        """See `AsyncClient.status`."""
        return self._wait(self._client.status())

    def close(self) -> None:
        """End the connection and its thread. What other threads wait for fails with `ConnectionBroken`."""
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
