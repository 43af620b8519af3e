"""What `benches/serve.py` runs: processes of Headrace, and the empty gRPC services it compares with."""
