"""`headrace backup`: save and restore what a controller needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

backup = typer.Typer(
    name="backup", no_args_is_help=True, help="Save and restore a controller with its collections in SQLite."
)
State = Annotated[Path, typer.Argument(metavar="STATE", help="The --state of the controller.")]
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of the backup.")]
RowsOption = Annotated[
    Path | None,
    typer.Option("--collections", metavar="PATH", help="SQLite file of the rows, if it is not in STATE."),
]


@backup.command()
def save(state: State, folder: Folder, collections: RowsOption = None) -> None:
    """Copy the files of a controller, which may be running, into a new folder, and check the copies.

    Both are of one moment. Rows in another store than SQLite are saved by the means of that store, while
    nobody creates or drops a view.
    """
    from headrace.compute.serve.backup import ControllerFiles, save

    copies = save(ControllerFiles.of(state, collections), folder)
    for file in (copies.state, copies.collections):
        if file is not None:
            typer.echo(f"{file}   {file.stat().st_size:,} bytes")
    if copies.collections is None:
        typer.echo("The rows are not in SQLite here: save their store, too.", err=True)


@backup.command()
def restore(
    folder: Folder,
    state: State,
    collections: RowsOption = None,
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite the files that are there.")] = False,
    state_only: Annotated[
        bool, typer.Option("--state-only", help="Restore a backup without rows, which are in another store.")
    ] = False,
) -> None:
    """Put a backup in its place, while the controller and all replicas are stopped.

    Subscribers begin again with a snapshot: what was written after the backup is gone.
    """
    from headrace.compute.serve.backup import COLLECTIONS, STATE, ControllerFiles, restore

    copies = ControllerFiles.of(folder)
    place = ControllerFiles(state / STATE, collections or state / COLLECTIONS)
    restore(copies, place, replace=replace, state_only=state_only)
    typer.echo(f"restored {place.state}" + (f" and {place.collections}" if copies.collections else ""))
