"""Durable collections: timestamped changes that survive everybody."""
