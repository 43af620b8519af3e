"""Controller: translates the requests of clients into protocol commands for replicas.

`Controller` is a state machine without sockets, threads or clocks; `ControllerState` is its durable state.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.compute.controller.connection import ReplicaConnection
    from penstock.compute.controller.controller import Controller
    from penstock.compute.controller.durable import ControllerState
    from penstock.compute.controller.requests import (
        ControllerSettings,
        Described,
        PeekAnswer,
        PeekRequest,
        StashedOnReplica,
        Write,
    )
    from penstock.compute.controller.status import (
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
    "CollectionStatus": "penstock.compute.controller.status",
    "Controller": "penstock.compute.controller.controller",
    "ControllerState": "penstock.compute.controller.durable",
    "ControllerStatus": "penstock.compute.controller.status",
    "Described": "penstock.compute.controller.requests",
    "ViewReplicaStatus": "penstock.compute.controller.status",
    "PeekAnswer": "penstock.compute.controller.requests",
    "PeekRequest": "penstock.compute.controller.requests",
    "PeekStatus": "penstock.compute.controller.status",
    "ProblemNote": "penstock.compute.controller.status",
    "ReplicaConnection": "penstock.compute.controller.connection",
    "ReplicaState": "penstock.compute.controller.status",
    "ReplicaStatus": "penstock.compute.controller.status",
    "ControllerSettings": "penstock.compute.controller.requests",
    "StashedOnReplica": "penstock.compute.controller.requests",
    "SubscriptionStatus": "penstock.compute.controller.status",
    "ViewStatus": "penstock.compute.controller.status",
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
