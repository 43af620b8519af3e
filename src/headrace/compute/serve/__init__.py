"""Server processes: the controller and the replica, each a state machine with sockets in one event loop."""
