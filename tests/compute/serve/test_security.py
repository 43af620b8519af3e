"""Who may ask a controller: a clear refusal for others, and the controller goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.compute import AsyncClient, Security
from headrace.compute.errors import ConnectionBroken, InsecureAddress, NotAuthorized
from headrace.compute.serve.controller_process import Options, run_controller
from tests.compute.transport.test_security import Authority

TOKEN = "correct-horse"


@asynccontextmanager
async def controller(folder: Path, security: Security) -> AsyncIterator[str]:
    """A controller in this event loop; its address."""
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    options = Options(listen="127.0.0.1:0", state=folder, clients=security)
    task = asyncio.create_task(run_controller(options, address.set_result))
    await asyncio.wait([task, address], return_when=asyncio.FIRST_COMPLETED)
    try:
        yield address.result() if address.done() else str(await task)
    finally:
        task.cancel()
        await asyncio.wait([task])


async def ask(address: str, security: Security) -> None:
    async with AsyncClient(address, security=security, patience="0s") as client:
        await client.create_collection("numbers", int)
        await client.insert("numbers", [1, 2])
        assert (await client.status()).collections[0].name == "numbers"


def answered(folder: Path, server: Security, client: Security) -> None:
    async def story() -> None:
        async with controller(folder, server) as address:
            await ask(address, client)

    asyncio.run(story())


def refused(folder: Path, server: Security, client: Security, good: Security) -> str:
    """Why; then somebody else is served."""

    async def story() -> str:
        async with controller(folder, server) as address:
            with pytest.raises((NotAuthorized, ConnectionBroken)) as error:
                await ask(address, client)
            with pytest.raises((NotAuthorized, ConnectionBroken)):
                async with AsyncClient(address, security=client, patience="0s") as other:
                    await anext(other.subscribe("numbers"))
            await ask(address, good)
            return str(error.value)

    return asyncio.run(story())


def test_a_client_with_the_token_is_answered(tmp_path: Path) -> None:
    answered(tmp_path, Security(token=TOKEN), Security(token=TOKEN))


def test_a_client_without_the_token_or_with_another_is_refused(tmp_path: Path) -> None:
    ours = Security(token=TOKEN)
    assert "no token was given" in refused(tmp_path, ours, Security(), ours)
    assert "the token is wrong" in refused(tmp_path, ours, Security(token="wrong"), ours)


def test_clients_and_the_controller_show_certificates(tmp_path: Path) -> None:
    ours, theirs = Authority(), Authority()
    server, good = ours.security("127.0.0.1"), ours.security("client")
    answered(tmp_path, server, good)
    yesterday = datetime.now(UTC) - timedelta(days=1)
    strangers: list[Any] = [
        theirs.security("client", ca=ours.pem),
        theirs.security("client"),
        ours.security("client", expires=yesterday),
        Security(ca=ours.pem),
        Security(),
    ]
    for stranger in strangers:
        refused(tmp_path, server, stranger, good)


def test_a_controller_of_another_name_is_not_trusted(tmp_path: Path) -> None:
    ours = Authority()
    elsewhere = ours.security("elsewhere.example")
    good = ours.security("client", server_name="elsewhere.example")
    assert "not to be trusted" in refused(tmp_path, elsewhere, ours.security("client"), good)


def test_without_credentials_it_listens_on_this_machine_only(tmp_path: Path) -> None:
    with pytest.raises(InsecureAddress):
        asyncio.run(run_controller(Options(listen="0.0.0.0:0", state=tmp_path), print))
