"""Commands in their form on the network."""

from __future__ import annotations

from collections.abc import Callable

from penstock.compute.protocol import rows, wire_dataflows
from penstock.compute.protocol import wire_fields as fields
from penstock.compute.protocol.commands import (
    AllowCompaction,
    AllowWrites,
    CancelPeek,
    CollectionTarget,
    Command,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    Epoch,
    Finishing,
    IndexTarget,
    InitializationComplete,
    InstanceConfig,
    Parameters,
    Peek,
    RuntimeName,
    Schedule,
    TimelyConfig,
    UpdateConfiguration,
)
from penstock.compute.protocol.generated import compute_pb2 as pb

_MOST_WORKERS = 1_000
"""Each is a process: nobody makes four thousand millions of them because a message says so."""
_RUNTIMES: dict[str, RuntimeName] = {"here": "here", "spark": "spark"}


def to_message(command: Command) -> pb.Command:
    match command:
        case Peek():
            return pb.Command(peek=_peek_message(command))
        case CancelPeek(uuid):
            return pb.Command(cancel_peek=pb.CancelPeek(uuid=uuid))
        case AllowCompaction(id, frontier):
            allowed = pb.AllowCompaction(id=id, frontier=fields.frontier_message(frontier))
            return pb.Command(allow_compaction=allowed)
        case CreateDataflow(dataflow):
            return pb.Command(create_dataflow=wire_dataflows.to_message(dataflow))
        case Schedule(id):
            return pb.Command(schedule=pb.Schedule(id=id))
        case AllowWrites(id):
            return pb.Command(allow_writes=pb.AllowWrites(id=id))
        case UpdateConfiguration(parameters):
            return pb.Command(update_configuration=_parameters_message(parameters))
        case CreateTimely(config, epoch, nonce):
            return pb.Command(
                create_timely=pb.CreateTimely(
                    runtime=config.runtime,
                    workers=config.workers,
                    epoch=pb.Epoch(controller=epoch.controller, replica=epoch.replica),
                    nonce=nonce,
                )
            )
        case CreateInstance(config):
            return pb.Command(
                create_instance=pb.CreateInstance(
                    collections=config.collections,
                    expiration_offset=config.expiration_offset,
                    introspection=config.introspection,
                )
            )
        case InitializationComplete():
            return pb.Command(initialization_complete=pb.InitializationComplete())


def from_message(message: pb.Command) -> Command:
    return _READERS[fields.kind(message, "kind")](message)


def _create_timely(message: pb.Command) -> CreateTimely:
    timely = message.create_timely
    fields.require(timely, "epoch")
    runtime = fields.chosen(_RUNTIMES, timely.runtime, "CreateTimely.runtime")
    if not 1 <= timely.workers <= _MOST_WORKERS:
        raise fields.bad("CreateTimely.workers", f"There is at least one, and at most {_MOST_WORKERS}.")
    return CreateTimely(
        TimelyConfig(runtime, timely.workers),
        Epoch(timely.epoch.controller, timely.epoch.replica),
        fields.key(timely.nonce, "CreateTimely.nonce"),
    )


def _create_instance(message: pb.Command) -> CreateInstance:
    instance = message.create_instance
    offset = fields.maybe(instance, "expiration_offset")
    return CreateInstance(InstanceConfig(instance.collections, offset, instance.introspection))


def _parameters_message(parameters: Parameters) -> pb.Parameters:
    return pb.Parameters(
        max_result_size=parameters.max_result_size,
        peek_stash_size=parameters.peek_stash_size,
        maintenance_interval=parameters.maintenance_interval,
        hydration_concurrency=parameters.hydration_concurrency,
    )


def _update_configuration(message: pb.Command) -> UpdateConfiguration:
    told = message.update_configuration
    return UpdateConfiguration(
        Parameters(
            max_result_size=fields.maybe(told, "max_result_size"),
            peek_stash_size=fields.maybe(told, "peek_stash_size"),
            maintenance_interval=fields.maybe(told, "maintenance_interval"),
            hydration_concurrency=fields.maybe(told, "hydration_concurrency"),
        )
    )


def _allow_compaction(message: pb.Command) -> AllowCompaction:
    allowed = message.allow_compaction
    return AllowCompaction(
        fields.name(allowed.id, "AllowCompaction.id"), fields.frontier(allowed, "frontier")
    )


def _peek_message(peek: Peek) -> pb.Peek:
    target = peek.target.id
    return pb.Peek(
        uuid=peek.uuid,
        index=target if isinstance(peek.target, IndexTarget) else None,
        collection=target if isinstance(peek.target, CollectionTarget) else None,
        time=peek.time,
        keys=None if peek.keys is None else rows.encode(peek.keys),
        predicate=peek.predicate,
        finishing=_finishing_message(peek.finishing),
    )


def _peek(message: pb.Command) -> Peek:
    peek = message.peek
    fields.require(peek, "finishing")
    which = fields.kind(peek, "target")
    target = IndexTarget(peek.index) if which == "index" else CollectionTarget(peek.collection)
    fields.name(target.id, f"Peek.{which}")
    keys = rows.decode_keys(peek.keys, "Peek.keys") if peek.HasField("keys") else None
    if keys == ():
        raise fields.bad("Peek.keys", "There is at least one, where it is set.")
    return Peek(
        fields.key(peek.uuid, "Peek.uuid"),
        target,
        fields.time(peek.time, "Peek.time"),
        keys,
        peek.predicate if peek.HasField("predicate") else None,
        _finishing(peek.finishing),
    )


def _finishing_message(finishing: Finishing) -> pb.Finishing:
    if finishing == _AS_IT_IS:
        return _AS_IT_IS_MESSAGE
    project = None if finishing.project is None else pb.Finishing.Project(columns=finishing.project)
    return pb.Finishing(
        order_by=[pb.Finishing.Order(column=column, down=down) for column, down in finishing.order_by],
        limit=finishing.limit,
        offset=finishing.offset,
        project=project,
    )


def _finishing(message: pb.Finishing) -> Finishing:
    if not message.ByteSize():
        return _AS_IT_IS
    return Finishing(
        tuple((order.column, order.down) for order in message.order_by),
        fields.maybe(message, "limit"),
        message.offset,
        tuple(message.project.columns) if message.HasField("project") else None,
    )


_AS_IT_IS = Finishing()
_AS_IT_IS_MESSAGE = pb.Finishing()

_READERS: dict[str, Callable[[pb.Command], Command]] = {
    "create_timely": _create_timely,
    "create_instance": _create_instance,
    "update_configuration": _update_configuration,
    "initialization_complete": lambda _: InitializationComplete(),
    "create_dataflow": lambda m: CreateDataflow(wire_dataflows.from_message(m.create_dataflow)),
    "schedule": lambda m: Schedule(fields.name(m.schedule.id, "Schedule.id")),
    "allow_writes": lambda m: AllowWrites(fields.name(m.allow_writes.id, "AllowWrites.id")),
    "allow_compaction": _allow_compaction,
    "peek": _peek,
    "cancel_peek": lambda m: CancelPeek(fields.key(m.cancel_peek.uuid, "CancelPeek.uuid")),
}
