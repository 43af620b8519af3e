"""Subscriptions of clients: batches in order of time, across any number of connections."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

from headrace.compute.client.conversation import AS_CLIENT, Conversation, Patience, Wait, retry_with_patience
from headrace.compute.client.rows import CachedDescription, collecting_no_garbage
from headrace.compute.errors import ConnectionBroken
from headrace.compute.frontier import START, Frontier
from headrace.compute.problem_conversion import error_of
from headrace.compute.protocol.client_messages import EVENT, BatchPart, Description, SubscriptionRequest
from headrace.compute.protocol.responses import Problem
from headrace.compute.protocol.row_batch import decode_batch
from headrace.compute.protocol.rows import decode_updates
from headrace.compute.transport.channels import END_OF_CALL, raising_compute_errors
from headrace.expr.types import Schema
from headrace.shown import Shown

T = TypeVar("T")


class Update(NamedTuple, Generic[T]):
    """Changed row, with the time and the weight of the change: copies added, or removed if negative."""

    row: T
    time: int
    weight: int


@dataclass(frozen=True, slots=True)
class Batch(Shown, Generic[T]):
    """All changes at times from `lower` up to but excluding `upper`, or without end if `upper` is None.

    A reader that stores `upper` together with the applied batch can resume there later:
    `subscribe(view, as_of=upper - 1, snapshot=False)`.
    """

    lower: int
    upper: int | None
    updates: tuple[Update[T], ...]


class AsyncSubscription(AsyncIterator[Batch[Any]]):
    """Batches of a view that cover every time exactly once, across reconnects and controller restarts.

    Each batch begins where the previous one ended. Nothing is read ahead: a reader that stops reads nothing
    more from the network. Once begun, it waits without limit, also for a controller. Ends after a batch with
    `upper` None. Raises `ReadTimeout` if it does not begin within its patience; `SinceViolation` if the
    reader was away, or slow, for longer than the view keeps its past; `UnknownName` if the view was dropped.
    """

    def __init__(
        self,
        conversation: Conversation,
        asked: SubscriptionRequest,
        *,
        progress: bool,
        patience: Patience = AS_CLIENT,
    ) -> None:
        self._conversation = conversation
        self._asked = asked
        self._progress = progress
        self._patience = patience
        self._upper = START
        self._begun = False
        self._given = 0
        self._call: Any = None
        self._schema = Schema(())
        self._to_user: Callable[[tuple[Any, ...]], Any] = _as_it_is
        self._part: list[Update[Any]] = []

    @property
    def upper(self) -> int | None:
        """Frontier up to which the batches so far are complete, or None once they cover all times."""
        return self._upper.time

    def __aiter__(self) -> AsyncSubscription:
        return self

    async def __anext__(self) -> Batch[Any]:
        while not self._upper.ended:
            batch = await self._first() if not self._begun else await self._following()
            if batch is None:
                continue
            first = not self._begun
            self._begun, self._upper = True, Frontier(batch.upper)
            if batch.updates or self._progress or first:
                # Extend the batch over the times of the empty batches skipped before it.
                given, self._given = replace(batch, lower=self._given), batch.upper or 0
                return given
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the subscription."""
        self._hang_up()
        self._upper = Frontier(None)

    async def _first(self) -> Batch[Any] | None:
        wait = self._conversation.wait(self._patience)
        async with wait.enforce_limit(
            f"the subscription to {self._asked.view!r}", self._conversation.address
        ):
            return await retry_with_patience(lambda: self._next_batch(wait), self._conversation, wait)

    async def _following(self) -> Batch[Any] | None:
        wait = Wait(None)
        return await retry_with_patience(lambda: self._next_batch(wait), self._conversation, wait)

    async def _next_batch(self, wait: Wait) -> Batch[Any] | None:
        """Read the next batch; None for one already seen. The caller retries after `ConnectionBroken`."""
        try:
            if self._call is None:
                self._call = self._connected(wait)
            with raising_compute_errors(self._conversation.address):
                while (message := await self._call.read()) is not END_OF_CALL:
                    wait.disconnected = None
                    match EVENT.from_message(message):
                        case BatchPart() as part:
                            batch = self._add(part)
                            if not part.more:
                                return batch
                            wait.restart()
                        case Problem() as problem:
                            raise error_of(problem)
                        case Description() as found:
                            known = CachedDescription.of(self._asked.view, found)
                            self._schema, self._to_user = known.schema, known.to_user
            raise ConnectionBroken(
                "the controller has ended the connection", address=self._conversation.address
            )
        except BaseException:
            self._hang_up()
            raise

    def _connected(self, wait: Wait) -> Any:
        if self._begun:
            assert self._upper.time is not None
            asked = replace(self._asked, as_of=self._upper.time - 1, snapshot=False)
        else:
            asked = replace(self._asked, patience=wait.remaining_milliseconds())
        self._part = []
        return self._conversation.subscribe(asked)

    def _add(self, message: BatchPart) -> Batch[Any] | None:
        to_user, at = self._to_user, message.time
        if at is not None:
            with collecting_no_garbage():
                changes = decode_batch(message.updates, self._schema, "Batch.updates")
                self._part += [Update(to_user(row), at, weight) for row, weight in changes]
        elif message.updates:
            self._part += [
                Update(to_user(row), at, weight) for row, at, weight in decode_updates(message.updates)
            ]
        if message.more:
            return None
        lower, upper = Frontier(message.lower), Frontier(message.upper)
        updates, self._part = tuple(self._part), []
        if upper <= self._upper and self._begun:
            return None
        # A resumed subscription may begin with a batch that reaches back over times already seen, without
        # changes there.
        return Batch(max(lower, self._upper).time or 0, upper.time, updates)

    def _hang_up(self) -> None:
        if self._call is not None:
            self._call.cancel()
            self._call = None


def _as_it_is(row: tuple[Any, ...]) -> Any:
    return row


class Subscription:
    """Blocking iterator over the batches of an `AsyncSubscription`. Close it, or use it in a `with`
    statement."""

    def __init__(self, subscription: AsyncSubscription, run: Callable[[Any], Any]) -> None:
        self._subscription = subscription
        self._run = run

    @property
    def upper(self) -> int | None:
        """Frontier up to which the batches so far are complete, or None once they cover all times."""
        return self._subscription.upper

    def __iter__(self) -> Subscription:
        return self

    def __next__(self) -> Batch[Any]:
        batch = self._run(self._next())
        if batch is None:
            raise StopIteration
        return batch

    async def _next(self) -> Batch[Any] | None:
        return await anext(self._subscription, None)

    def close(self) -> None:
        """End the subscription."""
        self._run(self._subscription.aclose())

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
