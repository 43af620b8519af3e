"""`headrace plan`: keep the plan of a query beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def plan(
    query: Annotated[Path, typer.Argument(help="A .sql file, with `-- source NAME: columns` in it.")],
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; fail unless the stored plan is up to date.")
    ] = False,
) -> None:
    """Plan a query by Spark, and keep its plan in a .plan file beside it.

    From then on the query runs without Spark, as long as its text stays the same.
    """
    from headrace.cli.exit_codes import FAILED
    from headrace.queries.query_file import QueryFile, plan_is_kept, save_flow

    read = QueryFile.read(query)
    if check:
        kept = plan_is_kept(read)
        typer.echo(f"{read.kept_plan} is {'up to date' if kept else 'missing, or of another text'}")
        raise typer.Exit(0 if kept else FAILED)
    save_flow(read.plan(), read.kept_plan, query=read.text)
    typer.echo(f"kept as {read.kept_plan}")
