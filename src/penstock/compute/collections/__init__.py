"""Durable collections: timestamped changes that survive everybody.

`store.Collections` is what a store must do, `opening.open_collections` opens one by its URI,
`listen.Listen` follows a collection.
"""
