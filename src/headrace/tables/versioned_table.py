"""Interface of table formats with a commit log, for code that reads, follows or writes such tables.

A table is a sequence of numbered versions. A commit makes the next one, whole or not at all; a version never
changes, and can be read until its files are vacuumed. Each commit can carry transaction numbers of
applications, by which a writer that was killed finds out whether its rows have arrived.

**A new format** is one module with one subclass of `VersionedTable`, held to `tests/tables/test_contract.py`.
Readers and deliveries of flows (`headrace.io.versioned_tables`) and of pipelines know a table that was opened
by this interface alone. Collections need commits at an exact version, which only
`headrace.tables.delta_table` has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from headrace.errors import HeadraceError

CHANGE_TYPE = "_change_type"
"""Column of a change feed that says what became of a row."""

CHANGE_WEIGHTS: Mapping[str, int] = {
    "insert": 1,
    "update_postimage": 1,
    "delete": -1,
    "update_preimage": -1,
}
"""Weight of a row of a change feed by its change type."""

OPERATION = "__headrace_operation"
"""Column of the rows of a merge: below 0 for rows to delete, above for rows to insert."""

ArrowSchema: TypeAlias = Any
ArrowReader: TypeAlias = Any
"""A `pyarrow.Schema`, and a `pyarrow.RecordBatchReader`: pyarrow has no stubs, and is not loaded here."""

Types: TypeAlias = Mapping[str, Any]
"""Types of columns by their names, as in the JSON of Delta and Spark, without their metadata."""

ErrorFactory: TypeAlias = Callable[[str, str, str, Exception], HeadraceError]
"""Maker of a user's error from what happened ("cannot be read"), why, how to fix it, and its cause."""


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A version of a table. table: id of the table; a table that replaces it has another id."""

    number: int
    table: str

    def __str__(self) -> str:
        return f"{self.number} of {self.table}"

    def follows(self, other: TableVersion) -> bool:
        """Return whether it is the other version, or a later one of the same table."""
        return self.table == other.table and self.number >= other.number

    @classmethod
    def parse(cls, text: str) -> TableVersion:
        number, _, table = text.partition(" of ")
        return cls(int(number), table)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a version. partition: columns that are not in the file, with their values as text."""

    path: str
    partition: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class ChangedFiles:
    """Files that differ between two versions.

    added, removed: files of added or removed rows. feed: files of the change feed, with changes of rows.
    whole: the files do not suffice; compare the rows of both versions.
    """

    added: tuple[DataFile, ...] = ()
    removed: tuple[DataFile, ...] = ()
    feed: tuple[DataFile, ...] = ()
    whole: bool = False

    @property
    def adds_only(self) -> bool:
        return not (self.removed or self.feed or self.whole)


def quote_column(name: str) -> str:
    """Quote a column name in a condition of `VersionedTable.scan`."""
    return '"' + name.replace('"', '""') + '"'


