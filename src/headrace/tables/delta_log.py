"""Commits of a Delta table's log on this machine: the files that they add and remove, with their rows.

A commit lists the files that it adds and removes, and the files of the change data feed where it is on. What
a commit changed is in its files of the feed, else in the rows of the files added, less those of the files
removed. A commit that only moves rows (OPTIMIZE) says so, and changes nothing.

`deltalake` reads a version, its files, and a feed row by row; it does not hand out the actions of a commit.
With these, changes are known of tables without a feed, and Spark's tasks read them file by file.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import unquote

from headrace.file_system import local_path, scheme_of
from headrace.tables.versioned_table import ChangedFiles, DataFile, Types

_Action: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Commits:
    """Consecutive commits, each as the list of its actions."""

    location: str
    commits: Sequence[Sequence[_Action]]

    @property
    def schemas(self) -> list[Types]:
        """Types of the columns as commits set them."""
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
    """Read commits of a table; None if the log, which keeps them for a month, has lost some."""
    found: list[list[_Action]] = []
    for number in range(first, last + 1):
        try:
            with open(os.path.join(location, f"_delta_log/{number:020d}.json"), encoding="utf-8") as file:
                found.append([json.loads(line) for line in file if line.strip()])
        except FileNotFoundError:
            return None
    return Commits(location, found)


def changes_of_commits(commits: Commits) -> ChangedFiles | None:
    """Sum up what commits changed, one by one; None if files are gone."""
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
    """Yield the files that a commit adds and removes with their rows, and the weight of these."""
    for action in commit:
        for kind, weight in (("add", 1), ("remove", -1)):
            if kind in action and action[kind].get("dataChange", True):
                yield action[kind], weight


def path_of_file(location: str, path: str) -> str:
    """Return the path of a file as the log has it: encoded, and relative if the table holds it."""
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
