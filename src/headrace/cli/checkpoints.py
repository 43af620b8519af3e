"""`headrace reshard`, `rewind`, `skip` and `compact`: maintenance of checkpoints and changelogs."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.options import FlowName


def reshard(
    folder: Annotated[str, typer.Argument(help="Folder of a Spark checkpoint.")],
    shards: Annotated[int, typer.Argument(min=1, help="New number of shards.")],
    flow: FlowName,
) -> None:
    """Redistribute the state of a checkpoint over another number of shards.

    The flow must not be running. If interrupted, the state is unchanged.
    """
    from headrace.cli.load_flow import load_flow
    from headrace.spark.resharding import reshard as divide

    done = divide(folder, shards, load_flow(flow))
    typer.echo(
        f"tick {done.tick}: {done.keys:,} keys of state on {done.shards} shards, were on {done.shards_before}"
    )


def rewind(
    folder: Annotated[str, typer.Argument(help="The folder of a checkpoint.")],
    tick: Annotated[
        int, typer.Argument(help="Tick to return to; `headrace state` shows the available ones.")
    ],
) -> None:
    """Discard all ticks after the given one, so that the next run reads their input again.

    The flow must not be running. Sinks keep their output; empty those that hold later ticks, or leave them
    out.
    """
    from headrace.state.rewind import rewind as go_back

    done = go_back(folder, tick)
    if done.forgotten:
        typer.echo(f"back at tick {done.tick}, {done.forgotten} forgotten")
    else:
        typer.echo(f"the last tick is {done.tick} already: nothing to forget")
    if done.forgotten and done.sinks:
        typer.echo(f"these sinks may hold later ticks: {', '.join(done.sinks)}")
    if done.gone:
        typer.echo(
            f"these files were read and no longer exist, so they cannot be read again: {', '.join(done.gone)}"
        )


def skip(
    folder: Annotated[str, typer.Argument(help="The folder of a checkpoint.")],
    file: Annotated[
        str | None, typer.Argument(help="File of a source. Default: list the skipped files.")
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Stop skipping the file.")] = False,
) -> None:
    """Skip an unreadable file in later runs.

    The flow must not be running. Rows that committed ticks have read from the file remain. A file that was
    corrected or removed need not be skipped.
    """
    from headrace.state import skipped_files

    if file is None:
        files = sorted(skipped_files.skipped_files(skipped_files.checkpoint_folder(folder)))
        typer.echo("\n".join(files) if files else "no file is skipped")
    elif undo:
        typer.echo(f"{skipped_files.unskip(folder, file)}: read again from the next run")
    else:
        typer.echo(f"{skipped_files.skip(folder, file)}: skipped from the next run")


def compact(
    folder: Annotated[str, typer.Argument(help="Folder of a changelog.")],
    keep: Annotated[
        int, typer.Option("--keep", min=1, help="Number of the latest ticks that stay as they are.")
    ] = 100,
) -> None:
    """Merge the folders of a changelog's old ticks into a few, with the rows that they add up to.

    The flow that writes it must not be running; readers may go on. Ticks of the last minute stay as they are.
    If interrupted, the changelog is unchanged.
    """
    from headrace.io.files.compaction import compact as merge

    done = merge(folder, keep)
    if done.merged:
        typer.echo(f"{done.merged:,} folders merged into {done.into:,}, {len(done.unmerged):,} ticks kept")
    else:
        typer.echo(f"nothing to merge, {len(done.unmerged):,} ticks kept")
