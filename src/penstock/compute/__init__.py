"""Maintained views as a service: a controller, expendable replicas, durable collections, clients.

    client = penstock.compute.Client("127.0.0.1:7411")
    client.create_view("totals", flow, key="shop")
    client.insert("sales", [Sale("a", 1)])
    client.peek("totals", key="a")
    for batch in client.subscribe("totals"): ...

`protocol` defines the messages between controllers and replicas; `history` and `reconciliation` make it safe
to replay them; `controller` and `replica` are state machines without sockets; `transport` is gRPC;
`collections` stores the inputs; `client` has the clients, `serve` the server processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.requirements import import_attribute

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
    # Lazy, so that importing one part of the package does not load the others, or gRPC.
    if name in _LATER:
        return import_attribute(_LATER[name], name, "serve", f"penstock.compute.{name}")
    raise AttributeError(f"module 'penstock.compute' has no attribute {name!r}")


__all__ = ["AsyncClient", "AsyncSubscription", "Batch", "Client", "Security", "Subscription", "Update"]
