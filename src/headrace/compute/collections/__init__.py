"""Durable collections: timestamped changes that outlive every process.

`store` has `Collections`, the interface of a store, `open_collections`, which opens one by URI, and
`Listen`, which follows a collection.
"""
