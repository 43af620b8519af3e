"""`headrace replicas`: manage the replicas of a controller."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.options import (
    DEFAULT_ADDRESS,
    Ca,
    Certificate,
    Controller,
    Engine,
    Key,
    ServerName,
    TokenFile,
    connect,
)

replicas = typer.Typer(
    name="replicas", no_args_is_help=True, help="Add, list, drop and release the replicas of a controller."
)
Name = Annotated[str, typer.Argument(help="Name of the replica.")]


@replicas.command()
def add(
    replica: Annotated[
        str, typer.Argument(metavar="NAME=HOST:PORT", help="Name and address of the replica.")
    ],
    runtime: Annotated[
        Engine, typer.Option(help="Engine of the replica: its own process, or Spark.")
    ] = Engine.HERE,
    workers: Annotated[int, typer.Option(min=1, help="Workers of the replica.")] = 1,
    controller: Controller = DEFAULT_ADDRESS,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    token_file: TokenFile = None,
    server_name: ServerName = None,
) -> None:
    """Add a replica. It may be started later."""
    from headrace.cli.options import parse_named_uris

    ((name, address),) = parse_named_uris("replica", [replica]).items()
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
    """List the replicas with their connection and last problem."""
    from headrace.cli.status import print_replicas

    with connect(controller, ca, certificate, key, token_file, server_name) as client:
        print_replicas(client.status())


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
    """Remove a replica. Its process keeps running."""
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
    """Retry a replica that was given up after repeated crashes."""
    with connect(controller, ca, certificate, key, token_file, server_name) as client:
        client.release_replica(name)
    typer.echo(f"released {name}")
