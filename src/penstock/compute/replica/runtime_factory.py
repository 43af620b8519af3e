"""Which runtime a replica runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.compute.collections.opening import open_collections
from penstock.compute.protocol.commands import InstanceConfig, RuntimeName, TimelyConfig
from penstock.compute.replica.building import Plans
from penstock.compute.replica.feeds import Watcher
from penstock.compute.replica.in_process.gc_policy import GcPolicy
from penstock.compute.replica.in_process.introspection import memory_of_process
from penstock.compute.replica.in_process.runtime import InProcessRuntime
from penstock.compute.replica.runtime import Runtime


@dataclass(frozen=True, slots=True)
class _Place:
    """What a replica is given by those who started it."""

    state: Path
    allow_callables: bool


def make_runtime(
    timely: TimelyConfig,
    instance: InstanceConfig,
    wake: Callable[[], None],
    *,
    state: Path,
    collections: str | None = None,
    allow_callables: bool = False,
) -> Runtime:
    """The runtime that a replica is asked for. Bind the keywords, and `Replica` can call it.

    state:       a folder of this replica alone.
    collections: where the collections are, instead of where the controller says.
    allow_callables: whether Python functions of others are run.

    Raises what opening the collections raises, and `BadInput` where the runtime is not installed.
    """
    if collections is not None:
        instance = replace(instance, collections=collections)
    return _RUNTIMES[timely.runtime](_Place(state, allow_callables), timely, instance, wake)


def _here(place: _Place, timely: TimelyConfig, instance: InstanceConfig, wake: Callable[[], None]) -> Runtime:
    if timely.workers > 1:
        from penstock.compute.replica.workers.runtime.runtime import Workers

        return Workers(
            instance,
            wake,
            number=timely.workers,
            folder=place.state,
            allow_callables=place.allow_callables,
        )
    here = InProcessRuntime(
        instance,
        wake,
        collections=open_collections(instance.collections),
        folder=place.state,
        plans=Plans(place.allow_callables),
        watched=True,
        memory=memory_of_process,
    )
    here.collect(GcPolicy())
    here.watch(Watcher(instance.collections, here.noticed))
    return here


def _on_spark(
    place: _Place, timely: TimelyConfig, instance: InstanceConfig, wake: Callable[[], None]
) -> Runtime:
    from penstock.compute.replica.spark.runtime import SparkRuntime

    return SparkRuntime(instance, wake, state=place.state, allow_callables=place.allow_callables)


_RUNTIMES: Mapping[
    RuntimeName, Callable[[_Place, TimelyConfig, InstanceConfig, Callable[[], None]], Runtime]
] = {"here": _here, "spark": _on_spark}
