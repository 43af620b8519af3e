"""Patience: the time that a read waits for its answer, over all attempts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import TypeAlias

from headrace.compute.errors import ConnectionBroken, Missing, ReadTimeout
from headrace.expr.durations import duration


class UseClientPatience(Enum):
    """Marker for a read that uses the patience of its client."""

    DEFAULT = "as the client"


Patience: TypeAlias = timedelta | str | UseClientPatience | None
"""Time span such as "30s", or None to wait forever."""
AS_CLIENT = UseClientPatience.DEFAULT

_ROUND_TRIP = 10.0
"""Seconds allowed for an answer with a patience of zero: nothing is retried or waited for."""


def patience_seconds(patience: timedelta | str | None) -> float | None:
    """Convert a patience to seconds. Raises as `duration` does."""
    return None if patience is None else duration(patience).total_seconds()


@dataclass(slots=True)
class Wait:
    """Wait for the answer to one read.

    seconds:      its patience; None: forever.
    disconnected: the failure since which there was no connection to the controller.
    """

    seconds: float | None
    disconnected: ConnectionBroken | None = field(init=False, default=None)
    _until: float | None = field(init=False)
    _scope: asyncio.Timeout | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        now = asyncio.get_running_loop().time()
        self._until = None if self.seconds is None else now + self.seconds

    @property
    def deadline(self) -> float | None:
        """End of the wait in event-loop time, or None if the wait is unlimited."""
        return self._until

    def remaining_milliseconds(self) -> int | None:
        """Return the controller's time limit: slightly less than is left, so that it can respond first."""
        if self._until is None:
            return None
        left = max(self._until - asyncio.get_running_loop().time(), 0.0)
        return int(1000 * (left - min(left / 10, 0.5)))

    def restart(self) -> None:
        """Restart the wait, because part of the answer has arrived."""
        if self.seconds is not None:
            self._until = asyncio.get_running_loop().time() + self.seconds
        if self._scope is not None and self.seconds:
            self._scope.reschedule(self._until)

    @asynccontextmanager
    async def enforce_limit(self, what: str, address: str) -> AsyncGenerator[None]:
        """Raise `ReadTimeout` if the body takes longer, or `ConnectionBroken` if it is still trying to
        connect again. what: a noun for the read."""
        end = self._until if self.seconds else None
        if self.seconds == 0:
            end = asyncio.get_running_loop().time() + _ROUND_TRIP
        scope = self._scope = asyncio.timeout_at(end)
        try:
            async with scope:
                yield
        except TimeoutError as error:
            if not scope.expired():
                raise
            if self.disconnected is not None:
                raise self.disconnected from error
            waited = self.seconds or _ROUND_TRIP
            raise ReadTimeout(
                f"{what} was not answered within {waited:g} s: the controller at {address} does not answer",
                fix="check the controller, or raise the timeout: Client(patience=...)",
                missing=Missing.CONTROLLER.value,
                replicas=(),
            ) from error
        finally:
            self._scope = None
