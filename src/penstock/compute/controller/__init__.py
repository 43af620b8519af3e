"""The controller: knows what is wanted, tells replicas, and keeps what they say together.

`Controller` is a state machine without sockets, threads or clocks; `ControllerState` is what it must not
forget.
"""

from penstock.compute.controller.connection import ReplicaConnection
from penstock.compute.controller.controller import Controller
from penstock.compute.controller.durable import ControllerState
from penstock.compute.controller.requests import Described, PeekAnswer, PeekRequest, StashedAt, Write
from penstock.compute.controller.settings import Settings
from penstock.compute.controller.status import (
    CollectionStatus,
    ControllerStatus,
    OnReplica,
    PeekStatus,
    ProblemNote,
    ReplicaState,
    ReplicaStatus,
    SubscriptionStatus,
    ViewStatus,
)

__all__ = [
    "CollectionStatus",
    "Controller",
    "ControllerState",
    "ControllerStatus",
    "Described",
    "OnReplica",
    "PeekAnswer",
    "PeekRequest",
    "PeekStatus",
    "ProblemNote",
    "ReplicaConnection",
    "ReplicaState",
    "ReplicaStatus",
    "Settings",
    "StashedAt",
    "SubscriptionStatus",
    "ViewStatus",
    "Write",
]
