"""Commands of views: `view`, `insert` and `delete`, `peek` and `copy`, `subscribe`.

Rows are JSON lines in both directions; a peek or a copy reads all rows at one time, a subscription prints
the changes as they happen.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.inspection import AsJson, RowArgument, Seconds, parse_row, report
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
    complete_flow,
    connect,
    parse_patience,
)
from headrace.cli.row_formats import RowsFormat
from headrace.errors import BadInput

if TYPE_CHECKING:
    from headrace.compute.client.client import Client
    from headrace.compute.client.subscription import CachedDescription, UpdateBatch


LoadCallables = Annotated[
    bool,
    typer.Option("--allow-callables", help="Load the code of the view's Python functions, and run it."),
]

view = typer.Typer(
    name="view",
    no_args_is_help=True,
    help="Make, list, explain and drop views that replicas keep up to date.",
)


@view.command()
def create(
    flow: Annotated[
        str,
        typer.Argument(
            help="module:flow or path/to/file.py:flow, with one sink.", autocompletion=complete_flow
        ),
    ],
    name: Annotated[
        str | None, typer.Option(help="Name of the view. Default: the name of the flow's sink.")
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option("--key", "-k", metavar="COLUMN", help="Key column for look-ups; repeatable."),
    ] = None,
    keep: Annotated[str, typer.Option(help="Span of the past that stays readable.")] = "10s",
    into: Annotated[
        str | None, typer.Option(help="Collection to create and write the view's changes to.")
    ] = None,
    allow_callables: Annotated[
        bool, typer.Option("--allow-callables", help="Send the code of the flow's Python functions.")
    ] = False,
    tick_rows: Annotated[
        int | None, typer.Option(min=1, help="Limit on the rows that a tick makes, instead of 10,000,000.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Limit on the rounds of a loop, instead of 10,000.")
    ] = None,
    state_bytes: Annotated[
        int | None, typer.Option(min=1, help="Limit on the memory of the view's state, instead of 2 GiB.")
    ] = None,
    tick_seconds: Annotated[
        int | None, typer.Option(min=1, help="Limit on the processor time of a tick, instead of 20 s.")
    ] = None,
    controller: Controller = DEFAULT_ADDRESS,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    token_file: TokenFile = None,
    server_name: ServerName = None,
) -> None:
    """Keep the result of a flow up to date. Its sources are collections; missing ones are created."""
    from headrace.cli.load_flow import load_flow
    from headrace.errors import BadInput

    loaded = load_flow(flow)
    sinks = list(loaded.graph().sinks)
    if name is None and len(sinks) != 1:
        raise BadInput(f"the flow has {len(sinks)} sinks: {', '.join(sinks)}", fix="a view has one")
    named = name or sinks[0]
    with connect(controller, ca, certificate, key, token_file, server_name) as client:
        client.create_view(
            named,
            loaded,
            key=by or (),
            keep=keep,
            into=into,
            allow_callables=allow_callables,
            tick_rows=tick_rows,
            rounds=rounds,
            state_bytes=state_bytes,
            tick_seconds=tick_seconds,
        )
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
    """List the views with their inputs and progress."""
    from headrace.cli.servers import print_views

    with connect(controller, ca, certificate, key, token_file, server_name) as client:
        print_views(client.status())


@view.command()
def explain(
    name: Annotated[str, typer.Argument(help="Name of the view.")],
    allow_callables: LoadCallables = False,
    controller: Controller = DEFAULT_ADDRESS,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    token_file: TokenFile = None,
    server_name: ServerName = None,
) -> None:
    """Explain the flow of a view, as `headrace explain` does: what streams, what waits, what it keeps."""
    from headrace.analysis import explain

    with connect(controller, ca, certificate, key, token_file, server_name) as client:
        flow = client.flow(name, allow_callables=allow_callables)
    typer.echo(str(explain(flow.graph())))


@view.command()
def why(
    name: Annotated[str, typer.Argument(help="Name of the view.")],
    row: RowArgument,
    rows: Annotated[int, typer.Option(min=1, help="Limit on the rows of an input.")] = 1_000_000,
    seconds: Seconds = 10.0,
    as_json: AsJson = False,
    allow_callables: LoadCallables = False,
    controller: Controller = DEFAULT_ADDRESS,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    token_file: TokenFile = None,
    server_name: ServerName = None,
) -> None:
    """Find rows of a view's inputs from which its flow makes a row.

    The inputs are read at one time, and the flow runs on them in this process, as `headrace why` does. Exit
    code 1 if the row is not in the view, 3 if that cannot be told because rows were not read.
    """
    from headrace.engine.source_rereading import ReplayLimits
    from headrace.engine.witness import find_witness
    from headrace.errors import BadInput

    with connect(controller, ca, certificate, key, token_file, server_name, patience="30s") as client:
        flow = client.flow(name, allow_callables=allow_callables)
        graph = flow.graph()
        (sink,) = graph.sinks
        sought = parse_row(row, graph.nodes[graph.sinks[sink]].schema)
        limits = ReplayLimits(rows, seconds=seconds)
        time = client.status().read_time
        inputs = {source: client.peek(source, limit=rows + 1, at=time) for source in graph.sources}
    for source, given in inputs.items():
        if len(given) > rows:
            raise BadInput(
                f"{source!r} has more than {rows:,} rows",
                why="All rows of the view's inputs are read into this process.",
                fix=f"raise --rows; or copy {source!r} to a file, and use `headrace why` with the flow",
            )
    report(find_witness(flow, inputs, sink, sought, end=False, limits=limits), as_json=as_json)


@view.command()
def drop(
    name: Annotated[str, typer.Argument(help="View, or collection that no view reads.")],
    controller: Controller = DEFAULT_ADDRESS,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    token_file: TokenFile = None,
    server_name: ServerName = None,
) -> None:
    """Drop a view. The collections it reads remain."""
    with connect(controller, ca, certificate, key, token_file, server_name) as client:
        client.drop(name)
    typer.echo(f"dropped {name}")


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
    from headrace.cli.row_formats import parse_rows, read_lines
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
        RowsFormat, typer.Option(help="Output: a table, or one JSON object per line.")
    ] = RowsFormat.TABLE,
    patience: Patience = DEFAULT_PATIENCE,
    controller: Controller = DEFAULT_ADDRESS,
    ca: Ca = None,
    certificate: Certificate = None,
    key_file: Key = None,
    token_file: TokenFile = None,
    server_name: ServerName = None,
) -> None:
    """Show the rows of a view or a collection, including every acknowledged write."""
    from headrace.cli.row_formats import parse_condition, parse_key, print_rows
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


MAX_SHOWN = 40
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


def _beginning(view: str, batch: UpdateBatch[Any]) -> str:
    there = f"{len(batch.updates):,} row{'s' * (len(batch.updates) != 1)}"
    return f"{view}: {there} to begin with, all changes from {batch.upper} on; Ctrl-C ends"


Show = Callable[["UpdateBatch[Any]"], None]


@contextmanager
def _lines(known: CachedDescription, progress: bool) -> Iterator[Show]:
    from headrace.io.in_process import change_text

    def show(batch: UpdateBatch[Any]) -> None:
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

    def show(batch: UpdateBatch[Any]) -> None:
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

    from headrace.cli.row_formats import create_console, create_table
    from headrace.io.in_process import cells

    rows: Counter[tuple[str, ...]] = Counter()  # keyed by printed text, because lists are not hashable
    with Live(console=create_console(), auto_refresh=False) as live:

        def show(batch: UpdateBatch[Any]) -> None:
            for row, _, weight in batch.updates:
                values = (row,) if known.schema.scalar else row
                line = cells(known.schema, values)
                rows[line] += weight
                if not rows[line]:
                    del rows[line]
            table = create_table(*known.schema.names, ">times")
            there = sorted((line, count) for line, count in rows.items() if count > 0)
            for line, count in there[:MAX_SHOWN]:
                table.add_row(*line, "" if count == 1 else f"{count:,}")
            held = f", {len(rows) - len(there):,} held back" if len(rows) > len(there) else ""
            table.caption = f"{len(there):,} rows, all before {batch.upper}{held}"
            live.update(table, refresh=True)

        yield show


def _in_order(batch: UpdateBatch[Any]) -> list[Any]:
    """Sort changes by time, and retractions before insertions within a time."""
    return sorted(batch.updates, key=lambda update: (update.time, update.weight > 0))


_SHOWN = {SubscriptionFormat.LINES: _lines, SubscriptionFormat.JSON: _json, SubscriptionFormat.TABLE: _table}
