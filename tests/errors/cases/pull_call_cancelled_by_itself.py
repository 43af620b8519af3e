import asyncio

from headrace.pull import async_map, collect, pull, values


async def cancel_itself(_value: int) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


pull(values([1]), async_map(cancel_itself), collect()).run()
