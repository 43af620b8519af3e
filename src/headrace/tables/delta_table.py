"""Delta tables, read and written by the `deltalake` package, in folders and object stores.

The package reads a version, its files, and a feed row by row; it does not hand out the actions of a commit.
So the commits of a log on this machine are read here: the files that each adds and removes, and the files
of the change data feed where it is on. What a commit changed is in its files of the feed, else in the rows
of the files added, less those of the files removed. A commit that only moves rows (OPTIMIZE) says so, and
changes nothing. With these, changes are known of tables without a feed, and Spark's tasks read them file by
file.
"""

from __future__ import annotations

import json
import os
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, ClassVar, TypeAlias
from urllib.parse import unquote

import deltalake
import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.fs import DeltaStorageHandler

from headrace.file_system import local_path, scheme_of, unsupported_scheme_error
from headrace.tables.versioned_table import (
    OPERATION,
    ArrowReader,
    ArrowSchema,
    ChangedFiles,
    DataFile,
    ErrorFactory,
    TableVersion,
    Types,
    VersionedTable,
    quote_column,
)

FEED = "delta.enableChangeDataFeed"
"""Property of tables whose commits record how each row has changed."""

_MAPPING = "delta.columnMapping.mode"
_PLAIN = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "domainMetadata",
        "timestampNtz",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
"""Features of tables whose files hold the columns as they are, unless a file or a setting says otherwise."""

_COMMIT = "headrace.commit"
"""Entry of a commit's metadata by which its writer knows it again."""


def check_location(path: str, options: Mapping[str, str], what: str) -> None:
    """Raise `BadUri` for a URI scheme that `deltalake` does not support, rather than in the first tick."""
    if not scheme_of(path):
        return
    try:
        DeltaStorageHandler(path, dict(options))
    except DeltaError as error:
        if not str(error).startswith(("Unknown scheme", "Generic error: Unable to recognise URL")):
            return  # For example a missing option, which reading or writing the table reports.
        raise unsupported_scheme_error(
            path,
            what,
            why=f"The deltalake package says: {str(error).partition('. Known')[0]}.",
            fix="give a folder, or a URL that it knows, such as s3://BUCKET/TABLE, gs://... or abfss://...",
        ) from error
    except OSError:
        return


