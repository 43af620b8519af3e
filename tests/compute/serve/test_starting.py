"""How a controller starts, and what it leaves alone where it cannot."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="grpcio is not installed")

from penstock.compute import AsyncClient
from penstock.compute.errors import ConnectionBroken
from penstock.compute.serve.process import Options, run_controller


def test_one_that_cannot_listen_does_not_end_the_one_that_serves(tmp_path: Path) -> None:
    async def story() -> None:
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        options = Options("127.0.0.1:0", tmp_path)
        first = asyncio.create_task(run_controller(options, address.set_result))
        there = await address
        with pytest.raises(ConnectionBroken, match="is taken"):
            await run_controller(replace(options, listen=there), pytest.fail)
        async with AsyncClient(there, patience="0s") as client:
            await client.create_collection("numbers", int)
            await client.insert("numbers", [1])
            assert (await client.status()).epoch == 1
        assert not first.done()
        first.cancel()
        await asyncio.wait([first])

    asyncio.run(story())
