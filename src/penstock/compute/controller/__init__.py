"""Controller: translates the requests of clients into protocol commands for replicas.

`Controller` is a state machine without sockets, threads or clocks; `ControllerState` is its durable state.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.compute.controller.controller import Controller
    from penstock.compute.controller.durable import ControllerState
    from penstock.compute.controller.replica_connection import ReplicaConnection
    from penstock.compute.controller.requests import (
        ControllerSettings,
        Described,
        PeekAnswer,
        PeekRequest,
        StashedOnReplica,
        Write,
    )
    from penstock.compute.controller.status_types import (
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
    "CollectionStatus": "penstock.compute.controller.status_types",
    "Controller": "penstock.compute.controller.controller",
    "ControllerState": "penstock.compute.controller.durable",
    "ControllerStatus": "penstock.compute.controller.status_types",
    "Described": "penstock.compute.controller.requests",
    "ViewReplicaStatus": "penstock.compute.controller.status_types",
    "PeekAnswer": "penstock.compute.controller.requests",
    "PeekRequest": "penstock.compute.controller.requests",
    "PeekStatus": "penstock.compute.controller.status_types",
    "ProblemNote": "penstock.compute.controller.status_types",
    "ReplicaConnection": "penstock.compute.controller.replica_connection",
    "ReplicaState": "penstock.compute.controller.status_types",
    "ReplicaStatus": "penstock.compute.controller.status_types",
    "ControllerSettings": "penstock.compute.controller.requests",
    "StashedOnReplica": "penstock.compute.controller.requests",
    "SubscriptionStatus": "penstock.compute.controller.status_types",
    "ViewStatus": "penstock.compute.controller.status_types",
    "Write": "penstock.compute.controller.requests",
}


def __getattr__(name: str) -> Any:
    # Lazy, because clients need only a small part, and should not wait for the rest to load.
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    raise AttributeError(f"module 'penstock.compute.controller' has no attribute {name!r}")


__all__ = [
    "CollectionStatus",
    "Controller",
    "ControllerSettings",
    "ControllerState",
    "ControllerStatus",
    "Described",
    "PeekAnswer",
    "PeekRequest",
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
