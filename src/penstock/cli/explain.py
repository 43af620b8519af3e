"""`penstock explain`: what streams, what waits, and why."""

from __future__ import annotations

from typing import Annotated

import typer


def explain(
    flow: Annotated[str, typer.Argument(help="module:flow or path/to/file.py:flow")],
    code: Annotated[bool, typer.Option("--code", help="Show the generated Python too.")] = False,
) -> None:
    """Say what is known of a flow: facts, strata, guards, opaque functions, what runs in columns."""
    from penstock.analysis import explain as explanation
    from penstock.cli.load import load_flow
    from penstock.engine.columnar.told import told_of_large_ticks

    graph = load_flow(flow).graph()
    source = ""
    if code:
        from penstock.engine.program import compile_program

        source = compile_program(graph).source_code
    large_ticks = list(told_of_large_ticks(graph))
    typer.echo(explanation(graph, code=source, large_ticks=large_ticks), nl=False)
