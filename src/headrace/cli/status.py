"""`headrace status`: show replicas, views and collections with their progress."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options import (
    DEFAULT_ADDRESS,
    Ca,
    Certificate,
    Controller,
    Key,
    ServerName,
    TokenFile,
    connect,
)

if TYPE_CHECKING:
    from headrace.compute.controller.status import ControllerStatus, ViewReplicaStatus


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
    from headrace.cli.text_tables import create_console

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
    from headrace.cli.text_tables import create_console, create_table

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
    from headrace.cli.text_tables import create_console, create_table

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
    from headrace.cli.text_tables import create_console, create_table

    table = create_table("name", "columns", "written by", ">readable from", ">to before")
    for each in found.collections:
        by = each.written_by or ("clients, only added to" if each.append_only else "clients")
        table.add_row(each.name, each.columns, by, _upper(each.since.time), _upper(each.upper.time))
    create_console().print(table if found.collections else "none")
