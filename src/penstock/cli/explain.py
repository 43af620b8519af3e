"""`penstock explain`: what streams, what waits, and why; and how it runs on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.engine_option import Where
from penstock.errors import BadInput

if TYPE_CHECKING:
    from penstock.flow.flow import Flow


def explain(
    flow: Annotated[str, typer.Argument(help="module:flow or path/to/file.py:flow")],
    code: Annotated[bool, typer.Option("--code", help="Show the generated Python too.")] = False,
    on: Annotated[
        Where, typer.Option(help="The flow itself, or its stages, keys, exchanges and state on Spark.")
    ] = Where.HERE,
    shards: Annotated[int | None, typer.Option(min=1, help="Parts of the state (Spark).")] = None,
    sink: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=URI", help="Where a sink goes, for what it promises (Spark)."),
    ] = None,
    physical: Annotated[
        bool, typer.Option("--physical", help="Show Spark's physical plan of a tick; it starts a session.")
    ] = False,
) -> None:
    """Say what is known of a flow: facts, strata, guards, opaque functions, what runs in columns."""
    from penstock.cli.load import load_flow

    loaded = load_flow(flow)
    if on is Where.SPARK:
        if code:
            raise BadInput("--code is for --on here", fix="leave --on spark out, or --code")
        typer.echo(_on_spark(loaded, shards, sink or (), physical=physical), nl=False)
        return
    for given, option in ((shards is not None, "--shards"), (sink, "--sink"), (physical, "--physical")):
        if given:
            raise BadInput(f"{option} is for --on spark", fix=f"add --on spark, or leave {option} out")
    typer.echo(_here(loaded, code=code), nl=False)


def _here(flow: Flow, *, code: bool) -> str:
    from penstock.analysis import explain as explanation
    from penstock.analysis.liveness import live_graph
    from penstock.engine.columnar.choice import explain_large_ticks

    graph = flow.graph()
    compiled = live_graph(graph)
    source = ""
    if code:
        from penstock.engine.program import compile_program

        source = compile_program(compiled).source_code
    return explanation(graph, code=source, large_ticks=list(explain_large_ticks(compiled)))


def _on_spark(flow: Flow, shards: int | None, sinks: list[str] | tuple[()], *, physical: bool) -> str:
    from penstock.cli.run import named
    from penstock.io import parse_sink
    from penstock.spark.session import need_pyspark, session

    need_pyspark()
    from penstock.spark.explanation import SHARDS, explain_on_spark

    count = SHARDS if shards is None else shards
    graph = flow.graph()
    targets = {name: parse_sink(uri) for name, uri in named("sink", sinks).items()}
    for name in targets.keys() - graph.sinks.keys():
        raise BadInput(
            f"the flow has no sink {name!r}", fix=f"its sinks: {', '.join(graph.sinks)}", sink=name
        )
    text = explain_on_spark(graph, shards=count, sinks=targets)
    if physical:
        from penstock.spark.physical import physical_plan

        spark = session()
        try:
            plan = physical_plan(flow, spark, shards=count, sinks=targets)
        finally:
            spark.stop()
        text += f"\nPhysical plan of a tick, stage by stage\n\n{plan}"
    return text
