"""A sink where a source stands."""

from penstock.pull import Source, collect, defer

later = defer(Source)
later.resolve(collect())
