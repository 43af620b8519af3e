"""`penstock copy`: the rows of a view into a file of a replica."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.serving import (
    DEFAULT_ADDRESS,
    DEFAULT_PATIENCE,
    Ca,
    Certificate,
    Controller,
    Key,
    Patience,
    ServerName,
    TokenFile,
    connect,
    patience_of,
)


def copy(
    view: Annotated[str, typer.Argument(help="The name of a view or a collection.")],
    file: Annotated[str, typer.Argument(help="A plain name that ends with .jsonl or .parquet.")],
    patience: Patience = DEFAULT_PATIENCE,
    controller: Controller = DEFAULT_ADDRESS,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    token_file: TokenFile = None,
    server_name: ServerName = None,
) -> None:
    """Write the rows of a view, however many, to a file in the folder of a replica, under copies.

    It takes as long as a replica is at work on it; --patience is for having one.
    """
    with connect(controller, ca, certificate, key, token_file, server_name) as client:
        rows = client.copy(view, file, patience=patience_of(patience))
    typer.echo(f"{rows:,} row{'s' * (rows != 1)} of {view} copied to {file}")
