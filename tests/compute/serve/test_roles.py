"""Who may do what: clients don't manage replicas, and nobody but their controller commands them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from headrace.compute import AsyncClient, Security
from headrace.compute.channels import FETCH, STREAM, VERSION, ConnectionLimits, channel_to
from headrace.compute.client.conversation import CONVERSE
from headrace.compute.errors import ComputeError, ConnectionBroken, NotAuthorized
from headrace.compute.serve.controller_process import Options, run_controller
from headrace.compute.serve.replica_server import ReplicaOptions, run_replica
from headrace.errors import BadOption
from tests.compute.serve.processes import Sale, totals
from tests.compute.transport.fakes import PATIENCE, FakeController, run_link
from tests.compute.transport.test_security import Authority

_grpc: Any = grpc
HUGE = 9_000_000_000
"""An epoch that no controller gets to: who was let in with it would shut the real one out."""
LOCAL = "127.0.0.1:0"


@asynccontextmanager
async def running(serve: Any) -> AsyncIterator[str]:
    """A server in this event loop; its address."""
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(address.set_result))
    await asyncio.wait([task, address], return_when=asyncio.FIRST_COMPLETED)
    try:
        yield address.result() if address.done() else str(await task)
    finally:
        task.cancel()
        await asyncio.wait([task])


async def posing(address: str, credentials: Security) -> ComputeError:
    """The error of a caller that poses as a controller, which never gets a connection."""
    controller, link = await run_link(address, credentials, controller_epoch=HUGE)
    assert isinstance(controller, FakeController)
    assert link.welcome is None
    assert link.error is not None
    return link.error


def served_by_its_controller_alone(
    folder: Path,
    clients: Security,
    links: Security,
    replica: Security,
    client: Security,
    *strangers: Security,
) -> list[ComputeError]:
    """A view is served while the strangers try to command the replica; their errors."""

    async def story() -> list[ComputeError]:
        async with running(
            lambda ready: run_replica(ReplicaOptions(LOCAL, folder / "r1", security=replica), ready)
        ) as there:
            refused = [await posing(there, stranger) for stranger in strangers]
            options = Options(LOCAL, folder / "state", replicas={"r1": there}, clients=clients, links=links)
            async with (
                running(lambda ready: run_controller(options, ready)) as address,
                AsyncClient(address, security=client) as asking,
            ):
                await asking.create_view("totals", totals(), key="shop")
                await asking.insert("sales", [Sale("a", 1)])
                refused += [await posing(there, stranger) for stranger in strangers]
                (row,) = await asking.peek("totals")
                assert (row.shop, row.total) == ("a", 1)
                (known,) = (await asking.status()).replicas
                assert (known.connections, known.deaths) == (1, 0)
            return refused

    return asyncio.run(story())


def test_the_certificate_of_a_client_does_not_command_a_replica(tmp_path: Path) -> None:
    ours = Authority()
    own, client = ours.security("127.0.0.1", "controller.example"), ours.security("client.example")
    replica = ours.security("127.0.0.1", clients=("controller.example",))
    for error in served_by_its_controller_alone(tmp_path, own, own, replica, client, client):
        assert isinstance(error, NotAuthorized)
        assert "client.example, who may not connect" in error.what


def test_the_token_of_a_client_does_not_command_a_replica(tmp_path: Path) -> None:
    clients = Security(token="of clients", operator_token="of operators")
    links = Security(token="of replicas")
    strangers = [Security(token="of clients"), Security(token="of operators"), Security()]
    for error in served_by_its_controller_alone(
        tmp_path, clients, links, links, Security(token="of clients"), *strangers
    ):
        assert isinstance(error, NotAuthorized)
        assert "of " not in error.what


def test_the_certificate_of_another_root_does_not_command_a_replica(tmp_path: Path) -> None:
    public, inner = Authority(), Authority()
    client = public.security("client.example")
    strangers = [
        client,
        Security(ca=inner.pem, certificate=client.certificate, key=client.key),
        Security(ca=inner.pem),
        Security(),
    ]
    for error in served_by_its_controller_alone(
        tmp_path,
        public.security("127.0.0.1"),
        inner.security("controller"),
        inner.security("127.0.0.1", clients=("*",)),
        client,
        *strangers,
    ):
        assert isinstance(error, NotAuthorized | ConnectionBroken)


def test_the_rows_kept_for_a_controller_are_not_for_clients(tmp_path: Path) -> None:
    async def story() -> None:
        options = ReplicaOptions(LOCAL, tmp_path, security=Security(token="of replicas"))
        async with (
            running(lambda ready: run_replica(options, ready)) as there,
            channel_to(there, Security(), ConnectionLimits()) as channel,
        ):
            metadata = (("x-headrace-protocol", VERSION), ("authorization", "Bearer of clients"))
            for method in (STREAM, FETCH):
                call = channel.stream_stream(method)(metadata=metadata)
                with pytest.raises(_grpc.aio.AioRpcError) as refused:
                    await asyncio.wait_for(call.read(), PATIENCE)
                error: Any = refused.value
                assert error.code() == _grpc.StatusCode.UNAUTHENTICATED

    asyncio.run(story())


def test_a_replica_that_cannot_tell_controllers_from_clients_does_not_start(tmp_path: Path) -> None:
    options = ReplicaOptions(LOCAL, tmp_path, security=Authority().security("127.0.0.1"))
    with pytest.raises(BadOption, match="any certificate of the CA would command this replica"):
        asyncio.run(run_replica(options, pytest.fail))


@pytest.mark.parametrize("clients", [Security(token="x"), Security(token="y", operator_token="x")])
def test_one_token_for_clients_and_replicas_is_refused(tmp_path: Path, clients: Security) -> None:
    options = Options(LOCAL, tmp_path, clients=clients, links=Security(token="x"))
    with pytest.raises(BadOption, match="clients and replicas have the same token"):
        asyncio.run(run_controller(options, pytest.fail))


# --- operators ---------------------------------------------------------------------


async def manage(address: str, credentials: Security) -> None:
    """All that operators may do and clients may not."""
    async with AsyncClient(address, security=credentials, patience="0s") as client:
        await client.add_replica("r9", "127.0.0.1:9")
        await client.release_replica("r9")
        await client.drop_replica("r9")


def managed(folder: Path, server: Security, operator: Security, *others: Security) -> list[str]:
    """An operator manages replicas; why each of the others may not, though they are clients."""

    async def story() -> list[str]:
        refusals: list[str] = []
        options = Options(LOCAL, folder, clients=server)
        async with running(lambda ready: run_controller(options, ready)) as address:
            for other in others:
                async with AsyncClient(address, security=other, patience="0s") as client:
                    for asked in (
                        client.add_replica("r9", "192.0.2.1:7411"),
                        client.release_replica("r9"),
                        client.drop_replica("r9"),
                    ):
                        with pytest.raises(NotAuthorized) as error:
                            await asked
                        refusals.append(error.value.what)
                    assert (await client.status()).replicas == ()
            await manage(address, operator)
        return refusals

    return asyncio.run(story())


REFUSED = [f"{doing} a replica is a right of operators" for doing in ("adding", "releasing", "dropping")]


def test_a_client_with_the_token_does_not_manage_replicas_and_one_with_the_operators_token_does(
    tmp_path: Path,
) -> None:
    server = Security(token="of clients", operator_token="of operators")
    assert managed(tmp_path, server, Security(token="of operators"), Security(token="of clients")) == REFUSED


def test_names_in_certificates_say_who_is_an_operator(tmp_path: Path) -> None:
    ours = Authority()
    server = ours.security("127.0.0.1", clients=("app.example",), operators=("ops.example",))
    assert managed(tmp_path, server, ours.security("ops.example"), ours.security("app.example")) == REFUSED


def test_with_credentials_nobody_is_an_operator_unless_named(tmp_path: Path) -> None:
    async def story() -> None:
        options = Options(LOCAL, tmp_path, clients=Security(token="of clients"))
        async with running(lambda ready: run_controller(options, ready)) as address:
            with pytest.raises(NotAuthorized, match="a right of operators"):
                await manage(address, Security(token="of clients"))

    asyncio.run(story())


def test_without_credentials_everyone_on_this_machine_is_an_operator(tmp_path: Path) -> None:
    managed(tmp_path, Security(), Security())


# --- hostile names -----------------------------------------------------------------


def test_a_name_in_a_certificate_is_compared_whole_and_shown_safely() -> None:
    server = Security(clients=("controller",))
    hostile = [
        "controller\0",
        " controller",
        "controller\n",
        "CONTROLLER",
        "*",
        "",
        "\x1b[2Jcontroller",
        "c" * 9999,
    ]
    for name in hostile:
        with pytest.raises(NotAuthorized) as error:
            server.admit({}, [name])
        assert error.value.what.isprintable()
    server.admit({}, [*hostile, "controller"])


@pytest.mark.parametrize("name", ["", "\0", "a\nb", "\x1b[2J", "r1 ", "a" * 5000, "\u202egpj"])
def test_a_replica_of_a_hostile_name_is_refused(tmp_path: Path, name: str) -> None:
    async def story() -> None:
        async with (
            running(lambda ready: run_controller(Options(LOCAL, tmp_path), ready)) as address,
            AsyncClient(address, patience="0s") as client,
        ):
            with pytest.raises(ComputeError) as error:
                await client.add_replica(name, "127.0.0.1:9")
            assert error.value.what.isprintable()
            assert (await client.status()).replicas == ()
            await manage(address, Security())

    asyncio.run(story())


def test_a_caller_with_hostile_metadata_is_refused_and_others_are_served(tmp_path: Path) -> None:
    async def story() -> None:
        options = Options(LOCAL, tmp_path, clients=Security(token="of clients"))
        async with (
            running(lambda ready: run_controller(options, ready)) as address,
            channel_to(address, Security(), ConnectionLimits()) as channel,
        ):
            for authorization in ("", "Bearer", "Bearer ", "Bearer of clients\t", "x" * 9000):
                metadata = (("x-headrace-protocol", VERSION), ("authorization", authorization))
                call = channel.stream_stream(CONVERSE)(metadata=metadata)
                with pytest.raises(_grpc.aio.AioRpcError):
                    await asyncio.wait_for(call.read(), PATIENCE)
            async with AsyncClient(address, security=Security(token="of clients"), patience="0s") as client:
                await client.create_collection("numbers", int)

    asyncio.run(story())
