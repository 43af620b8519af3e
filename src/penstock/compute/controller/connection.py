"""One connection to one replica, as the controller sees it."""

from __future__ import annotations

from collections.abc import Callable

from penstock.compute.errors import ComputeError
from penstock.compute.protocol.commands import Command, Epoch
from penstock.compute.protocol.responses import Response


class ReplicaConnection:
    """What a transport has to do for a replica: send what is taken, hand in what comes, say when it is over.

    epoch, nonce: of this connection, told in its first command.
    wake:         called when there may be something to take; set by the transport.
    """

    epoch: Epoch
    nonce: bytes
    wake: Callable[[], None]

    def take(self, most: int = 100) -> list[Command]:
        """The next commands, to be sent in this order; none where there are none now, or it is `over`."""
        raise NotImplementedError

    @property
    def over(self) -> bool:
        """Whether the connection is to be ended: it was superseded, its replica dropped, or it fell too far
        behind. The transport ends the stream, and calls `failed(None)`."""
        raise NotImplementedError

    def absorb(self, response: Response) -> None:
        """What the replica said. Ignored where the connection is over."""
        raise NotImplementedError

    def failed(self, error: ComputeError | None) -> None:
        """The stream has ended. A second call does nothing."""
        raise NotImplementedError
