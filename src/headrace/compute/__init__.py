"""Maintained views as a service: a controller, expendable replicas, durable collections, clients.

    client = headrace.compute.Client("127.0.0.1:7411")
    client.create_view("totals", flow, key="shop")
    client.insert("sales", [Sale("a", 1)])
    client.peek("totals", key="a")
    for batch in client.subscribe("totals"): ...

`protocol` defines the messages between controllers and replicas; `history` and `reconciliation` make it safe
to replay them; `controller` and `replica` are state machines without sockets; `channels` is gRPC;
`collections` stores the inputs; `client` has the clients, `serve` the server processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.requirements import import_attribute

if TYPE_CHECKING:
    from headrace.compute.client.client import AsyncClient, Client
    from headrace.compute.client.subscription import AsyncSubscription, Subscription, TimedUpdate, UpdateBatch
    from headrace.compute.credentials import Security

_LATER = {
    "AsyncClient": "headrace.compute.client.client",
    "AsyncSubscription": "headrace.compute.client.subscription",
    "UpdateBatch": "headrace.compute.client.subscription",
    "Client": "headrace.compute.client.client",
    "Security": "headrace.compute.credentials",
    "Subscription": "headrace.compute.client.subscription",
    "TimedUpdate": "headrace.compute.client.subscription",
}


def __getattr__(name: str) -> Any:
    # Lazy, so that importing one part of the package does not load the others, or gRPC.
    if name in _LATER:
        return import_attribute(_LATER[name], name, "serve", f"headrace.compute.{name}")
    raise AttributeError(f"module 'headrace.compute' has no attribute {name!r}")


__all__ = [
    "AsyncClient",
    "AsyncSubscription",
    "Client",
    "Security",
    "Subscription",
    "TimedUpdate",
    "UpdateBatch",
]
