"""Runs of a pipeline: tables brought up to date from one snapshot of the inputs, and published together."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headrace.errors import HeadraceError, SourceLocation
from headrace.pipelines.catalog import PipelineCatalog, TableEntry
from headrace.pipelines.definitions import POLICY, SNAPSHOTS, Dataset, Policy, TableName, parse_policy
from headrace.pipelines.deliveries import deliver
from headrace.pipelines.delta_source import register_delta
from headrace.pipelines.errors import BadDefinition, BadSpec, Report
from headrace.pipelines.graph import Graph, StoredTable, analysed, read_definitions
from headrace.pipelines.plans import TablePlan, plan_tables
from headrace.pipelines.query_errors import message_of
from headrace.pipelines.run_snapshot import RunSnapshot
from headrace.pipelines.spec import PipelineSpec, settings_of
from headrace.pipelines.table_update import Updated, Updater
from headrace.queries.plan_details import java_class
from headrace.queries.planning import activate, without_error_log
from headrace.shown import Shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_SETTINGS = {
    "spark.sql.caseSensitive": "false",
    "spark.sql.debug.maxToStringFields": "10000",
    # Times as other readers of Parquet know them, with their zone.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""Settings of a project's session, unless its configuration has others."""


class UpdateState(Enum):
    """State of a table in a run, as `spark-pipelines` names them."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    EXCLUDED = "EXCLUDED"


@dataclass(frozen=True, slots=True)
class Event:
    """Change of a table's state in a run. seconds: duration of the update."""

    dataset: Dataset
    state: UpdateState
    updated: Updated | None = None
    changed: bool = False
    error: Exception | None = None
    seconds: float = 0.0

    @property
    def table(self) -> TableName:
        return self.dataset.name


@dataclass(frozen=True, slots=True)
class Selection:
    """Tables of a run, as the command line names them; all, if none is named.

    full: they are made anew. full_all: so are all.
    """

    refresh: Sequence[str] = ()
    full: Sequence[str] = ()
    full_all: bool = False


Observer: TypeAlias = Callable[[Event], object]


@dataclass(frozen=True, slots=True)
class RunReport(Shown):
    """Outcome of a run: the last event of each table.

    orphans: tables of the storage that the project does not define. errors: of files, statements and tables
    that were left out, if the run was to go on without them.
    """

    events: Mapping[TableName, Event]
    orphans: Sequence[TableName] = ()
    errors: Sequence[HeadraceError] = ()

    @property
    def failed(self) -> bool:
        return bool(self.errors) or any(event.state is UpdateState.FAILED for event in self.events.values())


@contextmanager
def planned(
    spec: PipelineSpec, spark: SparkSession, default: Policy | None = None, report: Report | None = None
) -> Generator[tuple[Graph, Mapping[TableName, TablePlan]]]:
    """Provide the graph of a project with the plan of each table: all that is known before a run.

    default: policy of tables that have none; else that of the spec's configuration.
    report:  is given the errors of single files, statements and tables; what they concern is left out.

    Raises `BadSpec`, and without a `report` `BadDefinition`, `QueryRefused`, and `NotIncremental`.
    """
    with _session_of(spec, spark) as session, _working_folder(spec.root, session):
        definitions = read_definitions(spec, session, report)
        with (
            TemporaryDirectory(prefix="headrace-empty-") as empty,
            analysed(
                definitions, session, Path(empty), PipelineCatalog.last_entries(spec.storage), report
            ) as graph,
        ):
            yield graph, plan_tables(graph, default or default_policy(spec), session, report)


@contextmanager
def _session_of(spec: PipelineSpec, spark: SparkSession) -> Generator[SparkSession]:
    """Provide a separate session for a project, with its settings and case-insensitive names.

    It is the active one meanwhile, which query functions ask for.
    """
    from pyspark.sql import SparkSession as Sessions

    if spark.conf.get("spark.sql.catalogImplementation") != "in-memory":
        raise BadSpec(
            "the session has a Hive catalogue",
            where=[SourceLocation(str(spec.file), 1)],
            why="Tables of a pipeline lie under its storage; the catalogue's own would be in the way.",
            fix="remove spark.sql.catalogImplementation from the configuration",
            field="configuration",
        )
    session, before = spark.newSession(), Sessions.getActiveSession()
    for key, value in {**_SETTINGS, **settings_of(spec)}.items():
        if session.conf.isModifiable(key):
            _set(session, key, value, spec)
    activate(session)
    try:
        with without_error_log():
            register_delta(session, spec.root)
            yield session
    finally:
        activate(before or spark)


