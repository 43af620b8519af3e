"""Reconciliation: which dataflows a replica keeps when a controller connects.

A new controller sends all commands for the state it wants, up to `InitializationComplete`. The replica
compares them with the commands it received before, and keeps each dataflow that would be rebuilt identically,
so that a restart of the controller causes no recomputation.

Law: a reconciled replica answers as a fresh one would with the same commands. The decision depends only on
the two sequences of commands, never on the replica's progress, so that all workers of a replica decide alike.
Source: the compute protocol of Materialize, reconciliation on the replica (reference).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from headrace.compute.errors import IncompatibleInstance
from headrace.compute.frontier import END, START, Frontier
from headrace.compute.history import reduce_commands
from headrace.compute.protocol.commands import (
    AllowCompaction,
    CancelPeek,
    Command,
    CopyToExport,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    Dataflow,
    Id,
    InitializationComplete,
    InstanceConfig,
    Peek,
    SubscribeExport,
)

Reason: TypeAlias = Literal[
    "compatible", "uncompacted", "subscribe_free", "copy_to_free", "dependencies_retained"
]
"""Conditions for keeping a dataflow:

compatible:            same plan, imports and exports, with an as-of no later and an until no earlier.
uncompacted:           no export was compacted beyond the new as-of.
subscribe_free:        no subscription, whose earlier changes went to another connection.
copy_to_free:          no copy, for the same reason.
dependencies_retained: the indexes that it reads are kept, too.
"""


@dataclass(frozen=True, slots=True)
class ReconciliationPlan:
    """Steps of a reconciliation, in the order `first`, `then`.

    keep:    requested dataflows that keep running, from their new as-of.
    drop:    exports to drop. The replica reports nothing more about them.
    create:  dataflows to build; those with their export ids in `reasons` replace one that could not be kept.
    reasons: the unmet conditions of each replaced dataflow, by its export ids.
    first:   compactions: END for dropped exports, the new as-of for kept ones. They come first, so that
        memory is freed before it is needed.
    then:    commands to apply. Settings start from `Parameters()`.
    history: the replica's history from now on.
    halt:    the error with which the replica exits, to be restarted. None: it continues.
    """

    keep: tuple[Dataflow, ...] = ()
    drop: tuple[Id, ...] = ()
    create: tuple[Dataflow, ...] = ()
    reasons: Mapping[frozenset[Id], tuple[Reason, ...]] = field(
        default_factory=dict[frozenset[Id], tuple[Reason, ...]]
    )
    first: tuple[AllowCompaction, ...] = ()
    then: tuple[Command, ...] = ()
    history: tuple[Command, ...] = ()
    halt: IncompatibleInstance | None = None


def reconcile(installed: Sequence[Command] | None, asked: Sequence[Command]) -> ReconciliationPlan:
    """Reconcile a replica that has received `installed` with the commands `asked` of its next controller.

    installed: None if the replica has no state.
    asked:     all commands of the initialization stage; with or without `CreateTimely`,
        `InitializationComplete`.
    """
    commands = tuple(c for c in asked if not isinstance(c, CreateTimely | InitializationComplete))
    if installed is None:
        return ReconciliationPlan(create=_dataflows(commands), then=commands, history=commands)
    running = _Running.of(installed)
    return _agree(running, commands)


@dataclass(frozen=True, slots=True)
class _Running:
    """Existing state of a replica: dataflows by their export ids, and compactions of exports beyond the
    as-of."""

    instance: InstanceConfig | None
    dataflows: Mapping[frozenset[Id], Dataflow]
    compactions: Mapping[Id, Frontier]

    @classmethod
    def of(cls, installed: Sequence[Command]) -> _Running:
        commands = reduce_commands(c for c in installed if not isinstance(c, Peek | CancelPeek))
        return cls(
            next((c.config for c in commands if isinstance(c, CreateInstance)), None),
            {d.export_ids: d for d in _dataflows(commands)},
            {c.id: c.frontier for c in commands if isinstance(c, AllowCompaction)},
        )


def _agree(running: _Running, commands: tuple[Command, ...]) -> ReconciliationPlan:
    kept: dict[frozenset[Id], Dataflow] = {}
    kept_ids: set[Id] = set()
    create: list[Dataflow] = []
    reasons: dict[frozenset[Id], tuple[Reason, ...]] = {}
    then: list[Command] = []
    for command in commands:
        match command:
            case CreateInstance(config):
                if running.instance is not None and not can_adopt_configuration(running.instance, config):
                    return ReconciliationPlan(history=commands, halt=_halt(running.instance, config))
            case CreateDataflow(dataflow):
                old = running.dataflows.get(dataflow.export_ids)
                failed = () if old is None else _reasons(old, dataflow, running.compactions, kept_ids)
                if old is not None and not failed:
                    kept[dataflow.export_ids] = dataflow
                    kept_ids |= dataflow.export_ids
                    continue
                if failed:
                    reasons[dataflow.export_ids] = failed
                create.append(dataflow)
                then.append(command)
            case _:
                then.append(command)
    first = _compactions(running, kept)
    drop = tuple(c.id for c in first if c.frontier.ended)
    return ReconciliationPlan(
        tuple(kept.values()), drop, tuple(create), reasons, first, tuple(then), commands
    )


def _reasons(
    old: Dataflow, new: Dataflow, compactions: Mapping[Id, Frontier], kept: set[Id]
) -> tuple[Reason, ...]:
    """List the unmet conditions for the old dataflow to serve as the new one."""
    conditions: dict[Reason, bool] = {
        "compatible": _same(old, new) and old.as_of <= new.as_of and old.until >= new.until,
        "uncompacted": all(compactions.get(e.id, START) <= new.as_of for e in new.exports),
        "subscribe_free": not any(isinstance(e, SubscribeExport) for e in new.exports),
        "copy_to_free": not any(isinstance(e, CopyToExport) for e in new.exports),
        "dependencies_retained": all(i.id in kept for i in new.indexes),
    }
    return tuple(reason for reason, holds in conditions.items() if not holds)


def _same(old: Dataflow, new: Dataflow) -> bool:
    """Whether two dataflows have the same plan hash, imports and exports, ignoring names and uppers."""
    return (
        old.plan.hash == new.plan.hash
        and set(old.collections) == set(new.collections)
        and set(old.indexes) == set(new.indexes)
        and set(old.exports) == set(new.exports)
    )


def _compactions(running: _Running, kept: Mapping[frozenset[Id], Dataflow]) -> tuple[AllowCompaction, ...]:
    return tuple(
        AllowCompaction(export.id, kept[ids].as_of if ids in kept else END)
        for ids, dataflow in running.dataflows.items()
        for export in dataflow.exports
        if ids in kept or running.compactions.get(export.id) != END
    )


def can_adopt_configuration(running: InstanceConfig, asked: InstanceConfig) -> bool:
    """Whether a running replica can adopt a configuration: an equal one, or with an earlier expiration.

    >>> can_adopt_configuration(InstanceConfig("sqlite:a", 50), InstanceConfig("sqlite:a", 20))
    True
    >>> can_adopt_configuration(InstanceConfig("sqlite:a", 50), InstanceConfig("sqlite:a", None))
    False
    """
    sooner = running.expiration_offset is None or (
        asked.expiration_offset is not None and asked.expiration_offset <= running.expiration_offset
    )
    return sooner and (running.collections, running.introspection) == (asked.collections, asked.introspection)


def _halt(running: InstanceConfig, asked: InstanceConfig) -> IncompatibleInstance:
    return IncompatibleInstance(
        f"the replica runs with {running} and is asked to run with {asked}",
        why="what dataflows have in common cannot change while they run",
        fix="the process exits; restart it, and it adopts the new configuration",
        running=running,
        asked=asked,
    )


def _dataflows(commands: Sequence[Command]) -> tuple[Dataflow, ...]:
    return tuple(c.dataflow for c in commands if isinstance(c, CreateDataflow))
