"""gRPC around the state machines: `server` carries a replica, `link` a controller's connection to one.

`credentials` says who may listen and connect where, `limits` how large messages may be. `grpc` is imported
by `server` and `link` alone and what they use, so import these where a connection is made.
"""
