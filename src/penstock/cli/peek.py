"""`penstock peek`: the rows of a view or a collection at one time."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.rows import Format
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


def peek(
    view: Annotated[str, typer.Argument(help="The name of a view or a collection.")],
    key: Annotated[
        list[str] | None,
        typer.Option("--key", "-k", metavar="JSON", help="A key to look up; any number: a, 7, '[\"a\", 7]'."),
    ] = None,
    where: Annotated[
        str | None, typer.Option(metavar="EXPRESSION", help="Which rows, as in a flow: 'col.price > 3'.")
    ] = None,
    order_by: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Sort by a column; with a - in front: downwards."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="So many rows at most.")] = None,
    at: Annotated[
        int | None, typer.Option(help="A time; without it: that of the last acknowledged write.")
    ] = None,
    staleness: Annotated[
        str | None, typer.Option(help="How far the answer may be behind if that is faster, such as 5s.")
    ] = None,
    replica: Annotated[str | None, typer.Option(help="The only replica that may answer.")] = None,
    format: Annotated[Format, typer.Option(help="A table, or an object of JSON a line.")] = Format.TABLE,
    patience: Patience = DEFAULT_PATIENCE,
    controller: Controller = DEFAULT_ADDRESS,
    ca: Ca = None,
    certificate: Certificate = None,
    key_file: Key = None,
    token_file: TokenFile = None,
    server_name: ServerName = None,
) -> None:
    """Show the rows of a view; every write that was acknowledged before is in them."""
    from penstock.cli.rows import parsed_condition, parsed_key, show_rows
    from penstock.expr.tree import Column, Expr, Ordering

    order: list[Expr | Ordering] = [
        Column(name[1:]).desc() if name.startswith("-") else Column(name) for name in order_by or ()
    ]
    with connect(controller, ca, certificate, key_file, token_file, server_name) as client:
        known = client.describe(view)
        rows = client.peek(
            view,
            keys=[parsed_key(known, text) for text in key] if key else None,
            where=None if where is None else parsed_condition(known, where),
            order_by=order,
            limit=limit,
            at=at,
            staleness=staleness,
            replica=replica,
            patience=patience_of(patience),
        )
        show_rows(known.schema, rows, format)
