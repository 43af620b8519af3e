"""`penstock conform`: run a file of conformance cases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.exit_codes import FAILED

if TYPE_CHECKING:
    from penstock.testing.conformance import Outcome


def conform(
    kind: Annotated[
        str, typer.Argument(help="What the cases are about: ticks, errors, propagation, pull or compute.")
    ],
    file: Annotated[Path, typer.Argument(help="A JSON array of cases.")],
) -> None:
    """Run the cases of a file: a line per case, a count, and exit code 1 if one of them fails.

    Cases that describe something in words are not run; they are told and counted apart.

    Cases name functions by the text of a Python lambda, which is looked up in a table and never run. Their
    time and memory are not bounded: run files that you trust.
    """
    from penstock.testing.conformance import run_file

    outcomes = run_file(kind, file, on_outcome=_tell)
    ok = sum(outcome.ok for outcome in outcomes)
    failed = sum(outcome.failed for outcome in outcomes)
    in_words = len(outcomes) - ok - failed
    apart = f", {in_words} in words" if in_words else ""
    typer.echo(f"{len(outcomes)} cases, {ok} ok, {failed} failed{apart}")
    if failed:
        raise typer.Exit(FAILED)


def _tell(outcome: Outcome) -> None:
    if outcome.in_words:
        typer.echo(f"words {outcome.name}")
    elif outcome.ok:
        typer.echo(f"ok    {outcome.name}")
    else:
        typer.echo(f"FAIL  {outcome.name}: {outcome.problem}")
