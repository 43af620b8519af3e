"""Controller: translates the requests of clients into protocol commands for replicas.

`Controller` is a state machine without sockets, threads or clocks; `ControllerState` is its durable state.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.compute.controller.controller import Controller
    from headrace.compute.controller.durable import ControllerState
    from headrace.compute.controller.replica_connection import ReplicaConnection
    from headrace.compute.controller.requests import (
        ControllerSettings,
        Described,
        PeekAnswer,
        PeekRequest,
        StashedOnReplica,
        Write,
    )
    from headrace.compute.controller.status_types import (
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
    "CollectionStatus": "headrace.compute.controller.status_types",
    "Controller": "headrace.compute.controller.controller",
    "ControllerState": "headrace.compute.controller.durable",
    "ControllerStatus": "headrace.compute.controller.status_types",
    "Described": "headrace.compute.controller.requests",
    "ViewReplicaStatus": "headrace.compute.controller.status_types",
    "PeekAnswer": "headrace.compute.controller.requests",
    "PeekRequest": "headrace.compute.controller.requests",
    "PeekStatus": "headrace.compute.controller.status_types",
    "ProblemNote": "headrace.compute.controller.status_types",
    "ReplicaConnection": "headrace.compute.controller.replica_connection",
    "ReplicaState": "headrace.compute.controller.status_types",
    "ReplicaStatus": "headrace.compute.controller.status_types",
    "ControllerSettings": "headrace.compute.controller.requests",
    "StashedOnReplica": "headrace.compute.controller.requests",
    "SubscriptionStatus": "headrace.compute.controller.status_types",
    "ViewStatus": "headrace.compute.controller.status_types",
    "Write": "headrace.compute.controller.requests",
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
