"""Views that stay up: a controller, replicas that may be killed, durable collections, clients.

    client = penstock.compute.Client("127.0.0.1:7411")
    client.create_view("totals", flow, key="shop")
    client.insert("sales", [Sale("a", 1)])
    client.peek("totals", key="a")
    for batch in client.subscribe("totals"): ...

`protocol` is what controllers and replicas say to each other; `history` and `reconciliation` make it safe
to say it again; `controller` and `replica` are state machines without sockets; `transport` is gRPC;
`collections` holds the inputs; `client` asks, `serve` is the processes.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.compute.client.async_client import AsyncClient
    from penstock.compute.client.client import Client
    from penstock.compute.client.subscription import AsyncSubscription, Batch, Subscription, Update
    from penstock.compute.transport.credentials import Security

_LATER = {
    "AsyncClient": "penstock.compute.client.async_client",
    "AsyncSubscription": "penstock.compute.client.subscription",
    "Batch": "penstock.compute.client.subscription",
    "Client": "penstock.compute.client.client",
    "Security": "penstock.compute.transport.credentials",
    "Subscription": "penstock.compute.client.subscription",
    "Update": "penstock.compute.client.subscription",
}


def __getattr__(name: str) -> Any:
    # Whoever imports the package for one of its parts need not load the others, nor gRPC.
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    raise AttributeError(f"module 'penstock.compute' has no attribute {name!r}")


__all__ = ["AsyncClient", "AsyncSubscription", "Batch", "Client", "Security", "Subscription", "Update"]
