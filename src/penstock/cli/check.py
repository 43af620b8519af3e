"""`penstock check`: what is claimed of functions and lattices, tried on examples."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.exit_codes import FAILED


def check(
    flow: Annotated[str, typer.Argument(help="module:flow or path/to/file.py:flow")],
    examples: Annotated[int, typer.Option(min=1, help="How many examples are tried for a claim.")] = 1000,
) -> None:
    """Run the claims of a flow (commutative, idempotent, monotone, lattices) as property tests."""
    from penstock.cli.load import load_flow
    from penstock.testing.claims import try_claims

    claims = broken = 0
    for tried in try_claims(load_flow(flow), examples=examples):
        claims += 1
        typer.echo(str(tried))
        if tried.broken is not None:
            broken += 1
            typer.echo(f"\n{tried.broken}\n")
    typer.echo(
        f"{claims} claim{'s' * (claims > 1)}, {broken} broken" if claims else "the flow makes no claims"
    )
    if broken:
        raise typer.Exit(FAILED)
