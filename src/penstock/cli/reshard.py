"""`penstock reshard`: change in how many parts the state of a checkpoint is divided."""

from __future__ import annotations

from typing import Annotated

import typer


def reshard(
    folder: Annotated[str, typer.Argument(help="The folder of a checkpoint of Spark.")],
    shards: Annotated[int, typer.Argument(min=1, help="The new number of shards.")],
    flow: Annotated[str, typer.Argument(help="Its flow: module:flow or path/to/file.py:flow")],
) -> None:
    """Divide the state of a checkpoint anew, while nobody runs its flow.

    Broken off, it leaves the state as it was.
    """
    from penstock.cli.load import load_flow
    from penstock.spark.checkpoints.reshard import reshard as divide

    done = divide(folder, shards, load_flow(flow))
    typer.echo(
        f"tick {done.tick}: {done.keys:,} keys of state on {done.shards} shards, were on {done.shards_before}"
    )
