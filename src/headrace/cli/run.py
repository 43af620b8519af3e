"""`headrace run`: run a flow from sources to sinks, in this process or on Spark; `headrace ui`: its page."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.exit_codes import signal_code
from headrace.cli.options import EngineChoice, FlowName, complete_sink, complete_source, parse_named_uris
from headrace.errors import BadInput

if TYPE_CHECKING:
    from headrace.compute.credentials import Security
    from headrace.engine.progress import Observer, Progress
    from headrace.flow.flow import Flow
    from headrace.ui import Page, RunSubject


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """Options of the command except sources and sinks; None if not given."""

    checkpoint: str | None
    follow: bool
    on_tick: Callable[[Progress], object] | None
    tick_rows: int | dict[str, int] | None
    max_iterations: int | None
    end: bool | None
    shards: int | None
    metrics: str | Path | None
    observer: Observer | None


def run(
    flow: FlowName,
    on: Annotated[EngineChoice, typer.Option(help="Engine: in this process, or Spark.")] = EngineChoice.HERE,
    source: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=URI",
            help="Where a source is read from; repeatable. See above.",
            autocompletion=complete_source,
        ),
    ] = None,
    sink: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=URI",
            help="Where a sink is written; repeatable. See above. Without any, all sinks are printed; with "
            "some, only those are written.",
            autocompletion=complete_sink,
        ),
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="Folder for state and positions, from which the next run resumes.")
    ] = None,
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild",
            help="Read the sources from the beginning, into a new checkpoint and new folders of the sinks, "
            "which replace the old ones at the end.",
        ),
    ] = False,
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help="Read the sources from the beginning, into a new checkpoint, and write to the sinks, which "
            "stay, what differs from the rows they hold.",
        ),
    ] = False,
    follow: Annotated[
        bool,
        typer.Option("--follow/--once", help="Wait for new files until Ctrl-C, or end when all are read."),
    ] = False,
    tick_rows: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]N",
            help="Maximum rows per source and tick, for all sources or for one (here: 1000).",
        ),
    ] = None,
    max_iterations: Annotated[
        int | None,
        typer.Option(
            min=1, help="Maximum rounds of a loop within one tick, overriding the flow's own limit."
        ),
    ] = None,
    end: Annotated[
        bool | None,
        typer.Option(
            "--end/--keep-open",
            help="Treat fully read sources as ended, which closes event-time windows. "
            "Default: ended, unless --checkpoint is given.",
            show_default=False,
        ),
    ] = None,
    shards: Annotated[int | None, typer.Option(min=1, help="Number of shards of the state (Spark).")] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT",
            help="Serve Prometheus metrics during the run; a port alone listens on this machine only.",
        ),
    ] = None,
    metrics_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.prom",
            help="Write Prometheus metrics at the end of the run, for node_exporter's textfile collector.",
        ),
    ] = None,
    progress: Annotated[
        bool | None,
        typer.Option(
            "--progress/--no-progress",
            help="A line per tick on standard error, or none, and no summary. Default: a block that "
            "changes on a terminal, and elsewhere a line every half minute.",
            show_default=False,
        ),
    ] = None,
    ui: Annotated[
        bool, typer.Option("--ui", help="Serve a page of the run on this machine, and print its address.")
    ] = False,
    ui_port: UiPort = None,
) -> None:
    """Run a flow until its sources are read, or forever with --follow.

    Ctrl-C and SIGTERM stop after the current tick is committed; a second one stops immediately. With
    --checkpoint, the same command resumes from there.

    Sources: json:PATH, csv:PATH or parquet:PATH, or a path with such an ending;
    PATH is a folder, a file or a pattern. ?dead_letter=FOLDER&files_per_tick=N
    may follow, for CSV also sep, quote, escape, encoding, header and null.
    debezium+json:PATH and the like for change data; delta:PATH;
    kafka:SERVERS/TOPIC (Spark).

    Sinks: changelog:PATH; csv:PATH; table:PATH?key=COLUMN,...;
    delta:PATH?key=...; postgresql://USER@HOST/DATABASE?table=T&key=...;
    kafka:SERVERS/TOPIC (Spark); or - for lines on standard output.
    """
    from headrace.cli.load_flow import load_flow
    from headrace.engine.endpoints import check_names, with_tick_time
    from headrace.engine.progress import combine_observers
    from headrace.engine.progress_display import progress_reporter
    from headrace.io import parse_sink, parse_source

    if metrics_file is not None and metrics is not None:
        raise BadInput("--metrics and --metrics-file are given", fix="give one of them")
    if adopt and rebuild:
        raise BadInput("--adopt and --rebuild are given", fix="give one of them")
    replacing = "--adopt" if adopt else "--rebuild" if rebuild else None
    if replacing is not None:
        _check_new_checkpoint(replacing, checkpoint, follow=follow)
    loaded = load_flow(flow)
    uris = parse_named_uris("source", source or ())
    sources = {name: parse_source(uri) for name, uri in uris.items()}
    given_sinks = parse_named_uris("sink", sink or ()) or dict.fromkeys(loaded.graph().sinks, "-")
    sinks = {name: parse_sink(uri) for name, uri in given_sinks.items()}
    graph = loaded.graph()
    check_names(graph, with_tick_time(graph, sources), sinks, command=True)
    if follow and progress is not False:
        typer.echo(following(uris, checkpoint), err=True)
    limits = tick_row_limits(tick_rows or ())

    def subject() -> RunSubject:
        from headrace.ui import RunSubject

        ends = () if end is None else ("--end" if end else "--keep-open",)
        options = (*_each("--source", source), *_each("--tick-rows", tick_rows), *ends)
        return RunSubject(
            loaded, on.value, sources, sinks, checkpoint, why_process(["why", *options], flow), shards
        )

    shown = subject if ui or ui_port is not None else None
    summary = _Summary()
    with serving_run_page(shown, ui_port or 0) as page, progress_reporter(progress) as on_tick:

        def run_with(checkpoint: str | None, sinks: Mapping[str, Any]) -> Any:
            options = CommandOptions(
                checkpoint,
                follow,
                combine_observers(page.on_tick, on_tick, summary.observe),
                limits,
                max_iterations,
                end,
                shards,
                metrics if metrics_file is None else Path(metrics_file),
                page.observer,
            )
            return _RUNS[on](loaded, sources, sinks, options)

        if replacing is not None and checkpoint is not None:
            from headrace.engine import rebuild as rebuilding

            replace = partial(rebuilding.adopt, loaded) if adopt else rebuilding.rebuild
            result = replace(checkpoint, sources, sinks, run_with)
        else:
            result = run_with(checkpoint, sinks)
    # Rows on standard output say enough.
    shows_summary = progress is not False and any(uri != "-" for uri in given_sinks.values())
    kept = None if replacing is None else "nothing was replaced: the same command begins anew"
    report_and_exit(result, checkpoint, follow=follow, summary=summary if shows_summary else None, kept=kept)


def _check_new_checkpoint(option: str, checkpoint: str | None, *, follow: bool) -> None:
    if checkpoint is None:
        raise BadInput(f"{option} requires --checkpoint: the folder to replace", fix="add it")
    if follow:
        raise BadInput(
            f"{option} and --follow are given",
            why="What is new takes its place when all sources are read.",
            fix=f"run with {option} first, then with --follow",
        )


class _Summary:
    """One-line summary of a run."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._late = 0

    def observe(self, progress: Progress) -> None:
        self._late = sum(progress.late.values())

    def text(self, result: Any) -> str:
        """Return the line. Late rows are counted over all runs of a checkpoint."""
        seconds = time.monotonic() - self._begun
        done = (
            f"{_count(result.ticks, 'tick')} in {seconds:,.1f} s: {_count(result.rows_in, 'row')} read, "
            f"{_count(result.changes_out, 'change')} written"
        )
        exceptional_rows = {"unreadable and set aside": result.set_aside, "late so far": self._late}
        return "; ".join((done, *(f"{_count(n, 'row')} {what}" for what, n in exceptional_rows.items() if n)))


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def following(uris: Mapping[str, str], checkpoint: str | None) -> str:
    """Describe the sources that a following run waits for, and its current tick."""
    from headrace.io.uri import Uri

    names = ", ".join(f"{name} ({Uri.of(uri).shown})" for name, uri in uris.items())
    watched = f"following {names}" if names else "no sources to follow"
    return f"{watched}, at tick {_last_tick(checkpoint)}; waiting for new rows, Ctrl-C stops"


