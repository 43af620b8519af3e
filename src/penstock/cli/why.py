"""`penstock why`: find the source rows that a row of a sink came from."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import parse_named_uris
from penstock.cli.text_tables import create_console, create_table
from penstock.errors import BadInput

if TYPE_CHECKING:
    from penstock.engine.witness import Witness
    from penstock.expr.types import Schema

RowArgument = Annotated[str, typer.Argument(help="The row as a JSON object; - reads it from standard input.")]
Seconds = Annotated[float, typer.Option(min=0.1, help="Time for the search.")]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]


def why(
    flow: Annotated[str, typer.Argument(help="module:flow or path/to/file.py:flow")],
    sink: Annotated[str, typer.Argument(help="Name of the sink.")],
    row: RowArgument,
    source: Annotated[
        list[str] | None, typer.Option(metavar="NAME=URI", help="Source of the run, as in `penstock run`.")
    ] = None,
    tick_rows: Annotated[
        list[str] | None, typer.Option(metavar="[NAME=]N", help="Maximum rows per source and tick.")
    ] = None,
    end: Annotated[
        bool | None,
        typer.Option(
            "--end/--keep-open",
            help="Whether sources that are read have ended. Without it, both are tried.",
            show_default=False,
        ),
    ] = None,
    seconds: Seconds = 10.0,
    as_json: AsJson = False,
) -> None:
    """Find source rows from which a flow makes a row of a sink, by reading the sources again.

    Rows are chosen by keys, checked by running the flow on them in this process, and then left out one by one
    as long as the row still comes out. Exit code 1 if the row is not found.
    """
    from penstock.cli.load_flow import load_flow
    from penstock.cli.run import tick_row_limits
    from penstock.engine.endpoints import TICK_ROWS, check_names, with_tick_time
    from penstock.engine.witness import Limits, find_witness
    from penstock.io import parse_source

    loaded = load_flow(flow)
    graph = loaded.graph()
    sources = {name: parse_source(uri) for name, uri in parse_named_uris("source", source or ()).items()}
    check_names(graph, with_tick_time(graph, sources), {sink: ()})
    schema = graph.nodes[graph.sinks[sink]].schema
    found = find_witness(
        loaded,
        sources,
        sink,
        parse_row(row, schema),
        tick_rows=tick_row_limits(tick_rows or ()) or TICK_ROWS,
        end=end,
        limits=replace(Limits(), seconds=seconds),
    )
    report(found, as_json=as_json)


def report(found: Witness, *, as_json: bool) -> None:
    """Print the answer of a search. Exit code 1 if the row was not found."""
    from penstock.engine.witness_report import witness_json

    if as_json:
        typer.echo(json.dumps(witness_json(found), default=str))
    else:
        _print(found)
    if not found.found:
        raise typer.Exit(1)


def parse_row(text: str, schema: Schema) -> tuple[Any, ...]:
    """Parse a JSON object, or standard input for "-", to an internal row. Raises `BadInput`."""
    from penstock.io.files.json_values import object_decoder
    from penstock.io.files.text_values import Unfit

    text = sys.stdin.read() if text == "-" else text
    try:
        value: Any = json.loads(text)
        if schema.scalar and not isinstance(value, dict):
            value = {schema.names[0]: value}
        if not isinstance(value, dict) or set(value) != set(schema.names):
            raise Unfit("it needs exactly these columns")
        return tuple(object_decoder(schema.fields)(value))
    except (ValueError, Unfit) as error:
        raise BadInput(
            f"the row {text.strip()[:200]} does not fit the sink: {error}",
            why=f"Its columns are {schema}.",
            fix='give an object with these columns, in single quotes: \'{"shop": "a", "total": 3}\'',
        ) from error


def _print(found: Witness) -> None:
    from penstock.engine.witness_report import witness_json

    out = create_console()
    report = witness_json(found)
    for step in report["steps"]:
        out.print(step, highlight=False, soft_wrap=True, markup=False)
    for name, shown in report["sources"].items():
        if not found.found or not shown["rows"]:
            continue
        table = create_table(name, *shown["columns"], ">weight")
        for each in shown["rows"]:
            values = ("" if value is None else value for value in each["values"])
            needed = "needed" if found.minimal else "not ruled out"
            table.add_row(needed if each["needed"] else "", *values, str(each["weight"]))
        out.print(table)
