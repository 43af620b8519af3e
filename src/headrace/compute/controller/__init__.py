"""Controller: translates the requests of clients into protocol commands for replicas.

`Controller` is a state machine without sockets, threads or clocks: `ControllerState`, and the calls on it.
`DurableCatalog` is what of it outlives the process.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.compute.controller.controller import Controller
    from headrace.compute.controller.durable_catalog import DurableCatalog
    from headrace.compute.controller.pending import PeekAnswer, StashedOnReplica
    from headrace.compute.controller.replica_connection import ReplicaConnection
    from headrace.compute.controller.settings import ControllerSettings
    from headrace.compute.controller.state import ControllerState, Write
    from headrace.compute.controller.status import (
        CollectionStatus,
        ControllerStatus,
        PeekStatus,
        ProblemNote,
        ReplicaState,
        ReplicaStatus,
        SubscriptionStatus,
        ViewReplicaStatus,
        ViewStatus,
    )

_LATER = {
    "Controller": "headrace.compute.controller.controller",
    "DurableCatalog": "headrace.compute.controller.durable_catalog",
    "PeekAnswer": "headrace.compute.controller.pending",
    "StashedOnReplica": "headrace.compute.controller.pending",
    "ReplicaConnection": "headrace.compute.controller.replica_connection",
    "ControllerSettings": "headrace.compute.controller.settings",
    "ControllerState": "headrace.compute.controller.state",
    "Write": "headrace.compute.controller.state",
    "CollectionStatus": "headrace.compute.controller.status",
    "ControllerStatus": "headrace.compute.controller.status",
    "PeekStatus": "headrace.compute.controller.status",
    "ProblemNote": "headrace.compute.controller.status",
    "ReplicaState": "headrace.compute.controller.status",
    "ReplicaStatus": "headrace.compute.controller.status",
    "SubscriptionStatus": "headrace.compute.controller.status",
    "ViewReplicaStatus": "headrace.compute.controller.status",
    "ViewStatus": "headrace.compute.controller.status",
}


def __getattr__(name: str) -> Any:
    # Lazy, because clients need only a small part, and should not wait for the rest to load.
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    raise AttributeError(f"module 'headrace.compute.controller' has no attribute {name!r}")


__all__ = [
    "CollectionStatus",
    "Controller",
    "ControllerSettings",
    "ControllerState",
    "ControllerStatus",
    "DurableCatalog",
    "PeekAnswer",
    "PeekStatus",
    "ProblemNote",
    "ReplicaConnection",
    "ReplicaState",
    "ReplicaStatus",
    "StashedOnReplica",
    "SubscriptionStatus",
    "ViewReplicaStatus",
    "ViewStatus",
    "Write",
]
