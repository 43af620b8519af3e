"""The client: asks a controller. `grpc` is imported with it."""