def _set(session: SparkSession, key: str, value: str, spec: PipelineSpec) -> None:
    try:
        session.conf.set(key, value)
    except (PySparkException, Py4JJavaError) as error:
        raise BadSpec(
            f"'configuration' has {key}: {value!r}",
            where=[SourceLocation(str(spec.file), 1)],
            why=message_of(error),
            fix="correct the value",
            field="configuration",
        ) from None


@contextmanager
def _working_folder(folder: Path, spark: SparkSession) -> Generator[None]:
    """Set the working folder, of this process and of Spark, for the block."""
    hadoop = java_class(spark, "org.apache.hadoop.fs")
    configuration = spark.sparkContext._jsc.hadoopConfiguration()  # pyright: ignore
    files: Any = hadoop.FileSystem.get(hadoop.Path("file:/").toUri(), configuration)
    before, there = Path.cwd(), files.getWorkingDirectory()
    os.chdir(folder)
    files.setWorkingDirectory(hadoop.Path(f"file:{folder}"))
    try:
        yield
    finally:
        os.chdir(before)
        files.setWorkingDirectory(there)


def run_pipeline(
    spec: PipelineSpec,
    spark: SparkSession,
    selection: Selection | None = None,
    *,
    policy: Policy | None = None,
    observer: Observer = lambda event: None,
    skip_invalid: bool = False,
) -> RunReport:
    """Bring the tables of a pipeline up to date and publish them.

    skip_invalid: leave out files, statements and tables with errors, instead of raising these.

    A table that fails, and those that read it, keep their rows; so do those that are not selected. Whatever
    ends the run before it publishes leaves all tables as they were.

    Raises the errors of `planned`, `UnknownDataset` for a selection, and `PipelineInUse`.
    """
    from pyspark.sql import SparkSession

    errors: list[HeadraceError] = []
    report = errors.append if skip_invalid else None
    with (
        PipelineCatalog.open(spec.storage) as catalog,
        planned(spec, spark, policy, report) as (graph, plans),
    ):
        graph = _plannable_part(graph, plans)
        selected, anew = _selected(graph, selection or Selection())
        session = SparkSession.getActiveSession()
        assert session is not None
        done = _Run(catalog, graph, plans, session, selected, anew, observer).run()
        # What is left out of the project only because of an error is no orphan.
        orphans = () if errors else orphans_of(catalog, graph)
        return replace(done, orphans=orphans, errors=errors)


def _plannable_part(graph: Graph, plans: Mapping[TableName, TablePlan]) -> Graph:
    """Return a graph without the tables that cannot be planned, and without their readers."""
    kept: dict[TableName, StoredTable] = {}
    for table in graph.tables:
        if table.name in plans and table.reads <= kept.keys():
            kept[table.name] = table
    return replace(graph, tables=tuple(kept.values()))


def orphans_of(catalog: PipelineCatalog, graph: Graph) -> list[TableName]:
    """Return the tables of a storage that its project does not define: renamed, or removed.

    Also kept snapshots that nothing reads. Of a table whose source cannot be reached, nobody knows which it
    would read.
    """
    defined = {table.name for table in graph.tables}
    if any(table.failure is not None for table in graph.tables):
        defined |= {name for name in catalog.entries if name.database == SNAPSHOTS}
    return sorted(catalog.entries.keys() - defined)


def default_policy(spec: PipelineSpec) -> Policy:
    """Return the policy of tables that have none. Raises `BadDefinition` for an unknown one."""
    given = spec.configuration.get(POLICY, Policy.AUTO.value)
    return parse_policy(given, "the configuration", [SourceLocation(str(spec.file), 1)])


def _selected(graph: Graph, selection: Selection) -> tuple[frozenset[TableName], frozenset[TableName]]:
    """Return the tables to refresh, and the subset to rebuild."""
    names = frozenset(table.name for table in graph.tables)
    if selection.full_all:
        if selection.full or selection.refresh:
            raise BadDefinition(
                "--full-refresh-all goes with neither --refresh nor --full-refresh", fix="give one of them"
            )
        return names, names
    find = graph.definitions.find
    full = frozenset(find(text).name for text in selection.full)
    refresh = frozenset(find(text).name for text in selection.refresh)
    if both := full & refresh:
        raise BadDefinition(
            f"{', '.join(sorted(map(str, both)))} would be refreshed and fully refreshed",
            fix="name each table once",
        )
    chosen = full | refresh or names
    return chosen | graph.snapshots_of(chosen), full


