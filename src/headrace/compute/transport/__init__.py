"""gRPC transport of the state machines: `server` serves a replica, `link` connects a controller to one.

`credentials` decides who may listen and connect where, `limits` how large messages may be. Only `server`,
`link` and the modules they use import `grpc`, so import these only where a connection is made.
"""
