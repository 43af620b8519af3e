"""`penstock skip`: leave out a file that cannot be read."""

from __future__ import annotations

from typing import Annotated

import typer


def skip(
    folder: Annotated[str, typer.Argument(help="The folder of a checkpoint.")],
    file: Annotated[
        str | None, typer.Argument(help="A file of a source; without one, say which are skipped.")
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Have it read after all.")] = False,
) -> None:
    """Have the next runs leave out a file that cannot be read. Nobody may run the flow.

    Rows that committed ticks have read of it stay. A file that is corrected, or removed, needs no skipping.
    """
    from penstock.state import skipped

    if file is None:
        files = sorted(skipped.skipped_files(skipped.checkpoint_folder(folder)))
        typer.echo("\n".join(files) if files else "no file is skipped")
    elif undo:
        typer.echo(f"{skipped.unskip(folder, file)}: read again from the next run on")
    else:
        typer.echo(f"{skipped.skip(folder, file)}: skipped from the next run on")
