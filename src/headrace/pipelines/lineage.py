"""OpenLineage events of a pipeline's runs, to a file or a URL that the user names.

A run of the pipeline is a run of the job `PIPELINE`; each table that it changes, or fails to, is a run of
the job `PIPELINE.DATABASE.TABLE`, with the pipeline's run as parent. Tables, files and Delta tables are
datasets of the namespace `file`, by their paths, as other producers name them. What was read is known from
the catalogue: from the positions up to which each table has read its inputs.

The classes of events and transports are those of `openlineage-python`. Its client is not used: it would read
configuration and environment variables that may name other places.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import UUID, uuid5

from headrace.errors import BadInput
from headrace.file_system import local_path, scheme_of
from headrace.pipelines.catalog import SINK, PipelineCatalog, TableEntry
from headrace.pipelines.definitions import SHARED, SNAPSHOTS, Dataset, DatasetKind, TableName
from headrace.pipelines.event_log import DELIVERY, RUNNING, TABLE, EventRecord, timestamp
from headrace.pipelines.input_identity import place_of, without_secrets
from headrace.pipelines.run_recorder import RecordedRun
from headrace.version import __version__

if TYPE_CHECKING:
    from headrace.pipelines.spec import PipelineSpec

LINEAGE = "headrace.lineage"
"""Setting of a project: file or URL that gets OpenLineage events."""

SEND_SECONDS = 5.0
"""Seconds after which sending an event is given up."""

_ENDPOINT = "api/v1/lineage"
_FILES = "file"
_JOBS = "headrace"
"""Namespace of jobs, unless OPENLINEAGE_NAMESPACE names another, and of inputs without a path."""

_PRODUCER = f"urn:headrace:{__version__}"


def lineage_listeners(spec: PipelineSpec, target: str | None) -> Iterator[Lineage]:
    """Yield the listener that sends events to a file or URL, if the option or the project names one.

    Raises `BadInput` for a URL of another scheme, and if `openlineage-python` is missing.
    """
    named = target or spec.configuration.get(LINEAGE)
    if not named:
        return
    if (scheme := scheme_of(named)) in ("http", "https"):
        if not urlsplit(named).hostname:
            raise _no_target(named)
        yield Lineage(named, _http_transport(named))
    elif scheme in ("", "file"):
        path = Path(local_path(named, "lineage"))
        # A path of the command is one of the working folder, one of the project is one of its root.
        path = path.absolute() if target else spec.root / path
        yield Lineage(str(path), _file_transport(path))
    else:
        raise _no_target(named)


def _no_target(named: str) -> BadInput:
    return BadInput(
        f"lineage cannot be sent to {place_of(named)!r}",
        fix="give a file, or the URL of a server of OpenLineage, such as http://localhost:5000",
    )


def _file_transport(path: Path) -> Any:
    _need_openlineage()
    from openlineage.client.transport.file import FileConfig, FileTransport

    return FileTransport(FileConfig(log_file_path=str(path), append=True))


def _http_transport(url: str) -> Any:
    _need_openlineage()
    from openlineage.client.transport.http import HttpConfig, HttpTransport

    parts = urlsplit(url)
    key = os.environ.get("OPENLINEAGE_API_KEY")
    given: dict[str, Any] = {
        "url": parts._replace(path="", query="", fragment="").geturl(),
        "endpoint": parts.path.strip("/") or _ENDPOINT,
        "timeout": SEND_SECONDS,
        "retry": {"total": 1, "connect": 1, "read": 0},
        "auth": {"type": "api_key", "apiKey": key} if key else {},
    }
    return HttpTransport(HttpConfig.from_dict(given))


def _need_openlineage() -> None:
    try:
        import openlineage.client  # noqa: F401
    except ImportError as error:
        raise BadInput(
            "lineage needs openlineage-python, which cannot be imported",
            why=str(error),
            fix="pip install 'headrace[lineage]'",
        ) from error


class Lineage:
    """Listener that sends the OpenLineage events of each run. transport: of `openlineage-python`."""

    def __init__(self, target: str, transport: Any) -> None:
        self._target = target
        self._transport = transport
        self._begun = ""

    def __str__(self) -> str:
        return f"sending lineage to {place_of(self._target)}"

    def __call__(self, run: RecordedRun) -> None:
        if not run.has_news:
            return
        events = RunEvents(run)
        if self._begun != run.run.run_id:
            self._begun = run.run.run_id
            self._transport.emit(events.start())
        if run.run.state != RUNNING:
            for event in events.of_tables():
                self._transport.emit(event)
            self._transport.emit(events.end())


class RunEvents:
    """OpenLineage events of one run."""

    def __init__(self, run: RecordedRun) -> None:
        from openlineage.client import event_v2, facet_v2

        facet_v2.set_producer(_PRODUCER)
        self._run = run
        self._events: Any = event_v2
        self._facets: Any = facet_v2
        self._namespace = os.environ.get("OPENLINEAGE_NAMESPACE") or _JOBS
        self._datasets = _Datasets(run, event_v2, facet_v2)

    def start(self) -> Any:
        return self._of_run("START", timestamp(self._run.started))

    def end(self) -> Any:
        state = {"COMPLETED": "COMPLETE", "FAILED": "FAIL"}.get(self._run.run.state, "ABORT")
        return self._of_run(state, self._run.run.at)

    def of_tables(self) -> Iterator[Any]:
        """Yield the events of the tables that have changed or failed, and of failed deliveries."""
        last = {each.table_name: each for each in self._run.tables if each.state != "SKIPPED"}
        for record in self._run.tables:
            failed = record.state == "FAILED"
            if record is not last.get(record.table_name) or not (failed or _has_changed(record)):
                continue
            began = datetime.fromisoformat(record.at).timestamp() - record.seconds
            yield self._of_table(record, "START", timestamp(datetime.fromtimestamp(began).astimezone()))
            yield self._of_table(record, "FAIL" if failed else "COMPLETE", record.at)

    def _of_run(self, state: str, at: str) -> Any:
        names = [name for name in self._run.entries if str(name) in self._run.datasets]
        names = names or list(self._run.entries)
        inputs = [each for name in names for each in self._datasets.inputs(name) if not each.of_pipeline]
        outputs = [each for name in names for each in self._datasets.outputs(name)]
        return self._event(
            state, at, self._run.run.run_id, self._run.pipeline, self._run.run, _parent(), inputs, outputs
        )

    def _of_table(self, record: EventRecord, state: str, at: str) -> Any:
        name = next((name for name in self._run.entries if str(name) == record.table_name), None)
        return self._event(
            state,
            at,
            str(uuid5(UUID(self._run.run.run_id), record.table_name)),
            f"{self._run.pipeline}.{record.table_name.partition('.')[2]}",
            record,
            (self._namespace, self._run.pipeline, self._run.run.run_id),
            self._datasets.inputs(name) if name else (),
            self._datasets.outputs(name, record) if name else (),
        )

    def _event(
        self,
        state: str,
        at: str,
        run_id: str,
        job: str,
        record: EventRecord,
        parent: tuple[str, str, str] | None,
        inputs: Iterable[_DatasetOf],
        outputs: Iterable[_DatasetOf],
    ) -> Any:
        facets = self._facets
        of_run: dict[str, Any] = {
            "processing_engine": facets.processing_engine_run.ProcessingEngineRunFacet(
                __version__, "Headrace"
            )
        }
        if parent is not None:
            namespace, name, parent_run = parent
            of_run["parent"] = facets.parent_run.ParentRunFacet(
                facets.parent_run.Run(parent_run), facets.parent_run.Job(namespace, name)
            )
        if state == "FAIL":
            of_run["errorMessage"] = facets.error_message_run.ErrorMessageRunFacet(
                without_secrets(record.error), "Python"
            )
        kind = "PIPELINE" if record.kind == "run" else "TABLE"
        of_job = {"jobType": facets.job_type_job.JobTypeJobFacet("BATCH", "HEADRACE", kind)}
        return self._events.RunEvent(
            eventType=self._events.RunState(state),
            eventTime=at,
            run=self._events.Run(run_id, of_run),
            job=self._events.Job(self._namespace, job, of_job),
            producer=_PRODUCER,
            inputs=[each.made for each in _distinct(inputs)],
            outputs=[each.made for each in _distinct(outputs)],
        )


def _has_changed(record: EventRecord) -> bool:
    return record.kind == TABLE and record.version_before != record.version_after


def _parent() -> tuple[str, str, str] | None:
    """Return the run of a scheduler that this one is part of: namespace, job, and run.

    `OPENLINEAGE_PARENT_ID` has it, as integrations of OpenLineage with Airflow and others set it for jobs.
    """
    parts = os.environ.get("OPENLINEAGE_PARENT_ID", "").rsplit("/", 2)
    try:
        return (parts[0], parts[1], str(UUID(parts[2]))) if len(parts) == 3 else None
    except ValueError:
        return None


# -- datasets -------------------------------------------------------------------------------------------

_KEY = re.compile(r"(?:stream of )?(table|stream|files|Delta table) (.*?)(?:, version \d+)?(?: \(\d+\))?")
"""Keys of inputs in positions, as `leaves` names them."""


class _DatasetOf:
    """A dataset of OpenLineage. of_pipeline: whether it is a table of the pipeline itself."""

    def __init__(self, made: Any, of_pipeline: bool) -> None:
        self.made = made
        self.of_pipeline = of_pipeline


def _distinct(datasets: Iterable[_DatasetOf]) -> Iterable[_DatasetOf]:
    return {(each.made.namespace, each.made.name): each for each in datasets}.values()


class _Datasets:
    """Datasets that tables of a run read and write."""

    def __init__(self, run: RecordedRun, events: Any, facets: Any) -> None:
        self._run = run
        self._events = events
        self._facets = facets
        self._names = {str(name): name for name in run.entries}

    def inputs(self, name: TableName) -> list[_DatasetOf]:
        dataset = self._run.datasets.get(str(name))
        if name.database == SNAPSHOTS:
            title = dataset.input if dataset is not None else name.table
            return [self._input(_JOBS, without_secrets(title))]
        return [each for key in sorted(self._keys_read(name)) for each in self._inputs_of(key)]

    def _keys_read(self, name: TableName) -> set[str]:
        """Return the keys of what a table reads, with those of its shared parts in their place."""
        keys = {key for read in self._run.entries[name].positions.values() for key in read}
        parts = {part for part in self._run.entries if part.database == SHARED and part.keys[0] in keys}
        below = (self._keys_read(part) for part in parts)
        return (keys - {part.keys[0] for part in parts}).union(*below)

    def _inputs_of(self, key: str) -> Iterator[_DatasetOf]:
        found = _KEY.fullmatch(key)
        if found is None:
            return  # Constants.
        kind, what = found.groups()
        if kind == "files":
            for path in re.split(r", (?=/)", what):
                yield self._input(_FILES, path.removesuffix("/*"))
        elif kind == "Delta table":
            yield self._input(_FILES, what)
        elif what in self._names:
            path, facets = self._table(self._names[what])
            yield _DatasetOf(self._events.InputDataset(_FILES, path, facets=facets), of_pipeline=True)

    def _input(self, namespace: str, name: str) -> _DatasetOf:
        return _DatasetOf(self._events.InputDataset(namespace, name), of_pipeline=False)

    def outputs(self, name: TableName, record: EventRecord | None = None) -> list[_DatasetOf]:
        entry, dataset = self._run.entries[name], self._run.datasets.get(str(name))
        written: dict[str, Any] = {}
        if record is not None and record.kind == TABLE:
            statistics = self._facets.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
            written = {"outputStatistics": statistics(rowCount=record.rows, size=record.file_bytes)}
        if entry.layout == SINK:
            return [self._output(*_place_of_sink(name, dataset), self._schema(entry), {})]
        path, facets = self._table(name)
        found = [self._output(_FILES, path, facets | self._assertions(record), written)]
        if dataset is not None and dataset.delivery and (record is None or record.kind != DELIVERY):
            folder = PipelineCatalog.delivery_folder(self._run.storage, dataset.delivery, name)
            found.append(self._output(_FILES, str(folder), self._schema(entry), written))
        return found

    def _output(
        self, namespace: str, name: str, facets: Mapping[str, Any], written: Mapping[str, Any]
    ) -> _DatasetOf:
        made = self._events.OutputDataset(namespace, name, facets=dict(facets), outputFacets=dict(written))
        return _DatasetOf(made, of_pipeline=True)

    def _table(self, name: TableName) -> tuple[str, dict[str, Any]]:
        """Return the path of a table, and its facets."""
        entry, facets = self._run.entries[name], self._facets
        known = facets.symlinks_dataset.Identifier(_JOBS, str(name), "TABLE")
        return str(PipelineCatalog.published_folder(self._run.storage, name)), {
            **self._schema(entry),
            "symlinks": facets.symlinks_dataset.SymlinksDatasetFacet([known]),
            "version": facets.dataset_version_dataset.DatasetVersionDatasetFacet(str(entry.version)),
            "storage": facets.storage_dataset.StorageDatasetFacet("file", entry.layout.split(" ")[0]),
        }

    def _schema(self, entry: TableEntry) -> dict[str, Any]:
        return {
            "schema": self._facets.schema_dataset.SchemaDatasetFacet(self._fields(json.loads(entry.schema)))
        }

    def _fields(self, struct: Mapping[str, Any]) -> list[Any]:
        made = self._facets.schema_dataset.SchemaDatasetFacetFields
        return [
            made(
                name=each["name"],
                type=_type_text(each["type"]),
                fields=self._fields(each["type"]) if _is_struct(each["type"]) else [],
            )
            for each in struct["fields"]
        ]

    def _assertions(self, record: EventRecord | None) -> dict[str, Any]:
        """Return the facet of the expectations that an update has looked at."""
        if record is None or not record.expectations:
            return {}
        facets = self._facets.data_quality_assertions_dataset
        found = [
            facets.Assertion(assertion=each["name"], success=not each["failed"], actual=str(each["failed"]))
            for each in record.expectations
        ]
        return {"dataQualityAssertions": facets.DataQualityAssertionsDatasetFacet(found)}


def _place_of_sink(name: TableName, dataset: Dataset | None) -> tuple[str, str]:
    path = dataset.properties.get("path") if dataset and dataset.kind is DatasetKind.SINK else None
    return (_FILES, place_of(path)) if path else (_JOBS, str(name))


def _is_struct(of: object) -> bool:
    return isinstance(of, dict) and of.get("type") == "struct"  # pyright: ignore[reportUnknownMemberType]


def _type_text(of: Any) -> str:
    """Return a type of Spark's JSON as DDL writes it."""
    if not isinstance(of, Mapping):
        return str(of)
    match of["type"]:
        case "struct":
            inner: Sequence[str] = [f"{each['name']}: {_type_text(each['type'])}" for each in of["fields"]]
            return f"struct<{', '.join(inner)}>"
        case "array":
            return f"array<{_type_text(of['elementType'])}>"
        case "map":
            return f"map<{_type_text(of['keyType'])}, {_type_text(of['valueType'])}>"
        case other:
            return str(other)
