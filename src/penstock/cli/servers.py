"""`penstock controller` and `penstock replica`: the long-running server processes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import (
    DEFAULT_ADDRESS,
    Ca,
    Certificate,
    Collections,
    Engine,
    Key,
    TokenFile,
    load_security,
    parse_named_uris,
)
from penstock.cli.page import UiPort, show_controller


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
    from penstock.compute.controller.requests import ControllerSettings
    from penstock.compute.protocol.commands import Parameters, TimelyConfig
    from penstock.compute.serve.controller_process import PARAMETERS, Options, run_controller
    from penstock.compute.transport.limits import MEGABYTE
    from penstock.expr.durations import duration
    from penstock.path_or_url import local_path

    security = load_security(ca, certificate, key, token_file)
    options = Options(
        listen=listen,
        state=Path(local_path(state, "--state")),
        collections=collections,
        replicas=parse_named_uris("replica", replica or ()),
        timely=TimelyConfig(runtime.value, workers),
        clients=security,
        links=security,
        parameters=PARAMETERS.overridden_by(Parameters(max_result_size=max_result * MEGABYTE)),
        settings=ControllerSettings(most_lag=round(duration(max_lag).total_seconds() * 1000)),
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
    token_file: TokenFile = None,
) -> None:
    """Keep views up to date for a controller, until SIGTERM or Ctrl-C.

    The process may be killed at any time, because everything it holds can be recomputed. Without credentials
    it listens on this machine only.
    """
    from penstock.compute.serve.replica_process import ReplicaOptions, run_replica
    from penstock.path_or_url import local_path

    options = ReplicaOptions(
        listen=listen,
        state=Path(local_path(state, "--state")),
        name=name,
        collections=collections,
        security=load_security(ca, certificate, key, token_file),
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
    from penstock.cli.exit_codes import signal_code
    from penstock.compute.serve.until_signalled import until_signalled

    def ready(address: str) -> None:
        typer.echo(f"{what} listening on {address}")
        then(address)

    came = until_signalled(lambda: serve(ready))
    if came is not None:
        raise typer.Exit(signal_code(came))
