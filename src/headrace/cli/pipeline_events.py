"""Events of a pipeline's run: lines in the words of `spark-pipelines`, JSON, or a table on a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import typer

from headrace.errors import HeadraceError
from headrace.pipelines.definitions import TableName
from headrace.pipelines.expectations import Expectation, OnViolation
from headrace.pipelines.pipeline_run import Event, Observer, RunReport, UpdateState
from headrace.pipelines.query_errors import message_of
from headrace.pipelines.table_update import Updated

_SKIPPED = "due to upstream failure(s)"


def text_lines(event: Event) -> None:
    """Print a line for an event."""
    typer.echo(f"{_now()}: {_sentence(event)}")


def _sentence(event: Event) -> str:
    match event.state:
        case UpdateState.COMPLETED:
            return f"Flow {event.dataset.title} has COMPLETED: {_done(event)}."
        case UpdateState.FAILED:
            assert event.error is not None
            return f"Flow '{event.dataset.title}' has FAILED.\nError: {message_of(event.error)}"
        case UpdateState.SKIPPED:
            return f"Flow '{event.dataset.title}' SKIPPED {_SKIPPED}."
        case UpdateState.QUEUED if event.error is not None:
            error = message_of(event.error)
            return f"Flow '{event.dataset.title}' has FAILED and will be restarted.\nError: {error}"
        case _:
            return f"Flow {event.dataset.title} is {event.state.value}."


def _done(event: Event) -> str:
    """Describe the result of an update."""
    updated = event.updated
    assert updated is not None
    read = "" if updated.rows_in is None else f", {updated.rows_in:,} rows read"
    why = f" ({updated.why})" if updated.why else ""
    expected = _expectations(event)
    if event.changed:
        return f"{updated.entry.rows:,} rows, {updated.method.value}{read}{why}{expected}"
    return f"{updated.entry.rows:,} rows, nothing changed{f'{read}{why}' if updated.whole else ''}{expected}"


_VIOLATED = {OnViolation.WARN: "failed", OnViolation.DROP: "dropped", OnViolation.FAIL: "failed"}


def _expectations(event: Event) -> str:
    """Describe the expectations of rows that came; empty if none came."""
    assert event.updated is not None
    shown: list[str] = []
    for each in event.dataset.expectations:
        counts = event.updated.expectations.get(each.name)
        if counts is not None and sum(counts):
            shown.append(f"{each.name} {_VIOLATED[each.on_violation]} {counts.failed:,} of {sum(counts):,}")
    return f"; expectations: {', '.join(shown)}" if shown else ""


def json_lines(event: Event) -> None:
    """Print a JSON object for an event."""
    typer.echo(json.dumps(_facts(event)))


@dataclass(frozen=True, slots=True)
class Printer:
    """Printer of events that do not concern a single table: orphans, errors, Spark's part, the summary."""

    orphan: Callable[[TableName], str]
    error: Callable[[HeadraceError], str]
    spark: Callable[[str], str]
    not_kept: Callable[[str], str]
    last: Callable[[RunReport], str]

    def end(self, report: RunReport) -> None:
        for name in report.orphans:
            typer.echo(self.orphan(name))
        if report.spark:
            typer.echo(self.spark(report.spark))
        if report.not_kept:
            typer.echo(self.not_kept(report.not_kept))
        typer.echo(self.last(report))


def _outcome(report: RunReport) -> str:
    nothing = "" if report.events else " The project defines no tables."
    return f"{_now()}: Run {'has FAILED' if report.failed else 'is COMPLETED'}.{nothing}"


TEXT_PRINTER = Printer(
    lambda name: (
        f"{_now()}: Table {name} is ORPHANED: the project does not define it, and no run refreshes it. "
        f"To remove it: headrace pipeline drop {name.database}.{name.table}"
    ),
    lambda error: f"{_now()}: The project has an ERROR; what it concerns stays as it is.\nError: {error}",
    lambda why: f"{_now()}: Spark was needed: {why}.",
    lambda why: f"{_now()}: The next run needs Spark again: the analysis is not kept, since {why}.",
    _outcome,
)

