"""How a run is shown: in a pipe, on a terminal."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from rich.console import Console

from headrace.engine.progress import Cost, Progress, SourceProgress
from headrace.engine.progress_display import (
    RunTotals,
    ThrottledLinePrinter,
    format_bytes,
    format_duration,
    format_progress_block,
    status_parts,
)
from tests.cli.conftest import Run

EVERYTHING = Progress(
    tick=7,
    rows_in=2_000,
    set_aside=1,
    changes_out=30,
    seconds=0.5,
    way="one task",
    sources={
        "bids": SourceProgress(2_000, waiting=3, newest=0.0),
        "prices": SourceProgress(0, backlog={"maxOffsetsBehindLatest": "12"}),
    },
    watermarks={"minutes": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "steps": 1_200},
    late={"minutes": 2, "steps": 1},
    state_bytes=1_500_000,
    cost=Cost(
        0.02, 0.3, 0.5, {"read": 0.05, "compute": 0.4, "write": 0.001}, {"source 'bids'": 2_000}, 1_200_000
    ),
)


def test_what_waits_and_where_the_run_stands_is_told_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 90.0)
    assert list(status_parts(EVERYTHING)) == [
        "bids: 3 waiting, newest 90.0 s ago",
        "prices: maxOffsetsBehindLatest 12",
        "minutes at 2026-01-02 03:04:05",
        "steps at 1,200",
        "3 rows late",
        "state 1.5 MB",
        "CPU 820.0 ms: driver 20.0 ms, JVM 300.0 ms, workers 500.0 ms (read 10%, compute 80%, rest 10%)",
        "2,000 rows of source 'bids' sent",
        "1.2 MB shuffled",
    ]


def test_speed_is_of_all_ticks_and_duration_of_the_last_and_of_the_mean() -> None:
    pace = RunTotals()
    pace.add(Progress(1, 1_000, 0, 5, 1.5))
    pace.add(EVERYTHING)
    assert pace.format_line(EVERYTHING) == (
        "tick 7   3,000 rows in, 35 changes out, 1 set aside   1,500 rows/s   "
        "500.0 ms this tick in one task, 1.0 s on average"
    )


def test_in_a_log_there_is_a_line_now_and_then_and_never_before_its_time() -> None:
    times: Iterator[float] = iter([0.0, 1.0, 10.0, 19.0, 20.0])
    out = io.StringIO()
    lines = ThrottledLinePrinter(out, 10.0, clock=lambda: next(times))
    for tick in range(1, 5):
        lines(Progress(tick, 1, 0, 1, 0.1))
    assert [line.split("   ")[0] for line in out.getvalue().splitlines()] == ["tick 2", "tick 4"]


def test_a_terminal_shows_sources_watermarks_and_state_below_the_line() -> None:
    console = Console(file=io.StringIO(), width=120, force_terminal=False)
    pace = RunTotals()
    pace.add(EVERYTHING)
    with console.capture() as shown:
        console.print(format_progress_block(pace, EVERYTHING))
    text = [line.split() for line in shown.get().splitlines()]
    assert text[0][:2] == ["tick", "7"]
    assert text[1][:5] == ["bids", "2,000", "rows", "3", "waiting,"]
    assert text[3] == ["minutes", "2026-01-02", "03:04:05", "2", "late"]
    assert text[5][:3] == ["state", "1.5", "MB"]


def test_a_run_in_a_pipe_says_no_more_than_its_summary_unless_it_is_asked_to(headrace: Run) -> None:
    command = ("run", "flows:flow", "--source", "sales=json:in", "--sink", "totals=changelog:out")
    (summary,) = headrace(*command, "--checkpoint", "a").stderr.splitlines()
    assert summary.endswith(" s: 3 rows read, 2 changes written")
    quiet = *command[:-1], "totals=changelog:quiet", "--checkpoint", "c", "--no-progress"
    assert headrace(*quiet).stderr == ""
    done = headrace(*command[:-1], "totals=changelog:again", "--checkpoint", "b", "--progress")
    assert done.stderr.startswith("tick 1   3 rows in, 2 changes out   ")
    assert "   state " in done.stderr


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.00002, "20 µs"), (0.5, "500.0 ms"), (90, "90.0 s"), (600, "10 min"), (9000, "2 h")],
)
def test_durations_have_a_unit_of_their_size(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_sizes_too() -> None:
    assert [format_bytes(n) for n in (17, 1_500, 2 * 10**9, 3 * 10**12)] == [
        "17 bytes",
        "1.5 kB",
        "2.0 GB",
        "3.0 TB",
    ]
