"""Runs of a pipeline: tables brought up to date from one snapshot of the inputs, and published together."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headrace.errors import HeadraceError, SourceLocation
from headrace.pipelines.catalog import PipelineCatalog, TableEntry
from headrace.pipelines.definitions import (
    POLICY,
    SNAPSHOTS,
    Dataset,
    Place,
    Policy,
    TableName,
    parse_policy,
)
from headrace.pipelines.deliveries import deliver, has_undelivered
from headrace.pipelines.delta_source import register_delta
from headrace.pipelines.errors import AbsentSpark, BadDefinition, BadSpec, NeedsSpark, Report
from headrace.pipelines.graph import Graph, StoredTable, analysed, read_definitions
from headrace.pipelines.in_process_update import InProcessUpdater
from headrace.pipelines.kept_analysis import KeptAnalysis, recording
from headrace.pipelines.kept_analysis import keep as keep_analysis
from headrace.pipelines.kept_analysis import load as load_analysis
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
Sessions: TypeAlias = "SparkSession | Callable[[], SparkSession]"
"""A session of Spark, or what starts one where a run needs it."""


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
    spark: Sessions,
    selection: Selection | None = None,
    *,
    policy: Policy | None = None,
    observer: Observer = lambda event: None,
    skip_invalid: bool = False,
    place: Place = Place.AUTO,
) -> RunReport:
    """Bring the tables of a pipeline up to date and publish them.

    spark:        a session, or what starts one: it is asked only if a table needs Spark.
    skip_invalid: leave out files, statements and tables with errors, instead of raising these.

    A table that fails, and those that read it, keep their rows; so do those that are not selected. Whatever
    ends the run before it publishes leaves all tables as they were.

    Raises the errors of `planned`, `UnknownDataset` for a selection, and `PipelineInUse`.
    """
    with PipelineCatalog.open(spec.storage) as catalog, ExitStack() as closing:
        project = Project(spec, spark, policy, closing, skip_invalid=skip_invalid)
        kept = "Spark is asked for" if place is Place.SPARK else load_analysis(spec, policy)
        if isinstance(kept, KeptAnalysis):
            graph, plans = kept.graph, kept.plans
        elif place is Place.HERE:
            raise NeedsSpark(
                f"the project is to be analysed: {kept}", fix="run it once with --on auto, or --on spark"
            )
        else:
            graph, plans = project.analysed()
        run = _Run(catalog, project, graph, plans, selection or Selection(), place, observer)
        done = run.run()
        # What is left out of the project only because of an error is no orphan.
        orphans = () if project.errors else orphans_of(catalog, run.graph)
        return replace(done, orphans=orphans, errors=project.errors)


@dataclass(slots=True)
class Project:
    """A project that is analysed by Spark once a run needs it. closing: closed when the run ends."""

    spec: PipelineSpec
    sessions: Sessions
    policy: Policy | None
    closing: ExitStack
    skip_invalid: bool = False
    errors: list[HeadraceError] = field(default_factory=list[HeadraceError])
    session: SparkSession | None = None

    def analysed(self) -> tuple[Graph, Mapping[TableName, TablePlan]]:
        """Return the graph and the plans, and keep them for later runs. Raises the errors of `planned`."""
        from pyspark.sql import SparkSession

        sessions = self.sessions
        spark = sessions if isinstance(sessions, SparkSession) else sessions()
        report = self.errors.append if self.skip_invalid else None
        with recording() as record:
            graph, plans = self.closing.enter_context(planned(self.spec, spark, self.policy, report))
        self.session = SparkSession.getActiveSession()
        graph = _plannable_part(graph, plans)
        if not self.errors:
            keep_analysis(self.spec, self.policy, graph, plans, record)
        return graph, plans


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
    project: Project
    graph: Graph
    plans: Mapping[TableName, TablePlan]
    selection: Selection
    place: Place
    observer: Observer
    events: dict[TableName, Event] = field(default_factory=dict[TableName, Event])
    selected: frozenset[TableName] = frozenset()
    anew: frozenset[TableName] = frozenset()

    @property
    def _spark(self) -> SparkSession:
        return self.project.session or cast("SparkSession", AbsentSpark())

    def run(self) -> RunReport:
        self.selected, self.anew = _selected(self.graph, self.selection)
        for table in self.graph.tables:
            chosen = table.name in self.selected
            self._report(Event(table.dataset, UpdateState.QUEUED if chosen else UpdateState.EXCLUDED))
        self._deliver(last=False)
        snapshot = RunSnapshot(self.catalog, self.graph, self._spark, dict(self.catalog.entries))
        snapshot.compare(self.plans.values())
        done = set[TableName]()
        try:
            while (table := self._next(done)) is not None:
                self._update(table, snapshot)
                done.add(table.name)
        finally:
            snapshot.files.close()
        published = self._to_publish(snapshot.entries)
        if published != self.catalog.published:
            self.catalog.commit(published, snapshot.entries)
        snapshot.files.contents.clean(self.catalog.files_read())
        self._deliver(last=True)
        return RunReport(self.events)

    def _next(self, done: AbstractSet[TableName]) -> StoredTable | None:
        """Return the next table to bring up to date. The graph may be another one once Spark has analysed it."""
        tables = (table for table in self.graph.tables if table.name in self.selected)
        return next((table for table in tables if table.name not in done), None)

    def _start_spark(self, snapshot: RunSnapshot | None, why: str) -> None:
        """Go on with Spark, for what cannot be done in this process. Raises `NeedsSpark` if it must not."""
        if self.place is Place.HERE:
            raise NeedsSpark(
                "it can only be brought up to date by Spark", why=f"{why}.", fix="run it with --on auto"
            )
        self.graph, self.plans = self.project.analysed()
        self.selected, self.anew = _selected(self.graph, self.selection)
        if snapshot is not None:
            snapshot.graph, snapshot.spark = self.graph, self._spark
            snapshot.compare(self.plans.values())

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
                if self.project.session is None and has_undelivered(self.catalog, table):
                    self._start_spark(None, "a delivery is written by Spark")
                deliver(self.catalog, self.graph.table(table.name), self._spark)
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
            updated = self._updated(table, snapshot)
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

    def _updated(self, table: StoredTable, snapshot: RunSnapshot) -> Updated:
        """Bring a table up to date: in this process if it can be, else by Spark."""
        plan, anew = self.plans[table.name], table.name in self.anew
        why = "Spark is asked for"
        if self.place is not Place.SPARK and not anew:
            try:
                return InProcessUpdater(snapshot.without_spark(), plan, anew).run()
            except NeedsSpark as error:
                why = error.what
        if self.project.session is None:
            self._start_spark(snapshot, f"{table.dataset.title}: {why}")
        return Updater(snapshot, self.plans[table.name], anew).run()

    def _report(self, event: Event) -> None:
        self.events[event.table] = event
        self.observer(event)


@contextmanager
def spark_for(spec: PipelineSpec) -> Generator[Callable[[], SparkSession]]:
    """Yield a function that gives the existing Spark session, or starts one with a project's settings.

    One that it has started is stopped after the block.
    """
    from pyspark import SparkContext

    started: list[SparkSession] = []

    def start() -> SparkSession:
        from headrace.spark.session import need_pyspark, session

        need_pyspark()
        there = SparkContext._active_spark_context is not None  # pyright: ignore[reportPrivateUsage]
        given = dict(settings_of(spec))
        memory = given.pop("spark.driver.memory", "1g")
        spark = session(app_name=spec.name, memory=memory, config=given)
        if not there:
            started.append(spark)
        return spark

    try:
        yield start
    finally:
        for spark in started:
            spark.stop()
