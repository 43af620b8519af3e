"""One operator per file: its facts, its checks, its meaning."""
