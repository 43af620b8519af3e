"""Options shared by commands: engines, NAME=URI pairs, and the connection to a controller."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.completion import complete_flow, complete_sink, complete_source
from headrace.errors import BadUri

if TYPE_CHECKING:
    from headrace.compute.client.client import Client
    from headrace.compute.credentials import Security


class Engine(Enum):
    """Engine that runs a flow."""

    HERE = "here"
    SPARK = "spark"


FlowName = Annotated[
    str, typer.Argument(help="module:flow or path/to/file.py:flow", autocompletion=complete_flow)
]
SourceUris = Annotated[
    list[str] | None,
    typer.Option(
        "--source", metavar="NAME=URI", help="As for `headrace run`.", autocompletion=complete_source
    ),
]
SinkUris = Annotated[
    list[str] | None,
    typer.Option("--sink", metavar="NAME=URI", help="As for `headrace run`.", autocompletion=complete_sink),
]

_EXAMPLES = {"source": "csv:PATH", "sink": "changelog:PATH"}

DEFAULT_ADDRESS = "127.0.0.1:7411"

Controller = Annotated[
    str,
    typer.Option("--controller", "-c", envvar="HEADRACE_CONTROLLER", help="HOST:PORT of the controller."),
]
Ca = Annotated[
    Path | None,
    typer.Option(
        "--ca", help="PEM file of the certificate authorities that sign the other side's certificate."
    ),
]
Certificate = Annotated[
    Path | None, typer.Option("--certificate", help="PEM file of this side's certificate.")
]
Key = Annotated[Path | None, typer.Option("--key-file", help="PEM file of the certificate's key.")]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", help="File with the token. Default: HEADRACE_TOKEN, if set."),
]
ServerName = Annotated[
    str | None,
    typer.Option("--server-name", help="Name in the other side's certificate, if it differs from the host."),
]
Patience = Annotated[
    str,
    typer.Option(
        "--patience",
        metavar="SPAN",
        help="How long to wait for a replica's answer: 30s, 5m, none (forever). A controller that can't be "
        "reached is an error after 3s.",
    ),
]
DEFAULT_PATIENCE = "30s"
Collections = Annotated[
    str | None,
    typer.Option(metavar="URI", help="Storage of the rows: sqlite:PATH, postgresql://..., delta:PATH."),
]


def connect(
    controller: str,
    ca: Path | None,
    certificate: Path | None,
    key: Path | None,
    token_file: Path | None,
    server_name: str | None,
    *,
    patience: str = "3s",
) -> Client:
    """Connect a client with a short patience, so that commands fail fast if no controller responds."""
    from headrace.compute.client.client import Client

    security = load_security(ca, certificate, key, token_file, server_name)
    return Client(controller, security=security, patience=patience)


def parse_patience(given: str) -> str | None:
    """Parse the option --patience to a span, or to None for "none"."""
    return None if given == "none" else given


def load_security(
    ca: Path | None,
    certificate: Path | None,
    key: Path | None,
    token_file: Path | None,
    server_name: str | None = None,
) -> Security:
    """Load credentials from files. Raises `BadOption`."""
    from headrace.compute.credentials import Security

    return Security.load(
        ca=ca, certificate=certificate, key=key, token_file=token_file, server_name=server_name
    )


def parse_named_uris(kind: str, texts: Sequence[str]) -> dict[str, str]:
    """Parse repeated NAME=URI options into a dict. Raises `BadUri`."""
    from headrace.io.postgres import without_password

    found: dict[str, str] = {}
    for text in texts:
        name, equals, uri = text.partition("=")
        if not equals or not name or not uri:
            shown = without_password(text)
            raise BadUri(
                f"--{kind} {shown}: expected NAME=URI",
                fix=f"--{kind} NAME={_EXAMPLES.get(kind, 'HOST:PORT')}",
                uri=shown,
            )
        if name in found:
            raise BadUri(f"--{kind} {name}=... is given twice", uri=without_password(text))
        found[name] = uri
    return found
