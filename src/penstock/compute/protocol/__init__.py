"""Compute protocol: the messages between a controller and its replicas.

`commands` go from the controller to a replica, `responses` back, in order, over one stream. The duties
of both sides stand with each message. `stages` enforces when what may be sent; `wire` is the form on
the network (`compute.proto`), which `messages` derives from the classes.
"""