@dataclass(slots=True)
class _Run:
    catalog: PipelineCatalog
    graph: Graph
    plans: Mapping[TableName, TablePlan]
    spark: SparkSession
    selected: frozenset[TableName]
    anew: frozenset[TableName]
    observer: Observer
    events: dict[TableName, Event] = field(default_factory=dict[TableName, Event])

    def run(self) -> RunReport:
        for table in self.graph.tables:
            chosen = table.name in self.selected
            self._report(Event(table.dataset, UpdateState.QUEUED if chosen else UpdateState.EXCLUDED))
        self._deliver(last=False)
        compared = frozenset(root for plan in self.plans.values() for root in plan.compared_files)
        snapshot = RunSnapshot(self.catalog, self.graph, self.spark, dict(self.catalog.entries), compared)
        try:
            for table in self.graph.tables:
                if table.name in self.selected:
                    self._update(table, snapshot)
        finally:
            snapshot.files.close()
        published = self._to_publish(snapshot.entries)
        if published != self.catalog.published:
            self.catalog.commit(published, snapshot.entries)
        snapshot.files.contents.clean(self.catalog.files_read())
        self._deliver(last=True)
        return RunReport(self.events)

    def _to_publish(self, entries: Mapping[TableName, TableEntry]) -> dict[TableName, TableEntry]:
        """Return the tables that this run has brought up to date, the versions they have read, and the others
        as they are published.

        A run that died may have left versions of tables that this one did not refresh.
        """
        published = dict(self.catalog.published)
        found = [name for name, event in self.events.items() if event.state is UpdateState.COMPLETED]
        while found:
            name = found.pop()
            if name in entries and published.get(name) != entries[name]:
                published[name] = entries[name]
                found += self.graph.table(name).reads
        return published

    def _deliver(self, *, last: bool) -> None:
        """Deliver what is published. The next run retries what fails."""
        for table in self.graph.tables:
            try:
                deliver(self.catalog, table, self.spark)
            except Exception as error:
                if last:
                    self._report(Event(table.dataset, UpdateState.FAILED, error=error))

    def _update(self, table: StoredTable, snapshot: RunSnapshot) -> None:
        if table.failure is not None:
            self._report(Event(table.dataset, UpdateState.FAILED, error=table.failure))
            return
        if any(self.events[name].state in (UpdateState.FAILED, UpdateState.SKIPPED) for name in table.reads):
            self._report(Event(table.dataset, UpdateState.SKIPPED))
            return
        self._report(Event(table.dataset, UpdateState.RUNNING))
        start = perf_counter()
        try:
            updated = Updater(snapshot, self.plans[table.name], table.name in self.anew).run()
        except Exception as error:
            self._report(
                Event(table.dataset, UpdateState.FAILED, error=error, seconds=perf_counter() - start)
            )
            return
        snapshot.check(leaf for query in table.queries for leaf in query.leaves)
        before = snapshot.entries.get(table.name)
        snapshot.entries[table.name] = updated.entry
        if updated.entry != before:
            self.catalog.record(snapshot.entries)
        changed = before is None or before.version != updated.entry.version
        self._report(
            Event(table.dataset, UpdateState.COMPLETED, updated, changed, seconds=perf_counter() - start)
        )

    def _report(self, event: Event) -> None:
        self.events[event.table] = event
        self.observer(event)


@contextmanager
def spark_for(spec: PipelineSpec) -> Generator[SparkSession]:
    """Yield the existing Spark session, or start one with a project's settings for the block."""
    from pyspark import SparkContext

    from headrace.spark.session import session

    started = SparkContext._active_spark_context is None  # pyright: ignore[reportPrivateUsage]
    given = dict(settings_of(spec))
    memory = given.pop("spark.driver.memory", "1g")
    spark = session(app_name=spec.name, memory=memory, config=given)
    try:
        yield spark
    finally:
        if started:
            spark.stop()
