"""Replica process, from start to end: a replica with its runtime and its server."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from headrace.compute.replica.replica import Replica
from headrace.compute.replica.runtime_factory import make_runtime
from headrace.compute.replica.work_watch import DeathRecord, WorkWatch
from headrace.compute.transport.channels import Limits, Wakeup
from headrace.compute.transport.credentials import Security
from headrace.compute.transport.replica_server import serve_replica
from headrace.file_system import local_path, make_private_folder


@dataclass(frozen=True)
class ReplicaOptions:
    """Options of a replica process.

    listen:      HOST:PORT for its controller; port 0: any free one.
    state:       folder for this replica alone: copies, large results, checkpoints.
    name:        name of the replica; a controller that connects to another name is refused. None: any name.
    collections: URI of the store of rows, instead of the controller's.
    security:    the replica's credentials, and those required of the controller: a token that clients do not
        have, or names in its certificate.
    """

    listen: str
    state: Path
    name: str | None = None
    collections: str | None = None
    security: Security = Security()  # noqa: RUF009
    limits: Limits = Limits()  # noqa: RUF009
    allow_callables: bool = False


async def run_replica(options: ReplicaOptions, ready: Callable[[str], object]) -> None:
    """Run a replica until the task is cancelled.

    ready: called with the address once it listens. Raises the error that the replica halts with
    (`IncompatibleInstance`, `ReplicaExpired`, ...), the errors of `serve` if it cannot listen, and
    `BadOption` for an expired certificate, or credentials that do not tell a controller from a client.
    """
    local_path(options.state, "state of the replica")
    options.security.check_certificate()
    options.security.check_names_controllers()
    make_private_folder(options.state)
    bell = Wakeup()
    watch = WorkWatch(deaths=DeathRecord(options.state))
    runtime = partial(
        make_runtime,
        state=options.state,
        collections=options.collections,
        allow_callables=options.allow_callables,
        watch=watch,
    )
    replica = Replica(
        runtime, clock=lambda: time.time_ns() // 1_000_000, wake=bell.ring, halt=bell.end_process
    )
    with watch.installed():
        await serve_replica(
            replica,
            options.listen,
            options.security,
            options.limits,
            bell=bell,
            name=options.name,
            ready=ready,
        )
