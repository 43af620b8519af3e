"""The log of a Delta table on this machine: its versions, the files of each, and which changed between two.

A commit lists the files that it adds and removes, and the files of the change data feed where it is on. What
a commit changed is in its files of the feed, else in the rows of the files added, less those of the files
removed. A commit that only moves rows (OPTIMIZE) says so, and changes nothing.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

from headrace.errors import UnreadableSource
from headrace.io.delta import require_deltalake
from headrace.path_or_url import local_path, scheme_of

if TYPE_CHECKING:
    import deltalake

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

_MAPPING = "delta.columnMapping.mode"

Types: TypeAlias = Mapping[str, Any]
"""Types of columns by their names, as in the JSON of Delta and Spark."""


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A version of a table. table: its id, which a table made in its place does not share."""

    number: int
    table: str

    def __str__(self) -> str:
        return f"{self.number} of {self.table}"

    def follows(self, other: TableVersion) -> bool:
        """Return whether it is the other one, or a later one of the same table."""
        return self.table == other.table and self.number >= other.number

    @classmethod
    def parse(cls, text: str) -> TableVersion:
        number, _, table = text.partition(" of ")
        return cls(int(number), table)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of Parquet. partition: columns that it does not hold, with their values as texts."""

    path: str
    partition: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class FileChanges:
    """Files that make the difference of two versions.

    added, removed: their rows came, or went. feed: of the change data feed, with changes of rows.
    whole: the files do not say; the rows of both versions do.
    """

    added: tuple[DataFile, ...] = ()
    removed: tuple[DataFile, ...] = ()
    feed: tuple[DataFile, ...] = ()
    whole: bool = False

    @property
    def adds_only(self) -> bool:
        return not (self.removed or self.feed or self.whole)


@dataclass(frozen=True, slots=True)
class DeltaLog:
    """The log of the table in a folder. Each method raises `UnreadableSource` for what cannot be read.

    opened: versions by their numbers, each opened once.
    """

    path: str
    opened: dict[int, deltalake.DeltaTable] = field(
        default_factory=dict[int, "deltalake.DeltaTable"], compare=False, repr=False
    )

    @contextmanager
    def _reporting(self, what: str, fix: str) -> Iterator[None]:
        require_deltalake(f"the Delta table at {self.path}")
        from deltalake.exceptions import DeltaError

        try:
            yield
        except (DeltaError, OSError, ValueError) as error:
            raise UnreadableSource(
                f"{self.path} {what}",
                why=str(error).partition("\n")[0],
                fix=fix,
                source=self.path,
                path=self.path,
            ) from None

    def open(self, number: int | None = None) -> deltalake.DeltaTable:
        """Open a version; None: the newest."""
        if number is not None and number in self.opened:
            return self.opened[number]
        what = "is no Delta table" if number is None else f"has no version {number}"
        fix = "correct the path" if number is None else "give a version that is there, or none for the newest"
        with self._reporting(what, fix):
            import deltalake

            found = deltalake.DeltaTable(self.path, number)
        return self.opened.setdefault(found.version(), found)

    def version(self, number: int | None = None) -> TableVersion:
        """Return a version; None: the newest."""
        opened = self.open(number)
        return TableVersion(opened.version(), str(opened.metadata().id))

    def types(self, number: int) -> Types:
        return _types(self.open(number).schema().to_json())

    def files(self, number: int) -> tuple[DataFile, ...] | None:
        """Return the files of a version; None if their rows are not as they stand there.

        Raises `UnreadableSource` if files are gone.
        """
        files = self._listed(number)
        if files is not None and not _are_there(files):
            raise UnreadableSource(
                f"{self.path} has lost files of version {number}",
                why="VACUUM removes the files of old versions.",
                fix="read a newer version",
                source=self.path,
                path=self.path,
            )
        return files

    def _listed(self, number: int) -> tuple[DataFile, ...] | None:
        import pyarrow as pa

        opened = self.open(number)
        if not _is_plain(opened) or pa.table(opened.deletion_vectors()).num_rows:
            return None
        listed = pa.table(opened.get_add_actions(flatten=False))
        partitions: Sequence[Mapping[str, Any]] = (
            listed["partition"].to_pylist() if "partition" in listed.column_names else [{}] * len(listed)
        )
        return tuple(
            DataFile(self._file(path), tuple((name, _text(value)) for name, value in values.items()))
            for path, values in zip(listed["path"].to_pylist(), partitions, strict=True)
        )

    def rows(self, number: int) -> int | None:
        """Return the number of rows of a version; None if the log does not tell."""
        import pyarrow as pa

        opened = self.open(number)
        if "deletionVectors" in (opened.protocol().reader_features or ()):
            return None
        files = pa.table(opened.get_add_actions(flatten=False))
        if "num_records" not in files.column_names:
            return None
        counts: list[int | None] = files["num_records"].to_pylist()
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    def _holds(self, number: int) -> bool:
        """Return whether the rows of a version can still be read."""
        try:
            return all(map(os.path.exists, self.open(number).file_uris()))
        except UnreadableSource:
            return False

    def changes(self, before: int, now: int, *, wider: bool) -> FileChanges | None:
        """Return the files that changed between versions; None if they do not tell what became of the rows.

        wider: columns may have come.
        """
        commits = self._commits(before + 1, now)
        if commits is None or not self._same_columns(commits, before, now, wider=wider):
            return None
        changed = [action for commit in commits for action, _ in _changing(commit)]
        if not changed:
            return FileChanges()
        if not _is_plain(self.open(now)) or any(each.get("deletionVector") for each in changed):
            return FileChanges(whole=True) if self._holds(before) else None
        return self._summed(commits) or self._difference(before, now)

    def _commits(self, first: int, last: int) -> list[list[dict[str, Any]]] | None:
        found: list[list[dict[str, Any]]] = []
        for number in range(first, last + 1):
            try:
                with open(
                    os.path.join(self.path, f"_delta_log/{number:020d}.json"), encoding="utf-8"
                ) as file:
                    found.append([json.loads(line) for line in file if line.strip()])
            except FileNotFoundError:  # The log keeps commits for a month.
                return None
        return found

    def _same_columns(
        self, commits: list[list[dict[str, Any]]], before: int, now: int, *, wider: bool
    ) -> bool:
        texts = [
            each["metaData"]["schemaString"] for commit in commits for each in commit if "metaData" in each
        ]
        if not texts:
            return True
        try:
            known = [self.types(before), *map(_types, texts)]
        except UnreadableSource:
            return False
        last = self.types(now)
        return all(each.items() <= last.items() if wider else each == last for each in known)

    def _summed(self, commits: list[list[dict[str, Any]]]) -> FileChanges | None:
        """Return what the commits say, one by one; None if files are gone."""
        weights, files, feed = Counter[str](), dict[str, DataFile](), list[DataFile]()
        for commit in commits:
            told = [self._data_file(each["cdc"]) for each in commit if "cdc" in each]
            if told and _are_there(told):
                feed += told
                continue
            for action, weight in _changing(commit):
                file = self._data_file(action)
                weights[file.path] += weight
                if action.get("partitionValues") is not None:
                    files[file.path] = file
        wanted = [path for path, weight in weights.items() if weight]
        if not all(path in files and os.path.exists(path) for path in wanted):
            return None
        return FileChanges(
            tuple(files[path] for path in wanted if weights[path] > 0),
            tuple(files[path] for path in wanted if weights[path] < 0),
            tuple(feed),
        )

    def _difference(self, before: int, now: int) -> FileChanges | None:
        """Return the files that one version has and the other has not; None if some are gone."""
        try:
            old, new = self._listed(before), self._listed(now)
        except UnreadableSource:
            return None
        if old is None or new is None:
            return None
        were, are = {file.path for file in old}, {file.path for file in new}
        added = tuple(file for file in new if file.path not in were)
        removed = tuple(file for file in old if file.path not in are)
        return FileChanges(added, removed) if _are_there((*added, *removed)) else None

    def _data_file(self, action: Mapping[str, Any]) -> DataFile:
        values: Mapping[str, str | None] = action.get("partitionValues") or {}
        return DataFile(
            self._file(action["path"]), tuple((name, each or None) for name, each in values.items())
        )

    def _file(self, path: str) -> str:
        """Return the path of a file as the log has it: encoded, and relative if the table holds it."""
        if scheme_of(path):
            return local_path(path, "Delta table")
        return os.path.join(self.path, unquote(path))


def _types(schema: str) -> Types:
    return {each["name"]: _bare(each["type"]) for each in json.loads(schema)["fields"]}


def _bare(type: Any) -> Any:
    """Return a type without what its fields are annotated with."""
    if isinstance(type, dict):
        return {key: _bare(value) for key, value in type.items() if key not in ("metadata", "nullable")}  # pyright: ignore[reportUnknownVariableType]
    return [_bare(each) for each in type] if isinstance(type, list) else type  # pyright: ignore[reportUnknownVariableType]


def _is_plain(table: deltalake.DeltaTable) -> bool:
    """Return whether the files of a table hold its columns, under their names and of their types."""
    features = frozenset(table.protocol().reader_features or ())
    return features <= _PLAIN and table.metadata().configuration.get(_MAPPING, "none") == "none"


def _changing(commit: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the files that a commit adds and removes with their rows, and the weight of these."""
    for action in commit:
        for kind, weight in (("add", 1), ("remove", -1)):
            if kind in action and action[kind].get("dataChange", True):
                yield action[kind], weight


def _are_there(files: Sequence[DataFile]) -> bool:
    return all(os.path.exists(file.path) for file in files)


def _text(value: Any) -> str | None:
    """Return a value of a partition as the log writes it."""
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
