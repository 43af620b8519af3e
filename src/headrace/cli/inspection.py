"""Inspection on the command line: `explain`, `draw`, `plan`, `infer`, `trace` and `why`.

No flow runs: a flow is explained or drawn, a query planned and its plan kept beside it, a row class
inferred from files, a recorded trace checked against the rules of pull-streams. `why` finds the source rows
that a row of a sink came from, by reading the sources again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from headrace.cli.exit_codes import CANNOT_TELL, FAILED
from headrace.cli.options import EngineChoice, FlowName, SourceUris, parse_named_uris
from headrace.cli.row_formats import create_console, create_table, printable
from headrace.errors import BadInput

if TYPE_CHECKING:
    from headrace.engine.source_rereading import SourceRead
    from headrace.engine.witness import Witness
    from headrace.expr.types import Schema
    from headrace.flow.flow import Flow
    from headrace.pipelines.row_provenance import AgreeingRows, Unexplained
    from headrace.pull.rules.checker import Profile, Violation
    from headrace.pull.rules.trace import Layer, Trace
    from headrace.view import Picture


def explain(
    flow: FlowName,
    code: Annotated[bool, typer.Option("--code", help="Also show the generated Python.")] = False,
    on: Annotated[
        EngineChoice,
        typer.Option(help="Explain the flow itself, or its stages, keys, exchanges and state on Spark."),
    ] = EngineChoice.HERE,
    shards: Annotated[int | None, typer.Option(min=1, help="Number of shards of the state (Spark).")] = None,
    sink: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=URI", help="Destination of a sink, to show its guarantee (Spark)."),
    ] = None,
    physical: Annotated[
        bool, typer.Option("--physical", help="Show Spark's physical plan of a tick; starts a session.")
    ] = False,
) -> None:
    """Explain a flow: facts, strata, guards, opaque functions, and operators computed on columns."""
    from headrace.cli.load_flow import load_flow

    loaded = load_flow(flow)
    if on is EngineChoice.SPARK:
        if code:
            raise BadInput("--code requires --on here", fix="remove --on spark or --code")
        typer.echo(_on_spark(loaded, shards, sink or (), physical=physical), nl=False)
        return
    for given, option in ((shards is not None, "--shards"), (sink, "--sink"), (physical, "--physical")):
        if given:
            raise BadInput(f"{option} requires --on spark", fix=f"add --on spark, or remove {option}")
    typer.echo(_here(loaded, code=code), nl=False)


def _here(flow: Flow, *, code: bool) -> str:
    from headrace.analysis import explain as explanation
    from headrace.analysis.column_lineage import live_graph
    from headrace.engine.columnar.columnar_option import explain_large_ticks

    graph = flow.graph()
    compiled = live_graph(graph, at_sources=False)
    source = ""
    if code:
        from headrace.engine.program import compile_program

        source = compile_program(compiled).source_code
    return explanation(graph, code=source, large_ticks=list(explain_large_ticks(compiled)))


def _on_spark(flow: Flow, shards: int | None, sinks: list[str] | tuple[()], *, physical: bool) -> str:
    from headrace.cli.options import parse_named_uris
    from headrace.io import parse_sink
    from headrace.spark.session import need_pyspark, session

    need_pyspark()
    from headrace.spark.explanation import SHARDS, explain_on_spark

    count = SHARDS if shards is None else shards
    graph = flow.graph()
    targets = {name: parse_sink(uri) for name, uri in parse_named_uris("sink", sinks).items()}
    for name in targets.keys() - graph.sinks.keys():
        raise BadInput(
            f"the flow has no sink {name!r}", fix=f"its sinks: {', '.join(graph.sinks)}", sink=name
        )
    text = explain_on_spark(graph, shards=count, sinks=targets)
    if physical:
        from headrace.spark.explanation import physical_plan

        spark = session()
        try:
            plan = physical_plan(flow, spark, shards=count, sinks=targets)
        finally:
            spark.stop()
        text += f"\nPhysical plan of a tick, stage by stage\n\n{plan}"
    return text


class DrawingFormat(Enum):
    MERMAID = "mermaid"
    DOT = "dot"
    SVG = "svg"


def drawing_of(picture: Picture, format: DrawingFormat) -> str:
    from headrace.view import Drawing

    text: str = getattr(Drawing(picture), format.value)
    return text


def draw(
    flow: FlowName,
    format: Annotated[DrawingFormat, typer.Option(help="Language of the drawing.")] = DrawingFormat.MERMAID,
    out: Annotated[str | None, typer.Option(help="File to write. Default: standard output.")] = None,
) -> None:
    """Draw a flow with its strata: for GitHub (mermaid), for Graphviz (dot), or as a picture (svg)."""
    from headrace.cli.load_flow import load_flow
    from headrace.file_system import local_path
    from headrace.view import picture_of

    text = drawing_of(picture_of(load_flow(flow)), format)
    if out is None:
        typer.echo(text, nl=False)
    else:
        Path(local_path(out, "--out")).write_text(text, encoding="utf-8")


def plan(
    query: Annotated[Path, typer.Argument(help="A .sql file, with `-- source NAME: columns` in it.")],
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; fail unless the stored plan is up to date.")
    ] = False,
) -> None:
    """Plan a query by Spark, and keep its plan in a .plan file beside it.

    From then on the query runs without Spark, as long as its text stays the same.
    """
    from headrace.cli.exit_codes import FAILED
    from headrace.queries.query_file import QueryFile, plan_is_kept, save_flow

    read = QueryFile.read(query)
    if check:
        kept = plan_is_kept(read)
        typer.echo(f"{read.kept_plan} is {'up to date' if kept else 'missing, or of another text'}")
        raise typer.Exit(0 if kept else FAILED)
    save_flow(read.plan(), read.kept_plan, query=read.text)
    typer.echo(f"kept as {read.kept_plan}")


def infer(
    path: Annotated[
        str,
        typer.Argument(metavar="FILE", help="CSV, JSON or Parquet: a file, a folder of files or a pattern."),
    ],
    rows: Annotated[int, typer.Option(min=1, help="Maximum number of rows to read.")] = 100_000,
) -> None:
    """Print a row class for a file or a folder, ready to paste, and the source to read it with.

    Columns are nullable where a null occurs. Separator, header and encoding of CSV are found out.
    """
    from headrace.io.inference import infer as infer_rows

    typer.echo(str(infer_rows(path, rows)), nl=False)


def trace(
    file: Annotated[
        Path, typer.Argument(help="Trace file: events like D:ask1 U:ans1=value(7), as text or as JSON.")
    ],
    profile: Annotated[
        str,
        typer.Option(
            help="Rules: spec (the specification), docs (rules in use), strict (an existing checker)."
        ),
    ] = "spec",
    layer: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=3,
            help="Events to check: 1 asks, 2 also aborts, 3 also errors. Default: from file, or 3.",
        ),
    ] = None,
    one_to_one: Annotated[
        bool, typer.Option(help="Whether a transformer must answer one value per value.")
    ] = True,
) -> None:
    """Check a recorded pull-stream trace, printing its events and broken rules; exit code 1 if any."""
    import dataclasses

    from headrace.pull.rules.checker import check

    found = _read(file)
    if layer is not None:
        found = dataclasses.replace(found, layer=cast("Layer", layer))
    violations = check(found, cast("Profile", profile), one_to_one=one_to_one)
    texts = found.texts()
    width = len(str(len(texts)))
    for number, text in enumerate(texts, 1):
        typer.echo(f"{number:>{width}}  {text}")
    for violation in violations:
        typer.echo(_violation_lines(violation, texts, width))
    broken = len({violation.rule for violation in violations})
    rules = "1 rule" if broken == 1 else f"{broken or 'no'} rules"
    if not texts and not broken:
        typer.echo(f"{file} has no events")
    else:
        typer.echo(f"\n{rules} broken" if broken else "\nno rule broken")
    if broken:
        raise typer.Exit(FAILED)


def _violation_lines(violation: Violation, texts: tuple[str, ...], width: int) -> str:
    """Format a broken rule with its sentence and the events at fault."""
    lines = ["", f"{violation.rule}  {violation.sentence}"]
    if violation.at is None:
        lines.append(f"    {violation.text}")
    else:
        lines.append(f"    {violation.at + 1:>{width}}  {texts[violation.at]}   <- {violation.text}")
    if violation.other_at is not None:
        lines.append(f"    {violation.other_at + 1:>{width}}  {texts[violation.other_at]}")
    return "\n".join(lines)


def _read(file: Path) -> Trace:
    from headrace.pull.errors import BadTrace
    from headrace.pull.rules.trace import read_trace

    try:
        text = file.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BadTrace(
            f"{file} cannot be read: {reason}", fix="name a file with a trace", file=str(file)
        ) from None
    try:
        return read_trace(text)
    except BadTrace as error:
        facts = {**error.facts, "file": str(file)}
        raise BadTrace(f"{file}: {error.what}", why=error.why, fix=error.fix, **facts) from None


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
    from headrace.engine.source_rereading import ReplayLimits
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
        limits=ReplayLimits(rows, seconds=seconds),
    )
    report(found, as_json=as_json)


def report(found: Witness, *, as_json: bool) -> None:
    """Print the result of a search. Exit code 1 if the row is not in the sink, 3 if inconclusive."""
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
    from headrace.io.files.text_values import UnfitValue

    text = sys.stdin.read() if text == "-" else text
    try:
        value: Any = json.loads(text)
        if schema.scalar and not isinstance(value, dict):
            value = {schema.names[0]: value}
        if not isinstance(value, dict) or set(value) != set(schema.names):
            raise UnfitValue("it needs exactly these columns")
        return tuple(object_decoder(schema.fields)(value))
    except (ValueError, UnfitValue) as error:
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


def parse_texts(text: str) -> dict[str, str | None]:
    """Parse columns of a row, a JSON object or standard input for "-", to texts. Raises `BadInput`."""
    text = sys.stdin.read() if text == "-" else text
    try:
        # Numbers stay as they are written: a float would round them.
        found: Any = json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise BadInput(
            f"the row {text.strip()[:200]} is not a JSON object",
            fix='give columns in single quotes: \'{"city": "bath", "day": "2026-01-31"}\'',
        )
    known = {True: "true", False: "false"}
    columns = cast("dict[str, Any]", found)
    return {
        name: value
        if value is None or isinstance(value, str)
        else known.get(value, "")
        if isinstance(value, bool)
        else json.dumps(value, ensure_ascii=False)
        for name, value in columns.items()
    }


def report_unexplained(found: Unexplained, *, as_json: bool) -> None:
    """Print what is known of a row that no flow explains. Exits with the code of what cannot be told."""
    if as_json:
        typer.echo(json.dumps(unexplained_json(found)))
        raise typer.Exit(CANNOT_TELL)
    out = create_console()
    typer.echo(f"Which rows it was made from is not known: {found.why}.")
    typer.echo(f"\nThe query, at {found.where}:\n\n{found.query}\n")
    for name, shown in unexplained_json(found)["inputs"].items():
        if shown["why_not"]:
            typer.echo(f"{name}: {shown['why_not']}")
            continue
        typer.echo(f"{name}: {shown['count']:,} row{_s(shown['count'])} with {shown['restriction']}")
        table = create_table(*shown["columns"])
        for values in shown["rows"][:_SHOWN_ROWS]:
            table.add_row(*("" if value is None else printable(value) for value in values))
        out.print(table)
    raise typer.Exit(CANNOT_TELL)


def unexplained_json(found: Unexplained) -> dict[str, Any]:
    """Encode what is known of a row that no flow explains as JSON."""
    return {
        "found": False,
        "unexplained": found.why,
        "where": found.where,
        "query": found.query,
        "inputs": {name: _agreeing_json(each) for name, each in found.inputs.items()},
    }


def _agreeing_json(found: AgreeingRows) -> dict[str, Any]:
    from headrace.pipelines.stored_rows import is_number, page_of

    equal = " and ".join(f"{name} = {value!r}" for name, value in found.columns.items())
    said: dict[str, Any] = {"why_not": found.why_not, "restriction": equal, "count": found.count}
    if found.rows is None:
        return said
    numbers = [is_number(each.type) for each in found.rows.schema]
    rows = [list(row.values) for row in page_of(found.rows, "", 0).rows]
    return {**said, "columns": found.rows.column_names, "numbers": numbers, "rows": rows}


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
            values = ("" if value is None else printable(str(value)) for value in each["values"])
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
    """Describe the steps of a search, one sentence each."""
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
    """Return a hint on reading more rows, if limits left rows unread that could change the answer."""
    cut = not found.conclusive and not all(read.all_read for read in found.sources.values())
    return ["A higher --rows or --seconds of `headrace why` reads more."] if cut else []


def _these(count: int) -> str:
    return "This row" if count == 1 else f"These {count:,} rows"


def _s(count: int) -> str:
    return "" if count == 1 else "s"
