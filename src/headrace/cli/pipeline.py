"""`headrace pipeline`: run a project of `spark-pipelines` by the changes of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.exit_codes import FAILED, signal_code
from headrace.cli.inspection import (
    AsJson,
    DrawingFormat,
    Seconds,
    drawing_of,
    parse_texts,
    report,
    report_unexplained,
)
from headrace.cli.row_formats import RowsFormat
from headrace.cli.run import Port, serve_until_interrupted, why_process
from headrace.errors import BadInput, HeadraceError
from headrace.pipelines.definitions import Place, Policy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipelines.pipeline_run import Observer, RunReport
    from headrace.pipelines.spec import PipelineSpec

pipeline = typer.Typer(
    name="pipeline", no_args_is_help=True, help="Run, check, explain and draw projects of spark-pipelines."
)

Spec = Annotated[
    Path | None,
    typer.Option(help="Spec file. Default: spark-pipeline.yml in this folder or the nearest one above."),
]


RefreshPolicy = Annotated[
    Policy | None,
    typer.Option(help="Policy of materialized views that have none. Default: the spec's, or auto."),
]


On = Annotated[
    Place,
    typer.Option(
        "--on",
        help="Where tables are refreshed: in this process if possible (auto), only there, or by Spark.",
    ),
]


class LogFormat(Enum):
    TEXT = "text"
    JSON = "json"


@pipeline.command()
def run(
    spec: Spec = None,
    refresh: Annotated[
        list[str] | None, typer.Option(metavar="TABLE,...", help="Refresh these tables only.")
    ] = None,
    full_refresh: Annotated[
        list[str] | None, typer.Option(metavar="TABLE,...", help="Recompute these tables from all rows.")
    ] = None,
    full_refresh_all: Annotated[bool, typer.Option(help="Recompute all tables.")] = False,
    refresh_policy: RefreshPolicy = None,
    continuous: Annotated[
        bool, typer.Option("--continuous", help="Run again and again, until Ctrl-C.")
    ] = False,
    every: Annotated[
        float,
        typer.Option(
            min=0, metavar="SECONDS", help="Longest pause between two runs of --continuous; files end it."
        ),
    ] = 10.0,
    log_format: Annotated[
        LogFormat, typer.Option(help="Lines of text, or a JSON object for each event.")
    ] = LogFormat.TEXT,
    on: On = Place.AUTO,
    metrics_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.prom",
            help="Write Prometheus metrics at the end of the run, for node_exporter's textfile collector.",
        ),
    ] = None,
    metrics_push: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Push Prometheus metrics to a Pushgateway at the end of the run."),
    ] = None,
    lineage: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL", help="Send OpenLineage events. Default: where the spec says, or none."
        ),
    ] = None,
) -> None:
    """Bring the tables of a pipeline up to date, and publish all of them at once.

    A table that fails keeps its rows, and so do those that read it; the exit code is 1 then. With
    --continuous it is tried again, as files of the project are read again, and only what changes is shown. A
    file with an error then leaves its tables as they are, and the others go on.
    """
    from headrace.cli.pipeline_events import JSON_PRINTER, TEXT_PRINTER, News
    from headrace.pipelines.lineage import lineage_listeners
    from headrace.pipelines.pipeline_run import Selection, WarmProject, run_pipeline
    from headrace.pipelines.run_metrics import metrics_listeners
    from headrace.pipelines.spec import find_spec, read_spec
    from headrace.pipelines.table_update import Stopped
    from headrace.pipelines.watch import Watch

    listeners = [
        *metrics_listeners(metrics_file, metrics_push),
        *lineage_listeners(read_spec(spec or find_spec(Path.cwd())), lineage),
    ]
    selection = Selection(_names(refresh), _names(full_refresh), full_refresh_all)
    try:
        with _session(spec) as (project, start), _observer(log_format) as observer:
            watch, warm = Watch(project), WarmProject()
            report = run_pipeline(
                project,
                start,
                selection,
                policy=refresh_policy,
                observer=observer,
                listeners=listeners,
                place=on,
                warm=warm,
            )
            selection = Selection((*selection.refresh, *selection.full))
            if continuous:
                typer.echo(f"following all inputs, every {every:g} seconds; Ctrl-C stops", err=True)
            news = News(observer, report, JSON_PRINTER if log_format is LogFormat.JSON else TEXT_PRINTER)
            if continuous:
                news.report(report)
            while continuous:
                watch.wait(every)
                try:
                    report = run_pipeline(
                        project,
                        start,
                        selection,
                        policy=refresh_policy,
                        observer=news.event,
                        listeners=listeners,
                        skip_invalid=True,
                        place=on,
                        only_news=True,
                        warm=warm,
                    )
                    news.report(report)
                except HeadraceError as error:
                    news.errors([error])
    except Stopped as stopped:
        typer.echo("stopped: all tables are as the last run left them", err=True)
        raise typer.Exit(signal_code(stopped.signal)) from None
    _finish(report, log_format)


@pipeline.command()
def events(
    table: Annotated[str | None, typer.Option(metavar="TABLE", help="Show this table only.")] = None,
    run: Annotated[int | None, typer.Option(metavar="NUMBER", help="Show this run only.")] = None,
    last: Annotated[int, typer.Option(min=1, metavar="N", help="Show so many runs.")] = 10,
    json: Annotated[bool, typer.Option("--json", help="Print records as JSON lines.")] = False,
    spec: Spec = None,
) -> None:
    """Show what the last runs did: the event log.

    For each run and each of its tables: state, method and reason, rows, seconds, processor time, bytes, and
    errors. The log is in STORAGE/events, as JSON lines.
    """
    from headrace.cli.event_listing import list_records
    from headrace.pipelines.event_log import EventLog, find_table
    from headrace.pipelines.spec import find_spec, read_spec

    project = read_spec(spec or find_spec(Path.cwd()))
    log = EventLog(project.storage)
    name = None if table is None else find_table(log, table, project.database)
    records = log.records(table=name, run=run, last=None if run is not None else last)
    if json:
        for each in records:
            typer.echo(each.to_json())
    else:
        typer.echo(list_records(records), nl=False)


@pipeline.command()
def runs(spec: Spec = None) -> None:
    """List the runs whose tables are kept, for diff and rollback.

    A run that changed nothing left the tables as the one before, and is not listed.
    """
    from headrace.cli.pipeline_versions import list_runs
    from headrace.pipelines.run_history import kept_runs
    from headrace.pipelines.spec import find_spec, read_spec

    typer.echo(list_runs(kept_runs(read_spec(spec or find_spec(Path.cwd())))), nl=False)


@pipeline.command()
def diff(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="Table to compare.")],
    before: Annotated[
        int | None, typer.Option("--from", metavar="RUN", help="Earlier run. Default: the one before --to.")
    ] = None,
    after: Annotated[
        int | None, typer.Option("--to", metavar="RUN", help="Later run. Default: the last one.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="Show so many rows; all are counted.")] = 100,
    format: Annotated[
        RowsFormat, typer.Option(help="Output: a table, or one JSON object per line.")
    ] = RowsFormat.TABLE,
    spec: Spec = None,
) -> None:
    """Show the rows by which a table differs between two runs: + came, - went.

    Only files that differ are read, without Spark. Runs are kept as long as the spec's
    headrace.version_retention says.
    """
    from headrace.cli.pipeline_versions import print_diff
    from headrace.pipelines.spec import find_spec, read_spec
    from headrace.pipelines.table_diff import diff_table

    project = read_spec(spec or find_spec(Path.cwd()))
    print_diff(diff_table(project, table, before=before, after=after), limit, format)


@pipeline.command()
def rollback(
    run: Annotated[int, typer.Argument(metavar="RUN", help="Run to go back to, see headrace pipeline runs.")],
    spec: Spec = None,
) -> None:
    """Publish all tables as they were after an earlier run.

    It is a run of its own, so one can go back to the tables as they are now, too. The next run reads its
    inputs from there, and brings Delta tables and changelogs in line; sinks keep what they were given. No
    Spark is started.
    """
    from headrace.cli.pipeline_versions import outcome_of_rollback
    from headrace.pipelines.rollback import rollback as go_back
    from headrace.pipelines.spec import find_spec, read_spec

    typer.echo(outcome_of_rollback(go_back(read_spec(spec or find_spec(Path.cwd())), run)), nl=False)


@pipeline.command()
def backfill(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="Table of which a part is computed again.")],
    where: Annotated[
        str, typer.Option(metavar="CONDITION", help="Rows to compute again: SQL over the table's columns.")
    ],
    refresh_policy: RefreshPolicy = None,
    log_format: Annotated[
        LogFormat, typer.Option(help="Lines of text, or a JSON object for each event.")
    ] = LogFormat.TEXT,
    spec: Spec = None,
) -> None:
    """Compute a part of a table again, from all rows of its inputs, and hand on the difference.

    The table is brought up to date, too; its other rows stay. Tables that read it follow in the next run.
    """
    from headrace.pipelines.pipeline_run import Selection, run_pipeline
    from headrace.pipelines.table_update import Stopped

    try:
        with _session(spec) as (project, start), _observer(log_format) as observer:
            selection = Selection((table,), where=where)
            report = run_pipeline(
                project, start, selection, policy=refresh_policy, observer=observer, place=Place.SPARK
            )
    except Stopped as stopped:
        typer.echo("stopped: all tables are as the last run left them", err=True)
        raise typer.Exit(signal_code(stopped.signal)) from None
    _finish(report, log_format)


@pipeline.command()
def drop(
    tables: Annotated[list[str] | None, typer.Argument(metavar="TABLE...", help="Tables to remove.")] = None,
    orphans: Annotated[
        bool, typer.Option("--orphans", help="Remove all tables that the project does not define.")
    ] = False,
    spec: Spec = None,
) -> None:
    """Remove tables that the project no longer defines, with their rows, state and deliveries."""
    from headrace.pipelines.maintenance import drop as remove

    if bool(tables) == orphans:
        raise BadInput("give either names of tables or --orphans", fix="headrace pipeline drop TABLE")
    with _session(spec) as (project, start):
        removed = remove(project, start(), _names(tables), orphans=orphans)
    typer.echo("\n".join(f"{name} is removed" for name in removed) or "no table is orphaned")


@pipeline.command()
def compact(
    erase: Annotated[
        bool, typer.Option("--erase", help="Remove everything that was taken back, at once.")
    ] = False,
    spec: Spec = None,
) -> None:
    """Write state and output anew, so that no file of the storage holds values that no current row has.

    Exit code 1 if something stays, which is printed. Readers of the tables' earlier version lose its files.
    """
    from headrace.pipelines.maintenance import erase as erase_storage
    from headrace.pipelines.spec import find_spec, read_spec

    if not erase:
        raise BadInput("headrace pipeline compact needs --erase", fix="headrace pipeline compact --erase")
    stays = erase_storage(read_spec(spec or find_spec(Path.cwd())))
    typer.echo("\n".join(f"not erased: {each}" for each in stays) or "erased")
    if stays:
        raise typer.Exit(FAILED)


@pipeline.command()
def dry_run(spec: Spec = None, refresh_policy: RefreshPolicy = None) -> None:
    """Read and analyse a pipeline without running it."""
    from headrace.pipelines.planned_project import known

    with (
        _session(spec) as (project, start),
        known(project, start, refresh_policy) as (graph, plans),
    ):
        for table in (each for each in graph.tables if not each.dataset.shared_by):
            plan = plans[table.name]
            why = f"   {plan.why}" if plan.why else ""
            typer.echo(f"{table.dataset.title}   {plan.method.value}{why}")


@pipeline.command()
def explain(spec: Spec = None, refresh_policy: RefreshPolicy = None) -> None:
    """Show how each table is brought up to date, from what, and what it keeps."""
    from headrace.pipelines.maintenance import explain_pipeline
    from headrace.pipelines.planned_project import known

    with (
        _session(spec) as (project, start),
        known(project, start, refresh_policy) as (graph, plans),
    ):
        typer.echo(explain_pipeline(graph, plans, project.storage), nl=False)


@pipeline.command()
def draw(
    spec: Spec = None,
    refresh_policy: RefreshPolicy = None,
    format: Annotated[DrawingFormat, typer.Option(help="Language of the drawing.")] = DrawingFormat.MERMAID,
) -> None:
    """Draw the tables of a pipeline and what they read."""
    from headrace.pipelines.planned_project import known
    from headrace.view.picture import picture_of_pipeline

    with (
        _session(spec) as (project, start),
        known(project, start, refresh_policy) as (graph, plans),
    ):
        typer.echo(drawing_of(picture_of_pipeline(project.name, graph, plans), format), nl=False)


@pipeline.command()
def ui(spec: Spec = None, port: Port = 0) -> None:
    """Serve a page of a pipeline until Ctrl-C: its tables, runs, rows, changes and expectations.

    The page reads the storage only. It starts neither runs nor Spark, and follows runs of other processes.
    """
    from headrace.pipelines.spec import find_spec, read_spec
    from headrace.ui.pipeline_page import PipelinePage

    project = read_spec((spec or find_spec(Path.cwd())).absolute())
    find_why = why_process(["pipeline", "why", "--kept", f"--spec={project.file}"])
    serve_until_interrupted(PipelinePage(project, find_why), port)


@pipeline.command()
def why(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="Name of the table.")],
    row: Annotated[
        str,
        typer.Argument(
            metavar="ROW", help="Columns of the row as a JSON object; - reads it from standard input."
        ),
    ],
    spec: Spec = None,
    seconds: Seconds = 10.0,
    as_json: AsJson = False,
    kept: Annotated[
        bool,
        typer.Option("--kept", help="Start no Spark: fail if the project's analysis is not kept."),
    ] = False,
) -> None:
    """Find the rows of a table's inputs from which one of its rows was made.

    ROW has some of the row's columns, with their values as the page shows them. The table's flow runs, in
    this process, on the inputs that the published version has read, and rows are left out as long as the row
    still comes out. A table that is recomputed by Spark has no flow: its query is shown, with the rows of its
    inputs that agree in the columns that the query hands on. Exit code 1 if the flow does not give the row,
    and 3 if it is not known where it comes from.
    """
    from headrace.engine.witness import Witness
    from headrace.pipelines.row_provenance import explain_row_of_table

    with _session(spec) as (project, start):
        sessions = None if kept else start
        found = explain_row_of_table(project, sessions, table, parse_texts(row), seconds=seconds)
    if isinstance(found, Witness):
        report(found, as_json=as_json)
    else:
        report_unexplained(found, as_json=as_json)


def _names(given: Sequence[str] | None) -> list[str]:
    return [name.strip() for text in given or () for name in text.split(",") if name.strip()]


@contextmanager
def _session(file: Path | None) -> Generator[tuple[PipelineSpec, Callable[[], SparkSession]]]:
    from headrace.pipelines.spec import find_spec, read_spec
    from headrace.spark.session import need_pyspark

    project = read_spec(file or find_spec(Path.cwd()))
    need_pyspark()
    from headrace.pipelines.planned_project import spark_for

    with spark_for(project) as start:
        yield project, start


@contextmanager
def _observer(log_format: LogFormat) -> Generator[Observer]:
    from headrace.cli.pipeline_events import json_lines, live_table, text_lines

    if log_format is LogFormat.JSON:
        yield json_lines
    else:
        with live_table() as shown:
            yield shown or text_lines


def _finish(report: RunReport, log_format: LogFormat) -> None:
    from headrace.cli.pipeline_events import JSON_PRINTER, TEXT_PRINTER

    (JSON_PRINTER if log_format is LogFormat.JSON else TEXT_PRINTER).end(report)
    if report.failed:
        raise typer.Exit(FAILED)
