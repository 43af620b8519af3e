"""Execution of a tick: the query that starts it, the tasks that run it, and the commit that ends it."""
