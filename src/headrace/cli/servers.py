"""`headrace controller` and `headrace replica`: the long-running server processes."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import (
    DEFAULT_ADDRESS,
    Ca,
    Certificate,
    Collections,
    Engine,
    Key,
    TokenFile,
    parse_named_uris,
)
from headrace.cli.page import UiPort, show_controller
from headrace.errors import BadOption

ReplicaToken = Annotated[
    Path | None,
    typer.Option(
        "--replica-token-file",
        help="File with the secret of the controller and its replicas, which no client has. "
        "Default: HEADRACE_REPLICA_TOKEN, if set.",
    ),
]


def controller(
    state: Annotated[str, typer.Option(help="Folder for the catalog and, with SQLite, the rows.")],
    listen: Annotated[
        str, typer.Option(help="HOST:PORT to listen on for clients; port 0 picks a free one.")
    ] = DEFAULT_ADDRESS,
    replica: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=HOST:PORT", help="Replica to use, in addition to those in the catalog."),
    ] = None,
    runtime: Annotated[
        Engine, typer.Option(help="Engine of these replicas: in their own process, or Spark.")
    ] = Engine.HERE,
    workers: Annotated[int, typer.Option(min=1, help="Workers of each of these replicas.")] = 1,
    collections: Collections = None,
    max_result: Annotated[
        int, typer.Option(min=1, help="Limit on the rows of one answer, in megabytes.")
    ] = 1024,
    max_lag: Annotated[
        str,
        typer.Option(
            metavar="SPAN",
            help="Time for which a replica may be behind the readable past of a view before the rows that it "
            "has yet to read are no longer kept, and it rebuilds the view.",
        ),
    ] = "10min",
    allow_callables: Annotated[
        bool, typer.Option("--allow-callables", help="Accept Python functions sent with flows.")
    ] = False,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    token_file: TokenFile = None,
    operator_name: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Name in the certificates of operators, who may manage replicas."),
    ] = None,
    operator_token_file: Annotated[
        Path | None, typer.Option(help="File with a token that makes its clients operators.")
    ] = None,
    replica_ca: Annotated[
        Path | None, typer.Option(help="PEM file of the authorities of replicas. Default: --ca.")
    ] = None,
    replica_certificate: Annotated[
        Path | None,
        typer.Option(help="PEM file of the certificate to show replicas. Default: --certificate."),
    ] = None,
    replica_key_file: Annotated[Path | None, typer.Option(help="PEM file of that certificate's key.")] = None,
    replica_token_file: ReplicaToken = None,
    ui: Annotated[
        bool,
        typer.Option("--ui", help="Serve a page of the controller on this machine, and print its address."),
    ] = False,
    ui_port: UiPort = None,
) -> None:
    """Serve views to clients from replicas, until SIGTERM or Ctrl-C.

    The process may be killed at any time, because --state holds everything it needs to restart. A second
    controller on the same state takes over, and the first one exits.
    """
    from headrace.compute.channels import MEGABYTE
    from headrace.compute.controller.status import ControllerSettings
    from headrace.compute.credentials import REPLICA_TOKEN_VARIABLE, Security
    from headrace.compute.protocol.commands import Parameters, TimelyConfig
    from headrace.compute.serve.controller_process import PARAMETERS, Options, run_controller
    from headrace.expr.durations import duration
    from headrace.path_or_url import local_path

    security = Security.load(
        ca=ca,
        certificate=certificate,
        key=key,
        token_file=token_file,
        operators=operator_name or (),
        operator_token_file=operator_token_file,
    )
    own_pair = replica_certificate is not None or replica_key_file is not None
    links = Security.load(
        ca=replica_ca or ca,
        certificate=replica_certificate if own_pair else certificate,
        key=replica_key_file if own_pair else key,
        token_file=replica_token_file,
        token_variable=REPLICA_TOKEN_VARIABLE,
    )
    options = Options(
        listen=listen,
        state=Path(local_path(state, "--state")),
        collections=collections,
        replicas=parse_named_uris("replica", replica or ()),
        timely=TimelyConfig(runtime.value, workers),
        clients=security,
        links=links,
        parameters=PARAMETERS.overridden_by(Parameters(max_result_size=max_result * MEGABYTE)),
        settings=ControllerSettings(max_lag=round(duration(max_lag).total_seconds() * 1000)),
        allow_callables=allow_callables,
    )
    with ExitStack() as closing:

        def show_page(address: str) -> None:
            if ui or ui_port is not None:
                given = {"ca": ca, "certificate": certificate, "key-file": key, "token-file": token_file}
                credentials = [f"--{name}={path}" for name, path in given.items() if path is not None]
                callables = ["--allow-callables"] if allow_callables else []
                show_controller(address, security, ui_port or 0, closing, [*credentials, *callables])

        serve_until_signalled("controller", lambda ready: run_controller(options, ready), show_page)


def replica(
    listen: Annotated[
        str, typer.Option(help="HOST:PORT to listen on for the controller; port 0 picks a free one.")
    ],
    state: Annotated[str, typer.Option(help="Private folder of this replica, for copies and large results.")],
    name: Annotated[
        str | None, typer.Option(help="Refuse controllers that address a replica of another name.")
    ] = None,
    collections: Collections = None,
    allow_callables: Annotated[
        bool, typer.Option("--allow-callables", help="Run Python functions sent with flows.")
    ] = False,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    controller_name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Name in the certificate of the controller, the only one to be served; '*' if --ca signs "
            "controllers only.",
        ),
    ] = None,
    replica_token_file: ReplicaToken = None,
) -> None:
    """Keep views up to date for a controller, until SIGTERM or Ctrl-C.

    The process may be killed at any time, because everything it holds can be recomputed. Without credentials
    it listens on this machine only. With them it serves a controller, never a client.
    """
    from headrace.compute.credentials import REPLICA_TOKEN_VARIABLE, Security
    from headrace.compute.serve.replica_server import ReplicaOptions, run_replica
    from headrace.path_or_url import local_path

    security = Security.load(
        ca=ca,
        certificate=certificate,
        key=key,
        token_file=replica_token_file,
        token_variable=REPLICA_TOKEN_VARIABLE,
        clients=controller_name or (),
    )
    if security.ca is None and security.token is None and os.environ.get("HEADRACE_TOKEN", "").strip():
        raise BadOption(
            "HEADRACE_TOKEN is the token of clients, and none of them may command a replica",
            fix=f"give controller and replicas one of their own: {REPLICA_TOKEN_VARIABLE}=..., or unset "
            "HEADRACE_TOKEN here",
            option="replica_token_file",
        )
    options = ReplicaOptions(
        listen=listen,
        state=Path(local_path(state, "--state")),
        name=name,
        collections=collections,
        security=security,
        allow_callables=allow_callables,
    )
    serve_until_signalled("replica", lambda ready: run_replica(options, ready))


def serve_until_signalled(
    what: str,
    serve: Callable[[Callable[[str], None]], Awaitable[None]],
    then: Callable[[str], None] = lambda _address: None,
) -> None:
    """Serve, print the address, and exit with the code of the signal that stopped the server.

    then: called with the address once it is printed.
    """
    from headrace.cli.exit_codes import signal_code
    from headrace.compute.serve import until_signalled

    def ready(address: str) -> None:
        typer.echo(f"{what} listening on {address}")
        then(address)

    came = until_signalled(lambda: serve(ready))
    if came is not None:
        raise typer.Exit(signal_code(came))
