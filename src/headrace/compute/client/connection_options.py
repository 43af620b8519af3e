"""Connection options of a client: the controller's address and credentials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.compute.transport.credentials import Security
from headrace.compute.transport.handshake import Pairs, version_metadata
from headrace.compute.transport.limits import Limits

DEFAULT_ADDRESS = "127.0.0.1:7411"
"""Default address of `headrace controller`."""
ADDRESS_VARIABLE = "HEADRACE_CONTROLLER"
"""Environment variable that holds the controller's address."""
SERVICE = "headrace.client.v1.Front"
"""Name of the service in `client.proto`, with its version."""
CONVERSE = f"/{SERVICE}/Converse"
SUBSCRIBE = f"/{SERVICE}/Subscribe"


@dataclass(frozen=True)
class Endpoint:
    """Address of a controller (HOST:PORT) with the credentials to connect."""

    address: str
    security: Security = Security()  # noqa: RUF009
    limits: Limits = Limits()  # noqa: RUF009

    def channel(self) -> Any:
        """Create a `grpc.aio` channel, which connects at the first call. Raises `InsecureAddress`."""
        from headrace.compute.transport.channels import open_channel

        return open_channel(self.address, self.security, self.limits)

    def metadata(self) -> Pairs:
        """Return the metadata to send with each call."""
        return (*version_metadata(), *self.security.metadata())
