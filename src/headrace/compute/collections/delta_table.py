"""Delta table that holds collections: its files, frontiers, and commits at an exact version.

    collection  int64   the number of the collection; the table is partitioned by it
    time, weight        int64
    hash        int64   of the row, to find it without reading rows
    row         binary

Number 0 is the catalogue: its rows are (id, number, description). Frontiers are transaction ids in the
table's log: "upper 3", "since 3"; -1 is the end.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import deltalake
from deltalake import CommitProperties, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.fs import DeltaStorageHandler

from headrace.compute.collections.rows import damaged_store_error
from headrace.compute.collections.untyped_pyarrow import ArrowBatch, ArrowTable, file_systems, pa, parquet
from headrace.compute.errors import StoreUnavailable
from headrace.compute.frontier import Frontier
from headrace.path_or_url import scheme_of

LAYOUT = "collections of Headrace, layout 1"
SCHEMA: Any = pa.schema(
    [
        ("collection", pa.int64()),
        ("time", pa.int64()),
        ("weight", pa.int64()),
        ("hash", pa.int64()),
        ("row", pa.binary()),
    ]
)
_CONFIGURATION = {
    "delta.dataSkippingStatsColumns": "time",
    "delta.checkpointInterval": "50",
    "delta.logRetentionDuration": "interval 2 hours",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
}
KEPT_HOURS = 1
"""Hours for which replaced files are kept, so that snapshots in progress can still read them."""
_COMMIT = "headrace.commit"
LAST_NUMBER = "last"
"""Transaction id under which the log records the highest number assigned so far."""
_END = -1
_DAMAGE: tuple[type[Exception], ...] = (DeltaError, pa.ArrowException, ValueError)


@dataclass(frozen=True, slots=True)
class CollectionFile:
    """File of a collection, with times from `first` to `last`."""

    path: str
    first: int
    last: int
    rows: int
    size: int


class Table:
    """Delta table as of the last `refresh`, created if missing."""

    def __init__(self, path: str) -> None:
        self.path = path
        with self.translated_errors():
            if not deltalake.DeltaTable.is_deltatable(path):
                self._create()
            self._table = deltalake.DeltaTable(path)
            there = self._table.metadata()
            self._files_of = file_systems.PyFileSystem(DeltaStorageHandler(path))
        if there.description != LAYOUT:
            raise damaged_store_error(
                path, f"it is a Delta table that says {there.description!r}, not {LAYOUT!r}"
            )
        self._listed: tuple[int, dict[int, list[CollectionFile]]] | None = None

    def _create(self) -> None:
        try:
            deltalake.DeltaTable.create(
                self.path,
                schema=deltalake.Schema.from_arrow(SCHEMA),
                partition_by=["collection"],
                description=LAYOUT,
                configuration=_CONFIGURATION,
            )
        except DeltaError:
            if not deltalake.DeltaTable.is_deltatable(self.path):  # else somebody was faster
                raise

    @contextmanager
    def translated_errors(self) -> Generator[None]:
        """Convert `deltalake` errors to ours."""
        try:
            yield
        except _DAMAGE as error:
            raise damaged_store_error(self.path, str(error)) from error
        except OSError as error:
            raise self.unavailable_error(str(error)) from error

    def unavailable_error(self, why: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"the collections in {self.path} cannot be used now",
            why=why,
            fix="check its folder and disk",
        )

    # -- reading --------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        return self._table.version()

    def refresh(self) -> None:
        with self.translated_errors():
            self._table.update_incremental()

    def frontier(self, kind: str, number: int) -> Frontier:
        with self.translated_errors():
            time = self._table.transaction_version(f"{kind} {number}")
        if time is None:
            raise damaged_store_error(self.path, f"the {kind} of collection {number} is missing")
        return Frontier(None if time == _END else time)

    def last_collection_number(self) -> int:
        """Return the highest number ever assigned to a collection."""
        with self.translated_errors():
            return self._table.transaction_version(LAST_NUMBER) or 0

    def collection_numbers(self) -> list[int]:
        """Return the numbers of the collections that have files."""
        return sorted(self._by_number())

    def files(self, number: int) -> list[CollectionFile]:
        """List a collection's files, ordered by time; consecutive files overlap in at most one time."""
        return self._by_number().get(number, [])

    def _by_number(self) -> dict[int, list[CollectionFile]]:
        if self._listed is None or self._listed[0] != self.version:
            self._listed = self.version, self._list()
        return self._listed[1]

    def _list(self) -> dict[int, list[CollectionFile]]:
        found: dict[int, list[CollectionFile]] = {}
        with self.translated_errors():
            actions = pa.table(self._table.get_add_actions(flatten=True)).to_pylist()
        for action in actions:
            one = CollectionFile(
                action["path"],
                action["min.time"],
                action["max.time"],
                action["num_records"],
                action["size_bytes"],
            )
            found.setdefault(action["partition.collection"], []).append(one)
        for files in found.values():
            files.sort(key=lambda one: (one.first, one.last, one.path))
        return found

    def batches(self, file: CollectionFile, columns: list[str], most: int) -> Iterator[ArrowBatch]:
        """Read the rows of a file in the order of writing."""
        with self.translated_errors(), self._files_of.open_input_file(file.path) as source:
            reader = parquet.ParquetFile(source)
            yield from reader.iter_batches(batch_size=most, columns=columns)

    # -- writing --------------------------------------------------------------------------------

    def commit(
        self,
        rows: ArrowTable,
        frontiers: Mapping[str, Frontier] | None = None,
        *,
        instead_of: str | None = None,
    ) -> bool:
        """Commit the next version; return False, without writing, if another process has.

        frontiers: new frontiers by kind and number. instead_of: condition on the rows to replace.
        """
        name = uuid.uuid4().hex
        transactions = [
            Transaction(app, _END if frontier.time is None else frontier.time)
            for app, frontier in (frontiers or {}).items()
        ]
        properties = CommitProperties(
            custom_metadata={_COMMIT: name}, max_commit_retries=0, app_transactions=transactions
        )
        more: dict[str, Any] = {"mode": "append"}
        if instead_of is not None:
            more = {"mode": "overwrite", "predicate": instead_of}
        try:
            write_deltalake(self._table, rows, commit_properties=properties, **more)
        except CommitFailedError as error:
            before = self.version
            self.refresh()
            if self.version == before:
                raise self.unavailable_error(str(error)) from error
            return False
        except (*_DAMAGE, OSError) as error:
            # What follows a commit may fail, too: a checkpoint of the log, say.
            before = self.version
            self.refresh()
            if not self._was_made(name, self.version - before):
                raise self.unavailable_error(str(error)) from error
        return True

    def _was_made(self, name: str, versions: int) -> bool:
        with self.translated_errors():
            return any(made.get(_COMMIT) == name for made in self._table.history(max(1, versions)))

    def delete_replaced_files(self) -> None:
        """Delete files that were replaced more than `KEPT_HOURS` ago."""
        with self.translated_errors():
            self._table.vacuum(KEPT_HOURS, dry_run=False, enforce_retention_duration=False)
            self._table.cleanup_metadata()

    def next_is_there(self) -> bool:
        """Return whether a newer version exists. Cheap for a local folder."""
        if scheme_of(self.path):
            seen = self.version
            self.refresh()
            return self.version != seen
        return os.path.exists(os.path.join(self.path, "_delta_log", f"{self.version + 1:020}.json"))
