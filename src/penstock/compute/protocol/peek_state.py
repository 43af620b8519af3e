"""What of peeks may still be said on a connection. Each method gives the reason why something may not."""

from __future__ import annotations

from penstock.compute.protocol.responses import Canceled, PeekResponse

MOST_ANSWERED = 100_000
"""Peeks that are answered and may still be cancelled; beyond it the oldest are forgotten."""


class Peeks:
    """Peeks that wait for their answer, and those whose `CancelPeek` may still come."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, bool] = {}  # by uuid, whether it was cancelled
        self._answered: dict[bytes, None] = {}  # in order
        self._forgotten = False

    def __len__(self) -> int:
        return len(self._waiting) + len(self._answered)

    def ask(self, uuid: bytes) -> str | None:
        if uuid in self._waiting or uuid in self._answered:
            return "Its uuid is that of an earlier peek."
        self._waiting[uuid] = False
        return None

    def cancel(self, uuid: bytes) -> str | None:
        if uuid in self._answered:
            del self._answered[uuid]
        elif self._waiting.get(uuid) is False:
            self._waiting[uuid] = True
        elif uuid in self._waiting:
            return "The peek is cancelled already."
        elif not self._forgotten:
            return "There was no such peek."
        return None

    def answer(self, response: PeekResponse) -> str | None:
        cancelled = self._waiting.get(response.uuid)
        if cancelled is None:
            return "The peek is answered already, or was not asked."
        if isinstance(response.answer, Canceled) and not cancelled:
            return "Nobody has cancelled the peek."
        del self._waiting[response.uuid]
        if not cancelled:
            self._answered[response.uuid] = None
            if len(self._answered) > MOST_ANSWERED:
                del self._answered[next(iter(self._answered))]
                self._forgotten = True
        return None
