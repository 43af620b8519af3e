"""What the reference modules do around a module under test: all combinations of their parameters."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from itertools import product
from typing import TypeVar

from penstock.pull.protocol import End
from penstock.pull.rules.checker import Profile
from penstock.testing.pull.reference import SinkCase, SourceCase

C = TypeVar("C")


class SourceError(Exception):
    """What a reference source fails with."""


class SinkError(Exception):
    """What a reference sink fails a stream with."""


_AFTERWARDS: tuple[tuple[End | None, ...], ...] = ((), (None, None), (True, True))


def source_cases(*, all: bool) -> list[SourceCase]:
    """Sources of 0, 1 and 3 values. all: also with each way to treat asks that pend."""
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
    """Sinks that stop never or after 0, 1 and 3 values, in each way.

    all: the whole product; else what comes after the end only for some. endless: none that never stops.
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
    """Sinks that ask for two values at once. endless: none that never stops."""
    found = [] if endless else [SinkCase(batch=2)]
    for after, fails, waits in product((0, 1, 3), (False, True), (True, False)):
        by: End = SinkError("the sink failed") if fails else True
        found.append(SinkCase(after, by, waits=waits, batch=2))
    return found


def profiles_for(case: SinkCase, profiles: Collection[Profile]) -> list[Profile]:
    """The profiles by which a module can be judged beside a sink that does this.

    The documentation allows one request at a time, one stop that waits for its confirmation, and
    nothing after an end: where a stop may cross the end, it says nothing.
    """
    kept = case.concurrency == 1 and case.waits and not case.indicates and not case.afterwards
    return [profile for profile in profiles if profile != "docs" or kept]


def mixed(cases: list[C]) -> list[C]:
    """The same in another order, always the same one: so that a few seeds meet cases of all kinds."""
    random.Random(0).shuffle(cases)
    return cases
