import asyncio

from headrace.pull import async_map, collect, pull, timeout, values


async def ask_a_server(_question: str) -> str:
    await asyncio.sleep(3600)
    return "an answer"


pull(values(["why?"]), async_map(ask_a_server, cancel=True), timeout(0.01), collect()).run()
