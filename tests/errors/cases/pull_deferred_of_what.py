"""No kind of piece."""

from headrace.pull import defer, values

later = defer(values([1]))
