"""The shell of a replica: stages, epochs, history, reconciliation; around any runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from penstock.compute.errors import ComputeError
from penstock.compute.protocol.commands import Command, Epoch, InstanceConfig, TimelyConfig
from penstock.compute.protocol.responses import Counted, Response
from penstock.compute.replica.runtime import Runtime


class Replica:
    """A replica without sockets, threads or a clock of its own."""

    greatest_epoch: Epoch | None

    def __init__(
        self,
        make_runtime: Callable[[TimelyConfig, InstanceConfig, Callable[[], None]], Runtime],
        *,
        clock: Callable[[], int],
        wake: Callable[[], None],
        halt: Callable[[ComputeError], None],
    ) -> None:
        raise NotImplementedError

    def connected(self, nonce: bytes) -> None:
        raise NotImplementedError

    def receive(self, command: Command) -> None:
        raise NotImplementedError

    def step(self, seconds: float) -> bool:
        raise NotImplementedError

    def responses(self) -> list[Response]:
        raise NotImplementedError

    def disconnected(self) -> None:
        raise NotImplementedError

    def fetch(self, token: bytes) -> Iterator[list[Counted]]:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError
