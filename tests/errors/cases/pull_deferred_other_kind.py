"""A sink where a source stands."""

from headrace.pull import Source, collect, defer

later = defer(Source)
later.resolve(collect())
