"""Web page of a run, a checkpoint or a controller, on the command line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.exit_codes import signal_code

if TYPE_CHECKING:
    from headrace.compute.credentials import Security
    from headrace.engine.progress import Observer
    from headrace.ui import RunSubject

UiPort = Annotated[
    int | None,
    typer.Option("--ui-port", min=0, max=65535, help="Port of the page (default: a free one); implies --ui."),
]
_WHY_SECONDS = 8.0
"""Seconds of searching, after the flow is loaded and the sources are read."""


@dataclass(frozen=True, slots=True)
class RunCallbacks:
    """Callbacks by which a run's page learns of it; without a page, there are none."""

    on_tick: Callable[[Any], None] | None = None
    observer: Observer | None = None


@contextmanager
def serving_run_page(subject: Callable[[], RunSubject] | None, port: int) -> Generator[RunCallbacks]:
    """Serve the page of a run inside this block, if there is a subject, and print its URL once it starts."""
    if subject is None:
        yield RunCallbacks()
        return
    from headrace.ui import RunPage, serving_page

    page = RunPage(subject())
    with serving_page(page, port) as url:
        observer = replace(page.observer, on_start=lambda: typer.echo(f"open {url}", err=True))
        try:
            yield RunCallbacks(page.on_tick, observer)
        except Exception as error:
            page.failed(error)
            raise


def why_process(command: Sequence[str], *arguments: str) -> Callable[[str, str], dict[str, Any]]:
    """Return a function that answers "why is this row here" in a process of its own.

    The process keeps the user's functions, memory and processor time of the search away from the server.
    command: of `headrace`, with options. arguments: before the name of the view and the row.
    """

    from headrace.ui.server import WHY_SECONDS

    def find(view: str, row: str) -> dict[str, Any]:
        # -P: a file of the user's named json.py, say, must not replace Python's own.
        headrace = [sys.executable, "-P", "-m", "headrace.cli"]
        try:
            done = subprocess.run(
                [*headrace, *command, "--json", f"--seconds={_WHY_SECONDS}", "--", *arguments, view, "-"],
                input=row, capture_output=True, text=True, timeout=WHY_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"why_not": f"The search took more than {WHY_SECONDS} seconds and was ended."}
        # What a flow prints while it is loaded comes before the answer.
        last = done.stdout.strip().rpartition("\n")[2]
        with suppress(ValueError):
            if isinstance(answer := json.loads(last), dict):
                return answer
        said = done.stderr.strip()[-2000:]
        if "Traceback (most recent call last)" in done.stderr:
            said = f"The search failed: {said.rpartition(chr(10))[2]}"
        return {"why_not": said or f"The search ended with code {done.returncode}."}

    return find


def show_controller(
    address: str, security: Security, port: int, closing: ExitStack, options: Sequence[str]
) -> None:
    """Serve the page of a controller until `closing` ends, and print its URL.

    options: of `headrace view why` for this controller, except its address.
    """
    from headrace.compute.client.client import Client
    from headrace.ui import serving_page
    from headrace.ui.controller_page import ControllerPage

    client = closing.enter_context(Client(address, security=security, patience="5s"))
    find_why = why_process(["view", "why", f"--controller={address}", *options])
    url = closing.enter_context(serving_page(ControllerPage(address, client, find_why), port))
    typer.echo(f"open {url}", err=True)


def ui(
    checkpoint: Annotated[str, typer.Argument(help="The folder of a checkpoint.")],
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port of the page. Default: a free one.")
    ] = 0,
) -> None:
    """Serve a page of a checkpoint until Ctrl-C: its tick, positions, watermarks and state by operator.

    The checkpoint is not modified. While a run writes it, the page follows.
    """
    from headrace.ui import CheckpointPage, serving_page

    with serving_page(CheckpointPage(checkpoint), port) as url:
        typer.echo(f"open {url}", err=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            raise typer.Exit(signal_code(signal.SIGINT)) from None
