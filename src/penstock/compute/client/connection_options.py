"""Where a controller is, and how both sides prove who they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.compute.transport.credentials import Security
from penstock.compute.transport.handshake import Pairs, version
from penstock.compute.transport.limits import Limits

DEFAULT_ADDRESS = "127.0.0.1:7411"
"""Where `penstock controller` listens if it is told nothing else."""
ADDRESS_VARIABLE = "PENSTOCK_CONTROLLER"
"""The environment variable that says where clients and commands find it."""
SERVICE = "penstock.client.v1.Front"
"""The service in `client.proto`, with the version of what clients say."""
CONVERSE = f"/{SERVICE}/Converse"
SUBSCRIBE = f"/{SERVICE}/Subscribe"


@dataclass(frozen=True)
class Endpoint:
    """A controller: HOST:PORT, and the credentials for it."""

    address: str
    security: Security = Security()  # noqa: RUF009
    limits: Limits = Limits()  # noqa: RUF009

    def channel(self) -> Any:
        """A `grpc.aio` channel; nothing is sent before the first call. Raises `InsecureAddress`."""
        from penstock.compute.transport.channels import open_channel

        return open_channel(self.address, self.security, self.limits)

    def metadata(self) -> Pairs:
        """What is sent with each call."""
        return (*version(), *self.security.metadata())
