"""`penstock explain`: what streams, what waits, and why."""

from __future__ import annotations

from typing import Annotated

import typer


def explain(
    flow: Annotated[str, typer.Argument(help="module:flow or path/to/file.py:flow")],
    code: Annotated[bool, typer.Option("--code", help="Show the generated Python too.")] = False,
) -> None:
    """Say what is known of a flow: facts, strata, guards, opaque functions."""
    from penstock.analysis import explain as explanation
    from penstock.cli.load import load_flow

    graph = load_flow(flow).graph()
    source = ""
    if code:
        from penstock.engine.program import compile_program

        source = compile_program(graph).source_code
    typer.echo(explanation(graph, code=source), nl=False)
