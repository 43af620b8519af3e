"""`penstock run`: a flow from sources to sinks, in this process or on Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.engine_option import Where
from penstock.errors import BadInput, BadUri

if TYPE_CHECKING:
    from penstock.flow.flow import Flow


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the command beside sources and sinks; None where an option was not given."""

    checkpoint: str | None
    follow: bool
    on_tick: Callable[[Any], None]
    tick_rows: int | dict[str, int] | None
    max_iterations: int | None
    end: bool | None
    shards: int | None
    metrics: str | None


def run(
    flow: Annotated[str, typer.Argument(help="module:flow or path/to/file.py:flow")],
    on: Annotated[Where, typer.Option(help="In this process, or on Spark.")] = Where.HERE,
    source: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=URI",
            help="json:PATH, csv:PATH or parquet:PATH, or a path with such an ending; "
            "?dead_letter=FOLDER&files_per_tick=N may follow. PATH is a folder, a file or a pattern. "
            "debezium+json:PATH and the like for change data; delta:PATH; kafka:SERVERS/TOPIC (Spark).",
        ),
    ] = None,
    sink: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=URI",
            help="changelog:PATH, table:PATH?key=COLUMN,..., delta:PATH?key=..., "
            "postgresql://USER@HOST/DATABASE?table=T&key=..., kafka:SERVERS/TOPIC (Spark) "
            "or - (lines on standard output). "
            "Without any, all sinks are printed; with some, only those are written.",
        ),
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="A folder for state and positions: the next run goes on from there.")
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow/--once", help="Wait for new files until Ctrl-C, or end when all are read."),
    ] = False,
    tick_rows: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]N",
            help="Rows per source and tick at most, for all sources or for one (here: 1000).",
        ),
    ] = None,
    max_iterations: Annotated[
        int | None,
        typer.Option(min=1, help="Rounds of a loop within one tick at most, instead of the flow's own."),
    ] = None,
    end: Annotated[
        bool | None,
        typer.Option(
            "--end/--keep-open",
            help="Whether sources that are read have ended, so that windows of event time close. "
            "Without it they have, unless there is a checkpoint to go on from.",
            show_default=False,
        ),
    ] = None,
    shards: Annotated[int | None, typer.Option(min=1, help="Parts of the state (Spark).")] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT",
            help="Serve metrics for Prometheus while the run lasts; a port alone is of this machine only.",
        ),
    ] = None,
    progress: Annotated[
        bool | None,
        typer.Option(
            "--progress/--no-progress",
            help="A line per tick on standard error, or none. Without it: a block that changes on a "
            "terminal, and elsewhere a line every half minute.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run a flow until its sources are read, or for ever with --follow.

    Ctrl-C and SIGTERM end after the tick at work, committed; a second one acts at once. With
    --checkpoint the same command goes on from there.
    """
    from penstock.cli.load import load_flow
    from penstock.cli.progress import shown_progress
    from penstock.io import parse_sink, parse_source

    loaded = load_flow(flow)
    sources = {name: parse_source(uri) for name, uri in named("source", source or ()).items()}
    given_sinks = named("sink", sink or ()) or dict.fromkeys(loaded.graph().sinks, "-")
    sinks = {name: parse_sink(uri) for name, uri in given_sinks.items()}
    with shown_progress(progress) as on_tick:
        result = _RUNS[on](
            loaded,
            sources,
            sinks,
            Options(
                checkpoint, follow, on_tick, limits(tick_rows or ()), max_iterations, end, shards, metrics
            ),
        )
    report(result, checkpoint)


def named(kind: str, texts: Sequence[str]) -> dict[str, str]:
    """NAME=URI options as a dict. Raises `BadUri`."""
    from penstock.io.postgres.server import without_password

    found: dict[str, str] = {}
    for text in texts:
        name, equals, uri = text.partition("=")
        if not equals or not name or not uri:
            shown = without_password(text)
            raise BadUri(f"--{kind} {shown}: that is not NAME=URI", uri=shown)
        if name in found:
            raise BadUri(f"--{kind} {name}=... is given twice", uri=without_password(text))
        found[name] = uri
    return found


def limits(texts: Sequence[str]) -> int | dict[str, int] | None:
    """N, or NAME=N options as a dict. Raises `BadInput`."""
    by_name: dict[str, int] = {}
    for text in texts:
        name, equals, number = text.rpartition("=")
        if not number.isdecimal() or (not equals and len(texts) > 1) or (equals and not name):
            raise BadInput(
                f"--tick-rows {text}: that is not a number of rows, or NAME=N once per source",
                fix="--tick-rows 500, or --tick-rows orders=500 --tick-rows prices=10",
            )
        if not equals:
            return int(number)
        by_name[name] = int(number)
    return by_name or None


def _run_here(flow: Flow, sources: Mapping[str, Any], sinks: Mapping[str, Any], options: Options) -> Any:
    from penstock.engine.run import run as run_here

    if options.shards is not None:
        raise BadInput("--shards is for --on spark: in this process there is one", fix="leave it out")
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
    )


def _run_on_spark(flow: Flow, sources: Mapping[str, Any], sinks: Mapping[str, Any], options: Options) -> Any:
    from penstock.spark import run as run_on_spark

    if options.tick_rows is not None:
        raise BadInput(
            "--tick-rows is for --on here: Spark takes whole files",
            fix="write --source NAME=URI?files_per_tick=N",
        )
    if options.max_iterations is not None:
        raise BadInput(
            "--max-iterations is for --on here",
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
    )


_RUNS = {Where.HERE: _run_here, Where.SPARK: _run_on_spark}


def report(result: Any, checkpoint: str | None) -> None:
    """Say what a user must know at the end; the exit code of a signal if one ended the run."""
    from penstock.cli.exit_codes import signal_code
    from penstock.io.delivery.held_back import report_lines

    if result.set_aside:
        typer.echo(f"{result.set_aside:,} rows could not be read and were set aside", err=True)
    for line in report_lines(result.held_back):
        typer.echo(line, err=True)
    if result.stopped_by is None:
        return
    if checkpoint is None:
        kept = "nothing is kept: there was no --checkpoint"
    else:
        kept = f"state is saved in {checkpoint}: the same command goes on from there"
    typer.echo(f"stopped after tick {result.last_tick}; {kept}", err=True)
    raise typer.Exit(signal_code(result.stopped_by))
