"""`penstock rewind`: go back to an earlier tick of a checkpoint."""

from __future__ import annotations

from typing import Annotated

import typer


def rewind(
    folder: Annotated[str, typer.Argument(help="The folder of a checkpoint.")],
    tick: Annotated[
        int, typer.Argument(help="The tick to go back to; `penstock state` tells which there are.")
    ],
) -> None:
    """Forget the ticks after one: the next run reads again what came after it. Nobody may run the flow.

    Sinks keep what they were given; those that hold later ticks must be emptied of them, or left out.
    """
    from penstock.state.rewind import rewind as go_back

    done = go_back(folder, tick)
    typer.echo(f"back at tick {done.tick}, {done.forgotten} forgotten")
    if done.forgotten and done.sinks:
        typer.echo(f"these sinks may hold later ticks: {', '.join(done.sinks)}")
    if done.gone:
        typer.echo(f"these files were read and are gone, so they are not read again: {', '.join(done.gone)}")
