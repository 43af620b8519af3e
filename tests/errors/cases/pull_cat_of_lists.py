"""Lists are no sources."""

from headrace.pull import cat, collect, pull, values

pull(cat([values([1]), [2, 3]]), collect()).run()
