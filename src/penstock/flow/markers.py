"""Markers of what a stream is known to be, for type checkers.

A subclass is the stronger guarantee and the parameters of `Stream` are
covariant, so a `Bounded` stream goes wherever an `Unbounded` one does. The
union of two markers is their meet: `Bounded | Unbounded` is not `Bounded`.
The build-time check (`penstock.analysis`) is the authority; this one is early.
"""


class Unbounded:
    """Rows may come for ever."""


class Bounded(Unbounded):
    """All rows come with the first tick."""


class Changes:
    """Rows may be taken back."""


class Append(Changes):
    """Rows are only ever added."""


class NoOrder:
    """The order of rows means nothing."""


class Ordered(NoOrder):
    """The order of rows is kept."""
