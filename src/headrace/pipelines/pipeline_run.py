"""Runs of a pipeline: tables brought up to date from one snapshot of the inputs, and published together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, TypeAlias, cast

from headrace.errors import HeadraceError
from headrace.pipelines.backfill import BackfillUpdater, check_backfill
from headrace.pipelines.catalog import PipelineCatalog, ReadCatalogues, TableEntry
from headrace.pipelines.definitions import (
    SHARED,
    SNAPSHOTS,
    Dataset,
    DatasetKind,
    Place,
    Policy,
    TableName,
)
from headrace.pipelines.deliveries import deliver, has_undelivered
from headrace.pipelines.errors import AbsentSpark, BadDefinition, NeedsSpark, PipelineError
from headrace.pipelines.expectation_checks import update_with_expectations
from headrace.pipelines.graph import Graph, StoredTable
from headrace.pipelines.in_process_update import InProcessUpdater
from headrace.pipelines.kept_analysis import KeptAnalysis, ReadParts
from headrace.pipelines.kept_analysis import load as load_analysis
from headrace.pipelines.planned_project import Project
from headrace.pipelines.query_errors import message_of
from headrace.pipelines.run_recorder import RunListener, recording
from headrace.pipelines.run_snapshot import RunSnapshot
from headrace.pipelines.spec import PipelineSpec
from headrace.pipelines.table_plan import TablePlan
from headrace.pipelines.table_update import Updated, Updater
from headrace.pipelines.update_workers import UpdateWorkers
from headrace.shown import Shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    where: condition of the only rows of the one table to refresh that are also computed again (`backfill`).
    """

    refresh: Sequence[str] = ()
    full: Sequence[str] = ()
    full_all: bool = False
    where: str = ""


@dataclass(frozen=True, slots=True)
class WarmProject:
    """What a process that runs a project again and again keeps from run to run.

    All of it is on disk as well: a run compares it with that, and holds as much as the last run has used.
    """

    analysis: ReadParts = field(default_factory=ReadParts)
    catalogues: ReadCatalogues = field(default_factory=ReadCatalogues)


_Update: TypeAlias = Callable[[], Mapping[TableName, Updated]]

Observer: TypeAlias = Callable[[Event], object]


@dataclass(frozen=True, slots=True)
class RunReport(Shown):
    """Outcome of a run: the last event of each table.

    orphans: tables of the storage that the project does not define. errors: of files, statements and tables
    that were left out, if the run was to go on without them.
    spark: why the run needed Spark; empty if it did not. not_kept: why its analysis is not kept for later
    runs, each of which needs Spark then; empty if it is.
    """

    events: Mapping[TableName, Event]
    orphans: Sequence[TableName] = ()
    errors: Sequence[HeadraceError] = ()
    spark: str = ""
    not_kept: str = ""

    @property
    def failed(self) -> bool:
        return bool(self.errors) or any(event.state is UpdateState.FAILED for event in self.events.values())


