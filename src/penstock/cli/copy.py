"""`penstock copy`: the rows of a view into a file of a replica."""

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


def copy(
    view: Annotated[str, typer.Argument(help="The name of a view or a collection.")],
    file: Annotated[str, typer.Argument(help="A plain name that ends with .jsonl or .parquet.")],
    controller: Controller = DEFAULT_ADDRESS,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    token_file: TokenFile = None,
    server_name: ServerName = None,
) -> None:
    """Write the rows of a view, however many, to a file in the folder of a replica, under copies."""
    with connect(controller, ca, certificate, key, token_file, server_name) as client:
        rows = client.copy(view, file)
    typer.echo(f"{rows:,} row{'s' * (rows != 1)} of {view} copied to {file}")
