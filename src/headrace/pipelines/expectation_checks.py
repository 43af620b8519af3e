"""Checks of expectations in a run: a table is updated together with its dropped rows and violations.

All of them succeed, or none does: a violation that fails the table is found in its next version before this
one enters the catalogue. Counts come from the changes of the three tables, whichever engine wrote them: the
total of failed rows is kept with each version, and the rows that came are those with positive weights.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import Step
from headrace.pipelines.catalog import TableEntry, expectation_totals
from headrace.pipelines.definitions import DROPPED, FAILED_EXPECTATIONS, DatasetKind, TableName
from headrace.pipelines.errors import ExpectationFailed
from headrace.pipelines.expectations import (
    Expectation,
    ExpectationCounts,
    OnViolation,
    with_action,
)
from headrace.pipelines.graph import StoredTable, empty_frame
from headrace.pipelines.run_snapshot import RunSnapshot
from headrace.pipelines.table_plan import Method, TablePlan
from headrace.pipelines.table_update import Updated, Updater
from headrace.pipelines.weighted_rows import WEIGHT
from headrace.tables.version_folders import data_files

if TYPE_CHECKING:
    import pyarrow as pa


def update_with_expectations(
    snapshot: RunSnapshot,
    plans: Mapping[TableName, TablePlan],
    table: StoredTable,
    updater: Callable[[RunSnapshot, TablePlan, bool], Updater],
    *,
    anew: bool,
) -> dict[TableName, Updated]:
    """Update a table and the tables beside it; return what became of each, and enter it into the snapshot.

    updater: brings each of them up to date.

    Raises `ExpectationFailed` and the errors of their queries; the snapshot is as it was then.
    """
    if not table.dataset.expectations:
        done = {table.name: updater(snapshot, plans[table.name], anew).run()}
    else:
        # What is not complete stays out of the run's entries, which others record.
        own = copy.copy(snapshot)
        own.entries = dict(snapshot.entries)
        done = _CheckedUpdate(own, plans, table, updater, anew).run()
    snapshot.entries.update({name: updated.entry for name, updated in done.items()})
    return done


@dataclass(frozen=True, slots=True)
class _Window:
    """Rows of a table that came in a run.

    came: their number. failed: by the expectations that they fail.
    """

    came: int
    failed: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _CheckedUpdate:
    """Update of a table with expectations, in a snapshot of its own."""

    snapshot: RunSnapshot
    plans: Mapping[TableName, TablePlan]
    table: StoredTable
    updater: Callable[[RunSnapshot, TablePlan, bool], Updater]
    anew: bool

    def run(self) -> dict[TableName, Updated]:
        beside = self.snapshot.graph.beside(self.table.name)
        dropped = [each for each in beside if each.name == self.table.name.beside(DROPPED)]
        violations = [each for each in beside if each not in dropped]
        before = self.snapshot.entries.get(self.table.name)
        if before is not None and not self.anew:
            for each in dropped:
                self._go_on_with(each, before)
            for each in violations:
                self._follow(each)
        was = dict(self.snapshot.entries)
        done, windows = dict[TableName, Updated](), list[_Window | None]()
        for each in (*dropped, self.table, *violations):
            updated = self.updater(self.snapshot, self.plans[each.name], self.anew).run()
            self.snapshot.entries[each.name] = updated.entry
            new = each in violations and each.name not in was and before is not None
            windows.append(None if new else self._window(each, was.get(each.name)))
            if each is not self.table:
                updated = replace(updated, entry=self._counted(each, was.get(each.name)))
                self.snapshot.entries[each.name] = updated.entry
            done[each.name] = updated
        totals = self._totals(done)
        known = [window for window in windows if window is not None]
        counts = totals if self.anew or len(known) < len(windows) else self._counts(known, len(violations))
        self._check(counts, totals, was, violations)
        made = replace(done[self.table.name], expectations=counts, expectation_totals=totals)
        return {**done, self.table.name: made}

    def _go_on_with(self, dropped: StoredTable, before: TableEntry) -> None:
        """Let dropped rows of streams go on where their table is: earlier rows are in it, or are lost."""
        if self.plans[dropped.name].method is not Method.APPEND:
            return
        entry = self.snapshot.entries.get(dropped.name)
        if entry is None:
            none = empty_frame(dropped.schema, self.snapshot.spark)
            version = self.snapshot.versions(dropped).replace(none)
            entry = TableEntry(version, 0, dropped.schema.json(), dropped.layout, "")
        self._enter(dropped, replace(entry, positions=before.positions))

    def _follow(self, violations: StoredTable) -> None:
        """Bring violations up to the table's last version if their conditions are new or changed.

        The rows of that version don't come in this run.
        """
        entry, plan = self.snapshot.entries.get(violations.name), self.plans[violations.name]
        if entry is not None and entry.fingerprint == plan.fingerprint:
            return
        for name in violations.reads:
            made = self.snapshot.entries.get(name)
            versions = self.snapshot.versions(self.snapshot.graph.table(name))
            if made is None or not versions.has_project_layout(made):
                return
        updated = self.updater(self.snapshot, plan, False).run()
        self.snapshot.entries[violations.name] = updated.entry
        self._enter(violations, self._counted(violations, entry))

    def _enter(self, table: StoredTable, entry: TableEntry) -> None:
        """Enter a version that the next one of this run follows."""
        self.snapshot.entries[table.name] = self.snapshot.catalog.entries[table.name] = entry

    def _change_folders(self, table: StoredTable, before: TableEntry | None) -> list[Path] | None:
        """Return the folders of a table's changes in this update; None if they are not known."""
        return None if before is None else self.snapshot.versions(table).change_folders(before.version)

    def _rows_folder(self, table: StoredTable) -> Path:
        entry = self.snapshot.entries[table.name]
        return self.snapshot.catalog.rows(table.name).folder(entry.version)

    def _window(self, table: StoredTable, before: TableEntry | None) -> _Window | None:
        """Return the rows of a table that came in this update; None if they are not known."""
        is_beside = table is not self.table
        folders = self._change_folders(table, before)
        if folders is not None:
            changes = list(_weighted(folders, failed=is_beside))
            came = sum(_sum(_positive(weights)) for _, weights in changes)
            return _Window(came, _failed((names, _positive(weights)) for names, weights in changes))
        if before is not None:
            return None
        whole = list(_weighted([self._rows_folder(table)], failed=True)) if is_beside else []
        return _Window(self.snapshot.entries[table.name].rows, _failed(whole))

    def _counted(self, table: StoredTable, before: TableEntry | None) -> TableEntry:
        """Return the entry of dropped rows or violations with the number of rows for each expectation."""
        entry = self.snapshot.entries[table.name]
        folders = self._change_folders(table, before)
        if before is None or folders is None:
            return replace(entry, failed=_failed(_weighted([self._rows_folder(table)], failed=True)))
        failed = Counter(before.failed)
        for name, count in _failed(_weighted(folders, failed=True)).items():
            failed[name] += count
        return replace(entry, failed={name: count for name, count in failed.items() if count})

    def _totals(self, done: Mapping[TableName, Updated]) -> dict[str, ExpectationCounts]:
        names = [each.name for each in self.table.dataset.expectations]
        return expectation_totals(self.table.name, names, {name: made.entry for name, made in done.items()})

    def _counts(self, windows: list[_Window], violations: int) -> dict[str, ExpectationCounts]:
        """Return the counts of the rows that came.

        violations: number of windows, the last ones, of rows that are in another one, too.
        """
        came = sum(window.came for window in windows[: len(windows) - violations])
        failed = sum((Counter(window.failed) for window in windows), Counter[str]())
        names = (each.name for each in self.table.dataset.expectations)
        return {name: ExpectationCounts(came - failed[name], failed[name]) for name in names}

    def _check(
        self,
        counts: Mapping[str, ExpectationCounts],
        totals: Mapping[str, ExpectationCounts],
        was: Mapping[TableName, TableEntry],
        violations: list[StoredTable],
    ) -> None:
        """Raise `ExpectationFailed` if rows violate an expectation that fails the update.

        A streaming table keeps what it holds, so only rows that came count.
        """
        streams = self.table.dataset.kind is DatasetKind.STREAMING_TABLE
        found = counts if streams else totals
        failing = with_action(self.table.dataset.expectations, OnViolation.FAIL)
        violated = [each for each in failing if found[each.name].failed]
        if not violated:
            return
        (table,) = violations
        folders = self._change_folders(table, was.get(table.name)) if streams else None
        row = _example(folders or [self._rows_folder(table)], violated[0].name)
        raise _failure(self.table, {each: found[each.name].failed for each in violated}, row)


