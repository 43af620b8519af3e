"""Durable collections: timestamped changes that outlive every process.

`store.Collections` is what a store must do, `opening.open_collections` opens one by its URI,
`listen.Listen` follows a collection.
"""
