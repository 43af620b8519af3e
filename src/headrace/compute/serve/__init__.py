"""Server processes: the controller and the replica, each a state machine with sockets in one event loop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable

# gRPC's `stop` returns while tasks of its calls still end; each that is cancelled then prints a traceback.
_LEFT = 1.0


def until_signalled(serve: Callable[[], Awaitable[None]]) -> signal.Signals | None:
    """Run `serve` in an event loop; SIGINT and SIGTERM cancel it. Returns the signal, or None.

    Tasks that `serve` leaves have `_LEFT` seconds to end by themselves.

    Raises the errors of `serve`.
    """
    return asyncio.run(_run(serve))


async def _run(serve: Callable[[], Awaitable[None]]) -> signal.Signals | None:
    came: list[signal.Signals] = []
    task = asyncio.ensure_future(serve())
    loop = asyncio.get_running_loop()

    def end(number: signal.Signals) -> None:
        came.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end, number)
    try:
        await task
    except asyncio.CancelledError:
        if not came:
            raise
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        await asyncio.wait(left, timeout=_LEFT)
    return came[0] if came else None
