"""Entry point of the command `penstock`: registers the commands and reports their errors.

Commands import engines in their functions, so that `penstock --help` need not wait for Arrow or Spark.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Annotated, Any

try:
    import typer
except ImportError as missing:
    raise SystemExit("the command line needs two more packages: pip install 'penstock[cli]'") from missing

from typer.core import TyperGroup

from penstock import __version__
from penstock.cli.check import check
from penstock.cli.checkpoints import compact, reshard, rewind, skip
from penstock.cli.conformance import conform, trace
from penstock.cli.doctor import doctor
from penstock.cli.exit_codes import FAILED, exit_code, signal_code
from penstock.cli.infer import infer
from penstock.cli.insert import delete, insert
from penstock.cli.inspect_flow import draw, explain
from penstock.cli.package import package
from penstock.cli.page import ui
from penstock.cli.pipeline import pipeline
from penstock.cli.plan import plan
from penstock.cli.replicas import replicas
from penstock.cli.run import run
from penstock.cli.servers import controller, replica
from penstock.cli.state import state
from penstock.cli.status import status
from penstock.cli.subscribe import subscribe
from penstock.cli.view_reads import copy, peek
from penstock.cli.views import view
from penstock.cli.why import why
from penstock.errors import PenstockError
from penstock.requirements import missing_extra


class CommandGroup(TyperGroup):
    """Command group that prints user errors and I/O errors as messages without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except PenstockError as error:
            # A shell user has no source line to blame: our callers are Typer and asyncio.
            for caller in (
                os.path.dirname(typer.__file__),
                os.path.join(os.path.dirname(os.__file__), "asyncio"),
            ):
                error.blaming(caller, None)
            typer.echo(str(error), err=True)
            raise typer.Exit(exit_code(error)) from error
        except ModuleNotFoundError as error:
            extra = "pipelines" if ctx.invoked_subcommand == "pipeline" else None
            missing = missing_extra(error, f"penstock {ctx.invoked_subcommand}", extra)
            if missing is None:
                raise
            typer.echo(str(missing), err=True)
            raise typer.Exit(exit_code(missing)) from error
        except BrokenPipeError:
            raise  # The reader of our output closed it. Typer exits quietly.
        except OSError as error:  # for example a full disk or a read-only folder
            typer.echo(f"{type(error).__name__}: {error}", err=True)
            raise typer.Exit(FAILED) from error
        except KeyboardInterrupt as error:
            typer.echo("stopped immediately; committed ticks are kept", err=True)
            _exit_despite_threads(signal_code(signal.SIGINT))
            raise typer.Exit(signal_code(signal.SIGINT)) from error


def _exit_despite_threads(code: int) -> None:
    """Exit the process immediately if other threads are running.

    An interrupted tick may continue in threads of Spark and Arrow, which abort if the interpreter shuts down
    under them. Embedded uses of the command, which replace the standard streams, are left alone.
    """
    if threading.active_count() > 1 and sys.stderr is sys.__stderr__:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


app = typer.Typer(
    name="penstock",
    cls=CommandGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Incremental streaming dataflow: run flows, explain them, draw them.",
    epilog="Exit codes: 0 done, 1 failed while running, 2 refused before it ran, 130 Ctrl-C, 143 SIGTERM.",
)
app.command()(run)
app.command()(explain)
app.command()(check)
app.command()(draw)
app.command()(infer)
app.command()(doctor)
app.command()(plan)
app.add_typer(pipeline, name="pipeline")
app.command()(package)
app.command()(conform)
app.command()(trace)
app.command()(state)
app.command()(ui)
app.command()(why)
app.command()(reshard)
app.command()(rewind)
app.command()(skip)
app.command()(compact)
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


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def penstock(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Options of the command itself."""


if __name__ == "__main__":
    app()
