"""The controller as a process: one event loop around the state machine of `controller`, with sockets."""
