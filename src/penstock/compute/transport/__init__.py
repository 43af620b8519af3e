"""gRPC around the state machines: `replica_server` for a replica, `replica_link` for a controller.

`credentials` says who may listen and connect where, `limits` how large messages may be. `grpc` is imported
by `replica_server` and `replica_link` alone and what they use, so import these where a connection is made.
"""
