"""Type markers for facts of streams, for type checkers.

A subclass is a stronger guarantee, and the parameters of `Stream` are covariant, so a `Bounded` stream is
accepted wherever an `Unbounded` one is. The union of two markers is their meet: `Bounded | Unbounded` is not
`Bounded`. The build-time check (`headrace.analysis`) is authoritative; type checkers just report earlier.
"""


class Unbounded:
    """Marker for streams that may never end."""


class Bounded(Unbounded):
    """Marker for streams whose rows all arrive in the first tick."""


class Changes:
    """Marker for streams with retractions."""


class Append(Changes):
    """Marker for append streams."""


class NoOrder:
    """Marker for streams without a meaningful order."""


class Ordered(NoOrder):
    """Marker for streams with a meaningful order."""
