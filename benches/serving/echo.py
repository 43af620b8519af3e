"""The floor: a gRPC service that gives back the bytes it gets, as one call each and over one stream.

python -m benches.serving.echo --listen 127.0.0.1:0
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio


async def _one(request: bytes, _: Any) -> bytes:
    return request


async def _stream(requests: AsyncIterator[bytes], _: Any) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request


async def serve(address: str) -> None:
    server = grpc.aio.server()
    methods = {
        "One": grpc.unary_unary_rpc_method_handler(_one),
        "Stream": grpc.stream_stream_rpc_method_handler(_stream),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Echo", methods),))
    host, _, port = address.rpartition(":")
    bound = server.add_insecure_port(f"{host}:{port}")
    await server.start()
    print(f"echo listening on {host}:{bound}", flush=True)
    await server.wait_for_termination()


class Echo:
    """A client of the service."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.aio.insecure_channel(address)
        self._one: Any = self._channel.unary_unary("/Echo/One")
        self._stream: Any = self._channel.stream_stream("/Echo/Stream")()

    async def one(self, data: bytes) -> bytes:
        return await self._one(data)

    async def over_stream(self, data: bytes) -> bytes:
        """To be called one at a time."""
        await self._stream.write(data)
        return await self._stream.read()

    async def close(self) -> None:
        self._stream.cancel()
        await self._channel.close()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[sys.argv.index("--listen") + 1]))
