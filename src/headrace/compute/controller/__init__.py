"""Controller: translates the requests of clients into protocol commands for replicas.

`Controller` is a state machine without sockets, threads or clocks: `ControllerState`, and the calls on it.
`DurableCatalog` is what of it outlives the process.
"""
