"""Ids of what passes: reserved many at a time, so that a subscription waits for no disk."""

from __future__ import annotations

from collections import deque

from penstock.compute.controller.durable import ControllerState
from penstock.compute.protocol.dataflow import Id

_AT_ONCE = 1_000


class TransientIds:
    """Gives ids "t1", "t2", ...; none twice, also after a crash."""

    def __init__(self, state: ControllerState, epoch: int) -> None:
        self._state = state
        self._epoch = epoch
        self._left: deque[Id] = deque()

    def next(self) -> Id:
        """A new one. Raises `StaleEpoch`, `StoreUnavailable`."""
        if not self._left:
            with self._state.change(self._epoch) as change:
                self._left.extend(change.new_ids("t", _AT_ONCE))
        return self._left.popleft()
