"""Replicas that run, beside a controller in a test: without sockets, in one thread."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from headrace.compute.collections.memory import MemoryCollections, SharedStore
from headrace.compute.collections.store import CollectionBounds
from headrace.compute.controller.controller import Controller
from headrace.compute.controller.replica_connection import ReplicaConnection
from headrace.compute.errors import ConnectionBroken, StoreUnavailable
from headrace.compute.protocol.commands import Command, Dataflow, Id, InstanceConfig, TimelyConfig
from headrace.compute.protocol.responses import Status
from headrace.compute.replica.in_process.runtime import InProcessRuntime
from headrace.compute.replica.replica import Replica
from tests.compute.controller.world import World


class Counting(InProcessRuntime):
    """The runtime of the in-process engine; notes what it is told to build."""

    def __init__(self, built: list[str], *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._built = built

    def create_dataflow(self, dataflow: Dataflow) -> None:
        self._built += sorted(dataflow.export_ids)
        super().create_dataflow(dataflow)


class LiveReplica:
    """A process of a replica, which outlives controllers.

    built: ids of exports, each time they were built.
    deaf_to: commands that do not reach it.
    away:    whether it cannot reach the store.
    """

    def __init__(self, name: str, shared: SharedStore, clock: Callable[[], int]) -> None:
        self.name = name
        self.built: list[str] = []
        self.told: list[Command] = []
        self.connection: ReplicaConnection | None = None
        self.deaf_to: type[Any] | None = None
        self.away = False
        self.shared = shared
        self._clock = clock
        self.replica = Replica(self._runtime, clock=clock, wake=lambda: None, halt=self._halt)

    def connect(self, controller: Controller) -> None:
        self.connection = controller.accept_connection(self.name)
        self.replica.begin_connection(self.connection.nonce)

    def cut(self) -> None:
        if self.connection is not None:
            self.connection.record_stream_end(ConnectionBroken("cut", address=self.name))
        self.connection = None
        self.replica.end_connection()

    def pump(self) -> bool:
        """Carry messages both ways, and work; whether there is more to do."""
        assert self.connection is not None
        commands = self.connection.take_commands()
        for command in commands:
            if self.deaf_to is not None and isinstance(command, self.deaf_to):
                continue
            self.told.append(command)
            self.replica.receive(command)
        busy = self.replica.step(0.0)
        responses = self.replica.responses()
        for response in responses:
            self.connection.handle_response(response)
        told = [response for response in responses if not isinstance(response, Status)]
        return bool(commands or busy or told)

    def _runtime(
        self, timely: TimelyConfig, config: InstanceConfig, wake: Callable[[], None]
    ) -> InProcessRuntime:
        timer = itertools.count().__next__
        collections = Reaching(self)
        return Counting(self.built, config, wake, collections=collections, clock=self._clock, timer=timer)

    def _halt(self, error: Exception) -> None:
        raise AssertionError(f"{self.name} ends itself: {error}")


class Reaching(MemoryCollections):
    """The store as one replica reaches it."""

    def __init__(self, replica: LiveReplica) -> None:
        super().__init__(replica.shared)
        self._replica = replica

    def bounds(self, ids: Sequence[Id]) -> list[CollectionBounds]:
        if self._replica.away:
            raise StoreUnavailable("the store cannot be reached")
        return super().bounds(ids)


class LiveWorld(World):
    """A world with replicas that run."""

    def __init__(self) -> None:
        self.shared = SharedStore()
        self.live: dict[str, LiveReplica] = {}
        super().__init__(collections=MemoryCollections(self.shared))

    def joins(self, name: str) -> LiveReplica:
        self.controller.add_replica(name, f"{name}:1")
        self.live[name] = LiveReplica(name, self.shared, lambda: self.now)
        self.live[name].connect(self.controller)
        return self.live[name]

    def reconnect(self) -> None:
        for replica in self.live.values():
            replica.connect(self.controller)

    def rest(self) -> None:
        """Until nobody has anything to do."""
        quiet = 0
        for _ in range(10_000):
            self.passes(100)
            connected = [replica for replica in self.live.values() if replica.connection is not None]
            busy = [replica.pump() for replica in connected]
            quiet = 0 if any(busy) else quiet + 1
            if quiet == 10:
                return
        raise AssertionError("it does not come to rest")

    def rows(self, view: str, **options: Any) -> list[Any]:
        _, answers = self.peek(view, **options)
        self.rest()
        assert len(answers) == 1, answers
        return sorted(answers[0].rows)
