"""A server that is signalled lets what it left end by itself."""

import asyncio
import os
import signal

from headrace.compute.serve import until_signalled


def test_a_task_that_a_server_leaves_ends_by_itself() -> None:
    ended: list[str] = []

    async def leave() -> None:
        try:
            for _ in range(20):
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        ended.append("by itself")

    async def serve() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()
        finally:
            tasks.append(asyncio.create_task(leave()))

    tasks: list[asyncio.Task[None]] = []
    assert until_signalled(serve) is signal.SIGTERM
    assert ended == ["by itself"]
