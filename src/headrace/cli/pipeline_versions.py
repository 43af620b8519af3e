"""Output about earlier runs of a pipeline: their list, and the rows by which a table differs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import typer

from headrace.cli.row_formats import RowsFormat, create_console, create_table, printable

if TYPE_CHECKING:
    from headrace.pipelines.rollback import RolledBack
    from headrace.pipelines.run_history import KeptRun
    from headrace.pipelines.table_diff import TableDiff


def list_runs(runs: Sequence[KeptRun]) -> str:
    """Return the kept runs as text, the last one at the end."""
    if not runs:
        return "no run has published tables\n"
    rows = [("run", "published (UTC)", "tables", "rows", "changed")]
    for run in runs:
        changed = (
            "" if run.changed is None else ", ".join(f"{name.database}.{name.table}" for name in run.changed)
        )
        at = f"{run.at:%Y-%m-%d %H:%M:%S}"
        rows.append((str(run.number), at, f"{run.tables:,}", f"{run.rows:,}", changed))
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = (
        f"{run:>{widths[0]}}  {at:<{widths[1]}}  {tables:>{widths[2]}}  {count:>{widths[3]}}  {changed}"
        for run, at, tables, count, changed in rows
    )
    return "".join(f"{line.rstrip()}\n" for line in lines)


def outcome_of_rollback(done: RolledBack) -> str:
    """Describe a rollback, and what the next run does."""
    if done.published is None:
        return f"all tables are as after run {done.run} already\n"
    lines = [f"all tables are as after run {done.run}; this is run {done.published}"]
    for names, said in (
        (done.rebuilt, "made from all rows by the next run, since their state is not kept"),
        (
            done.removed,
            f"not there yet after run {done.run}; made by the next run if the project defines them",
        ),
        (done.dropped, "dropped since, and still so"),
        (done.delivered, "delivered by the next run"),
        (done.sinks, "sinks, which keep what they were given, and get again what the next run reads again"),
    ):
        if names:
            lines.append(f"{', '.join(map(str, names))}: {said}")
    lines.append("the next run reads what has changed in the inputs since")
    return "\n".join(lines) + "\n"


def print_diff(found: TableDiff, limit: int, format: RowsFormat) -> None:
    """Print a difference: its rows, and on standard error where it is from and how many there are."""
    from headrace.pipelines.stored_rows import is_number
    from headrace.pipelines.table_diff import plain, value_text

    rows = found.rows(limit)
    if format is RowsFormat.JSON:
        for weight, row in rows:
            typer.echo(json.dumps({"weight": weight, "row": plain(row)}, ensure_ascii=False))
    elif rows:
        types = {field.name: field.type for field in found.changes.schema}
        table = create_table("", *(f">{name}" if is_number(types[name]) else name for name in rows[0][1]))
        for weight, row in rows:
            table.add_row(_sign(weight), *(_cell(value, value_text) for value in row.values()))
        create_console().print(table)
    typer.echo(_summary(found, len(rows)), err=format is RowsFormat.JSON)


def _sign(weight: int) -> str:
    """Return + or -, with the number of copies if there are several."""
    sign = "+" if weight > 0 else "-"
    return sign if abs(weight) == 1 else f"{sign}{abs(weight):,}"


def _cell(value: Any, text_of: Callable[[Any], str]) -> str:
    return "null" if value is None else printable(text_of(value))


def _summary(found: TableDiff, shown: int) -> str:
    before, after = found.versions
    runs = f"run {found.before} (version {before or 'none'}) to run {found.after} (version {after or 'none'})"
    lines = [f"{found.table}: {runs}: {_rows(found.inserted)} came, {found.deleted:,} went"]
    lines += [f"column {name} {what}" for name, what in found.columns.items()]
    more = len(found.changes) - shown
    if more:
        lines.append(f"{more:,} more: --limit {len(found.changes)} shows all")
    return "\n".join(lines)


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"
