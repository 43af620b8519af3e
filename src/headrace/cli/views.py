"""`headrace view`: create, list and drop views."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.completion import complete_flow
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
from headrace.cli.why import AsJson, RowArgument, Seconds, parse_row, report

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
    from headrace.cli.status import print_views

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
    from headrace.engine.source_replay import Limits
    from headrace.engine.witness import find_witness
    from headrace.errors import BadInput

    with connect(controller, ca, certificate, key, token_file, server_name, patience="30s") as client:
        flow = client.flow(name, allow_callables=allow_callables)
        graph = flow.graph()
        (sink,) = graph.sinks
        sought = parse_row(row, graph.nodes[graph.sinks[sink]].schema)
        limits = Limits(rows, seconds=seconds)
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