class DeltaLakeTable(VersionedTable):
    """A Delta table. keeps_opened: cache opened versions instead of reopening them."""

    kind: ClassVar[str] = "Delta table"
    feed_setting: ClassVar[str] = f"the table's property {FEED} to true"
    errors: ClassVar[tuple[type[Exception], ...]] = (DeltaError, pa.ArrowException, OSError, ValueError)

    def __init__(
        self,
        location: str,
        error: ErrorFactory,
        options: Mapping[str, str] | None = None,
        *,
        keeps_opened: bool = False,
    ) -> None:
        super().__init__(location, error, options)
        self._keeps_opened = keeps_opened
        self._opened: dict[int, deltalake.DeltaTable] = {}
        self._seen: deltalake.DeltaTable | None = None

    def open(self, number: int | None = None) -> deltalake.DeltaTable:
        """Open a version; None: the newest."""
        if number is not None and number in self._opened:
            return self._opened[number]
        found = deltalake.DeltaTable(self.location, number, storage_options=self.options)
        return self._opened.setdefault(found.version(), found) if self._keeps_opened else found

    def exists(self) -> bool:
        return deltalake.DeltaTable.is_deltatable(self.location, storage_options=self.options)

    def version(self, number: int | None = None) -> TableVersion:
        opened = self.open(number)
        return TableVersion(opened.version(), str(opened.metadata().id))

    def types(self, number: int | None = None) -> Types:
        return types_of_schema(self.schema_json(number))

    def schema_json(self, number: int | None = None) -> str:
        return self.open(number).schema().to_json()

    def schema(self) -> ArrowSchema:
        return pa.schema(self.open().schema().to_arrow())

    def stored_types(self, schema: ArrowSchema) -> list[tuple[str, str]]:
        return [
            (each.name, str(deltalake.Schema.from_arrow(pa.schema([each.with_nullable(True)]))))
            for each in schema
        ]

    def partition_columns(self) -> list[str]:
        return self.open().metadata().partition_columns

    def transaction(self, application: str) -> int | None:
        return self.open().transaction_version(application)

    # -- rows -------------------------------------------------------------------------------------------

    def scan(
        self, number: int | None = None, columns: list[str] | None = None, where: str | None = None
    ) -> ArrowReader:
        return pa.RecordBatchReader.from_stream(self.open(number).scan(columns=columns, predicate=where))

    def row_count(self, number: int) -> int | None:
        opened = self.open(number)
        if "deletionVectors" in (opened.protocol().reader_features or ()):
            return None
        files = pa.table(opened.get_add_actions(flatten=False))
        if "num_records" not in files.column_names:
            return None
        counts: list[int | None] = files["num_records"].to_pylist()
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    def files(self, number: int) -> tuple[DataFile, ...] | None:
        opened = self.open(number)
        if not self._is_plain(opened) or pa.table(opened.deletion_vectors()).num_rows:
            return None
        listed = pa.table(opened.get_add_actions(flatten=False))
        partitions: Sequence[Mapping[str, Any]] = (
            listed["partition"].to_pylist() if "partition" in listed.column_names else [{}] * len(listed)
        )
        return tuple(
            DataFile(
                path_of_file(self.location, path),
                tuple((name, _partition_text(value)) for name, value in values.items()),
            )
            for path, values in zip(listed["path"].to_pylist(), partitions, strict=True)
        )

    @staticmethod
    def _is_plain(table: deltalake.DeltaTable) -> bool:
        """Return whether the files of a table store its columns under the same names and types."""
        features = frozenset(table.protocol().reader_features or ())
        return features <= _PLAIN and table.metadata().configuration.get(_MAPPING, "none") == "none"

    # -- changes ----------------------------------------------------------------------------------------

    def feed(self, number: int) -> ArrowReader | None:
        table = self.open()
        if table.metadata().configuration.get(FEED) != "true":
            return None
        stream = table.load_cdf(starting_version=number, ending_version=number)
        return pa.RecordBatchReader.from_stream(stream)

    def changed_files(self, before: int, now: int, *, wider: bool) -> ChangedFiles | None:
        commits = read_commits(self.location, before + 1, now)
        if commits is None or not self._same_columns(commits.schemas, before, now, wider=wider):
            return None
        if not commits.change_rows:
            return ChangedFiles()
        if not self._is_plain(self.open(now)) or commits.have_deletion_vectors:
            return ChangedFiles(whole=True) if self._holds(before) else None
        return changes_of_commits(commits) or self._difference(before, now)

    def _same_columns(self, schemas: Sequence[Types], before: int, now: int, *, wider: bool) -> bool:
        if not schemas:
            return True
        try:
            known = [self.types(before), *schemas]
        except self.errors:
            return False
        last = self.types(now)
        return all(each.items() <= last.items() if wider else each == last for each in known)

    def _holds(self, number: int) -> bool:
        """Return whether the rows of a version can still be read."""
        try:
            return all(map(os.path.exists, self.open(number).file_uris()))
        except self.errors:
            return False

    def _difference(self, before: int, now: int) -> ChangedFiles | None:
        """Return the files that only one of two versions has; None if some no longer exist."""
        try:
            old, new = self.files(before), self.files(now)
        except self.errors:
            return None
        if old is None or new is None:
            return None
        were, are = {file.path for file in old}, {file.path for file in new}
        added = tuple(file for file in new if file.path not in were)
        removed = tuple(file for file in old if file.path not in are)
        there = all(os.path.exists(file.path) for file in (*added, *removed))
        return ChangedFiles(added, removed) if there else None

    # -- commits ----------------------------------------------------------------------------------------

    def create(
        self,
        schema: ArrowSchema,
        *,
        partitioned_by: Sequence[str] = (),
        description: str | None = None,
        properties: Mapping[str, str] | None = None,
        transactions: Mapping[str, int] | None = None,
    ) -> None:
        deltalake.DeltaTable.create(
            self.location,
            schema=deltalake.Schema.from_arrow(schema),
            partition_by=list(partitioned_by) or None,
            description=description,
            configuration=properties,
            storage_options=self.options,
            commit_properties=_committing(transactions or {}),
        )

    def append(self, rows: ArrowReader, transactions: Mapping[str, int]) -> None:
        write_deltalake(
            self.location,
            rows,
            mode="append",
            storage_options=self.options,
            commit_properties=_committing(transactions),
        )

    def replace(
        self,
        rows: ArrowReader,
        transactions: Mapping[str, int],
        *,
        partitioned_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> None:
        write_deltalake(
            self.location,
            rows,
            mode="overwrite",
            schema_mode="overwrite",
            partition_by=list(partitioned_by),
            configuration=properties,
            storage_options=self.options,
            commit_properties=_committing(transactions),
        )

    def merge(
        self,
        rows: ArrowReader,
        columns: Sequence[str],
        transactions: Mapping[str, int],
        key: Sequence[str] | None = None,
    ) -> None:
        operation = f"s.{quote_column(OPERATION)}"
        if key is None:
            same = [
                f"(t.{quote_column(name)} is not distinct from s.{quote_column(name)})" for name in columns
            ]
            same.append(f"{operation} < 0")  # Rows to insert match nothing, also where there are copies.
        else:
            same = [f"t.{quote_column(name)} = s.{quote_column(name)}" for name in key]
        merge = self.open().merge(
            source=rows,
            predicate=" and ".join(same),
            source_alias="s",
            target_alias="t",
            commit_properties=_committing(transactions),
        )
        values = {quote_column(name): f"s.{quote_column(name)}" for name in columns}
        merge = merge.when_matched_delete(f"{operation} < 0")
        if key is not None:
            merge = merge.when_matched_update(values, f"{operation} > 0")
        merge.when_not_matched_insert(values, f"{operation} > 0").execute()

    def vacuum(self, hours: int) -> None:
        table = self._last_seen()
        table.vacuum(hours, dry_run=False, enforce_retention_duration=False)
        table.cleanup_metadata()

    # -- commits on top of a version that was seen ------------------------------------------------------

    def _last_seen(self) -> deltalake.DeltaTable:
        if self._seen is None:
            self._seen = self.open()
        return self._seen

    @property
    def seen(self) -> int:
        """The version as of the last `refresh`, or the first access."""
        return self._last_seen().version()

    def refresh(self) -> None:
        """Update `seen` to the newest version."""
        self._last_seen().update_incremental()

    def seen_transaction(self, application: str) -> int | None:
        """Return the last transaction number of an application in the seen version."""
        return self._last_seen().transaction_version(application)

    def seen_files(self) -> list[dict[str, Any]]:
        """Return the files of the seen version with their statistics, one flat row per file."""
        return pa.table(self._last_seen().get_add_actions(flatten=True)).to_pylist()

    @property
    def description(self) -> str | None:
        return self._last_seen().metadata().description

    def commit_next(
        self, rows: Any, transactions: Mapping[str, int], *, instead_of: str | None = None
    ) -> bool:
        """Commit exactly the version after the one seen; return False, without writing, if it exists.

        instead_of: SQL condition on the rows to replace; None: none.

        Raises an exception of `errors` if nothing was committed.
        """
        name, table = uuid.uuid4().hex, self._last_seen()
        properties = CommitProperties(
            custom_metadata={_COMMIT: name},
            max_commit_retries=0,
            app_transactions=[Transaction(*each) for each in transactions.items()],
        )
        replaced: dict[str, Any] = {} if instead_of is None else {"predicate": instead_of}
        mode: Any = "append" if instead_of is None else "overwrite"
        before = table.version()
        try:
            write_deltalake(table, rows, mode=mode, commit_properties=properties, **replaced)
        except CommitFailedError:
            with self.reporting("cannot be read"):
                self.refresh()
            if table.version() == before:
                raise
            return False
        except self.errors:
            # What follows a commit may fail, too: a checkpoint of the log, say.
            with self.reporting("cannot be read"):
                self.refresh()
                made = table.history(max(1, table.version() - before))
            if not any(each.get(_COMMIT) == name for each in made):
                raise
        return True

    def newer_is_there(self) -> bool:
        """Return whether a newer version than the one seen exists. Cheap for a folder."""
        if scheme_of(self.location):
            before = self.seen
            self.refresh()
            return self.seen != before
        return os.path.exists(os.path.join(self.location, "_delta_log", f"{self.seen + 1:020}.json"))

    def batches_of_file(self, path: str, columns: list[str], size: int) -> Iterator[Any]:
        """Read the rows of a file of the table in the order of writing."""
        import pyarrow.fs
        import pyarrow.parquet as pq

        files = pyarrow.fs.PyFileSystem(DeltaStorageHandler(self.location, self.options))
        with files.open_input_file(path) as source:
            yield from pq.ParquetFile(source).iter_batches(batch_size=size, columns=columns)


def _committing(transactions: Mapping[str, int]) -> CommitProperties:
    return CommitProperties(app_transactions=[Transaction(*each) for each in transactions.items()])


def _partition_text(value: Any) -> str | None:
    """Format a value of a partition as in the log."""
    match value:
        case None | "":
            return None
        case bool():
            return str(value).lower()
        case bytes():
            return value.decode("utf-8", "surrogateescape")
        case datetime() | date():
            return value.isoformat()
        case _:
            return str(value)


_Action: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Commits:
    """Consecutive commits, each as the list of its actions."""

    location: str
    commits: Sequence[Sequence[_Action]]

    @property
    def schemas(self) -> list[Types]:
        """Column types as set by the commits."""
        return [
            types_of_schema(each["metaData"]["schemaString"])
            for commit in self.commits
            for each in commit
            if "metaData" in each
        ]

    def _changing(self) -> Iterator[_Action]:
        return (action for commit in self.commits for action, _ in _changing(commit))

    @property
    def change_rows(self) -> bool:
        return any(True for _ in self._changing())

    @property
    def have_deletion_vectors(self) -> bool:
        return any(each.get("deletionVector") for each in self._changing())

    def file(self, action: _Action) -> DataFile:
        """Return the file of an action."""
        values: Mapping[str, str | None] = action.get("partitionValues") or {}
        return DataFile(
            path_of_file(self.location, action["path"]),
            tuple((name, each or None) for name, each in values.items()),
        )


def read_commits(location: str, first: int, last: int) -> Commits | None:
    """Read commits of a table; None if some have expired from the log, which keeps them for a month."""
    found: list[list[_Action]] = []
    for number in range(first, last + 1):
        try:
            with open(os.path.join(location, f"_delta_log/{number:020d}.json"), encoding="utf-8") as file:
                found.append([json.loads(line) for line in file if line.strip()])
        except FileNotFoundError:
            return None
    return Commits(location, found)


def changes_of_commits(commits: Commits) -> ChangedFiles | None:
    """Sum up the changes of commits, one by one; None if files no longer exist."""
    weights, files, feed = Counter[str](), dict[str, DataFile](), list[DataFile]()
    for commit in commits.commits:
        recorded = [commits.file(each["cdc"]) for each in commit if "cdc" in each]
        if recorded and all(os.path.exists(file.path) for file in recorded):
            feed += recorded
            continue
        for action, weight in _changing(commit):
            file = commits.file(action)
            weights[file.path] += weight
            if action.get("partitionValues") is not None:
                files[file.path] = file
    wanted = [path for path, weight in weights.items() if weight]
    if not all(path in files and os.path.exists(path) for path in wanted):
        return None
    return ChangedFiles(
        tuple(files[path] for path in wanted if weights[path] > 0),
        tuple(files[path] for path in wanted if weights[path] < 0),
        tuple(feed),
    )


def _changing(commit: Iterable[_Action]) -> Iterator[tuple[_Action, int]]:
    """Yield the add and remove actions of a commit that change rows, and the weight of their rows."""
    for action in commit:
        for kind, weight in (("add", 1), ("remove", -1)):
            if kind in action and action[kind].get("dataChange", True):
                yield action[kind], weight


def path_of_file(location: str, path: str) -> str:
    """Resolve a path from the log: it is encoded, and relative if the file is inside the table."""
    if scheme_of(path):
        return local_path(path, "Delta table")
    return os.path.join(location, unquote(path))


def types_of_schema(schema: str) -> Types:
    """Return the types of the columns in the JSON of a schema, without their metadata."""
    return {each["name"]: _bare(each["type"]) for each in json.loads(schema)["fields"]}


def _bare(type: Any) -> Any:
    if isinstance(type, dict):
        return {key: _bare(value) for key, value in type.items() if key not in ("metadata", "nullable")}  # pyright: ignore[reportUnknownVariableType]
    return [_bare(each) for each in type] if isinstance(type, list) else type  # pyright: ignore[reportUnknownVariableType]
