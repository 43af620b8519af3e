"""Parameter combinations of the reference modules around a module under test."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from itertools import product
from typing import TypeVar

from headrace.pull.protocol import End
from headrace.pull.rules.checker import Profile
from headrace.testing.pull.neighbour_modules import SinkCase, SourceCase

C = TypeVar("C")


class SourceError(Exception):
    """Failure of a reference source."""


class SinkError(Exception):
    """Failure of a stream by a reference sink."""


_AFTERWARDS: tuple[tuple[End | None, ...], ...] = ((), (None, None), (True, True))


def source_cases(*, all: bool) -> list[SourceCase]:
    """List sources of 0, 1 and 3 values. all: also with each treatment of pending asks."""
    found: list[SourceCase] = []
    for count, fails in product((0, 1, 3), (False, True)):
        end: End = SourceError("the source failed") if fails else True
        found.append(SourceCase(count, end))
        found.append(SourceCase(count, end, sync=False))
        if all:
            found.append(SourceCase(count, end, confirms_done=True))
            found.append(SourceCase(count, end, sync=False, pending="values"))
            found.append(SourceCase(count, end, sync=False, pending="left", confirms_done=True))
    return found


def sink_cases(*, all: bool, endless: bool = False) -> list[SinkCase]:
    """List sinks that stop never or after 0, 1 and 3 values, in each way.

    all: the whole product; otherwise requests after the end only for some. endless: only sinks that stop.
    """
    found = list(_stopping(all))
    if not endless:
        found += [
            SinkCase(concurrency=concurrency, afterwards=afterwards)
            for concurrency, afterwards in product((1, 3), _AFTERWARDS)
        ]
    return found


def _stopping(all: bool) -> Iterator[SinkCase]:
    for after, fails, indicates, waits, concurrency, afterwards in product(
        (0, 1, 3), (False, True), (False, True), (True, False), (1, 3), _AFTERWARDS
    ):
        if all or not afterwards or (after == 1 and concurrency == 1):
            by: End = SinkError("the sink failed") if fails else True
            yield SinkCase(after, by, indicates, waits, concurrency, afterwards)


def batching_cases(*, endless: bool = False) -> list[SinkCase]:
    """List sinks that ask for two values at once. endless: only sinks that stop."""
    found = [] if endless else [SinkCase(batch=2)]
    for after, fails, waits in product((0, 1, 3), (False, True), (True, False)):
        by: End = SinkError("the sink failed") if fails else True
        found.append(SinkCase(after, by, waits=waits, batch=2))
    return found


def checkable_profiles(case: SinkCase, profiles: Collection[Profile]) -> list[Profile]:
    """List the profiles that can be checked for a module next to this sink.

    The documentation allows one request at a time, one stop that waits for its confirmation, and no requests
    after an end. It does not cover a stop that may cross the end.
    """
    kept = case.concurrency == 1 and case.waits and not case.indicates and not case.afterwards
    return [profile for profile in profiles if profile != "docs" or kept]


def shuffle_deterministically(cases: list[C]) -> list[C]:
    """Shuffle deterministically, so that a few seeds cover cases of all kinds."""
    random.Random(0).shuffle(cases)
    return cases
