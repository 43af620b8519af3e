"""Each test of this folder runs on every runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from headrace.compute.collections.opening import open_collections
from headrace.compute.protocol.commands import InstanceConfig
from headrace.compute.replica.building import PlanDecoder
from headrace.compute.replica.in_process.runtime import InProcessRuntime
from headrace.compute.replica.runtime import ReplicaRuntime
from headrace.compute.replica.workers.runtime import Workers
from tests.compute.runtimes.stage import Make, Stage

ALL = [
    "here",
    pytest.param("workers", marks=pytest.mark.verify),
    pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.verify]),
]
"""In `make test` the runtimes of several processes are compared with the one here (`test_agreement`)."""
_NAMES = count()


def make_here(config: InstanceConfig, wake: Callable[[], None], folder: Path) -> ReplicaRuntime:
    store = open_collections(config.collections)
    return InProcessRuntime(
        config, wake, collections=store, folder=folder, plans=PlanDecoder(allow_callables=True)
    )


def make_workers(config: InstanceConfig, wake: Callable[[], None], folder: Path) -> ReplicaRuntime:
    return Workers(config, wake, number=2, folder=folder)


def maker(name: str, request: pytest.FixtureRequest) -> Make:
    """What makes a runtime by its name."""
    if name == "here":
        return make_here
    if name == "workers":
        return make_workers
    from headrace.compute.replica.spark.runtime import SparkRuntime

    spark = request.getfixturevalue("spark")
    return lambda config, wake, folder: SparkRuntime(
        config, wake, state=folder, spark=spark, allow_callables=True
    )


@pytest.fixture(params=ALL)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(maker(request.param, request), f"sqlite:{tmp_path}/collections.db", tmp_path / "replica")
    yield stage
    stage.close()
