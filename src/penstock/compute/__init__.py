"""Views that stay up: a controller, replicas that may be killed, durable collections, clients.

`protocol` is what controllers and replicas say to each other; `history` and `reconciliation` make it safe
to say it again; `controller` and `replica` are state machines without sockets; `transport` is gRPC;
`collections` holds the inputs.
"""
