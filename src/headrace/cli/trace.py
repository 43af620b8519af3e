"""`headrace trace`: check a recorded trace against the rules of pull-streams."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from headrace.cli.exit_codes import FAILED
from headrace.pull.errors import BadTrace

if TYPE_CHECKING:
    from headrace.pull.rules.checker import Profile, Violation
    from headrace.pull.rules.trace import Layer, Trace


def trace(
    file: Annotated[
        Path, typer.Argument(help="Trace file: events like D:ask1 U:ans1=value(7), as text or as JSON.")
    ],
    profile: Annotated[
        str,
        typer.Option(
            help="Rules: spec (the specification), docs (rules in use), strict (an existing checker)."
        ),
    ] = "spec",
    layer: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=3,
            help="Events to check: 1 asks, 2 also aborts, 3 also errors. Default: from file, or 3.",
        ),
    ] = None,
    one_to_one: Annotated[
        bool, typer.Option(help="Whether a transformer must answer one value per value.")
    ] = True,
) -> None:
    """Check a recorded pull-stream trace, printing its events and broken rules; exit code 1 if any."""
    import dataclasses

    from headrace.pull.rules.checker import check

    found = _read(file)
    if layer is not None:
        found = dataclasses.replace(found, layer=cast("Layer", layer))
    violations = check(found, cast("Profile", profile), one_to_one=one_to_one)
    texts = found.texts()
    width = len(str(len(texts)))
    for number, text in enumerate(texts, 1):
        typer.echo(f"{number:>{width}}  {text}")
    for violation in violations:
        typer.echo(_violation_lines(violation, texts, width))
    broken = len({violation.rule for violation in violations})
    rules = "1 rule" if broken == 1 else f"{broken or 'no'} rules"
    if not texts and not broken:
        typer.echo(f"{file} has no events")
    else:
        typer.echo(f"\n{rules} broken" if broken else "\nno rule broken")
    if broken:
        raise typer.Exit(FAILED)


def _violation_lines(violation: Violation, texts: tuple[str, ...], width: int) -> str:
    """Format a broken rule with its sentence and the events at fault."""
    lines = ["", f"{violation.rule}  {violation.sentence}"]
    if violation.at is None:
        lines.append(f"    {violation.text}")
    else:
        lines.append(f"    {violation.at + 1:>{width}}  {texts[violation.at]}   <- {violation.text}")
    if violation.other_at is not None:
        lines.append(f"    {violation.other_at + 1:>{width}}  {texts[violation.other_at]}")
    return "\n".join(lines)


def _read(file: Path) -> Trace:
    from headrace.pull.rules.trace import read_trace

    try:
        text = file.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BadTrace(
            f"{file} cannot be read: {reason}", fix="name a file with a trace", file=str(file)
        ) from None
    try:
        return read_trace(text)
    except BadTrace as error:
        facts = {**error.facts, "file": str(file)}
        raise BadTrace(f"{file}: {error.what}", why=error.why, fix=error.fix, **facts) from None
