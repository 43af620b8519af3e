"""A deferred piece is one piece."""

from headrace.pull import PullSource, defer, values

later = defer(PullSource)
later.resolve(values([1]))
later.resolve(values([2]))
