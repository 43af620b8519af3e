"""Durable collections: timestamped changes that outlive every process.

`store.Collections` is the interface of a store, `opening.open_collections` opens one by URI,
`listen.Listen` follows a collection.
"""
