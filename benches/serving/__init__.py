"""What `benches/serve.py` runs: processes of Penstock, and the empty gRPC services it compares with."""
