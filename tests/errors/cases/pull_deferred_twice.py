"""A deferred piece is one piece."""

from headrace.pull import Source, defer, values

later = defer(Source)
later.resolve(values([1]))
later.resolve(values([2]))
