"""`headrace subscribe`: print the changes of a view as they happen."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

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

if TYPE_CHECKING:
    from headrace.compute.client.subscription import Batch, CachedDescription

MOST_SHOWN = 40
"""Limit on the rows shown in the live table."""


class SubscriptionFormat(Enum):
    """Output format: a line per change, a JSON object per change, or a table of the current rows."""

    LINES = "lines"
    JSON = "json"
    TABLE = "table"


def subscribe(
    view: Annotated[str, typer.Argument(help="Name of the view.")],
    as_of: Annotated[
        int | None, typer.Option(help="Timestamp to start at. Default: the last acknowledged write.")
    ] = None,
    no_snapshot: Annotated[
        bool, typer.Option("--no-snapshot", help="Print later changes only, without the rows at the start.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Stop after the first batch.")] = False,
    until: Annotated[
        int | None, typer.Option(help="Stop when all changes before this time are printed.")
    ] = None,
    progress: Annotated[
        bool, typer.Option("--progress", help="Print progress even if nothing changes.")
    ] = False,
    format: Annotated[
        SubscriptionFormat, typer.Option(help="Output: lines or JSON per change, or an updating table.")
    ] = SubscriptionFormat.LINES,
    patience: Patience = DEFAULT_PATIENCE,
    controller: Controller = DEFAULT_ADDRESS,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    token_file: TokenFile = None,
    server_name: ServerName = None,
) -> None:
    """Print every change of a view exactly once, until Ctrl-C, across restarts of replicas and controller.

    To resume after a printed time T, use --as-of T --no-snapshot. --patience limits the wait for the first
    batch.
    """
    with connect(controller, ca, certificate, key, token_file, server_name) as client:
        known = client.describe(view)
        subscription = client.subscribe(
            view,
            as_of=as_of,
            snapshot=not no_snapshot,
            progress=True,
            patience=parse_patience(patience),
        )
        with subscription, _SHOWN[format](known, progress) as show:
            for number, batch in enumerate(subscription):
                if not number:
                    typer.echo(_beginning(view, batch), err=True)
                show(batch)
                if once or (until is not None and (batch.upper is None or batch.upper >= until)):
                    return


def _beginning(view: str, batch: Batch[Any]) -> str:
    there = f"{len(batch.updates):,} row{'s' * (len(batch.updates) != 1)}"
    return f"{view}: {there} to begin with, all changes from {batch.upper} on; Ctrl-C ends"


Show = Callable[["Batch[Any]"], None]


@contextmanager
def _lines(known: CachedDescription, progress: bool) -> Iterator[Show]:
    from headrace.io.in_process import change_text

    def show(batch: Batch[Any]) -> None:
        for row, time, weight in _in_order(batch):
            values = (row,) if known.schema.scalar else row
            typer.echo(f"{time} {change_text(known.schema, values, weight)}")
        if progress:
            typer.echo(f"all before {'the end' if batch.upper is None else batch.upper}")

    yield show


@contextmanager
def _json(known: CachedDescription, progress: bool) -> Iterator[Show]:
    from headrace.io.files.json_values import object_encoder

    record = object_encoder(known.schema.fields)

    def show(batch: Batch[Any]) -> None:
        for row, time, weight in _in_order(batch):
            values = (row,) if known.schema.scalar else row
            line = {"time": time, "weight": weight, "row": record(values)}
            typer.echo(json.dumps(line, ensure_ascii=False))
        if progress:
            typer.echo(json.dumps({"upper": batch.upper}))

    yield show


@contextmanager
def _table(known: CachedDescription, progress: bool) -> Iterator[Show]:
    from rich.live import Live

    from headrace.cli.text_tables import create_console, create_table
    from headrace.io.in_process import cells

    rows: Counter[tuple[str, ...]] = Counter()  # keyed by printed text, because lists are not hashable
    with Live(console=create_console(), auto_refresh=False) as live:

        def show(batch: Batch[Any]) -> None:
            for row, _, weight in batch.updates:
                values = (row,) if known.schema.scalar else row
                line = cells(known.schema, values)
                rows[line] += weight
                if not rows[line]:
                    del rows[line]
            table = create_table(*known.schema.names, ">times")
            there = sorted((line, count) for line, count in rows.items() if count > 0)
            for line, count in there[:MOST_SHOWN]:
                table.add_row(*line, "" if count == 1 else f"{count:,}")
            held = f", {len(rows) - len(there):,} held back" if len(rows) > len(there) else ""
            table.caption = f"{len(there):,} rows, all before {batch.upper}{held}"
            live.update(table, refresh=True)

        yield show


def _in_order(batch: Batch[Any]) -> list[Any]:
    """Sort changes by time, and retractions before insertions within a time."""
    return sorted(batch.updates, key=lambda update: (update.time, update.weight > 0))


_SHOWN = {SubscriptionFormat.LINES: _lines, SubscriptionFormat.JSON: _json, SubscriptionFormat.TABLE: _table}
