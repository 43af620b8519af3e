"""A tick, from the query that starts it to the tasks that run it and the commit that makes it count."""
