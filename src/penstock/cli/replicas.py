"""`penstock replicas`: which replicas a controller uses."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.engine_option import Where
from penstock.cli.serving import (
    DEFAULT_ADDRESS,
    Ca,
    Certificate,
    Controller,
    Key,
    ServerName,
    TokenFile,
    connect,
)

replicas = typer.Typer(no_args_is_help=True, help="Add, list, drop and release the replicas of a controller.")
Name = Annotated[str, typer.Argument(help="The name of the replica.")]


@replicas.command()
def add(
    replica: Annotated[str, typer.Argument(metavar="NAME=HOST:PORT", help="Where it listens.")],
    runtime: Annotated[Where, typer.Option(help="In its process, or on Spark.")] = Where.HERE,
    workers: Annotated[int, typer.Option(min=1, help="Parts that it works in.")] = 1,
    controller: Controller = DEFAULT_ADDRESS,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    token_file: TokenFile = None,
    server_name: ServerName = None,
) -> None:
    """Use a replica; it may be started later."""
    from penstock.cli.run import named

    ((name, address),) = named("replica", [replica]).items()
    with connect(controller, ca, certificate, key, token_file, server_name) as client:
        client.add_replica(name, address, runtime=runtime.value, workers=workers)
    typer.echo(f"replica {name} at {address}")


@replicas.command(name="list")
def list_replicas(
    controller: Controller = DEFAULT_ADDRESS,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    token_file: TokenFile = None,
    server_name: ServerName = None,
) -> None:
    """Name the replicas, whether they are connected, and what went wrong with them."""
    from penstock.cli.status import show_replicas

    with connect(controller, ca, certificate, key, token_file, server_name) as client:
        show_replicas(client.status())


@replicas.command()
def drop(
    name: Name,
    controller: Controller = DEFAULT_ADDRESS,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    token_file: TokenFile = None,
    server_name: ServerName = None,
) -> None:
    """Use a replica no more; its process stays."""
    with connect(controller, ca, certificate, key, token_file, server_name) as client:
        client.drop_replica(name)
    typer.echo(f"dropped {name}")


@replicas.command()
def release(
    name: Name,
    controller: Controller = DEFAULT_ADDRESS,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    token_file: TokenFile = None,
    server_name: ServerName = None,
) -> None:
    """Try a replica again that died too often and was left alone."""
    with connect(controller, ca, certificate, key, token_file, server_name) as client:
        client.release_replica(name)
    typer.echo(f"released {name}")
