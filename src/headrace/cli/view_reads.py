"""`headrace peek` and `headrace copy`: read the rows of a view or a collection at one time."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.json_rows import Format
from headrace.cli.options import (
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
    parse_patience,
)


def peek(
    view: Annotated[str, typer.Argument(help="Name of a view or a collection.")],
    key: Annotated[
        list[str] | None,
        typer.Option("--key", "-k", metavar="JSON", help="Key to look up; repeatable: a, 7, '[\"a\", 7]'."),
    ] = None,
    where: Annotated[
        str | None, typer.Option(metavar="EXPRESSION", help="Filter, written as in a flow: 'col.price > 3'.")
    ] = None,
    order_by: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Column to sort by; a leading - sorts descending."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="Maximum number of rows.")] = None,
    at: Annotated[
        int | None, typer.Option(help="Timestamp to read at. Default: the last acknowledged write.")
    ] = None,
    staleness: Annotated[
        str | None, typer.Option(help="How far the answer may lag behind if that is faster, such as 5s.")
    ] = None,
    replica: Annotated[str | None, typer.Option(help="Replica to ask, instead of all.")] = None,
    format: Annotated[
        Format, typer.Option(help="Output: a table, or one JSON object per line.")
    ] = Format.TABLE,
    patience: Patience = DEFAULT_PATIENCE,
    controller: Controller = DEFAULT_ADDRESS,
    ca: Ca = None,
    certificate: Certificate = None,
    key_file: Key = None,
    token_file: TokenFile = None,
    server_name: ServerName = None,
) -> None:
    """Show the rows of a view or a collection, including every acknowledged write."""
    from headrace.cli.json_rows import parse_condition, parse_key, print_rows
    from headrace.expr.tree import Column, Expr, Ordering

    order: list[Expr | Ordering] = [
        Column(name[1:]).desc() if name.startswith("-") else Column(name) for name in order_by or ()
    ]
    with connect(controller, ca, certificate, key_file, token_file, server_name) as client:
        known = client.describe(view)
        rows = client.peek(
            view,
            keys=[parse_key(known, text) for text in key] if key else None,
            where=None if where is None else parse_condition(known, where),
            order_by=order,
            limit=limit,
            at=at,
            staleness=staleness,
            replica=replica,
            patience=parse_patience(patience),
        )
        print_rows(known.schema, rows, format)


def copy(
    view: Annotated[str, typer.Argument(help="Name of a view or a collection.")],
    file: Annotated[str, typer.Argument(help="File name without folders, ending in .jsonl or .parquet.")],
    patience: Patience = DEFAULT_PATIENCE,
    controller: Controller = DEFAULT_ADDRESS,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    token_file: TokenFile = None,
    server_name: ServerName = None,
) -> None:
    """Write all rows of a view to a file in the `copies` folder of a replica.

    --patience limits the wait for a replica, not the time it takes to write.
    """
    with connect(controller, ca, certificate, key, token_file, server_name) as client:
        rows = client.copy(view, file, patience=parse_patience(patience))
    typer.echo(f"{rows:,} row{'s' * (rows != 1)} of {view} copied to {file}")
