"""The events that the tests of Nexmark queries use, and what a database answers to them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa

from examples.nexmark.events import SOURCES, Kind
from examples.nexmark.generator import Generator, Parameters
from examples.nexmark.oracle import Database, Rows
from examples.nexmark.queries import Query

EVENTS = 4_000

# 80 seconds over midnight, up to 2 seconds behind others: windows of all sizes close, and nothing is late.
PARAMETERS = Parameters(
    seed=11,
    start=datetime(2015, 7, 14, 23, 59, 20, tzinfo=UTC),
    inter_event_delay=timedelta(milliseconds=20),
    disorder=100,
)

# Up to 10 seconds behind others, where 4 are allowed.
WITH_LATE_ONES = replace(PARAMETERS, disorder=500)
LATENESS = np.timedelta64(4, "s")

WINDOWS = ("q5", "q7", "q8", "q11")
"""These pass over late rows; all others take every row."""


def expected(
    queries: Iterable[Query], *, size: int = EVENTS, parameters: Parameters = PARAMETERS, events: int = EVENTS
) -> dict[str, Rows]:
    """What the database answers to all events, where `size` of them come in a tick."""
    all_rows, on_time, generator = Database(), Database(), Generator(parameters)
    for tick, start in enumerate(range(0, events, size)):
        for kind in SOURCES:
            all_rows.add(kind, tick, generator.table(kind, start, min(start + size, events)))
    for kind in SOURCES:
        on_time.add(kind, 0, rows_on_time(kind, generator, events))
    return {q.name: (on_time if q.name in WINDOWS else all_rows).answer(q) for q in queries}


def rows_on_time(kind: Kind, generator: Generator, events: int = EVENTS) -> pa.Table:
    """The rule of watermarks: late is a row that is older than the latest before it by more than allowed."""
    table = generator.table(kind, 0, events)
    times = table["date_time"].to_numpy()
    return table.filter(pa.array(times >= np.maximum.accumulate(times) - LATENESS))
