"""Compute protocol: the messages between a controller and its replicas.

`commands` go from the controller to a replica and `responses` back, in order, over one stream. Each message
documents the duties of both sides. `stages` enforces which messages are allowed when; `wire` is the network
format (`compute.proto`), which `messages` derives from the classes.
"""
