"""What the commands that serve and those that ask a controller have in common: options and how they end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from penstock.compute.client.client import Client
    from penstock.compute.transport.credentials import Security

DEFAULT_ADDRESS = "127.0.0.1:7411"

Controller = Annotated[
    str,
    typer.Option("--controller", "-c", envvar="PENSTOCK_CONTROLLER", help="HOST:PORT of the controller."),
]
Ca = Annotated[
    Path | None,
    typer.Option("--ca", help="PEM of the authorities that the other side's certificate comes from."),
]
Certificate = Annotated[Path | None, typer.Option("--certificate", help="PEM of the own certificate.")]
Key = Annotated[Path | None, typer.Option("--key-file", help="PEM of the key of the certificate.")]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", help="A file with the token; without it: PENSTOCK_TOKEN, if that is set."),
]
ServerName = Annotated[
    str | None,
    typer.Option("--server-name", help="The name in the other side's certificate, if it is not the host."),
]
Patience = Annotated[
    str,
    typer.Option(
        "--patience", metavar="SPAN", help="How long to wait for an answer: 30s, 5m, none (to the end)."
    ),
]
DEFAULT_PATIENCE = "30s"
Collections = Annotated[
    str | None,
    typer.Option(metavar="URI", help="Where the rows are: sqlite:PATH, postgresql://..., delta:PATH."),
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
    """A client for a command, which does not wait long for a controller that is not there."""
    from penstock.compute.client.client import Client

    security = security_of(ca, certificate, key, token_file, server_name)
    return Client(controller, security=security, patience=patience)


def patience_of(given: str) -> str | None:
    """A span, or None for "none"."""
    return None if given == "none" else given


def serve_until_signalled(what: str, serve: Callable[[Callable[[str], None]], Awaitable[None]]) -> None:
    """Serve, say where, and end with the exit code of the signal that ended it."""
    from penstock.cli.exit_codes import signal_code
    from penstock.compute.serve.until_signalled import until_signalled

    def ready(address: str) -> None:
        typer.echo(f"{what} listening on {address}")

    came = until_signalled(lambda: serve(ready))
    if came is not None:
        raise typer.Exit(signal_code(came))


def security_of(
    ca: Path | None,
    certificate: Path | None,
    key: Path | None,
    token_file: Path | None,
    server_name: str | None = None,
) -> Security:
    """Credentials of files. Raises `BadOption`."""
    from penstock.compute.transport.credentials import Security

    return Security.load(
        ca=ca, certificate=certificate, key=key, token_file=token_file, server_name=server_name
    )
