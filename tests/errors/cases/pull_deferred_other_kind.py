"""A sink where a source stands."""

from headrace.pull import PullSource, collect, defer

later = defer(PullSource)
later.resolve(collect())
