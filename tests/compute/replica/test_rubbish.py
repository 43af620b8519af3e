"""The collector of garbage is looked after while a replica runs, and left as it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.compute.replica.in_process import runtime
from headrace.compute.replica.in_process.runtime import GcPolicy


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Which generations were looked at."""
    found: list[int] = []

    def collect(generation: int = 2) -> int:
        found.append(generation)
        return 0

    monkeypatch.setattr(gc, "collect", collect)
    yield found
    assert gc.isenabled()


def test_everything_is_looked_at_only_while_nothing_else_is_to_do(looks: list[Any]) -> None:
    time = Time()
    collector = GcPolicy(time)
    assert not gc.isenabled()
    time.now = runtime.OLD + 1
    collector.slice(busy=True)
    assert 2 not in looks
    collector.slice(busy=False)
    collector.slice(busy=False)
    assert looks.count(2) == 1
    collector.close()


def test_after_a_drop_it_is_looked_at_soon(looks: list[Any]) -> None:
    time = Time()
    collector = GcPolicy(time)
    collector.schedule_collection()
    collector.slice(busy=False)
    assert 2 not in looks
    time.now = runtime.SOON + 1
    collector.slice(busy=False)
    assert looks.count(2) == 1
    collector.close()