def _failure(table: StoredTable, violated: Mapping[Expectation, int], row: str) -> ExpectationFailed:
    first, count = next(iter(violated.items()))
    rows = "1 row violates" if count == 1 else f"{count:,} rows violate"
    return ExpectationFailed(
        f"{rows} the expectation {first.name!r} of {table.name}",
        where=[
            Step(each.location, f"{each.name!r}: {each.text}; {number:,} failed")
            for each, number in violated.items()
        ],
        why=f"For example: {row}. The table stays as it was.",
        fix="correct the rows or the query; expect_or_drop, in SQL ON VIOLATION DROP ROW, keeps such rows "
        "out of the table, and expect only counts them",
        dataset=str(table.name),
        expectations={each.name: number for each, number in violated.items()},
        row=row,
    )


# -- files of changes, in Arrow ----------------------------------------------------------------------


def _weighted(folders: Iterable[Path], *, failed: bool) -> Iterator[tuple[Any, Any]]:
    """Yield the names of failed expectations and the weight of each row in folders of files.

    failed: whether the rows have such names; None stands for them otherwise.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    compute = _compute()
    for folder in folders:
        for file in data_files(folder):
            opened = pq.ParquetFile(file)
            wanted = [
                name
                for name in (WEIGHT, *([FAILED_EXPECTATIONS] if failed else []))
                if name in opened.schema_arrow.names
            ]
            rows = opened.read(wanted)
            ones = pa.array([1], pa.int64()).take(pa.array([0] * opened.metadata.num_rows, pa.int64()))
            weights = compute.fill_null(rows[WEIGHT], 1) if WEIGHT in wanted else ones
            yield (rows[FAILED_EXPECTATIONS] if failed else None), weights


def _compute() -> Any:
    import pyarrow.compute as pc

    return pc


def _positive(weights: Any) -> Any:
    """Return weights without those of retractions."""
    return _compute().max_element_wise(weights, 0)


def _sum(weights: Any) -> int:
    return _compute().sum(weights).as_py() or 0


def _failed(rows: Iterable[tuple[Any, Any]]) -> dict[str, int]:
    """Return the number of rows for each failed expectation."""
    import pyarrow as pa

    compute, counts = _compute(), Counter[str]()
    for names, weights in rows:
        if names is None or not len(names):
            continue
        each = pa.table({"name": compute.list_flatten(names), "weight": weights.take(_parents(names))})
        summed = each.group_by("name").aggregate([("weight", "sum")])
        for name, count in zip(summed["name"].to_pylist(), summed["weight_sum"].to_pylist(), strict=True):
            counts[name] += count
    return {name: count for name, count in counts.items() if count}


def _parents(lists: pa.ChunkedArray) -> Any:
    """Return the index of the list of each element."""
    return _compute().list_parent_indices(lists.combine_chunks())


_LONGEST = 40
"""Characters of a value that an error shows."""


def _example(folders: Iterable[Path], name: str) -> str:
    """Return a row that fails an expectation, as text."""
    import pyarrow.parquet as pq

    for file in (file for folder in folders for file in data_files(folder)):
        for group in range((opened := pq.ParquetFile(file)).num_row_groups):
            names = opened.read_row_group(group, columns=[FAILED_EXPECTATIONS])[FAILED_EXPECTATIONS]
            for at, failed in enumerate(names.to_pylist()):
                if name in failed:
                    row = opened.read_row_group(group).slice(at, 1).to_pylist()[0]
                    if row.pop(WEIGHT, 1) > 0:
                        del row[FAILED_EXPECTATIONS]
                        return ", ".join(f"{column} = {_short(value)}" for column, value in row.items())
    return "a row that is gone"


def _short(value: Any) -> str:
    text = "null" if value is None else repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
