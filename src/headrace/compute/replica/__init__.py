"""Replica: the disposable process that maintains views, and the choice of its runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.compute.collections.opening import open_collections
from headrace.compute.protocol.commands import InstanceConfig, RuntimeName, TimelyConfig
from headrace.compute.replica.building import PlanDecoder
from headrace.compute.replica.feeds import StoreWatcher
from headrace.compute.replica.in_process.runtime import GcPolicy, InProcessRuntime
from headrace.compute.replica.replica import Replica
from headrace.compute.replica.runtime import ReplicaRuntime
from headrace.compute.replica.work_watch import WorkWatch, memory_of_process

__all__ = ["Replica", "make_runtime"]


@dataclass(frozen=True, slots=True)
class _Options:
    """Command-line options of the replica process."""

    state: Path
    allow_callables: bool
    watch: WorkWatch


def make_runtime(
    timely: TimelyConfig,
    instance: InstanceConfig,
    wake: Callable[[], None],
    *,
    state: Path,
    collections: str | None = None,
    allow_callables: bool = False,
    watch: WorkWatch | None = None,
) -> ReplicaRuntime:
    """Create the requested runtime. With its keywords bound, it is the `make_runtime` of a `Replica`.

    state:       folder for this replica alone.
    collections: URI of the store, instead of the controller's.
    allow_callables: whether plans may carry Python functions.
    watch:       watch over the work of this thread.

    Raises what opening the collections raises, and `BadInput` if the runtime is not installed.
    """
    if collections is not None:
        instance = replace(instance, collections=collections)
    return _RUNTIMES[timely.runtime](
        _Options(state, allow_callables, watch or WorkWatch()), timely, instance, wake
    )


def _here(
    options: _Options, timely: TimelyConfig, instance: InstanceConfig, wake: Callable[[], None]
) -> ReplicaRuntime:
    if timely.workers > 1:
        from headrace.compute.replica.workers.runtime import Workers

        return Workers(
            instance,
            wake,
            number=timely.workers,
            folder=options.state,
            allow_callables=options.allow_callables,
        )
    here = InProcessRuntime(
        instance,
        wake,
        collections=open_collections(instance.collections),
        folder=options.state,
        plans=PlanDecoder(options.allow_callables),
        watched=True,
        memory=memory_of_process,
        watch=options.watch,
    )
    here.collect(GcPolicy())
    here.attach_watcher(StoreWatcher(instance.collections, here.noticed))
    return here


def _on_spark(
    options: _Options, timely: TimelyConfig, instance: InstanceConfig, wake: Callable[[], None]
) -> ReplicaRuntime:
    from headrace.compute.replica.spark.runtime import SparkRuntime

    return SparkRuntime(instance, wake, state=options.state, allow_callables=options.allow_callables)


_RUNTIMES: Mapping[
    RuntimeName, Callable[[_Options, TimelyConfig, InstanceConfig, Callable[[], None]], ReplicaRuntime]
] = {"here": _here, "spark": _on_spark}
