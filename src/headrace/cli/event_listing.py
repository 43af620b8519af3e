"""Listing of a pipeline's event log: runs, each with its tables, in aligned columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from headrace.pipelines.event_log import RUN, RUNNING, EventRecord

_COLUMNS = ("at", "table", "state", "method", "read", "inserted", "deleted", "rows", "s", "CPU s")
_MORE = ("state bytes", "file bytes", "version")
_TEXTS = frozenset({"at", "table", "state", "method"})
"""Columns that are aligned to the left."""


def list_records(records: Sequence[EventRecord]) -> str:
    """Return the records of runs as text: a line per run, the lines of its tables, and their reasons."""
    if not records:
        return "no run is recorded\n"
    lines = [line for _, of_run in groupby(records, lambda each: each.run) for line in _lines(list(of_run))]
    header = (*_COLUMNS, *_MORE)
    rows = [header, *(cells for cells, _ in lines)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(header))]
    return "".join(f"{_aligned(cells, header, widths)}\n{notes}" for cells, notes in [(header, ""), *lines])


def _aligned(cells: Sequence[str], header: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(
        cell.ljust(width) if name in _TEXTS else cell.rjust(width)
        for cell, name, width in zip(cells, header, widths, strict=True)
    ).rstrip()


def _lines(records: Sequence[EventRecord]) -> Iterator[tuple[Sequence[str], str]]:
    """Yield the cells of each line of one run, and the text that follows it."""
    runs = [each for each in records if each.kind == RUN]
    if runs:
        yield _cells(runs[-1], f"run {runs[-1].run}"), _notes(runs[-1])
    for each in records:
        if each.kind != RUN:
            yield _cells(each, f"  {each.table_name}"), _notes(each)


def _notes(record: EventRecord) -> str:
    counts = [
        f"{each['name']}: {each['passed']:,} passed, {each['failed']:,} failed"
        for each in record.expectations
    ]
    notes = [*filter(None, [record.reason]), *counts, *record.error.splitlines()]
    return "".join(f"    {note}".rstrip() + "\n" for note in notes)


def _cells(record: EventRecord, title: str) -> Sequence[str]:
    at = record.at[:19].replace("T", " ")
    if record.state in (RUNNING, "DIED", "SKIPPED"):
        return (at, title, record.state, *("" for _ in range(len(_COLUMNS) + len(_MORE) - 3)))
    counts = (record.rows_read, record.rows_inserted, record.rows_deleted, record.rows)
    return (
        at,
        title,
        record.state if record.kind != "delivery" else f"{record.state} to deliver",
        record.method,
        *("?" if count is None else f"{count:,}" for count in counts),
        f"{record.seconds:.2f}",
        f"{record.cpu_seconds + record.spark_cpu_seconds:.2f}",
        f"{record.state_bytes:,}",
        f"{record.file_bytes:,}",
        str(record.version_after)
        if record.version_before == record.version_after
        else f"{record.version_before} -> {record.version_after}",
    )
