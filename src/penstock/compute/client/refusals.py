"""What `grpc` raises when a call is refused or breaks, as our errors."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator
from typing import Any

import grpc

from penstock.compute.errors import ConnectionBroken
from penstock.compute.transport.statuses import error_from

_aio: Any = grpc.aio
END_OF_CALL: Any = _aio.EOF
"""What reading gives after the last message."""


@contextlib.contextmanager
def refusal(address: str) -> Generator[None]:
    """Raise what a call of `grpc.aio` inside raises as a `ComputeError`."""
    try:
        yield
    except _aio.AioRpcError as error:
        raise error_from(error, address) from error
    except (_aio.UsageError, _aio.InternalError, asyncio.InvalidStateError) as error:
        raise ConnectionBroken(f"the connection to {address} is closed", address=address) from error
