"""No kind of piece."""

from penstock.pull import defer, values

later = defer(values([1]))
