"""Entries of the catalog as bytes: plain values, schemas in their portable form."""

from __future__ import annotations

from typing import Any

from penstock.compute.controller.catalog import (
    CollectionEntry,
    MaterializationTarget,
    ReplicaEntry,
    ViewEntry,
)
from penstock.compute.plans import schema_from_bytes, schema_to_bytes
from penstock.compute.protocol.commands import TimelyConfig
from penstock.compute.protocol.dataflow import Plan
from penstock.state import codec

_encode = codec.value_encoder()


def collection_to_bytes(entry: CollectionEntry) -> bytes:
    return _pack(entry.id, entry.name, schema_to_bytes(entry.schema), entry.append_only, entry.written_by)


def collection_from_bytes(data: bytes) -> CollectionEntry:
    """Raises TypeError, ValueError or a `PenstockError` for other bytes."""
    id, name, schema, append_only, written_by = _unpack(data)
    return CollectionEntry(id, name, schema_from_bytes(schema), append_only, written_by)


def view_to_bytes(entry: ViewEntry) -> bytes:
    into = entry.into and (entry.into.export, entry.into.collection)
    return _pack(
        entry.id,
        entry.name,
        entry.plan.body,
        entry.plan.places,
        entry.sink,
        schema_to_bytes(entry.schema),
        entry.append_only,
        entry.imports,
        entry.key,
        entry.keep,
        entry.valid_from,
        into,
    )


def view_from_bytes(data: bytes) -> ViewEntry:
    """Raises TypeError, ValueError or a `PenstockError` for other bytes."""
    id, name, body, places, sink, schema, append_only, imports, key, keep, valid_from, into = _unpack(data)
    return ViewEntry(
        id=id,
        name=name,
        plan=Plan(body, places),
        sink=sink,
        schema=schema_from_bytes(schema),
        append_only=append_only,
        imports=tuple((source, read) for source, read in imports),
        key=tuple(key),
        keep=keep,
        valid_from=valid_from,
        into=None if into is None else MaterializationTarget(*into),
    )


def replica_to_bytes(entry: ReplicaEntry) -> bytes:
    return _pack(entry.name, entry.address, entry.timely.runtime, entry.timely.workers)


def replica_from_bytes(data: bytes) -> ReplicaEntry:
    """Raises TypeError, ValueError or a `PenstockError` for other bytes."""
    name, address, runtime, workers = _unpack(data)
    return ReplicaEntry(name, address, TimelyConfig(runtime, workers))


def description_of(entry: CollectionEntry) -> bytes:
    """What the store is told of a collection: its columns, for who reads it there."""
    return schema_to_bytes(entry.schema)


def _pack(*values: Any) -> bytes:
    return _encode(values)


def _unpack(data: bytes) -> tuple[Any, ...]:
    return codec.decode(data)