def run_pipeline(
    spec: PipelineSpec,
    spark: SparkSession | Callable[[], SparkSession],
    selection: Selection | None = None,
    *,
    policy: Policy | None = None,
    observer: Observer = lambda event: None,
    listeners: Sequence[RunListener] = (),
    skip_invalid: bool = False,
    only_news: bool = False,
    place: Place = Place.AUTO,
    warm: WarmProject | None = None,
) -> RunReport:
    """Bring the tables of a pipeline up to date and publish them.

    spark:        a session, or what starts one: it is asked only if a table needs Spark.
    listeners:    are told when the run begins and ends.
    skip_invalid: leave out files, statements and tables with errors, instead of raising these.
    only_news: leave runs in which nothing changes or fails out of the event log.
    warm: what earlier runs of this process have read and compiled.

    A table that fails, and those that read it, keep their rows; so do those that are not selected. Whatever
    ends the run before it publishes leaves all tables as they were.

    Raises the errors of `planned`, `UnknownDataset` for a selection, and `PipelineInUse`.
    """
    warm = warm or WarmProject()
    with (
        PipelineCatalog.open(spec.storage, spec.version_retention, warm.catalogues) as catalog,
        recording(spec, catalog, observer, listeners, only_news=only_news) as recorder,
        ExitStack() as closing,
    ):
        project = Project(spec, spark, policy, closing, skip_invalid=skip_invalid)
        kept = (
            "" if place is Place.SPARK else load_analysis(spec, policy, project.settings, parts=warm.analysis)
        )
        if isinstance(kept, KeptAnalysis):
            graph, plans = kept.graph, kept.plans
        elif place is Place.HERE:
            raise NeedsSpark(
                "the project is to be analysed, which needs Spark",
                why=f"{kept[:1].upper()}{kept[1:]}.",
                fix="run it once with --on auto, or --on spark",
            )
        else:
            graph, plans = project.analysed(kept)
        run = _Run(catalog, project, graph, plans, selection or Selection(), place, recorder.observe)
        done = run.run()
        # What is left out of the project only because of an error is no orphan.
        orphans = () if project.errors else orphans_of(catalog, run.graph)
        done = replace(
            done, orphans=orphans, errors=project.errors, spark=project.why, not_kept=project.not_kept
        )
        recorder.end(done)
        return done


def orphans_of(catalog: PipelineCatalog, graph: Graph) -> list[TableName]:
    """Return the tables of a storage that its project does not define: renamed, or removed.

    Also kept snapshots that nothing reads. Of a table whose source cannot be reached, nobody knows which it
    would read. Shared parts that nothing reads are removed by runs.
    """
    defined = {table.name for table in graph.tables}
    defined |= {name for name in catalog.entries if name.database == SHARED}
    if any(table.failure is not None for table in graph.tables):
        defined |= {name for name in catalog.entries if name.database == SNAPSHOTS}
    return sorted(catalog.entries.keys() - defined)


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
    parts = (name for name in graph.hidden_inputs_of(full) if name.database == SHARED)
    return chosen | graph.hidden_inputs_of(chosen), full.union(parts)


