import asyncio

from headrace.pull import collect, from_stream, pull


async def read() -> None:
    reader = asyncio.StreamReader()
    reader.set_exception(ConnectionResetError("reset by the other side"))
    await pull(from_stream(reader), collect())


asyncio.run(read())