class VersionedTable(ABC):
    """A table at a location, as its format's library reads and writes it.

    location: a folder, or a URL. options: of its storage; they may hold secrets and are never shown.

    Methods raise exceptions of the classes in `errors` for what cannot be read or written: call them within
    `reporting`, which makes errors of them that name the source, sink or store.
    """

    kind: ClassVar[str]
    """Name of the format in messages, such as "Delta table"."""
    errors: ClassVar[tuple[type[Exception], ...]]
    feed_setting: ClassVar[str]
    """Instruction that turns its change feed on, as in "set ..."."""

    def __init__(self, location: str, error: ErrorFactory, options: Mapping[str, str] | None = None) -> None:
        self.location = location
        self.options = dict(options or {})
        self._error = error

    @contextmanager
    def reporting(self, what: str, fix: str = "") -> Iterator[None]:
        """Convert exceptions of the format's library to errors of the table's user."""
        try:
            yield
        except HeadraceError:
            raise
        except self.errors as error:
            raise self._error(what, str(error), fix, error) from error

    # -- versions ---------------------------------------------------------------------------------------

    @abstractmethod
    def exists(self) -> bool:
        """Return whether there is a table at the location."""

    @abstractmethod
    def version(self, number: int | None = None) -> TableVersion:
        """Return a version; None: the newest."""

    @abstractmethod
    def types(self, number: int | None = None) -> Types:
        """Return the types of a version's columns."""

    @abstractmethod
    def schema_json(self, number: int | None = None) -> str:
        """Return the columns of a version in the JSON of Delta and Spark."""

    @abstractmethod
    def schema(self) -> ArrowSchema:
        """Return the columns of the newest version."""

    @abstractmethod
    def stored_types(self, schema: ArrowSchema) -> list[tuple[str, str]]:
        """Return columns with the format's types as text; each column is nullable.

        Raises an exception for a type that the format does not have.
        """

    @abstractmethod
    def partition_columns(self) -> list[str]:
        """Return the columns that the newest version is partitioned by."""

    @abstractmethod
    def transaction(self, application: str) -> int | None:
        """Return the last transaction number that an application has committed; None if there is none."""

    # -- rows -------------------------------------------------------------------------------------------

    @abstractmethod
    def scan(
        self, number: int | None = None, columns: list[str] | None = None, where: str | None = None
    ) -> ArrowReader:
        """Read rows of a version, at least those for which the SQL condition `where` holds."""

    @abstractmethod
    def row_count(self, number: int) -> int | None:
        """Return the number of rows of a version; None if the log does not record it."""

    @abstractmethod
    def files(self, number: int) -> tuple[DataFile, ...] | None:
        """Return the files of a version, which may be gone; None if they alone do not give its rows."""

    # -- changes ----------------------------------------------------------------------------------------

    @abstractmethod
    def feed(self, number: int) -> ArrowReader | None:
        """Read the changes of a version from the one before, with the column `CHANGE_TYPE`.

        None if commits of the table do not record how each row has changed.
        """

    @abstractmethod
    def changed_files(self, before: int, now: int, *, wider: bool) -> ChangedFiles | None:
        """Return the files that changed between versions; None if they do not determine the changed rows.

        wider: columns may have been added.
        """

    # -- commits ----------------------------------------------------------------------------------------

    @abstractmethod
    def create(
        self,
        schema: ArrowSchema,
        *,
        partitioned_by: Sequence[str] = (),
        description: str | None = None,
        properties: Mapping[str, str] | None = None,
        transactions: Mapping[str, int] | None = None,
    ) -> None:
        """Create an empty table. Of several concurrent attempts, one succeeds."""

    @abstractmethod
    def append(self, rows: ArrowReader, transactions: Mapping[str, int]) -> None:
        """Commit a version with more rows. Creates the table, without partitions, if it is missing."""

    @abstractmethod
    def replace(
        self,
        rows: ArrowReader,
        transactions: Mapping[str, int],
        *,
        partitioned_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Commit a version of exactly these rows and columns. Creates the table if it is missing."""

    @abstractmethod
    def merge(
        self,
        rows: ArrowReader,
        columns: Sequence[str],
        transactions: Mapping[str, int],
        key: Sequence[str] | None = None,
    ) -> None:
        """Commit a version in which rows are deleted and inserted, as their column `OPERATION` says.

        key: columns by which rows are the same; an inserted row replaces that of its key. None: all columns;
        a deletion then removes all copies of a row.
        """

    @abstractmethod
    def vacuum(self, hours: int) -> None:
        """Delete files that no version of the last `hours` hours uses, and the log of earlier versions."""


__all__ = [
    "CHANGE_TYPE",
    "CHANGE_WEIGHTS",
    "OPERATION",
    "ArrowReader",
    "ArrowSchema",
    "ChangedFiles",
    "DataFile",
    "ErrorFactory",
    "TableVersion",
    "Types",
    "VersionedTable",
    "quote_column",
]
