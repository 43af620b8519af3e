"""Clients of a controller, synchronous and asynchronous. Importing them imports `grpc`."""
