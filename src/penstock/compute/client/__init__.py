"""The client: asks a controller for views, writes, reads, subscriptions. `grpc` is imported when it connects."""
