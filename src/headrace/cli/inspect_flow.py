"""`headrace explain` and `draw`: inspect a flow without running it."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options import Engine, FlowName
from headrace.errors import BadInput

if TYPE_CHECKING:
    from headrace.flow.flow import Flow
    from headrace.view import Picture


def explain(
    flow: FlowName,
    code: Annotated[bool, typer.Option("--code", help="Also show the generated Python.")] = False,
    on: Annotated[
        Engine,
        typer.Option(help="Explain the flow itself, or its stages, keys, exchanges and state on Spark."),
    ] = Engine.HERE,
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
    if on is Engine.SPARK:
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
    from headrace.analysis.column_liveness import live_graph
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


class Format(Enum):
    MERMAID = "mermaid"
    DOT = "dot"
    SVG = "svg"


def drawing_of(picture: Picture, format: Format) -> str:
    from headrace.view import Drawing

    text: str = getattr(Drawing(picture), format.value)
    return text


def draw(
    flow: FlowName,
    format: Annotated[Format, typer.Option(help="Language of the drawing.")] = Format.MERMAID,
    out: Annotated[str | None, typer.Option(help="File to write. Default: standard output.")] = None,
) -> None:
    """Draw a flow with its strata: for GitHub (mermaid), for Graphviz (dot), or as a picture (svg)."""
    from headrace.cli.load_flow import load_flow
    from headrace.path_or_url import local_path
    from headrace.view import picture_of

    text = drawing_of(picture_of(load_flow(flow)), format)
    if out is None:
        typer.echo(text, nl=False)
    else:
        Path(local_path(out, "--out")).write_text(text, encoding="utf-8")
