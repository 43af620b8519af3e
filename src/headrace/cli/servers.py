"""Commands of a controller and its replicas: `controller`, `replica`, `replicas`, `status` and `backup`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options import (
    DEFAULT_ADDRESS,
    Ca,
    Certificate,
    Collections,
    Controller,
    EngineChoice,
    Key,
    ServerName,
    TokenFile,
    connect,
    parse_named_uris,
)
from headrace.cli.run import UiPort, show_controller
from headrace.errors import BadOption

if TYPE_CHECKING:
    from headrace.compute.controller.status import ControllerStatus, ViewReplicaStatus


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
        EngineChoice, typer.Option(help="Engine of these replicas: in their own process, or Spark.")
    ] = EngineChoice.HERE,
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
    from headrace.expr.time_texts import duration
    from headrace.file_system import local_path

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
    from headrace.file_system import local_path

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


replicas = typer.Typer(
    name="replicas", no_args_is_help=True, help="Add, list, drop and release the replicas of a controller."
)
Name = Annotated[str, typer.Argument(help="Name of the replica.")]


@replicas.command()
def add(
    replica: Annotated[
        str, typer.Argument(metavar="NAME=HOST:PORT", help="Name and address of the replica.")
    ],
    runtime: Annotated[
        EngineChoice, typer.Option(help="Engine of the replica: its own process, or Spark.")
    ] = EngineChoice.HERE,
    workers: Annotated[int, typer.Option(min=1, help="Workers of the replica.")] = 1,
    controller: Controller = DEFAULT_ADDRESS,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    token_file: TokenFile = None,
    server_name: ServerName = None,
) -> None:
    """Add a replica. It may be started later."""
    from headrace.cli.options import parse_named_uris

    ((name, address),) = parse_named_uris("replica", [replica]).items()
    with connect(controller, ca, certificate, key, token_file, server_name) as client:
        client.add_replica(name, address, runtime=runtime.value, workers=workers)
    typer.echo(f"replica {name} at {address}")


@replicas.command(name="list")
def list_replicas(
    controller: Controller = DEFAULT_ADDRESS,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    token_file: TokenFile = None,
    server_name: ServerName = None,
) -> None:
    """List the replicas with their connection and last problem."""

    with connect(controller, ca, certificate, key, token_file, server_name) as client:
        print_replicas(client.status())


@replicas.command()
def drop(
    name: Name,
    controller: Controller = DEFAULT_ADDRESS,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    token_file: TokenFile = None,
    server_name: ServerName = None,
) -> None:
    """Remove a replica. Its process keeps running."""
    with connect(controller, ca, certificate, key, token_file, server_name) as client:
        client.drop_replica(name)
    typer.echo(f"dropped {name}")


@replicas.command()
def release(
    name: Name,
    controller: Controller = DEFAULT_ADDRESS,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    token_file: TokenFile = None,
    server_name: ServerName = None,
) -> None:
    """Retry a replica that was given up after repeated crashes."""
    with connect(controller, ca, certificate, key, token_file, server_name) as client:
        client.release_replica(name)
    typer.echo(f"released {name}")


def status(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    controller: Controller = DEFAULT_ADDRESS,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    token_file: TokenFile = None,
    server_name: ServerName = None,
) -> None:
    """Show replicas, views and collections with their progress.

    A replica can take over from the others once its views have been hydrated and up to date for a minute.
    A view has failed if its flow fails on a row, on all replicas; it is broken where only that replica cannot
    go on with it.
    """
    from headrace.compute.controller.status import to_plain

    with connect(controller, ca, certificate, key, token_file, server_name) as client:
        found = client.status()
    if as_json:
        typer.echo(json.dumps(to_plain(found), indent=2, default=_as_text))
        return
    from headrace.cli.row_formats import create_console

    out = create_console()
    out.print(f"controller {found.epoch}, last write at {found.read_time} ({_moment(found.read_time)})")
    for heading, show in (
        ("Replicas", print_replicas),
        ("Views", print_views),
        ("Collections", print_collections),
    ):
        out.print(f"\n{heading}")
        show(found)
    waiting = f"{len(found.peeks)} peeks wait, {len(found.subscriptions)} subscriptions"
    out.print(f"\n{waiting}, a history of {found.commands} commands")
    for problem in found.problems:
        out.print(f"{_moment(problem.at)} {problem.replica or 'controller'}: {problem.text}", soft_wrap=True)


def _as_text(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else str(value)


def _moment(milliseconds: int) -> str:
    if not milliseconds:
        return "never"
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(sep=" ", timespec="seconds")


def print_replicas(found: ControllerStatus) -> None:
    """Print the table of replicas."""
    from headrace.cli.row_formats import create_console, create_table

    table = create_table(
        "name", "address", "runtime", "state", "can take over", ">for", ">connections", ">deaths", "problem"
    )
    now = time.time_ns() // 1_000_000
    for each in found.replicas:
        runtime = each.timely.runtime + (f" x{each.timely.workers}" if each.timely.workers > 1 else "")
        table.add_row(
            each.name,
            each.address,
            runtime,
            each.state.value,
            "yes" if each.ready else "not yet",
            _span(now - each.since),
            str(each.connections),
            str(each.deaths),
            each.problem,
        )
    create_console().print(table if found.replicas else "none; add one: headrace replicas add NAME=HOST:PORT")


def _span(milliseconds: int) -> str:
    seconds = max(0, milliseconds) // 1000
    return (
        f"{seconds} s"
        if seconds < 100
        else f"{seconds // 60} min"
        if seconds < 6000
        else f"{seconds // 3600} h"
    )


def print_views(found: ControllerStatus) -> None:
    """Print the table of views."""
    from headrace.cli.row_formats import create_console, create_table

    table = create_table("name", "reads", "key", "state", ">settled before", "replicas (lag)")
    for each in found.views:
        replicas = ", ".join(f"{on.replica} ({_progress(on)})" for on in each.replicas)
        reads = ", ".join(each.reads)
        key = ", ".join(each.key) or "whole row"
        table.add_row(each.name, reads, key, each.state, _upper(each.upper.time), replicas)
    create_console().print(table if found.views else "none; create one: headrace view create FILE:FLOW")


def _progress(on: ViewReplicaStatus) -> str:
    return on.failure or (f"{on.lag} ms" if on.hydrated else "hydrating")


def _upper(time: int | None) -> str:
    return "the end" if time is None else str(time)


def print_collections(found: ControllerStatus) -> None:
    """Print the table of collections."""
    from headrace.cli.row_formats import create_console, create_table

    table = create_table("name", "columns", "written by", ">readable from", ">to before")
    for each in found.collections:
        by = each.written_by or ("clients, only added to" if each.append_only else "clients")
        table.add_row(each.name, each.columns, by, _upper(each.since.time), _upper(each.upper.time))
    create_console().print(table if found.collections else "none")


backup = typer.Typer(
    name="backup", no_args_is_help=True, help="Save and restore a controller with its collections in SQLite."
)
State = Annotated[Path, typer.Argument(metavar="STATE", help="The --state of the controller.")]
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of the backup.")]
RowsOption = Annotated[
    Path | None,
    typer.Option("--collections", metavar="PATH", help="SQLite file of the rows, if it is not in STATE."),
]


@backup.command()
def save(state: State, folder: Folder, collections: RowsOption = None) -> None:
    """Copy the files of a controller, which may be running, into a new folder, and check the copies.

    Both are of one moment. Rows in another store than SQLite are saved by the means of that store, while
    nobody creates or drops a view.
    """
    from headrace.compute.serve.backup import ControllerFiles, save

    copies = save(ControllerFiles.of(state, collections), folder)
    for file in (copies.state, copies.collections):
        if file is not None:
            typer.echo(f"{file}   {file.stat().st_size:,} bytes")
    if copies.collections is None:
        typer.echo("The rows are not in SQLite here: save their store, too.", err=True)


@backup.command()
def restore(
    folder: Folder,
    state: State,
    collections: RowsOption = None,
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite the files that are there.")] = False,
    state_only: Annotated[
        bool, typer.Option("--state-only", help="Restore a backup without rows, which are in another store.")
    ] = False,
) -> None:
    """Put a backup in its place, while the controller and all replicas are stopped.

    Subscribers begin again with a snapshot: what was written after the backup is gone.
    """
    from headrace.compute.serve.backup import COLLECTIONS, STATE, ControllerFiles, restore

    copies = ControllerFiles.of(folder)
    place = ControllerFiles(state / STATE, collections or state / COLLECTIONS)
    restore(copies, place, replace=replace, state_only=state_only)
    typer.echo(f"restored {place.state}" + (f" and {place.collections}" if copies.collections else ""))
