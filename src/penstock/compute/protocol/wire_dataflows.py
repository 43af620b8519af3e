"""Dataflows in their form on the network."""

from __future__ import annotations

from penstock.compute.protocol import wire_fields as fields
from penstock.compute.protocol.dataflow import (
    CollectionExport,
    CollectionImport,
    CopyToExport,
    Dataflow,
    Export,
    IndexExport,
    IndexImport,
    Plan,
    SubscribeExport,
)
from penstock.compute.protocol.generated import compute_pb2 as pb


def to_message(dataflow: Dataflow) -> pb.Dataflow:
    return pb.Dataflow(
        plan=pb.Plan(body=dataflow.plan.body, places=dataflow.plan.places),
        collections=[
            pb.CollectionImport(source=i.source, id=i.id, upper=fields.frontier_message(i.upper))
            for i in dataflow.collections
        ],
        indexes=[pb.IndexImport(source=i.source, id=i.id) for i in dataflow.indexes],
        exports=[_export_message(export) for export in dataflow.exports],
        as_of=fields.frontier_message(dataflow.as_of),
        until=fields.frontier_message(dataflow.until),
        name=dataflow.name,
    )


def from_message(message: pb.Dataflow) -> Dataflow:
    fields.require(message, "plan")
    return Dataflow(
        plan=Plan(message.plan.body, message.plan.places),
        collections=tuple(
            CollectionImport(i.source, fields.name(i.id, "CollectionImport.id"), fields.frontier(i, "upper"))
            for i in message.collections
        ),
        indexes=tuple(IndexImport(i.source, fields.name(i.id, "IndexImport.id")) for i in message.indexes),
        exports=tuple(_export(export) for export in message.exports),
        as_of=fields.frontier(message, "as_of"),
        until=fields.frontier(message, "until"),
        name=message.name,
    )


def _export_message(export: Export) -> pb.Export:
    match export:
        case IndexExport(id, sink, key):
            return pb.Export(id=id, sink=sink, index=pb.Export.Index(key=key))
        case SubscribeExport(id, sink, snapshot):
            return pb.Export(id=id, sink=sink, subscribe=pb.Export.Subscribe(snapshot=snapshot))
        case CollectionExport(id, sink, collection):
            return pb.Export(id=id, sink=sink, collection=pb.Export.Collection(collection=collection))
        case CopyToExport(id, sink, file):
            return pb.Export(id=id, sink=sink, copy_to=pb.Export.CopyTo(file=file))


def _export(message: pb.Export) -> Export:
    id, sink = fields.name(message.id, "Export.id"), message.sink
    match fields.kind(message, "kind"):
        case "index":
            return IndexExport(id, sink, tuple(message.index.key))
        case "subscribe":
            return SubscribeExport(id, sink, message.subscribe.snapshot)
        case "collection":
            written = fields.name(message.collection.collection, "Export.Collection.collection")
            return CollectionExport(id, sink, written)
        case _:
            return CopyToExport(id, sink, fields.name(message.copy_to.file, "Export.CopyTo.file"))
