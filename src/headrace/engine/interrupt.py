"""Graceful stop on Ctrl-C and SIGTERM, between two ticks."""

from __future__ import annotations

import os
import select
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """Context that records the first SIGINT or SIGTERM; a second one has its usual effect.

    Only the main thread can ask for signals: entered in another one, it records nothing.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}
        self._woken, self._wake = os.pipe()

    @property
    def signal_descriptor(self) -> int:
        """File descriptor that becomes readable when a signal arrives, for event loops."""
        return self._woken

    def wait(self, seconds: float) -> None:
        """Sleep until the timeout or a signal."""
        # A pipe and no Event: setting an Event in a handler can lock up the thread that waits for it.
        select.select([self._woken], [], [], seconds)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.signal = signal.Signals(number)
        os.write(self._wake, b"!")
        self._restore()

    def _restore(self) -> None:
        for wanted, before in self._before.items():
            signal.signal(wanted, before)
        self._before.clear()

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._before = {wanted: signal.signal(wanted, self._on_signal) for wanted in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()
        os.close(self._woken)
        os.close(self._wake)