def _last_tick(checkpoint: str | None) -> int:
    from headrace.state.commit import CommitLog

    return 0 if checkpoint is None else CommitLog(Path(checkpoint)).last_tick()


def _each(option: str, values: Sequence[str] | None) -> list[str]:
    return [f"{option}={value}" for value in values or ()]


def tick_row_limits(texts: Sequence[str]) -> int | dict[str, int] | None:
    """Parse --tick-rows: N for all sources, or NAME=N pairs. Raises `BadInput`."""
    by_name: dict[str, int] = {}
    for text in texts:
        name, equals, number = text.rpartition("=")
        if not number.isdecimal() or (not equals and len(texts) > 1) or (equals and not name):
            raise BadInput(
                f"--tick-rows {text}: expected a number of rows, or NAME=N once per source",
                fix="--tick-rows 500, or --tick-rows orders=500 --tick-rows prices=10",
            )
        if not equals:
            return int(number)
        by_name[name] = int(number)
    return by_name or None


def _run_here(
    flow: Flow, sources: Mapping[str, Any], sinks: Mapping[str, Any], options: CommandOptions
) -> Any:
    from headrace.engine.run import run as run_here

    if options.shards is not None:
        raise BadInput("--shards requires --on spark: this process has a single shard", fix="remove it")
    return run_here(
        flow,
        sources,
        sinks,
        tick_rows=options.tick_rows,
        checkpoint=options.checkpoint,
        follow=options.follow,
        on_tick=options.on_tick,
        max_iterations=options.max_iterations,
        end=options.end,
        metrics=options.metrics,
        observer=options.observer,
    )


