"""Lists are no sources."""

from penstock.pull import cat, collect, pull, values

pull(cat([values([1]), [2, 3]]), collect()).run()
