"""Once: for closing what both a module and whoever opened it want to see closed."""

from __future__ import annotations

from collections.abc import Callable


class Once:
    """Calls `close` at the first call, and does nothing at others."""

    def __init__(self, close: Callable[[], object]) -> None:
        self._close = close
        self._called = False

    def __call__(self) -> None:
        if not self._called:
            self._called = True
            self._close()

    cancel = __call__