def _run_on_spark(
    flow: Flow, sources: Mapping[str, Any], sinks: Mapping[str, Any], options: CommandOptions
) -> Any:
    from headrace.spark import run as run_on_spark

    if options.tick_rows is not None:
        raise BadInput(
            "--tick-rows requires --on here: Spark reads whole files",
            fix="write --source NAME=URI?files_per_tick=N",
        )
    if options.max_iterations is not None:
        raise BadInput(
            "--max-iterations requires --on here",
            fix="give it to the flow: flow.feedback(..., max_iterations=N)",
        )
    return run_on_spark(
        flow,
        sources=sources,
        sinks=sinks,
        checkpoint=options.checkpoint,
        shards=options.shards,
        follow=options.follow,
        on_tick=options.on_tick,
        end=options.end,
        metrics=options.metrics,
        observer=options.observer,
    )


_RUNS = {EngineChoice.HERE: _run_here, EngineChoice.SPARK: _run_on_spark}


def report_and_exit(
    result: Any,
    checkpoint: str | None,
    *,
    follow: bool = False,
    summary: _Summary | None = None,
    kept: str | None = None,
) -> None:
    """Print closing messages, and exit with the code of the signal that ended the run, if any.

    kept: what a stopped run has left; by default, the state in its checkpoint.
    """
    from headrace.cli.exit_codes import signal_code
    from headrace.io.keyed_tables import report_lines

    sys.stdout.flush()  # Through a pipe, the rows would otherwise follow these messages.
    if summary is not None and result.ticks:
        typer.echo(summary.text(result), err=True)
    elif result.set_aside:
        rows, were = ("1 row", "was") if result.set_aside == 1 else (f"{result.set_aside:,} rows", "were")
        typer.echo(f"{rows} could not be read and {were} set aside", err=True)
    for line in report_lines(result.held_back):
        typer.echo(line, err=True)
    if result.stopped_by is None:
        if not result.ticks and not follow:
            typer.echo(f"nothing new since tick {result.last_tick}", err=True)
        return
    if kept is None and checkpoint is None:
        kept = "nothing is saved without --checkpoint"
    elif kept is None:
        kept = f"state is saved in {checkpoint}: the same command resumes from there"
    typer.echo(f"stopped after tick {result.last_tick}; {kept}", err=True)
    raise typer.Exit(signal_code(result.stopped_by))


UiPort = Annotated[
    int | None,
    typer.Option("--ui-port", min=0, max=65535, help="Port of the page (default: a free one); implies --ui."),
]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port of the page. Default: a free one.")]
_WHY_SECONDS = 8.0
"""Seconds of searching, after the flow is loaded and the sources are read."""


@dataclass(frozen=True, slots=True)
class RunCallbacks:
    """Callbacks that keep a run's page up to date; None without a page."""

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
    port: Port = 0,
) -> None:
    """Serve a page of a checkpoint until Ctrl-C: its tick, positions, watermarks and state by operator.

    The checkpoint is not modified. While a run writes it, the page follows.
    """
    from headrace.ui import CheckpointPage

    serve_until_interrupted(CheckpointPage(checkpoint), port)


def serve_until_interrupted(page: Page, port: int) -> None:
    """Serve a page, and print its URL, until Ctrl-C."""
    from headrace.ui import serving_page

    with serving_page(page, port) as url:
        typer.echo(f"open {url}", err=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            raise typer.Exit(signal_code(signal.SIGINT)) from None
