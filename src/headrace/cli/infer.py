"""`headrace infer`: print a row class for files."""

from __future__ import annotations

from typing import Annotated

import typer


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
    from headrace.io.inference.inference import infer as infer_rows

    typer.echo(str(infer_rows(path, rows)), nl=False)