JSON_PRINTER = Printer(
    lambda name: json.dumps({"at": _stamp(), "table": str(name), "state": "ORPHANED"}),
    lambda error: json.dumps({"at": _stamp(), "error": message_of(error)}),
    lambda why: json.dumps({"at": _stamp(), "spark": why}),
    lambda why: json.dumps({"at": _stamp(), "analysis_not_kept": why}),
    lambda report: json.dumps({"at": _stamp(), "run": "FAILED" if report.failed else "COMPLETED"}),
)


class News:
    """News of a later run: changed tables, and new failures and orphans.

    report: report of the previous run.
    """

    def __init__(self, observer: Observer, report: RunReport, printer: Printer) -> None:
        self._observer = observer
        self._printer = printer
        self._failures = {name: _trouble(event) for name, event in report.events.items()}
        self._errors: Set[str] = set()
        self._orphans = set[TableName]()

    def event(self, event: Event) -> None:
        if event.state not in (UpdateState.COMPLETED, UpdateState.FAILED, UpdateState.SKIPPED):
            return
        trouble = _trouble(event)
        if event.changed or (trouble and trouble != self._failures.get(event.table)):
            self._observer(event)
        self._failures[event.table] = trouble

    def report(self, report: RunReport) -> None:
        self.errors(report.errors)
        if not report.errors:
            for name in sorted(set(report.orphans) - self._orphans):
                typer.echo(self._printer.orphan(name))
            self._orphans = set(report.orphans)

    def errors(self, errors: Sequence[HeadraceError]) -> None:
        said = {str(error): error for error in errors}
        for text in (each for each in said if each not in self._errors):
            typer.echo(self._printer.error(said[text]))
        self._errors = said.keys()


def _trouble(event: Event) -> str:
    return f"{event.state} {event.error}" if event.state in (UpdateState.FAILED, UpdateState.SKIPPED) else ""


def _facts(event: Event) -> dict[str, Any]:
    facts: dict[str, Any] = {"at": _stamp(), "table": str(event.table), "state": event.state.value}
    if event.dataset.input:
        facts["snapshot_of"] = event.dataset.input
    if event.error is not None:
        facts["error"] = message_of(event.error)
    if event.updated is not None:
        facts |= {
            "method": event.updated.method.value,
            "from_all_rows": event.updated.whole,
            "why": event.updated.why,
            "changed": event.changed,
            "rows": event.updated.entry.rows,
            "rows_read": event.updated.rows_in,
            "version": event.updated.entry.version,
            "seconds": round(event.seconds, 3),
        }
    if event.updated is not None and event.updated.expectations:
        facts["expectations"] = _expectation_facts(event.dataset.expectations, event.updated)
    return facts


def _expectation_facts(expectations: Sequence[Expectation], updated: Updated) -> dict[str, Any]:
    """Return the counts of each expectation: of the rows that came, and of all rows."""
    return {
        each.name: {
            "on_violation": each.on_violation.value,
            **updated.expectations[each.name]._asdict(),
            "total": updated.expectation_totals[each.name]._asdict(),
        }
        for each in expectations
    }


@contextmanager
def live_table() -> Generator[Observer | None]:
    """Yield an observer that shows a live table of all states on the terminal; None without a terminal."""
    if not sys.stdout.isatty():
        yield None
        return
    from rich.console import Console
    from rich.live import Live

    events: dict[TableName, Event] = {}
    with Live(console=Console(markup=False, emoji=False), refresh_per_second=8) as live:

        def show(event: Event) -> None:
            events[event.table] = event
            live.update(_table(events))

        yield show
    for event in events.values():
        if event.error is not None:
            typer.echo(_sentence(event))


def _table(events: dict[TableName, Event]) -> Any:
    from rich.table import Table

    table = Table("table", "state", "rows", "read", "by", "s", box=None, padding=(0, 2))
    for event in events.values():
        updated = event.updated
        rows = f"{updated.entry.rows:,}" if updated else ""
        read = "" if updated is None or updated.rows_in is None else f"{updated.rows_in:,}"
        by = ""
        if updated is not None:
            by = updated.method.value if event.changed else "nothing changed"
        seconds = f"{event.seconds:.1f}" if event.seconds else ""
        table.add_row(event.dataset.title, event.state.value, rows, read, by, seconds)
    return table


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")


def _stamp() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
