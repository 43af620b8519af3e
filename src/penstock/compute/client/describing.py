"""What a name stands for, as the controller describes it."""

from __future__ import annotations

from penstock.compute.client.generated import client_pb2 as pb
from penstock.compute.client.rows import Known
from penstock.compute.controller.requests import Described
from penstock.compute.plans import schema_from_bytes, schema_to_bytes


def known_of(name: str, message: pb.Description) -> Known:
    """What a client knows then. Raises `BadMessage`."""
    return Known(
        name=name,
        id=message.id,
        view=message.view,
        schema=schema_from_bytes(message.schema),
        key=tuple(message.key),
        append_only=message.append_only,
    )


def description_of(described: Described) -> pb.Description:
    """What a controller says."""
    return pb.Description(
        id=described.id,
        view=described.view,
        schema=schema_to_bytes(described.schema),
        key=described.key,
        append_only=described.append_only,
    )
