"""`penstock controller`: the process that clients ask."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.engine_option import Where
from penstock.cli.serving import DEFAULT_ADDRESS, Ca, Certificate, Collections, Key, TokenFile


def controller(
    state: Annotated[str, typer.Option(help="A folder for the catalog; with SQLite also for the rows.")],
    listen: Annotated[str, typer.Option(help="HOST:PORT for clients; port 0: any.")] = DEFAULT_ADDRESS,
    replica: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=HOST:PORT", help="A replica to use, beside those that it knows."),
    ] = None,
    runtime: Annotated[
        Where, typer.Option(help="What these replicas run flows on: in their process, or on Spark.")
    ] = Where.HERE,
    workers: Annotated[int, typer.Option(min=1, help="Parts that each of these replicas works in.")] = 1,
    collections: Collections = None,
    max_result: Annotated[
        int, typer.Option(min=1, help="Megabytes of rows that one answer may have.")
    ] = 1024,
    allow_callables: Annotated[
        bool, typer.Option("--allow-callables", help="Take Python functions that come with flows.")
    ] = False,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    token_file: TokenFile = None,
) -> None:
    """Answer clients out of views that replicas keep up to date, until SIGTERM or Ctrl-C.

    It may be killed at any time: what it must know is in --state. A second one on the same state takes
    over, and the first one ends.
    """
    from penstock.cli.run import named
    from penstock.cli.serving import security_of, serve_until_signalled
    from penstock.compute.protocol.commands import Parameters, TimelyConfig
    from penstock.compute.serve.process import PARAMETERS, Options, run_controller
    from penstock.compute.transport.limits import MEGABYTE
    from penstock.paths import local_path

    security = security_of(ca, certificate, key, token_file)
    options = Options(
        listen=listen,
        state=Path(local_path(state, "--state")),
        collections=collections,
        replicas=named("replica", replica or ()),
        timely=TimelyConfig(runtime.value, workers),
        clients=security,
        links=security,
        parameters=PARAMETERS.updated(Parameters(max_result_size=max_result * MEGABYTE)),
        allow_callables=allow_callables,
    )
    serve_until_signalled("controller", lambda ready: run_controller(options, ready))
