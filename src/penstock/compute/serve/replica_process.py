"""The replica process: a replica, its runtime and its server, from start to end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from penstock.compute.replica.replica import Replica
from penstock.compute.replica.runtime_factory import make_runtime
from penstock.compute.transport.credentials import Security
from penstock.compute.transport.limits import Limits
from penstock.compute.transport.server import serve
from penstock.compute.transport.wakeup import Wakeup
from penstock.paths import local_path
from penstock.private_files import make_private_folder


@dataclass(frozen=True)
class ReplicaOptions:
    """Options of a replica process.

    listen:      HOST:PORT for its controller; port 0: any.
    state:       a folder of this replica alone: copies, large results, checkpoints.
    name:        a controller that means another one is refused; None: whatever it is called.
    collections: where the rows are, instead of where the controller says.
    security:    what the controller must show.
    """

    listen: str
    state: Path
    name: str | None = None
    collections: str | None = None
    security: Security = Security()  # noqa: RUF009
    limits: Limits = Limits()  # noqa: RUF009
    allow_callables: bool = False


async def run_replica(options: ReplicaOptions, ready: Callable[[str], object]) -> None:
    """Serve until the task is cancelled.

    ready: called with the address once it listens. Raises what the replica halts with
    (`IncompatibleInstance`, `ReplicaExpired`, ...), and what keeps it from listening: `BadOption` for an
    expired certificate, too.
    """
    local_path(options.state, "state of the replica")
    options.security.check_certificate()
    make_private_folder(options.state)
    bell = Wakeup()
    runtime = partial(
        make_runtime,
        state=options.state,
        collections=options.collections,
        allow_callables=options.allow_callables,
    )
    replica = Replica(runtime, clock=lambda: time.time_ns() // 1_000_000, wake=bell.ring, halt=bell.halt)
    await serve(
        replica,
        options.listen,
        options.security,
        options.limits,
        bell=bell,
        name=options.name,
        ready=ready,
    )
