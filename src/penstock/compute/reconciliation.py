"""Reconciliation: which dataflows a replica keeps when a controller connects.

A controller that connects sends all that it wants, up to `InitializationComplete`. The replica compares these
with the commands it had before, and keeps each dataflow that would come out the same, so that a restart of
the controller costs no recomputation.

Law: a reconciled replica answers as a fresh one would with the same commands. The decision depends on the two
sequences of commands alone, never on the progress of the replica, so that all workers of a replica decide
alike.
Source: the compute protocol of Materialize, reconciliation on the replica (reference).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from penstock.compute.errors import IncompatibleInstance
from penstock.compute.frontier import END, START, Frontier
from penstock.compute.history import reduced
from penstock.compute.protocol.commands import (
    AllowCompaction,
    CancelPeek,
    Command,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    InitializationComplete,
    InstanceConfig,
    Peek,
)
from penstock.compute.protocol.dataflow import CopyToExport, Dataflow, Id, SubscribeExport

Reason: TypeAlias = Literal[
    "compatible", "uncompacted", "subscribe_free", "copy_to_free", "dependencies_retained"
]
"""What a dataflow must be in order to be kept:

compatible:            the same plan, imports and exports, from no later time on, and at least as far.
uncompacted:           no export was compacted beyond the time that it is asked from.
subscribe_free:        no subscription: what it has sent went to another connection.
copy_to_free:          no copy, for the same reason.
dependencies_retained: the indexes that it reads are kept, too.
"""


@dataclass(frozen=True, slots=True)
class ReconciliationPlan:
    """The steps of a reconciliation: `first`, then `then`, both in order.

    keep:    dataflows as asked that go on as they run, from their new as-of.
    drop:    exports that end. The replica reports nothing more about them.
    create:  dataflows that are built; where `reasons` has their export ids, instead of one that could not be
        kept.
    reasons: by the export ids of a dataflow that is replaced, what it fails to be.
    first:   compactions: END for what is dropped, the new as-of for what is kept. They come before the
        rest, so that memory is free before it is needed.
    then:    commands to apply. Settings start from `Parameters()`.
    history: the replica's history from now on.
    halt:    the replica cannot go on and ends its process, to start afresh. None: it goes on.
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

    installed: None: it has no state.
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
    """What a replica has: its dataflows by their export ids, and what of their exports is compacted beyond
    their as-of."""

    instance: InstanceConfig | None
    dataflows: Mapping[frozenset[Id], Dataflow]
    compactions: Mapping[Id, Frontier]

    @classmethod
    def of(cls, installed: Sequence[Command]) -> _Running:
        commands = reduced(c for c in installed if not isinstance(c, Peek | CancelPeek))
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
                if running.instance is not None and not compatible(running.instance, config):
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
    """Why the old dataflow cannot serve as the new one; nothing if it can."""
    conditions: dict[Reason, bool] = {
        "compatible": _same(old, new) and old.as_of <= new.as_of and old.until >= new.until,
        "uncompacted": all(compactions.get(e.id, START) <= new.as_of for e in new.exports),
        "subscribe_free": not any(isinstance(e, SubscribeExport) for e in new.exports),
        "copy_to_free": not any(isinstance(e, CopyToExport) for e in new.exports),
        "dependencies_retained": all(i.id in kept for i in new.indexes),
    }
    return tuple(reason for reason, holds in conditions.items() if not holds)


def _same(old: Dataflow, new: Dataflow) -> bool:
    """The same computation, by the hash of its plan. Names and the uppers of imports do not matter."""
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


def compatible(running: InstanceConfig, asked: InstanceConfig) -> bool:
    """Whether a replica of one configuration can go on with another: all is equal, but it may end sooner.

    >>> compatible(InstanceConfig("sqlite:a", 50), InstanceConfig("sqlite:a", 20))
    True
    >>> compatible(InstanceConfig("sqlite:a", 50), InstanceConfig("sqlite:a", None))
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
        fix="the process ends; start it again, and it begins with what is asked",
        running=running,
        asked=asked,
    )


def _dataflows(commands: Sequence[Command]) -> tuple[Dataflow, ...]:
    return tuple(c.dataflow for c in commands if isinstance(c, CreateDataflow))
