"""`headrace why`: find the source rows that a row of a sink came from."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.exit_codes import CANNOT_TELL, FAILED
from headrace.cli.options import FlowName, SourceUris, parse_named_uris
from headrace.cli.text_tables import create_console, create_table
from headrace.errors import BadInput

if TYPE_CHECKING:
    from headrace.engine.source_replay import SourceRead
    from headrace.engine.witness import Witness
    from headrace.expr.types import Schema

_SHOWN_ROWS = 200
"""Rows of a source that are listed."""

RowArgument = Annotated[str, typer.Argument(help="The row as a JSON object; - reads it from standard input.")]
Seconds = Annotated[float, typer.Option(min=0.1, help="Time for the search.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def why(
    flow: FlowName,
    sink: Annotated[str, typer.Argument(help="Name of the sink.")],
    row: RowArgument,
    source: SourceUris = None,
    tick_rows: Annotated[
        list[str] | None, typer.Option(metavar="[NAME=]N", help="Maximum rows per source and tick.")
    ] = None,
    end: Annotated[
        bool | None,
        typer.Option(
            "--end/--keep-open",
            help="Treat fully read sources as ended. Default: both are tried.",
            show_default=False,
        ),
    ] = None,
    rows: Annotated[
        int, typer.Option(min=1, help="Limit on the rows of a source that are kept to run the flow on.")
    ] = 200_000,
    seconds: Seconds = 10.0,
    as_json: AsJson = False,
) -> None:
    """Find source rows from which a flow makes a row of a sink, by reading the sources again.

    Rows are chosen by keys, checked by running the flow on them in this process, and then left out one by one
    as long as the row still comes out. Exit code 1 if the row is not in the sink, 3 if that cannot be told
    because rows were not read.
    """
    from headrace.cli.load_flow import load_flow
    from headrace.cli.run import tick_row_limits
    from headrace.engine.endpoints import TICK_ROWS, check_names, with_tick_time
    from headrace.engine.source_replay import Limits
    from headrace.engine.witness import find_witness
    from headrace.io import parse_source

    loaded = load_flow(flow)
    graph = loaded.graph()
    sources = {name: parse_source(uri) for name, uri in parse_named_uris("source", source or ()).items()}
    check_names(graph, with_tick_time(graph, sources), {sink: ()}, command=True)
    schema = graph.nodes[graph.sinks[sink]].schema
    found = find_witness(
        loaded,
        sources,
        sink,
        parse_row(row, schema),
        tick_rows=tick_row_limits(tick_rows or ()) or TICK_ROWS,
        end=end,
        limits=Limits(rows, seconds=seconds),
    )
    report(found, as_json=as_json)


def report(found: Witness, *, as_json: bool) -> None:
    """Print the answer of a search. Exit code 1 if the row is not in the sink, 3 if that cannot be told."""
    if as_json:
        typer.echo(json.dumps(witness_json(found), default=str))
    else:
        _print(found)
    if not found.conclusive:
        raise typer.Exit(CANNOT_TELL)
    if not found.found:
        raise typer.Exit(FAILED)


def parse_row(text: str, schema: Schema) -> tuple[Any, ...]:
    """Parse a JSON object, or standard input for "-", to an internal row. Raises `BadInput`."""
    from headrace.io.files.json_values import object_decoder
    from headrace.io.files.text_values import Unfit

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
    except RecursionError:
        raise BadInput(
            f"the row {text.strip()[:200]} is nested too deeply to be read",
            why=f"Its columns are {schema}.",
            fix="look for the row by its keys in the sources",
        ) from None


def _print(found: Witness) -> None:
    out = create_console()
    report = witness_json(found)
    if not found.conclusive:
        out.print("Can't tell whether the row is in the sink: not all rows were read.", soft_wrap=True)
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


def witness_json(found: Witness) -> dict[str, Any]:
    """Encode a witness as JSON, with the steps of the search as sentences."""
    return {
        "found": found.found,
        "problem": found.problem,
        "steps": list(_steps(found)),
        "minimal": found.minimal,
        "conclusive": found.conclusive,
        "sources": {name: _source_json(name, read, found) for name, read in found.sources.items()},
    }


def _source_json(name: str, read: SourceRead, found: Witness) -> dict[str, Any]:
    from headrace.engine.live_rows import number_columns, shown_json
    from headrace.io.files.json_values import object_encoder

    encode = object_encoder(read.schema.fields)
    width = len(read.schema.fields)
    needed = {id(item) for item in found.needed}
    possible = sorted(
        (item for item in found.possible if item.source == name), key=lambda item: id(item) not in needed
    )
    rows = [
        {
            "values": [shown_json(value) for value in encode(item.row[:width]).values()],
            "weight": 1 if read.append else item.row[-1],
            "needed": id(item) in needed,
        }
        for item in possible[:_SHOWN_ROWS]
    ]
    return {
        "why_not": read.why_not,
        "restriction": read.restriction,
        "columns": list(read.schema.names),
        "numbers": number_columns(read.schema),
        "rows": rows,
        "possible": len(possible),
        "needed": sum(id(item) in needed for item in possible),
    }


def _steps(found: Witness) -> Sequence[str]:
    """Describe the steps of a search, a sentence each."""
    said = [_step(name, read, found) for name, read in found.sources.items()]
    if found.by_tick:
        said.append(
            "The sink depends on the cut into ticks. The search cuts as one run over all of the input does; a"
            " run that was resumed or waited for input may have cut otherwise."
        )
    count = len(found.possible)
    if not found.found:
        return [*said, found.problem, *_way_out(found)]
    said.append(f"{_these(count)} produce{'s' if count == 1 else ''} it.")
    left = len(found.needed)
    if left == count:
        if count > 1:
            said.append("Every one of them is needed." if found.minimal else "No smaller set was found.")
    elif left == 1:
        said.append("One of them is enough.")
    else:
        needed = ", and every one of these is needed" if found.minimal else ""
        said.append(f"{left:,} of them are enough{needed}.")
    if not found.minimal:
        said.append("There were too many to try one by one, so some of them may be unrelated.")
    if not found.conclusive:
        said.append("Rows that were not read may replace this row.")
    return [*said, *_way_out(found)]


def _step(name: str, read: SourceRead, found: Witness) -> str:
    """Describe how a source was read."""
    if read.why_not:
        return f"{name}: not read: {read.why_not}."
    kept = sum(item.source == name for item in found.possible)
    limit = "" if read.all_read else ", and stopped at the limit"
    if read.restriction:
        by = f"; {kept:,} {'has' if kept == 1 else 'have'} {read.restriction}"
    elif not read.reaches:
        by = "; only its ticks matter"
    else:
        by = "" if found.by_tick else "; no column of the row restricts them"
    return f"{name}: read {read.rows:,} row{_s(read.rows)} again{limit}{by}."


def _way_out(found: Witness) -> Sequence[str]:
    """Say how more rows are read, if limits left some unread that could change the answer."""
    cut = not found.conclusive and not all(read.all_read for read in found.sources.values())
    return ["A higher --rows or --seconds of `headrace why` reads more."] if cut else []


def _these(count: int) -> str:
    return "This row" if count == 1 else f"These {count:,} rows"


def _s(count: int) -> str:
    return "" if count == 1 else "s"
