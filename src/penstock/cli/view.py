"""`penstock view`: make, list and drop views."""

from __future__ import annotations

from typing import Annotated

import typer

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

view = typer.Typer(no_args_is_help=True, help="Make, list and drop views that replicas keep up to date.")


@view.command()
def create(
    flow: Annotated[str, typer.Argument(help="module:flow or path/to/file.py:flow, with one sink.")],
    name: Annotated[str | None, typer.Option(help="Without it: the name of the flow's sink.")] = None,
    by: Annotated[
        list[str] | None,
        typer.Option("--key", "-k", metavar="COLUMN", help="Look it up by this column; any number."),
    ] = None,
    keep: Annotated[str, typer.Option(help="How much of the past can be read.")] = "10s",
    into: Annotated[
        str | None, typer.Option(help="A collection to make, which its changes are written to as well.")
    ] = None,
    allow_callables: Annotated[
        bool, typer.Option("--allow-callables", help="Send the code of Python functions of the flow.")
    ] = False,
    controller: Controller = DEFAULT_ADDRESS,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    token_file: TokenFile = None,
    server_name: ServerName = None,
) -> None:
    """Keep the answer of a flow up to date. Its sources are collections; those that are missing are made."""
    from penstock.cli.load import load_flow
    from penstock.errors import BadInput

    loaded = load_flow(flow)
    sinks = list(loaded.graph().sinks)
    if name is None and len(sinks) != 1:
        raise BadInput(f"the flow has {len(sinks)} sinks: {', '.join(sinks)}", fix="a view has one")
    named = name or sinks[0]
    with connect(controller, ca, certificate, key, token_file, server_name) as client:
        client.create_view(named, loaded, key=by or (), keep=keep, into=into, allow_callables=allow_callables)
    typer.echo(f"view {named} of {', '.join(loaded.graph().sources)}")


@view.command(name="list")
def list_views(
    controller: Controller = DEFAULT_ADDRESS,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    token_file: TokenFile = None,
    server_name: ServerName = None,
) -> None:
    """Name the views, what they read and how far they are."""
    from penstock.cli.status import show_views

    with connect(controller, ca, certificate, key, token_file, server_name) as client:
        show_views(client.status())


@view.command()
def drop(
    name: Annotated[str, typer.Argument(help="A view, or a collection that no view reads.")],
    controller: Controller = DEFAULT_ADDRESS,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    token_file: TokenFile = None,
    server_name: ServerName = None,
) -> None:
    """Forget a view. The collections that it reads stay."""
    with connect(controller, ca, certificate, key, token_file, server_name) as client:
        client.drop(name)
    typer.echo(f"dropped {name}")
