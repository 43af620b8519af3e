"""Entry point of the command `headrace`: registers the commands and reports their errors.

Commands import engines in their functions, so that `headrace --help` need not wait for Arrow or Spark.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from typing import Annotated, Any

try:
    import typer
except ImportError as missing:
    raise SystemExit("the command line needs two more packages: pip install 'headrace[cli]'") from missing

from typer.core import TyperGroup

from headrace import __version__
from headrace.cli.check import check, doctor
from headrace.cli.checkpoints import compact, reshard, rewind, skip, state
from headrace.cli.exit_codes import FAILED, exit_code, signal_code
from headrace.cli.inspection import draw, explain, infer, plan, trace, why
from headrace.cli.package import package
from headrace.cli.pipeline import pipeline
from headrace.cli.run import run, ui
from headrace.cli.servers import backup, controller, replica, replicas, status
from headrace.cli.views import copy, delete, insert, peek, subscribe, view
from headrace.errors import HeadraceError
from headrace.requirements import missing_extra

_COMMITTING = frozenset({"run", "pipeline"})
"""Commands that commit ticks."""


class CommandGroup(TyperGroup):
    """Command group that prints user errors and I/O errors as messages without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except HeadraceError as error:
            # A shell user has no source line to blame: our callers are Typer and asyncio.
            for caller in (
                os.path.dirname(typer.__file__),
                os.path.join(os.path.dirname(os.__file__), "asyncio"),
            ):
                error.blaming(caller, None)
            _print_last(str(error))
            raise typer.Exit(exit_code(error)) from error
        except ModuleNotFoundError as error:
            extra = "pipelines" if ctx.invoked_subcommand == "pipeline" else None
            missing = missing_extra(error, f"headrace {ctx.invoked_subcommand}", extra)
            if missing is None:
                raise
            _print_last(str(missing))
            raise typer.Exit(exit_code(missing)) from error
        except BrokenPipeError:
            raise  # The reader of our output closed it. Typer exits quietly.
        except OSError as error:  # for example a full disk or a read-only folder
            _print_last(f"{type(error).__name__}: {error}")
            raise typer.Exit(FAILED) from error
        except KeyboardInterrupt as error:
            kept = "; committed ticks are kept" if ctx.invoked_subcommand in _COMMITTING else ""
            _print_last(f"stopped immediately{kept}")
            _exit_despite_threads(signal_code(signal.SIGINT))
            raise typer.Exit(signal_code(signal.SIGINT)) from error


def _print_last(text: str) -> None:
    """Print to standard error after flushing standard output, so that the message is last on a pipe, too."""
    with suppress(OSError):
        sys.stdout.flush()
    typer.echo(text, err=True)


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
    name="headrace",
    cls=CommandGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Keep the answers of queries and pipelines up to date as their input changes.",
    epilog="Exit codes: 0 done, 1 failed while running, 2 refused before it ran, 130 Ctrl-C, 143 SIGTERM.",
)

_PANELS = {
    "Flows": (run, explain, check, draw, why, infer, plan),
    "Checkpoints": (state, ui, reshard, rewind, skip, compact),
    "Views kept up to date behind replicas": (
        controller, replica, replicas, view, insert, delete, peek, copy, subscribe, status, backup,
    ),
    "Spark and its pipelines": (pipeline, package, doctor),
    "Pull-streams": (trace,),
}  # fmt: skip
"""Commands and groups of commands, by heading of the help."""

for _panel, _commands in _PANELS.items():
    for _command in _commands:
        if isinstance(_command, typer.Typer):
            app.add_typer(_command, rich_help_panel=_panel)
        else:
            app.command(rich_help_panel=_panel)(_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def headrace(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Options of the command itself."""


if __name__ == "__main__":
    app()
