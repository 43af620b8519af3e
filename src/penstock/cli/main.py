"""The command `penstock` and what its commands have in common: how they report errors.

Commands import engines inside themselves: `penstock --help` must not wait for Arrow or Spark.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

try:
    import typer
except ImportError as missing:
    raise SystemExit("the command line needs two more packages: pip install 'penstock[cli]'") from missing

from typer.core import TyperGroup

from penstock.cli.check import check
from penstock.cli.conform import conform
from penstock.cli.controller import controller
from penstock.cli.copy import copy
from penstock.cli.doctor import doctor
from penstock.cli.draw import draw
from penstock.cli.exit_codes import FAILED, exit_code, signal_code
from penstock.cli.explain import explain
from penstock.cli.insert import delete, insert
from penstock.cli.package import package
from penstock.cli.peek import peek
from penstock.cli.replica import replica
from penstock.cli.replicas import replicas
from penstock.cli.reshard import reshard
from penstock.cli.rewind import rewind
from penstock.cli.run import run
from penstock.cli.skip import skip
from penstock.cli.state import state
from penstock.cli.status import status
from penstock.cli.subscribe import subscribe
from penstock.cli.trace import trace
from penstock.cli.view import view
from penstock.errors import PenstockError


class Commands(TyperGroup):
    """Prints errors of users and of their disks as what they are, messages, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except PenstockError as error:
            # Who calls from a shell has no line that could be at fault: what calls us is Typer, or a loop.
            for caller in (
                os.path.dirname(typer.__file__),
                os.path.join(os.path.dirname(os.__file__), "asyncio"),
            ):
                error.blaming(caller, None)
            typer.echo(str(error), err=True)
            raise typer.Exit(exit_code(error)) from error
        except BrokenPipeError:
            raise  # the reader of our output has seen enough; Typer ends quietly
        except OSError as error:  # a full disk, a folder that may not be written
            typer.echo(f"{type(error).__name__}: {error}", err=True)
            raise typer.Exit(FAILED) from error
        except KeyboardInterrupt as error:
            typer.echo("stopped at once; what was committed is kept", err=True)
            _leave_threads_behind(signal_code(signal.SIGINT))
            raise typer.Exit(signal_code(signal.SIGINT)) from error


def _leave_threads_behind(code: int) -> None:
    """End the process here if threads are at work in it.

    A tick that was broken off may go on for a while in threads of Spark and Arrow, and an
    interpreter that is taken down under them aborts. Not where somebody runs the command
    inside another program, and has put other streams in place.
    """
    if threading.active_count() > 1 and sys.stderr is sys.__stderr__:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


app = typer.Typer(
    name="penstock",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Incremental streaming dataflow: run flows, explain them, draw them.",
    epilog="Exit codes: 0 done, 1 failed while running, 2 refused before it ran, 130 Ctrl-C, 143 SIGTERM.",
)
app.command()(run)
app.command()(explain)
app.command()(check)
app.command()(draw)
app.command()(doctor)
app.command()(package)
app.command()(conform)
app.command()(trace)
app.command()(state)
app.command()(reshard)
app.command()(rewind)
app.command()(skip)
app.command()(controller)
app.command()(replica)
app.add_typer(replicas, name="replicas")
app.add_typer(view, name="view")
app.command()(insert)
app.command()(delete)
app.command()(peek)
app.command()(copy)
app.command()(subscribe)
app.command()(status)


@app.callback()
def penstock() -> None:
    # Typer would otherwise drop the name of the command where there is only one.
    pass


if __name__ == "__main__":
    app()