@dataclass(frozen=True, slots=True)
class _Started:
    """Update that has begun. entries: of all tables, as they were then."""

    at: float
    entries: Mapping[TableName, TableEntry]

    @property
    def seconds(self) -> float:
        return perf_counter() - self.at


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
    closing: ExitStack = field(default_factory=ExitStack)
    workers: UpdateWorkers[Mapping[TableName, Updated]] | None = None
    started: dict[TableName, _Started] = field(default_factory=dict[TableName, "_Started"])
    done: set[TableName] = field(default_factory=set[TableName])

    @property
    def _spark(self) -> SparkSession:
        return self.project.session or cast("SparkSession", AbsentSpark())

    def run(self) -> RunReport:
        self.selected, self.anew = _selected(self.graph, self.selection)
        for table in self.graph.tables:
            if table.dataset.beside is not None:
                continue  # It is updated with its table, whose events say what became of it.
            chosen = table.name in self.selected
            self._report(Event(table.dataset, UpdateState.QUEUED if chosen else UpdateState.EXCLUDED))
        self._deliver(last=False)
        snapshot = RunSnapshot(self.catalog, self.graph, self._spark, dict(self.catalog.entries))
        snapshot.compare(self.plans.values())
        if self.selection.where:
            (name,) = (self.graph.definitions.find(text).name for text in self.selection.refresh)
            check_backfill(self.graph.table(name), self.plans[name], self.selection.where, snapshot)
        try:
            self._update_all(snapshot)
        finally:
            snapshot.files.close()
        for name in self._unread_parts(snapshot.entries):
            del snapshot.entries[name]
        published = self._to_publish(snapshot.entries)
        if published != self.catalog.published:
            self.catalog.commit(published, snapshot.entries)
        snapshot.files.contents.clean(self.catalog.files_read())
        self._deliver(last=True)
        return RunReport({name: event for name, event in self.events.items() if name.database != SHARED})

    def _update_all(self, snapshot: RunSnapshot) -> None:
        """Bring the tables up to date, each after those that it reads: by Spark several at a time."""
        with self.closing:
            while True:
                if (table := self._next()) is not None:
                    self._begin(table, snapshot)
                elif self.workers is not None and self.workers.running:
                    self._await_one(self.workers, snapshot)
                else:
                    return

    def _next(self) -> StoredTable | None:
        """Return a table that can be updated now; the graph may be another one once Spark analysed it."""
        if self.workers is not None and not self.workers.has_room:
            return None
        waited_for = self.selected - self.done
        for table in self.graph.tables:
            waits = table.name in waited_for and table.dataset.beside is None
            if waits and table.name not in self.started and waited_for.isdisjoint(self.graph.read_by(table)):
                return table
        return None

    def _start_spark(self, snapshot: RunSnapshot | None, why: str) -> None:
        """Go on with Spark, for what cannot be done in this process. Raises `NeedsSpark` if it must not."""
        if self.place is Place.HERE:
            raise NeedsSpark(
                "it can only be brought up to date by Spark",
                why=f"{why}.",
                fix="run it with --on auto, which starts Spark where it is needed",
            )
        self.graph, self.plans = self.project.analysed(why)
        self.selected, self.anew = _selected(self.graph, self.selection)
        if snapshot is not None:
            snapshot.graph, snapshot.spark = self.graph, self._spark
            snapshot.compare(self.plans.values())

    def _unread_parts(self, entries: Mapping[TableName, TableEntry]) -> set[TableName]:
        """Return the shared parts that the project has no more, once no table goes on from a version."""
        parts = {name for name in entries if name.database == SHARED}
        unread = parts - {table.name for table in self.graph.tables}
        return set() if self.project.errors else {n for n in unread if not self.catalog.is_read(n, entries)}

    def _to_publish(self, entries: Mapping[TableName, TableEntry]) -> dict[TableName, TableEntry]:
        """Return the tables that this run has brought up to date, the versions they have read, and the others
        as they are published.

        A run that died may have left versions of tables that this one did not refresh.
        """
        published = {
            name: entry
            for name, entry in self.catalog.published.items()
            if name in entries or name.database != SHARED
        }
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
                if self.project.session is None:
                    if not has_undelivered(self.catalog, table):
                        continue
                    try:
                        deliver(self.catalog, table, self._spark)
                        continue
                    except NeedsSpark as error:
                        self._start_spark(None, f"a delivery is written by Spark: {error.what}")
                deliver(self.catalog, self.graph.table(table.name), self._spark)
            except Exception as error:
                if last:
                    self._report(Event(table.dataset, UpdateState.FAILED, error=error))

    def _begin(self, table: StoredTable, snapshot: RunSnapshot) -> None:
        """Bring a table up to date in this process; or by Spark, perhaps beside others."""
        self.started[table.name] = _Started(perf_counter(), dict(snapshot.entries))
        if table.failure is not None:
            self._fail(table, table.failure)
            return
        read = [self.events[name] for name in sorted(self.graph.read_by(table))]
        failed = [each for each in read if each.state in (UpdateState.FAILED, UpdateState.SKIPPED)]
        if failed:
            # What fails in a part fails in the queries that have it.
            own = [each.error for each in failed if each.error and each.dataset.kind is DatasetKind.SHARED]
            state = UpdateState.FAILED if own else UpdateState.SKIPPED
            self._report(Event(table.dataset, state, error=_located(own[0], table) if own else None))
            self._is_done(table)
            return
        self._report(Event(table.dataset, UpdateState.RUNNING))
        try:
            made = self._updated_here(table, snapshot)
            if not isinstance(made, Mapping):
                table, workers, update = self._by_spark(table, snapshot, made)
                retried = partial(self._report_retry, table)
                # What a query sets is set for the session.
                if workers.size > 1 and not any(each.query.settings for each in table.queries):
                    workers.start(table.name, update, retried)
                    return
                while workers.running:
                    self._await_one(workers, snapshot)
                made = workers.retried(update, retried)
        except Exception as error:
            self._fail(table, error)
        else:
            self._complete(table, snapshot, made)

    def _await_one(self, workers: UpdateWorkers[Mapping[TableName, Updated]], snapshot: RunSnapshot) -> None:
        name, outcome = workers.finished()
        table = self.graph.table(name)
        try:
            made = outcome.result()
        except Exception as error:
            self._fail(table, error)
        else:
            self._complete(table, snapshot, made)

    def _updated_here(self, table: StoredTable, snapshot: RunSnapshot) -> Mapping[TableName, Updated] | str:
        """Bring a table up to date in this process, or return why that cannot be done."""
        if self.place is Place.SPARK:
            return ""
        if table.name in self.anew:
            return "it is made anew"
        try:
            own = snapshot.without_spark()
            done = update_with_expectations(own, self.plans, table, InProcessUpdater, anew=False)
            snapshot.entries.update(own.entries)
            return done
        except NeedsSpark as error:
            return error.what
        except PipelineError:
            raise
        except Exception as error:  # What is refused here, Spark may be able to do.
            if self.place is Place.HERE:
                raise
            return f"{type(error).__name__}: {message_of(error)}"

    def _by_spark(
        self, table: StoredTable, snapshot: RunSnapshot, why: str
    ) -> tuple[StoredTable, UpdateWorkers[Mapping[TableName, Updated]], _Update]:
        """Return a table as Spark has analysed it, the workers and its update. why: why Spark is needed."""
        if self.project.session is None:
            self._start_spark(snapshot, f"{table.dataset.title}: {why}" if why else "")
        if self.workers is None:
            workers = UpdateWorkers[Mapping[TableName, Updated]].of(
                self._spark, self.project.spec.configuration
            )
            self.workers = self.closing.enter_context(workers)
        table, anew = self.graph.table(table.name), table.name in self.anew
        updater: Callable[[RunSnapshot, TablePlan, bool], Updater] = Updater
        if self.selection.where and table.dataset.kind is not DatasetKind.SNAPSHOT:
            updater = partial(BackfillUpdater, condition=self.selection.where)
        update = partial(update_with_expectations, snapshot, self.plans, table, updater, anew=anew)
        return table, self.workers, update

    def _report_retry(self, table: StoredTable, error: Exception) -> None:
        self.observer(Event(table.dataset, UpdateState.QUEUED, error=error))

    def _fail(self, table: StoredTable, error: Exception) -> None:
        seconds = self.started[table.name].seconds
        self._report(Event(table.dataset, UpdateState.FAILED, error=error, seconds=seconds))
        self._is_done(table)

    def _complete(self, table: StoredTable, snapshot: RunSnapshot, made: Mapping[TableName, Updated]) -> None:
        snapshot.check(leaf for query in table.queries for leaf in query.leaves)
        before, seconds = self.started[table.name].entries, self.started[table.name].seconds
        if any(before.get(name) != updated.entry for name, updated in made.items()):
            self.catalog.record(dict(snapshot.entries))
        for name, updated in made.items():
            entry, dataset = before.get(name), self.graph.table(name).dataset
            changed = entry is None or entry.version != updated.entry.version
            self.events[name] = Event(dataset, UpdateState.COMPLETED, updated, changed, seconds=seconds)
        self._is_done(table)
        self.observer(self.events[table.name])

    def _is_done(self, table: StoredTable) -> None:
        self.done |= {table.name, *(each.name for each in self.graph.beside(table.name))}

    def _report(self, event: Event) -> None:
        for dataset in (event.dataset, *(each.dataset for each in self.graph.beside(event.table))):
            self.events[dataset.name] = replace(event, dataset=dataset)
        self.observer(event)


def _located(error: Exception, table: StoredTable) -> Exception:
    """Return an error of a part as one of the query of a table that has it."""
    if not isinstance(error, HeadraceError):
        return error
    where = [query.query.location for query in table.queries]
    return type(error)(error.what, where=where, why=error.why, fix=error.fix, **error.facts)
