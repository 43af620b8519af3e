"""`headrace insert` and `headrace delete`: write JSON lines to collections."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options import (
    DEFAULT_ADDRESS,
    Ca,
    Certificate,
    Controller,
    Key,
    ServerName,
    TokenFile,
    connect,
)
from headrace.errors import BadInput

if TYPE_CHECKING:
    from headrace.compute.client.client import Client

Collection = Annotated[str, typer.Argument(help="Name of the collection.")]
File = Annotated[
    str | None,
    typer.Argument(metavar="[FILE]", help="File with one JSON row per line; - for standard input."),
]
RowTexts = Annotated[list[str] | None, typer.Option("--row", metavar="JSON", help="Row; repeatable.")]
AtOnce = Annotated[int, typer.Option("--at-once", min=1, help="Rows per atomic write.")]


def insert(
    collection: Collection,
    file: File = None,
    row: RowTexts = None,
    at_once: AtOnce = 10_000,
    controller: Controller = DEFAULT_ADDRESS,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    token_file: TokenFile = None,
    server_name: ServerName = None,
) -> None:
    """Insert rows into a collection. Every later read sees them."""
    with connect(controller, ca, certificate, key, token_file, server_name) as client:
        _write(client, client.insert, "added to", collection, file, row, at_once)


def delete(
    collection: Collection,
    file: File = None,
    row: RowTexts = None,
    at_once: AtOnce = 10_000,
    controller: Controller = DEFAULT_ADDRESS,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    token_file: TokenFile = None,
    server_name: ServerName = None,
) -> None:
    """Delete rows from a collection, one copy per line. Fails if a row is not there."""
    with connect(controller, ca, certificate, key, token_file, server_name) as client:
        _write(client, client.delete, "taken from", collection, file, row, at_once)


def _write(
    client: Client,
    write: Callable[[str, list[Any]], int],
    done: str,
    collection: str,
    file: str | None,
    row: list[str] | None,
    at_once: int,
) -> None:
    from headrace.cli.json_rows import parse_rows, read_lines
    from headrace.compute.errors import MessageTooLarge

    if (file is None) == (not row):
        raise BadInput("rows are given by a file or by --row", fix="give one of them; - is standard input")
    if file not in (None, "-") and not Path(str(file)).is_file():
        raise BadInput(f"there is no file {file}", fix="name a file with a row of JSON in each line")
    known = client.describe(collection)
    lines = row if file is None else read_lines(file)
    rows = parse_rows(known, lines or (), "--row" if file is None else file)
    total = 0
    while some := list(islice(rows, at_once)):
        total += len(some)
        try:
            time = write(collection, some)
        except MessageTooLarge as error:
            if len(some) > 1:
                # Half of the estimate, because rows differ in size.
                fitting = len(some) * error.facts["limit"] // (2 * error.facts["size"])
                error.advising(f"such as by --at-once {max(1, fitting)}")
            raise
        typer.echo(f"{len(some):,} row{'s' * (len(some) != 1)} {done} {collection} at {time}")
    if not total:
        typer.echo(f"{file} has no rows: nothing {done} {collection}")
