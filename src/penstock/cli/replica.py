"""`penstock replica`: the process that keeps views up to date, and may be killed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.serving import Ca, Certificate, Collections, Key, TokenFile


def replica(
    listen: Annotated[str, typer.Option(help="HOST:PORT for its controller; port 0: any.")],
    state: Annotated[str, typer.Option(help="A folder of this replica alone, for copies and large results.")],
    name: Annotated[
        str | None, typer.Option(help="Refuse a controller that means a replica of another name.")
    ] = None,
    collections: Collections = None,
    allow_callables: Annotated[
        bool, typer.Option("--allow-callables", help="Run Python functions that come with flows.")
    ] = False,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    token_file: TokenFile = None,
) -> None:
    """Keep views up to date for a controller, until SIGTERM or Ctrl-C.

    It holds nothing that cannot be made again: it may be killed at any time. Without credentials it
    listens on this machine only.
    """
    from penstock.cli.serving import security_of, serve_until_signalled
    from penstock.compute.serve.replica_process import ReplicaOptions, run_replica
    from penstock.paths import local_path

    options = ReplicaOptions(
        listen=listen,
        state=Path(local_path(state, "--state")),
        name=name,
        collections=collections,
        security=security_of(ca, certificate, key, token_file),
        allow_callables=allow_callables,
    )
    serve_until_signalled("replica", lambda ready: run_replica(options, ready))
