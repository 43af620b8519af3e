"""`penstock draw`: a flow as text for a tool that draws."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class Format(Enum):
    MERMAID = "mermaid"
    DOT = "dot"


def draw(
    flow: Annotated[str, typer.Argument(help="module:flow or path/to/file.py:flow")],
    format: Annotated[Format, typer.Option(help="What to draw with.")] = Format.MERMAID,
    out: Annotated[str | None, typer.Option(help="A file to write; else standard output.")] = None,
) -> None:
    """Draw a flow with its strata: for GitHub and notebooks (mermaid), or Graphviz (dot)."""
    from penstock.cli.load import load_flow
    from penstock.paths import local_path
    from penstock.view import picture_of, to_dot, to_mermaid

    drawing = {Format.MERMAID: to_mermaid, Format.DOT: to_dot}[format]
    text = drawing(picture_of(load_flow(flow)))
    if out is None:
        typer.echo(text, nl=False)
    else:
        Path(local_path(out, "--out")).write_text(text, encoding="utf-8")
